from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evergraph import EvolvingGraph, InputError
from evergraph.datasets.synthetic import Synthetic, SyntheticGraph, synthetic
from evergraph.graph.features import WordCounts


def homophily(made: SyntheticGraph) -> float:
    source, target, _ = made.graph.links.ends()
    return float((made.classes[source] == made.classes[target]).mean())


def variation(share: np.ndarray) -> np.ndarray:
    """Total variation between the class distributions of consecutive times."""
    return np.abs(np.diff(share, axis=0)).sum(axis=1) / 2


def measured_share(made: SyntheticGraph) -> np.ndarray:
    counts = np.zeros(made.class_share.shape)
    np.add.at(counts, (made.graph.times, made.classes), 1)
    return counts / counts.sum(axis=1, keepdims=True)


def assert_same(one: EvolvingGraph, other: EvolvingGraph) -> None:
    assert np.array_equal(one.times, other.times)
    assert np.array_equal(one.codes, other.codes)
    assert one.class_names == other.class_names
    assert np.array_equal(one.links.indptr, other.links.indptr)
    assert np.array_equal(one.links.indices, other.links.indices)
    assert isinstance(one.features.words, WordCounts)
    assert isinstance(other.features.words, WordCounts)
    assert (one.features.words.matrix != other.features.words.matrix).nnz == 0
    assert list(one.features.words.columns) == list(other.features.words.columns)


class TestClasses:
    def test_births_and_deaths_are_those_of_the_graph(self) -> None:
        for seed in range(5):
            made = Synthetic(
                vertices=400, classes=10, new_classes=8, dying_classes=4, imbalance=3, seed=seed
            ).generate()
            registry = made.graph.classes
            assert dict(zip(registry.names, registry.first.tolist(), strict=True)) == made.births
            assert dict(zip(registry.names, registry.last.tolist(), strict=True)) == made.deaths

    def test_classes_are_named_in_order_of_birth_and_numbered_as_a_rebuilt_graph_numbers_them(self) -> None:
        graph = synthetic(vertices=600, label_rate=0.3)
        rebuilt = EvolvingGraph.build({"id": graph.ids, "time": graph.times, "label": graph.labels.tolist()})
        assert graph.class_names == rebuilt.class_names == tuple(f"class {row:02d}" for row in range(12))
        assert np.array_equal(graph.codes, rebuilt.codes)

    @pytest.mark.parametrize("growth", [0.8, 1.0, 1.4])
    def test_new_classes_come_one_at_a_time_when_a_quarter_of_the_vertices_is_there(self, growth: float) -> None:
        made = Synthetic(growth=growth, new_classes=3 if growth > 1 else 7).generate()
        births = [time for time in made.births.values() if time]
        assert len(births) == len(set(births)) == len(made.births) - 8
        before = np.searchsorted(made.graph.times, births)
        assert (before >= len(made.graph) / 4).all()

    def test_dying_classes_end_before_the_last_time(self) -> None:
        made = Synthetic(dying_classes=3).generate()
        assert sum(time < 11 for time in made.deaths.values()) == 3
        assert set(made.deaths.values()) <= set(range(3, 12))

    def test_imbalance_orders_the_sizes(self) -> None:
        steady = Synthetic(vertices=20_000, new_classes=0, dying_classes=0, drift=0)
        for imbalance in (0.0, 0.5, 1.0, 2.0):
            made = replace(steady, imbalance=imbalance).generate()
            sizes = np.sort(made.graph.classes.support)[::-1] / 20_000
            zipf = np.arange(1, 9.0) ** -imbalance
            assert sizes == pytest.approx(zipf / zipf.sum(), abs=0.015)

    def test_share_is_where_classes_are_drawn_from(self) -> None:
        made = Synthetic(vertices=60_000, drift=0.3).generate()
        assert made.class_share.sum(axis=1) == pytest.approx(1)
        assert measured_share(made) == pytest.approx(made.class_share, abs=0.03)
        for row, name in enumerate(made.births):
            alive = np.flatnonzero(made.class_share[:, row])
            assert (alive[0], alive[-1]) == (made.births[name], made.deaths[name])

    def test_drift_moves_the_classes(self) -> None:
        moved = []
        bare = Synthetic(vertices=200_000, new_classes=0, dying_classes=0, degree=0, words_per_vertex=0)
        for drift in (0.0, 0.1, 0.4):
            made = replace(bare, drift=drift).generate()
            moved.append(variation(measured_share(made)).mean())
            assert variation(made.class_share).mean() == pytest.approx(moved[-1], abs=0.012)
        assert moved[0] < 0.012 < moved[1] < moved[2]

    def test_growth(self) -> None:
        counts = np.bincount(synthetic(vertices=50_000, growth=1.2).times)
        assert counts.sum() == 50_000
        assert counts[1:] / counts[:-1] == pytest.approx(1.2, abs=0.01)
        assert set(np.bincount(synthetic(vertices=3000).times)) == {250}


