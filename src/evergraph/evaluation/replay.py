"""Judging detectors by a training on record: each decides as if it had been there."""

from __future__ import annotations

import time as clock
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from torch import Tensor

from evergraph.detect import Detector, Outputs
from evergraph.detect.base import PAST, State
from evergraph.errors import InputError
from evergraph.evaluation.recording import Event, Recording, rehearses
from evergraph.graph.arrays import fingerprint
from evergraph.graph.evolving import EvolvingGraph
from evergraph.inputs.slice_context import Sight
from evergraph.learning.decisions import Decisions
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
        How long the detector took: to look back, to fit, to score and to reject since the task before.
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
        Of the same training with the losses of second models, as far as these are asked for; see `Detector.second`.
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
    others = {one.second: _second(recording, one, seconds or {}) for one in detectors if one.second is not None}
    listeners = [_Listener(detector, recording.identity["rehearsals"]) for detector in detectors]

    @lru_cache(maxsize=2)  # a slice is decided and, as the next event but one, looked back at
    def sight(time: int, classes: tuple[str, ...]) -> Sight:
        return Sight(recording.task(graph, time), classes)

    judged: list[list[Judged]] = [[] for _ in detectors]
    for number, event in enumerate(recording.events):
        said = recording.read(event)
        seen = None if event.time is None else sight(event.time, event.classes)
        plain = Outputs(said["logits"], said.get("hidden"), seen)
        told: dict[Detector | None, Outputs] = {
            second: replace(plain, second=other.read(other.events[number])["logits"])
            for second, other in others.items()
        }
        for listener, found in zip(listeners, judged, strict=True):
            outputs = told.get(listener.detector.second, plain)
            if seen is not None and event.kind == "decide":
                found.append(listener.decide(outputs, seen))
            else:
                listener.listen(event, outputs, said["targets"])
    return judged


def _second(recording: Recording, detector: Detector, seconds: Mapping[Detector, Recording]) -> Recording:
    """The recording of a detector's second model: of the same training but for the loss, event by event."""
    found = None if detector.second is None else seconds.get(detector.second)
    loss = None if found is None else found.identity["configuration"]["detector"]
    if found is None or loss != described(detector.second) or _asked(found) != _asked(recording):
        raise InputError(
            f"{type(detector).__name__} asks for a second model, of which there is no recording that goes with this",
            file=recording.folder,
            fix="record the same training with the loss of its second model, and give that, too",
        )
    return found


def _asked(recording: Recording) -> list[object]:
    """What was asked of a model, whatever its loss."""
    events = [replace(event, file="", sha256="", seconds=0.0) for event in recording.events]
    configuration = {**recording.identity["configuration"], "detector": None}
    return [{**recording.identity, "configuration": configuration}, recording.view, *events]


class _Listener:
    """A detector and its state, handled as a learner does."""

    def __init__(self, detector: Detector, rehearsals: int) -> None:
        if rehearses(detector) and detector.rehearsals != rehearsals:
            raise InputError(
                f"{type(detector).__name__} wants {detector.rehearsals} rehearsals, but {rehearsals} were recorded",
                fix=f"judge detectors that rehearse {rehearsals} times or never",
            )
        self.detector, self.seconds = detector, 0.0
        self.state: State = {}
        self._fits = type(detector).fit is not Detector.fit
        self._rehearses = rehearses(detector)

    def listen(self, event: Event, outputs: Outputs, targets: Tensor) -> None:
        """Look back, or be fitted."""
        if event.rehearsal and not self._rehearses:
            return
        begun = clock.perf_counter()
        if event.kind == "look_back":
            self.state = self.detector.look_back(outputs, targets, self.state)
        else:
            state = {name: value for name, value in self.state.items() if name.startswith(PAST)}
            if self._fits:
                state |= self.detector.fit(outputs, targets, state if event.cold else self.state)
            self.state = state
        self.seconds += clock.perf_counter() - begun

    def decide(self, outputs: Outputs, sight: Sight) -> Judged:
        """Score and reject."""
        begun = clock.perf_counter()
        rejected, score = self.detector.reject(outputs, self.state), self.detector.score(outputs, self.state)
        seconds, self.seconds = self.seconds + clock.perf_counter() - begun, 0.0
        decisions = Decisions(
            ids=sight.task.test_ids,
            time=sight.task.time,
            best=np.array(sight.classes, object)[outputs.logits.argmax(1).numpy()],
            rejected=rejected.numpy(),
            score=score.numpy(),
            probability=self.detector.probability(outputs.logits).numpy(),
            known=sight.classes,
        )
        return Judged(decisions, seconds)
