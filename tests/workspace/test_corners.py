"""Corners of the production loop: slices half labelled, labels too late, vertices that come again, old dates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evergraph import EvolvingGraph, InputError
from evergraph.datasets import synthetic
from evergraph.datasets.tables import Columns, to_tables
from evergraph.detect import DOC
from evergraph.learning.learner import LifelongLearner
from evergraph.nn import MLP
from evergraph.workspace import Workspace
from evergraph.workspace.update import next_task

pytestmark = pytest.mark.usefixtures("one_thread")

GRAPH = synthetic(vertices=480, times=8, classes=4, new_classes=2, words=120, words_per_vertex=5, seed=2)
FIRST = 4


def ids_of(time: int) -> list[int]:
    return GRAPH.window(time, time).ids.tolist()


def truth_of(ids: list[int]) -> list[str]:
    return GRAPH.labels[GRAPH.find(ids)].tolist()


def slice_of(time: int) -> tuple[Any, Any]:
    return to_tables(GRAPH, time, time, labels=False)


def made(folder: Path, history: Any = 1, **how: Any) -> Workspace:
    old = EvolvingGraph.build(*to_tables(GRAPH, last=FIRST - 1))
    settings = {"model": MLP(hidden=8), "detector": DOC(0.5), "steps": 20, "lr": 0.05, "keep": 30, **how}
    return Workspace.create(folder / "ws", old, history=history, **settings)


def turn(workspace: Workspace, time: int) -> None:
    """A slice arrives, is decided, labelled and learnt."""
    workspace.add(*slice_of(time))
    workspace.predict()
    workspace.label(ids_of(time), truth_of(ids_of(time)))
    workspace.update("warm")


# --- a slice with some of its labels ---------------------------------------------------------------------------------


def test_a_few_labels_of_the_newest_slice_do_not_push_the_history_out(tmp_path: Path) -> None:
    workspace = made(tmp_path)
    workspace.add(*slice_of(FIRST))
    right = np.array(truth_of(ids_of(FIRST)), object)
    before = workspace.predict().column("best").to_pylist()
    workspace.create_class("brand new", ids_of(FIRST)[:2])
    assert workspace.update().facts["new_classes"] == ["brand new"]
    assert workspace.state.model.train_vertices == len(ids_of(FIRST - 1)) + 2
    after = workspace.predict().column("best").to_pylist()
    accuracy = [np.mean(np.array(best, object) == right[-len(best) :]) for best in (before, after)]
    assert accuracy[1] > accuracy[0] - 0.1


def test_once_all_labels_are_there_the_history_is_as_long_as_chosen(tmp_path: Path) -> None:
    workspace = made(tmp_path)
    turn(workspace, FIRST)
    assert workspace.state.model.train_vertices == len(ids_of(FIRST))


def test_labels_of_a_retired_class_do_not_leave_a_slice_open(tmp_path: Path) -> None:
    workspace = made(tmp_path, history=1)
    turn(workspace, FIRST)
    task = next_task(workspace.graph, 1, [GRAPH.class_names[0]])
    assert (task.start, task.time) == (FIRST, FIRST + 1)
    assert (task.targets >= 0).sum() < len(ids_of(FIRST))


def test_only_labels_of_the_history_can_bring_a_class_to_learn() -> None:
    def learnt(graph: EvolvingGraph, history: int | None) -> set[str]:
        task = next_task(graph, history)
        return set(graph.names_of(task.targets[task.targets >= 0]).tolist())

    labels = ["long ago", "before", "now", None]
    graph = EvolvingGraph.build({"id": [1, 2, 3, 4], "time": [1, 4, 5, 6], "label": labels})
    assert learnt(graph, None) == {"long ago", "before", "now"}
    assert learnt(graph, 2) == {"before", "now"}  # of 4 and 5, to decide 6
    assert learnt(graph.relabel([4], ["new"]), 2) == {"now", "new"}  # of 5 and 6, to decide 7


# --- labels that come too late to be learnt --------------------------------------------------------------------------


def test_an_update_without_labels_in_the_history_reaches_back_and_says_so(tmp_path: Path, caplog: Any) -> None:
    workspace = made(tmp_path)
    for time in (FIRST, FIRST + 1, FIRST + 2):
        workspace.add(*slice_of(time))
    workspace.label(ids_of(FIRST), truth_of(ids_of(FIRST)))
    status = workspace.status()
    task = next_task(workspace.graph, 1)
    assert (task.start, task.time, task.history) == (FIRST, FIRST + 2, 1)
    assert (status.fresh_labels, workspace.state.settings.history) == (len(ids_of(FIRST)), 1)
    outcome = workspace.update("warm")
    assert any(f", from {FIRST} on because there are none within the history" in part for part in outcome.parts)
    assert f"the model for {FIRST + 2} trains on those of {FIRST}." in caplog.text
    assert workspace.state.model.train_vertices == len(ids_of(FIRST))


def test_labels_older_than_the_history_are_told(tmp_path: Path) -> None:
    workspace = made(tmp_path)
    for time in (FIRST, FIRST + 1, FIRST + 2):
        workspace.add(*slice_of(time))
    workspace.label(ids_of(FIRST)[:5], ["late"] * 5)
    assert workspace.status().fresh_labels == 5  # the history has no label, so the update reaches back to these
    workspace.label(ids_of(FIRST + 1)[:1], truth_of(ids_of(FIRST + 1)[:1]))
    workspace.update("warm")
    workspace.label(ids_of(FIRST)[5:10], ["late"] * 5)
    assert workspace.status().fresh_labels == 0
    assert workspace.status().next_command == "predict"
    with pytest.raises(InputError, match="older than the history, which starts with 5"):
        workspace.update()
    workspace.label(ids_of(FIRST + 1)[1:], truth_of(ids_of(FIRST + 1)[1:]))
    assert workspace.status().fresh_labels == len(ids_of(FIRST + 1)) - 1
    outcome = workspace.update("warm")
    assert outcome.facts["not_learnt"] == 5
    assert "5 labels not used: older than the history" in outcome.parts
    assert "late" not in workspace.state.model.classes
    assert workspace.state.fresh_labels == 0


# --- vertices that come again ----------------------------------------------------------------------------------------


def test_a_slice_that_was_taken_back_and_came_again_is_not_decided_yet(tmp_path: Path) -> None:
    workspace = made(tmp_path)
    workspace.add(*slice_of(FIRST))
    workspace.predict()
    workspace.rollback(1)
    workspace.add(*slice_of(FIRST))
    assert workspace.status().undecided == len(ids_of(FIRST))
    assert workspace.scores() == []
    assert workspace.label(ids_of(FIRST)[:3], truth_of(ids_of(FIRST)[:3])).facts["scored"] == 0
    assert workspace.predict().num_rows == len(ids_of(FIRST)) - 3
    assert workspace.label(ids_of(FIRST)[3:5], truth_of(ids_of(FIRST)[3:5])).facts["scored"] == 2
    assert workspace.scores()[0].labelled == 2


def test_a_vertex_that_came_again_later_is_another_one(tmp_path: Path) -> None:
    workspace = made(tmp_path)
    workspace.add(*slice_of(FIRST))
    workspace.predict()
    again = ids_of(FIRST)[0]
    workspace.remove([again])
    workspace.add({"id": [again], "time": [FIRST + 1], "text": ["word"]})
    assert workspace.status().undecided == 1
    workspace.label([again, ids_of(FIRST)[1]], truth_of(ids_of(FIRST)[:2]))
    scores = workspace.scores()
    assert [(row.time, row.decided, row.labelled) for row in scores] == [(FIRST, len(ids_of(FIRST)) - 1, 1)]


# --- what a return undoes --------------------------------------------------------------------------------------------


def test_scores_of_labels_that_were_taken_back_do_not_count(tmp_path: Path) -> None:
    workspace = made(tmp_path)
    workspace.add(*slice_of(FIRST))
    workspace.predict()
    before, version = workspace.scores(), workspace.state.version
    workspace.label(ids_of(FIRST), ["wrong file"] * len(ids_of(FIRST)))
    assert workspace.scores()[0].labelled == len(ids_of(FIRST))
    workspace.rollback(version)
    assert workspace.scores() == before
    workspace.label(ids_of(FIRST), truth_of(ids_of(FIRST)))
    assert workspace.scores()[0].labelled == len(ids_of(FIRST))
    assert workspace.scores()[0].accuracy > 0


def test_decisions_for_a_class_that_is_merged_no_more_are_left_out_of_the_scores(tmp_path: Path) -> None:
    workspace = made(tmp_path)
    workspace.add(*slice_of(FIRST))
    version = workspace.state.version
    workspace.merge_classes(GRAPH.class_names[:2], "both")
    best = workspace.predict().column("best").to_pylist()
    workspace.rollback(version)
    workspace.label(ids_of(FIRST), truth_of(ids_of(FIRST)))
    scores = workspace.scores()[0]
    kept = [(name, truth) for name, truth in zip(best, truth_of(ids_of(FIRST)), strict=True) if name != "both"]
    assert 0 < scores.labelled == len(kept) < len(best)
    assert scores.accuracy == pytest.approx(np.mean([name == truth for name, truth in kept]))


def test_a_correction_does_not_make_the_label_later(tmp_path: Path) -> None:
    workspace = made(tmp_path)
    workspace.add(*slice_of(FIRST))
    workspace.predict()
    workspace.label(ids_of(FIRST), truth_of(ids_of(FIRST)))
    workspace.add(*slice_of(FIRST + 1))
    workspace.label(ids_of(FIRST)[:1], ["corrected"])
    assert workspace.scores()[0].latency == 0


# --- the back-test ---------------------------------------------------------------------------------------------------


def test_both_restarts_are_compared_on_the_same_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = made(tmp_path)
    workspace.add(*slice_of(FIRST))
    workspace.label(ids_of(FIRST)[:1], truth_of(ids_of(FIRST)[:1]))
    workspace.update("warm")
    trained = workspace.state.model.train_vertices
    workspace.label(ids_of(FIRST)[1:], truth_of(ids_of(FIRST)[1:]))  # these come late
    workspace.add(*slice_of(FIRST + 1))
    workspace.label(ids_of(FIRST + 1), truth_of(ids_of(FIRST + 1)))
    seen: list[int] = []
    adapt = LifelongLearner.adapt

    def spy(learner: Any, task: Any, on_step: Any = None) -> Any:
        seen.append(int((task.targets >= 0).sum()))
        return adapt(learner, task, on_step)

    monkeypatch.setattr(LifelongLearner, "adapt", spy)
    workspace.update()
    assert seen[0] == trained  # not those that came since
    assert len(seen) <= 2


def test_changed_classes_are_something_to_learn(tmp_path: Path) -> None:
    workspace = made(tmp_path)
    turn(workspace, FIRST)
    with pytest.raises(InputError, match="no labels have arrived since the model was trained"):
        workspace.update("cold")
    workspace.merge_classes(GRAPH.class_names[:2], "both")
    assert workspace.status().next_command == "update"
    workspace.update()
    assert "both" in workspace.state.model.classes
    workspace.retire_class("both")
    workspace.update("cold")
    workspace.create_class("both")
    assert workspace.update("cold").facts["model"] == 5


# --- times and features ----------------------------------------------------------------------------------------------


def test_edges_of_days_before_1970_are_as_old_as_their_younger_end(tmp_path: Path) -> None:
    days = [f"1969-01-{day:02d}" for day in range(1, 7)]
    graph = EvolvingGraph.build(
        {"id": list("abcdef"), "time": days, "label": list("xyxyxy"), "text": ["one two", "two three"] * 3},
        [("a", "b"), ("c", "d")],
        every="day",
    )
    workspace = Workspace.create(tmp_path / "ws", graph, model=MLP(hidden=2), history=3, steps=2)
    workspace.add({"id": ["g"], "time": ["1969-01-07"], "text": ["one"]}, [("a", "c"), ("g", "f")])
    assert workspace.predict().column("neighbours").to_pylist() == [[{"class": "y", "count": 1}]]
    last = workspace.graph.last_time
    assert workspace.graph.up_to(last - 1).n_edges == 2
    assert workspace.graph.up_to(last).n_edges == 4


def test_a_time_is_given_as_it_is_written_also_in_steps(tmp_path: Path) -> None:
    graph = EvolvingGraph.build(
        {"id": [1, 2, 3, 4], "time": [2000, 2001, 2005, 2010], "label": ["x", "y", "x", None], "text": ["a b"] * 4},
        [(1, 2), (2, 3)],
        every=5,
    )
    workspace = Workspace.create(tmp_path / "ws", graph, model=MLP(hidden=2), history=2, steps=2)
    (time,) = set(workspace.predict().column("time").to_pylist())
    assert time == 2010
    assert workspace.predict(time).equals(workspace.predict("2010"))


def test_features_in_memory_can_be_added(tmp_path: Path) -> None:
    vectors = np.eye(4, 3, dtype=np.float32)
    vertices = {"id": [1, 2, 3, 4], "time": [1, 1, 2, 2], "label": list("xyxy")}
    graph = EvolvingGraph.build(vertices, [(1, 2), (2, 3)], features=vectors)
    workspace = Workspace.create(tmp_path / "ws", graph, model=MLP(hidden=2), history=1, steps=2)
    workspace.add({"id": [5], "time": [3]}, features=[[1.0, 2.0, 3.0]])
    assert workspace.graph.features.numbers.values[-1].tolist() == [1.0, 2.0, 3.0]
    assert workspace.predict().num_rows == 1


def test_numbers_that_only_the_settings_name_are_matched_by_these_names(tmp_path: Path) -> None:
    """As in workspaces of older versions, whose graphs have no names of numbers."""
    vertices = {"id": [1, 2, 3, 4], "time": [1, 1, 2, 2], "label": list("xyxy")}
    graph = EvolvingGraph.build(vertices, [(1, 2), (2, 3)], features=np.eye(4, 2, dtype=np.float32))
    workspace = Workspace.create(
        tmp_path / "ws", graph, model=MLP(hidden=2), history=1, steps=2, columns=Columns(numbers=("x", "y"))
    )
    (tmp_path / "slice.csv").write_text("y,id,time,x,text\n7,5,3,8,not read\n")
    workspace.add(tmp_path / "slice.csv")
    (tmp_path / "slice.csv").write_text("y,id,time,x,text\n1,6,3,2,not read\n")
    workspace.add(tmp_path / "slice.csv", columns=Columns(numbers=("?",)))
    assert workspace.graph.features.numbers.values[-2:].tolist() == [[8, 7], [2, 1]]
    assert workspace.graph.features.kinds == ("numbers",)


def test_categories_without_any_value_stay_categories(tmp_path: Path) -> None:
    vertices = {"id": [1, 2], "time": [1, 2], "label": ["x", "y"], "text": ["a word", "words"], "kind": [None, None]}
    graph = EvolvingGraph.build(vertices, [(1, 2)], categories=["kind"])
    workspace = Workspace.create(
        tmp_path / "ws", graph, model=MLP(hidden=2), history=1, steps=2, columns=Columns(categories=("kind",))
    )
    workspace.add({"id": [3], "time": [3], "text": ["word"], "kind": ["new"]})
    assert list(workspace.graph.features.categories.columns) == ["kind=new"]


def test_parts_of_an_outcome_are_not_cut_where_a_name_has_a_semicolon(tmp_path: Path) -> None:
    workspace = made(tmp_path)
    assert workspace.rename_class(GRAPH.class_names[0], "a; b").parts == (f"{GRAPH.class_names[0]} is now a; b",)
