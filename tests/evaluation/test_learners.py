"""Learners side by side: their names, their metrics, results that are kept, table and figure."""

from __future__ import annotations

import csv
import json
import math
import mmap
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evergraph import EvolvingGraph, InputError
from evergraph.datasets import synthetic
from evergraph.detect import Softmax
from evergraph.evaluation import learners as module
from evergraph.evaluation.compared import CompareState
from evergraph.evaluation.configuration import Configuration
from evergraph.evaluation.learner_specs import LearnerSpec, learner_specs
from evergraph.evaluation.learners import (
    LEARNER_METRICS,
    LearnerComparison,
    LearnerResult,
    compare_learners,
    stored_learners,
)
from evergraph.evaluation.recommendation import recommend_learner
from evergraph.evaluation.run import run
from evergraph.evaluation.update_cost import Meter, bytes_kept, rows_kept
from evergraph.learning.checkpoint import pack
from evergraph.learning.memory import ClassMean
from evergraph.learning.task import Task
from evergraph.nn import MLP, GraphSAGE, MostFrequent
from evergraph.presentation.table import Section
from evergraph.report.learners import cost_figure, learners_table, pareto_front, write_learners

pytestmark = pytest.mark.usefixtures("one_thread")

NAMES = "window:1,window:full,window:1+restart:cold,model:most-frequent+window:2"
SIZE: dict[str, Any] = {"times": 7, "classes": 4, "new_classes": 2, "words": 60, "words_per_vertex": 4}
BASE = Configuration(GraphSAGE(hidden=4), Softmax(), history=2, steps=3, lr=0.05, first=4)


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("graphs")
    for seed, name in enumerate(("one", "two"), start=2):
        synthetic(vertices=200, seed=seed, **SIZE).save(folder / name)
    return [str(folder / "one"), str(folder / "two")]


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("out") / "compared"


@pytest.fixture(scope="module")
def compared(graphs: list[str], out: Path) -> LearnerComparison:
    return compare_learners(graphs, learner_specs(NAMES), BASE, [0, 1], out=out)


# --- learners as text ------------------------------------------------------------------------------------------------


