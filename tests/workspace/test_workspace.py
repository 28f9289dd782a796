"""The production loop: what is added, decided, labelled, learnt, renamed and returned to, against plain bookkeeping."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.metrics import f1_score, matthews_corrcoef

from evergraph import UNSEEN, EvolvingGraph, InputError
from evergraph.datasets import synthetic
from evergraph.datasets.tables import Columns, to_tables
from evergraph.detect import DOC, GDOC
from evergraph.evaluation.configuration import Configuration
from evergraph.nn import GCN, MLP, GraphSAGE
from evergraph.workspace import Workspace, predict
from evergraph.workspace.store import SCHEMA, WorkspaceState, read_state
from evergraph.workspace.update import LEAST
from tests.scripts import script
from tests.strategies import assert_equal, model_of

simulate = script("simulate_workspace").simulate

pytestmark = pytest.mark.usefixtures("one_thread")

GRAPH = synthetic(vertices=400, times=8, classes=4, new_classes=2, words=120, words_per_vertex=5, seed=2)
FIRST = 4  # the first slice that is not there from the start
CLASSES = GRAPH.class_names


def slice_of(time: int, **how: Any) -> tuple[Any, Any]:
    """Vertices of a time without labels, and their edges."""
    return to_tables(GRAPH, time, time, **{"labels": False, **how})


def ids_of(time: int) -> list[int]:
    return GRAPH.window(time, time).ids.tolist()


def truth_of(ids: list[int]) -> list[str]:
    return GRAPH.labels[GRAPH.find(ids)].tolist()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, one_thread: None) -> Path:
    """A workspace up to the first slice, to be copied."""
    folder = tmp_path_factory.mktemp("made") / "ws"
    old = EvolvingGraph.build(*to_tables(GRAPH, last=FIRST - 1))
    Workspace.create(folder, old, model=MLP(hidden=8), detector=DOC(0.5), history=2, steps=20, lr=0.05, keep=30)
    return folder


@pytest.fixture
def workspace(made: Path, tmp_path: Path) -> Workspace:
    shutil.copytree(made, tmp_path / "ws")
    return Workspace(tmp_path / "ws")


@pytest.fixture
def learnt(workspace: Workspace) -> Workspace:
    """The same after its first slice: model 2 has learnt its labels."""
    workspace.add(*slice_of(FIRST))
    workspace.predict()
    workspace.label(ids_of(FIRST), truth_of(ids_of(FIRST)))
    workspace.update("warm")
    return workspace


def unchanged(workspace: Workspace, act: Callable[[], object], match: str) -> None:
    """It is refused, and nothing happened."""
    before = records_of(workspace)
    with pytest.raises(InputError, match=match):
        act()
    assert records_of(workspace) == before


def records_of(workspace: Workspace, *tables: str) -> dict[str, list[Any]]:
    """All rows of some tables, or of all."""
    with workspace.store.read() as records:
        return {table: records.select(table) for table in tables or SCHEMA.tables}


def decided_in(workspace: Workspace) -> list[list[Any]]:
    """The decisions of each version and time, oldest first."""
    found: dict[tuple[int, int], list[Any]] = {}
    for row in records_of(workspace, "decisions")["decisions"]:
        found.setdefault((row.version, row.time), []).append(row)
    return [rows for _, rows in sorted(found.items())]


# --- as a run --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "detector", "history"),
    [
        (GraphSAGE(hidden=8), GDOC(0.5), 2),
        (GraphSAGE(hidden=8), GDOC(0.5), "full"),
        (GraphSAGE(hidden=8), GDOC(0.5), "auto"),
        (GCN(hidden=8), DOC(0.6, alpha=3.0), 2),
    ],
)
@pytest.mark.parametrize("at_once", [False, True])
def test_a_workspace_decides_as_a_run_does(
    tmp_path: Path, model: Any, detector: Any, history: Any, at_once: bool
) -> None:
    run = Configuration(model, detector, history, steps=10, lr=0.05, first=FIRST, mode="inductive")
    found = list(simulate(GRAPH, run, tmp_path / "simulation", seed=3, at_once=at_once))
    assert [row.time for row in found] == list(range(FIRST, 8))
    assert [row.vertices for row in found] == [len(ids_of(time)) for time in range(FIRST, 8)]
    assert [(row.different, row.apart) for row in found] == [(0, 0.0)] * len(found)


def test_the_simulation_sees_a_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Configuration(MLP(hidden=8), DOC(0.5), 2, steps=10, lr=0.05, first=6, mode="inductive")
    monkeypatch.setattr(Workspace, "update", lambda *_: None)
    first, second = simulate(GRAPH, run, tmp_path / "simulation")
    assert (first.different, first.apart) == (0, 0.0)
    assert second.different > 0
    assert second.apart > 0


# --- slices ----------------------------------------------------------------------------------------------------------


def windows(graph: EvolvingGraph, last: int) -> list[Any]:
    spans = [(first, end) for first in range(last + 1) for end in range(first, last + 1)]
    return [model_of(graph.window(*span)) for span in spans]


def test_an_edge_between_old_vertices_does_not_change_the_past(workspace: Workspace) -> None:
    before, last = windows(workspace.graph, FIRST - 1), FIRST - 1
    old, new = GRAPH.ids[:3].tolist(), ids_of(FIRST)
    assert model_of(workspace.graph).edges.keys().isdisjoint(map(frozenset, pairwise(old)))
    vertices, edges = slice_of(FIRST)
    pairs = list(zip(edges.column("source").to_pylist(), edges.column("target").to_pylist(), strict=True))
    workspace.add(vertices, [*pairs, (old[0], old[1]), (new[0], old[2])])
    assert windows(workspace.graph, last) == before
    now = model_of(workspace.graph.up_to(FIRST)).edges
    assert now[frozenset(old[:2])] == FIRST
    assert frozenset((new[0], old[2])) in now
    # Without vertices, they are of the newest slice.
    workspace.add(edges=[(old[1], old[2])])
    assert windows(workspace.graph, last) == before
    assert model_of(workspace.graph.up_to(FIRST)).edges[frozenset(old[1:])] == FIRST
    # An edge that was known before is as old as it was.
    known, time = next(iter(model_of(workspace.graph.up_to(last)).edges.items()))
    workspace.add(edges=[tuple(known), (old[0], old[2])])
    assert model_of(workspace.graph).edges[known] == time


def test_an_edge_with_a_time_keeps_it(workspace: Workspace) -> None:
    last, old, times = FIRST - 1, GRAPH.ids[:3].tolist(), [2, FIRST + 1]
    before = windows(workspace.graph, 1)
    workspace.add(edges={"source": old[:2], "target": old[1:], "time": times})
    assert windows(workspace.graph, 1) == before
    for time in range(last + 1):
        assert (frozenset(old[:2]) in model_of(workspace.graph.up_to(time)).edges) == (time >= 2)
        assert frozenset(old[1:]) not in model_of(workspace.graph.up_to(time)).edges


def test_slices_put_together_are_the_graph(workspace: Workspace) -> None:
    for time in range(FIRST, 8):
        workspace.add(*slice_of(time, labels=True))
    assert_equal(workspace.graph, EvolvingGraph.build(*to_tables(GRAPH)))
    assert workspace.state.fresh_labels == sum(len(ids_of(time)) for time in range(FIRST, 8))


def test_what_cannot_be_added_changes_nothing(workspace: Workspace) -> None:
    vertices, edges = slice_of(FIRST)
    unchanged(workspace, lambda: workspace.add(), "there is nothing to add")
    unchanged(workspace, lambda: workspace.add(*slice_of(FIRST - 2)), "before the newest slice of the workspace")
    unchanged(workspace, lambda: workspace.add(*slice_of(FIRST - 1)), "is in the graph already")
    unchanged(workspace, lambda: workspace.add(edges=edges), "which is not a vertex")
    workspace.add(vertices, edges)
    unchanged(workspace, lambda: workspace.add(edges=edges), "there are no new vertices or edges")
    unchanged(workspace, lambda: workspace.remove(), "no vertices or edges to remove")
    unchanged(workspace, lambda: workspace.remove(["none"]), "there is no vertex 'none'")
    workspace.retire_class(CLASSES[0])
    retired = {"id": [10_000], "time": [FIRST], "label": [CLASSES[0]], "text": ["w0001"]}
    unchanged(workspace, lambda: workspace.add(retired), "is retired")


# --- decisions -------------------------------------------------------------------------------------------------------


def test_by_default_what_was_never_decided_is_decided(workspace: Workspace) -> None:
    unchanged(workspace, workspace.predict, "every vertex has a label")
    for time in (FIRST, FIRST + 1):
        workspace.add(*slice_of(time))
    found = workspace.predict()
    assert found.column("id").to_pylist() == ids_of(FIRST) + ids_of(FIRST + 1)
    assert workspace.status().undecided == 0
    version = workspace.state.version
    # All are decided: the newest slice again, which gives the same and keeps nothing.
    again = workspace.predict()
    assert again.to_pylist() == found.to_pylist()[len(ids_of(FIRST)) :]
    assert workspace.predict(FIRST).to_pylist() == found.to_pylist()[: len(ids_of(FIRST))]
    assert workspace.state.version == version
    assert [len(rows) for rows in decided_in(workspace)] == [len(ids_of(FIRST)), len(ids_of(FIRST + 1))]
    # One more vertex of a slice: only that slice has something undecided.
    workspace.add({"id": [10_000], "time": [FIRST + 1], "text": ["w0001"]})
    assert workspace.predict().column("id").to_pylist() == [*ids_of(FIRST + 1), 10_000]
    unchanged(workspace, lambda: workspace.predict(FIRST - 1), "every vertex of 3 has a label")
    unchanged(workspace, lambda: workspace.predict("soon"), "is not a time")


@pytest.mark.parametrize(
    "given",
    [
        lambda frame: (frame,),
        lambda frame: (frame.rename(columns={"id": "key", "label": "venue"}),),
        lambda frame: (frame.astype({"label": "category"}),),
        lambda frame: (frame.set_index("id")["label"],),
        lambda frame: (frame["id"], frame["label"]),
        lambda frame: (frame["id"].to_numpy(), frame["label"].to_numpy()),
        lambda frame: (pa.Table.from_pandas(frame),),
        lambda frame: (frame.to_dict("list"),),
        lambda frame: (iter(frame["id"]), (name for name in frame["label"])),
    ],
)
def test_labels_are_given_as_frames_series_arrays_or_tables(workspace: Workspace, given: Any) -> None:
    ids = ids_of(FIRST)
    workspace.add(*slice_of(FIRST))
    frame = pd.DataFrame({"id": ids, "label": truth_of(ids), "note": 0}).iloc[::-1]
    frame.loc[0, "label"] = None  # of the first id
    outcome = workspace.label(*given(frame), columns=Columns(id="key", label="venue"))
    assert (outcome.facts["labels"], outcome.facts["without"]) == (len(ids) - 1, 1)
    graph = workspace.graph
    assert graph.labels[graph.find(ids)].tolist() == [None, *truth_of(ids)[1:]]


def test_labels_whose_ids_are_not_clear_are_refused(workspace: Workspace) -> None:
    ids = ids_of(FIRST)
    workspace.add(*slice_of(FIRST))
    frame = pd.DataFrame({"id": ids, "label": truth_of(ids)})
    for given, match in (
        ((frame["label"],), "the index of the Series counts rows"),
        ((frame["id"], frame["label"].iloc[::-1]), "ids and labels have different indexes"),
        ((frame[["label"]],), "there is no column 'id'"),
        ((frame[["id"]],), "there is no column 'label'"),
        ((ids,), "there are ids, but no labels"),
        ((ids, ["x"]), f"1 labels for {len(ids)} ids"),
    ):
        unchanged(workspace, lambda given=given: workspace.label(*given), match)


def test_only_vertices_without_a_label_are_decided(workspace: Workspace) -> None:
    ids = ids_of(FIRST)
    workspace.add(*slice_of(FIRST))
    workspace.label(ids[:10], truth_of(ids[:10]))
    workspace.remove(ids[20:25])
    left = [*ids[10:20], *ids[25:]]
    found = workspace.predict()
    assert found.column("id").to_pylist() == left
    workspace.remove(ids[10:12])
    assert workspace.predict().column("id").to_pylist() == left[2:]
    # What was decided is kept: on the vertices that are gone, and once more as their neighbours see it now.
    assert [len(rows) for rows in decided_in(workspace)] == [len(left), len(left) - 2]
    assert workspace.scores()[0].decided == len(left)
    assert {row.id for row in workspace.review(None)} <= set(left[2:])


def test_decisions_and_their_reasons_are_those_of_the_model(workspace: Workspace) -> None:
    workspace.add(*slice_of(FIRST))
    ids = ids_of(FIRST)
    graph, neighbours = workspace.graph, model_of(GRAPH.window(FIRST - 2, FIRST))
    for row in workspace.predict().to_pylist():
        assert row["time"] == FIRST
        assert row["model"] == 1
        assert row["class"] in (row["best"], UNSEEN)
        assert (row["class"] == UNSEEN) == (row["score"] > 0)  # the probability also counts the neighbours' classes
        assert len(row["nearest"]) == 3
        assert row["nearest"][0] == {"class": row["best"], "probability": pytest.approx(row["probability"], abs=1e-6)}
        around = neighbours.neighbours(row["id"])
        known = truth_of(sorted(around - set(ids)))
        counts = {name: known.count(name) for name in set(known)}
        counts |= {"no label": len(around & set(ids))} if around & set(ids) else {}
        assert {one["class"]: one["count"] for one in row["neighbours"]} == counts
        kept = workspace.decisions()[str(row["id"])]
        assert (kept["nearest"], kept["neighbours"]) == (row["nearest"], row["neighbours"])
    assert len(graph) == len(GRAPH.up_to(FIRST))


def test_the_decision_of_a_model_that_was_returned_to_stands_again(learnt: Workspace) -> None:
    """Though that very table is there already, from before the other model's."""
    learnt.add(*slice_of(FIRST + 1))
    first = learnt.predict()
    version = learnt.state.version
    learnt.label(ids_of(FIRST)[:1], ["another"])
    learnt.update("cold")
    second = learnt.predict()
    assert second.column("score").to_pylist() != first.column("score").to_pylist()
    learnt.rollback(version)
    assert learnt.predict().equals(first)
    stands = learnt.decisions()
    assert [stands[str(row["id"])]["score"] for row in first.to_pylist()] == first.column("score").to_pylist()
    assert [rows[0].model for rows in decided_in(learnt)] == [1, 2, 3, 2]


