"""`AverageDetector`: the average of six scores, propagated over similar vertices, with a back-tested threshold.

It was the detector ``auto`` before the one of `evergraph.detect.auto`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce
from numbers import Real
from typing import Any, ClassVar

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from evergraph.detect import Decision, Outputs, PostHoc, Requirements, Softmax
from evergraph.detect.base import PAST, State, set_number
from evergraph.detect.scores import MSP, Score, inner_state, outer_state
from evergraph.detect.thresholds import BackTest
from evergraph.errors import InputError
from evergraph_baselines.scores import AuxiliaryModel, ClassLikelihood, ExcessWords, KnownDistance, SliceDensity

__all__ = ["COUNTS", "SIGNALS", "Average", "AverageDetector", "Propagated", "average_signals"]

_MEANS, _VARIANCES = f"{PAST}means", f"{PAST}variances"
_FARTHEST = 4.0  # standard deviations; values beyond it are clipped


# --- scores made of other scores -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Propagated(Score):
    """x ← (1 - weight) · score + weight · mean of x over similar vertices, repeated; without any, the score itself.

    A new class appears as a group of vertices that are linked and share words. Similar vertices are the neighbours
    within the slice and the five nearest by words (`SliceContext.similar`). Older vertices are left out, because their
    classes are known.

    Source of the idea: energy propagation in Wu et al., Energy-based Out-of-Distribution Detection for Graph Neural
    Networks, ICLR 2023, which propagates over all edges.

    Parameters
    ----------
    score
        The other score.
    weight
        Weight of the similar vertices, from 0 to 1.
    rounds
        Number of repetitions.

    Examples
    --------
    >>> from evergraph.detect.scores import Energy
    >>> Propagated(Energy()).compute(Outputs(torch.zeros(1, 2)), {})  # without context, the score itself
    tensor([-0.6931], dtype=torch.float64)
    """

    score: Score
    weight: float = 0.7
    rounds: int = 3

    def __post_init__(self) -> None:
        if not isinstance(self.score, Score):
            raise InputError(f"the argument score is {self.score!r}", fix="pass a score of evergraph.detect.scores")
        set_number(self, "weight", 0, 1)
        set_number(self, "rounds", whole=True)

    @property
    def requires(self) -> Requirements:
        return self.score.requires | Requirements(fit=False, context=True)

    def fit(self, outputs: Outputs, targets: Tensor, state: State) -> State:
        return outer_state(self.score.fit(outputs, targets, inner_state(state, "score")), "score")

    def observe(self, outputs: Outputs, targets: Tensor, state: State) -> State:
        return outer_state(self.score.observe(outputs, targets, inner_state(state, "score")), "score")

    def compute(self, outputs: Outputs, state: State) -> Tensor:
        x = self.score.compute(outputs, inner_state(state, "score"))
        if outputs.context is None or not len(x):
            return x
        similar = outputs.context.similar
        ties = np.asarray(similar.sum(1)).ravel()
        mean = sparse.diags_array(1 / np.where(ties > 0, ties, 1)) @ similar
        own = x.cpu().numpy()
        found = own
        for _ in range(self.rounds):
            found = np.where(ties > 0, (1 - self.weight) * own + self.weight * (mean @ found), own)
        return torch.from_numpy(found).to(x.device)


@dataclass(frozen=True)
class Average(Score):
    """Weighted mean of several scores, each in standard deviations from the known-class vertices of past slices.

    All observed slices count alike. A score that is 0 for a whole slice is ignored there. If a whole slice scores
    higher than past slices, its average is high. Before anything is observed, the slice itself standardises.

    The state is ``past.means`` and ``past.variances`` of known-class vertices, one row per observed slice and one
    column per score, and the states of the scores under their numbers.

    Parameters
    ----------
    scores
        One or more.
    counts
        Weight of each score; equal by default.

    Examples
    --------
    >>> from evergraph.detect.scores import Energy
    >>> both, outputs = Average((Energy(), Energy(2.0))), Outputs(torch.tensor([[0.0], [2.0]]))
    >>> both.compute(outputs, both.observe(outputs, torch.tensor([0, 0]), {}))
    tensor([ 1., -1.], dtype=torch.float64)
    """

    scores: tuple[Score, ...]
    counts: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        scores = tuple(self.scores)
        if not scores or not all(isinstance(score, Score) for score in scores):
            raise InputError(f"the argument scores is {self.scores!r}", fix="pass scores of evergraph.detect.scores")
        counts: tuple[Any, ...] = tuple(self.counts) if isinstance(self.counts, (tuple, list)) else (self.counts,)
        valid = all(isinstance(one, Real) and 0 < float(one) < math.inf for one in counts)
        if not valid or bool in map(type, counts) or len(counts) not in (0, len(scores)):
            raise InputError(
                f"the argument counts is {self.counts!r} for {len(scores)} scores",
                fix="pass as many numbers above 0 as there are scores, or none",
            )
        if len({score.requires.auxiliary for score in scores} - {None}) > 1:
            raise InputError("the scores require different auxiliary models", fix="leave out all but one of them")
        object.__setattr__(self, "scores", scores)
        object.__setattr__(self, "counts", tuple(map(float, counts)) or (1.0,) * len(scores))

    @property
    def requires(self) -> Requirements:
        return reduce(Requirements.__or__, (score.requires for score in self.scores))

    def fit(self, outputs: Outputs, targets: Tensor, state: State) -> State:
        found: dict[str, Tensor] = {}
        for number, score in enumerate(self.scores):
            found |= outer_state(score.fit(outputs, targets, inner_state(state, str(number))), str(number))
        return found

    def observe(self, outputs: Outputs, targets: Tensor, state: State) -> State:
        found: dict[str, Tensor] = {}
        for number, score in enumerate(self.scores):
            found |= outer_state(score.observe(outputs, targets, inner_state(state, str(number))), str(number))
        raw = self._raw(outputs, state)
        known = raw[targets >= 0]
        if len(known):
            for name, row in ((_MEANS, known.mean(0)), (_VARIANCES, known.var(0, correction=0))):
                row[(raw == 0).all(0)] = torch.nan
                found[name] = torch.cat([state.get(name, row.new_empty(0, *row.shape)).to(row), row[None]])
        return found

    def compute(self, outputs: Outputs, state: State) -> Tensor:
        raw = self._raw(outputs, state)
        if not len(raw):
            return raw.sum(1)
        if _MEANS in state:
            means, variances = state[_MEANS].to(raw), state[_VARIANCES].to(raw)
        else:
            means, variances = raw.mean(0, keepdim=True), raw.var(0, correction=0, keepdim=True)
        middle = means.nanmean(0)
        spread = torch.sqrt(variances.nanmean(0) + (means - middle).square().nanmean(0))
        used = ~(raw == 0).all(0) & (spread > 1e-9 * raw.abs().amax(0))
        middle, spread = torch.where(used, middle, 0), torch.where(used, spread, 1)
        deviations = torch.where(used, ((raw - middle) / spread).clamp(-_FARTHEST, _FARTHEST), 0)
        counts = torch.tensor(self.counts, dtype=raw.dtype, device=raw.device)
        return deviations @ (counts / counts.sum())

    def _raw(self, outputs: Outputs, state: State) -> Tensor:
        """The scores before standardisation, one column each."""
        return torch.stack(
            [score.compute(outputs, inner_state(state, str(number))) for number, score in enumerate(self.scores)], 1
        )


# --- the detector ----------------------------------------------------------------------------------------------------

SIGNALS: dict[str, Score] = {
    "msp": MSP(),
    "auxiliary": AuxiliaryModel(),
    "excess_words": ExcessWords(),
    "class_likelihood": ClassLikelihood(),
    "known_distance": KnownDistance(),
    "slice_density": SliceDensity(),
}
"""The scores of `AverageDetector`."""
COUNTS = {"auxiliary": 3.0}
"""Weights in the average that are not 1."""


def average_signals(without: str | None = None) -> Average:
    """The average of all signals, or of all but one."""
    names = [name for name in SIGNALS if name != without]
    return Average(tuple(SIGNALS[name] for name in names), tuple(COUNTS.get(name, 1.0) for name in names))


@dataclass(frozen=True)
class AverageDetector(Softmax):
    """Six scores, propagated over the slice, and a threshold calibrated on past slices.

    The model is trained as a plain classifier, so its accuracy is that of `Softmax`. An auxiliary model is trained with
    gDOC's loss (`AuxiliaryModel`), which doubles the training time. The other scores read words and neighbours. Each
    score is standardised by the known-class vertices of past slices, as they were scored then. The threshold is chosen
    by `BackTest`. It needs no labels but those that arrive anyway.

    It equals ``PostHoc(Propagated(Average(SIGNALS.values(), counts)), BackTest(most=most))``, where the auxiliary model
    has the weight 3 and all other scores the weight 1.

    Parameters
    ----------
    most
        Largest share of a slice to flag, from 0 to 1.

    Examples
    --------
    >>> import evergraph
    >>> from evergraph import LifelongLearner
    >>> graph = evergraph.datasets.synthetic(vertices=600, times=6, classes=4, new_classes=1, seed=1)
    >>> learner = LifelongLearner(detector=AverageDetector(), steps=20)
    >>> for task in evergraph.tasks(graph, history=3):
    ...     decisions = learner.adapt(task).predict(task)
    >>> decisions.flagged.mean() <= 0.3
    np.True_
    """

    version: ClassVar[int] = 3

    most: float = 0.3

    def __post_init__(self) -> None:
        object.__setattr__(self, "most", BackTest(most=self.most).most)

    @property
    def made_of(self) -> PostHoc:
        """The score and the threshold."""
        return PostHoc(Propagated(average_signals()), BackTest(most=self.most))

    @property
    def requires(self) -> Requirements:
        return self.made_of.requires

    def fit(self, outputs: Outputs, targets: Tensor, state: State) -> State:
        return self.made_of.fit(outputs, targets, state)

    def observe(self, outputs: Outputs, targets: Tensor, state: State) -> State:
        return self.made_of.observe(outputs, targets, state)

    def decide(self, outputs: Outputs, state: State) -> Decision:
        return self.made_of.decide(outputs, state)
