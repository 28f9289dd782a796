"""What the authors' code does differently: shown to be different, and nowhere but in one module."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch

from evergraph import EvergraphError, EvolvingGraph, InputError, LifelongLearner, Task, evaluate, tdiff
from evergraph.detect import DOC, GDOC, Outputs
from evergraph.evaluation.metrics import open_macro_f1
from evergraph.graph.classes import UNSEEN
from evergraph.learning.decisions import Decisions
from evergraph.nn import GAT, MLP, GraphSAGE, JKNet
from evergraph_paper import as_published as published


def graph() -> EvolvingGraph:
    labels = ["b", "d", "b", "d", "b", "d", "a", "b", "c", "b", "d", "a"]
    return EvolvingGraph.build(
        {
            "id": range(12),
            "time": [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3],
            "label": labels,
            "text": [f"word{label} other{i % 3}" for i, label in enumerate(labels)],
        },
        [[0, 2], [1, 3], [2, 4], [3, 5], [4, 7], [6, 11], [8, 9]],
    )


FIRST, SECOND = Task(graph(), 2, 2), Task(graph(), 3, 2)


def two_tasks(kind: Any, model: Any, restart: str = "warm", steps: int = 3, **more: Any) -> tuple[Any, dict[str, Any]]:
    """A learner after the second task with one step, and its weights after the first."""
    learner = kind(model, restart=restart, steps=steps, lr=0.01, text="global", **more)
    learner.adapt(FIRST)
    return learner, {name: value.clone() for name, value in learner.weights_.items()}


def decided(names: list[str], known: tuple[str, ...]) -> Decisions:
    array = np.array(names, object)
    n = len(names)
    return Decisions(array, 0, array, np.zeros(n, bool), np.zeros(n), np.ones(n), known)


def test_open_f1_of_a_perfect_classifier_is_a_quarter_where_positions_are_not_mapped() -> None:
    """A1: known {0, 2, 3}; the authors compare positions 0, 1, 2 with the classes 0, 2, 3."""
    truth, nobody = np.array(["0", "2", "3"], object), np.zeros(3, bool)
    perfect = decided(["0", "2", "3"], ("0", "2", "3"))
    assert published.unmapped_open_f1(truth, perfect, ("0", "1", "2", "3"), nobody) == 0.25
    assert open_macro_f1(truth, perfect.classes, nobody) == 1.0
    # Where the known classes are the first ones, both agree.
    prefix = decided(["0", "2", "1"], ("0", "1", "2"))
    right = np.array(["0", "2", "1"], object)
    assert published.unmapped_open_f1(right, prefix, ("0", "1", "2", "3"), nobody) == 1.0


def test_our_open_f1_does_not_depend_on_the_numbers_of_classes() -> None:
    """A1, seen from outside: a learner that does not know the first of the classes is scored by names."""
    labels = ["z", "z", "b", "c", "b", "c", "b", "c", "b", "c"]
    late = EvolvingGraph.build(
        {
            "id": range(10),
            "time": [0, 0, 1, 1, 1, 1, 2, 2, 2, 2],
            "label": labels,
            "text": [f"word{label}" for label in labels],
        }
    )
    task = Task(late, 2, 1)
    learner = LifelongLearner(MLP(hidden=8, dropout=0.0), GDOC(0.0), steps=150, lr=0.05).adapt(task)
    assert learner.classes_ == ("b", "c") != late.class_names  # 'z' comes first and is out of the window
    decisions = learner.predict(task)
    assert evaluate(task, decisions).open_f1 == 1.0
    nobody = np.zeros(4, bool)
    assert published.unmapped_open_f1(task.truth, decisions, late.class_names, nobody) < 0.4


def test_the_first_task_can_go_untrained() -> None:
    """A3: with no steps the authors' learner keeps what was drawn; ours always trains."""
    untrained, drawn = two_tasks(published.PublishedLearner, GraphSAGE(hidden=4), first_steps=0)
    fresh = GraphSAGE(hidden=4).parameters(untrained.vocabulary_.width, 4, published.Draw(0, 0))
    assert all(torch.equal(drawn[name], fresh[name]) for name in fresh)
    assert untrained.losses_ == []
    ours, _ = two_tasks(LifelongLearner, GraphSAGE(hidden=4))
    assert len(ours.losses_) == 3