def test_parts_set_the_fields_of_a_configuration() -> None:
    told: dict[str, dict[str, Any]] = {
        "window:1": {"history": 1},
        "window:full + restart:hybrid": {"history": "full", "restart": "hybrid"},
        "window:auto+steps:7+lr:1e-2": {"history": "auto", "steps": 7, "lr": 0.01},
        "lr:1e+2": {"lr": 100.0},
        "model:sage:hidden=8,dropout=0.25+window:3": {"model": GraphSAGE(hidden=8, dropout=0.25), "history": 3},
        "model:mlp": {"model": MLP()},
    }
    specs = learner_specs(",".join([*told, "window:1"]))
    assert [one.name for one in specs] == list(told)
    for spec, changed in zip(specs, told.values(), strict=True):
        assert spec.configuration(BASE) == replace(BASE, **changed)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("windw:1", r"there is no part of a learner 'windw' \(did you mean 'window'\?\)"),
        ("window:1+memroy", "there is no part of a learner 'memroy'"),
        ("window", "the part 'window' of the learner 'window' has no value"),
        ("window:", "has no value"),
        ("window:0", "the window of the learner 'window:0' is '0'.*from 1 up, full or auto"),
        ("window:-1", "is '-1'"),
        ("window:1+window:2", "has the part 'window' twice"),
        ("restart:warn", r"there is no restart 'warn' \(did you mean 'warm'"),
        ("steps:1.5", "the part 'steps' of the learner 'steps:1.5' is '1.5'"),
        ("lr:nan", "the learning rate of the learner 'lr:nan' is 'nan'"),
        ("lr:0", "is '0'"),
        ("model:sgae", r"there is no model 'sgae' \(did you mean 'sage'"),
        ("model:sage:depth=3", "the model sage has no setting 'depth'"),
        (" , ", "there is no learner to compare"),
    ],
)
def test_wrong_learners_are_told_with_what_there_is(name: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        learner_specs(name)


def test_budgets_in_percent_and_in_vertices() -> None:
    for text, budget in (("10%", 0.1), ("2.5%", 0.025), ("70", 70)):
        (spec,) = learner_specs(f"window:1+memory:class-mean:{text}")
        found: Any = spec.configuration(BASE)
        assert found.memory == ClassMean(budget)
    (without,) = learner_specs("window:1+memory:none")
    assert without.configuration(found).memory is None
    for text in ("0%", "100%", "101%"):
        with pytest.raises(InputError, match=f"the budget is {text}"):
            learner_specs(f"window:1+memory:random:{text}")


# --- metrics ---------------------------------------------------------------------------------------------------------


def test_metrics_are_those_of_a_run(compared: LearnerComparison, graphs: list[str]) -> None:
    graph = EvolvingGraph.open(graphs[1])
    summary = run(replace(BASE, history="full"), graph, [0, 1]).summary()
    found = compared.summary("two", "window:full")
    for name in ("accuracy", "id_accuracy", "macro_f1", "mcc"):
        assert found[name]["per_seed"] == summary[name]["per_seed"], name
    for row, task in zip(compared.of("two", "window:full")[0].tasks, (4, 5, 6), strict=True):
        assert row["time"] == task
        assert row["vertices"] == int((graph.times == task).sum())


def test_costs_are_means_and_sums_over_updates(compared: LearnerComparison) -> None:
    for one in compared.outcomes:
        seconds = [row["seconds"] for row in one.tasks]
        assert one.metrics["seconds"] == pytest.approx(np.mean(seconds))
        assert one.metrics["seconds_total"] == pytest.approx(np.sum(seconds))
        assert 0 < one.metrics["cpu_seconds"] <= one.metrics["cpu_seconds_total"]
        assert one.metrics["bytes_kept"] == one.tasks[-1]["bytes_kept"] > 0
    kept = {one.name: compared.over_graphs(one.name)["bytes_kept"]["mean"] for one in compared.learners}
    assert kept["window:1"] < kept["window:full"]  # type: ignore[operator]


def test_forward_transfer_is_the_gain_over_the_same_learner_with_cold_restarts(compared: LearnerComparison) -> None:
    for graph in ("one", "two"):
        warm, cold = ([one.tasks for one in compared.of(graph, name)] for name in ("window:1", "window:1+restart:cold"))
        for seed in (0, 1):
            gains = [own["accuracy"] - other["accuracy"] for own, other in zip(warm[seed], cold[seed], strict=True)]
            found = compared.of(graph, "window:1")[seed].metrics["forward_transfer"]
            assert found == pytest.approx(np.mean(gains[1:]))
    for name in NAMES.split(",")[1:]:  # the cold one, and those of which there is no cold one
        assert all(math.isnan(one.metrics["forward_transfer"]) for one in compared.of("one", name))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is measured on Linux")
def test_the_peak_of_an_update_is_what_it_adds_to_the_memory() -> None:
    meter = Meter.of(synthetic(vertices=60, times=4, classes=2, new_classes=0, seed=1))
    with meter.measured(), mmap.mmap(-1, 30_000_000) as room:  # which is given back at once, other than an array
        room.write(bytes(30_000_000))
    if math.isnan(meter.peak_memory):
        pytest.skip("the system does not reset the peak")
    assert 29e6 < meter.peak_memory < 100e6
    with meter.measured():
        pass
    assert meter.peak_memory < 10e6  # the peak before does not count


@pytest.mark.parametrize(("history", "first"), [(1, 5), (3, 3), (None, 0)])
def test_bytes_to_keep_are_those_of_the_learner_and_of_older_vertices(history: int | None, first: int) -> None:
    graph = synthetic(vertices=200, seed=4, **SIZE)
    task = Task(graph, time=5, history=history)
    learner = replace(BASE, inputs="words,classes").learner(0).adapt(task)
    content, tensors = pack(learner)
    older = [row for row in range(len(graph)) if first <= graph.times[row] < 5]
    assert rows_kept(learner, task).tolist() == older
    assert bool(older) == (history != 1)
    edges = graph.adjacency.tocoo()
    ends = zip(edges.row.tolist(), edges.col.tolist(), strict=True)
    near = {*older, *np.flatnonzero(graph.times == 5).tolist()}
    linked = sum(row < other and row in set(older) and other in near for row, other in ends)
    words = sum(len(set(text.split())) for text in texts_of(graph, older))
    wanted = len(json.dumps(content, ensure_ascii=False).encode()) + len(tensors) + 8 * (linked + words)
    assert bytes_kept(learner, task) == wanted
    learner.set_params(restart="once")
    assert len(rows_kept(learner, task)) == 0


def texts_of(graph: EvolvingGraph, rows: list[int]) -> list[str]:
    words: Any = graph.features.words
    names = list(words.columns)
    matrix = words.matrix.toarray()
    return [" ".join(names[column] for column in np.flatnonzero(matrix[row])) for row in rows]


# --- results on disk -------------------------------------------------------------------------------------------------


def lines_of(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "learners.jsonl").read_text().splitlines()]