class TestLinks:
    @pytest.mark.parametrize("wanted", [0.0, 0.2, 0.5, 0.8, 1.0])
    @pytest.mark.parametrize("imbalance", [0.0, 2.0])
    def test_homophily(self, wanted: float, imbalance: float) -> None:
        made = Synthetic(vertices=6000, homophily=wanted, imbalance=imbalance).generate()
        assert homophily(made) == pytest.approx(wanted, abs=0.015 if 0 < wanted < 1 else 0)

    @pytest.mark.parametrize("degree", [0.0, 1.0, 6.0, 25.0])
    def test_mean_degree(self, degree: float) -> None:
        graph = synthetic(vertices=6000, degree=degree)
        assert 2 * graph.n_edges / len(graph) == pytest.approx(degree, rel=0.04)

    def test_edges_get_shorter_with_recency(self) -> None:
        ages = []
        for recency in (0.0, 0.3, 0.7, 1.0):
            graph = synthetic(recency=recency)
            source, target, _ = graph.links.ends()
            ages.append((graph.times[target] - graph.times[source]).mean())
        assert 3 > ages[0] > ages[1] + 0.5 > ages[2] + 1 > ages[3] == 0

    def test_age_fades_by_the_given_share(self) -> None:
        graph = synthetic(vertices=40_000, recency=0.5, drift=0, new_classes=0, dying_classes=0)
        source, target, _ = graph.links.ends()
        ages = (graph.times[target] - graph.times[source])[graph.times[target] == 11]
        counts = np.bincount(ages)
        assert counts[1:5] / counts[:4] == pytest.approx(0.5, abs=0.05)

    def test_a_class_alone_links_only_alike(self) -> None:
        assert synthetic(classes=1, new_classes=0, dying_classes=0, homophily=0.0).n_edges == 0
        assert synthetic(classes=1, new_classes=0, dying_classes=0, homophily=1.0).n_edges > 8000


class TestTexts:
    def test_without_noise_the_nearest_topic_is_the_class(self) -> None:
        made = Synthetic(text_noise=0, drift=0.3).generate()
        assert isinstance(made.graph.features.words, WordCounts)
        matrix = made.graph.features.words.matrix
        assert (matrix.sum(axis=1) == 8).all()
        for time in range(12):
            topics = np.zeros((matrix.shape[1], len(made.births)))
            for row, words in enumerate(made.topics[time]):
                topics[words, row] = 1
            here = made.graph.times == time
            nearest = (matrix[here] @ topics).argmax(axis=1)
            assert (nearest == made.classes[here]).mean() > 0.99

    def test_noise_is_common_to_all(self) -> None:
        features = synthetic(text_noise=1).features.words
        assert isinstance(features, WordCounts)
        assert features.indices.max() < 500

    def test_new_classes_bring_partly_new_words(self) -> None:
        made = Synthetic(text_noise=0.5).generate()
        assert isinstance(made.graph.features.words, WordCounts)
        matrix = made.graph.features.words.matrix
        for name, birth in list(made.births.items())[8:]:
            known = matrix[made.graph.times < birth].sum(axis=0) > 0
            used = made.graph.labels == name
            share = matrix[used][:, known].sum() / matrix[used].sum()
            assert 0.2 < share < 0.9

    def test_drift_exchanges_words(self) -> None:
        for drift in (0.0, 0.2, 1.0):
            topics = Synthetic(words=20_000, drift=drift).generate().topics
            assert (topics[1:] != topics[:-1]).mean() == pytest.approx(drift, abs=0.02)

    def test_names_and_absence(self) -> None:
        features = synthetic(vertices=300, words=20_000).features.words
        assert isinstance(features, WordCounts)
        assert (features.columns[1], features.columns[12_345]) == ("w00001", "w12345")
        assert synthetic(vertices=300).features.words.columns[1] == "w0001"  # type: ignore[union-attr]
        assert not synthetic(vertices=300, words_per_vertex=0).features


