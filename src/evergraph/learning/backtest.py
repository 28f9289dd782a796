"""Backtest of the inputs: whether a block pays, and how much the classes of older neighbours count beside the model.

Before the model is trained on new labels, it decides their vertices again, and once more without each optional block:
one forward pass each. Another model, trained without the block, would be a fairer comparison, at many times the cost.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evergraph.graph.classes import columns_among
from evergraph.inputs.vocabulary import BLOCK_NAMES, Vocabulary
from evergraph.learning.stacking import Stacking

if TYPE_CHECKING:
    from evergraph.learning.task import Task

__all__ = ["BlockGain", "backtest", "optional_blocks", "without_useless"]

log = logging.getLogger(__name__)

_OPTIONAL = ("classes", "encoder")
_MIN_VERTICES = 1_000  # vertices of past slices before a block can be left out
_MIN_GAIN = 0.005  # gain in accuracy that a block must have


class BlockGain(NamedTuple):
    """Accuracy on past slices with and without a block: vertices, how many were right with it, and without it."""

    vertices: int
    right: int
    right_without: int

    @property
    def share(self) -> float:
        """What the block gained."""
        return (self.right - self.right_without) / max(self.vertices, 1)

    def __add__(self, other: BlockGain) -> BlockGain:  # type: ignore[override]
        return BlockGain(*(one + more for one, more in zip(self, other, strict=True)))


def optional_blocks(vocabulary: Vocabulary) -> list[str]:
    """Return the blocks to backtest; the only block that a model reads is not one of them."""
    blocks = vocabulary.read_blocks
    return [block for block in _OPTIONAL if block in blocks] if len(blocks) > 1 else []


def backtest(
    slices: Iterable[tuple[Task, NDArray[np.int32]]],
    logits_of: Callable[[Task, Vocabulary], NDArray[np.float32]],
    vocabulary: Vocabulary,
    classes: tuple[str, ...],
    optional: Sequence[str],
    gains: Mapping[str, BlockGain],
    stacking: Stacking | None,
) -> tuple[dict[str, BlockGain], Stacking | None]:
    """Return gains and stacking after some slices with new labels, given as tasks and codes of the test vertices.

    ``logits_of`` returns the model's own logits for the test vertices of a task.
    """
    gains = dict(gains)
    if not optional and stacking is None:
        return gains, stacking
    for task, codes in slices:
        targets = columns_among(classes, task.graph.class_names)[codes]
        evidence = None if stacking is None else stacking.evidence(task, task.test_window, classes)
        logits = logits_of(task, vocabulary)
        for block in optional:
            both = (logits, logits_of(task, vocabulary.without(block)))
            if stacking is not None and evidence is not None:
                both = (stacking.combined(both[0], evidence), stacking.combined(both[1], evidence))
            right, right_without = (int((one.argmax(1) == targets).sum()) for one in both)
            found = BlockGain(int((targets >= 0).sum()), right, right_without)
            gains[block] = gains[block] + found if block in gains else found
        if stacking is not None and evidence is not None:
            stacking = stacking.fitted(logits, evidence, targets)
    return gains, stacking


def without_useless(vocabulary: Vocabulary, gains: Mapping[str, BlockGain], task: Task) -> Vocabulary:
    """Return the vocabulary without the blocks that did not pay."""
    for block, gain in gains.items():
        if block in vocabulary.read_blocks and gain.vertices >= _MIN_VERTICES and gain.share < _MIN_GAIN:
            log.info(
                "Inputs: the model does not read %s from %s on. Accuracy on %s vertices of past slices was "
                "%.1f %% with them and %.1f %% without.%s",
                *(BLOCK_NAMES[block], task.graph.axis.label(task.time), f"{gain.vertices:,}"),
                *(100 * right / gain.vertices for right in (gain.right, gain.right_without)),
                " They still count beside the model's outputs." if block == "classes" else "",
            )
            vocabulary = vocabulary.without(block)
    return vocabulary
