"""The report on a workspace agrees with the workspace."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from evergraph import EvolvingGraph, Workspace
from evergraph.datasets import synthetic
from evergraph.datasets.tables import to_tables
from evergraph.detect import GDOC
from evergraph.names import inputs_in_words
from evergraph.nn import MLP
from evergraph.report.content import Missing
from evergraph.report.page import page_of
from evergraph.report.workspace import workspace_content

GRAPH = synthetic(vertices=400, times=6, classes=3, new_classes=1, seed=4)
FIRST = 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with two slices, the second without labels."""
    path = tmp_path_factory.mktemp("report") / "ws"
    past = EvolvingGraph.build(*to_tables(GRAPH, last=FIRST - 1))
    workspace = Workspace.create(path, past, model=MLP(hidden=4), detector=GDOC(0.6), history=2, steps=20)
    workspace.add(*to_tables(GRAPH, FIRST, FIRST, labels=False))
    workspace.predict()
    labels = to_tables(GRAPH, FIRST, FIRST)[0]
    workspace.label(labels.column("id").to_pylist(), labels.column("label").to_pylist())
    workspace.update("warm")
    workspace.add(*to_tables(GRAPH, FIRST + 1, FIRST + 1, labels=False))
    workspace.predict()
    return path


def test_headlines_and_slices_are_those_of_the_scores(folder: Path) -> None:
    content, scores = workspace_content(folder), Workspace(folder).scores()
    told = {one.name: one.value for one in content.headlines}
    assert told["Decisions"] == sum(one.decided for one in scores)
    assert told["Labels"] == scores[0].labelled
    assert told["Accuracy"] == pytest.approx(scores[0].accuracy)
    assert told["Accuracy, known classes"] == pytest.approx(scores[0].id_accuracy)
    assert told["Truly unseen"] == pytest.approx(scores[0].unseen)
    assert told["Flagged"] == pytest.approx(
        np.average([s.flagged for s in scores], weights=[s.decided for s in scores])
    )
    assert not isinstance(content.slices, Missing)
    first, second = content.slices.rows
    assert (first.time, first.version, first.labelled) == ("3", "1", scores[0].labelled)
    assert first.accuracy is not None
    assert first.accuracy.mean == pytest.approx(scores[0].accuracy)
    assert first.accuracy.low < first.accuracy.mean < first.accuracy.high
    assert (second.version, second.labelled, second.accuracy, second.unseen) == ("2", 0, None, None)
    assert content.notes[0].startswith(f"Next: evergraph ws {Workspace(folder).status().next_command} {folder}")


def test_confusion_counts_each_labelled_vertex_once(folder: Path) -> None:
    content, scores = workspace_content(folder), Workspace(folder).scores()
    assert sum(map(sum, content.confusion.counts)) == scores[0].labelled
    diagonal = sum(
        content.confusion.counts[row][row] for row, name in enumerate(content.confusion.names) if name != "unseen"
    )
    rejected = sum(row[content.confusion.names.index("unseen")] for row in content.confusion.counts)
    assert diagonal <= round(scores[0].accuracy * scores[0].labelled) <= diagonal + rejected
    assert sum(one.count for one in content.calibration.bins) == scores[0].labelled


def test_thresholds_are_those_of_the_current_detector(folder: Path, tmp_path: Path) -> None:
    """Scores of another detector are on another scale."""
    workspace = Workspace(shutil.copytree(folder, tmp_path / "ws"))

    def are_of(*models: int) -> bool:
        curve = workspace_content(tmp_path / "ws").threshold
        decided = [row for rows in workspace.scored_decisions().values() for row in rows.values()]
        scores = np.array([row["score"] for row in decided if row["model"] in models])
        assert not isinstance(curve, Missing)
        return curve.thresholds == tuple(np.unique(np.quantile(scores, np.arange(101) / 100)).tolist())

    workspace.set(detector="energy")
    workspace.update()
    without = workspace_content(tmp_path / "ws")
    assert isinstance(without.threshold, Missing)
    assert "was changed" in without.threshold.reason
    assert not isinstance(without.confusion, Missing)
    workspace.add(*to_tables(GRAPH, FIRST + 2, FIRST + 2, labels=False))
    workspace.predict()
    for time in (FIRST + 1, FIRST + 2):
        labels = to_tables(GRAPH, time, time)[0]
        workspace.label(labels.column("id").to_pylist(), labels.column("label").to_pylist())
    assert are_of(3)
    assert not are_of(2, 3)
    workspace.update("warm")
    assert are_of(3, 4)
    workspace.rollback(8, model_only=True)  # to gDOC
    curve = workspace_content(tmp_path / "ws").threshold
    assert not isinstance(curve, Missing)
    assert curve.in_force == 0.6


def test_the_vertices_to_review_are_those_of_the_workspace(folder: Path) -> None:
    content, rows = workspace_content(folder), Workspace(folder).review(20)
    assert rows
    assert [one.id for one in content.review.rows] == [str(row.id) for row in rows]
    assert content.review.rows[0].neighbours == rows[0].neighbours


