"""Leave-one-family-out: what a detector learns from other graphs, and that it never learns from the family left out."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import matthews_corrcoef

from evergraph import InputError
from evergraph.datasets import synthetic
from evergraph.detect import AutoDetector, Requirements, Softmax
from evergraph.detect import prior as prior_module
from evergraph.detect.base import UNKNOWN, PastGraph
from evergraph.detect.prior import TracedGraph, fit_prior, traced
from evergraph.evaluation.comparison import Candidate, candidates, compare
from evergraph.evaluation.configuration import Configuration
from evergraph.evaluation.leave_one_out import RecordedSlices, leave_one_out, recorded_slices
from evergraph.nn import GraphSAGE

pytestmark = pytest.mark.usefixtures("one_thread")

Command = Callable[..., tuple[int, str, str]]

SIZE: dict[str, Any] = {"times": 7, "classes": 4, "new_classes": 3, "words": 80, "words_per_vertex": 5}
SMALL = Configuration(GraphSAGE(hidden=4), history=2, steps=3, lr=0.05, first=4)
FAMILIES = {"one": "first", "two": "first", "three": "second", "four": "third"}


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("graphs")
    for seed, name in enumerate(FAMILIES, start=2):
        synthetic(vertices=280, seed=seed, **SIZE).save(folder / name)
    return [str(folder / name) for name in FAMILIES]


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("out") / "compared"


@pytest.fixture(scope="module")
def known(graphs: list[str], out: Path) -> list[RecordedSlices]:
    return recorded_slices(graphs, FAMILIES, replace(SMALL, detector=Softmax()), 0, out)


def test_each_slice_is_given_once_with_its_true_classes(known: list[RecordedSlices]) -> None:
    for graph in known:
        found = list(graph.slices())
        times = [outputs.context.task.time for outputs, _, _ in found if outputs.context is not None]
        assert len(found) == len(times) == len(set(times))
        assert sum(task for _, _, task in found) == 3
        for outputs, targets, _ in found:
            assert outputs.context is not None
            truth, classes = outputs.context.task.truth, outputs.context.classes
            expected = [classes.index(name) if name in classes else UNKNOWN for name in truth]
            assert targets.tolist() == expected


def test_a_trace_is_what_the_detector_sees(known: list[RecordedSlices]) -> None:
    graph = known[0]
    found, state = traced(graph), {}
    detector = AutoDetector()
    prior = detector._prior
    place = 0
    for outputs, targets, task in graph.slices():
        score = detector.decide(outputs, state).score.numpy()
        if place < len(found.slices) and (task or state):
            part = found.slices[place]
            odds = prior_module.discriminant(part.values, part.record, prior.unseen) @ prior.weights[:2]
            assert np.allclose(score, 1 / (1 + np.exp(-odds - prior.weights[2])))
            assert np.array_equal(part.unseen, targets.numpy() == UNKNOWN)
            place += 1
        state = dict(detector.observe(outputs, targets, state))
    assert place == len(found.slices) > 3


def test_the_family_that_is_left_out_is_not_learnt_from(graphs: list[str], out: Path) -> None:
    learnt: list[list[str]] = []

    @dataclass(frozen=True)
    class Learner(Softmax):
        @property
        def requires(self) -> Requirements:
            return Requirements(fit=False, graphs=True)

        def fitted_on(self, graphs: Sequence[PastGraph]) -> Learner:
            learnt.append(sorted(graph.name for graph in graphs))
            return self

    compared = leave_one_out(graphs, [Candidate("learner", Learner())], SMALL, FAMILIES, out=out)
    assert learnt == [["four", "three"], ["four", "one", "two"], ["one", "three", "two"]]
    assert {(one.graph, one.detector) for one in compared.outcomes} == {(name, "learner") for name in FAMILIES}


def test_auto_is_fitted_and_others_are_compared_as_before(graphs: list[str], out: Path) -> None:
    wanted = candidates("none,gdoc:0.5,auto,auto:budget:3")
    compared = leave_one_out(graphs, wanted, SMALL, FAMILIES, out=out)
    plain = compare(graphs, candidates("none,gdoc:0.5"), SMALL, out=out)
    ours = ("seconds_detector", "seconds_training", "calibration_error")
    for name in ("none", "gdoc:0.5"):
        for graph in FAMILIES:
            (one,), (other,) = compared.of(graph, name), plain.of(graph, name)
            for metric, value in one.metrics.items():
                assert metric in ours or value == other.metrics[metric] or np.isnan(value)
    for graph in FAMILIES:
        (one,), (budget,) = compared.of(graph, "auto"), compared.of(graph, "auto:budget:3")
        assert "Prior(graphs=" in one.about["settings"]
        assert one.metrics["id_accuracy"] == compared.of(graph, "none")[0].metrics["id_accuracy"]
        assert one.metrics["auroc"] == budget.metrics["auroc"]
        assert 0 <= one.metrics["calibration_error"] <= 1
    lines = [json.loads(line) for line in (out / "results.jsonl").read_text(encoding="utf-8").splitlines()]
    assert {(line["graph"], line["detector"]) for line in lines} >= {(graph, "auto") for graph in FAMILIES}


def test_families_must_be_of_the_graphs_and_enough(graphs: list[str], out: Path) -> None:
    with pytest.raises(InputError, match="there is no graph 'five'"):
        leave_one_out(graphs, candidates("auto"), SMALL, {"five": "x"}, out=out)
    with pytest.raises(InputError, match="at least three families"):
        leave_one_out(graphs[:2], candidates("auto"), SMALL, {}, out=out)


# --- the prior -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def traces(known: list[RecordedSlices]) -> list[TracedGraph]:
    return [traced(graph) for graph in known]


def test_weights_are_those_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    inputs, weights = rng.normal(size=(500, 2)) * [3.0, 0.5] + 1, rng.random(500)
    targets = rng.random(500) < 1 / (1 + np.exp(-inputs[:, 0] + inputs[:, 1]))
    found = prior_module._logistic_regression(inputs, targets, weights / weights.sum(), 1e-9)
    judge = LogisticRegression(C=1e9, tol=1e-10, max_iter=1000).fit(inputs, targets, sample_weight=weights)
    assert np.allclose(found, [*judge.coef_[0], judge.intercept_[0]], atol=1e-3)


def test_the_mcc_of_each_threshold_is_that_of_scikit_learn() -> None:
    rng = np.random.default_rng(1)
    odds, unseen = rng.normal(-2, 2, 200), rng.random(200) < 0.2
    found = prior_module._mcc_curve(odds, unseen)
    for place in range(0, len(found), 40):
        flagged = odds >= prior_module._THRESHOLDS[place]
        assert np.isclose(found[place], matthews_corrcoef(unseen, flagged))


def test_graphs_count_alike_and_unseen_vertices_more(traces: list[TracedGraph]) -> None:
    for graph in traces:
        weights = graph.weights
        assert np.isclose(weights.sum(), 1)
        assert np.isclose(weights[graph.unseen].sum(), np.sqrt(_share(graph) * 0.05))


def _share(graph: TracedGraph) -> float:
    sizes = [len(part.unseen) for part in graph.slices]
    plain = np.repeat(1 / np.sqrt(sizes), sizes)
    return float(plain[graph.unseen].sum() / plain.sum())


def test_a_prior_needs_no_order_of_graphs_and_finds_what_unseen_vertices_share(traces: list[TracedGraph]) -> None:
    prior, again = fit_prior(traces), fit_prior(traces[::-1])
    assert np.allclose(prior.unseen, again.unseen)
    assert np.allclose(prior.weights, again.weights)
    assert prior.threshold == again.threshold
    assert np.allclose(prior.unseen, np.mean([graph.mean for graph in traces], 0))
    assert prior.graphs == tuple(sorted(FAMILIES))
    yes, no = prior.births
    assert np.isclose(yes + no, 4, atol=0.02)


def test_a_prior_needs_two_families(traces: list[TracedGraph]) -> None:
    with pytest.raises(InputError, match=r"of 1 families\. Add graphs of other families"):
        fit_prior(traces[:2])
    prior = fit_prior(traces[1:3])
    assert np.isfinite(prior.unseen).all()
    assert np.isfinite(prior.weights).all()


def test_a_graph_without_unseen_vertices_does_not_count(traces: list[TracedGraph]) -> None:
    plain = TracedGraph("plain", "other", tuple(replace(part, unseen=part.unseen & False) for part in traces[0].slices))
    assert repr(fit_prior([*traces, plain])) == repr(fit_prior(traces))


def test_fitting_changes_nothing_but_the_prior(known: list[RecordedSlices]) -> None:
    found = AutoDetector("budget:7").fitted_on(known)
    assert found.objective == "budget:7"
    assert found.prior is not None
    with pytest.raises(InputError, match="the argument prior"):
        AutoDetector(prior="shipped")  # type: ignore[arg-type]
    outputs, targets, _ = next(iter(known[0].slices()))
    state = found.observe(outputs, targets, {})
    assert torch.equal(state["past.known"], AutoDetector().observe(outputs, targets, {})["past.known"])


# --- the command -----------------------------------------------------------------------------------------------------

OPTIONS = ("--hidden", 4, "--history", 2, "--steps", 3, "--lr", 0.05, "--first", 4, "--jobs", 1)


def test_the_command_leaves_families_out(graphs: list[str], out: Path, tmp_path: Path, command: Command) -> None:
    families = tmp_path / "families.json"
    families.write_text(json.dumps(FAMILIES), encoding="utf-8")
    wanted = ("--detectors", "none,auto", "--leave-one-out", "--families", families, "--out", out, *OPTIONS)
    code, text, _ = command("compare", *graphs, *wanted, "--json")
    assert code == 0
    found = json.loads(text)
    assert {row["detector"] for row in found["results"]} == {"none", "auto"}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [("{", "not JSON"), ("[1]", "no family for each graph"), ('{"one": 3}', "no family for each graph")],
)
def test_bad_families_are_refused(
    graphs: list[str], tmp_path: Path, command: Command, content: str, sentence: str
) -> None:
    families = tmp_path / "families.json"
    families.write_text(content, encoding="utf-8")
    code, _, error = command("compare", *graphs, "--leave-one-out", "--families", families, "--out", tmp_path / "o")
    assert code == 2
    assert sentence in error
    assert "families.json" in error
    assert not (tmp_path / "o").exists()


def test_families_need_leave_one_out(graphs: list[str], tmp_path: Path, command: Command) -> None:
    code, _, error = command("compare", *graphs, "--families", tmp_path / "no.json", "--out", tmp_path / "o")
    assert code == 2
    assert "without --leave-one-out" in error
    code, _, error = command("compare", *graphs, "--leave-one-out", "--families", tmp_path / "no.json")
    assert code == 2
    assert "no.json" in error
