"""Detectors side by side: their names, their figures, and the command."""

from __future__ import annotations

import csv
import json
import math
import pickle
import re
import shlex
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, f1_score, matthews_corrcoef, roc_auc_score, roc_curve

from evergraph import EvolvingGraph, InputError, names
from evergraph.datasets import synthetic
from evergraph.detect import DOC, GDOC, AutoDetector, PostHoc, Softmax
from evergraph.detect.scores import Energy, Relative
from evergraph.detect.thresholds import BackTest, Budget, Conformal, Fixed
from evergraph.evaluation import comparison as module
from evergraph.evaluation.comparison import METRICS, CandidateResult, Comparison, candidate, candidates, compare
from evergraph.evaluation.configuration import Configuration
from evergraph.evaluation.metrics import over_seeds
from evergraph.evaluation.replay import ReplayedTask, open_recording, replay
from evergraph.evaluation.run import run
from evergraph.evaluation.workers import InProcess
from evergraph.nn import GraphSAGE
from evergraph.presentation.table import Section
from evergraph.report.comparison import compared_table, tasks_figure, write_comparison
from evergraph_baselines.average import AverageDetector

SCORES = {name: names.load("score", name) for name in names.known("score")}
THRESHOLDS = {name: names.load("threshold", name) for name in names.THRESHOLDS}

pytestmark = pytest.mark.usefixtures("one_thread")

Command = Callable[..., tuple[int, str, str]]

NAMES = "none,gdoc:0.5,gdoc:0.75,energy,msp/fixed:-0.2"
SIZE: dict[str, Any] = {"times": 7, "classes": 4, "new_classes": 2, "words": 80, "words_per_vertex": 5}
SMALL = Configuration(GraphSAGE(hidden=4), history=2, steps=3, lr=0.05, first=4)
OPTIONS = ("--hidden", 4, "--history", 2, "--steps", 3, "--lr", 0.05, "--first", 4, "--jobs", 1)


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("graphs")
    for seed, name in enumerate(("one", "two"), start=2):
        synthetic(vertices=240, seed=seed, **SIZE).save(folder / name)
    return [str(folder / "one"), str(folder / "two")]


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("out") / "compared"


@pytest.fixture(scope="module")
def compared(graphs: list[str], out: Path) -> Comparison:
    return compare(graphs, candidates(NAMES), SMALL, [0, 1], out=out)


# --- names -----------------------------------------------------------------------------------------------------------


def test_names_call_detectors_and_the_loss_that_they_are_trained_with() -> None:
    told = {
        "none": (Softmax(), Softmax()),
        "auto": (AutoDetector(), Softmax()),
        "average": (AverageDetector(), Softmax()),
        "doc": (DOC(), DOC()),
        "doc:0.6": (DOC(0.6), DOC()),
        "gdoc": (GDOC(), GDOC()),
        "gdoc:0.5": (GDOC(0.5), GDOC()),
        "energy": (PostHoc(Energy(), BackTest()), Softmax()),
        "energy/back-test": (PostHoc(Energy(), BackTest()), Softmax()),
        "relative-energy/conformal": (PostHoc(Relative(Energy()), Conformal()), Softmax()),
        "energy/fixed:-2.5": (PostHoc(Energy(), Fixed(-2.5)), Softmax()),
        "energy/budget:30": (PostHoc(Energy(), Budget(30)), Softmax()),
        "energy/budget": (PostHoc(Energy(), Budget()), Softmax()),
    }
    for name, (detector, trained_with) in told.items():
        one = candidate(name)
        assert (one.name, one.detector, one.trained_with) == (name, detector, trained_with)


def test_every_score_goes_with_every_threshold() -> None:
    for score in SCORES:
        for rule in THRESHOLDS:
            for prefix in ("", "relative-") if SCORES[score].reads_outputs else ("",):
                found: Any = candidate(f"{prefix}{score}/{rule}").detector
                assert type(found.threshold) is THRESHOLDS[rule]
                assert type(found.by.score if prefix else found.by) is SCORES[score]


