from __future__ import annotations

import dataclasses
import json
import pickle
import random
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse
from scipy.spatial.distance import jensenshannon
from scipy.special import rel_entr
from scipy.stats import wasserstein_distance

from evergraph.errors import InputError
from evergraph.nn import GAT, GCN, MLP, GraphSAGE
from evergraph.nn.adam import Adam
from evergraph_paper import static
from evergraph_paper.exp1 import Results, curves, divergences, histogram_divergence
from evergraph_paper.static import STATIC_MODELS, Split, StaticTrial, grid, recipe, split, static_table

SharedData = Callable[[str], Path]

# --- a small data set in Planetoid's form ----------------------------------------------------------------------------
# 20 + 500 vertices to train on, 30 more, and 100 test vertices; 3 classes, each with words and neighbours of its own.

TRAIN, FIRST, ALL, CLASSES, WORDS = 520, 550, 650, 3, 15


def parts() -> dict[str, Any]:
    rng = np.random.default_rng(8)
    classes = rng.integers(0, CLASSES, ALL)
    words = (rng.random((ALL, WORDS)) < np.where(np.arange(WORDS) % CLASSES == classes[:, None], 0.6, 0.1)) * 1.0
    words[np.arange(ALL), rng.integers(0, WORDS, ALL)] = 2.0
    neighbours: dict[int, list[int]] = {}
    for vertex in range(ALL):
        near = np.flatnonzero(classes == classes[vertex]) if rng.random() < 0.8 else np.arange(ALL)
        neighbours[vertex] = rng.choice(near, 3).tolist()
    return {"words": words, "classes": np.eye(CLASSES, dtype=np.int32)[classes], "graph": neighbours}


def write(folder: Path, whole: dict[str, Any]) -> Path:
    folder.mkdir(exist_ok=True)
    words, classes = sparse.csr_matrix(whole["words"].astype(np.float32)), whole["classes"]
    index = np.random.default_rng(1).permutation(np.arange(FIRST, ALL))
    for part, content in {
        "y": classes[: TRAIN - 500],
        "allx": words[:FIRST],
        "ally": classes[:FIRST],
        "tx": words[index],
        "ty": classes[index],
        "graph": whole["graph"],
    }.items():
        (folder / f"ind.cora.{part}").write_bytes(pickle.dumps(content, protocol=2))
    (folder / "ind.cora.test.index").write_text("\n".join(map(str, index)))
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("static") / "planetoid", parts())


def trial(folder: Path, model: str = "gcn", which: Any = "A", pretraining: int = 5, **rest: Any) -> StaticTrial:
    return StaticTrial("cora", folder, which, model, pretraining, **{"epochs": 3, "seed": 4, **rest})


# --- splits ----------------------------------------------------------------------------------------------------------

# Classes, features, vertices, edges; then of the split train vertices and edges, unseen ones, and test vertices: as in
# the paper, but for Cora, which is split otherwise there and counted here.
TABLE = {
    ("citeseer", "A"): (6, 3_703, 3_327, 4_552, 620, 139, 2_707, 4_413, 1_000),
    ("citeseer", "B"): (6, 3_703, 3_327, 4_552, 2_707, 2_939, 620, 1_613, 620),
    ("pubmed", "A"): (3, 500, 19_717, 44_324, 560, 34, 19_157, 44_290, 1_000),
    ("pubmed", "B"): (3, 500, 19_717, 44_324, 19_157, 41_858, 560, 2_466, 560),
    ("cora", "A"): (7, 1_433, 2_708, 5_278, 640, 345, 2_068, 4_933, 1_000),
    ("cora", "B"): (7, 1_433, 2_708, 5_278, 2_068, 3_037, 640, 2_241, 640),
}
RATES = {("citeseer", "A"): 0.186, ("citeseer", "B"): 0.814, ("pubmed", "A"): 0.028, ("pubmed", "B"): 0.972}
DEGREES = {"cora": 3.9, "pubmed": 4.5}  # the paper's 2.77 for Citeseer does not fit its own counts


def test_the_table_of_static_graphs_is_that_of_the_paper(shared_data: SharedData) -> None:
    rows = static_table(shared_data("planetoid"))
    found = {(row.graph, row.split): row for row in rows}
    assert len(rows) == len(found) == 6
    for key, row in found.items():
        values = dataclasses.astuple(row)
        assert (*values[2:6], *values[7:12]) == TABLE[key], key
        assert round(row.label_rate, 3) == RATES.get(key, round(row.label_rate, 3))
        assert round(row.average_degree, 1) == DEGREES.get(row.graph, 2.7)


