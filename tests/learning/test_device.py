from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from evergraph.datasets import synthetic
from evergraph.detect import Softmax
from evergraph.errors import InputError
from evergraph.evaluation.configuration import TRAINING_SETTINGS, Configuration
from evergraph.graph.times import TimeAxis
from evergraph.learning.learner import LifelongLearner
from evergraph.nn import MLP
from evergraph.nn.device import choose_device, devices_here
from evergraph.workspace import Workspace

ROOT = Path(__file__).parents[2]
MISSING = f"cuda:{torch.cuda.device_count()}"
Command = Callable[..., tuple[int, str, str]]


def test_all_models_and_detectors_and_a_workspace_compute_on_another_device_than_the_cpu() -> None:
    # In a process of its own, because torch registers the device for good.
    found = subprocess.run(
        [sys.executable, "-m", "tests.other_device"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr[-3000:]
    assert found.stdout.count("same ") == 17


@pytest.mark.parametrize("device", [MISSING, "abacus", "cpu:x"])
def test_a_device_that_is_not_there_is_refused(device: str) -> None:
    for use in (LifelongLearner, Configuration):
        with pytest.raises(InputError, match=rf"torch cannot compute on the device '{device}' here\. Use one of: cpu"):
            use(device=device)


def test_auto_is_a_gpu_if_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert choose_device("auto") == "cuda"
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert choose_device("auto") == "cpu"
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert devices_here() == ["cpu", "cuda:0", "cuda:1"]


def test_the_device_is_not_part_of_what_identifies_a_result() -> None:
    one, other = Configuration(device="cpu"), Configuration(device="cpu:0")
    assert one == other
    assert one.described(TimeAxis()) == other.described(TimeAxis())
    assert "device" not in one.described(TimeAxis())
    assert "device" not in TRAINING_SETTINGS
    assert other.learner(0).device == "cpu:0"


def test_a_workspace_does_not_store_the_device(tmp_path: Path) -> None:
    graph = synthetic(vertices=200, times=5, classes=3, new_classes=1, seed=1)
    made = Workspace.create(
        tmp_path / "ws", graph, model=MLP(hidden=2), detector=Softmax(), history=2, steps=1, device="cpu:0"
    )
    assert made.learner().device == "cpu:0"
    assert Workspace(tmp_path / "ws").learner().device == "cpu"
    assert made.describe_model()["settings"]["device"] == "cpu"


@pytest.mark.parametrize(
    "words",
    [
        ("run", "metamath"),
        ("compare", "metamath", "--out", "OUT"),
        ("ws", "init", "OUT", "--graph", "metamath"),
        ("ws", "predict", "WS"),
        ("ws", "update", "WS"),
    ],
    ids=" ".join,
)
def test_commands_refuse_a_device_that_is_not_there_before_they_begin(
    command: Command, tmp_path: Path, words: tuple[str, ...]
) -> None:
    graph = synthetic(vertices=200, times=5, classes=3, new_classes=1, seed=1)
    Workspace.create(tmp_path / "WS", graph, model=MLP(hidden=2), detector=Softmax(), history=2, steps=1)
    code, out, err = command(
        *(str(tmp_path / word) if word in ("OUT", "WS") else word for word in words), "--device", MISSING
    )
    assert (code, out) == (2, "")
    assert f"torch cannot compute on the device '{MISSING}' here" in err
    assert not (tmp_path / "OUT").exists()
    assert Workspace(tmp_path / "WS").state.version == 1


def test_commands_take_a_device(command: Command, tmp_path: Path) -> None:
    synthetic(vertices=200, times=5, classes=3, new_classes=1, seed=1).save(tmp_path / "graph")
    for device in ("auto", "cpu"):
        code, _, err = command(
            *("run", tmp_path / "graph", "--steps", 1, "--device", device, "--out", tmp_path / "run", "--quiet")
        )
        assert code == 0, err  # the second continues the first
