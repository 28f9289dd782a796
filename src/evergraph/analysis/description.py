"""One description of a graph: its size, classes over time, drift and time differences, as plain values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evergraph.graph.classes import total_variation
from evergraph.graph.evolving import EvolvingGraph

if TYPE_CHECKING:
    from evergraph.analysis.time_differences import TimeDifferences

__all__ = [
    "ClassHistory",
    "DifferenceSummary",
    "Drift",
    "DriftAt",
    "GraphDescription",
    "describe",
    "drift",
    "first_task",
]

FIRST_TASK_SHARE = 0.25
"""Share of the vertices that must exist before the first task, as in the paper."""
LAYERS = 2
"""Neighbourhood of a model of two layers; a history size is chosen by the time differences over as many hops."""

Time = int | str
"""A time as the graph's axis writes it: a number, or a date."""


@dataclass(frozen=True)
class ClassHistory:
    """A class, the times at which it has vertices, and how many."""

    name: str
    times: list[Time]
    counts: list[int]

    @property
    def vertices(self) -> int:
        """Number of vertices of the class."""
        return sum(self.counts)


@dataclass(frozen=True)
class DriftAt:
    """Drift at a time, see `Drift`; None at the first."""

    time: Time
    consecutive: float | None
    cumulative: float | None


@dataclass(frozen=True)
class DifferenceSummary:
    """Time differences within some hops: their counts from 0 up, and the history sizes that cover shares of them.

    Percentiles and history sizes are by percentage ("25", "50", "75", "100"); they are empty if there are no pairs.
    ``error`` is None for an exact result, see `TimeDifferences`.
    """

    hops: int
    pairs: int
    counts: list[int]
    percentiles: dict[str, float]
    history_sizes: dict[str, int]
    sources: int
    error: float | None

    @classmethod
    def of(cls, found: TimeDifferences) -> DifferenceSummary:
        """Summarise the result of `tdiff`."""
        sizes = found.history_sizes() if found.counts.any() else {}
        return cls(
            hops=found.k,
            pairs=found.pairs,
            counts=found.counts.tolist(),
            percentiles={str(level): found.percentile(level) for level in sizes},
            history_sizes={str(level): size for level, size in sizes.items()},
            sources=found.sources,
            error=found.error,
        )


