"""Signals of unseen classes, against independent computations, and what they must not depend on."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from scipy.special import gammaln
from sklearn.linear_model import Ridge

from evergraph import EvolvingGraph
from evergraph.datasets import synthetic
from evergraph.detect.signals import NAMES, PastContext, SliceSignals, label_weights, slice_signals
from evergraph.inputs.slice_context import SliceContext
from evergraph.learning.task import Task

GRAPH = synthetic(vertices=400, times=6, classes=5, new_classes=2, words=90, words_per_vertex=5, seed=3)
TIME = 4
KNOWN = tuple(sorted({name for name in GRAPH.labels[GRAPH.times < TIME] if name is not None})[1:])  # one is not known


def logits_of(count: int, classes: int = len(KNOWN)) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(count, classes)) * 3


def signals_of(graph: EvolvingGraph = GRAPH, time: int = TIME, classes: tuple[str, ...] = KNOWN) -> SliceSignals:
    context = PastContext(Task(graph, time, 1), classes)
    return SliceSignals(context, logits_of(len(context), len(classes)))


def column(signals: SliceSignals, name: str) -> np.ndarray:
    return signals.values()[:, NAMES.index(name)]


SIGNALS = signals_of()
PAST = SIGNALS.context


def test_there_is_one_finite_number_for_each_vertex_and_name() -> None:
    assert SIGNALS.values().shape == (len(PAST), len(NAMES)) == (len(PAST), len(set(NAMES)))
    assert np.isfinite(SIGNALS.values()).all()
    silent = {name for name, spread in zip(NAMES, np.ptp(SIGNALS.values(), axis=0), strict=True) if not spread}
    rare = {"new_words", "new_shared_words", "isolated"}  # all words of this graph occur early
    assert silent <= rare | {f"{name} of similar" for name in rare}


def test_the_past_has_all_older_vertices_and_classes_that_the_model_does_not_know() -> None:
    assert PAST.start == (GRAPH.times < TIME).sum()
    assert PAST.labelled_classes[: len(KNOWN)] == KNOWN
    (other,) = PAST.labelled_classes[len(KNOWN) :]
    assert [PAST.labelled_classes[place] for place in PAST.known] == list(GRAPH.labels[: PAST.start])
    assert (PAST.known == len(KNOWN)).sum() == (GRAPH.labels[: PAST.start] == other).sum() > 0


def test_only_the_newest_of_a_long_past_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evergraph.detect.signals._PAST", 70)
    context = PastContext(Task(GRAPH, TIME, 1), KNOWN)
    assert (context.start, len(context.window)) == (70, 70 + len(PAST))
    assert np.array_equal(context.known, PAST.known[-70:])
    assert np.isfinite(SliceSignals(context, logits_of(len(context))).values()).all()


def test_labels_spread_over_edges_as_a_series_of_matrix_products() -> None:
    start, dense = PAST.start, GRAPH.adjacency[: len(PAST.window), : len(PAST.window)].toarray()
    one_hot = np.zeros((len(dense), len(PAST.labelled_classes)))
    one_hot[np.arange(start), PAST.known] = 1
    mass = np.zeros((len(dense), one_hot.shape[1]))
    shares = dense / np.maximum(dense.sum(1, keepdims=True), 1)
    for _ in range(6):
        mass = 0.9 * shares @ np.where(np.arange(len(dense))[:, None] < start, one_hot, mass)
    known, other = mass[start:, : len(KNOWN)], mass[start:, len(KNOWN) :]
    assert np.allclose(column(SIGNALS, "label_mass"), -known.sum(1))
    assert np.allclose(column(SIGNALS, "label_max"), -known.max(1))
    assert np.allclose(column(SIGNALS, "label_other"), other.sum(1))
    inside = dense[start:, start:].sum(1)
    assert np.allclose(column(SIGNALS, "slice_neighbours"), np.log1p(inside))
    assert np.array_equal(column(SIGNALS, "isolated"), dense[start:].sum(1) == 0)


def test_nearest_vertices_are_those_of_a_full_search() -> None:
    vectors, start = PAST.vectors, PAST.start
    cosines = vectors[start:] @ vectors.T
    cosines[np.arange(len(cosines)), start + np.arange(len(cosines))] = -np.inf
    share, expected = (len(PAST) - 1) / (len(vectors) - 1), []
    for row in cosines:
        order = np.argsort(-row)[:50]
        known = [row[other] for other in order if other < start and PAST.known[other] < len(KNOWN)]
        inside = [row[other] for other in order if other >= start]
        nearest, slice_ = (np.mean((found + [row[order[-1]]] * 5)[:5]) for found in (known, inside))
        density = (len(inside) / 50 - share) / np.sqrt(share * (1 - share) / 50)
        expected.append((-nearest, slice_ - nearest, density))
    for place, name in enumerate(("known_distance", "slice_excess", "slice_density")):
        assert np.allclose(column(SIGNALS, name), [row[place] for row in expected]), name


def test_ridge_scores_are_those_of_scikit_learn() -> None:
    inputs = np.concatenate([PAST.contents, PAST.vectors, np.ones((len(PAST.window), 1))], 1)
    targets = np.eye(len(PAST.labelled_classes))[PAST.known]
    ridge = Ridge(alpha=1, fit_intercept=False).fit(inputs[: PAST.start], targets, sample_weight=label_weights(PAST))
    scores = ridge.predict(inputs[PAST.start :])
    assert np.allclose(column(SIGNALS, "ridge"), -scores[:, : len(KNOWN)].max(1))
    other = scores[:, len(KNOWN) :].max(1) - scores[:, : len(KNOWN)].max(1)
    assert np.allclose(column(SIGNALS, "ridge_other"), other)


def test_the_bayes_factor_compares_dirichlet_multinomial_distributions() -> None:
    words, start, weights = PAST.words.toarray().astype(float), PAST.start, label_weights(PAST)
    similar = PAST.similar.toarray()
    together = (similar + similar.T > 0) | np.eye(len(PAST), dtype=bool)
    frequency = words.sum(0) + 0.5
    prior = 100 * frequency / (words.sum() + 0.5 * words.shape[1])
    used = words[start:].sum(0) > 0

    def likelihood(counts: np.ndarray, weight: np.ndarray, total: float) -> float:
        parts = gammaln(weight[used] + np.minimum(counts[used], 25)) - gammaln(weight[used])
        return float(parts.sum() - gammaln(total + counts.sum()) + gammaln(total))

    for vertex in range(0, len(PAST), 7):
        patch = words[start:][together[vertex]].sum(0)
        known = []
        for place in range(len(KNOWN)):
            members = PAST.known == place
            counts = weights[members] @ words[:start][members]
            cap = min(1, 3000 / max(counts.sum(), 1))
            known.append(likelihood(patch, prior + cap * counts, 100 + cap * counts.sum()))
        expected = (likelihood(patch, prior, 100) - max(known)) / max(patch.sum(), 1)
        assert np.isclose(column(SIGNALS, "bayes_factor")[vertex], np.clip(expected, -5, 5))


def test_words_are_counted_one_by_one() -> None:
    words, start = PAST.words.toarray(), PAST.start
    for vertex in range(0, len(PAST), 5):
        own = np.flatnonzero(words[start + vertex])
        older, others = words[:start, own].sum(0), words[start:, own].sum(0) - 1
        number = max(len(own), 1)
        assert np.isclose(column(SIGNALS, "new_words")[vertex], (older == 0).sum() / number)
        assert np.isclose(column(SIGNALS, "new_shared_words")[vertex], ((older <= 1) & (others >= 1)).sum() / number)
        rarity = -np.log((older + 0.5) / (start + 1)).sum() / number
        assert np.isclose(column(SIGNALS, "rarity")[vertex], rarity)


# --- hidden classes --------------------------------------------------------------------------------------------------


def test_values_without_a_hidden_class_are_the_values() -> None:
    nothing = np.full(len(PAST), -1)
    assert np.allclose(SIGNALS.hidden_values(nothing), SIGNALS.values())


def test_a_vertex_whose_class_is_hidden_looks_as_without_the_logit_of_the_class() -> None:
    targets = np.full(len(PAST), -1)
    targets[:10] = 1
    found = SIGNALS.hidden_values(targets)
    without = SliceSignals(PAST, np.delete(SIGNALS.logits, 1, 1))
    for name in ("msp", "entropy", "energy", "margin"):
        place = NAMES.index(name)
        assert np.allclose(found[:10, place], column(without, name)[:10], atol=1e-9)
        assert np.allclose(found[10:, place], SIGNALS.values()[10:, place])


def test_words_of_a_hidden_class_are_new() -> None:
    targets = np.zeros(len(PAST), np.int64)
    found = SIGNALS.hidden_values(targets)[:, NAMES.index("new_words")]
    words, start = PAST.words.toarray(), PAST.start
    older = words[:start][PAST.known != 0].sum(0)
    own = words[start:]
    expected = (own * (older == 0)).sum(1) / np.maximum(own.sum(1), 1)
    assert np.allclose(found, expected)
    assert (found >= column(SIGNALS, "new_words")).all()


def test_known_vertices_look_more_unseen_if_their_class_is_hidden() -> None:
    truth = GRAPH.labels[PAST.window.rows][PAST.start :]
    targets = np.array([KNOWN.index(name) if name in KNOWN else -1 for name in truth])
    logits = np.where(targets[:, None] == np.arange(len(KNOWN)), 6.0, 0.0)
    signals = SliceSignals(PAST, logits)
    hidden, plain = signals.hidden_values(targets)[targets >= 0], signals.values()[targets >= 0]
    rise = (hidden - plain).mean(0)
    for name in ("msp", "entropy", "label_mass", "known_distance", "ridge", "class_likelihood", "bayes_factor"):
        assert rise[NAMES.index(name)] > 0, name
        assert rise[NAMES.index(f"{name} of similar")] > 0, name


# --- what does not matter --------------------------------------------------------------------------------------------


def test_the_future_does_not_matter() -> None:
    past = GRAPH.up_to(TIME)
    rows = np.flatnonzero(GRAPH.times <= TIME)
    texts = GRAPH.features
    assert texts.words is not None
    shuffled = GRAPH.relabel(list(GRAPH.ids[GRAPH.times > TIME]), ["another class"] * int((GRAPH.times > TIME).sum()))
    assert len(past) == len(rows)
    removed = GRAPH.remove(list(GRAPH.ids[GRAPH.times > TIME]))
    for other in (shuffled, removed):
        assert np.array_equal(signals_of(other).values(), SIGNALS.values())
    own = GRAPH.ids[PAST.window.rows][PAST.start :]
    relabelled = GRAPH.relabel(list(own), ["another class"] * len(own))
    assert np.array_equal(signals_of(relabelled).values(), SIGNALS.values())


def test_labels_that_are_not_released_do_not_matter() -> None:
    late = Task(GRAPH, TIME, 1, label_latency=1)
    context = PastContext(late, KNOWN)
    found = SliceSignals(context, SIGNALS.logits).values()
    newest = GRAPH.times == TIME - 1
    hidden = GRAPH.relabel(list(GRAPH.ids[newest]), [None] * int(newest.sum()))
    assert np.array_equal(found, SliceSignals(PastContext(Task(hidden, TIME, 1), KNOWN), SIGNALS.logits).values())


KINDS = {
    "no text": {"words_per_vertex": 0},
    "no edges": {"degree": 0},
    "neither": {"words_per_vertex": 0, "degree": 0},
}


@pytest.mark.parametrize(("kind", "classes"), list(product(KINDS, (1, 3))))
def test_signals_that_are_missing_are_silent(kind: str, classes: int) -> None:
    graph = synthetic(vertices=200, times=4, classes=4, new_classes=1, seed=1, **KINDS[kind])
    names = tuple(sorted({name for name in graph.labels[graph.times < 3] if name is not None})[:classes])
    found = signals_of(graph, 3, names)
    assert np.isfinite(found.values()).all()
    if graph.features.words is None:
        assert np.ptp(column(found, "new_words")) == 0
    if not graph.n_edges:
        assert np.ptp(column(found, "label_mass")) == 0


def test_numbers_take_the_place_of_words() -> None:
    rng = np.random.default_rng(0)
    times = np.repeat([0, 1, 2], 40)
    labels = rng.choice(["a", "b"], 120)
    vertices = {"id": np.arange(120), "time": times, "label": labels}
    features = rng.normal(size=(120, 4)) + 3 * (labels == "a")[:, None]
    found = signals_of(EvolvingGraph.build(vertices, features=features), 2, ("a", "b"))
    assert np.isfinite(found.values()).all()
    assert np.ptp(column(found, "ridge")) > 0
    assert np.ptp(column(found, "known_distance")) > 0


def test_signals_are_kept_as_long_as_the_context_and_the_logits() -> None:
    context = SliceContext(Task(GRAPH, TIME, 1), KNOWN)
    first = slice_signals(context, SIGNALS.logits)
    assert slice_signals(context, SIGNALS.logits.copy()) is first
    assert slice_signals(context, SIGNALS.logits + 1) is not first
    assert slice_signals(replace(context), SIGNALS.logits) is not first
