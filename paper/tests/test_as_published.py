"""What the authors' code does differently: shown to be different, and nowhere but in one module."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from evergraph import EvolvingGraph, LifelongLearner, Task, evaluate, tdiff
from evergraph.detect import DOC, GDOC, Outputs
from evergraph.evaluation.metrics import open_macro_f1
from evergraph.graph.classes import UNSEEN
from evergraph.nn import GAT, MLP, Draw, GraphSAGE, JKNet
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


def ours(model: Any, restart: Any = "warm", steps: int = 3, detector: Any = None) -> LifelongLearner:
    """Our learner after the first task."""
    learner = LifelongLearner(model, detector, restart=restart, steps=steps, lr=0.01, text="global")
    return learner.adapt(FIRST)


def theirs(model: Any, restart: Any = "warm", steps: int = 3, **more: Any) -> published.PublishedLearner:
    """The authors' learner after the first task."""
    return published.PublishedLearner(model, restart=restart, steps=steps, lr=0.01, **more).adapt(FIRST)


def copied(learner: Any) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in learner.weights_.items()}


def test_open_f1_of_a_perfect_classifier_is_a_quarter_where_positions_are_not_mapped() -> None:
    """A1: known {0, 2, 3}; the authors compare positions 0, 1, 2 with the classes 0, 2, 3."""
    truth, nobody = np.array(["0", "2", "3"], object), np.zeros(3, bool)
    assert published.unmapped_open_f1(truth, truth, ("0", "2", "3"), ("0", "1", "2", "3"), nobody) == 0.25
    assert open_macro_f1(truth, truth, nobody) == 1.0
    # Where the known classes are the first ones, both agree.
    right = np.array(["0", "2", "1"], object)
    assert published.unmapped_open_f1(right, right, ("0", "1", "2"), ("0", "1", "2", "3"), nobody) == 1.0


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
    assert published.unmapped_open_f1(task.truth, decisions.classes, decisions.known, late.class_names, nobody) < 0.4


def test_the_first_task_can_go_untrained() -> None:
    """A3: with no steps the authors' learner keeps what was drawn; ours always trains."""
    untrained = theirs(GraphSAGE(hidden=4), first_steps=0)
    fresh = GraphSAGE(hidden=4).parameters(FIRST.graph.features.words.width, 4, Draw(0, 0))
    assert all(torch.equal(untrained.weights_[name], fresh[name]) for name in fresh)
    assert untrained.losses_ == []
    assert len(ours(GraphSAGE(hidden=4)).losses_) == 3


def test_adam_survives_restarts() -> None:
    """A4: after a restart the first step of a fresh Adam is the learning rate; of a stale one it is not."""
    for learner, fresh in (
        (ours(MLP(hidden=4, dropout=0.0), steps=40), True),
        (theirs(MLP(hidden=4, dropout=0.0), steps=40), False),
    ):
        before = copied(learner)["1.weight"]
        rows = {name: row for row, name in enumerate(learner.classes_)}
        learner.steps = 1
        learner.adapt(SECOND)
        for name in ("b", "d"):
            moved = learner.weights_["1.weight"][:, learner.classes_.index(name)] - before[:, rows[name]]
            assert (moved.abs().max().item() == pytest.approx(0.01, rel=1e-3)) == fresh


def restarted(learner: Any) -> tuple[dict[str, Any], dict[str, Any], list[int]]:
    """Weights before and right after a restart at which classes are new; and the columns of those known before."""
    before, classes = copied(learner), learner.classes_
    learner.steps, learner.lr = 1, 1e-30  # trains nothing
    learner.adapt(SECOND)
    assert learner.classes_[: len(classes)] == classes
    return before, copied(learner), [classes.index(name) for name in ("b", "d")]


def test_gat_loses_the_attention_of_known_classes() -> None:
    """A5."""
    for learner, kept in ((ours(GAT(hidden=2, heads=2)), True), (theirs(GAT(hidden=2, heads=2)), False)):
        before, after, known = restarted(learner)
        assert torch.equal(after["1.left"][:, known], before["1.left"][:, known]) == kept
        assert torch.equal(after["1.weight"][..., known], before["1.weight"][..., known])