def test_names_are_given_with_commas_and_count_once() -> None:
    assert [one.name for one in candidates(" energy, none,energy,")] == ["energy", "none"]
    assert [one.name for one in candidates()] == names.COMPARED_DETECTORS.split(",")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (
            "enrgy",
            r"there is no detector 'enrgy' \(did you mean 'energy'\?\).*Choose from none, doc, gdoc, auto, average, cbs-svm, .*, msp, energy",
        ),
        ("relative-mps", r"there is no detector 'relative-mps' \(did you mean 'relative-msp'"),
        ("qqqqqq", "there is no detector 'qqqqqq'. Choose from"),
        ("relative-new_words", "new_words does not depend on the model.*Write new_words"),
        ("relative-", "there is no detector 'relative-'"),
        (
            "energy/conform",
            r"there is no threshold 'conform' \(did you mean 'conformal'\?\).*Choose from fixed, con",
        ),
        ("energy/", "there is no threshold ''"),
        ("energy/conformal:share=0.1", "the threshold conformal has no setting 'share'.*has: rate, step"),
        ("energy/budget:1.5", "'1.5' in 'budget:1.5' is not a whole number"),
        ("energy/budget:-1", "the argument most is -1"),
        ("energy/fixed:nan", "'nan' in 'fixed:nan' is not a number"),
        ("gdoc:much", "'much' in 'gdoc:much' is not a number"),
        ("gdoc:", "'' in 'gdoc:' is not a number"),
        ("gdoc:2", "the argument threshold is 2.0.*from 0 to 1"),
        ("none:1", "the detector none has no setting.*Leave it out; none has no settings"),
        (" , ", "there is no detector to compare"),
    ],
)
def test_unknown_names_are_told_with_what_there_is(name: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        candidates(name)


# --- figures ---------------------------------------------------------------------------------------------------------


def replayed_by_hand(path: str, out: Path, name: str, seed: int) -> tuple[list[ReplayedTask], Any]:
    loss = "gdoc" if name.startswith("gdoc") else "none"
    graph = module.graph_of(path)[0]
    recording = open_recording(out / "recordings" / Path(path).name / loss / f"seed-{seed}")
    return replay(recording, graph, candidate(name).detector), graph


@pytest.mark.parametrize("name", NAMES.split(","))
def test_figures_are_those_of_scikit_learn(compared: Comparison, graphs: list[str], out: Path, name: str) -> None:
    for path, seed in ((graphs[0], 0), (graphs[1], 1)):
        judged, graph = replayed_by_hand(path, out, name, seed)
        figures = compared.of(Path(path).name, name)[seed].metrics
        rejected = np.concatenate([one.decisions.flagged for one in judged])
        score = np.concatenate([one.decisions.score for one in judged])
        truths = [np.array(graph.window(one.decisions.time, one.decisions.time).labels) for one in judged]
        unseens = [~np.isin(t, one.decisions.known) for t, one in zip(truths, judged, strict=True)]
        unseen = np.concatenate(unseens)
        assert 0 < unseen.sum() < len(unseen)
        assert figures["mcc"] == pytest.approx(matthews_corrcoef(unseen, rejected))
        assert figures["auroc"] == pytest.approx(roc_auc_score(unseen, score))
        assert figures["aupr"] == pytest.approx(average_precision_score(unseen, score))
        fpr, tpr, lines = roc_curve(unseen, score, drop_intermediate=False)
        assert figures["fpr95"] == pytest.approx(fpr[tpr >= 0.95].min())
        best = max(matthews_corrcoef(unseen, score >= line) for line in lines)
        assert figures["oracle_mcc"] == pytest.approx(max(best, 0))
        assert (
            figures["mcc"] <= figures["oracle_mcc"] + 1e-9
        )  # flagged vertices are above one of all possible thresholds
        assert figures["false_alarm_rate"] == pytest.approx(rejected[~unseen].mean())
        assert figures["flagged"] == pytest.approx(rejected.mean())
        assert figures["unseen"] == pytest.approx(unseen.mean())
        right, f1, aurocs = [], [], []
        for one, truth, new in zip(judged, truths, unseens, strict=True):
            right.append(np.mean((one.decisions.best == truth)[~new]))
            mapped = np.where(new, "unseen", truth).astype(str)
            f1.append(f1_score(mapped, one.decisions.classes.astype(str), average="macro"))
            if 0 < new.sum() < len(new):
                aurocs.append(roc_auc_score(new, one.decisions.score))
        assert figures["id_accuracy"] == pytest.approx(np.mean(right))
        assert figures["open_f1"] == pytest.approx(np.mean(f1))
        assert figures["auroc_per_task"] == pytest.approx(np.mean(aurocs))
        assert 0 < figures["seconds_detector"] < 60
        assert 0 < figures["seconds_training"] < 60


def test_some_detector_finds_something(compared: Comparison) -> None:
    flagged = {one.name: compared.summary("one", one.name)["flagged"]["mean"] for one in compared.candidates}
    assert flagged["none"] == 0
    assert flagged["gdoc:0.5"] <= flagged["gdoc:0.75"]  # type: ignore[operator]
    assert max(value or 0 for value in flagged.values()) > 0.05


def test_means_are_over_seeds_and_graphs(compared: Comparison) -> None:
    for name in NAMES.split(","):
        by_seed = [[compared.of(graph, name)[seed].metrics["auroc"] for graph in ("one", "two")] for seed in (0, 1)]
        found = compared.over_graphs(name)["auroc"]
        interval = over_seeds([np.mean(values) for values in by_seed])
        assert found["mean"] == pytest.approx(np.mean(by_seed))
        assert found["ci95"] == pytest.approx(interval.half)
        first = compared.summary("one", name)["auroc"]
        assert first["per_seed"] == [values[0] for values in by_seed]
        assert first["ci95"] == pytest.approx(over_seeds(first["per_seed"]).half)  # type: ignore[arg-type]


def test_a_figure_that_is_undefined_somewhere_is_left_out_there(compared: Comparison) -> None:
    def without(one: CandidateResult) -> CandidateResult:
        return replace(one, metrics={**one.metrics, "auroc": math.nan}) if one.graph == "two" else one

    holed = replace(compared, outcomes=tuple(map(without, compared.outcomes)))
    assert holed.over_graphs("energy")["auroc"]["mean"] == compared.summary("one", "energy")["auroc"]["mean"]
    assert holed.summary("two", "energy")["auroc"] == {"mean": None, "ci95": None, "per_seed": [None, None]}
    json.dumps(holed.as_dict(), allow_nan=False)


def neighbours_matter(n: int = 1200, periods: int = 6) -> EvolvingGraph:
    """A graph in which words and the class of one older neighbour are both right more often than not."""
    rng, each = np.random.default_rng(1), n // periods
    time = np.arange(n) // each
    kinds = np.where(rng.random(n) < 0.2, rng.integers(0, 2 + time), rng.integers(0, 2, n))  # one new class a period
    edges = []
    for row in range(each, n):
        same = np.flatnonzero(kinds[: time[row] * each] == kinds[row])
        older = same if len(same) and rng.random() < 0.7 else np.arange(time[row] * each)
        edges.append([row, int(rng.choice(older))])
    words = [f"name{kind if rng.random() < 0.8 else rng.integers(7)} filler{rng.integers(30)}" for kind in kinds]
    labels = [f"c{kind}" for kind in kinds]
    return EvolvingGraph.build({"id": np.arange(n), "time": time, "label": labels, "text": words}, edges)


@pytest.mark.parametrize(
    ("inputs", "least_gain", "first", "read"),
    [
        ("words,classes", 0.5, 2, ("classes", "classes")),
        ("auto", -0.5, 2, ("classes", "classes")),
        ("auto", 0.5, 2, ("", "")),
        ("auto", -0.011, 2, ("", "classes")),  # the auxiliary model by itself would go on reading them
        ("auto", -0.005, 4, ("", "classes")),  # the same in the replay of slices before the first task
    ],
)
def test_a_run_decides_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inputs: str, least_gain: float, first: int, read: tuple[str, str]
) -> None:
    monkeypatch.setattr("evergraph.learning.backtest._MIN_VERTICES", 300)
    monkeypatch.setattr("evergraph.learning.backtest._MIN_GAIN", least_gain)
    graph = neighbours_matter()
    graph.save(tmp_path / "g")
    settings = Configuration(
        GraphSAGE(hidden=8), AverageDetector(), history=2, steps=20, lr=0.02, first=first, inputs=inputs
    )
    result = run(settings, graph, [0])
    compared = compare([str(tmp_path / "g")], candidates("average,gdoc"), settings, out=tmp_path / "out")
    (there,) = compared.of("g", "average")
    for row, other in zip(result.rows[0], there.tasks, strict=True):
        assert (here := row.scores.as_dict()) == {name: other[name] for name in here}  # accuracy, AUROC, counts
    assert result.summary()["mcc"]["mean"] == there.metrics["mcc"]
    recorded = [open_recording(path.parent) for path in sorted((tmp_path / "out").rglob("seed-0/recording.json"))]
    assert [one.identity["configuration"]["detector"]["name"] for one in recorded] == ["gdoc", "none"]
    unread = {one: () if one else ("classes",) for one in read}
    last = [list(one.unread(backtest=first == 4))[-1] for one in recorded]
    assert last == [unread[read[1]], unread[read[0]]]


