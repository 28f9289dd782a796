"""What a report shows, as plain values: whoever can tell this story gets the page."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Literal

__all__ = [
    "Band",
    "Calibration",
    "CalibrationBin",
    "ClassLine",
    "ClassTimeline",
    "Confusion",
    "Drift",
    "Headline",
    "Missing",
    "Review",
    "ReviewRow",
    "Slice",
    "Slices",
    "Story",
    "ThresholdCurve",
    "TimeDifferences",
    "Transfer",
]


@dataclass(frozen=True)
class Missing:
    """A part that there is not; the page says why in its place, and how to get it.

    Parameters
    ----------
    reason
        One or two sentences, with full stops.
    """

    reason: str


@dataclass(frozen=True)
class Headline:
    """One of the figures at the top.

    Parameters
    ----------
    name
        What it is called.
    value
        None where it is undefined.
    half
        Half the width of its 95 % interval; None where there is none.
    kind
        How it is written: a ``share`` as per cent, a ``score`` with three decimals, ``seconds``, a ``count``.
    meaning
        One sentence.
    """

    name: str
    value: float | None
    half: float | None
    kind: Literal["share", "score", "seconds", "count"]
    meaning: str


@dataclass(frozen=True)
class Band:
    """A figure and its 95 % interval; ``low`` and ``high`` are None where there is none."""

    mean: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Slice:
    """What came of the vertices of one time. Shares are of the labelled vertices and from 0 to 1.

    Parameters
    ----------
    time
        As a person writes it.
    vertices, labelled
        Vertices decided, and those whose class is known by now.
    known_classes, new_classes
        Classes that the learner knew, and how many of them it had just learnt.
    accuracy
        Share whose most likely known class is right.
    known_accuracy
        The same among vertices of classes that the learner knew.
    unseen
        Share that truly was of a class the learner did not know.
    rejected
        Share that was held to be of an unseen class.
    mcc, open_f1
        See `evergraph.evaluation.metrics`; an MCC is None where there was nothing unseen to find.
    drift
        How far the mix of classes moved since the time before.
    version
        The model that decided; None where there is but one.
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
    """Forward transfer: what keeping the weights gains in accuracy.

    Parameters
    ----------
    value, half
        Mean gain from the second time on, and half the width of its 95 % interval.
    times, gains
        The gain at each time; None where it is undefined.
    against
        With what it is compared, in one sentence.
    """

    value: float | None
    half: float | None
    times: tuple[str, ...]
    gains: tuple[float | None, ...]
    against: str


@dataclass(frozen=True)
class Drift:
    """How far the mix of classes moved, from 0 (not at all) to 1 (no class in common).

    Parameters
    ----------
    times
        All times of the graph that have labels.
    step, total
        Against the time before, and against all times before; None at the first.
    first
        From which time on there are decisions.
    """

    times: tuple[str, ...]
    step: tuple[float | None, ...]
    total: tuple[float | None, ...]
    first: str | None = None


@dataclass(frozen=True)
class ClassLine:
    """A class with its first and last time, and its vertices at each time of the timeline."""

    name: str
    first: str
    last: str
    counts: tuple[int, ...]


@dataclass(frozen=True)
class ClassTimeline:
    """The largest classes, and how many others there are."""

    times: tuple[str, ...]
    classes: tuple[ClassLine, ...]
    others: int


@dataclass(frozen=True)
class Confusion:
    """Who was taken for whom.

    Parameters
    ----------
    names
        The largest classes; then ``other classes``, if there are any, and ``unseen``.
    counts
        Rows are the truth, columns the decision, both in the order of the names. Truth is ``unseen`` where the learner
        did not know the class.
    over
        What was counted, in words: ``"all tasks of 2 seeds"``.
    """

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
    """Whether probabilities can be believed; ``error`` is the expected calibration error."""

    bins: tuple[CalibrationBin, ...]
    error: float


@dataclass(frozen=True)
class ThresholdCurve:
    """What another threshold would have done.

    Parameters
    ----------
    axis
        What the threshold is on, for people.
    thresholds
        Ascending.
    false_alarms
        Share of the vertices of known classes that is held to be unseen.
    found
        Share of the vertices of unseen classes that is.
    mcc
        How well both agree with the truth.
    in_force
        The threshold that decided; None where there is none, or more than one.
    """

    axis: str
    thresholds: tuple[float, ...]
    false_alarms: tuple[float, ...]
    found: tuple[float, ...]
    mcc: tuple[float, ...]
    in_force: float | None


@dataclass(frozen=True)
class TimeDifferences:
    """How far in time those vertices lie apart that a model of two layers can connect.

    Parameters
    ----------
    shares
        Share of each difference, from 0 up.
    steps
        What one step of time is called: ``"years"``.
    sizes
        For some percentages the history size that covers so much.
    history
        The history size in use; None for all of it.
    before
        Only what is older than this time was looked at; None for all.
    """

    shares: tuple[float, ...]
    steps: str
    sizes: tuple[tuple[int, int], ...]
    history: int | None
    before: str | None = None


@dataclass(frozen=True)
class ReviewRow:
    """A vertex that is held to be of an unseen class, for a person to look at.

    Parameters
    ----------
    id, time
        Which.
    score
        The higher, the more unseen.
    best, probability
        The most likely known class.
    words
        Some of its words; None where there is no text.
    neighbours
        The commonest classes around it, with the number of neighbours; None where nothing is known of them.
    truth
        What it turned out to be; None as long as that is open.
    """

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
    """Some of the vertices to review, in the order of their scores; ``which`` says of how many, and from where."""

    rows: tuple[ReviewRow, ...]
    which: str


@dataclass(frozen=True)
class Story:
    """Everything that a report shows.

    Parameters
    ----------
    title
        What was reported on: the name of the graph or of the workspace.
    kind
        Whence.
    summary
        What was done, in one line.
    notes
        What a reader must know before reading: that a run is not finished, for one.
    headlines, slices, transfer, drift, timeline, confusion, calibration, threshold, differences, review
        The parts, in their order.
    details
        Name and value of all settings and circumstances.

    Examples
    --------
    >>> gone = Missing("There are no decisions.")
    >>> headlines = (Headline("Accuracy", 0.5, None, "share", "Half of them were right."),)
    >>> story = Story("demo", "run", "a test", (), headlines, *[gone] * 9, details=(("seeds", "0"),))
    >>> story.to_json()[:33]
    '{"title": "demo", "kind": "run", '
    """

    title: str
    kind: Literal["run", "workspace"]
    summary: str
    notes: tuple[str, ...]
    headlines: tuple[Headline, ...]
    slices: Slices | Missing
    transfer: Transfer | Missing
    drift: Drift | Missing
    timeline: ClassTimeline | Missing
    confusion: Confusion | Missing
    calibration: Calibration | Missing
    threshold: ThresholdCurve | Missing
    differences: TimeDifferences | Missing
    review: Review | Missing
    details: tuple[tuple[str, str], ...]

    def as_dict(self) -> dict[str, Any]:
        """All of it in dicts, lists and plain values."""
        return asdict(self)

    def to_json(self) -> str:
        """All of it as JSON; refuses what is not a number."""
        return json.dumps(self.as_dict(), ensure_ascii=False, allow_nan=False)
