"""The auxiliary model: trained with another loss and saved with the model, which it does not change."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from evergraph import InputError, LifelongLearner, Workspace
from evergraph.datasets import synthetic
from evergraph.detect import DOC, GDOC, Decision, Detector, Outputs, PostHoc, Requirements, Softmax, check_detector
from evergraph.detect.scores import MSP, Energy, Relative, Score
from evergraph.detect.thresholds import Fixed
from evergraph.learning.task import Task, tasks
from evergraph.names import described, rebuilt
from evergraph.nn import Custom, GraphSAGE, GraphSAINT, MostFrequent
from evergraph_baselines.average import Average, AverageDetector, Propagated
from evergraph_baselines.scores import AuxiliaryModel

pytestmark = pytest.mark.usefixtures("one_thread")

GRAPH = synthetic(vertices=300, times=7, classes=4, new_classes=2, words=120, words_per_vertex=5, seed=3)
WATCHED = PostHoc(AuxiliaryModel())


def learner(detector: Detector | None, **how: Any) -> LifelongLearner:
    return LifelongLearner(GraphSAGE(hidden=8), detector, **{"steps": 4, "lr": 0.02, "inputs": "words", **how})


def lived(one: LifelongLearner, until: int = 4, **how: Any) -> list[Task]:
    """Take it through some tasks."""
    found = []
    for task in tasks(GRAPH, 2, first=3, **how):
        if task.time <= until:
            one.adapt(task)
            found.append(task)
    return found


def alike(one: Any, other: Any) -> None:
    assert one is not None
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("restart", ["warm", "cold", "hybrid", "once"])
@pytest.mark.parametrize("lr", [0.02, None])
@pytest.mark.parametrize("rate", [1.0, 0.5])
def test_both_are_the_models_that_each_would_be_alone(restart: Any, lr: float | None, rate: float) -> None:
    both, first, second = (learner(one, restart=restart, lr=lr) for one in (WATCHED, Softmax(), GDOC()))
    for one in (both, first, second):
        (*_, last) = lived(one, label_rate=rate)
    alike(both.weights_, first.weights_)
    alike(both.auxiliary_weights_, second.weights_)
    assert (both.lr_, both.auxiliary_lr_) == (first.lr_, second.lr_)
    if lr is not None:
        assert not all(torch.equal(both.weights_[name], both.auxiliary_weights_[name]) for name in both.weights_)  # type: ignore[index]
    said = both.outputs(last)
    assert torch.equal(said.logits, first.outputs(last).logits)
    assert said.auxiliary_logits is not None
    assert torch.equal(said.auxiliary_logits, second.outputs(last).logits)
    assert both.predict(last).best.tolist() == first.predict(last).best.tolist()


def test_without_a_word_from_the_detector_there_is_no_second_model() -> None:
    for detector in (None, Softmax(), GDOC(), PostHoc(Energy())):
        one = learner(detector)
        (*_, last) = lived(one)
        assert one.auxiliary_weights_ is None
        assert one.auxiliary_lr_ is None
        assert one.outputs(last).auxiliary_logits is None


def test_fit_and_observe_get_the_auxiliary_logits() -> None:
    seen: list[tuple[str, Outputs]] = []

    @dataclass(frozen=True)
    class Listening(Softmax):
        @property
        def requires(self) -> Requirements:
            return Requirements(observe=True, auxiliary=GDOC())

        def fit(self, outputs: Outputs, targets: Tensor, before: Any) -> Any:
            seen.append(("fit", outputs))
            return super().fit(outputs, targets, before)

        def observe(self, outputs: Outputs, targets: Tensor, before: Any) -> Any:
            seen.append(("observe", outputs))
            return super().observe(outputs, targets, before)

    one, other = learner(Listening()), learner(GDOC())
    (first, second) = (task for task in tasks(GRAPH, 2, first=3) if task.time <= 4)
    one.adapt(first)
    decided = other.adapt(first).outputs(first).logits
    one.adapt(second)
    assert [what for what, _ in seen] == ["fit", "observe", "fit"]
    assert all(
        outputs.auxiliary_logits is not None and len(outputs.auxiliary_logits) == len(outputs) for _, outputs in seen
    )
    assert torch.equal(seen[1][1].auxiliary_logits, decided)  # type: ignore[arg-type]  # before either has learnt on


def test_a_second_model_is_saved_and_goes_on(tmp_path: Path) -> None:
    whole, cut = (learner(AverageDetector(), lr=None) for _ in range(2))
    lived(whole, until=5)
    for task in tasks(GRAPH, 2, first=3):
        if task.time <= 5:
            cut.adapt(task)
            cut.save(tmp_path / "learner")
            cut = LifelongLearner.load(tmp_path / "learner")
    alike(whole.weights_, cut.weights_)
    alike(whole.auxiliary_weights_, cut.auxiliary_weights_)
    alike(whole.detector_.state, cut.detector_.state)
    assert (whole.lr_, whole.auxiliary_lr_) == (cut.lr_, cut.auxiliary_lr_)


def test_what_fails_or_is_interrupted_in_the_second_training_leaves_all_as_it_was() -> None:
    one = learner(AverageDetector())
    lived(one, until=3)
    before = copy.deepcopy(_held(one))
    task = next(task for task in tasks(GRAPH, 2, first=3) if task.time == 4)

    def stop(step: int, _loss: float) -> None:
        if step == 6:  # of four and four
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        one.adapt(task, stop)
    for now, then in zip(_held(one), before, strict=True):
        if isinstance(now, dict):
            alike(now, then)
        else:
            assert now == then


def _held(one: LifelongLearner) -> list[Any]:
    return [
        *(one.weights_, one.auxiliary_weights_, one.detector_.state),
        *(one.tasks_, one.time_, one.lr_, one.auxiliary_lr_, one.losses_, one.classes_),
    ]


def test_what_was_interrupted_leaves_no_learning_rate_behind() -> None:
    """The default rates go by the first task that was learnt."""
    one, untouched = (learner(AverageDetector(), lr=None) for _ in range(2))
    long, short = next(iter(tasks(GRAPH, "full", first=3))), next(iter(tasks(GRAPH, 1, first=3)))
    with pytest.raises(KeyboardInterrupt):
        one.adapt(long, _interrupt)
    rates = [(each.adapt(short).lr_, each.auxiliary_lr_) for each in (one, untouched)]
    assert rates[0] == rates[1]
    with pytest.raises(InputError, match="restart is 'nonsense'"):
        one.set_params(restart="nonsense")
    again = [(each.adapt(long).lr_, each.auxiliary_lr_) for each in (one, untouched)]
    assert again == rates


def _interrupt(_step: int, _loss: float) -> None:
    raise KeyboardInterrupt


def test_steps_of_both_models_are_reported() -> None:
    told: list[int] = []
    (first, *_) = tasks(GRAPH, 2, first=3)
    learner(WATCHED).adapt(first, lambda step, _: told.append(step))
    assert told == [1, 2, 3, 4, 5, 6, 7, 8]


def test_a_detector_that_is_set_later_starts_its_auxiliary_model_then() -> None:
    one, fresh = learner(Softmax()), learner(GDOC())
    lived(one, until=3)
    task = next(task for task in tasks(GRAPH, 2, first=3) if task.time == 4)
    for name in ("tasks_", "classes_", "vocabulary_"):  # which its draws go by
        setattr(fresh, name, getattr(one, name))
    one.set_params(detector=Careless()).adapt(task)  # it has no auxiliary model to observe with yet
    alike(one.auxiliary_weights_, fresh.adapt(task).weights_)
    later = next(task for task in tasks(GRAPH, 2, first=3) if task.time == 5)
    assert "past.seen" in one.adapt(later).detector_.state
    assert one.set_params(detector=Softmax()).adapt(later).auxiliary_weights_ is None


@dataclass(frozen=True)
class Careless(Softmax):
    """Relies on the auxiliary model when it observes."""

    @property
    def requires(self) -> Requirements:
        return Requirements(observe=True, auxiliary=GDOC())

    def observe(self, outputs: Outputs, targets: Tensor, before: Any) -> Any:  # noqa: ARG002
        assert outputs.auxiliary_logits is not None
        return {**before, "past.seen": outputs.auxiliary_logits.mean()}


def test_a_detector_with_another_auxiliary_model_cannot_decide() -> None:
    one = learner(PostHoc(Energy()))
    (*_, last) = lived(one)
    with pytest.raises(InputError, match="PostHoc requires an auxiliary model, which was not trained"):
        one.predict(last, WATCHED)
    assert len(one.predict(last, PostHoc(MSP())))


def test_a_learner_saved_without_a_second_model_gets_one(tmp_path: Path) -> None:
    one = learner(PostHoc(Energy()))
    lived(one, until=3)
    one.save(tmp_path / "learner")
    task = next(task for task in tasks(GRAPH, 2, first=3) if task.time == 4)
    loaded = LifelongLearner.load(tmp_path / "learner", detector=WATCHED)
    assert loaded.auxiliary_weights_ is None
    assert loaded.predict(task).flagged.sum() == 0
    assert loaded.adapt(task).auxiliary_weights_ is not None
    loaded.save(tmp_path / "learner")
    less = LifelongLearner.load(tmp_path / "learner", detector=PostHoc(Energy()))
    alike(less.auxiliary_weights_, loaded.auxiliary_weights_)
    assert less.adapt(task).auxiliary_weights_ is None


def test_a_file_of_another_version_is_refused() -> None:
    assert described(AverageDetector()) == {"name": "average", "version": 3, "most": 0.3}
    assert rebuilt(described(AverageDetector(most=0.2)), "detector") == AverageDetector(most=0.2)
    for name, *versions in (("average", 0, 2), ("auto", 0, 2, 3)):
        for version in versions:
            old = {"name": name, "most": 0.3} | ({"version": version} if version else {})
            with pytest.raises(InputError, match=f"the detector is another version of {name}"):
                rebuilt(old, "detector")


@pytest.mark.parametrize("kind", ["saint", "own"])
def test_models_of_other_kinds_share_nothing(kind: str) -> None:
    model = Custom(Normed) if kind == "own" else GraphSAINT(GraphSAGE(hidden=8))
    both, first, second = (
        LifelongLearner(model, one, steps=4, lr=0.02, inputs="words") for one in (WATCHED, Softmax(), GDOC())
    )
    for one in (both, first, second):
        lived(one)
    alike(both.weights_, first.weights_)
    alike(both.auxiliary_weights_, second.weights_)


class Normed(torch.nn.Module):
    """Has buffers that training moves."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.linear, self.norm = torch.nn.Linear(inputs, 8), torch.nn.BatchNorm1d(8)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:  # noqa: ARG002
        return self.norm(self.linear(x)).relu()


