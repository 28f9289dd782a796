"""What a report shows, as plain values, whatever it reports on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from evergraph.analysis import GraphDescription


@dataclass(frozen=True)
class Missing:
    """A part that is not there; the page gives the reason in its place, and how to get it."""

    reason: str


@dataclass(frozen=True)
class Headline:
    """One of the figures at the top, with half the width of its 95 % interval; None where it is undefined."""

    name: str
    value: float | None
    half: float | None
    kind: Literal["share", "score", "seconds", "count"]
    meaning: str


@dataclass(frozen=True)
class Band:
    """A value and its 95 % interval; ``low`` and ``high`` are None where there is none."""

    mean: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Slice:
    """The results at one time. Shares are of the labelled vertices and from 0 to 1.

    Parameters
    ----------
    vertices, labelled
        Vertices decided, and those whose class is known by now.
    known_classes, new_classes
        Classes that the learner knew, and how many of them it had just learnt.
    accuracy, known_accuracy
        Share whose most likely known class is right, of all and among vertices of classes that the learner knew.
    unseen, rejected
        Share that truly was of a class the learner did not know, and share that was flagged as such.
    mcc, open_f1
        See `evergraph.evaluation.metrics`; an MCC is None where there was nothing unseen to find.
    drift
        Against the time before.
    version
        The models that decided; None where there is but one.
    """

    time: str
    vertices: int
    labelled: int
    known_classes: int
    new_classes: int
    accuracy: Band | None
    known_accuracy: Band | None
    unseen: float | None
    rejected: Band | None
    mcc: float | None
    open_f1: float | None
    drift: float | None
    version: str | None = None


@dataclass(frozen=True)
class Slices:
    """All slices in the order of time; ``intervals`` says in one sentence what their bands are."""

    rows: tuple[Slice, ...]
    intervals: str


@dataclass(frozen=True)
class Transfer:
    """Forward transfer: the gain in accuracy from keeping the weights, as a mean and at each time."""

    value: float | None
    half: float | None
    times: tuple[str, ...]
    gains: tuple[float | None, ...]
    against: str


@dataclass(frozen=True)
class ConfusionTable:
    """Counts by truth (rows) and decision (columns) for the largest classes, ``other classes`` and ``unseen``."""

    names: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]
    over: str


@dataclass(frozen=True)
class CalibrationBin:
    """Decisions of about the same probability: its mean, the share of them that is right, and their number."""

    confidence: float
    accuracy: float
    count: int


@dataclass(frozen=True)
class Calibration:
    """Probabilities against the share that is right; ``error`` is the expected calibration error."""

    bins: tuple[CalibrationBin, ...]
    error: float


@dataclass(frozen=True)
class ThresholdCurve:
    """What each threshold would have done; ``in_force`` is None where there is no single one.

    ``false_alarms`` and ``found`` are the shares of vertices of known and of unseen classes that are flagged.
    """

    axis: str
    thresholds: tuple[float, ...]
    false_alarms: tuple[float, ...]
    found: tuple[float, ...]
    mcc: tuple[float, ...]
    in_force: float | None


@dataclass(frozen=True)
class ReviewRow:
    """A vertex that is flagged as unseen, for a person to look at."""

    id: str
    time: str
    score: float
    best: str
    probability: float
    words: tuple[str, ...] | None = None
    neighbours: tuple[tuple[str, int], ...] | None = None
    truth: str | None = None


@dataclass(frozen=True)
class Review:
    """Some of the vertices to review, by their scores; ``which`` says of how many, and from where."""

    rows: tuple[ReviewRow, ...]
    which: str


@dataclass(frozen=True)
class Story:
    """Everything that a report shows.

    Parameters
    ----------
    title, summary
        The name of the graph or workspace, and what was done, in one line.
    notes
        What you must know before reading, for instance that a run is not finished.
    graph, history
        The description of the graph, and the history size in use (None for all of it).
    details
        Name and value of all settings and circumstances.
    """

    title: str
    kind: Literal["run", "workspace"]
    summary: str
    notes: tuple[str, ...]
    headlines: tuple[Headline, ...]
    slices: Slices | Missing
    transfer: Transfer | Missing
    graph: GraphDescription | Missing
    history: int | None
    confusion: ConfusionTable | Missing
    calibration: Calibration | Missing
    threshold: ThresholdCurve | Missing
    review: Review | Missing
    details: tuple[tuple[str, str], ...]
