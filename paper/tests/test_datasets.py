"""Facts, table and figures of graphs, against plain counting."""

from __future__ import annotations

import json
import logging
import math
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from evergraph import EvolvingGraph
from evergraph.datasets import synthetic
from evergraph.errors import InputError
from evergraph.presentation.table import to_csv, to_latex, to_markdown
from evergraph_paper import datasets
from evergraph_paper.datasets import datasets_table, facts, write_datasets
from evergraph_paper.paper import printed

LEVELS = (25, 50, 75, 100)
FIGURES = ("distributions", "drift_per_task", "time_differences", "unseen_per_task")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[EvolvingGraph, dict[str, Any]]:
    graph = synthetic(vertices=240, times=9, classes=4, new_classes=3, degree=3, label_rate=0.9, growth=1.2, seed=5)
    folder = tmp_path_factory.mktemp("graphs") / "made"
    graph.save(folder)
    return graph, facts(str(folder))


def saved(folder: Path, vertices: dict[str, Any], edges: Any = (), **options: Any) -> dict[str, Any]:
    """The facts of a graph that is built and saved."""
    EvolvingGraph.build(vertices, list(edges), **options).save(folder)
    return facts(str(folder))


# --- by hand ---------------------------------------------------------------------------------------------------------


def differences(graph: EvolvingGraph, hops: int, before: int | None = None) -> list[int]:
    """All time differences, one by one."""
    times = graph.times.tolist()
    inside = [before is None or time < before for time in times]
    rows, columns = graph.adjacency.nonzero()
    neighbours: dict[int, set[int]] = {v: set() for v in range(len(graph))}
    for u, v in zip(rows.tolist(), columns.tolist(), strict=True):
        if inside[u] and inside[v]:
            neighbours[u].add(v)
    found = []
    for u in neighbours:
        reached = {u}
        for _ in range(hops):
            reached |= {w for v in reached for w in neighbours[v]}
        found += [times[u] - times[v] for v in reached - {u} if times[v] <= times[u]]
    return found


def sizes(values: list[int]) -> dict[str, int]:
    return {str(level): max(1, math.ceil(np.percentile(values, level) - 1e-9)) for level in LEVELS}


def total_variation(one: Counter[str], other: Counter[str]) -> float:
    return sum(abs(one[name] / one.total() - other[name] / other.total()) for name in one | other) / 2