def test_a_retired_class_is_hidden_from_both(tmp_path: Path) -> None:
    workspace = Workspace.create(
        tmp_path / "ws",
        GRAPH,
        model=GraphSAGE(hidden=8),
        detector=PostHoc(AuxiliaryModel(), Fixed(0.0)),
        steps=30,
        lr=0.05,
    )
    name = workspace.learner().classes_[0]
    task = Task(GRAPH, GRAPH.last_time, 2)
    said = workspace.learner().outputs(task)
    hidden = workspace.learner().without_classes({name}).outputs(task)
    assert hidden.auxiliary_logits is not None
    assert said.auxiliary_logits is not None
    assert (hidden.auxiliary_logits[:, 0] < -1e3).all()
    assert (hidden.logits[:, 0] < -1e3).all()
    assert torch.equal(hidden.auxiliary_logits[:, 1:], said.auxiliary_logits[:, 1:])


def test_models_without_training_have_two_alike() -> None:
    one = LifelongLearner(MostFrequent(), WATCHED)
    (*_, last) = lived(one)
    said = one.outputs(last)
    assert torch.equal(said.logits, said.auxiliary_logits)  # type: ignore[arg-type]
    assert one.predict(last).flagged.sum() == 0


# --- the score -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OfDoc(Score):
    """Asks for another second model."""

    @property
    def requires(self) -> Requirements:
        return Requirements(auxiliary=DOC())

    def compute(self, outputs: Outputs, state: Any) -> Tensor:  # noqa: ARG002
        return outputs.logits.double().amax(1)