@dataclass(frozen=True)
class GraphDescription:
    """The result of `describe`. All values fit into JSON; times are as the graph's axis writes them.

    Parameters
    ----------
    name, about
        Name and origin of the graph.
    vertices, edges, features, feature_kind, feature_width
        Sizes; the features in words, their kind and their number (0 without features).
    label_rate
        Share of the vertices that have a label.
    time_unit, time_step, time_steps
        Unit and step of the axis, and the name of its periods.
    times, vertices_at, classes_at, unseen_at
        The periods that have vertices: number of vertices, of classes, and of vertices of a class that first occurs
        then.
    first_task
        None for a graph of one period.
    test_vertices, unseen_vertices
        Number of vertices from the first task on, and of those of a class that first occurs in their period.
    new_classes
        Classes that first occur at the first task or later, in the order of their birth.
    classes
        All classes that some vertex has.
    homophily
        Share of the edges between labelled vertices whose ends have the same class; None if there are none.
    mean_degree, isolated, degrees
        Edges per vertex, number of vertices without edges, and number of vertices of each degree, as two lists.
    power_law
        Exponent of a power law fitted to the degrees from 1 up, by maximum likelihood: ``1 + n / sum(ln d)``.
    drift
        Drift at each time that has labels.
    differences
        Time differences of the whole graph, by number of hops.
    past_differences
        Those over two hops before the first task, by which a history size is chosen; None if there are none.
    """

    name: str
    about: dict[str, str]
    vertices: int
    edges: int
    features: str
    feature_kind: str
    feature_width: int
    label_rate: float
    time_unit: str
    time_step: int
    time_steps: str
    times: list[Time]
    vertices_at: list[int]
    classes_at: list[int]
    unseen_at: list[int]
    first_task: Time | None
    test_vertices: int
    unseen_vertices: int
    new_classes: list[str]
    classes: list[ClassHistory]
    homophily: float | None
    mean_degree: float
    isolated: int
    degrees: dict[str, list[int]]
    power_law: float | None
    drift: list[DriftAt]
    differences: dict[str, DifferenceSummary]
    past_differences: DifferenceSummary | None

    @property
    def tasks(self) -> slice:
        """The part of `times` that are tasks."""
        return slice(len(self.times) if self.first_task is None else self.times.index(self.first_task), None)

    def as_dict(self) -> dict[str, Any]:
        """Return the description as dicts, lists and plain values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> GraphDescription:
        """Return the description from the result of `as_dict`; other values raise a `msgspec.ValidationError`."""
        import msgspec

        return msgspec.convert(values, cls)


@dataclass(frozen=True, eq=False)
class Drift:
    """Total variation between the class distribution of a period and that before; NaN in the first period.

    Parameters
    ----------
    times
        The periods that have labelled vertices.
    consecutive
        Against the previous labelled period, as in the paper's text.
    cumulative
        Against all periods before, as in the authors' code.
    """

    times: NDArray[np.int64]
    consecutive: NDArray[np.float64]
    cumulative: NDArray[np.float64]


def drift(graph: EvolvingGraph) -> Drift:
    """Return half the sum of absolute differences of class shares: 0 is no change, 1 is no class in common.

    Examples
    --------
    >>> graph = EvolvingGraph.build({"id": [1, 2, 3, 4], "time": [1, 1, 2, 3], "label": ["x", "y", "x", "y"]})
    >>> moved = drift(graph)
    >>> moved.consecutive.tolist(), moved.cumulative.round(3).tolist()
    ([nan, 0.5, 1.0], [nan, 0.5, 0.667])
    """
    labelled = graph.codes >= 0
    times, row = np.unique(graph.times[labelled], return_inverse=True)
    counts = np.zeros((len(times), len(graph.class_names)))
    np.add.at(counts, (row, graph.codes[labelled]), 1)
    return Drift(times, total_variation(counts, counts), total_variation(np.cumsum(counts, axis=0), counts))


def first_task(graph: EvolvingGraph) -> int | None:
    """Return the first period with at least a quarter of the vertices, and a label, before it.

    If no period has that many before it (a static graph with few training vertices), it is the last one. If no period
    has a label before it, labels do not count. A graph of one period has no task.

    Examples
    --------
    >>> first_task(EvolvingGraph.build({"id": [1, 2, 3, 4, 5], "time": [1, 2, 3, 3, 4]}))
    3
    """
    times, before = np.unique(graph.times, return_index=True)
    if len(times) < 2:
        return None
    enough = times[before >= FIRST_TASK_SHARE * len(graph)]
    labelled = graph.times[np.flatnonzero(graph.codes >= 0)[:1]]  # the earliest, if there is one
    trainable = enough[(enough[:, None] > labelled).all(axis=1)]
    return int([*trainable, *enough, times[-1]][0])


def describe(
    graph: EvolvingGraph,
    name: str = "",
    *,
    first: int | None = None,
    hops: Iterable[int] = (),
    past: bool = False,
    sample: int | None = None,
) -> GraphDescription:
    """Describe a graph.

    Parameters
    ----------
    graph, name
        The graph and its name.
    first
        Period of the first task; by default that of `first_task`.
    hops
        Numbers of hops whose time differences are collected.
    past
        Whether to also collect the time differences before the first task.
    sample
        Estimate the time differences of the whole graph from this many vertices, see `tdiff`.

    Examples
    --------
    >>> graph = EvolvingGraph.build({"id": [1, 2, 3], "time": [1, 2, 2], "label": ["x", "x", "y"]}, [[1, 2], [2, 3]])
    >>> found = describe(graph, hops=[2])
    >>> found.first_task, found.new_classes, found.unseen_vertices, found.test_vertices, found.homophily
    (2, ['y'], 1, 2, 0.5)
    >>> found.classes[0], found.differences["2"].counts
    (ClassHistory(name='x', times=[1, 2], counts=[1, 1]), [2, 2])
    """
    classes, codes, value = graph.classes, graph.codes, graph.axis.value
    start = first_task(graph) if first is None else first
    # Without a task there are no test vertices: any period after the last will do.
    limit = start if start is not None else graph.last_time + 1
    labelled = codes >= 0
    unseen = labelled.copy()
    unseen[labelled] = classes.first[codes[labelled]] == graph.times[labelled]
    times, at = np.unique(graph.times, return_inverse=True)
    pairs = np.unique(at[labelled] * max(len(classes), 1) + codes[labelled])
    order = np.argsort(classes.first, kind="stable")
    source, target, _ = graph.links.ends()
    both = (codes[source] >= 0) & (codes[target] >= 0)
    degree = np.diff(graph.links.indptr)
    degrees, logs = np.bincount(degree), np.log(degree[degree > 0]).sum()
    moved = drift(graph)
    moves = zip(moved.times.tolist(), moved.consecutive.tolist(), moved.cumulative.tolist(), strict=True)
    blocks = [part for name, part in graph.features.parts.items() if name != "texts"]
    return GraphDescription(
        name=name,
        about=dict(graph.about),
        vertices=len(graph),
        edges=graph.n_edges,
        features=graph.features.summary,
        feature_kind=" ".join(graph.features.kinds) or "none",
        feature_width=sum(part.width for part in blocks),
        label_rate=float(labelled.mean()),
        time_unit=graph.axis.unit,
        time_step=graph.axis.step,
        time_steps=graph.axis.steps,
        times=[value(time) for time in times.tolist()],
        vertices_at=np.bincount(at).tolist(),
        classes_at=np.bincount(pairs // max(len(classes), 1), minlength=len(times)).tolist(),
        unseen_at=np.bincount(at[unseen], minlength=len(times)).tolist(),
        first_task=None if start is None else value(start),
        test_vertices=int((graph.times >= limit).sum()),
        unseen_vertices=int((unseen & (graph.times >= limit)).sum()),
        new_classes=[classes.names[row] for row in order if classes.support[row] and classes.first[row] >= limit],
        classes=_classes(graph),
        homophily=float((codes[source] == codes[target])[both].mean()) if both.any() else None,
        mean_degree=float(degree.mean()),
        isolated=int((degree == 0).sum()),
        degrees={"degree": np.flatnonzero(degrees).tolist(), "vertices": degrees[degrees > 0].tolist()},
        power_law=float(1 + (degree > 0).sum() / logs) if logs > 0 else None,
        drift=[DriftAt(value(time), *(None if math.isnan(move) else move for move in pair)) for time, *pair in moves],
        differences={str(k): _differences(graph, k, sample) for k in hops},
        past_differences=_past_differences(graph, start) if past and start is not None else None,
    )


def _classes(graph: EvolvingGraph) -> list[ClassHistory]:
    labelled, span = graph.codes >= 0, graph.last_time - graph.first_time + 1
    # One sortable number for each pair of class and time.
    pairs = graph.codes[labelled] * np.int64(span) + (graph.times[labelled] - graph.first_time)
    there, counts = np.unique(pairs, return_counts=True)
    codes, times = there // span, there % span + graph.first_time
    found = []
    for row, name in enumerate(graph.class_names):
        part = slice(*np.searchsorted(codes, [row, row + 1]).tolist())
        if part.start < part.stop:
            at = [graph.axis.value(time) for time in times[part].tolist()]
            found.append(ClassHistory(name, at, counts[part].tolist()))
    return found


def _differences(graph: Any, hops: int, sample: int | None = None) -> DifferenceSummary:
    from evergraph.analysis.time_differences import tdiff

    return DifferenceSummary.of(tdiff(graph, hops, sample=sample))


def _past_differences(graph: EvolvingGraph, before: int) -> DifferenceSummary | None:
    past = graph.up_to(before - 1)
    found = _differences(past, LAYERS) if past.n_edges else None
    return found if found is not None and found.pairs else None