def test_a_retired_class_is_never_decided(learnt: Workspace) -> None:
    learnt.add(*slice_of(FIRST + 1))
    best = learnt.predict().column("best").to_pylist()
    gone = max(set(best), key=best.count)
    learnt.retire_class(gone)
    found = learnt.predict()
    assert gone not in found.column("best").to_pylist() + found.column("class").to_pylist()
    assert gone not in {one["class"] for row in found.column("nearest").to_pylist() for one in row}
    assert next(row for row in learnt.classes() if row.name == gone).retired
    unchanged(learnt, lambda: learnt.label(ids_of(FIRST + 1)[:1], [gone]), "is retired")
    learnt.create_class(gone)
    assert learnt.predict().column("best").to_pylist() == best
    learnt.retire_class(gone)
    # Nor is it learnt from; its labels stay.
    learnt.label(ids_of(FIRST + 1)[:5], ["another"] * 5)
    learnt.update("cold")
    assert gone not in learnt.predict().column("best").to_pylist()
    assert learnt.graph.classes.count_of(gone) > 0
    before = [*ids_of(FIRST - 1), *ids_of(FIRST)]  # the history, for the newest slice is still open
    assert learnt.state.model.train_vertices == sum(name != gone for name in truth_of(before)) + 5
    *others, last = (name for name in learnt.state.model.classes if name != gone)
    for name in others:
        learnt.retire_class(name)
    unchanged(learnt, lambda: learnt.retire_class(last), "the model would have no class left")