def test_adam_survives_restarts() -> None:
    """A4: after a restart the first step of a fresh Adam is the learning rate; of a stale one it is not."""
    for kind, fresh in ((LifelongLearner, True), (published.PublishedLearner, False)):
        learner, before = two_tasks(kind, MLP(hidden=4, dropout=0.0), steps=40)
        learner.set_params(steps=1).adapt(SECOND)
        known = [learner.classes_.index(name) for name in ("b", "d")]
        old = before["1.weight"][:, known] if not fresh else before["1.weight"]
        moved = (learner.weights_["1.weight"][:, known] - old).abs().max().item()
        assert (moved == pytest.approx(0.01, rel=1e-3)) == fresh


def restarted(kind: Any, model: Any, restart: str) -> tuple[dict[str, Any], dict[str, Any], Any]:
    """Weights before and right after a restart at which classes are new, before any training."""
    learner, before = two_tasks(kind, model, restart)
    caught: dict[str, Any] = {}

    def no_training(model: Any, detector: Any, weights: Any, *_: Any, **__: Any) -> list[float]:
        caught.update({name: value.clone() for name, value in weights.items()})
        return []

    with mock.patch("evergraph.learning.learner.train", no_training):
        learner.adapt(SECOND)
    return before, caught, learner


def test_gat_loses_the_attention_of_known_classes() -> None:
    """A5."""
    for kind, kept in ((LifelongLearner, True), (published.PublishedLearner, False)):
        before, after, learner = restarted(kind, GAT(hidden=2, heads=2), "warm")
        known = [learner.classes_.index(name) for name in ("b", "d")]
        was = before["1.left"][:, known] if kind is published.PublishedLearner else before["1.left"]
        assert torch.equal(after["1.left"][:, known], was) == kept
        weight = before["1.weight"][..., known] if kind is published.PublishedLearner else before["1.weight"]
        assert torch.equal(after["1.weight"][..., known], weight)


@pytest.mark.parametrize("model", [GraphSAGE(hidden=4), JKNet(hidden=4)], ids=["sage", "jknet"])
def test_a_cold_restart_keeps_biases(model: Any) -> None:
    """A6."""
    for kind, kept in ((LifelongLearner, False), (published.PublishedLearner, True)):
        before, after, _ = restarted(kind, model, "cold")
        assert torch.equal(after["0.self.bias"], before["0.self.bias"]) == kept
        size = before["0.self.weight"].shape[0]
        assert not torch.equal(after["0.self.weight"][:size], before["0.self.weight"])


def test_new_classes_keep_the_biases_of_their_outputs() -> None:
    """A6, warm: of a new class the weights are redrawn and the bias is not."""
    before, after, learner = restarted(published.PublishedLearner, GraphSAGE(hidden=4), "warm")
    new = [learner.classes_.index(name) for name in ("a", "c")]
    assert torch.equal(after["1.self.bias"], before["1.self.bias"])
    assert not torch.equal(after["1.self.weight"][:, new], before["1.self.weight"][:, new])


def test_the_weight_is_on_the_whole_output_in_the_papers_text() -> None:
    """A7."""
    logits = torch.tensor([[2.0, -1.0], [0.5, 0.3], [-1.0, 1.0]])
    targets, counts = torch.tensor([0, 0, 1]), torch.tensor([2, 1])
    w = torch.tensor([0.5, 2.0])
    ones = torch.nn.functional.one_hot(targets, 2).float()
    losses = torch.nn.functional.binary_cross_entropy_with_logits(logits, ones, reduction="none")
    text = published.WholeOutputGDOC().loss(logits, targets, counts)
    torch.testing.assert_close(text, (losses * w).mean())
    code = torch.nn.functional.binary_cross_entropy_with_logits(logits, ones, pos_weight=w)
    torch.testing.assert_close(GDOC().loss(logits, targets, counts), code)
    assert abs(text - code) > 0.05


