"""The hook of the training loop and the state of regularisers, with regularisers made for the tests."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from evergraph import EvolvingGraph, InputError, LifelongLearner, Task, names, tasks
from evergraph.datasets import synthetic
from evergraph.detect import DOC, Softmax
from evergraph.evaluation.configuration import Configuration, complete_settings, differences
from evergraph.graph.times import TimeAxis
from evergraph.learning.checkpoint import FORMAT, FORMAT_VERSION, MANIFEST
from evergraph.learning.data_parallel import DataParallel
from evergraph.learning.regularise import Hook, Lesson, Regulariser, State, gradients, old_part
from evergraph.learning.training import train
from evergraph.names import build, described, known, load, rebuilt
from evergraph.nn import MLP, Batch, GraphSAGE, GraphSAINT, JKNet, Model, Neighbours, Noise
from evergraph.nn.adam import Adam
from evergraph.nn.base import Draw
from evergraph.storage.checksummed import load_json
from tests.learning.test_learner import MODELS, growing

pytestmark = pytest.mark.usefixtures("one_thread")

GRAPH = synthetic(vertices=200, times=5, classes=3, new_classes=1, seed=1)
TASKS = list(tasks(GRAPH, 2, first=2))


@dataclass(frozen=True)
class Near(Regulariser):
    """Holds all weights near those of the previous task, and counts the tasks."""

    strength: float = 1.0

    def start(self, lesson: Lesson, state: State) -> Hook | None:  # noqa: ARG002
        if lesson.before is None:
            return None
        before = lesson.before

        def add(part: Batch, noise: Noise) -> None:
            for name, value in lesson.trained.items():
                penalty = self.strength * (old_part(value, before[name]) - before[name]).square().sum()
                penalty.backward()  # type: ignore[no-untyped-call]

        return add

    def finish(self, lesson: Lesson, state: State) -> State:  # noqa: ARG002
        return {"tasks": state.get("tasks", torch.zeros(())) + 1}


@dataclass(frozen=True)
class Recording(Regulariser):
    """Keeps what it is given."""

    lessons: list[tuple[Lesson, State]]

    def start(self, lesson: Lesson, state: State) -> Hook | None:
        self.lessons.append((lesson, dict(state)))
        return None

    def finish(self, lesson: Lesson, state: State) -> State:  # noqa: ARG002
        return {"sums": torch.stack([value.sum() for value in lesson.weights.values()])}


@dataclass(frozen=True)
class NeedsMemory(Near):
    """Needs older vertices."""

    requires_memory: ClassVar[bool] = True


def learner(regulariser: Regulariser | None, model: Model | None = None, **settings: Any) -> LifelongLearner:
    return LifelongLearner(model or GraphSAGE(hidden=4), Softmax(), steps=3, regulariser=regulariser, **settings)


# --- the hook --------------------------------------------------------------------------------------------------------


def setting() -> tuple[MLP, Batch, dict[str, torch.Tensor]]:
    model, nobody = MLP(layers=1, dropout=0.0), Neighbours.of(np.zeros(5, np.int32), np.zeros(0, np.int32))
    batch = Batch(torch.eye(4)[:, :3], nobody, 4, torch.tensor([0, 1, -1, 1]))
    return model, batch, model.parameters(3, 2, Draw(0))


def trained(hook: Hook | None, p: dict[str, torch.Tensor], batch: Batch, model: Model, steps: int = 4) -> list[float]:
    counts = torch.tensor([1, 2])
    return train(
        model, Softmax(), p, batch, counts, optimiser=Adam([*p.values()], 0.1), steps=steps, seed=(3, 1), hook=hook
    )


def test_training_with_a_penalty_is_that_of_torch() -> None:
    model, batch, p = setting()
    anchors = {name: value + 0.1 for name, value in p.items()}
    mine = {name: value.clone().requires_grad_() for name, value in p.items()}

    def add(part: Batch, noise: Noise) -> None:
        for name, value in p.items():
            (3 * (value - anchors[name]).square().sum()).backward()  # type: ignore[no-untyped-call]

    losses = trained(add, p, batch, model)
    adam, rows = torch.optim.Adam([*mine.values()], 0.1), batch.labelled
    for loss in losses:
        adam.zero_grad()
        logits = torch.as_tensor(batch.x)[rows] @ mine["0.weight"] + mine["0.bias"]
        of_batch = torch.nn.functional.cross_entropy(logits, batch.targets[rows])
        assert loss == pytest.approx(of_batch.item(), rel=1e-5)  # without the penalty
        (of_batch + 3 * sum((value - anchors[name]).square().sum() for name, value in mine.items())).backward()
        adam.step()
    for name, value in mine.items():
        torch.testing.assert_close(p[name], value.detach(), rtol=1e-4, atol=1e-6)


def test_the_hook_is_called_in_each_step_with_the_gradients_and_the_noise_of_the_loss() -> None:
    model, batch, _ = setting()
    model = MLP(hidden=50, dropout=0.5)
    p, called = model.parameters(3, 2, Draw(0)), []

    def see(part: Batch, noise: Noise) -> None:
        assert part is batch
        logits = model.forward(p, part, noise)[0][part.labelled]
        again = torch.nn.functional.cross_entropy(logits, part.targets[part.labelled])
        found = torch.autograd.grad(again, [*p.values()])
        for value, mine in zip(p.values(), found, strict=True):
            torch.testing.assert_close(value.grad, mine)
        called.append(again.item())

    assert trained(see, p, batch, model) == pytest.approx(called)
    assert len(called) == 4


def test_gradients_that_are_removed_leave_the_weights_as_they_were() -> None:
    model, batch, p = setting()
    before = {name: value.clone() for name, value in p.items()}

    def remove(part: Batch, noise: Noise) -> None:
        for value in p.values():
            value.grad = None

    trained(remove, p, batch, model)
    assert all(torch.equal(p[name], value) for name, value in before.items())


TRAINED = [model for model in MODELS if not model.solved]


@pytest.mark.parametrize("model", TRAINED, ids=lambda model: type(model).__name__)
def test_a_graph_of_operations_gives_the_same_gradients_again(model: Model) -> None:
    lessons: list[tuple[Lesson, State]] = []
    learner(Recording(lessons), model).adapt(TASKS[0])
    lesson, _ = lessons[0]
    assert isinstance(lesson.batch, Batch)
    leaves = lesson.leaves()
    logits = lesson.logits(lesson.batch, weights=leaves)
    slopes = [torch.ones_like(logits), logits.detach() ** 2, torch.ones_like(logits)]
    found = [gradients(logits, leaves, slope, again=True) for slope in slopes]
    alone = gradients(lesson.logits(lesson.batch, weights=leaves), leaves, slopes[1])
    for name in lesson.trained:
        assert torch.equal(found[0][name], found[2][name])
        torch.testing.assert_close(found[1][name], alone[name])
    assert any(value.abs().sum() > 0 for value in alone.values())


# --- what the learner gives and keeps --------------------------------------------------------------------------------


def test_a_lesson_has_the_weights_before_and_the_state_of_the_last_task() -> None:
    lessons: list[tuple[Lesson, State]] = []
    one = learner(Recording(lessons))
    known_before: list[int] = []
    for task in tasks(growing(vertices=200), 2, first=2):
        known_before.append(len(one.classes_))
        one.adapt(task)
        lesson, state = lessons[-1]
        assert lesson.weights is one.weights_
        assert lesson.seed == (0, len(lessons) - 1)
        assert lesson.kept == len(lesson.kept_times) == 0
        if len(lessons) == 1:
            assert (lesson.before, state) == (None, {})
        else:
            before = lessons[-2][0].weights
            assert lesson.before is before
            assert torch.equal(state["sums"], torch.stack([value.sum() for value in before.values()]))
    assert [lesson.classes for lesson, _ in lessons] == known_before
    assert known_before[0] == 0 < known_before[1] < known_before[-1]


def test_a_cold_restart_drops_the_state() -> None:
    lessons: list[tuple[Lesson, State]] = []
    one = learner(Recording(lessons), restart="cold")
    for task in TASKS:
        one.adapt(task)
    assert [(lesson.before, lesson.classes, state) for lesson, state in lessons] == [(None, 0, {})] * len(TASKS)
    assert one._regularised  # of the last task


def test_a_strong_penalty_holds_the_weights_and_new_rows_are_free() -> None:
    moved = []
    for strength in (0.0, 1e4):
        one = learner(Near(strength), lr=0.001).adapt(TASKS[0])
        assert one.weights_ is not None
        before = dict(one.weights_)
        one.adapt(TASKS[-1])
        change = [(old_part(one.weights_[name], value) - value).abs().sum() for name, value in before.items()]
        moved.append(float(sum(change)))
        assert one.weights_["0.self.weight"].shape[0] > before["0.self.weight"].shape[0]
    assert moved[1] < 0.7 * moved[0]


def test_all_weights_are_trained_although_most_words_are_not_in_the_window() -> None:
    graph = EvolvingGraph.build(
        {
            "id": range(6),
            "time": [0, 0, 1, 1, 2, 2],
            "label": ["a", "b"] * 3,
            "text": ["xx", "yy", "xx", "yy", "zz", "zz"],
        }
    )

    @dataclass(frozen=True)
    class Pull(Regulariser):
        def start(self, lesson: Lesson, state: State) -> Hook | None:  # noqa: ARG002
            def add(part: Batch, noise: Noise) -> None:
                for value in lesson.trained.values():
                    value.square().sum().backward()  # type: ignore[no-untyped-call]

            return add

    one = learner(Pull(), MLP(hidden=4)).adapt(Task(graph, 2, 1))
    assert one.weights_ is not None
    before, column = one.weights_["0.weight"].clone(), one.vocabulary_.names.index("yy")  # type: ignore[union-attr]
    one.adapt(Task(graph.relabel([2], ["a"]), 3, 1))  # a window of "zz" only
    assert not torch.equal(one.weights_["0.weight"][column], before[column])


def test_the_state_is_saved_and_another_regulariser_does_not_get_it(tmp_path: Path) -> None:
    one = learner(Near(0.5)).adapt(TASKS[0]).adapt(TASKS[1])
    one.save(tmp_path)
    assert load_json((tmp_path / MANIFEST).read_bytes(), FORMAT, FORMAT_VERSION)["regulariser"]["name"] == "Near"
    with pytest.raises(InputError, match=r"the regulariser is your own \(Near\).*load\(…, regulariser=…\)"):
        LifelongLearner.load(tmp_path)
    other = LifelongLearner.load(tmp_path, regulariser=Near(0.5))
    assert other.get_params() == one.get_params()
    assert other._regularised == {"tasks": torch.tensor(2.0)}
    for each in (one, other):
        each.adapt(TASKS[2])
    assert other._regularised == {"tasks": torch.tensor(3.0)}
    for name, value in (one.weights_ or {}).items():
        assert torch.equal((other.weights_ or {})[name], value)
    assert other.set_params(regulariser=Near(2.0))._regularised  # another strength
    assert not other.set_params(regulariser=None)._regularised
    assert "tasks" not in other.adapt(TASKS[2])._regularised


def test_learners_without_a_regulariser_are_saved_and_older_ones_are_read(tmp_path: Path) -> None:
    one = learner(None).adapt(TASKS[0])
    one.save(tmp_path)
    assert LifelongLearner.load(tmp_path).regulariser is None
    from evergraph.learning.checkpoint import pack, tensors_from, unpack

    content, data = pack(one)
    del content["regulariser"]
    content = json.loads(json.dumps(content))
    assert unpack(LifelongLearner, content, tensors_from(data)).regulariser is None


def test_an_error_of_a_regulariser_leaves_the_learner_as_it_was() -> None:
    @dataclass(frozen=True)
    class Failing(Near):
        def finish(self, lesson: Lesson, state: State) -> State:
            if lesson.before is not None:
                raise ValueError("at the second task")
            return super().finish(lesson, state)

    one = learner(Failing()).adapt(TASKS[0])
    before, state = one.weights_, one._regularised
    values = {name: value.clone() for name, value in (before or {}).items()}
    with pytest.raises(ValueError, match="second"):
        one.adapt(TASKS[1])
    assert one.weights_ is before
    assert one._regularised is state
    assert one.tasks_ == 1
    assert all(torch.equal((before or {})[name], value) for name, value in values.items())


def test_an_auxiliary_model_is_trained_without_it() -> None:
    from evergraph.detect import PostHoc
    from evergraph_baselines.scores import AuxiliaryModel

    found = []
    for regulariser in (None, Near(100.0)):
        one = LifelongLearner(GraphSAGE(hidden=4), PostHoc(AuxiliaryModel()), steps=3, regulariser=regulariser)
        for task in TASKS[:2]:
            one.adapt(task)
        found.append((one.auxiliary_weights_ or {}, one.weights_ or {}))
    (plain, first), (auxiliary, second) = found
    for name, value in plain.items():
        torch.testing.assert_close(auxiliary[name], value)
    assert any(not torch.equal(second[name], value) for name, value in first.items())


@pytest.mark.parametrize("model", [GraphSAGE(hidden=4), GraphSAINT(JKNet(hidden=4), size=60)], ids=["sage", "saint"])
def test_mini_batches_have_the_parts_of_one_epoch(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    from evergraph.learning.memory_limit import Plan

    make = Plan.of

    def small(*arguments: Any, **more: Any) -> Plan:
        from dataclasses import replace

        return replace(make(*arguments, **more), whole=False, batch=16, vertices=60)

    monkeypatch.setattr(Plan, "of", small)
    lessons: list[tuple[Lesson, State]] = []
    one = learner(Recording(lessons), model, memory_limit="100GB").adapt(TASKS[0])
    lesson, _ = lessons[0]
    parts = list(lesson.parts(100))
    assert len(parts) == lesson.batch.per_epoch > 1  # type: ignore[union-attr]
    assert len(list(lesson.parts(1))) == 1
    if isinstance(model, GraphSAGE):
        assert sum(len(part.labelled) for part in parts) == int(lesson.counts.sum())
    one.set_params(regulariser=Near(1.0)).adapt(TASKS[1])
    assert one.losses_


# --- what is refused, and settings -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"regulariser": "ewc"}, "regulariser is 'ewc'.*Regulariser"),
        ({"regulariser": Near, "model": None}, "Pass a Regulariser"),
        ({"regulariser": Near(), "trainer": DataParallel(2)}, "several workers cannot train with a regulariser"),
        ({"regulariser": NeedsMemory()}, r"older than the window\. Set memory="),
    ],
)
def test_what_cannot_work_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        LifelongLearner(**settings)
    with pytest.raises(InputError, match=message):
        LifelongLearner().set_params(**settings)


def test_a_state_of_other_weights_is_refused() -> None:
    with pytest.raises(InputError, match=r"shape \(3,\) where a parameter has \(2,\)"):
        old_part(torch.zeros(2), torch.zeros(3))
    with pytest.raises(InputError, match="shape"):
        old_part(torch.zeros(2, 2), torch.zeros(2))


def test_a_configuration_describes_its_regulariser_and_old_ones_had_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(names.REGULARISERS, "near", f"{__name__}:Near")
    assert "near" in known("regulariser")
    assert load("regulariser", "near") is Near
    assert build("regulariser", "near:2") == Near(2.0)
    two, one = (Configuration(regulariser=part).described(TimeAxis()) for part in (Near(2.0), None))
    assert two["regulariser"] == described(Near(2.0)) == {"name": "near", "strength": 2.0}
    assert rebuilt(json.loads(json.dumps(two["regulariser"])), "regulariser") == Near(2.0)
    assert one["regulariser"] is None
    old = {name: value for name, value in one.items() if name != "regulariser"}
    assert complete_settings(old)["regulariser"] is None
    assert differences(old, one) == ""
    assert differences(old, two) == "regulariser is not set there and near here"
    assert Configuration(regulariser=Near(2.0)).learner(0).regulariser == Near(2.0)


def test_settings_files_and_the_command_line_name_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: Callable[..., tuple[int, str, str]]
) -> None:
    from evergraph.evaluation.settings_file import parse_settings, read_settings, write_settings

    monkeypatch.setitem(names.REGULARISERS, "near", f"{__name__}:Near")
    write_settings(tmp_path / "settings.json", Configuration(regulariser=Near(2.0)), {})
    assert read_settings(tmp_path / "settings.json")["regulariser"] == Near(2.0)
    for value, wanted in (("near:3", Near(3.0)), (None, None), ({"name": "near"}, Near())):
        content = {"format": "evergraph settings", "format_version": 1, "settings": {"regulariser": value}}
        assert parse_settings(content)["regulariser"] == wanted
    fast = ("--steps", 2, "--first", 5, "--history", 1, "--hidden", 4, "--detector", "none", "--jobs", 1, "--quiet")
    code, out, _ = command("run", "synthetic", "--regulariser", "near:0.5", *fast, "--json")
    assert code == 0
    assert json.loads(out)["configuration"]["regulariser"] == {"name": "near", "strength": 0.5}
    code, _, err = command("run", "synthetic", "--regulariser", "nearer", *fast)
    assert code == 2
    assert "there is no regulariser 'nearer' (did you mean 'near'?)" in err


def test_without_names_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evergraph.names._plugins", dict)
    with pytest.raises(InputError, match=r"no regulariser 'ewc'\. Install a package that registers one"):
        build("regulariser", "ewc")


def test_detectors_with_other_losses_have_theirs() -> None:
    lessons: list[tuple[Lesson, State]] = []
    one = LifelongLearner(MLP(layers=1), DOC(), steps=1, regulariser=Recording(lessons)).adapt(TASKS[0])
    (lesson, _) = lessons[0]
    assert isinstance(lesson.batch, Batch)
    logits = lesson.logits(lesson.batch)
    targets = lesson.batch.targets[lesson.batch.labelled]
    wanted = DOC().loss(logits, targets, lesson.counts)
    torch.testing.assert_close(lesson.loss(lesson.batch), wanted)
    assert one.tasks_ == 1