def test_sizes_times_and_tasks(made: tuple[EvolvingGraph, dict[str, Any]]) -> None:
    graph, found = made
    times = Counter(graph.times.tolist())
    assert (found["name"], len(found["fingerprint"])) == ("made", 64)
    assert (found["vertices"], found["edges"]) == (240, graph.adjacency.nnz // 2)
    assert (found["features"], found["feature_kind"]) == (2000, "words")
    assert found["labelled"] == pytest.approx(sum(name is not None for name in graph.labels) / 240, abs=1e-6)
    assert (found["first_time"], found["last_time"], found["times"]) == (0, 8, list(range(9)))
    assert found["vertices_by_time"] == [times[time] for time in range(9)]
    start = next(time for time in range(9) if sum(times[before] for before in range(time)) >= 60)
    assert (found["first_task"], found["tasks"]) == (start, 9 - start)
    assert found["task_times"] == list(range(start, 9))
    assert found["test_vertices"] == sum(times[time] for time in found["task_times"])


def test_classes_and_unseen_vertices(made: tuple[EvolvingGraph, dict[str, Any]]) -> None:
    graph, found = made
    labels = [(name, time) for name, time in zip(graph.labels, graph.times.tolist(), strict=True) if name is not None]
    counts = Counter(name for name, _ in labels)
    born = {name: min(time for other, time in labels if other == name) for name in counts}
    new = {name: time for name, time in born.items() if time >= found["first_task"]}
    assert (found["classes"], found["new_classes"]) == (len(counts), len(new))
    assert 0 < len(new) < len(counts)
    assert dict(zip(found["new_class_names"], found["new_class_times"], strict=True)) == new
    assert found["new_class_times"] == sorted(found["new_class_times"])
    assert found["class_counts"] == sorted(counts.values(), reverse=True)
    unseen = [sum(born[name] == time == task for name, time in labels) for task in found["task_times"]]
    assert found["unseen_by_task"] == unseen
    assert found["unseen_vertices"] == sum(unseen) > 0


def test_degrees(made: tuple[EvolvingGraph, dict[str, Any]]) -> None:
    graph, found = made
    degrees = np.diff(graph.adjacency.indptr).tolist()
    assert dict(zip(found["degrees"]["degree"], found["degrees"]["vertices"], strict=True)) == Counter(degrees)
    some = [degree for degree in degrees if degree]
    assert found["power_law_from_degree"] == 1
    assert found["power_law"] == pytest.approx(1 + len(some) / sum(map(math.log, some)), abs=1e-6)


def test_drift(made: tuple[EvolvingGraph, dict[str, Any]]) -> None:
    graph, found = made
    at = {time: Counter(name for name in graph.labels[graph.times == time] if name) for time in range(9)}
    for name, before in (
        ("drift_consecutive", lambda task: at[task - 1]),
        ("drift_cumulative", lambda task: sum((at[time] for time in range(task)), Counter())),
    ):
        moves = [total_variation(before(task), at[task]) for task in found["task_times"]]
        assert found[name]["by_task"] == pytest.approx(moves, abs=1e-6)
        assert found[name]["mean"] == pytest.approx(sum(moves) / len(moves), abs=1e-6)
        assert (found[name]["min"], found[name]["max"]) == pytest.approx((min(moves), max(moves)), abs=1e-6)


def test_time_differences_and_histories(made: tuple[EvolvingGraph, dict[str, Any]]) -> None:
    graph, found = made
    for hops in (1, 2, 3):
        values, told = differences(graph, hops), found["tdiff"][str(hops)]
        assert told["pairs"] == len(values)
        assert {i: count for i, count in enumerate(told["counts"]) if count} == Counter(values)
        for level in LEVELS:
            assert told["percentiles"][str(level)] == pytest.approx(np.percentile(values, level))
    two_hops = differences(graph, 2)
    assert found["history_sizes"] == sizes(two_hops)
    assert found["history_sizes_before_first_task"] == sizes(differences(graph, 2, before=found["first_task"]))
    with_self = [*two_hops, *[0] * len(graph)]
    assert found["with_self_pairs"] == {str(level): pytest.approx(np.percentile(with_self, level)) for level in LEVELS}


def test_classes_that_pause_or_end(tmp_path: Path) -> None:
    when = {
        "always": range(1, 8),
        "biennial": [1, 3, 5, 7],
        "even": [2, 4, 6],
        "ended": [1, 2, 3],
        "once late": [7],
        "paused": [1, 2, 5, 6],
        "paused and ended": [1, 3],
        "twice": [5, 7],
    }
    rows = [(name, time) for name, times in when.items() for time in times]
    labels, times = zip(*rows, strict=True)
    found = saved(tmp_path / "graph", {"id": range(len(rows)), "time": times, "label": labels})
    assert found["discontinued_classes"] == ["ended", "paused and ended"]
    assert found["every_other_time_classes"] == ["biennial", "even"]
    assert found["irregular_classes"] == ["paused", "paused and ended", "twice"]


def test_poor_graphs_are_described_and_drawn_too(tmp_path: Path) -> None:
    one_time = saved(tmp_path / "one time", {"id": [1, 2, 3], "time": [4, 4, 4], "label": ["x", "y", None]})
    assert [one_time[name] for name in ("first_task", "tasks", "task_times", "unseen_by_task")] == [None, 0, [], []]
    assert (one_time["features"], one_time["feature_kind"], one_time["power_law"]) == (0, "none", None)
    assert (one_time["history_sizes"], one_time["history_sizes_before_first_task"]) == (None, None)
    assert one_time["tdiff"]["2"] == {"pairs": 0, "counts": [0], "percentiles": None}
    assert one_time["drift_cumulative"] == {"by_task": [], "min": None, "max": None, "mean": None}

    no_labels = saved(tmp_path / "no labels", {"id": [1, 2, 3, 4], "time": [1, 2, 3, 5]}, [(1, 2), (2, 4)])
    assert (no_labels["classes"], no_labels["class_counts"], no_labels["unseen_by_task"]) == (0, [], [0, 0, 0])
    assert no_labels["drift_consecutive"]["by_task"] == [None, None, None]
    assert no_labels["tdiff"]["1"]["counts"] == [0, 1, 0, 1, 0]

    dates = ["2004-01", "2004-02", "2004-05", "2005-01"]
    vertices = {"id": [1, 2, 3, 4], "time": dates, "label": ["x", "x", "y", "$z$"]}
    months = saved(tmp_path / "months", vertices, [(1, 3), (3, 4)], every="month")
    assert (months["times"], months["task_times"], months["time_steps"]) == (dates, dates[1:], "months")
    assert months["new_class_times"] == ["2004-05", "2005-01"]

    two_times = saved(tmp_path / "two times", {"id": [1, 2], "time": [1, 2], "label": ["x", "y"]})
    assert (two_times["task_times"], two_times["unseen_by_task"]) == ([2], [1])

    poor = [one_time, no_labels, months, two_times]
    assert json.loads(json.dumps(poor, allow_nan=False)) == poor
    assert "one time" in to_markdown(datasets_table(poor))
    paths = [str(tmp_path / name) for name in ("one time", "no labels", "months", "two times")]
    assert len(write_datasets(paths, tmp_path / "out")) == 4 + 2 * len(FIGURES)


def test_metamath() -> None:
    found = facts("metamath")
    assert (found["name"], found["vertices"], found["edges"], found["classes"]) == ("metamath", 25729, 461874, 74)
    assert (found["first_time"], found["last_time"], found["first_task"], found["tasks"]) == (1992, 2020, 2007, 14)
    assert (found["new_classes"], found["unseen_vertices"]) == (36, sum(found["unseen_by_task"]))
    assert found["history_sizes_before_first_task"]["50"] == 2
    assert sum(found["degrees"]["vertices"]) == sum(found["vertices_by_time"]) == sum(found["class_counts"]) == 25729


# --- table, figures, files -------------------------------------------------------------------------------------------


def test_the_table_has_our_graphs_and_those_of_the_paper(made: tuple[EvolvingGraph, dict[str, Any]]) -> None:
    found = made[1]
    table = datasets_table([found | {"name": "acl"}, found], note="a test")
    texts = [[cell.text for cell in row] for row in table.rows if isinstance(row, tuple)]
    assert [row[0] for row in texts] == ["acl", "made", "dblp-easy", "dblp-hard", "pharmabio (beside acl)"]
    assert texts[0][1:] == texts[1][1:]
    assert texts[1][1:5] == ["240", f"{found['edges']:,}", "2,000", str(found["classes"])]
    assert texts[1][9] == " / ".join(
        str(found["history_sizes_before_first_task"][level]) for level in ("25", "50", "75")
    )
    drift = found["drift_consecutive"]
    assert texts[1][10] == f"{drift['min']:.2f} to {drift['max']:.2f}"
    assert texts[3] == [
        "dblp-hard",
        "198,675",
        "643,734",
        "4,043",
        "73",
        "23",
        "2004",
        "12",
        "1 / 3 / 6",
        "-",
        "0.12 to 0.16",
        "-",
    ]
    assert texts[4][1:] == ["68,068", "2.1M", "4,829", "7", "0", "1999", "18", "1 / 4 / 8", "-", "< 0.07", "-"]
    assert len(texts) - 2 == len(printed()["table_temporal_datasets"])
    assert to_markdown(table).endswith("a test\n")
    assert r"\begin{tabular}" in to_latex(table)
    assert "paper,dblp-easy,45407,112131," in to_csv(table)


def test_what_is_written(
    made: tuple[EvolvingGraph, dict[str, Any]], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    graph, found = made
    graph.save(tmp_path / "made & $here$")
    with caplog.at_level(logging.INFO, datasets.log.name):
        written = write_datasets([str(tmp_path / "made & $here$")], tmp_path / "out", "a test & more")
    assert [record.getMessage().split()[-3:] for record in caplog.records] == [["(1", "of", "1)"]]
    expected = [f"datasets.{kind}" for kind in ("json", "md", "tex", "csv")]
    expected += [f"{name}.{kind}" for name in FIGURES for kind in ("svg", "png")]
    assert [path.name for path in written] == expected
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(expected)
    again = [found | {"name": "made & $here$"}]  # counted a second time, written the same
    assert written[0].read_text(encoding="utf-8") == f"{datasets._json(again)}\n"
    assert "a test &amp; more" in written[1].read_text(encoding="utf-8")
    for path in written[4:]:
        if path.suffix == ".svg":
            assert ElementTree.parse(path).getroot().tag == "{http://www.w3.org/2000/svg}svg"
        else:
            assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(("paths", "problem"), [([], "no graph"), (["a/x", "b/x"], "two graphs are named x")])
def test_what_cannot_be_described(tmp_path: Path, paths: list[str], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        write_datasets(paths, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_json_goes_on_in_the_next_line_only_where_there_are_parts() -> None:
    value = [{"a": {"b": [1, 2], "c": None}, "d": {"25": 1}, "é": []}, {}]
    text = datasets._json(value)
    assert json.loads(text) == value
    assert text.splitlines()[3] == '   "b": [1, 2],'
    depths = [len(line) - len(line.lstrip()) for line in text.splitlines()]
    assert all(abs(one - other) <= 1 for one, other in pairwise(depths))
