"""Save and load a learner: same numbers, damage is reported, and a failure loses nothing."""

from __future__ import annotations

import errno
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load as tensors_from
from safetensors.torch import save as tensors_to

from evergraph import EvergraphError, EvolvingGraph, InputError, LifelongLearner, Task, tasks
from evergraph.datasets import synthetic
from evergraph.detect import DOC, GDOC, AutoDetector, PostHoc, Softmax
from evergraph.detect.scores import Energy, Relative
from evergraph.errors import DamagedLearnerError
from evergraph.learning import checkpoint
from evergraph.learning.checkpoint import MANIFEST, pack, unpack
from evergraph.nn import GAT, SGC, GraphSAGE, GraphSAINT, JKNet, Model, Ridge
from evergraph.storage.checksummed import dump_json
from evergraph_baselines.average import AverageDetector
from tests.faults import Faults

GRAPH = synthetic(vertices=200, times=5, classes=3, new_classes=1, seed=1)
TASKS = list(tasks(GRAPH, 2, first=2))


def trained(model: Model | None = None, detector: Any = None, upto: int = 1, **settings: Any) -> LifelongLearner:
    learner = LifelongLearner(model or GraphSAGE(hidden=4), detector, steps=3, **settings)
    for task in TASKS[:upto]:
        learner.adapt(task)
    return learner