class TestLabels:
    @pytest.mark.parametrize("rate", [0.0, 0.25, 1.0])
    def test_rate(self, rate: float) -> None:
        made = Synthetic(vertices=10_000, label_rate=rate).generate()
        labelled = made.graph.codes >= 0
        assert labelled.mean() == pytest.approx(rate, abs=0.02)
        assert np.array_equal(made.graph.codes[labelled], made.classes[labelled])
        assert dict(zip(made.graph.class_names, made.graph.classes.first.tolist(), strict=True)) == made.births

    def test_labels_leave_all_else_alone(self) -> None:
        full, sparse = Synthetic(vertices=500).generate(), Synthetic(vertices=500, label_rate=0.5).generate()
        assert np.array_equal(full.classes, sparse.classes)
        assert_same(full.graph, replace(sparse.graph, codes=full.classes))


class TestRandomness:
    def test_same_seed_same_graph(self) -> None:
        assert_same(synthetic(seed=3), Synthetic(seed=3).generate().graph)
        assert synthetic(seed=3).about == {"source": repr(Synthetic(seed=3))}

    def test_another_seed_another_graph(self) -> None:
        one, other = synthetic(seed=3), synthetic(seed=4)
        assert not np.array_equal(one.codes, other.codes)
        assert not np.array_equal(one.links.indices[:100], other.links.indices[:100])

    def test_the_graph_stays_the_same_from_version_to_version(self) -> None:
        # If this changes on purpose, every number that was measured on such graphs changes, too.
        made = Synthetic(vertices=300, times=5, classes=3, new_classes=2).generate()
        source, target, _ = made.graph.links.ends()
        assert made.graph.n_edges == 936
        assert made.classes[:12].tolist() == [0, 1, 2, 1, 2, 2, 1, 2, 1, 2, 2, 1]
        assert list(zip(source[:4].tolist(), target[:4].tolist(), strict=True)) == [(0, 3), (0, 9), (0, 14), (0, 55)]
        assert isinstance(made.graph.features.words, WordCounts)
        assert made.graph.features.words.indices[:8].tolist() == [9, 155, 284, 298, 387, 489, 685, 767]


class TestErrors:
    @pytest.mark.parametrize(
        ("parameters", "named"),
        [
            ({"homophily": 1.1}, "homophily is 1.1. Let homophily be a number from 0 to 1."),
            ({"homophily": -0.1}, "homophily"),
            ({"homophily": float("nan")}, "homophily"),
            ({"homophily": "high"}, "homophily"),
            ({"vertices": 0}, "vertices"),
            ({"vertices": 10.5}, "whole number"),
            ({"vertices": True}, "vertices"),
            ({"times": 0}, "times"),
            ({"classes": 0}, "classes"),
            ({"new_classes": -1}, "new_classes"),
            ({"new_classes": 10}, "new_classes is 10. Let new_classes be at most 9, "),
            ({"times": 1}, "dying_classes"),
            ({"times": 1, "dying_classes": 0}, "new_classes"),
            ({"dying_classes": 8}, r"fewer than classes \(8\)"),
            ({"growth": 0}, "growth"),
            ({"growth": float("inf")}, "growth"),
            ({"growth": 10}, "at most 0"),
            ({"vertices": 5, "classes": 1, "new_classes": 0, "dying_classes": 0}, "time 0 gets 0, but needs 1"),
            ({"vertices": 90}, "vertices is 90.*time 11 gets 8, but needs 11"),
            ({"imbalance": -1}, "imbalance"),
            ({"degree": -1}, "degree"),
            ({"recency": 2}, "recency"),
            ({"words": 47}, "words is 47. Let words be at least 48"),
            ({"words_per_vertex": -1}, "words_per_vertex"),
            ({"text_noise": 1.5}, "text_noise"),
            ({"drift": 3}, "drift"),
            ({"label_rate": 50}, "label_rate"),
            ({"seed": -1}, "seed"),
        ],
    )
    def test_a_bad_parameter_is_named(self, parameters: dict[str, Any], named: str) -> None:
        with pytest.raises(InputError, match=named):
            Synthetic(**parameters)