def test_a_split_is_what_it_says(folder: Path) -> None:
    edges = {tuple(sorted((u, v))) for u, near in parts()["graph"].items() for v in near if u != v}
    for which in ("A", "B"):
        data = split(folder, "cora", which)
        ids = np.array(list(data.graph.ids))
        few = ids < TRAIN
        assert (data.train == (few if which == "A" else ~few)).all()
        assert (data.test == (ids >= FIRST if which == "A" else few)).all()
        inside = set(ids[data.train].tolist())
        among = {edge for edge in edges if inside.issuperset(edge)}
        assert (data.train_edges, data.unseen_edges) == (len(among), len(edges) - len(among))
        assert (data.train_vertices, data.unseen_vertices) == (len(inside), ALL - len(inside))
        # What is trained on at first are those vertices, their edges in both directions, and one self-loop each.
        assert len(data.at_first.graph) == data.at_first.rows == data.in_the_end.rows == len(inside)
        assert len(data.at_first.graph.indices) == 2 * len(among) + len(inside)
        assert len(data.in_the_end.graph.indices) == 2 * len(edges) + ALL
        classes = parts()["classes"].argmax(1)[ids]
        assert (data.at_first.targets.numpy() == classes[data.train]).all()
        assert (data.in_the_end.targets.numpy() == classes[data.train]).all()
        words = parts()["words"][ids]
        np.testing.assert_allclose(data.in_the_end.x.to_dense(), words / words.sum(1, keepdims=True), rtol=1e-6)
    assert split(folder, "cora", "A") is split(folder, "cora", "A")


def test_vertices_without_words_or_label_do_no_harm(tmp_path: Path) -> None:
    whole = parts()
    whole["words"][525], whole["classes"][525] = 0, 0
    folder = write(tmp_path / "bare", whole)
    data = split(folder, "cora", "B")
    (row,) = data.graph.find([525])
    assert (data.train[row], data.test[row], data.at_first.targets[row].item()) == (True, False, -1)
    assert row not in data.at_first.labelled
    assert np.isfinite(trial(folder, "gat", "B").run()["accuracy"]).all()


# --- what is trained -------------------------------------------------------------------------------------------------


def test_settings_are_those_of_the_papers_text() -> None:
    expected = {
        "gcn": (GCN(hidden=16, layers=2, dropout=0.5), 0.005, 0.0005),
        "gcn-64": (GCN(hidden=64, layers=2, dropout=0.5), 0.005, 0.0005),
        "gat": (GAT(hidden=8, heads=8, out_heads=1, layers=2, dropout=0.6), 0.005, 0.0005),
        "sage": (GraphSAGE(hidden=64, layers=2, dropout=0.5), 0.01, 0.0005),
        "mlp": (MLP(hidden=64, layers=2, dropout=0.5), 0.005, 0.0005),
    }
    assert set(STATIC_MODELS) == set(expected)
    for graph in ("cora", "citeseer", "pubmed"):
        for model, settings in expected.items():
            if (model, graph) == ("gat", "pubmed"):
                settings = GAT(out_heads=8), 0.01, 0.001
            found = recipe(model, graph)
            assert (found.model, found.lr, found.weight_decay) == settings


def test_each_part_has_an_optimiser_of_its_own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Adam] = []

    class Recorded(Adam):
        def __init__(self, *arguments: Any, **settings: Any) -> None:
            super().__init__(*arguments, **settings)
            made.append(self)

    monkeypatch.setattr(static, "Adam", Recorded)
    trial(folder, "sage", pretraining=5, epochs=3).run()
    assert [(one.steps, one.lr, one.weight_decay) for one in made] == [(5, 0.01, 5e-4), (3, 0.01, 5e-4)]
    assert [id(value) for value in made[0].parameters] == [id(value) for value in made[1].parameters]


def by_hand(data: Split, weights: dict[str, torch.Tensor], model: str) -> float:
    """Accuracy of a GCN or MLP of two layers on dense matrices in double precision."""
    p = {name: value.numpy().astype(np.float64) for name, value in weights.items()}
    ids = np.array(list(data.graph.ids))
    words = parts()["words"][ids]
    looped = data.graph.adjacency.toarray() + np.eye(ALL)
    root = np.diag(looped.sum(1) ** -0.5)
    step = root @ looped @ root if model == "gcn" else np.eye(ALL)
    hidden = np.maximum(step @ (words / words.sum(1, keepdims=True)) @ p["0.weight"] + p["0.bias"], 0)
    decided = (step @ hidden @ p["1.weight"] + p["1.bias"]).argmax(1)
    return float((decided == parts()["classes"].argmax(1)[ids])[data.test].mean())