@pytest.mark.parametrize("model", [GraphSAGE(hidden=4), JKNet(hidden=4)], ids=["sage", "jknet"])
def test_a_cold_restart_keeps_biases(model: Any) -> None:
    """A6."""
    for learner, kept in ((ours(model, "cold"), False), (theirs(model, "cold"), True)):
        before, after, _ = restarted(learner)
        assert torch.equal(after["0.self.bias"], before["0.self.bias"]) == kept
        size = before["0.self.weight"].shape[0]
        assert not torch.equal(after["0.self.weight"][:size], before["0.self.weight"])


def test_new_classes_keep_the_biases_of_their_outputs() -> None:
    """A6, warm: of a new class the weights are redrawn and the bias is not."""
    learner = theirs(GraphSAGE(hidden=4))
    before, after, _ = restarted(learner)
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
    text = published.whole_output_loss(logits, targets, counts)
    torch.testing.assert_close(text, (losses * w).mean())
    code = torch.nn.functional.binary_cross_entropy_with_logits(logits, ones, pos_weight=w)
    torch.testing.assert_close(GDOC().loss(logits, targets, counts), code)
    assert abs(text - code) > 0.05


def test_all_outputs_exist_from_the_start() -> None:
    """A8: the authors' model has the classes of the future, and pushes their outputs down."""
    model = MLP(hidden=4)
    learner = theirs(model, loss="gdoc", steps=60)
    assert set(learner.classes_) == {"a", "b", "c", "d"}
    assert learner.known_ == set(ours(model, detector=GDOC(), steps=60).classes_) == {"b", "d"}
    future = [learner.classes_.index(name) for name in ("a", "c")]
    fresh = model.parameters(FIRST.graph.features.words.width, 4, Draw(0, 0))
    assert (learner.weights_["1.bias"][future] < fresh["1.bias"][future]).all()
    decided = learner.predict(FIRST)
    assert len(decided.best) == len(decided.classes) == len(FIRST.test_ids)
    assert set(decided.classes) <= {"b", "d", UNSEEN}


def test_inductive_training_has_one_more_labelled_time() -> None:
    """A12: c = 2 gives the times 1 and 2 to others, and 0, 1 and 2 to GraphSAINT."""
    task = Task(graph(), 3, 2, mode="inductive")
    assert set(task.training.times[task.targets >= 0]) == {1, 2}
    assert set(published.inductive_training(task).times) == {0, 1, 2}


def test_thresholds_are_fitted_to_outputs_with_dropout() -> None:
    """A20: without dropout the same weights give other thresholds."""
    rows = torch.from_numpy(np.flatnonzero(FIRST.targets >= 0))
    targets = torch.from_numpy(FIRST.targets.astype(np.int64))[rows]
    for rate in (0.0, 0.5):
        learner = theirs(MLP(hidden=4, dropout=rate), loss="doc", alpha=0.1, steps=1)
        without = published.thresholds(learner.logits(FIRST.training, FIRST.time)[rows], targets, 0.5, 0.1)
        assert torch.equal(without, learner.thresholds_) == (rate == 0)


def test_self_pairs_move_the_percentiles() -> None:
    """A22: 5-cycle with the times 1, 1, 2, 2, 3: quartiles 0, 1, 1 without and 0, 0, 1 with self pairs."""
    cycle = EvolvingGraph.build({"id": range(5), "time": [1, 1, 2, 2, 3]}, [[0, 1], [1, 2], [2, 3], [3, 4], [4, 0]])
    ours = tdiff(cycle, 2)
    theirs = published.with_self_pairs(ours)
    assert [ours.percentile(level) for level in (25, 50, 75)] == [0, 1, 1]
    assert [theirs.percentile(level) for level in (25, 50, 75)] == [0, 0, 1]


def test_classes_out_of_the_window_can_never_be_accepted_with_alpha() -> None:
    logits, targets = torch.tensor([[3.0, 5.0]]), torch.tensor([0])
    assert published.thresholds(logits, targets, 0.5, 3.0)[1] == 1.0
    assert published.thresholds(logits, targets, 0.5, None).tolist() == [0.5, 0.5]
    for ours_ in (DOC(alpha=3.0), GDOC(0.5, 3.0)):
        limits = ours_.thresholds(ours_.fit(Outputs(logits), targets, {}), 2)
        assert limits[1] == 0.5
        assert limits[0] == pytest.approx(published.thresholds(logits, targets, 0.5, 3.0)[0])


def test_one_class_has_no_weight() -> None:
    counts = torch.tensor([7, 0])
    assert published.class_weights(counts).tolist() == [0.0, 0.0]
    assert GDOC().positive_weights(counts).tolist() == [1.0, 0.0]
