"""Settings that are changed later, and tags: what they do at once, with the next update, and after a rollback."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch

from evergraph import EvolvingGraph, InputError
from evergraph.datasets import synthetic
from evergraph.datasets.tables import to_tables
from evergraph.detect import DOC, GDOC, AutoDetector, Detector
from evergraph.errors import NothingToDoError
from evergraph.names import described
from evergraph.nn import GCN, MLP, Custom, GraphSAGE
from evergraph.storage import records as storage_records
from evergraph.workspace import Workspace
from evergraph.workspace.store import SCHEMA

pytestmark = pytest.mark.usefixtures("one_thread")

GRAPH = synthetic(vertices=300, times=7, classes=4, new_classes=1, words=100, words_per_vertex=5, seed=2)
FIRST = 4


def slice_of(time: int) -> tuple[Any, Any]:
    return to_tables(GRAPH, time, time, labels=False)


def ids_of(time: int) -> list[int]:
    return GRAPH.window(time, time).ids.tolist()


def truth_of(time: int) -> list[str]:
    return GRAPH.window(time, time).labels.tolist()


@pytest.fixture(autouse=True, scope="module")
def _no_waiting_for_the_disk() -> Iterator[None]:
    with mock.patch.object(os, "fsync"), mock.patch.object(storage_records, "SYNCHRONOUS", "OFF"):
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, one_thread: None) -> Path:
    """A workspace whose newest slice has no label."""
    folder = tmp_path_factory.mktemp("made") / "ws"
    old = EvolvingGraph.build(*to_tables(GRAPH, last=FIRST - 1))
    options = {"model": MLP(hidden=8), "detector": GDOC(0.5), "history": 2, "steps": 10, "keep": 5}
    Workspace.create(folder, old, **options).add(*slice_of(FIRST))
    return folder


@pytest.fixture
def workspace(made: Path, tmp_path: Path) -> Workspace:
    return Workspace(shutil.copytree(made, tmp_path / "ws"))


def again(workspace: Workspace) -> Workspace:
    """The same, opened anew."""
    return Workspace(workspace.store.folder)


def rows_of(workspace: Workspace) -> dict[str, list[Any]]:
    with workspace.store.read() as records:
        return {table: records.select(table) for table in SCHEMA.tables}


# --- settings --------------------------------------------------------------------------------------------------------

CHANGES: list[tuple[dict[str, Any], bool]] = [  # and whether the next update starts anew
    ({"history": 3}, False),
    ({"history": "full"}, False),
    ({"history": "auto"}, False),
    ({"model": GCN(hidden=4)}, True),
    ({"model": "sage:hidden=4"}, True),
    ({"model": {"hidden": 4}}, True),
    ({"detector": {"threshold": 0.9}}, False),
    ({"detector": "gdoc:0.9"}, False),
    ({"detector": {"alpha": 3.0}}, False),
    ({"detector": "doc"}, True),
    ({"detector": "none"}, True),
    ({"detector": "energy"}, True),
    ({"detector": AutoDetector("budget:10")}, True),
    ({"steps": 3}, False),
    ({"lr": 0.01}, False),
    ({"inputs": "words"}, True),
    ({"inputs": "classes,words"}, True),
    ({"keep": 3}, False),
    ({"history": np.int64(1), "lr": np.float32(0.5), "keep": np.int64(3)}, False),
    ({"model": "gcn:hidden=4", "detector": "auto", "history": 1, "steps": 3, "lr": 0.01, "keep": 2}, True),
]


@pytest.mark.parametrize(("given", "anew"), CHANGES, ids=lambda value: str(value)[:40])
def test_every_change_can_be_predicted_with_and_updated(
    workspace: Workspace, given: dict[str, Any], anew: bool
) -> None:
    before, old = workspace.predict(), workspace.settings()
    outcome = workspace.set(**given)
    assert outcome.version == workspace.state.version == 4
    assert outcome.facts["changed"].keys() <= given.keys()
    workspace = again(workspace)
    settings = workspace.settings()
    assert settings == outcome.facts["settings"]
    assert {name for name in settings if settings[name] != old[name]} == outcome.facts["changed"].keys()
    assert workspace.log()[-1].command == "set"
    after = workspace.predict()
    if anew:  # until the update, the old model and detector decide
        assert "from random weights" in outcome.what
        assert after.column("best").to_pylist() == before.column("best").to_pylist()
        if "history" not in given:
            assert after == before
    workspace.label(ids_of(FIRST), truth_of(FIRST))
    done = workspace.update()
    assert (done.facts["restart"] == "cold") == anew
    workspace = again(workspace)
    assert workspace.settings() == settings
    assert workspace.state.settings.pending == {}
    learner = workspace.learner()
    assert json.loads(json.dumps(workspace.describe_model()["detector"])) == settings["detector"]
    assert (learner.steps, learner.lr) == (settings["steps"], settings["lr"])
    workspace.add(*slice_of(FIRST + 1))
    assert workspace.predict().num_rows == len(ids_of(FIRST + 1))
    workspace.label(ids_of(FIRST + 1), truth_of(FIRST + 1))
    workspace.update()  # the choice of the restart copes with a model of another kind before
    workspace.verify()


def test_a_threshold_applies_to_the_next_prediction(workspace: Workspace) -> None:
    flagged = []
    for threshold in (0.01, 0.5, 0.99):
        workspace.set(detector={"threshold": threshold})
        flagged.append(workspace.predict().column("class").to_pylist().count("unseen"))
    assert flagged == sorted(flagged)
    assert flagged[0] < flagged[-1]
    assert workspace.status().next_command != "update"  # nothing has to be trained


def test_a_new_model_is_that_of_a_new_workspace(workspace: Workspace, tmp_path: Path) -> None:
    """The update after a change decides as a workspace that was created with these settings."""
    workspace.set(model="sage:hidden=8", detector="energy", history=3)
    workspace.label(ids_of(FIRST), truth_of(FIRST))
    outcome = workspace.update("warm")  # there is nothing to continue
    assert "the model and the detector changed" in outcome.what
    other = Workspace.create(
        tmp_path / "other", workspace.graph, model=GraphSAGE(hidden=8), detector=again(workspace).learner().detector,
        history=3, steps=10,
    )  # fmt: skip
    tables = []
    for one in (workspace, other):
        one.add(*slice_of(FIRST + 1))
        tables.append(one.predict().drop_columns("model").to_pylist())
    assert tables[0] == tables[1]


def test_what_is_the_same_already_makes_no_version(workspace: Workspace) -> None:
    before = rows_of(workspace)
    for given in ({"keep": 5}, {"history": 2}, {"model": "mlp:hidden=8"}, {"detector": GDOC(0.5)}, {}):
        with pytest.raises(NothingToDoError, match=r"already|no setting is given"):
            workspace.set(**given)
    assert rows_of(workspace) == before


def test_what_is_changed_back_before_the_update_needs_no_new_model(workspace: Workspace) -> None:
    workspace.set(model="gcn", detector="auto")
    assert set(workspace.state.settings.pending) == {"model", "detector"}
    assert workspace.settings()["model"]["name"] == "gcn"
    workspace.set(model={"hidden": 99})  # of the changed model, not of the trained one
    assert workspace.settings()["model"] == {"name": "gcn", "hidden": 99, "layers": 2, "dropout": 0.5}
    assert workspace.status().next_command == "update"
    workspace.set(model=MLP(hidden=8), detector="gdoc:0.6")
    assert workspace.state.settings.pending == {}
    assert workspace.learner().detector == GDOC(0.6)
    assert workspace.status().next_command == "predict"
    with pytest.raises(NothingToDoError, match="no labels have arrived"):
        workspace.update()


def test_a_rollback_restores_the_settings(workspace: Workspace) -> None:
    old = workspace.settings()
    workspace.tag("before")
    workspace.set(history=1, model="gcn:hidden=4", detector="doc", keep=9)
    new = workspace.settings()
    workspace.rollback("before")
    assert again(workspace).settings() == old | {"keep": 9}
    assert workspace.state.settings.pending == {}
    workspace.rollback(4)
    assert again(workspace).settings() == new
    assert set(workspace.state.settings.pending) == {"model", "detector"}


def test_new_inputs_are_read_from_the_next_update_on(workspace: Workspace) -> None:
    assert "words" in workspace.status().inputs
    workspace.set(inputs="classes")
    assert "words" in again(workspace).status().inputs  # the model is still the old one
    assert workspace.status().next_command == "update"
    outcome = workspace.update("warm")
    assert outcome.facts["restart"] == "cold"
    assert "the inputs changed" in outcome.what
    assert again(workspace).status().inputs == ("classes",)
    vocabulary = workspace.learner().vocabulary_
    assert vocabulary is not None
    assert {block for block, _ in vocabulary.columns()} == {"classes"}
    workspace.rollback(2, model_only=True)
    assert "words" in workspace.status().inputs
    assert workspace.settings()["inputs"] == "auto"
    workspace.rollback(4)
    assert (workspace.status().inputs, workspace.settings()["inputs"]) == (("classes",), "classes")
    assert workspace.predict().num_rows
    workspace.set(inputs="words")
    workspace.set(inputs="classes")  # as it is trained: there is nothing left to do
    assert workspace.state.settings.pending == {}
    workspace.set(inputs=["words", "classes", "words"])
    assert again(workspace).settings()["inputs"] == "words,classes"
    with pytest.raises(NothingToDoError, match="inputs is words,classes already"):
        workspace.set(inputs="words, classes")
    workspace.update()
    assert again(workspace).learner().inputs == "words,classes"


def test_a_rollback_deletes_no_version_that_is_kept(workspace: Workspace) -> None:
    workspace.set(keep=2)
    workspace.set(keep=9)
    for steps in (1, 2, 3):
        workspace.set(steps=steps)
    kept = workspace.store.numbers
    assert 4 in kept
    workspace.rollback(3)  # with which 2 versions were kept
    assert workspace.store.numbers == [*kept, 8]
    workspace.rollback(4)
    assert again(workspace).settings()["keep"] == 9


def test_a_rollback_of_the_model_restores_its_threshold(workspace: Workspace) -> None:
    workspace.set(detector={"threshold": 0.9})
    workspace.rollback(2, model_only=True)
    assert workspace.learner().detector == GDOC(0.5)
    assert workspace.status().next_command == "predict"  # the weights are the same, so there is nothing to train
    with pytest.raises(NothingToDoError, match="the model of version 2 is the current one"):
        workspace.rollback(2, model_only=True)


def test_a_model_with_a_class_that_a_rollback_removed_can_be_trained(workspace: Workspace) -> None:
    workspace.label(ids_of(FIRST), ["new"] * len(ids_of(FIRST)))
    workspace.update("warm")
    workspace.rollback(2)
    workspace.rollback(4, model_only=True)
    workspace.update("warm")
    assert "new" in again(workspace).learner().classes_
    assert workspace.predict().num_rows


def test_only_the_model_of_an_earlier_version_leaves_history_and_keep(workspace: Workspace) -> None:
    workspace.set(model="gcn:hidden=4", history=1, keep=9)
    workspace.update()
    workspace.rollback(2, model_only=True)
    settings = again(workspace).settings()
    assert (settings["model"]["name"], settings["history"], settings["keep"]) == ("mlp", 1, 9)
    assert workspace.predict().num_rows


def test_classes_that_a_new_model_cannot_learn_are_named(workspace: Workspace) -> None:
    workspace.set(model="gcn:hidden=4", history=1)
    ids, names = np.array(ids_of(FIRST - 1)), np.array(truth_of(FIRST - 1), object)
    workspace.remove(ids[names == names[0]].tolist())
    outcome = workspace.update()
    assert outcome.facts["lost_classes"] == [names[0]]
    assert f"not known any more, because the history has no label of them: {names[0]}" in outcome.what
    assert names[0] not in workspace.learner().classes_
    assert workspace.predict().num_rows


def test_wrong_settings_are_refused_and_change_nothing(workspace: Workspace) -> None:
    before = rows_of(workspace)
    for given, match in [
        ({"keep": 1}, "keep is 1"),
        ({"keep": 2.5}, r"keep is 2\.5"),
        ({"keep": 2**40}, "keep is 1099511627776"),
        ({"history": 2**40}, "the history is 1099511627776"),
        ({"lr": float("inf")}, "lr is inf"),
        ({"lr": "high"}, "lr is 'high'"),
        ({"history": 0}, "the history is 0"),
        ({"history": "most"}, "the history is 'most'"),
        ({"steps": 0}, "steps is 0"),
        ({"lr": -1.0}, "lr is -1"),
        ({"model": "sagee"}, "there is no model 'sagee'"),
        ({"model": {"hops": 3}}, "the model mlp has no setting 'hops'"),
        ({"detector": {"most": 0.1}}, "the detector gdoc has no setting 'most'"),
        ({"detector": {"threshold": 7.0}}, "threshold is 7"),
        ({"keep": 4, "detector": "gdocc"}, "there is no detector 'gdocc'"),
        ({"inputs": "word"}, "there is no input 'word'"),
        ({"inputs": ""}, "there is no input ''"),
        ({"inputs": "words,numbers"}, "the inputs include numbers, but the graph has only words"),
    ]:
        with pytest.raises(InputError, match=match):
            workspace.set(**given)
    workspace.set(detector="energy")
    with pytest.raises(InputError, match=r"has no setting 'threshold'.* as in energy/fixed:0\.5"):
        workspace.set(detector={"threshold": 0.5})
    workspace.rollback(2)
    assert {name: rows for name, rows in rows_of(workspace).items() if name in ("tags", "labels")} == {
        name: rows for name, rows in before.items() if name in ("tags", "labels")
    }


class _Layer(torch.nn.Linear):
    """A module that no file can contain."""

    def __init__(self, inputs: int) -> None:
        super().__init__(inputs, 2)

    def forward(self, x: torch.Tensor, _: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return super().forward(x)


def test_the_settings_of_a_model_that_is_not_trained_yet_can_be_changed(tmp_path: Path) -> None:
    old = EvolvingGraph.build(*to_tables(GRAPH, last=FIRST - 1))
    workspace = Workspace.create(tmp_path / "ws", old, model=Custom(_Layer, 4), history=2, steps=1)
    workspace.set(model="gcn:hidden=4")
    workspace.set(model={"hidden": 8})
    assert workspace.settings()["model"] == described(GCN(hidden=8))


def test_what_another_process_sets_counts_for_the_process_that_created_the_workspace(tmp_path: Path) -> None:
    old = EvolvingGraph.build(*to_tables(GRAPH, last=FIRST - 1))
    workspace = Workspace.create(tmp_path / "ws", old, model=MLP(hidden=8), detector=GDOC(0.75), history=2, steps=1)
    again(workspace).set(detector={"threshold": 0.5})
    assert workspace.learner().detector == GDOC(0.5)
    workspace.set(detector={"alpha": 3.0}, steps=2)
    workspace.update("warm")
    assert again(workspace).learner().detector == GDOC(0.5, 3.0)


def test_a_detector_of_another_version_of_evergraph_can_be_replaced(tmp_path: Path) -> None:
    old = EvolvingGraph.build(*to_tables(GRAPH, last=FIRST))
    with mock.patch.object(AutoDetector, "version", 1):
        Workspace.create(tmp_path / "ws", old, model=MLP(hidden=8), detector=AutoDetector(), history=2, steps=1)
    workspace = Workspace(tmp_path / "ws")
    with pytest.raises(InputError, match="another version of auto"):
        workspace.learner()
    workspace.set(detector="auto")
    workspace.update()
    assert workspace.learner().detector == AutoDetector()


@dataclass(frozen=True)
class Mine(DOC):
    """A detector that no file can contain."""


def test_a_detector_of_your_own_is_refused_and_can_be_replaced(tmp_path: Path) -> None:
    old = EvolvingGraph.build(*to_tables(GRAPH, last=FIRST - 1))
    options: dict[str, Any] = {"model": MLP(hidden=8), "history": 2, "steps": 5}
    workspace = Workspace.create(tmp_path / "ws", old, detector=Mine(0.5), **options)
    with pytest.raises(InputError, match=r"your own \(Mine\).* create a new workspace with this detector"):
        workspace.set(detector=Mine(0.6))
    workspace.add(*slice_of(FIRST))
    workspace.set(detector="doc:0.7")
    assert workspace.predict().num_rows  # with the old one, which this object has
    with pytest.raises(InputError, match="your own"):
        Workspace(tmp_path / "ws").predict()
    workspace.update()
    detector: Detector | None = workspace.learner().detector
    assert detector == DOC(0.7)
    reopened = Workspace(tmp_path / "ws")
    reopened.label(ids_of(FIRST), truth_of(FIRST))
    reopened.update()  # the model before it is of another kind, and cannot be read
    assert reopened.learner().detector == DOC(0.7)


# --- tags ------------------------------------------------------------------------------------------------------------


def test_a_tagged_version_is_kept_until_the_tag_is_deleted(workspace: Workspace) -> None:
    workspace.set(keep=2)
    workspace.tag("good")
    labels, model = workspace.graph.labels.tolist(), workspace.state.model.number
    tagged = workspace.tags()["good"]
    workspace.label(ids_of(FIRST), truth_of(FIRST))
    workspace.update("warm")
    for number in range(10):
        workspace.create_class(f"new {number}", ids_of(FIRST)[number : number + 1])
        workspace.verify()
    head = workspace.state.version
    assert workspace.store.numbers == [tagged, head - 1, head]
    assert (workspace.status().kept, workspace.status().tags) == (head - 1, {"good": tagged})
    assert [(entry.version, entry.tags) for entry in workspace.log() if entry.tags] == [(tagged, ("good",))]
    with pytest.raises(InputError, match=rf"from {head - 1} to {head}, or a tag: good \({tagged}\)"):
        workspace.rollback(tagged + 1)
    workspace = again(workspace)
    workspace.rollback("good")
    assert workspace.graph.labels.tolist() == labels
    assert workspace.state.model.number == model
    assert workspace.predict().num_rows == len(ids_of(FIRST))
    assert workspace.tags() == {"good": tagged}  # a rollback does not change tags
    outcome = workspace.tag("good", delete=True)
    assert outcome.parts[-1] == f"version {tagged} is not kept any more"
    assert tagged not in workspace.store.numbers
    assert workspace.verify()["objects"] == len(list((workspace.store.folder / "objects").iterdir()))
    with pytest.raises(InputError, match="there is no tag 'good'"):
        workspace.rollback("good")


def test_tags_share_versions_and_take_tags_for_numbers(workspace: Workspace) -> None:
    workspace.tag("one", 1)
    workspace.tag("two", "one")
    workspace.tag("now")
    assert workspace.tags() == {"one": 1, "two": 1, "now": 4}
    before = rows_of(workspace)
    with pytest.raises(NothingToDoError, match="version 1 has the tag one already"):
        workspace.tag("one", 1)
    for act, match in [
        (lambda: workspace.tag("one", 2), r"version 1 has the tag one.* --delete"),
        (lambda: workspace.tag("x", 99), "version 99 does not exist, or is not kept any more"),
        (lambda: workspace.tag("x", "three"), "there is no tag 'three'"),
        (lambda: workspace.tag("x", delete=True), "there is no tag 'x'"),
        *((lambda name=name: workspace.tag(name), "a version cannot be named") for name in WRONG),
    ]:
        with pytest.raises(InputError, match=match):
            act()
    assert rows_of(workspace) == before
    workspace.tag("one", delete=True)
    assert workspace.tags() == {"two": 1, "now": 4}


WRONG = ["", "1", "12", "-x", " x", "x y", "x\n", "é", "\x1b[2J", "x/y", "a" * 65]


def test_removed_data_is_deleted_once_no_tag_needs_it(workspace: Workspace) -> None:
    """Segments and rows of a version between a tag and the oldest kept version are removed, those of the tag stay."""
    workspace.set(keep=2)
    workspace.tag("all")
    tagged = workspace.tags()["all"]
    for time in (FIRST + 1, FIRST + 2):
        workspace.add(*slice_of(time), drop_dangling=True)
        workspace.remove(ids_of(time)[:3])
    workspace.predict()
    with workspace.store.read() as records:
        segments = records.select("segments", "until IS NOT NULL")
        kept = workspace.store.numbers
        assert all(any(row.since <= number < row.until for number in kept) for row in segments)
    assert workspace.verify()["objects"] == len(list((workspace.store.folder / "objects").iterdir()))
    workspace.rollback("all")
    assert len(workspace.graph) == sum(len(ids_of(time)) for time in range(FIRST + 1))
    assert workspace.tags() == {"all": tagged}