def test_all_outputs_exist_from_the_start() -> None:
    """A8: the authors' model has the classes of the future, and pushes their outputs down."""
    theirs, _ = two_tasks(published.PublishedLearner, MLP(hidden=4), detector=GDOC(), steps=60)
    ours, _ = two_tasks(LifelongLearner, MLP(hidden=4), detector=GDOC(), steps=60)
    assert set(theirs.classes_) == {"a", "b", "c", "d"}
    assert theirs.known_ == set(ours.classes_) == {"b", "d"}
    future = [theirs.classes_.index(name) for name in ("a", "c")]
    fresh = MLP(hidden=4).parameters(theirs.vocabulary_.width, 4, published.Draw(0, 0))
    assert (theirs.weights_["1.bias"][future] < fresh["1.bias"][future]).all()
    decisions = theirs.predict(FIRST)
    assert set(decisions.known) == {"b", "d"}
    assert set(decisions.classes) <= {"b", "d", UNSEEN}


def test_inductive_training_has_one_more_labelled_time() -> None:
    """A12: c = 2 gives the times 1 and 2 to others, and 0, 1 and 2 to GraphSAINT."""
    ours = Task(graph(), 3, 2, mode="inductive")
    theirs = published.InductiveTask(graph(), 3, 2)
    assert set(ours.training.times[ours.targets >= 0]) == {1, 2}
    assert set(theirs.training.times[theirs.targets >= 0]) == {0, 1, 2}
    assert theirs.window.times.tolist() == ours.window.times.tolist()


def test_self_pairs_move_the_percentiles() -> None:
    """A22: 5-cycle with the times 1, 1, 2, 2, 3: quartiles 0, 1, 1 without and 0, 0, 1 with self pairs."""
    cycle = EvolvingGraph.build({"id": range(5), "time": [1, 1, 2, 2, 3]}, [[0, 1], [1, 2], [2, 3], [3, 4], [4, 0]])
    ours = tdiff(cycle, 2)
    theirs = published.with_self_pairs(ours)
    assert [ours.percentile(level) for level in (25, 50, 75)] == [0, 1, 1]
    assert [theirs.percentile(level) for level in (25, 50, 75)] == [0, 0, 1]


def test_classes_out_of_the_window_can_never_be_accepted_with_alpha() -> None:
    outputs, targets = Outputs(torch.tensor([[3.0, 5.0]])), torch.tensor([0])
    for ours, theirs in (
        (DOC(alpha=3.0), published.PublishedDOC(alpha=3.0)),
        (GDOC(0.5, 3.0), published.PublishedGDOC(0.5, 3.0)),
    ):
        state = ours.fit(outputs, targets, {})
        assert ours.thresholds(state, 2)[1] == 0.5
        state = theirs.fit(outputs, targets, {})
        assert theirs.thresholds(state, 2)[1] == 1.0


def test_one_class_has_no_weight() -> None:
    counts = torch.tensor([7, 0])
    assert published.PublishedGDOC().positive_weights(counts).tolist() == [0.0, 0.0]
    assert GDOC().positive_weights(counts).tolist() == [1.0, 0.0]


def test_what_only_this_learner_keeps_is_not_half_saved_or_half_learnt(tmp_path: Any) -> None:
    learner, _ = two_tasks(published.PublishedLearner, MLP(hidden=4), detector=GDOC(), steps=3)
    with pytest.raises(EvergraphError, match="cannot be saved"):
        learner.save(tmp_path)
    known, steps = learner.known_, learner._adam.steps

    def interrupt(step: int, loss: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        learner.adapt(SECOND, on_step=interrupt)
    assert (learner.known_, learner._adam.steps) == (known, steps)
    with pytest.raises(InputError, match="text is 'past'"):
        published.PublishedLearner(text="past")
