"""`MAS`: memory aware synapses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from evergraph.detect.base import set_number
from evergraph.learning.regularise import Lesson, gradients
from evergraph.nn.base import Parameters
from evergraph_baselines.regularisers.importance import WeightImportance

__all__ = ["MAS"]


@dataclass(frozen=True)
class MAS(WeightImportance):
    """Memory aware synapses: a weight is important if the model's outputs are sensitive to it.

    The importance is the mean over the labelled training vertices of the size of the gradient of the squared norm of
    the logits, summed over tasks. The penalty is strength · Σ importance · (weight - weight after the latest task)².

    Source: Aljundi et al., Memory Aware Synapses: Learning what (not) to forget, ECCV 2018. The strength is the default
    of the authors' program (``MAS.py``), which says that it was set to that for object recognition; the programs of TWP
    and CGLB have 10,000 for graphs. As in the authors' program, the size is that of the sum over a group of vertices:
    the vertices are divided at random into groups. With as many groups as vertices, it is the formula of the paper.

    Parameters
    ----------
    strength
        Factor of the penalty, λ in the paper.
    groups
        Most groups of vertices, each of which costs a backward pass after each task. With mini-batches, each batch is a
        group.

    Examples
    --------
    >>> MAS()
    MAS(strength=1.0, groups=32)
    """

    strength: float = 1.0
    groups: int = 32
    latest_anchor: ClassVar[bool] = True

    def __post_init__(self) -> None:
        set_number(self, "strength")
        set_number(self, "groups", 1, whole=True)

    @property
    def factor(self) -> float:
        return self.strength

    def importance(self, lesson: Lesson) -> Parameters:
        """Return how sensitive the outputs are to each weight."""
        leaves, random = lesson.leaves(), lesson.random()
        found = {name: torch.zeros_like(value) for name, value in lesson.trained.items()}
        vertices = 0
        for part in lesson.parts(self.groups):
            logits = lesson.logits(part, weights=leaves)
            groups = min(self.groups, len(logits)) if part is lesson.batch else 1
            member = torch.from_numpy(random.permutation(np.arange(len(logits)) % groups)).to(logits.device)
            for group in range(groups):
                slope = 2 * logits.detach() * (member == group).unsqueeze(1)
                for name, value in gradients(logits, leaves, slope, again=group + 1 < groups).items():
                    found[name] += value.abs()
            vertices += len(logits)
        return {name: value / vertices for name, value in found.items()}
