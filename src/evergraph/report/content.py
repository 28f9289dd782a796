"""The content of a report as plain values, for a run or a workspace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from evergraph.analysis import GraphDescription


@dataclass(frozen=True)
class Missing:
    """A part that is not available; the page shows the reason and how to get the part."""

    reason: str


@dataclass(frozen=True)
class Headline:
    """A number at the top, with half the width of its 95 % interval; None where it is undefined."""

    name: str
    value: float | None
    half: float | None
    kind: Literal["share", "score", "seconds", "count"]
    meaning: str


@dataclass(frozen=True)
class Band:
    """A value with its 95 % interval; ``low`` and ``high`` are None without one."""

    mean: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Slice:
    """The results of one slice. Shares are from 0 to 1, of the labelled vertices; ``flagged`` of all decided ones.

    Parameters
    ----------
    vertices, labelled
        Number of decided vertices, and of those with a label.
    known_classes, unseen_classes
        Number of classes that the learner knew, and of those among the labels that it did not know (a mean over seeds);
        None if this is not known.
    accuracy, known_accuracy
        Accuracy on all vertices and on vertices of known classes.
    unseen, flagged
        Share of truly unseen and of flagged vertices.
    mcc, open_f1
        See `evergraph.evaluation.metrics`; the MCC is None without unseen vertices.
    drift
        Drift from the period before.
    version
        Numbers of the models that decided; None in a run.
    """

    time: str
    vertices: int
    labelled: int
    known_classes: int
    unseen_classes: float | None
    accuracy: Band | None
    known_accuracy: Band | None
    unseen: float | None
    flagged: Band | None
    mcc: float | None
    open_f1: float | None
    drift: float | None
    version: str | None = None


@dataclass(frozen=True)
class Slices:
    """All slices in order of time; ``intervals`` explains their bands."""

    rows: tuple[Slice, ...]
    intervals: str


@dataclass(frozen=True)
class Transfer:
    """Forward transfer: mean gain in accuracy of warm over cold restarts, and the gain of each task."""

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
    """Decisions of similar probability: mean probability, share of correct ones, and number."""

    confidence: float
    accuracy: float
    count: int


@dataclass(frozen=True)
class Calibration:
    """Probability against accuracy; ``error`` is the expected calibration error."""

    bins: tuple[CalibrationBin, ...]
    error: float


@dataclass(frozen=True)
class ThresholdCurve:
    """Results of other thresholds; ``in_force`` is None if there was no single threshold.

    ``false_alarms`` and ``found`` are the flagged shares of the vertices of known and of unseen classes.
    """

    axis: str
    thresholds: tuple[float, ...]
    false_alarms: tuple[float, ...]
    found: tuple[float, ...]
    mcc: tuple[float, ...]
    in_force: float | None


@dataclass(frozen=True)
class FlaggedVertex:
    """A vertex that is flagged as unseen, to be reviewed."""

    id: str
    time: str
    score: float
    best: str
    probability: float
    words: tuple[str, ...] | None = None
    neighbours: tuple[tuple[str, int], ...] | None = None
    truth: str | None = None
    text: str | None = None
    because: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Review:
    """Vertices to review, highest scores first; ``which`` says how many there are."""

    rows: tuple[FlaggedVertex, ...]
    which: str


@dataclass(frozen=True)
class FlaggedGroup:
    """Flagged vertices that are similar to each other; examples are ids with a text or words."""

    number: int
    time: str
    size: int
    edges: int
    words: tuple[str, ...]
    examples: tuple[tuple[str, str], ...]
    nearest: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Groups:
    """Groups to review, the largest first; ``which`` says how many there are, ``commands`` what to do with them."""

    rows: tuple[FlaggedGroup, ...]
    which: str
    commands: tuple[str, ...]


@dataclass(frozen=True)
class ReportContent:
    """Everything that a report shows.

    Parameters
    ----------
    title, summary
        Name of the graph or workspace, and its settings in one line.
    notes
        Notes at the top, for instance that a run is not finished.
    graph, history
        Description of the graph, and the history in use (None for the full history).
    details
        Names and values of all settings.
    groups
        Groups of flagged vertices; None in a run.
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
    groups: Groups | Missing | None = None
