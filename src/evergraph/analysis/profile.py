"""The profile of a graph: its size, its classes, and what its first task and those after it will meet."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evergraph.graph.evolving import EvolvingGraph
from evergraph.graph.features import kind_of

__all__ = ["Profile", "first_task", "profile"]

FIRST_TASK_SHARE = 0.25
"""Share of the vertices that must exist before the first task, as in the paper."""


@dataclass(frozen=True, eq=False)
class Profile:
    """What `profile` finds.

    Parameters
    ----------
    vertices, edges, classes
        Sizes; only classes that some vertex has are counted.
    features
        Kind and number of features, in words.
    label_rate
        Share of the vertices that have a label.
    first_time, last_time
        Times of the oldest and the youngest vertex.
    first_task
        See the function `first_task`; None for a graph of one time.
    test_vertices
        Vertices at the first task or later.
    new_classes
        Classes that first appear at the first task or later, in the order of their appearance.
    unseen_vertices
        Test vertices whose class never occurred in the graph at an earlier time.
    homophily
        Share of the edges between labelled vertices that join two of one class; None where there are none.
    mean_degree, isolated
        Edges a vertex, counted at both ends, and vertices without any.
    times, vertices_at, classes_at, unseen_at
        For each time that has vertices: their number, the number of their classes, and how many are of a class that
        never occurred before.
    degrees
        Number of vertices by degree: ``degrees[d]`` have ``d`` edges.
    power_law
        Exponent of a power law fitted to the degrees from 1 up, by maximum likelihood: ``1 + n / sum(ln d)``.
    """

    vertices: int
    edges: int
    classes: int
    features: str
    label_rate: float
    first_time: int
    last_time: int
    first_task: int | None
    test_vertices: int
    new_classes: tuple[str, ...]
    unseen_vertices: int
    homophily: float | None
    mean_degree: float
    isolated: int
    times: NDArray[np.int64]
    vertices_at: NDArray[np.int64]
    classes_at: NDArray[np.int64]
    unseen_at: NDArray[np.int64]
    degrees: NDArray[np.int64]
    power_law: float | None


def first_task(graph: EvolvingGraph) -> int | None:
    """The smallest time with at least a quarter of the vertices before it.

    Where no time has so many before it (a static graph with few training vertices), it is the last one; where all
    vertices have one time there is no task.

    Examples
    --------
    >>> first_task(EvolvingGraph.build({"id": [1, 2, 3, 4, 5], "time": [1, 2, 3, 3, 4]}))
    3
    """
    times, before = np.unique(graph.times, return_index=True)
    if len(times) < 2:
        return None
    enough = np.flatnonzero(before >= FIRST_TASK_SHARE * len(graph))
    return int(times[enough[0]] if len(enough) else times[-1])


def profile(graph: EvolvingGraph) -> Profile:
    """Count what is in a graph.

    Examples
    --------
    >>> graph = EvolvingGraph.build({"id": [1, 2, 3], "time": [1, 2, 2], "label": ["x", "x", "y"]}, [[1, 2], [2, 3]])
    >>> found = profile(graph)
    >>> found.first_task, found.new_classes, found.unseen_vertices, found.test_vertices, found.homophily
    (2, ('y',), 1, 2, 0.5)
    """
    classes, codes = graph.classes, graph.codes
    start = first_task(graph)
    # Without a task no vertex is a test vertex, so any time after the last will do.
    limit = start if start is not None else graph.last_time + 1
    labelled = codes >= 0
    unseen = labelled.copy()
    unseen[labelled] = classes.first[codes[labelled]] == graph.times[labelled]
    times, at = np.unique(graph.times, return_inverse=True)
    pairs = np.unique(at[labelled] * max(len(classes), 1) + codes[labelled])
    new = [
        row for row in np.argsort(classes.first, kind="stable") if classes.support[row] and classes.first[row] >= limit
    ]
    source, target, _ = graph.links.ends()
    both = (codes[source] >= 0) & (codes[target] >= 0)
    degree = np.diff(graph.links.indptr)
    logs = np.log(degree[degree > 0]).sum()
    return Profile(
        vertices=len(graph),
        edges=graph.n_edges,
        classes=int((classes.support > 0).sum()),
        features=kind_of(graph.features)
        if graph.features is None
        else f"{graph.features.width:,} {graph.features.kind}",
        label_rate=float(labelled.mean()),
        first_time=graph.first_time,
        last_time=graph.last_time,
        first_task=start,
        test_vertices=int((graph.times >= limit).sum()),
        new_classes=tuple(classes.names[row] for row in new),
        unseen_vertices=int((unseen & (graph.times >= limit)).sum()),
        homophily=float((codes[source] == codes[target])[both].mean()) if both.any() else None,
        mean_degree=float(degree.mean()),
        isolated=int((degree == 0).sum()),
        times=times,
        vertices_at=np.bincount(at),
        classes_at=np.bincount(pairs // max(len(classes), 1), minlength=len(times)),
        unseen_at=np.bincount(at[unseen], minlength=len(times)),
        degrees=np.bincount(degree),
        power_law=float(1 + (degree > 0).sum() / logs) if logs > 0 else None,
    )