@pytest.fixture
def copied(compared: LearnerComparison, out: Path, tmp_path: Path) -> Path:
    assert compared.errors == ()
    shutil.copytree(out, tmp_path / "copy")
    return tmp_path / "copy"


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The jobs that run."""
    before, found = module.result_of, []

    def result_of(job: module.Job, *rest: Any) -> LearnerResult:
        found.append(str(job))
        return before(job, *rest)

    monkeypatch.setattr(module, "result_of", result_of)
    return found


def figures(found: LearnerComparison) -> dict[tuple[str, str, int], str]:
    return {(one.graph, one.learner, one.seed): repr(dict(one.metrics)) for one in found.outcomes}


def test_what_is_stored_is_not_trained_again(
    compared: LearnerComparison, graphs: list[str], copied: Path, trained: list[str]
) -> None:
    states: list[CompareState] = []
    found = compare_learners(graphs, learner_specs(NAMES), BASE, [0, 1], out=copied, on_done=states.append)
    assert trained == []
    assert figures(found) == figures(compared)
    assert json.loads(json.dumps(found.as_dict())) == json.loads(json.dumps(compared.as_dict()))
    assert (states[0].done, states[-1].done, states[-1].total) == (0, 16, 16)
    # The same learner under another name, with what was the default as a part; others are trained.
    again = compare_learners(graphs[:1], learner_specs("window:1+steps:3,window:1+steps:2"), BASE, out=copied)
    assert trained == ["one, window:1+steps:2, seed 0"]
    assert again.of("one", "window:1+steps:3")[0].tasks == compared.of("one", "window:1")[0].tasks
    assert len(lines_of(copied)) == 17
    stored = stored_learners(graphs, learner_specs("window:1,window:2"), BASE, [0, 1, 2], out=copied)
    assert [(one.graph, one.learner, one.seed) for one in stored.outcomes] == [
        (graph, "window:1", seed) for graph in ("one", "two") for seed in (0, 1)
    ]
    assert len(trained) == 1


def test_a_torn_line_is_repaired(
    compared: LearnerComparison, graphs: list[str], copied: Path, trained: list[str], caplog: Any
) -> None:
    path = copied / "learners.jsonl"
    whole = path.read_bytes()
    path.write_bytes(b'{"of": "something else"}\n' + whole[:-200])
    found = compare_learners(graphs, learner_specs(NAMES), BASE, [0, 1], out=copied)
    assert trained == ["two, model:most-frequent+window:2, seed 1"]
    assert "the line is incomplete; it is left out" in caplog.text
    assert "line 1: this is not a result of a comparison; it is ignored" in caplog.text
    foreign, *rest = path.read_bytes().splitlines(keepends=True)
    assert foreign == b'{"of": "something else"}\n'
    assert rest[:-1] == whole.splitlines(keepends=True)[:-1]
    assert (
        json.loads(rest[-1])["tasks"][0]["accuracy"]
        == found.of("two", trained[0].split(", ")[1])[1].tasks[0]["accuracy"]
    )
    compare_learners(graphs, learner_specs(NAMES), BASE, [0, 1], out=copied)
    assert len(trained) == 1


def test_a_line_that_was_edited_or_is_of_other_numerics_is_trained_again(
    compared: LearnerComparison, graphs: list[str], copied: Path, trained: list[str]
) -> None:
    rows = lines_of(copied)
    rows[0]["tasks"] = "none"
    rows[1]["numerics_version"] = 0
    rows[2]["fingerprint"] = "of another graph"
    rows[3]["configuration"]["steps"] = 9
    del rows[4]["configuration"]["lr"]  # a setting that has a value
    assert rows[5]["configuration"].pop("workers") == 1  # an earlier version
    (copied / "learners.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    compare_learners(graphs, learner_specs(NAMES), BASE, [0, 1], out=copied)
    assert trained == [f"{row['graph']}, {row['learner']}, seed {row['seed']}" for row in rows[:5]]


def test_a_stopped_comparison_continues(graphs: list[str], tmp_path: Path, trained: list[str]) -> None:
    specs = learner_specs("model:most-frequent,window:1")

    def stop(state: CompareState) -> None:
        if state.done == 1 and "task 2 of 3" in state.doing:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compare_learners(graphs[:1], specs, BASE, out=tmp_path, on_done=stop)
    assert [line["learner"] for line in lines_of(tmp_path)] == ["model:most-frequent"]
    found = compare_learners(graphs[:1], specs, BASE, out=tmp_path)
    assert trained == ["one, model:most-frequent, seed 0", *2 * ["one, window:1, seed 0"]]
    assert len(found.outcomes) == 2


def test_what_another_command_has_done_meanwhile_is_taken(
    graphs: list[str], tmp_path: Path, trained: list[str]
) -> None:
    specs = learner_specs("model:most-frequent,model:most-frequent+window:1,model:most-frequent+window:full")
    other: list[LearnerComparison] = []

    def on_done(state: CompareState) -> None:
        if state.done == 1 and not other:
            other.append(compare_learners(graphs[:1], specs[1:], BASE, out=tmp_path))

    found = compare_learners(graphs[:1], specs, BASE, out=tmp_path, on_done=on_done)
    assert [name.split(", ")[1] for name in trained] == [one.name for one in specs]
    assert [one.tasks for one in other[0].outcomes] == [one.tasks for one in found.outcomes[1:]]
    assert len(lines_of(tmp_path)) == 3


STORE = """
import sys
from pathlib import Path
from evergraph.evaluation.compared import store_lines
for number in range(25):
    store_lines(Path(sys.argv[1]), [{"key": f"{sys.argv[2]} {number % 20}", "of": number}], lambda line: line["key"])