@pytest.mark.parametrize(
    ("model", "detector"),
    [
        (GraphSAGE(hidden=4), GDOC(0.6, alpha=2.0)),
        (GAT(hidden=2, heads=2, out_heads=2), DOC()),
        (SGC(), None),
        (GraphSAGE(hidden=4), AutoDetector()),
        (GraphSAGE(hidden=4), AverageDetector()),
        (SGC(), PostHoc(Relative(Energy()))),
        (GraphSAINT(JKNet(hidden=4), sampler="node", size=50), None),
        (Ridge(width=16, discount=0.9), GDOC(0.6, alpha=2.0)),
        (Ridge(width=16, periods=2), AutoDetector()),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_loaded_learner_goes_on_as_if_nothing_had_happened(tmp_path: Path, model: Model, detector: Any) -> None:
    learner = trained(model, detector)
    learner.save(tmp_path / "learner")
    loaded = LifelongLearner.load(tmp_path / "learner")
    assert loaded.get_params() == learner.get_params() | {"detector": learner.detector_.detector}
    assert loaded.classes_ == learner.classes_
    for task in TASKS:
        if task is not TASKS[0]:
            learner.adapt(task)
            loaded.adapt(task)
        one, two = learner.predict(task), loaded.predict(task)
        assert one.classes.tolist() == two.classes.tolist()
        np.testing.assert_array_equal(one.score, two.score)
    assert loaded.losses_ == learner.losses_
    assert {entry.name.split("-")[0] for entry in (tmp_path / "learner").iterdir()} == {
        ".lock",
        "learner.json",
        "weights",
    }


def test_saving_again_replaces_what_was_there(tmp_path: Path) -> None:
    learner = trained()
    learner.save(tmp_path)
    learner.adapt(TASKS[1]).save(tmp_path)
    assert LifelongLearner.load(tmp_path).time_ == TASKS[1].time
    assert len(list(tmp_path.glob("weights-*"))) == 1


def test_a_learner_with_your_own_module_is_loaded_with_the_module(tmp_path: Path) -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(3, 4)

        def forward(self, x: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
            return self.layer(x)

    features = np.random.default_rng(0).random((6, 3)).astype(np.float32)
    graph = EvolvingGraph.build(
        {"id": range(6), "time": [0] * 5 + [1], "label": list("xyxyxx")}, [[0, 1]], features=features
    )
    task = Task(graph, 1, 1)
    learner = LifelongLearner(Net(), steps=3).adapt(task)
    learner.save(tmp_path)
    with pytest.raises(InputError, match=r"your own \(.*Net\).*model="):
        LifelongLearner.load(tmp_path)
    loaded = LifelongLearner.load(tmp_path, model=Net())
    np.testing.assert_array_equal(loaded.predict(task).score, learner.predict(task).score)


def test_damage_is_reported(tmp_path: Path) -> None:
    trained().save(tmp_path)
    path, (weights,) = tmp_path / MANIFEST, tmp_path.glob("weights-*")
    good, data = path.read_text(), weights.read_bytes()
    sealed = json.loads(good)

    def refused(message: str) -> None:
        with pytest.raises(DamagedLearnerError, match=message) as error:
            LifelongLearner.load(tmp_path)
        assert re.search(r"\. [A-Z].*\.$", str(error.value))

    weights.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    refused("the weights are not those that were saved")
    weights.unlink()
    refused("the weights cannot be read")
    weights.write_bytes(data)
    path.write_text(json.dumps(sealed | {"content": sealed["content"].replace('"steps": 3', '"steps": 4')}))
    refused("the contents are not those that were saved")
    path.write_text(
        json.dumps(sealed | {"content": sealed["content"].replace('"format_version": 1', '"format_version": 2')})
    )
    refused("format version 2, newer than 1.*Update Evergraph")
    path.write_text(
        json.dumps(sealed | {"content": sealed["content"].replace('"format_version": 1', '"format_version": "x"')})
    )
    refused("not the file of an Evergraph learner")
    bare = {key: value for key, value in json.loads(sealed["content"]).items() if key != "classes"}
    path.write_bytes(dump_json(bare))
    refused("missing or invalid.*classes")
    for text in ("", "{}", "[1]", '{"content": "{}"}', '{"content": 3}', '{"content": "[]"}', good[:-20]):
        path.write_text(text)
        refused("not the file of an Evergraph learner|cannot be read")
    path.write_text(good)
    assert LifelongLearner.load(tmp_path).time_ == TASKS[0].time


Edit = Callable[[dict[str, Any], dict[str, torch.Tensor]], object]
EDITS: dict[str, Edit] = {
    "duplicate blocks": lambda content, _: content["vocabulary"]["blocks"].append("words"),
    "no blocks": lambda content, _: content["vocabulary"].update(blocks=[], runs=[]),
    "unread that is no block": lambda content, _: content["vocabulary"].update(unread=["encoder"]),
    "nothing read": lambda content, _: content["vocabulary"].update(unread=["classes", "words"]),
    "classes in another order": lambda content, _: rename_classes(content, lambda names: names[::-1]),
    "a class by name": lambda content, _: rename_classes(content, lambda names: ["x", *names[1:]]),
    "an unknown text mode": lambda content, _: content["vocabulary"].update(text="future"),
    "gain of words": lambda content, _: content.update(block_gains={"words": [3, 2, 1]}),
    "more right than there are": lambda content, _: content.update(block_gains={"classes": [3, 4, 1]}),
    "fewer right than none": lambda content, _: content.update(block_gains={"classes": [3, 2, -1]}),
    "gain of fewer vertices than none": lambda content, _: content.update(block_gains={"encoder": [-1, -1, -1]}),
    "a weight that is no number": lambda _, tensors: tensors["stacking/weights"].fill_(math.nan),
    "a weight out of bounds": lambda _, tensors: tensors["stacking/weights"].fill_(0.0),
    "infinite precision": lambda _, tensors: tensors["stacking/precision"].fill_(math.inf),
    "a negative share": lambda _, tensors: tensors["stacking/prior"].neg_(),
    "negative shares of pairs": lambda _, tensors: tensors["stacking/follows"].neg_(),
    "another shape": lambda _, tensors: tensors.update({"stacking/prior": torch.zeros(1)}),
}


def rename_classes(content: dict[str, Any], change: Callable[[list[str]], list[str]]) -> None:
    runs = content["vocabulary"]["runs"]
    runs[:] = [(block, change(list(names)) if block == "classes" else names) for block, names in runs]


@pytest.mark.parametrize("name", EDITS)
def test_an_edited_learner_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    content, data = pack(trained(inputs="words,classes"))
    content, tensors = json.loads(json.dumps(content)), tensors_from(data)
    for edited in (False, True):
        if edited:
            EDITS[name](content, tensors)
        packed = content, tensors_to(tensors)
        monkeypatch.setattr(checkpoint, "pack", lambda _, packed=packed: packed)
        checkpoint.save(LifelongLearner(), tmp_path / str(edited))
    assert LifelongLearner.load(tmp_path / "False").stacking_ is not None
    with pytest.raises(DamagedLearnerError, match=r"invalid|the columns of the classes"):
        LifelongLearner.load(tmp_path / "True")


def test_more_columns_of_classes_than_classes_are_refused() -> None:
    vocabulary = {"blocks": ["classes"], "dense": 0, "runs": [["classes", ["0", "1", "2"]]], "text": "past"}
    assert checkpoint.unpack_vocabulary({"vocabulary": vocabulary, "classes": ["a", "b", "c", "d"]}).width == 3
    with pytest.raises(ValueError, match="the columns of the classes"):
        checkpoint.unpack_vocabulary({"vocabulary": vocabulary, "classes": ["a", "b"]})


def test_a_folder_without_a_learner(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="contains no learner"):
        LifelongLearner.load(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="this is a file"):
        trained().save(tmp_path / "file")
    with pytest.raises(EvergraphError, match="nothing to save"):
        LifelongLearner().save(tmp_path)


@pytest.mark.parametrize("restart", ["warm", "once"])
def test_a_full_disk_at_any_call_leaves_the_learner_that_was_there(tmp_path: Path, restart: Any) -> None:
    def fail() -> None:
        raise OSError(errno.ENOSPC, "no space left")

    # Weights that change, and weights that do not, whose file is the one in force.
    old = trained(restart=restart)
    new = trained(upto=2, restart=restart)
    failures = 0
    for at in range(1, 200):
        folder = tmp_path / str(at)
        old.save(folder)
        with Faults(at, fail) as counted:
            try:
                new.save(folder)
                told = ""
            except EvergraphError as error:
                told = str(error)
        found = LifelongLearner.load(folder).time_
        assert found in (old.time_, new.time_)
        if told:
            failures += 1
            saved = "is saved, but the disk did not confirm it" in told
            assert saved or "could not be saved (no space left). The folder is unchanged" in told
            assert found == (new.time_ if saved else old.time_)
        else:
            assert found == new.time_
        # And the next save works.
        new.save(folder)
        assert LifelongLearner.load(folder).time_ == new.time_
        assert len(list(folder.glob("weights-*"))) == 1
        if counted.count < at:
            break
    assert failures >= 4


def test_nothing_is_pickled(tmp_path: Path) -> None:
    trained(detector=GDOC()).save(tmp_path)
    (weights,) = tmp_path.glob("weights-*")
    header = int.from_bytes(weights.read_bytes()[:8], "little")
    assert set(json.loads(weights.read_bytes()[8 : 8 + header])) >= {"weights/0.self.weight", "detector/sd"}


def test_settings_that_json_does_not_know_are_saved_as_plain_numbers(tmp_path: Path) -> None:
    learner = trained(detector=GDOC(np.float32(0.5), alpha=math.inf), lr=np.float64(0.01))
    learner.save(tmp_path)
    loaded = LifelongLearner.load(tmp_path)
    assert loaded.detector == GDOC(0.5)
    assert loaded.lr == 0.01


def test_a_learner_with_your_own_detector_is_loaded_with_the_detector(tmp_path: Path) -> None:
    class Own(GDOC):
        pass

    trained(detector=Own(0.6)).save(tmp_path)
    with pytest.raises(InputError, match=r"the detector is your own \(.*Own\).*detector="):
        LifelongLearner.load(tmp_path)
    assert LifelongLearner.load(tmp_path, detector=Own(0.6)).detector == Own(0.6)


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    trained().save(tmp_path)
    for other in (SGC(), GraphSAGE(hidden=8)):
        with pytest.raises(InputError, match="the saved weights are not those of"):
            LifelongLearner.load(tmp_path, model=other)
    assert LifelongLearner.load(tmp_path, device="cpu").time_ == TASKS[0].time


def test_a_learner_of_version_0_1_is_read() -> None:
    """It wrote null for no detector, and "second" for the auxiliary model."""
    content, tensors = pack(trained(SGC(), Softmax()))
    assert unpack(LifelongLearner, content | {"detector": None}, tensors_from(tensors)).detector == Softmax()
    learner = trained(GraphSAGE(hidden=4), AverageDetector())
    content, data = pack(learner)
    content["second_lr"] = content.pop("auxiliary_lr")
    old = {name.replace("auxiliary/", "second/"): value for name, value in tensors_from(data).items()}
    read = unpack(LifelongLearner, content, old)
    assert read.auxiliary_lr_ == learner.auxiliary_lr_
    assert all(torch.equal(value, read.auxiliary_weights_[name]) for name, value in learner.auxiliary_weights_.items())  # type: ignore[index,union-attr]


@pytest.mark.parametrize("dense", [False, True], ids=["words", "dense"])
def test_the_vocabulary_of_version_0_1_is_read(dense: bool) -> None:
    """It read either words or dense features without names, and had no setting for it."""
    graph = GRAPH
    if dense:
        vertices = {"id": range(60), "time": np.arange(60) // 20, "label": ["x", "y"] * 30}
        graph = EvolvingGraph.build(vertices, features=np.random.default_rng(0).random((60, 3)).astype(np.float32))
    first, second = (Task(graph, time, 1) for time in (1, 2))
    inputs = "numbers" if dense else "words"
    learner = LifelongLearner(GraphSAGE(hidden=4), Softmax(), steps=3, inputs=inputs).adapt(first)
    assert learner.vocabulary_ is not None
    content, data = pack(learner)
    names = None if dense else list(learner.vocabulary_.names)
    content["vocabulary"] = {"names": names, "width": learner.vocabulary_.width, "text": "past"}
    del content["settings"]["inputs"], content["block_gains"]
    read = unpack(LifelongLearner, content, tensors_from(data))
    assert (read.inputs, read.vocabulary_) == (inputs, learner.vocabulary_)
    np.testing.assert_array_equal(read.predict(first).score, learner.predict(first).score)
    assert read.adapt(second).losses_ == learner.adapt(second).losses_
