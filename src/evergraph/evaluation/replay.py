"""Judging detectors by a training on record: each decides as if it had been there."""

from __future__ import annotations

import time as clock
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from torch import Tensor

from evergraph.detect import Detector, FittedDetector, Outputs
from evergraph.errors import InputError
from evergraph.evaluation.recording import Event, Recording
from evergraph.graph.arrays import fingerprint
from evergraph.graph.evolving import EvolvingGraph
from evergraph.inputs.slice_context import SliceContext
from evergraph.learning.task import Decisions
from evergraph.names import described

__all__ = ["Judged", "replay", "replay_all"]


@dataclass(frozen=True, eq=False)
class Judged:
    """What a detector makes of a task.

    Parameters
    ----------
    decisions
        As a learner with this detector would have decided.
    seconds
        How long the detector took: to observe, to fit and to decide since the task before.
    """

    decisions: Decisions
    seconds: float


def replay(
    recording: Recording, graph: EvolvingGraph, detector: Detector, seconds: Mapping[Detector, Recording] | None = None
) -> list[Judged]:
    """What a detector would have decided, task by task: bit for bit what a learner with it decides.

    Parameters
    ----------
    recording
        Of a training with the detector's own loss; nothing can tell whether it is.
    graph
        The graph that was recorded.
    detector
        Whom to judge.
    seconds
        Of the same training with the losses of auxiliary models, as far as these are required.
    """
    return replay_all(recording, graph, [detector], seconds)[0]


def replay_all(
    recording: Recording,
    graph: EvolvingGraph,
    detectors: Sequence[Detector],
    seconds: Mapping[Detector, Recording] | None = None,
) -> list[list[Judged]]:
    """The same for several detectors: events are read once, and what is looked up in the graph is shared.

    What they share is counted with the time of the first who asks for it.
    """
    if fingerprint(graph) != recording.identity["fingerprint"]:
        raise InputError("the recording is of another graph", file=recording.folder, fix="give the one it was made of")
    others = {
        auxiliary: _second(recording, one, seconds or {})
        for one in detectors
        if (auxiliary := one.requires.auxiliary) is not None
    }
    listeners = [_Listener(detector, recording.identity["rehearsals"]) for detector in detectors]

    @lru_cache(maxsize=2)  # a slice is decided and, as the next event but one, observed
    def context(time: int, classes: tuple[str, ...]) -> SliceContext:
        return SliceContext(recording.task(graph, time), classes)

    judged: list[list[Judged]] = [[] for _ in detectors]
    for number, event in enumerate(recording.events):
        said = recording.read(event)
        seen = None if event.time is None else context(event.time, event.classes)
        plain = Outputs(said["logits"], said.get("hidden"), seen)
        told: dict[Detector | None, Outputs] = {
            second: replace(plain, auxiliary_logits=other.read(other.events[number])["logits"])
            for second, other in others.items()
        }
        for listener, found in zip(listeners, judged, strict=True):
            outputs = told.get(listener.detector.requires.auxiliary, plain)
            if seen is not None and event.kind == "decide":
                found.append(listener.decide(outputs, seen))
            else:
                listener.listen(event, outputs, said["targets"])
    return judged


def _second(recording: Recording, detector: Detector, seconds: Mapping[Detector, Recording]) -> Recording:
    """The recording of a detector's auxiliary model: of the same training but for the loss, event by event."""
    auxiliary = detector.requires.auxiliary
    found = None if auxiliary is None else seconds.get(auxiliary)
    loss = None if found is None else found.identity["configuration"]["detector"]
    if found is None or loss != described(auxiliary) or _asked(found) != _asked(recording):
        raise InputError(
            f"{type(detector).__name__} requires an auxiliary model, but no recording of one goes with this",
            file=recording.folder,
            fix="record the same training with the loss of its auxiliary model, and give that, too",
        )
    return found


def _asked(recording: Recording) -> list[object]:
    """What was asked of a model, whatever its loss."""
    events = [replace(event, file="", sha256="", seconds=0.0) for event in recording.events]
    configuration = {**recording.identity["configuration"], "detector": None}
    return [{**recording.identity, "configuration": configuration}, recording.view, *events]


class _Listener:
    """A detector that is fitted, observes and decides as a learner would have it."""

    def __init__(self, detector: Detector, replayed: int) -> None:
        needs = detector.requires
        self._replays = needs.observe and needs.replay > 0
        if self._replays and needs.replay != replayed:
            raise InputError(
                f"{type(detector).__name__} requires a replay of {needs.replay} slices, but {replayed} were recorded",
                fix=f"judge detectors that require {replayed} or none",
            )
        self.fitted, self.seconds = FittedDetector(detector), 0.0

    @property
    def detector(self) -> Detector:
        return self.fitted.detector

    def listen(self, event: Event, outputs: Outputs, targets: Tensor) -> None:
        """Observe, or be fitted."""
        if event.rehearsal and not self._replays:
            return
        begun = clock.perf_counter()
        if event.kind == "observe":
            self.fitted = self.fitted.observe(outputs, targets)
        else:
            self.fitted = self.fitted.fit(outputs, targets, cold=event.cold)
        self.seconds += clock.perf_counter() - begun

    def decide(self, outputs: Outputs, context: SliceContext) -> Judged:
        """Decide a slice."""
        begun = clock.perf_counter()
        score, flagged = self.fitted.decide(outputs)
        seconds, self.seconds = self.seconds + clock.perf_counter() - begun, 0.0
        decisions = Decisions(
            ids=context.task.test_ids,
            time=context.task.time,
            best=np.array(context.classes, object)[outputs.logits.argmax(1).numpy()],
            flagged=flagged.numpy(),
            score=score.numpy(),
            probability=self.detector.probability(outputs.logits).numpy(),
            known=context.classes,
        )
        return Judged(decisions, seconds)
