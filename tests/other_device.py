"""A second device on a machine without one: ``python -m tests.other_device`` trains on it and prints what failed.

The CPU computes, but tensors of this device must be moved by hand, as those of a GPU: an operation that gets tensors of
both devices fails, and so does ``numpy()``. It needs a process of its own, because torch registers a device for good.
"""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from evergraph import LifelongLearner, Workspace, tasks
from evergraph.datasets import synthetic
from evergraph.evaluation.configuration import Configuration
from evergraph.evaluation.replay import record, replay
from evergraph.names import build_detector, build_model
from evergraph.nn import Custom

MODELS = ("sage", "gat", "gcn", "sgc", "jknet", "saint", "saint:normalise=true", "mlp", "most-frequent", "custom")
DETECTORS = ("auto", "none", "gdoc", "doc:alpha=3", "energy/conformal", "energy/budget", "relative-energy")


class Other(Tensor):
    """A tensor of the other device, which keeps one of the CPU."""

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> Other:
        dense = inner.layout == torch.strided
        placed = {"strides": inner.stride(), "storage_offset": inner.storage_offset()} if dense else {}
        made = Tensor._make_wrapper_subclass(cls, inner.shape, **placed, dtype=inner.dtype, device="other:0")  # type: ignore[attr-defined]
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return compute(func, args, kwargs or {})


def compute(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Compute on the CPU; refuse tensors of both devices, except for single numbers and copies."""
    name, given, device = func.overloadpacket.__name__, tree_leaves((args, kwargs)), kwargs.get("device")
    here = any(isinstance(value, Tensor) and not isinstance(value, Other) and value.dim() for value in given)
    there = any(isinstance(value, Other) for value in given)
    if here and there and name not in ("_to_copy", "copy_"):
        raise RuntimeError(f"{name} gets tensors of two devices")
    args_here, kwargs_here = (
        tree_map(lambda value: value.inner if isinstance(value, Other) else value, part) for part in (args, kwargs)
    )
    found = func(*args_here, **kwargs_here | ({} if device is None else {"device": "cpu"}))
    if name.endswith("_"):  # in place
        return args[0]
    wrapped = there if device is None else torch.device(device).type == "other"
    return tree_map(lambda value: Other(value) if wrapped and isinstance(value, Tensor) else value, found)


class Sum(torch.nn.Module):
    """A module with buffers."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        # Without a bias, whose gradient would be nothing but rounding, which Adam enlarges.
        self.inner, self.norm = torch.nn.Linear(inputs, 4, bias=False), torch.nn.BatchNorm1d(4)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.norm(self.inner(x))
        return h.index_add(0, edge_index[1], h[edge_index[0]])


class Operations(TorchDispatchMode):
    """Makes new tensors on the other device."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return compute(func, args, kwargs or {})


class Functions(TorchFunctionMode):
    """Replaces two functions that torch does not pass on as operations."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func is torch.tensor and (device := kwargs.pop("device", None)) is not None:
            return func(*args, **kwargs).to(device)
        if func is Tensor.tolist and isinstance(args[0], Other):
            return args[0].inner.tolist()
        return func(*args, **kwargs)


def learn(model: str, detector: str, device: str) -> Any:
    """Return the decisions on the last task after training on two."""
    chosen = Custom(Sum) if model == "custom" else build_model(model)
    learner = LifelongLearner(
        chosen, build_detector(detector), steps=3, kernels="torch", device=device, inputs="words,classes"
    )
    for task in list(tasks(GRAPH, history=3))[-2:]:
        decisions = learner.adapt(task).predict(task)
    if model != "most-frequent":
        learner.explain(task, [0])
    with tempfile.TemporaryDirectory() as folder:
        learner.save(folder)
        again = LifelongLearner.load(folder, model=chosen, device=device).predict(task)
    assert np.array_equal(again.score, decisions.score)
    return decisions


def work(device: str) -> Any:
    """Return the decisions of a workspace that another device continues."""
    new = GRAPH.ids[GRAPH.times == GRAPH.last_time]
    unlabelled = GRAPH.relabel(new, [None] * len(new))
    with tempfile.TemporaryDirectory() as folder:
        Workspace.create(Path(folder) / "ws", unlabelled, history=3, steps=3, device=device)
        workspace = Workspace(Path(folder) / "ws", device=device)
        workspace.predict()
        workspace.label(new, GRAPH.window(GRAPH.last_time, GRAPH.last_time).labels.tolist())
        workspace.update("warm")
        stored = Workspace(Path(folder) / "ws")
        assert stored.describe_model()["settings"]["device"] == "cpu"
        assert {str(value.device) for value in (stored.learner().weights_ or {}).values()} == {"cpu"}
        return workspace.models()[-1].number


def main() -> None:
    """Try all models with one detector, and all detectors with one model; then a workspace."""
    pairs = dict.fromkeys([*itertools.product(MODELS, ("none",)), *itertools.product(("sage",), DETECTORS)])
    for model, detector in pairs:
        expected, found = (learn(model, detector, device) for device in ("cpu", "other"))
        # The loss is compiled on a CPU only, so sums of floats differ.
        np.testing.assert_allclose(found.score, expected.score, rtol=1e-3, atol=1e-4, err_msg=f"{model} {detector}")
        assert (found.best == expected.best).mean() > 0.98, (model, detector)
        print("same", model, detector, flush=True)  # noqa: T201
    for device in ("cpu", "other"):
        with tempfile.TemporaryDirectory() as folder:
            configuration = Configuration(detector=build_detector("none"), history=3, steps=3, device=device)
            recording = record(configuration, GRAPH, 0, Path(folder) / "one")
            replay(recording, GRAPH, build_detector("auto"))
    assert work("other") == 2
    print("same workspace")  # noqa: T201


if __name__ == "__main__":
    torch.set_num_threads(1)
    _setup_privateuseone_for_python_backend("other")
    GRAPH = synthetic(vertices=300, times=6, classes=4, new_classes=1, seed=1)
    with Operations(), Functions():
        main()