@pytest.mark.parametrize("model", ["gcn", "mlp"])
@pytest.mark.parametrize("which", ["A", "B"])
@pytest.mark.parametrize("pretraining", [0, 30])
def test_the_first_accuracy_is_that_of_the_pretrained_weights(
    folder: Path, model: str, which: str, pretraining: int
) -> None:
    tried = trial(folder, model, which, pretraining)
    accuracy = by_hand(split(folder, "cora", tried.split), tried.pretrained(), model)
    assert tried.run()["accuracy"][0] == pytest.approx(accuracy, abs=1e-12)


def test_weights_start_as_glorot_has_them(folder: Path) -> None:
    weights = trial(folder, "mlp", pretraining=0).pretrained()
    bound = (6 / (WORDS + 64)) ** 0.5
    assert 0.95 * bound < weights["0.weight"].abs().max() <= bound
    assert not weights["0.bias"].any()
    assert not weights["1.bias"].any()


# --- who sees what ---------------------------------------------------------------------------------------------------


def other_words(whole: dict[str, Any]) -> None:
    whole["words"][TRAIN:] = whole["words"][TRAIN:][::-1, ::-1]


def other_labels(whole: dict[str, Any]) -> None:
    whole["classes"][TRAIN:] = np.roll(whole["classes"][TRAIN:], 1, axis=1)


def other_edges(whole: dict[str, Any]) -> None:
    near = whole["graph"]
    for vertex in range(ALL):
        near[vertex] = [v for v in near[vertex] if max(v, vertex) < TRAIN]
        if vertex >= TRAIN:
            near[vertex] = [vertex - TRAIN]


def other_train_words(whole: dict[str, Any]) -> None:
    whole["words"][7] = whole["words"][7][::-1]


def losses(tried: StaticTrial) -> tuple[list[float], list[float]]:
    """Those of pre-training and those of the inference epochs."""
    found: dict[int, float] = {}
    tried.run(found.__setitem__)
    assert list(found) == list(range(1, tried.pretraining + tried.epochs + 1))
    values = list(found.values())
    return values[: tried.pretraining], values[tried.pretraining :]


@pytest.mark.parametrize("model", STATIC_MODELS)
@pytest.mark.parametrize(
    ("change", "before", "after"),
    [
        (other_words, False, True),
        (other_edges, False, True),
        (other_labels, False, False),
        (other_train_words, True, True),
    ],
)
def test_unseen_vertices_are_seen_only_once_they_have_come_and_their_labels_never(
    folder: Path, tmp_path: Path, model: str, change: Callable[[dict[str, Any]], None], before: bool, after: bool
) -> None:
    whole = parts()
    change(whole)
    one, other = trial(folder, model), trial(write(tmp_path / "changed", whole), model)
    old, new = one.pretrained(), other.pretrained()
    assert any(not torch.equal(old[name], new[name]) for name in old) == before
    (early, late), (early_changed, late_changed) = losses(one), losses(other)
    assert (early != early_changed) == before
    # A perceptron reads no neighbours, and the loss is on the train vertices.
    assert (late != late_changed) == (after and (before or model != "mlp"))


# --- the trial as a value --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", STATIC_MODELS)
def test_a_trial_gives_the_same_numbers_again(folder: Path, model: str) -> None:
    tried = trial(folder, model)
    first = tried.run()
    assert json.loads(json.dumps(first)) == first
    assert set(first) == {"accuracy", "train_vertices", "train_edges", "unseen_edges", "test_vertices"}
    assert len(first["accuracy"]) == 4
    assert all(isinstance(value, float) and 0 <= value <= 1 for value in first["accuracy"])
    torch.manual_seed(99)
    split.cache_clear()
    assert pickle.loads(pickle.dumps(tried)).run() == first
    weights, others = tried.pretrained(), dataclasses.replace(tried, seed=5).pretrained()
    assert any(not torch.equal(weights[name], others[name]) for name in weights)


def test_a_trial_computes_on_one_thread_for_the_order_of_sums(folder: Path) -> None:
    before, found = torch.get_num_threads(), set()
    try:
        torch.set_num_threads(2)
        trial(folder).run(lambda _epoch, _loss: found.add(torch.get_num_threads()))
        assert (found, torch.get_num_threads()) == ({1}, 2)
    finally:
        torch.set_num_threads(before)


