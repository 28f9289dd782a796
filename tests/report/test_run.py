"""The report on a run, against other ways to compute its content; and the command."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfTransformer

from evergraph.analysis import GraphDescription, drift, tdiff
from evergraph.analysis.description import DifferenceSummary
from evergraph.datasets import synthetic
from evergraph.detect import DOC, GDOC
from evergraph.errors import EvergraphError, InputError
from evergraph.evaluation.configuration import Configuration
from evergraph.evaluation.metrics import Confusion, forward_transfer
from evergraph.evaluation.results import TaskRow, inputs_read
from evergraph.evaluation.run import Run, run
from evergraph.evaluation.run_folder import RunFolder, read_decisions
from evergraph.graph.evolving import EvolvingGraph
from evergraph.learning.learner import LifelongLearner
from evergraph.learning.task import history_sizes, tasks
from evergraph.nn import GAT, GraphSAGE
from evergraph.report.content import (
    Calibration,
    ConfusionTable,
    Missing,
    Review,
    Slices,
    ThresholdCurve,
    Transfer,
)
from evergraph.report.page import page_of, write_page
from evergraph.report.run import command_of, run_content

GRAPH = synthetic(vertices=400, times=6, classes=4, new_classes=1, seed=1)
SMALL = Configuration(GraphSAGE(hidden=8), GDOC(0.9), history=1, steps=25, lr=0.05, first=3)
SEEDS = [0, 1]
DECIDED = ("confusion", "calibration", "threshold", "review")

Part = TypeVar("Part")

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Run]:
    """The folder of a run, and its result."""
    folder = tmp_path_factory.mktemp("runs") / "warm"
    return folder, run(SMALL, GRAPH, SEEDS, out=folder, name="graphs/mine")


@pytest.fixture(scope="module")
def cold(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Run]:
    folder = tmp_path_factory.mktemp("runs") / "cold"
    return folder, run(dataclasses.replace(SMALL, restart="cold"), GRAPH, SEEDS, out=folder)


@pytest.fixture
def copied(made: tuple[Path, Run], tmp_path: Path) -> Path:
    """A folder to be damaged."""
    return Path(shutil.copytree(made[0], tmp_path / "run"))


def is_a(part: object, kind: type[Part]) -> Part:
    assert isinstance(part, kind), part
    return part


# --- what a run keeps ------------------------------------------------------------------------------------------------


def test_a_run_keeps_its_decisions(made: tuple[Path, Run]) -> None:
    folder, _ = made
    files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.parquet"))
    assert files == [f"decisions/seed-{seed}/{time}.parquet" for seed in SEEDS for time in (3, 4, 5)]
    learner = LifelongLearner(GraphSAGE(hidden=8), GDOC(0.9), steps=25, lr=0.05, seed=1)
    said, hidden, columns = 0, 0, list(GRAPH.features.words.columns)  # type: ignore[union-attr]
    for task in tasks(GRAPH, 1, first=3):
        decisions = learner.adapt(task).predict(task)
        path = folder / "decisions" / "seed-1" / f"{task.time}.parquet"
        found = read_decisions(path.read_bytes(), path)
        assert found.ids == list(decisions.ids)
        for name in ("best", "flagged", "score", "probability"):
            assert (getattr(found, name) == getattr(decisions, name)).all(), name
        assert found.truth.tolist() == task.truth.tolist()
        assert found.unseen.tolist() == [name not in learner.classes_ for name in task.truth]
        before = {GRAPH.labels[row] for row in range(len(GRAPH)) if GRAPH.times[row] < task.time}
        assert found.never_before.tolist() == [name not in before for name in task.truth]
        described = [row for row, words in enumerate(found.words) if words is not None]
        rejected = np.flatnonzero(found.flagged)
        assert sorted(described) == sorted(rejected[np.argsort(-found.score[rejected], kind="stable")][:25])
        start = int(np.searchsorted(GRAPH.times, task.time))
        adjacency = GRAPH.adjacency.toarray()
        for row in described:
            near = [at for at in np.flatnonzero(adjacency[start + row]) if GRAPH.times[at] == task.time - 1]
            classes = [GRAPH.labels[at] for at in near]
            counts = {name: classes.count(name) for name in classes}
            # Vertices of the same period have labels in the graph, but these were not released yet.
            beside = sum(GRAPH.times[at] == task.time for at in np.flatnonzero(adjacency[start + row]))
            told = found.neighbours[row] or ()
            assert dict(told) == counts | ({"no label": beside} if beside else {})
            hidden += beside
            in_order = sorted(counts, key=lambda name: (-counts[name], name))
            assert [name for name, _ in told] == [*in_order, *(["no label"] if beside else [])]
        said += len(described)
        known = GRAPH.up_to(task.time).inputs("counts").toarray()  # type: ignore[union-attr]
        weights = TfidfTransformer().fit(known).transform(known).toarray()
        for row in described:
            ours = [columns.index(word) for word in found.words[row] or ()]
            assert len(ours) == min(8, np.count_nonzero(known[start + row]))
            assert weights[start + row, ours] == pytest.approx(-np.sort(-weights[start + row])[: len(ours)])
    assert said > 10
    assert hidden > 0


def test_labels_that_are_not_there_are_null(tmp_path: Path) -> None:
    ids = GRAPH.ids[-20:]
    graph = GRAPH.relabel(list(ids), [None] * 20)
    run(SMALL, graph, [0], out=tmp_path / "r")
    path = tmp_path / "r" / "decisions" / "seed-0" / "5.parquet"
    found = read_decisions(path.read_bytes(), path)
    assert int((~found.labelled).sum()) == 20
    assert not found.unseen[~found.labelled].any()
    slices = is_a(run_content(tmp_path / "r").slices, Slices)
    assert slices.rows[-1].vertices - slices.rows[-1].labelled == 20


def test_what_is_flagged_in_a_slice_without_labels_is_shown(tmp_path: Path, command) -> None:
    ids = GRAPH.window(5, 5).ids
    graph = GRAPH.relabel(list(ids), [None] * len(ids))
    result = run(SMALL, graph, SEEDS, out=tmp_path / "r")
    shares = []
    for seed in SEEDS:
        path = tmp_path / "r" / "decisions" / f"seed-{seed}" / "5.parquet"
        shares.append(read_decisions(path.read_bytes(), path).flagged.mean())
    last = is_a(run_content(tmp_path / "r").slices, Slices).rows[-1]
    assert last.flagged is not None
    assert last.flagged.mean == pytest.approx(np.mean(shares))
    assert (last.labelled, last.unseen, last.unseen_classes, last.accuracy) == (0, None, None, None)
    assert result.tasks()[-1]["rejected"] == pytest.approx(np.mean(shares))
    graph.save(tmp_path / "g")
    table = command("run", str(tmp_path / "g"), "--steps", "1", "--history", "1", "--first", "5")[1]
    row = next(line.split() for line in table.splitlines() if line.strip().startswith("5 "))
    assert re.fullmatch(r"[0-9.]+%", row[6])
    assert row[7:9] == ["-", "-"]


def test_unseen_classes_are_counted_where_there_are_unseen_vertices(made: tuple[Path, Run]) -> None:
    folder, result = made
    rows = is_a(run_content(folder).slices, Slices).rows
    assert sum(row.unseen_classes for row in rows) > 0
    for row, task in zip(rows, result.tasks(), strict=True):
        assert (row.unseen_classes > 0) == (task["unseen"] > 0) == (row.unseen > 0)
        known = {GRAPH.labels[at] for at in range(len(GRAPH)) if 2 <= GRAPH.times[at] < task["time"]}
        labels = set(GRAPH.window(task["time"], task["time"]).labels.tolist())
        assert row.unseen_classes == len(labels - known)


def test_replace_clears_what_was_kept_and_more_seeds_add_to_it(copied: Path) -> None:
    (copied / "decisions" / "seed-7").mkdir()
    run(dataclasses.replace(SMALL, steps=1), GRAPH, [4], out=copied, replace=True)
    assert [path.name for path in (copied / "decisions").iterdir()] == ["seed-4"]
    assert json.loads((copied / "graph.json").read_text())["name"] == ""
    run(dataclasses.replace(SMALL, steps=1), GRAPH, [5], out=copied)
    assert {path.name for path in (copied / "decisions").iterdir()} == {"seed-4", "seed-5"}


@pytest.mark.parametrize("method", ["append", "store_decisions"])
def test_a_run_that_is_stopped_has_the_same_decisions_in_the_end(
    made: tuple[Path, Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """Before the row of a task is there, and before its decisions are."""
    real, calls = getattr(RunFolder, method), iter(range(100))

    def stop(self: RunFolder, *args: Any, **options: Any) -> None:
        if next(calls) == 1:
            raise KeyboardInterrupt
        real(self, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, method, stop)
        with pytest.raises(KeyboardInterrupt):
            run(SMALL, GRAPH, SEEDS, out=tmp_path)
    assert (tmp_path / "decisions" / "seed-0" / "4.parquet").exists() == (method == "append")
    run(SMALL, GRAPH, SEEDS, out=tmp_path, name="graphs/mine")
    for path in made[0].rglob("*.parquet"):
        again = tmp_path / path.relative_to(made[0])
        assert repr(vars(read_decisions(again.read_bytes()))) == repr(vars(read_decisions(path.read_bytes())))


# --- the content of a run ----------------------------------------------------------------------------------------------


def test_headlines_and_slices_are_those_of_the_run(made: tuple[Path, Run]) -> None:
    folder, result = made
    content = run_content(folder)
    summary, means = result.summary(), result.tasks()
    assert content.title == "mine"
    for headline, name in zip(
        content.headlines, ("accuracy", "id_accuracy", "mcc", "open_f1", "auroc", "seconds"), strict=True
    ):
        assert headline.value == pytest.approx(summary[name]["mean"])
        assert headline.half == pytest.approx(summary[name]["ci95"])
    slices = is_a(content.slices, Slices)
    moved = drift(GRAPH)
    assert [row.time for row in slices.rows] == ["3", "4", "5"]
    for row, task, rows in zip(slices.rows, means, zip(*result.rows.values(), strict=True), strict=True):
        assert row.vertices == task["test_vertices"]
        assert row.accuracy is not None
        assert row.accuracy.mean == pytest.approx(task["accuracy"])
        assert row.flagged is not None
        assert row.flagged.mean == pytest.approx(task["rejected"])
        assert row.unseen == pytest.approx(task["unseen"] / task["vertices"])
        assert row.open_f1 == pytest.approx(task["open_f1"])
        assert row.mcc == (pytest.approx(task["mcc"]) if task["unseen"] else None)
        assert row.drift == moved.consecutive[moved.times.tolist().index(int(row.time))]
        values = np.array([one.scores.accuracy for one in rows])
        half = 12.706204736 * values.std(ddof=1) / math.sqrt(2)
        assert row.accuracy.low == pytest.approx(max(0, values.mean() - half))
        assert row.accuracy.high == pytest.approx(min(1, values.mean() + half))


def test_parts_of_the_decisions_agree_with_the_scores(made: tuple[Path, Run]) -> None:
    folder, result = made
    content = run_content(folder)
    scores = [row.scores for rows in result.rows.values() for row in rows]
    assert all(0.05 < one.rejected < 0.95 for one in scores), "else there is little to compare"
    confusion = np.array(is_a(content.confusion, ConfusionTable).counts)
    assert confusion.sum() == sum(one.vertices for one in scores)
    assert confusion[-1, -1] == sum(one.confusion.tp for one in scores)
    assert confusion[:-1, -1].sum() == sum(one.confusion.fp for one in scores)
    curve = is_a(content.threshold, ThresholdCurve)
    assert curve.in_force == 0.9
    at = curve.thresholds.index(0.9)
    total = sum((one.confusion for one in scores), type(scores[0].confusion)())
    assert curve.mcc[at] == pytest.approx(total.mcc)
    assert curve.false_alarms[at] == pytest.approx(total.false_alarm_rate)
    calibration = is_a(content.calibration, Calibration)
    hits = sum(round(one.accuracy * one.count) for one in calibration.bins)
    assert hits == sum(round(one.accuracy * one.vertices) for one in scores)
    review = is_a(content.review, Review)
    last = read_decisions((folder / "decisions" / "seed-0" / "5.parquet").read_bytes())
    assert [row.score for row in review.rows] == sorted(last.score[last.flagged].tolist(), reverse=True)[:25]
    assert f"{int(last.flagged.sum())} of {len(last)} vertices of 5 are flagged as unseen with seed 0." in review.which


def test_parts_of_the_graph_are_those_of_the_graph(made: tuple[Path, Run]) -> None:
    content = run_content(made[0])
    moved, found = drift(GRAPH), is_a(content.graph, GraphDescription)
    assert [one.time for one in found.drift] == moved.times.tolist()
    assert found.first_task == 3
    assert [one.consecutive for one in found.drift][1:] == moved.consecutive.tolist()[1:]
    assert [one.cumulative for one in found.drift][1:] == moved.cumulative.tolist()[1:]
    for one in found.classes:
        times = [time for time, name in zip(GRAPH.times.tolist(), GRAPH.labels, strict=True) if name == one.name]
        assert one.times == sorted(set(times))
        assert one.counts == [times.count(time) for time in one.times]
    differences = is_a(found.past_differences, DifferenceSummary)
    assert differences.counts == tdiff(GRAPH.up_to(2), 2).counts.tolist()
    assert {int(level): size for level, size in differences.history_sizes.items()} == history_sizes(GRAPH, 3)
    assert content.history == 1


def test_forward_transfer(made: tuple[Path, Run], cold: tuple[Path, Run]) -> None:
    transfer = is_a(run_content(made[0], cold[0]).transfer, Transfer)
    warm, fresh = (
        [[row.scores.accuracy for row in rows] for rows in result.rows.values()] for _, result in (made, cold)
    )
    assert transfer.value == pytest.approx(forward_transfer(warm, fresh))
    assert list(transfer.gains) == pytest.approx((np.mean(warm, 0) - np.mean(fresh, 0)).tolist())
    per_seed = [forward_transfer([one], [other]) for one, other in zip(warm, fresh, strict=True)]
    assert transfer.half == pytest.approx(12.706204736 * abs(per_seed[0] - per_seed[1]) / 2)
    assert transfer.against == "Compared with the run cold: restart is cold there and warm here."
    assert "--restart cold" in is_a(run_content(made[0]).transfer, Missing).reason


def test_the_command_does_the_same_again(made: tuple[Path, Run], command: Any, tmp_path: Path) -> None:
    GRAPH.save(tmp_path / "g")
    told = command_of(made[1].configuration, str(tmp_path / "g"), SEEDS)
    assert told is not None
    code, out, _ = command(*told.split()[1:], "--json")
    assert code == 0
    assert json.loads(out)["configuration"] == made[1].configuration
    assert json.loads(out)["accuracy"] == made[1].summary()["accuracy"]
    described = Configuration(GAT()).described(GRAPH.axis)
    assert command_of(described, "g", [0]) is None  # its heads have no option


def test_a_report_of_the_default_detector(tmp_path: Path, command: Any) -> None:
    GRAPH.save(tmp_path / "g")
    default = Configuration(GraphSAGE(hidden=8), history=1, steps=25, lr=0.05, first=3)
    result = run(default, GRAPH, [0], out=tmp_path / "r", name=str(tmp_path / "g"))
    content = run_content(tmp_path / "r")
    assert "detector auto" in content.summary
    told = dict(content.details)["command"]
    assert "--detector auto --objective mcc" in told
    code, out, _ = command(*told.split()[1:], "--json")
    assert code == 0
    assert json.loads(out)["configuration"] == result.configuration
    assert json.loads(out)["mcc"] == result.summary()["mcc"]
    # The MCC of the threshold in use is that of the flags.
    curve = is_a(content.threshold, ThresholdCurve)
    assert curve.in_force is not None
    counts = sum((row.scores.confusion for row in result.rows[0]), Confusion())
    assert counts.tp
    assert curve.mcc[curve.thresholds.index(curve.in_force)] == pytest.approx(counts.mcc)
    # Another version of the detector, or another prior, would flag by other rules.
    described = default.described(GRAPH.axis)
    for other in ({"version": 3}, {"prior": "Prior"}):
        assert command_of(described | {"detector": described["detector"] | other}, "g", [0]) is None


def test_a_detector_with_a_threshold_for_each_class(tmp_path: Path) -> None:
    result = run(dataclasses.replace(SMALL, detector=DOC(0.4, alpha=3.0)), GRAPH, [0], out=tmp_path)
    curve = is_a(run_content(tmp_path).threshold, ThresholdCurve)
    assert "higher score" in curve.axis
    total = sum((row.scores.confusion for row in result.rows[0]), type(result.rows[0][0].scores.confusion)())
    assert curve.mcc[curve.thresholds.index(0.0)] == pytest.approx(total.mcc)


# --- what is missing or wrong ----------------------------------------------------------------------------------------


def test_a_run_of_an_earlier_version_says_what_is_missing(copied: Path) -> None:
    shutil.rmtree(copied / "decisions")
    (copied / "graph.json").unlink()
    content = run_content(copied)
    assert content.title == "run"
    for name in (*DECIDED, "graph"):
        assert "--replace" in is_a(getattr(content, name), Missing).reason, name
    assert isinstance(content.slices, Slices)
    assert (
        page_of(content).count('class="missing"') == len(DECIDED) + 3 + 1
    )  # three parts of the graph, and forward transfer


def test_decisions_that_are_missing_in_part_are_not_told_in_part(copied: Path) -> None:
    (copied / "decisions" / "seed-1" / "4.parquet").unlink()
    content = run_content(copied)
    assert "The decisions of 1 of 6 tasks are missing" in is_a(content.confusion, Missing).reason
    assert isinstance(content.graph, GraphDescription)


def test_an_unfinished_run_is_told_as_far_as_it_is(copied: Path) -> None:
    lines = (copied / "results.jsonl").read_text().splitlines(keepends=True)
    (copied / "results.jsonl").write_text("".join(lines[:5]) + lines[5][:40])
    kept = (copied / "results.jsonl").read_bytes()
    content = run_content(copied)
    assert content.notes == ("Left out because of fewer finished tasks: seed 1.",)
    assert (copied / "results.jsonl").read_bytes() == kept
    (copied / "results.jsonl").write_text("".join(lines[:2]))
    content = run_content(copied)
    assert content.notes == ("The run is not finished: 2 of 3 tasks are done.",)
    assert all(headline.half is None for headline in content.headlines)
    assert "Wilson" in is_a(content.slices, Slices).intervals
    page_of(content)


def test_runs_without_labels_edges_or_rejections(tmp_path: Path) -> None:
    rows = range(60)
    graph = EvolvingGraph.build(
        {
            "id": list(rows),
            "time": [1 + row // 20 for row in rows],
            "label": ["xy"[row % 2] if row < 40 else None for row in rows],
            "text": ["xy"[row % 2] + " words" for row in rows],
        }
    )
    run(Configuration(history=1, steps=1, first=3, detector=DOC(0.0)), graph, [0], out=tmp_path)
    content = run_content(tmp_path)
    for part in (content.confusion, content.calibration, content.threshold, content.review):
        assert isinstance(part, Missing)
    assert is_a(content.graph, GraphDescription).past_differences is None
    assert is_a(content.slices, Slices).rows[0].accuracy is None
    assert content.headlines[0].value is None
    page_of(content)


def nothing(folder: Path) -> None:
    shutil.rmtree(folder)


def a_file(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_text("")


def no_run(folder: Path) -> None:
    (folder / "run.json").unlink()


def no_rows(folder: Path) -> None:
    (folder / "results.jsonl").unlink()


def spoilt(name: str, text: str) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        (folder / name).write_text(text)

    return spoil


def other_decisions(folder: Path) -> None:
    shutil.copy(folder / "decisions" / "seed-0" / "3.parquet", folder / "decisions" / "seed-0" / "5.parquet")


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (nothing, "this folder does not exist"),
        (a_file, "this is a file, not a folder"),
        (no_run, "not the folder of a run"),
        (no_rows, "no task of the run is finished yet"),
        (spoilt("results.jsonl", "nonsense\n"), "results.jsonl, line 1: this is not a row of a run"),
        (spoilt("run.json", "{}"), "not the file of a run"),
        (spoilt("run.json", '{"format": "evergraph run", "format_version": 9}'), "format version 9"),
        (spoilt("graph.json", "[]"), "not the description of a graph"),
        (spoilt("graph.json", '{"tasks": [3, 4, 5]}'), "not the description of a graph"),
        (spoilt("decisions/seed-0/4.parquet", "PAR1"), "not a file of decisions, or it is damaged"),
        (other_decisions, "do not match the results"),
    ],
)
def test_bad_input_is_told_and_nothing_is_written(
    copied: Path, tmp_path: Path, command: Any, damage: Callable[[Path], None], told: str
) -> None:
    damage(copied)
    out = tmp_path / "page.html"
    code, text, err = command("report", copied, "--out", out)
    assert (code, text) == (2, "")
    assert told in err
    assert re.search(r"\. [A-Z].*\.$", err.strip())
    assert not out.exists()


def test_a_run_that_cannot_be_compared_is_refused(made: tuple[Path, Run], tmp_path: Path) -> None:
    run(SMALL, GRAPH.relabel([GRAPH.ids[0]], ["other"]), [0], out=tmp_path / "graph")
    run(dataclasses.replace(SMALL, first=4), GRAPH, [0], out=tmp_path / "tasks")
    with pytest.raises(InputError, match="another graph"):
        run_content(made[0], tmp_path / "graph")
    with pytest.raises(InputError, match="other tasks"):
        run_content(made[0], tmp_path / "tasks")


# --- the command -----------------------------------------------------------------------------------------------------


def test_the_command_writes_a_page(
    made: tuple[Path, Run], cold: tuple[Path, Run], tmp_path: Path, command: Any
) -> None:
    out = tmp_path / "new" / "page.html"
    code, text, err = command("report", made[0], "--against", cold[0], "--out", out, "--json")
    assert (code, err) == (0, "")
    assert json.loads(text) == {"out": str(out), "bytes": out.stat().st_size}
    assert out.read_text(encoding="utf-8") == page_of(run_content(made[0], cold[0]))
    assert [path.name for path in out.parent.iterdir()] == ["page.html"]
    code, text, _ = command("report", made[0], "--out", out)
    assert (code, text) == (0, f"Written to {out} ({out.stat().st_size / 1e6:.1f} MB)\n")
    assert command("report", made[0], "--out", out, "--quiet") == (0, "", "")


def test_where_a_page_cannot_be_written(made: tuple[Path, Run], tmp_path: Path, command: Any) -> None:
    code, _, err = command("report", made[0], "--out", tmp_path)
    assert code == 2
    assert "this is a folder, not a file" in err
    for name in ("precious.csv", "precious", "html"):
        (tmp_path / name).write_text("mine")
        code, _, err = command("report", made[0], "--out", tmp_path / name)
        assert code == 2
        assert "Give a name that ends in .html or .htm" in err
        assert (tmp_path / name).read_text() == "mine"
    assert command("report", made[0], "--out", tmp_path / "page.HTM", "--quiet")[0] == 0
    (tmp_path / "file").write_text("")
    with pytest.raises(EvergraphError, match="could not be written"):
        write_page("page", tmp_path / "file" / "page.html")


def test_the_default_is_report_html(
    made: tuple[Path, Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    assert command("report", made[0], "--quiet")[0] == 0
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    assert command("report", made[0], "--quiet", "--out", "deep/er.html")[0] == 0
    row = TaskRow.from_dict(json.loads((made[0] / "results.jsonl").read_text().splitlines()[0]))
    assert f"{row.test_vertices}" in page_of(run_content(made[0]))


# --- inputs ------------------------------------------------------------------------------------------------------------


def test_a_report_has_the_inputs_and_the_reasons_for_decisions(made: tuple[Path, Run]) -> None:
    folder, result = made
    assert result.as_dict()["inputs"] == {str(seed): result.inputs[seed] for seed in SEEDS}
    content = run_content(folder)
    read = inputs_read(result.rows)
    assert dict(content.details)["inputs"] == f"auto: {read}"
    assert f"words ({result.inputs[0]['words']:,})" in read
    rows = is_a(content.review, Review).rows
    assert rows
    for row in rows:
        assert row.because
        assert all(re.fullmatch(r".+ \((word|class of older neighbours)\)", one) for one in row.because)
    earlier = folder / "decisions" / "seed-0" / "4.parquet"
    assert set(read_decisions(earlier.read_bytes()).because) == {None}  # only the last task is shown


def test_rows_of_an_earlier_evergraph_have_no_inputs(made: tuple[Path, Run], tmp_path: Path) -> None:
    folder = shutil.copytree(made[0], tmp_path / "run")
    lines = [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]
    without = [{name: value for name, value in line.items() if name != "inputs"} for line in lines]
    (folder / "results.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in without))
    assert dict(run_content(folder).details)["inputs"] == "auto"
    lines[-1]["inputs"] = {"words": "many"}
    (folder / "results.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    with pytest.raises(InputError, match="inputs is"):
        run_content(folder)