"""


def test_two_processes_lose_no_line_of_each_other(tmp_path: Path) -> None:
    path = tmp_path / "out" / "learners.jsonl"
    both = [subprocess.Popen([sys.executable, "-c", STORE, path, name]) for name in ("one", "two")]
    assert [process.wait(120) for process in both] == [0, 0]
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    newest = {f"{name} {number}": number + 20 * (number < 5) for name in ("one", "two") for number in range(20)}
    assert {row["key"]: row["of"] for row in rows} == newest
    assert len(rows) == 40


@pytest.mark.parametrize("error", [InputError("it is full", fix="make room"), ValueError("it is odd")])
def test_what_fails_is_told_and_the_rest_goes_on(
    graphs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    before = module.result_of

    def failing(job: module.Job, *rest: Any) -> LearnerResult:
        if job.configuration.history == "full":
            raise error
        return before(job, *rest)

    monkeypatch.setattr(module, "result_of", failing)
    specs = learner_specs("window:full+model:most-frequent,window:1+model:most-frequent")
    found = compare_learners(graphs, specs, BASE, out=tmp_path)
    told = "it is full. Make room." if isinstance(error, InputError) else "ValueError: it is odd"
    assert found.errors == tuple(f"{graph}, {specs[0].name}, seed 0: {told}" for graph in ("one", "two"))
    assert [one.learner for one in found.outcomes] == 2 * [specs[1].name]
    assert found.over_graphs(specs[0].name) == {}
    rows = [row[0].value for row in learners_table(found).rows if not isinstance(row, Section)]
    assert rows == 3 * [specs[1].name]
    cost_figure(found)
    advice = recommend_learner(found)
    assert advice is not None
    assert advice.learner == specs[1]


@pytest.mark.slow
def test_processes_come_to_the_same(compared: LearnerComparison, graphs: list[str], tmp_path: Path) -> None:
    found = compare_learners(graphs[:1], learner_specs(NAMES), BASE, [1], out=tmp_path, jobs=2)
    assert found.errors == ()
    for name in NAMES.split(","):
        own, other = (one.of("one", name)[-1] for one in (found, compared))
        for metric in ("accuracy", "id_accuracy", "mcc", "macro_f1", "forgetting", "bytes_kept"):
            assert repr(own.metrics[metric]) == repr(other.metrics[metric])


# --- table, figure, advice -------------------------------------------------------------------------------------------


def test_table_and_figure_show_each_graph_and_learner(compared: LearnerComparison, tmp_path: Path) -> None:
    files = write_learners(compared, tmp_path)
    kinds = {"learners.md", "learners.tex", "learners.csv", "learners.json", "accuracy-cost.svg", "accuracy-cost.png"}
    assert {path.name for path in files} == kinds
    assert all(path.stat().st_size for path in files)
    rows = list(csv.DictReader((tmp_path / "learners.csv").read_text().splitlines()))
    assert [(row["section"], row["learner"]) for row in rows] == [
        (block, name) for block in ("one", "two", "mean over graphs") for name in NAMES.split(",")
    ]
    for row in rows[:4]:
        summary = compared.summary("one", row["learner"])
        assert float(row["accuracy all"]) == summary["accuracy"]["mean"]
        assert float(row["kept, MB"]) == summary["bytes_kept"]["mean"] / 1e6  # type: ignore[operator]
    assert "evergraph compare" in (tmp_path / "learners.md").read_text()
    assert ET.parse(tmp_path / "accuracy-cost.svg").getroot().tag.endswith("svg")
    for panel, graph in zip(cost_figure(compared).axes, ("one", "two"), strict=True):
        assert panel.get_title() == graph
        points = [np.asarray(line.get_xydata(), float) for line in panel.lines]
        shown = [tuple(one.ravel()) for one in points if len(one) == 1]
        wanted = [compared.summary(graph, name) for name in NAMES.split(",")]
        for one in wanted:
            assert (one["seconds"]["mean"], one["accuracy"]["mean"]) in shown


def test_the_json_has_all_metrics_of_each_graph_and_learner(compared: LearnerComparison) -> None:
    found = json.loads(json.dumps(compared.as_dict(), allow_nan=False))
    assert [(one["graph"], one["learner"]) for one in found["results"]] == [
        (graph, name) for graph in ("one", "two") for name in NAMES.split(",")
    ]
    for one in found["results"]:
        assert set(LEARNER_METRICS) < set(one)
        assert [task["time"] for task in one["tasks"]] == [4, 5, 6]
        assert {"accuracy_new", "forgetting", "vertices_old", "peak_memory", "bytes_kept"} < set(one["tasks"][0])
    assert [one["learner"] for one in found["mean_over_graphs"]] == NAMES.split(",")
    assert found["results"][3]["parts"] == {"model": "most-frequent", "window": "2"}
    assert found["results"][3]["configuration"]["model"] == {"name": "most-frequent"}
    assert found["results"][2]["configuration"]["restart"] == "cold"


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(0, 6)), min_size=1, max_size=12))
def test_the_front_has_what_nothing_beats(points: list[tuple[int, int]]) -> None:
    front = pareto_front([cost for cost, _ in points], [value for _, value in points])
    beaten = {
        point
        for point in points
        for cost, value in points
        if (cost, value) != point and cost <= point[0] and value >= point[1]
    }
    assert {points[one] for one in front} == set(points) - beaten
    assert front == sorted(front, key=lambda one: points[one][0])
    assert len({points[one] for one in front}) == len(front)


def advised(measured: dict[str, tuple[float, float]], seeds: tuple[int, ...] = (0,)) -> Any:
    outcomes = tuple(
        LearnerResult(
            "g",
            name,
            seed,
            dict.fromkeys(LEARNER_METRICS, 0.0) | {"accuracy": accuracy, "seconds": seconds},
            ({"time": 1},),
        )
        for name, (accuracy, seconds) in measured.items()
        for seed in seeds
    )
    specs = learner_specs(",".join(measured))
    return recommend_learner(LearnerComparison({"g": "g"}, specs, seeds, BASE, {}, outcomes))


def test_the_fastest_within_half_a_point_of_the_best_is_recommended() -> None:
    measured = {"window:1": (0.6, 0.1), "window:2": (0.695, 2.0), "window:3": (0.6949, 1.0), "window:full": (0.7, 9.0)}
    found = advised(measured)
    assert found.learner.name == "window:2"
    assert "the fastest within 0.5 points of the best accuracy: accuracy 69.5%, 2 s an update" in found.reason
    assert "The best is window:full: accuracy 70.0%, 9 s" in found.reason
    assert "One seed does not show the spread" in found.reason
    best = advised(measured | {"window:full": (0.7, 0.5)}, seeds=(0, 1))
    assert best.learner.name == "window:full"
    assert "It has the best accuracy" in best.reason
    assert "One seed" not in best.reason
    assert advised({"window:1": (math.nan, 0.1)}) is None


def test_most_frequent_needs_no_steps() -> None:
    """Learners whose parts are closed-form are compared as all others."""
    assert LearnerSpec.parse("model:most-frequent").settings()["model"] == MostFrequent()