def test_trainings_are_shared_by_all_of_a_loss(compared: Comparison, out: Path) -> None:
    made = {path.parent.relative_to(out / "recordings").as_posix() for path in out.rglob("recording.json")}
    assert made == {f"{g}/{loss}/seed-{s}" for g in ("one", "two") for loss in ("none", "gdoc") for s in (0, 1)}
    trained = [compared.of("one", name)[0].metrics["seconds_training"] for name in ("gdoc:0.5", "gdoc:0.75")]
    assert trained[0] == trained[1]
    # Detectors that observe pay for the replay.
    plain, with_backtest = (compared.of("one", name)[0].metrics["seconds_training"] for name in ("none", "energy"))
    assert plain < with_backtest


# --- results on disk -------------------------------------------------------------------------------------------------


def lines_of(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]


def test_lines_are_added_to_and_replaced_but_never_lost(
    graphs: list[str], tmp_path: Path, caplog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    compare(graphs[:1], candidates("none"), SMALL, out=tmp_path)
    (first,) = lines_of(tmp_path)
    assert set(first["figures"]) == set(METRICS)
    assert first["configuration"]["detector"] == {"name": "none"}
    with (tmp_path / "results.jsonl").open("a") as file:
        file.write('{"graph": "half a li')
    monkeypatch.setattr("evergraph.evaluation.replay._train", None)  # no training is needed any more
    compare(graphs[:1], candidates("energy,none"), SMALL, out=tmp_path)
    kept = (tmp_path / "results.jsonl").read_text().splitlines()
    assert kept[1] == '{"graph": "half a li'
    assert [json.loads(line)["detector"] for line in (kept[0], kept[2])] == ["none", "energy"]
    assert "line 2: this is not a result of a comparison" in caplog.text


def test_a_line_of_a_version_without_inputs_is_one_of_words(graphs: list[str], tmp_path: Path) -> None:
    words = replace(SMALL, inputs="words")
    compare(graphs[:1], candidates("none"), words, out=tmp_path)
    (line,) = lines_of(tmp_path)
    del line["configuration"]["inputs"], line["configuration"]["label_latency"]
    (tmp_path / "results.jsonl").write_text(json.dumps(line) + "\n")
    compare(graphs[:1], candidates("none"), words, out=tmp_path)
    assert [one["configuration"]["inputs"] for one in lines_of(tmp_path)] == ["words"]


def test_an_interruption_loses_nothing_that_is_finished(
    graphs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(state: module.CompareState) -> None:
        if state.done == 1 and "task 2" in state.doing:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compare(graphs[:1], candidates("none,gdoc"), SMALL, out=tmp_path, on_done=stop)
    assert [line["detector"] for line in lines_of(tmp_path)] == ["none"]
    assert {path.parent.parent.name for path in tmp_path.rglob("recording.json")} == {"none"}
    made: list[str] = []
    monkeypatch.setattr("evergraph.evaluation.replay._report", lambda *told: made.append(str(told[1:])))
    states: list[module.CompareState] = []
    found = compare(graphs[:1], candidates("none,gdoc"), SMALL, out=tmp_path, on_done=states.append)
    assert len(found.outcomes) == 2
    assert len(made) == 3 * SMALL.steps  # three tasks, one training
    assert (states[0].done, states[-1].done, states[-1].total) == (0, 2, 2)


def test_what_fails_is_told_and_the_rest_goes_on(
    graphs: list[str], out: Path, compared: Comparison, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = module.record

    def failing(configuration: Configuration, *rest: Any, **more: Any) -> Any:
        if configuration.detector == GDOC():
            raise InputError("it is full", fix="make room")
        return before(configuration, *rest, **more)

    monkeypatch.setattr(module, "record", failing)
    found = compare(graphs, candidates(NAMES), SMALL, [0], out=out)
    assert {one.detector for one in found.outcomes} == {"none", "energy", "msp/fixed:-0.2"}
    assert found.errors[0] == "one, loss of gdoc, seed 0: it is full. Make room."
    assert found.over_graphs("gdoc:0.5") == {}
    names = [row[0].value for row in compared_table(found).rows if not isinstance(row, Section)]
    assert names == 3 * ["none", "energy", "msp/fixed:-0.2"]
    tasks_figure(found, "one")


def test_two_graphs_of_one_name_are_refused(graphs: list[str], tmp_path: Path) -> None:
    synthetic(vertices=240, seed=9, **SIZE).save(tmp_path / "one")
    with pytest.raises(InputError, match="two different graphs are named one"):
        compare([graphs[0], str(tmp_path / "one")], candidates("none"), SMALL, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def without_seconds(one: CandidateResult) -> dict[str, str]:
    """Return the exact metrics as texts, because NaN is not equal to itself."""
    return {name: repr(float(value)) for name, value in one.metrics.items() if "seconds" not in name}


def test_what_goes_between_processes_can_be_sent(compared: Comparison, graphs: list[str], out: Path) -> None:
    (none,) = candidates("none")
    job = module.Job(graphs[0], replace(SMALL, detector=none.trained_with), 1, (none,), out)
    workers = InProcess((1, 2))
    (found,) = pickle.loads(
        pickle.dumps(workers.submit(module._work, pickle.loads(pickle.dumps(job)), 0, None).result())
    )
    assert without_seconds(found) == without_seconds(compared.of("one", "none")[1])
    lost = replace(job, configuration=replace(job.configuration, first=99))
    assert "99" in pickle.loads(pickle.dumps(workers.submit(module._work, lost, 0, None).result()))


@pytest.mark.slow
def test_processes_come_to_the_same(compared: Comparison, graphs: list[str], tmp_path: Path) -> None:
    states: list[module.CompareState] = []
    chosen = candidates("none,gdoc:0.5")
    found = compare(graphs[:1], chosen, SMALL, [1], out=tmp_path, jobs=2, on_done=states.append)
    assert found.errors == ()
    for one in chosen:
        assert without_seconds(found.of("one", one.name)[0]) == without_seconds(compared.of("one", one.name)[1])
    assert [state.done for state in states] == [0, 1, 2]


# --- tables and figures ----------------------------------------------------------------------------------------------


def test_the_table_has_a_block_for_each_graph_and_their_mean(compared: Comparison, tmp_path: Path) -> None:
    table = compared_table(compared)
    assert [row.name for row in table.rows if isinstance(row, Section)] == ["one", "two", "mean over graphs"]
    files = write_comparison(compared, tmp_path)
    kinds = {"compared.md", "compared.tex", "compared.csv", "compared.json"}
    assert {path.name for path in files} == kinds | {
        f"tasks-{g}.{kind}" for g in ("one", "two") for kind in ("svg", "png")
    }
    rows = list(csv.DictReader((tmp_path / "compared.csv").read_text().splitlines()))
    assert [(row["section"], row["detector"]) for row in rows] == [
        (block, name) for block in ("one", "two", "mean over graphs") for name in NAMES.split(",")
    ]
    for row in rows[:5]:
        summary = compared.summary("one", row["detector"])
        assert float(row["MCC"]) == summary["mcc"]["mean"]
        assert float(row["MCC half"]) == summary["mcc"]["ci95"]
    for place, name, best in ((1, "MCC", max), (5, "FPR@95", min)):
        values = {row["detector"]: float(row[name]) for row in rows[:5]}
        bold = [row[0].value for row in table.rows[1:6] if not isinstance(row, Section) and row[place].bold]
        assert bold == [name for name, value in values.items() if value == best(values.values())]
    assert "evergraph compare one two --detectors none,gdoc:0.5" in (tmp_path / "compared.md").read_text()
    drawn = ET.parse(tmp_path / "tasks-one.svg").getroot()
    assert drawn.tag.endswith("svg")


def test_the_figure_shows_each_detector_task_by_task(compared: Comparison) -> None:
    above, below = tasks_figure(compared, "two").axes
    tasks = compared.by_task("two", "gdoc:0.75")
    lines = {str(line.get_label()): np.asarray(line.get_ydata(), float) for line in below.lines}
    assert set(lines) == {*NAMES.split(","), "truly unseen"}
    assert lines["gdoc:0.75"].tolist() == [task["flagged"]["mean"] for task in tasks]
    assert lines["truly unseen"].tolist() == [task["unseen"]["mean"] for task in tasks]
    drawn = next(np.asarray(line.get_ydata(), float) for line in above.lines if line.get_label() == "gdoc:0.75")
    wanted = [math.nan if task["mcc"]["mean"] is None else task["mcc"]["mean"] for task in tasks]
    np.testing.assert_array_equal(drawn, wanted)


# --- the command -----------------------------------------------------------------------------------------------------


def test_the_command_prints_json(command: Command, compared: Comparison, graphs: list[str], out: Path) -> None:
    code, text, err = command(
        "compare", *graphs, "--detectors", NAMES, "--seeds", "0-1", *OPTIONS, "--out", out, "--json"
    )
    assert code == 0
    assert "8 of 8 trainings done" in err
    found = json.loads(text)
    assert set(found) == {
        *("graphs", "detectors", "seeds", "configuration", "figures", "results", "mean_over_graphs", "errors"),
        *("evergraph", "numerics_version", "out", "files", "recommendation"),
    }
    assert (found["seeds"], found["errors"], list(found["detectors"])) == ([0, 1], [], NAMES.split(","))
    assert found["configuration"]["model"]["hidden"] == 4
    assert [(one["graph"], one["detector"]) for one in found["results"]] == [
        (graph, name) for graph in ("one", "two") for name in NAMES.split(",")
    ]
    for one in found["results"]:
        assert set(one) == {"graph", "detector", "tasks", *METRICS}
        assert [task["time"] for task in one["tasks"]] == [4, 5, 6]
        assert one["mcc"] == compared.summary(one["graph"], one["detector"])["mcc"]  # the same trainings
    assert [one["detector"] for one in found["mean_over_graphs"]] == NAMES.split(",")
    assert all(Path(path).is_file() for path in found["files"])
    assert json.loads((out / "compared.json").read_text())["results"] == found["results"]
    best = found["recommendation"]
    assert best["detector"] in found["detectors"]
    assert best["command"].startswith(f"evergraph run {graphs[0]} --hidden 4 --history 2 --steps 3 --lr 0.05 --first 4")


def test_the_command_prints_a_table(
    command: Command, compared: Comparison, graphs: list[str], out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert compared
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr("evergraph.report.comparison.save", lambda _, stem, __: [stem.with_suffix(".svg")])
    arguments = ("compare", graphs[0], "--detectors", "none,gdoc:0.5", *OPTIONS, "--out", out)
    code, text, err = command(*arguments)
    assert code == 0
    assert "Detection of unseen classes by detector" in text
    assert "mean over graphs" not in text
    assert all(word in text for word in ("gdoc:0.5", "Open-F1", "FPR@95", "Written to", "tasks-one.svg"))
    assert "2 of 2 trainings done" in err
    recommended = re.search("Recommended: --detector (.*?) ", text)
    assert recommended
    assert recommended[1] in ("none", "gdoc:0.5")
    following = text.splitlines()[-1].removeprefix("Next: evergraph ")
    assert command(*shlex.split(following), "--json")[0] == 0
    assert command(*arguments, "--quiet") == (0, "", "")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--detectors", "enrgy"), "there is no detector 'enrgy' (did you mean 'energy'?)"),
        (("--seeds", "x"), "--seeds is 'x'"),
        (("--history", "0"), "--history is '0'"),
        (("--first", "99"), "99"),
        (("--label-rate", "2"), "the label rate is 2.0"),
    ],
)
def test_bad_arguments_are_told_before_anything_is_written(
    command: Command, graphs: list[str], tmp_path: Path, arguments: Any, told: str
) -> None:
    code, text, err = command("compare", graphs[0], "--out", tmp_path / "out", *arguments)
    assert (code, text) == (2, "")
    assert told in err
    assert not (tmp_path / "out").exists()


def test_the_command_can_be_stopped(
    command: Command, graphs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("evergraph.evaluation.replay._train", stop)
    code, text, err = command("compare", graphs[0], *OPTIONS, "--out", tmp_path / "out")
    assert (code, text) == (130, "")
    assert "Run the same command again to continue" in err


def test_a_failure_is_an_exit_code(
    command: Command, graphs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise InputError("it is full", fix="make room")

    monkeypatch.setattr(module, "record", fail)
    code, text, err = command("compare", graphs[0], "--detectors", "none", *OPTIONS, "--out", tmp_path / "out")
    assert code == 1
    assert "There are no results." in text
    assert "it is full" in err
    assert "1 training failed." in err
    code, text, _ = command("compare", graphs[0], "--detectors", "none", *OPTIONS, "--out", tmp_path / "out", "--json")
    found = json.loads(text)
    assert (code, found["error"]["code"], len(found["errors"])) == (1, 1, 1)
    assert found["error"]["problem"] == "1 training failed"
