"""`AutoDetector`: a discriminant of unseen classes with a prior from many graphs, corrected by the graph's own past."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evergraph.detect.base import PAST, UNKNOWN, Decision, Outputs, PastGraph, Requirements, State
from evergraph.detect.discriminant import (
    Prior,
    SignalRecord,
    contributions,
    discriminant,
    log_odds,
    probability_of,
    shipped_prior,
    standardised,
)
from evergraph.detect.objectives import Objective
from evergraph.detect.signals import slice_signals
from evergraph.detect.softmax import Softmax
from evergraph.errors import InputError
from evergraph.inputs.slice_context import SliceContext

__all__ = ["AutoDetector"]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class AutoDetector(Softmax):
    """Flags unseen classes by what the whole past of a graph, and other graphs before it, have shown.

    The model is trained as a plain classifier, so its accuracy is that of `Softmax`. The signals
    (`evergraph.detect.signals`) read the model's logits, labels, words, contents and neighbours. A linear discriminant
    (`evergraph.detect.discriminant`) combines them. The score is the probability that the class is unseen, calibrated
    on other graphs. It needs no labels but those that arrive anyway.

    Parameters
    ----------
    objective
        What to flag for: ``"mcc"``, ``"open-f1"``, ``"budget:N"`` (vertices per slice) or ``"false-alarms:RATE"``.
    prior
        What other graphs have taught; None for the prior in the package.

    Examples
    --------
    >>> import evergraph
    >>> from evergraph import LifelongLearner
    >>> graph = evergraph.datasets.synthetic(vertices=600, times=6, classes=4, new_classes=1, seed=1)
    >>> learner = LifelongLearner(detector=AutoDetector("budget:10"), steps=20)
    >>> for task in evergraph.tasks(graph, history=3):
    ...     decisions = learner.adapt(task).predict(task)
    >>> int(decisions.flagged.sum()), bool((0 < decisions.score).all() and (decisions.score < 1).all())
    (10, True)
    """

    version: ClassVar[int] = 4
    replay: ClassVar[int] = 3

    objective: str = "mcc"
    prior: Prior | None = None

    def __post_init__(self) -> None:
        Objective.parse(self.objective)
        if self.prior is not None and not isinstance(self.prior, Prior):
            raise InputError(f"the argument prior is {self.prior!r}", fix="pass a Prior, or leave it out")

    @property
    def requires(self) -> Requirements:
        return Requirements(fit=False, observe=True, replay=self.replay, context=True, graphs=True)

    def fitted_on(self, graphs: Sequence[PastGraph]) -> Self:
        from evergraph.detect.prior import fit_prior, traced

        found = [traced(graph) for graph in graphs]  # type: ignore[arg-type]  # graphs are hashed by identity
        return replace(self, prior=fit_prior(found))

    def observe(self, outputs: Outputs, targets: Tensor, state: State) -> State:
        if outputs.context is None or not len(outputs):
            return state
        record, columns = _record(state), targets.cpu().numpy()
        signals = slice_signals(outputs.context, _logits(outputs))
        score = self._probability(outputs, outputs.context, record)
        known, unseen = columns >= 0, columns == UNKNOWN
        record = record.grown(signals.values(), signals.hidden_values(columns), known, unseen, score)
        arrays = {PAST + name: torch.from_numpy(value) for name, value in record.arrays().items()}
        return {**state, **{name: value.to(targets.device) for name, value in arrays.items()}}

    def decide(self, outputs: Outputs, state: State) -> Decision:
        if outputs.context is None or not len(outputs):
            return super().decide(outputs, state)
        record, prior = _record(state), self._prior
        probability = self._probability(outputs, outputs.context, record)
        yes, no = prior.births
        births = (record.slices[1] + yes) / (record.slices[0] + yes + no)
        flagged = Objective.parse(self.objective).flags(
            probability,
            self.class_probabilities(outputs).cpu().numpy(),
            threshold=float(probability_of(np.array(prior.threshold))),
            births=float(births),
            known_scores=record.known_scores,
        )
        if self.objective == "open-f1" and not flagged.any():
            log.info(
                "No vertex is flagged: %.1f of %d are expected to be of unseen classes, and flagging the most likely "
                "ones would lower the expected Open-F1.",
                *(probability.sum(), len(probability)),
            )
        device = outputs.logits.device
        return Decision(torch.from_numpy(probability).to(device), torch.from_numpy(flagged).to(device))

    def contributions(self, outputs: Outputs, state: State) -> NDArray[np.float64] | None:
        """Return how much each signal (`NAMES`) of each vertex adds to the log-odds of an unseen class."""
        if outputs.context is None or not len(outputs):
            return None
        record = _record(state)
        values = slice_signals(outputs.context, _logits(outputs)).values()
        return contributions(standardised(values, record), record, self._prior)

    @property
    def _prior(self) -> Prior:
        return shipped_prior() if self.prior is None else self.prior

    def _probability(self, outputs: Outputs, context: SliceContext, record: SignalRecord) -> NDArray[np.float64]:
        values = slice_signals(context, _logits(outputs)).values()
        odds = log_odds(discriminant(standardised(values, record), record, self._prior.unseen), self._prior)
        # A class whose first labels are in this slice, as after a review, has no past that signals could read.
        task = context.task
        labelled = {task.graph.class_names[code] for code in np.unique(task.released[task.released >= 0])}
        first = np.array([name not in labelled for name in context.classes])
        if first.any() and not first.all():
            odds = np.where(first[outputs.best_logits.argmax(1).cpu().numpy()], -np.inf, odds)
        return probability_of(odds)


def _logits(outputs: Outputs) -> NDArray[np.floating]:
    return np.asarray(outputs.logits.cpu().numpy())


def _record(state: State) -> SignalRecord:
    return SignalRecord.from_arrays(
        {name.removeprefix(PAST): value.cpu().numpy() for name, value in state.items() if name.startswith(PAST)}
    )