def test_words_do_not_depend_on_the_blocks_they_are_drawn_in(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = synthetic(vertices=100, times=3, new_classes=1, seed=3)
    monkeypatch.setattr(sys.modules[Synthetic.__module__], "_BLOCK", 7)
    assert_same(synthetic(vertices=100, times=3, new_classes=1, seed=3), whole)


def test_progress_counts_to_all_vertices_twice() -> None:
    shown: list[tuple[str, int, int]] = []
    Synthetic(vertices=100, times=4, new_classes=1).generate(lambda *counts: shown.append(counts))
    assert shown == [
        ("edges", 25, 100),
        ("edges", 50, 100),
        ("edges", 75, 100),
        ("edges", 100, 100),
        ("words", 100, 100),
    ]


@st.composite
def parameters(draw: st.DrawFn) -> Synthetic:
    share = st.floats(0, 1)
    times = draw(st.integers(1, 9))
    classes = draw(st.integers(1, 5))
    # With these growths and as many vertices, at most half of the times pass before a quarter of the vertices exist.
    new_classes = draw(st.integers(0, times // 2))
    return Synthetic(
        vertices=draw(st.integers(40 * times, 60 * times)),
        times=times,
        classes=classes,
        new_classes=new_classes,
        dying_classes=draw(st.integers(0, classes - 1)) if times > 1 else 0,
        growth=draw(st.floats(0.9, 1.1)),
        imbalance=draw(st.floats(0, 10)),
        homophily=draw(share),
        degree=draw(st.floats(0, 40)),
        recency=draw(share),
        words=draw(st.integers(4 * (classes + new_classes), 200)),
        words_per_vertex=draw(st.integers(0, 5)),
        text_noise=draw(share),
        drift=draw(share),
        label_rate=draw(share),
        seed=draw(st.integers(0, 2**31 - 1)),
    )


@settings(max_examples=60, deadline=None)
@given(parameters())
def test_whatever_is_asked_for_comes_out_whole(asked: Synthetic) -> None:
    made = asked.generate()
    graph = made.graph
    assert len(graph) == asked.vertices
    assert graph.ids.tolist() == list(range(asked.vertices))
    assert (np.diff(graph.times) >= 0).all()
    assert set(graph.times.tolist()) == set(range(asked.times))
    source, target, _ = graph.links.ends()
    assert (source < target).all()
    assert len(np.unique(source.astype(np.int64) * len(graph) + target)) == graph.n_edges
    if asked.homophily in (0, 1):
        assert ((made.classes[source] == made.classes[target]) == asked.homophily).all()
    for row, name in enumerate(made.births):
        times = graph.times[made.classes == row]
        assert (times[0], times[-1]) == (made.births[name], made.deaths[name])
    assert graph.class_names == tuple(made.births)
    labelled = graph.codes >= 0
    assert np.array_equal(graph.codes[labelled], made.classes[labelled])
    if asked.words_per_vertex:
        assert isinstance(graph.features.words, WordCounts)
        assert graph.features.words.width == asked.words
        assert (graph.features.words.matrix.sum(axis=1) == asked.words_per_vertex).all()