def test_merged_classes_say_one_name_at_once_and_after_an_update(learnt: Workspace) -> None:
    learnt.add(*slice_of(FIRST + 1))
    before = learnt.predict()
    one, other, *_ = sorted(set(before.column("best").to_pylist()))
    learnt.merge_classes([one, other], "both")
    merged = {one: "both", other: "both"}
    found = learnt.predict()
    for column in ("class", "best"):
        # The classes of older neighbours are merged, too, so a few decisions may change.
        expected = [merged.get(name, name) for name in before.column(column).to_pylist()]
        assert np.mean(np.array(found.column(column).to_pylist()) == np.array(expected)) > 0.9
        assert not {one, other} & set(found.column(column).to_pylist())
    assert not {one, other} & {row.name for row in learnt.classes()}
    support = sum(GRAPH.up_to(FIRST).labels.tolist().count(name) for name in merged)
    assert next(row for row in learnt.classes() if row.name == "both").support == support
    assert learnt.state.model.classes.count("both") == 1
    ids = ids_of(FIRST + 1)
    learnt.label(ids, [merged.get(name, name) for name in truth_of(ids)])
    for restart in ("warm", "cold"):
        learnt.label(ids[:1], [f"after {restart}"])
        learnt.update(restart)
        learnt.add({"id": [f"new {restart}"], "time": [FIRST + 2], "text": ["w0001 w0002"]})
        (row,) = (row for row in learnt.predict().to_pylist() if row["id"] == f"new {restart}")
        assert not {one, other} & {row["best"], row["class"]}
        assert np.isfinite(row["score"])
        assert learnt.state.model.classes.count("both") == 1
    assert "both" in {one["class"] for found in learnt.predict().to_pylist() for one in found["nearest"]}