def test_trials_that_differ_in_pretraining_start_alike(folder: Path) -> None:
    start, step = (trial(folder, pretraining=before).pretrained() for before in (0, 1))
    for name, value in start.items():
        moved = (step[name] - value).abs()
        assert 0 < moved.max() <= 0.005 * 1.001  # the first step of Adam is the learning rate


def test_the_grid_is_that_of_the_paper() -> None:
    trials = grid("somewhere", range(100))
    assert len(set(trials)) == len(trials) == 3 * 2 * 5 * 2 * 100
    assert {one.epochs for one in trials} == {35}
    described = {json.dumps(one.described()) for one in trials}
    assert len(described) == 60
    assert not any("somewhere" in text or "seed" in text for text in described)
    assert all(json.loads(text)["kind"] == "static" for text in described)
    assert json.loads(json.dumps(grid(Path("x"), [1], ["pubmed"], ["gat"], ["B"], [200])[0].described())) == {
        "kind": "static",
        "graph": "pubmed",
        "split": "B",
        "model": {"name": "gat", "hidden": 8, "heads": 8, "out_heads": 8, "layers": 2, "dropout": 0.6, "slope": 0.2},
        "lr": 0.01,
        "weight_decay": 0.001,
        "pretraining": 200,
        "epochs": 35,
    }
    # The folder is not part of what a trial is.
    assert grid("somewhere", [1]) == grid("elsewhere", [1])


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"graph": "kora"}, "no graph 'kora'.*Choose one of cora, citeseer, pubmed"),
        ({"split": "C"}, "no split 'C'.*Choose one of A, B"),
        ({"model": "saint"}, "no model 'saint'.*Choose one of gcn, gcn-64"),
        ({"pretraining": -1}, "pretraining is -1"),
        ({"epochs": 1.5}, "epochs is 1.5"),
        ({"seed": True}, "seed is True"),
    ],
)
def test_trials_that_make_no_sense_are_refused(folder: Path, wrong: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        dataclasses.replace(trial(folder), **wrong)


# --- does it learn? --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", STATIC_MODELS)
def test_models_learn_before_the_unseen_vertices_come(folder: Path, model: str) -> None:
    untrained = [trial(folder, model, "B", 0, epochs=0, seed=seed).run()["accuracy"][0] for seed in range(20)]
    assert 0.2 < statistics.fmean(untrained) < 0.45  # one of three
    assert trial(folder, model, "B", 200, epochs=0).run()["accuracy"][0] > 0.65


@pytest.mark.slow
def test_pretraining_does_on_cora_what_the_paper_says(shared_data: SharedData) -> None:
    folder = shared_data("planetoid")
    none, much = (StaticTrial("cora", folder, "B", "gcn", before, seed=0).run()["accuracy"] for before in (0, 200))
    assert len(none) == len(much) == 36
    assert none[0] < 0.35
    assert much[0] > 0.6
    assert all(with_it > without for with_it, without in zip(much, none, strict=True))


# --- curves and divergences ------------------------------------------------------------------------------------------


def made_up(seeds: int = 4, epochs: int = 5) -> list[tuple[StaticTrial, dict[str, Any]]]:
    """Results of other accuracies for each trial, around .5 in split A and .7 in split B."""
    rng = np.random.default_rng(6)
    trials = grid("nowhere", range(seeds), epochs=epochs, models=["gcn", "mlp"], graphs=["cora", "pubmed"])
    middle = {"A": 0.5, "B": 0.7}
    return [(one, {"accuracy": (middle[one.split] + rng.uniform(-0.2, 0.2, epochs + 1)).tolist()}) for one in trials]


def chosen(results: Results, **wanted: Any) -> list[list[float]]:
    return [
        result["accuracy"]
        for one, result in results
        if all(getattr(one, name) == value for name, value in wanted.items())
    ]


def test_curves_are_means_and_deviations_over_seeds() -> None:
    results = made_up()
    found = curves(results)
    assert len(found) == len({(c.graph, c.split, c.model, c.pretraining) for c in found}) == 2 * 2 * 2 * 2
    for curve in found:
        runs = chosen(results, graph=curve.graph, split=curve.split, model=curve.model, pretraining=curve.pretraining)
        assert (curve.runs, len(curve.mean), len(curve.sd)) == (4, 6, 6)
        epochs = list(zip(*runs, strict=True))
        assert curve.mean == pytest.approx([statistics.fmean(values) for values in epochs])
        assert curve.sd == pytest.approx([statistics.stdev(values) for values in epochs])


def test_one_seed_has_a_mean_and_no_deviation() -> None:
    (one, result), *_ = made_up(seeds=1)
    (curve,) = curves([(one, result)])
    assert curve.mean == pytest.approx(result["accuracy"])
    assert np.isnan(curve.sd).all()


def test_divergences_are_those_of_scipy() -> None:
    results = made_up()
    found = divergences(results)
    assert [(one.model, one.pretraining) for one in found] == [("gcn", 0), ("gcn", 200), ("mlp", 0), ("mlp", 200)]
    for one in found:
        of = {"model": one.model, "pretraining": one.pretraining}
        a, b = (np.concatenate(chosen(results, split=which, **of)) for which in "AB")
        p, q = a / a.sum(), b / b.sum()
        assert one.values == len(a) == 2 * 4 * 6
        assert one.jensen_shannon_distance == pytest.approx(jensenshannon(a, b), rel=1e-9)
        assert one.jensen_shannon == pytest.approx(jensenshannon(a, b) ** 2, rel=1e-9)
        assert one.half_jeffreys == pytest.approx((rel_entr(p, q) + rel_entr(q, p)).sum() / 2, rel=1e-9)
        for graph in ("cora", "pubmed"):
            bins = [
                np.bincount(
                    (20 * np.concatenate(chosen(results, split=which, graph=graph, **of))).astype(int), minlength=20
                )
                for which in "AB"
            ]
            assert one.histogram_of[graph] == pytest.approx(jensenshannon(*bins) ** 2, rel=1e-9)
            samples = [np.concatenate(chosen(results, split=which, graph=graph, **of)) for which in "AB"]
            assert one.transport_of[graph] == pytest.approx(wasserstein_distance(*samples), rel=1e-9)
        assert one.histogram == pytest.approx(sum(one.histogram_of.values()) / 2)
        assert one.transport == pytest.approx(sum(one.transport_of.values()) / 2)


def test_the_order_of_results_does_not_matter() -> None:
    results = made_up()
    shuffled = random.Random(2).sample(results, len(results))
    for one in divergences(results):
        (other,) = [d for d in divergences(shuffled) if (d.model, d.pretraining) == (one.model, one.pretraining)]
        for name in ("half_jeffreys", "jensen_shannon", "jensen_shannon_distance", "histogram", "transport", "values"):
            assert getattr(one, name) == pytest.approx(getattr(other, name), rel=1e-9)


def test_what_the_papers_statistic_does_not_see_the_histograms_do() -> None:
    def found(a: list[list[float]], b: list[list[float]]) -> Any:
        trials = grid("nowhere", range(2), graphs=["cora"], models=["gcn"], pretraining=[0], epochs=1)
        (one,) = divergences([(t, {"accuracy": run}) for t, run in zip(trials, [*a, *b], strict=True)])
        return one

    permuted = found([[0.2, 0.9], [0.4, 0.6]], [[0.6, 0.4], [0.9, 0.2]])
    assert permuted.jensen_shannon_distance > 0.2
    assert permuted.histogram == 0
    halved = found([[0.2, 0.44], [0.24, 0.48]], [[0.4, 0.88], [0.48, 0.96]])
    assert halved.jensen_shannon_distance == pytest.approx(0, abs=1e-7)
    assert halved.histogram > 0.3


def test_histograms_need_shares() -> None:
    assert histogram_divergence([0.0, 1.0], [1.0, 0.0, 0.0, 1.0]) == 0
    assert histogram_divergence([0.11, 0.13], [0.13, 0.11], bins=2) == 0
    for wrong in ([], [1.2], [-0.1], [float("nan")]):
        with pytest.raises(InputError, match="Pass numbers from 0 to 1"):
            histogram_divergence(wrong, [0.5])


def test_results_that_do_not_belong_together_are_refused() -> None:
    results = made_up()
    (one, result), *others = results
    with pytest.raises(InputError, match=r"gcn on cora with seed 0 .*both splits"):
        divergences(others)
    with pytest.raises(InputError, match="are not pairs of splits"):
        divergences([(one, {"accuracy": result["accuracy"][:-1]}), *others])
    with pytest.raises(InputError, match="different numbers of epochs"):
        curves([(one, {"accuracy": result["accuracy"][:-1]}), *others])
    for again in (one, dataclasses.replace(one, epochs=9)):
        for function in (curves, divergences):
            with pytest.raises(InputError, match="are the same except for their epochs"):
                function([*results, (again, result)])