def test_scores_made_of_others_require_what_these_do() -> None:
    inner = Average((Energy(), AuxiliaryModel(), MSP()))
    for score in (AuxiliaryModel(), Relative(AuxiliaryModel()), Propagated(inner), inner):
        assert (
            score.requires.auxiliary
            == PostHoc(score).requires.auxiliary
            == AverageDetector().requires.auxiliary
            == GDOC()
        )
    assert Average((Energy(), MSP())).requires.auxiliary is None
    with pytest.raises(InputError, match="the scores require different auxiliary models"):
        Average((AuxiliaryModel(), OfDoc()))


def test_the_score_is_silent_without_an_auxiliary_model() -> None:
    outputs = Outputs(torch.randn(5, 3), auxiliary_logits=torch.randn(5, 3))
    assert torch.equal(AuxiliaryModel().compute(outputs, {}), -outputs.auxiliary_logits.double().amax(1))  # type: ignore[union-attr]
    alone = replace(outputs, auxiliary_logits=None)
    assert torch.equal(AuxiliaryModel().compute(alone, {}), torch.zeros(5, dtype=torch.float64))
    both = Average((MSP(), AuxiliaryModel()))
    assert torch.allclose(both.compute(alone, {}), Average((MSP(),)).compute(alone, {}) / 2)