def test_renamed_classes_are_renamed_everywhere(learnt: Workspace) -> None:
    learnt.add(*slice_of(FIRST + 1))
    before = learnt.predict()
    old = before.column("best")[0].as_py()
    learnt.rename_class(old, "anew")
    after = learnt.predict()
    for column in ("class", "best"):
        assert after.column(column).to_pylist() == [
            "anew" if name == old else name for name in before.column(column).to_pylist()
        ]
    rows = {row.name: row for row in learnt.classes()}
    assert old not in rows
    assert rows["anew"].support == GRAPH.up_to(FIRST).labels.tolist().count(old)
    assert rows["anew"].known
    unchanged(learnt, lambda: learnt.rename_class(old, "another"), "there is no class")
    unchanged(learnt, lambda: learnt.rename_class("anew", CLASSES[-3]), "exists already")
    unchanged(learnt, lambda: learnt.rename_class("anew", " Unseen"), "a class cannot be called")
    unchanged(learnt, lambda: learnt.rename_class("anew", "z\udc9b"), r"class name 'z\\udc9b' is not valid Unicode")
    unchanged(learnt, lambda: learnt.label("labels.csv", ["anew"]), "labels besides a file")
    # A name that only the model knows is taken, too.
    learnt.remove([id for id, name in zip(learnt.graph.ids, learnt.graph.labels, strict=True) if name == "anew"])
    other = next(row.name for row in learnt.classes() if row.support)
    unchanged(learnt, lambda: learnt.rename_class(other, "anew"), "the class 'anew' exists already")


def test_what_is_part_of_a_living_class_lives(workspace: Workspace) -> None:
    a, b, c, d = CLASSES[:4]
    workspace.retire_class(a)
    workspace.rename_class(a, "gone")
    assert workspace.state.retired == ("gone",)
    workspace.merge_classes(["gone"], b)
    assert workspace.state.retired == ()
    workspace.retire_class(b)
    workspace.retire_class(c)
    workspace.merge_classes([b, c], "gone")
    assert workspace.state.retired == ("gone",)
    workspace.merge_classes([d], "gone")
    assert workspace.state.retired == ()


# --- scores ----------------------------------------------------------------------------------------------------------


