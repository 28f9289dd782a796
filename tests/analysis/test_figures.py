"""Figures of graphs: boxes against matplotlib's own, and graphs that lack what a figure shows."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from evergraph.analysis import describe, figures
from evergraph.datasets import synthetic
from evergraph.graph.evolving import EvolvingGraph


def test_boxes_are_those_of_the_differences_one_by_one() -> None:
    from matplotlib.cbook import boxplot_stats

    graph = synthetic(vertices=240, times=9, classes=4, new_classes=3, degree=3, label_rate=0.9, growth=1.2, seed=5)
    for found in describe(graph, hops=figures.HOPS).differences.values():
        told = figures._box(found)
        (expected,) = boxplot_stats(np.repeat(np.arange(len(found.counts)), found.counts))
        for name in ("q1", "med", "q3", "whislo", "whishi"):
            assert np.isclose(told[name], expected[name])
        assert told["fliers"] == sorted(set(expected["fliers"].tolist()))


def test_graphs_that_lack_something_are_drawn_and_so_is_none(tmp_path: Path) -> None:
    months = {"id": [1, 2, 3], "time": ["2004-01", "2004-02", "2005-01"], "label": ["x", "x", "$z$"]}
    graphs = [
        EvolvingGraph.build({"id": [1, 2, 3], "time": [4, 4, 4], "label": ["x", "y", None]}),
        EvolvingGraph.build({"id": [1, 2, 3, 4], "time": [1, 2, 3, 5]}, [(1, 2), (2, 4)]),
        EvolvingGraph.build(months, [(1, 3)], every="month"),
    ]
    told = [describe(graph, f"graph {at} of $5$", hops=figures.HOPS) for at, graph in enumerate(graphs)]
    names = ("distributions", "drift_per_task", "time_differences", "unseen_per_task")
    for some in (told, told[:1], []):
        written = figures.draw(some, tmp_path, "a note")
        assert [path.name for path in written] == [f"{name}.{kind}" for name in names for kind in ("svg", "png")]