@pytest.mark.parametrize("detector", [WATCHED, PostHoc(Relative(AuxiliaryModel())), AverageDetector()])
def test_detectors_with_an_auxiliary_model_keep_the_contract(detector: Detector) -> None:
    check_detector(detector)


def test_the_suite_gives_auxiliary_logits_only_if_they_are_required() -> None:
    @dataclass(frozen=True)
    class Greedy(Softmax):
        def decide(self, outputs: Outputs, state: Any) -> Decision:
            assert outputs.auxiliary_logits is not None, "nothing to read"
            return super().decide(outputs, state)._replace(score=-outputs.auxiliary_logits.double().amax(1))

    with pytest.raises(AssertionError, match="nothing to read"):
        check_detector(Greedy())


@pytest.mark.parametrize("second", ["gdoc", AverageDetector()])
def test_the_suite_checks_the_auxiliary_detector_too(second: Any) -> None:
    @dataclass(frozen=True)
    class Odd(Softmax):
        @property
        def requires(self) -> Any:
            return Requirements(auxiliary=second)

    with pytest.raises(AssertionError, match=r"auxiliary (must|model must)"):
        check_detector(Odd())


def test_the_suite_finds_a_score_that_depends_on_the_order_of_the_classes() -> None:
    @dataclass(frozen=True)
    class First(Softmax):
        @property
        def requires(self) -> Requirements:
            return Requirements(auxiliary=GDOC())

        def decide(self, outputs: Outputs, state: Any) -> Decision:
            assert outputs.auxiliary_logits is not None
            score = super().decide(outputs, state).score - 1e-3 * outputs.auxiliary_logits[:, 0].double()
            return Decision(score, score > 2)

    with pytest.raises(AssertionError, match="must not depend on the order of the classes"):
        check_detector(First())


def test_some_of_the_vertices() -> None:
    whole = Outputs(torch.randn(5, 3), torch.randn(5, 2), None, torch.randn(5, 3))
    rows = torch.tensor([3, 1])
    some = whole[rows]
    assert len(some) == 2
    for name in ("logits", "hidden", "auxiliary_logits"):
        assert torch.equal(getattr(some, name), getattr(whole, name)[rows])
    bare = Outputs(whole.logits)[1:3]
    assert (len(bare), bare.hidden, bare.auxiliary_logits) == (2, None, None)