def test_unseen_classes_are_those_that_the_labels_have_and_the_model_had_not(folder: Path, tmp_path: Path) -> None:
    assert workspace_content(folder).slices.rows[0].unseen_classes == 0
    assert workspace_content(folder).slices.rows[0].unseen == 0
    shutil.copytree(folder, tmp_path / "ws")
    ids = GRAPH.window(FIRST, FIRST).ids.tolist()
    Workspace(tmp_path / "ws").label(ids[:4], ["one", "other", "one", "class 00"])
    first, second = workspace_content(tmp_path / "ws").slices.rows
    assert (first.unseen_classes, first.unseen) == (2, pytest.approx(3 / len(ids)))
    assert second.unseen_classes is None  # it has no labels


def test_the_groups_to_review_are_those_of_the_workspace(folder: Path) -> None:
    content, workspace = workspace_content(folder), Workspace(folder)
    groups, best = workspace.groups(), {row.id: row.best for row in workspace.review(None)}
    assert groups
    assert [(one.number, one.size, one.words) for one in content.groups.rows] == [
        (group.number, group.size, group.terms) for group in groups
    ]
    for group, shown in zip(groups, content.groups.rows, strict=True):
        names = [best[id] for id in group.members]
        assert group.nearest[0][1] == max(map(names.count, names))
        assert dict(group.nearest) == {name: names.count(name) for name, _ in group.nearest}
        assert shown.examples == tuple((str(id), what) for id, what in group.examples)
        assert group.as_dict()["nearest"] == [{"class": name, "count": count} for name, count in group.nearest]
    page = page_of(content)
    assert f"evergraph ws classes create {folder} NAME --group 1\n" in page
    assert f"evergraph ws label {folder} --labels review.csv" in page
    assert 'href="#groups"' in page
    assert 'href="#groups"' not in page_of(replace(content, groups=None))


def test_the_page_says_of_which_vertices_its_shares_are(folder: Path) -> None:
    content = workspace_content(folder)
    page = page_of(content)
    assert "except “flagged”, which refers to all decided vertices" in page
    assert "Share of all decided vertices that the detector flagged as unseen" in page
    assert "Settings, models and the last commands." in page
    assert "The closer the lines, the better" not in page
    assert "to repeat this run" not in page
    # What counts is whether labels are missing, not where the decisions are from.
    for kind in ("run", "workspace"):
        complete = replace(content.slices, rows=content.slices.rows[:1])
        whole = page_of(replace(content, kind=kind, slices=complete))
        assert "The closer the lines, the better" in whole
        assert "all decided vertices" not in whole
        assert "Share of all decided vertices" in page_of(replace(content, kind=kind))


def test_a_fresh_workspace_says_what_is_missing(tmp_path: Path) -> None:
    past = EvolvingGraph.build(*to_tables(GRAPH, last=FIRST - 1))
    workspace = Workspace.create(tmp_path / "ws", past, model=MLP(hidden=2), history=1, steps=1)
    content = workspace_content(tmp_path / "ws")
    for part in (content.slices, content.confusion, content.calibration, content.threshold):
        assert (
            f"evergraph ws add {tmp_path / 'ws'} --vertices FILE --edges FILE, then evergraph ws predict" in part.reason
        )
    workspace.add(*to_tables(GRAPH, FIRST, FIRST, labels=False))
    reason = workspace_content(tmp_path / "ws").slices.reason
    assert reason.endswith(f"To get this part: evergraph ws predict {tmp_path / 'ws'}.")
    workspace.predict()
    content = workspace_content(tmp_path / "ws")
    assert "evergraph ws label" in content.confusion.reason
    page = page_of(content)
    assert page.count(f"To add labels: evergraph ws label {tmp_path / 'ws'} <span>--labels</span> FILE.") == 4
    assert 'id="accuracy-chart"' not in page
    assert 'id="unseen-chart"' in page


def test_the_command_writes_the_page(folder: Path, tmp_path: Path, command) -> None:
    code, out, _ = command("report", str(folder), "--out", str(tmp_path / "page.html"), "--json")
    assert code == 0
    assert json.loads(out)["bytes"] == (tmp_path / "page.html").stat().st_size
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == page_of(workspace_content(folder))
    code, _, error = command("report", str(folder), "--against", str(folder))
    assert code == 2
    assert "--against compares two runs, but this is a workspace" in error


def test_the_report_has_the_inputs_and_the_reasons_for_decisions(folder: Path) -> None:
    content, workspace = workspace_content(folder), Workspace(folder)
    vocabulary = workspace.learner().vocabulary_
    assert vocabulary is not None
    read = inputs_in_words(vocabulary.sizes(workspace.graph))
    assert dict(content.details)["settings.inputs"] == f"auto: {read}"
    rows = workspace.review(20, why=True)
    assert not isinstance(content.review, Missing)
    assert [row.because for row in content.review.rows] == [tuple(one.in_words for one in row.because) for row in rows]
    assert any(row.because for row in rows)
    assert "because of" in page_of(content)


class _Own(MLP):
    """A model that no file can contain."""


def test_a_workspace_with_a_model_of_your_own_has_a_report_without_reasons(tmp_path: Path) -> None:
    past = EvolvingGraph.build(*to_tables(GRAPH, last=FIRST - 1))
    workspace = Workspace.create(tmp_path / "ws", past, model=_Own(hidden=4), detector=GDOC(0.99), history=2, steps=2)
    workspace.add(*to_tables(GRAPH, FIRST, FIRST, labels=False))
    workspace.predict()
    assert workspace.review(1, why=True)[0].because
    content = workspace_content(tmp_path / "ws")
    assert not isinstance(content.review, Missing)
    assert {row.because for row in content.review.rows} == {None}