class Ledger:
    """What a person with pencil and paper would know of decisions and labels."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.times: dict[int, int] = {}
        self.decided: dict[int, dict[str, Any]] = {}
        self.scored: dict[int, dict[str, Any]] = {}
        self.knew: dict[int, set[str]] = {1: set(workspace.state.model.classes)}

    def add(self, time: int) -> None:
        self.workspace.add(*slice_of(time), drop_dangling=True)
        self.times |= dict.fromkeys(ids_of(time), time)

    def predict(self, time: int | None = None) -> None:
        for row in self.workspace.predict(time).to_pylist():
            self.decided[row["id"]] = dict(row)

    def label(self, ids: list[int], names: list[str]) -> None:
        self.workspace.label(ids, names)
        for identity, name in zip(ids, names, strict=True):
            if self.scored.get(identity, {}).get("truth") == name:
                continue  # it is no correction
            late = max(self.times.values()) - self.times[identity]
            late = self.scored.get(identity, {}).get("late", late)  # a correction makes no label late
            self.scored[identity] = {**self.decided[identity], "truth": name, "late": late}

    def update(self, restart: str) -> None:
        self.workspace.update(restart)
        self.knew[max(self.knew) + 1] = set(self.workspace.state.model.classes)

    def rename(self, names: dict[str, str]) -> None:
        for row in [*self.decided.values(), *self.scored.values()]:
            row |= {key: names.get(row[key], row[key]) for key in ("class", "best", "truth") if key in row}
        self.knew = {model: {names.get(name, name) for name in known} for model, known in self.knew.items()}

    def check(self) -> None:
        found = Workspace(self.workspace.store.folder).scores()
        assert self.workspace.last_scores() == next((row for row in reversed(found) if row.labelled), None)
        times = sorted({row["time"] for row in self.decided.values()})
        assert [one.time for one in found] == times
        for one in found:
            decided = [row for row in self.decided.values() if row["time"] == one.time]
            rows = [row for row in self.scored.values() if row["time"] == one.time]
            assert (one.decided, one.labelled) == (len(decided), len(rows))
            assert one.flagged == pytest.approx(np.mean([row["class"] == UNSEEN for row in decided]))
            assert one.models == tuple(sorted({row["model"] for row in decided}))
            if not rows:
                assert {one.accuracy, one.open_f1, one.mcc, one.unseen, one.latency} == {None}
                continue
            unseen = [row["truth"] not in self.knew[row["model"]] for row in rows]
            truth = [UNSEEN if new else row["truth"] for new, row in zip(unseen, rows, strict=True)]
            said = [row["class"] for row in rows]
            right = [row["best"] == row["truth"] for row in rows]
            assert one.accuracy == pytest.approx(np.mean(right))
            known = [hit for hit, new in zip(right, unseen, strict=True) if not new]
            assert one.id_accuracy == (pytest.approx(np.mean(known)) if known else None)
            assert one.unseen == pytest.approx(np.mean(unseen))
            assert one.latency == pytest.approx(np.mean([row["late"] for row in rows]))
            mcc = matthews_corrcoef(unseen, [name == UNSEEN for name in said])
            assert one.mcc == (pytest.approx(mcc) if any(unseen) else None)
            names = sorted({*truth, *said})
            assert one.open_f1 == pytest.approx(f1_score(truth, said, labels=names, average="macro", zero_division=0))


def test_scores_are_those_of_the_last_decision_before_the_label(workspace: Workspace) -> None:
    ledger = Ledger(workspace)
    ledger.check()
    ids, more = ids_of(FIRST), ids_of(FIRST + 1)
    ledger.add(FIRST)
    ledger.predict()
    ledger.check()
    ledger.label(ids[:20], truth_of(ids[:20]))
    ledger.check()
    ledger.update("warm")
    ledger.predict(FIRST)  # once more, by the second model, before the other labels come
    assert len({row["model"] for row in ledger.decided.values()}) == 2
    ledger.check()
    ledger.add(FIRST + 1)
    ledger.predict()
    ledger.label([*ids[20:], *more[:15]], [*truth_of(ids[20:]), *truth_of(more[:15])])  # late, and over two slices
    ledger.check()
    assert workspace.scores()[0].latency > 0
    ledger.label(ids[5:25], [CLASSES[0]] * 20)  # corrections
    ledger.check()
    workspace.rename_class(CLASSES[0], "anew")
    ledger.rename({CLASSES[0]: "anew"})
    ledger.check()
    workspace.remove(more[30:36])
    ledger.check()
    workspace.merge_classes([CLASSES[1], CLASSES[2]], "both")
    merged = {CLASSES[0]: "anew", CLASSES[1]: "both", CLASSES[2]: "both"}
    ledger.rename(merged)
    ledger.check()
    ledger.update("cold")
    ledger.add(FIRST + 2)
    ledger.predict()
    left = [*more[15:30], *more[36:], *ids_of(FIRST + 2)]
    names = [merged.get(name, name) for name in truth_of(left)]
    ledger.label(left, [*names[:-9], *["brand new"] * 9])
    ledger.check()
    found = workspace.scores()
    assert {one.unseen > 0 for one in found} == {True, False} or found[-1].unseen > 0
    assert any(0 < one.accuracy < 1 and one.mcc != 0 for one in found)


def test_scores_do_not_depend_on_whether_labels_come_before_a_merger_or_after(workspace: Workspace) -> None:
    workspace.add(*slice_of(FIRST))
    workspace.predict()
    start, ids = workspace.state.version, ids_of(FIRST)
    merged = dict.fromkeys(CLASSES[:2], CLASSES[0])
    workspace.label(ids, truth_of(ids))
    workspace.merge_classes([CLASSES[1]], CLASSES[0])
    first = workspace.scores()
    workspace.rollback(start)
    workspace.merge_classes([CLASSES[1]], CLASSES[0])
    workspace.label(ids, [merged.get(name, name) for name in truth_of(ids)])
    assert workspace.scores() == first


def test_names_that_resemble_a_class_are_warned_of_before_they_become_one(
    learnt: Workspace, caplog: pytest.LogCaptureFixture
) -> None:
    known, ids = CLASSES[0], ids_of(FIRST)
    vertices, edges = slice_of(FIRST + 1)
    like = [known.upper(), *["Topology"] * (vertices.num_rows - 1)]
    added = learnt.add(vertices.append_column("label", pa.array(like)), edges)
    merge = f"evergraph ws classes merge {learnt.store.folder} --into {known!r} {known.upper()!r}"
    first = vertices.column("id")[0].as_py()
    (text,) = added.facts["warnings"]
    assert text == (
        f"vertex {first}: the new class {known.upper()!r} differs from {known!r} only in letter case. If both are the "
        f"same class, merge them before the next update: {merge}"
    )
    assert caplog.messages == [f"Warning: {text}"]
    learnt.merge_classes([known.upper()], known)
    assert known.upper() not in learnt.graph.class_names
    labelled = learnt.label({"id": ids[:3], "label": [None, "Topolgy", "Topolgy"]})
    (text,) = labelled.facts["warnings"]
    assert text.startswith(f"row 2, vertex {ids[1]}: the new class 'Topolgy' differs from 'Topology' by one letter.")
    renamed = learnt.rename_class("Topolgy", "topology")
    assert "the new class 'topology' differs from 'Topology'" in renamed.facts["warnings"][0]
    caplog.clear()
    # Neither another case of the same class nor a name that is there already.
    for outcome in (
        learnt.merge_classes(["topology"], "Topology"),
        learnt.rename_class("Topology", "TOPOLOGY"),
        learnt.label(ids[:1], ["TOPOLOGY"]),
        learnt.rename_class("TOPOLOGY", "v1"),
        learnt.create_class("v2", ids[1:2]),
    ):
        assert "warnings" not in outcome.facts, outcome
    assert not caplog.messages
    many = learnt.label(ids[:8], [f"-{'x' * n}abcdefgh"[:-1] + letter for n in range(4) for letter in "hH"])
    assert len(many.facts["warnings"]) > 5
    assert len(caplog.messages) == 6
    assert "--json shows all" in caplog.messages[-1]


def test_what_cannot_be_labelled_changes_nothing(workspace: Workspace) -> None:
    ids = ids_of(FIRST)
    workspace.add(*slice_of(FIRST))
    unchanged(workspace, lambda: workspace.label(["none"], ["x"]), "there is no vertex 'none'")
    unchanged(workspace, lambda: workspace.label(ids[:1], [None]), "there are no labels")
    unchanged(workspace, lambda: workspace.label(ids[:2], ["x"]), "1 labels for 2 ids")
    unchanged(workspace, lambda: workspace.label([ids[0], ids[0]], ["x", "y"]), "a vertex has the label 'y' here")
    unchanged(workspace, lambda: workspace.label(ids[:1], ["unseen"]), "reserved for vertices flagged as unseen")
    workspace.label([ids[0], ids[0], ids[1]], ["x", "x", None])
    assert workspace.state.fresh_labels == 1
    unchanged(workspace, lambda: workspace.label(ids[:1], ["x"]), "have these labels already")


# --- updates ---------------------------------------------------------------------------------------------------------


def test_without_labels_there_is_nothing_to_learn(learnt: Workspace) -> None:
    unchanged(learnt, learnt.update, "no labels have arrived since the model was trained")
    learnt.add(*slice_of(FIRST + 1))
    unchanged(learnt, learnt.update, "no labels have arrived since the model was trained")
    unchanged(learnt, lambda: learnt.update("hot"), "there is no restart 'hot'")


def test_new_classes_become_known(learnt: Workspace) -> None:
    learnt.add(*slice_of(FIRST + 1))
    learnt.create_class("brand new", ids_of(FIRST + 1)[:3])
    before = learnt.state.model
    assert "brand new" not in before.classes
    outcome = learnt.update("warm")
    assert outcome.facts["new_classes"] == ["brand new"]
    assert set(learnt.state.model.classes) == {*before.classes, "brand new"}
    assert (learnt.state.model.number, learnt.state.fresh_labels) == (before.number + 1, 0)
    assert learnt.state.model.train_vertices == len(ids_of(FIRST - 1)) + len(ids_of(FIRST)) + 3


def arms(monkeypatch: pytest.MonkeyPatch, **right: float) -> list[Any]:
    """Let the models that a back-test asks be right as often as given; it returns who they are, once they were asked."""
    asked: list[Any] = []

    def best_classes(learner: Any, graph: EvolvingGraph, time: int, *_: Any) -> np.ndarray:
        truth = graph.window(time, time).labels
        share = list(right.values())[len(asked)]
        asked.append((learner.restart, learner.time_, learner.classes_))
        return np.where(np.arange(len(truth)) < round(share * len(truth)), truth, "wrong")

    monkeypatch.setattr(predict, "best_classes", best_classes)
    return asked


@pytest.mark.parametrize(
    ("right", "expected"),
    [
        ({"warm": 0.9, "cold": 0.9, "skip": 0.5}, "warm"),
        ({"warm": 0.9, "cold": 0.3, "skip": 0.5}, "warm"),
        ({"warm": 0.3, "cold": 0.9, "skip": 0.5}, "cold"),
        ({"warm": 0.5, "cold": 0.9, "skip": 0.9}, "skip"),
        ({"warm": 0.5, "cold": 0.5, "skip": 0.5}, "skip"),
        ({"warm": 0.3, "cold": 0.4, "skip": 0.9}, "skip"),
    ],
)
@pytest.mark.parametrize("new", [False, True])
def test_the_last_update_tells_how_to_update(
    learnt: Workspace, monkeypatch: pytest.MonkeyPatch, right: dict[str, float], expected: str, new: bool
) -> None:
    ids = ids_of(FIRST + 1)
    learnt.add(*slice_of(FIRST + 1))
    learnt.label(ids, truth_of(ids))
    assert len(ids) >= LEAST
    if new:
        learnt.label(ids[:1], ["brand new"])
        if expected == "skip":
            expected = "cold" if right["cold"] > right["warm"] else "warm"
    before, asked = learnt.state, arms(monkeypatch, **right)
    outcome = learnt.update()
    assert outcome.facts["restart"] == expected
    # The one in force, the one it would be had it been restarted the other way, and the one before.
    assert [who[:2] for who in asked] == [("warm", FIRST + 1), ("cold", FIRST + 1), ("warm", FIRST)]
    for share in right.values():
        assert f"{round(share * len(ids)) / len(ids):.1%}" in outcome.facts["why"]
    after = learnt.state
    if expected == "skip":
        assert "no gain beyond chance" in outcome.what
        assert (after.model, after.fresh_labels) == (before.model, before.fresh_labels)
    else:
        assert (after.model.number, after.model.restart, after.fresh_labels) == (3, expected, 0)
        assert learnt.learner().restart == expected
    assert learnt.log()[-1].command == "update"
    # After a cold one the other way is the warm one.
    if expected == "cold" and not new:
        learnt.add(*slice_of(FIRST + 2))
        learnt.label(ids_of(FIRST + 2), ["brand new"] * len(ids_of(FIRST + 2)))
        asked = arms(monkeypatch, cold=0.9, warm=0.9, skip=0.1)
        assert learnt.update().facts["restart"] == "warm"
        assert [who[:2] for who in asked[:2]] == [("cold", FIRST + 2), ("warm", FIRST + 2)]


@pytest.mark.parametrize(("corrected", "expected"), [(LEAST, "warm"), (LEAST - 1, "skip")])
def test_an_update_is_not_skipped_after_many_corrections(
    learnt: Workspace, monkeypatch: pytest.MonkeyPatch, corrected: int, expected: str
) -> None:
    learnt.add(*slice_of(FIRST + 1))
    learnt.label(ids_of(FIRST + 1), truth_of(ids_of(FIRST + 1)))
    # The first correction is of a slice that no model has learnt; FIRST - 1 and FIRST are in the history.
    one, other = CLASSES[:2]
    learnt.label(ids_of(FIRST + 1)[:1], [one if truth_of(ids_of(FIRST + 1)[:1]) != [one] else other])
    ids = (ids_of(FIRST - 1) + ids_of(FIRST))[:corrected]
    assert len(ids) == corrected
    learnt.label(ids, [one if name != one else other for name in truth_of(ids)])
    arms(monkeypatch, warm=0.5, cold=0.5, skip=0.5)
    assert learnt.update().facts["restart"] == expected


def test_corrections_before_the_history_do_not_make_a_model_outdated(learnt: Workspace) -> None:
    ids = [id for time in range(FIRST - 1) for id in ids_of(time)]
    assert len(ids) >= LEAST
    learnt.label(ids, [CLASSES[0] if name != CLASSES[0] else CLASSES[1] for name in truth_of(ids)])
    assert not learnt.state.stale
    unchanged(learnt, learnt.update, "all new labels are older than the history")


def test_without_enough_to_choose_by_an_update_is_warm(workspace: Workspace) -> None:
    ids = ids_of(FIRST)
    workspace.add(*slice_of(FIRST))
    workspace.label(ids[: LEAST - 1], truth_of(ids[: LEAST - 1]))
    outcome = workspace.update()
    assert outcome.facts["restart"] == "warm"
    assert f"no slice since the last update has {LEAST} labels" in outcome.facts["why"]
    workspace.rollback(1)
    workspace.add(*slice_of(FIRST, labels=True))
    outcome = workspace.update()
    assert outcome.facts["restart"] == "warm"
    assert "there is no earlier model" in outcome.facts["why"]


def test_a_model_with_other_inputs_is_not_compared_with(learnt: Workspace) -> None:
    learnt.set(inputs="words")
    learnt.update()
    learnt.add(*slice_of(FIRST + 1, labels=True))
    outcome = learnt.update()
    assert outcome.facts["restart"] == "warm"
    assert "there is no earlier model to compare with" in outcome.facts["why"]


def test_models_that_are_compared_call_classes_by_the_same_names(
    learnt: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    learnt.rename_class(CLASSES[0], "anew")
    learnt.add(*slice_of(FIRST + 1))
    ids = ids_of(FIRST + 1)
    learnt.label(ids, ["anew" if name == CLASSES[0] else name for name in truth_of(ids)])
    asked = arms(monkeypatch, warm=0.9, cold=0.9, skip=0.1)
    learnt.update()
    assert len(asked) == 3
    for *_, classes in asked:
        assert "anew" in classes
        assert CLASSES[0] not in classes


def test_models_can_be_compared_after_slices_were_taken_back(
    learnt: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    learnt.remove(ids_of(FIRST))
    learnt.label(ids_of(FIRST - 1)[:1], ["another"])
    learnt.update("warm")
    assert [record.time for record in learnt.models()] == [FIRST, FIRST + 1, FIRST]
    learnt.add(*slice_of(FIRST, labels=True))
    asked = arms(monkeypatch, warm=0.9, cold=0.9, skip=0.1)
    assert learnt.update().facts["restart"] == "warm"
    assert len(asked) == 3


# --- returning -------------------------------------------------------------------------------------------------------


def version_of(workspace: Workspace, number: int) -> WorkspaceState:
    with workspace.store.read() as records:
        return read_state(records, number)


def test_a_whole_version_is_returned_to(learnt: Workspace) -> None:
    folder = learnt.store.folder
    first, graph = version_of(learnt, 1), EvolvingGraph.build(*to_tables(GRAPH, last=FIRST - 1))
    before, grown, kept = learnt.state, learnt.graph, ("decisions", "outcomes", "models")
    rows, log = records_of(learnt, *kept), learnt.log()
    outcome = learnt.rollback(1)
    state = Workspace(folder).state
    assert outcome.version == state.version == before.version + 1
    assert (state.model, state.learner, state.tensors) == (first.model, first.learner, first.tensors)
    assert state.fresh_labels == 0
    assert_equal(Workspace(folder).graph, graph)
    assert Workspace(folder).learner().time_ == FIRST
    # What was decided, how it did and what was done stay, and so does the memory of the second model.
    assert records_of(learnt, *kept) == rows
    assert learnt.log()[:-1] == log
    assert [one.labelled for one in learnt.scores()] == [len(ids_of(FIRST))]
    # There is a way back, too.
    learnt.rollback(before.version)
    again = learnt.state
    assert (again.model, again.tensors) == (before.model, before.tensors)
    for there in (learnt, Workspace(folder)):
        assert_equal(there.graph, grown)
    assert len(learnt.log()) == len(log) + 2


def test_a_model_alone_is_returned_to(learnt: Workspace) -> None:
    first, graph, tables = version_of(learnt, 1), learnt.graph, ("segments", "labels", "classes", "decisions")
    before = records_of(learnt, *tables)
    learnt.rollback(1, model_only=True)
    state = learnt.state
    assert (state.model, state.tensors) == (first.model, first.tensors)
    assert records_of(learnt, *tables) == before
    assert_equal(Workspace(learnt.store.folder).graph, graph)
    assert (state.fresh_labels, state.stale) == (0, True)
    assert learnt.status().next_command == "update"
    unchanged(learnt, lambda: learnt.rollback(1, model_only=True), "is the current one")
    learnt.add(*slice_of(FIRST + 1))
    assert set(learnt.predict().column("model").to_pylist()) == {1}


def test_numbers_of_models_never_repeat(learnt: Workspace) -> None:
    numbers = [2]
    for model_only in (False, True, False):
        learnt.rollback(1, model_only=model_only)
        if not model_only:
            learnt.add(*slice_of(FIRST, labels=True))
        learnt.update("warm")
        numbers.append(learnt.state.model.number)
    assert numbers == [2, 3, 4, 5]
    assert [record.number for record in learnt.models()] == [1, 2, 3, 4, 5]


def test_versions_that_are_not_there_cannot_be_returned_to(learnt: Workspace) -> None:
    last = learnt.state.version
    for number in (0, -1, last + 1, 999_999):
        unchanged(learnt, lambda number=number: learnt.rollback(number), "does not exist, or is not kept any more")
    unchanged(learnt, lambda: learnt.rollback(last), "is the current one")


def test_names_return_with_a_version(learnt: Workspace) -> None:
    """Whatever was decided when: classes are called as they are in the version in force."""
    a, b, c = CLASSES[1:4]
    folder = learnt.store.folder
    decided: dict[int, list[str]] = {}

    def decide(time: int) -> int:
        learnt.add(*slice_of(time))
        decided[time] = learnt.predict(time).column("best").to_pylist()
        return learnt.state.version

    def names(time: int) -> list[str]:
        return [row["best"] for row in Workspace(folder).decisions([time]).values()]

    def called(time: int, **new: str) -> list[str]:
        return [new.get(name.replace(" ", "_"), name) for name in decided[time]]

    key = a.replace(" ", "_")
    start = decide(FIRST + 1)
    learnt.rename_class(a, "x")
    learnt.rename_class("x", "y")
    assert names(FIRST + 1) == called(FIRST + 1, **{key: "y"})
    renamed = decide(FIRST + 2)
    assert "y" in decided[FIRST + 2]
    learnt.rollback(start)
    assert names(FIRST + 1) == decided[FIRST + 1]
    assert names(FIRST + 2) == called(FIRST + 2, y=a)
    assert a in learnt.state.model.classes
    unchanged(learnt, lambda: learnt.rollback(start - 1, model_only=True), "is the current one")  # not: renamed
    unchanged(learnt, lambda: learnt.rollback(renamed, model_only=True), "is the current one")
    learnt.rename_class(b, "y")
    assert names(FIRST + 1) == called(FIRST + 1, **{b.replace(" ", "_"): "y"})
    assert names(FIRST + 2) == called(FIRST + 2, y=a, **{b.replace(" ", "_"): "y"})
    learnt.rollback(renamed)
    assert names(FIRST + 1) == called(FIRST + 1, **{key: "y"})
    assert names(FIRST + 2) == decided[FIRST + 2]
    learnt.merge_classes([c], b)  # into one that is there
    learnt.rollback(renamed)
    assert names(FIRST + 2) == decided[FIRST + 2]
    for record in learnt.models():
        assert {"y", b, c} <= set(record.classes)
        assert a not in record.classes


def test_a_model_may_know_classes_that_the_graph_never_had(learnt: Workspace) -> None:
    """It was returned to after the graph had been."""
    learnt.add(*slice_of(FIRST + 1))
    learnt.create_class("brand new", ids_of(FIRST + 1)[:5])
    learnt.update("warm")
    version = learnt.state.version
    learnt.rollback(1)
    learnt.rollback(version, model_only=True)
    row = next(row for row in learnt.classes() if row.name == "brand new")
    assert (row.support, row.first, row.known) == (0, None, True)
    learnt.rename_class("brand new", "newer")
    assert "newer" in learnt.state.model.classes
    learnt.retire_class("newer")
    assert next(row for row in learnt.classes() if row.name == "newer").retired
