"""Candidate groups: planted ones are found, whatever the features and the order, and each part does what it says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from sklearn.metrics import adjusted_rand_score

from evergraph import EvolvingGraph
from evergraph.datasets import Synthetic
from evergraph.errors import InputError
from evergraph.inputs.slice_context import SliceContext
from evergraph.learning.task import Task
from evergraph.workspace.review import Group, communities, edges_among, find_groups, telling_words, ties_among

pytestmark = pytest.mark.usefixtures("one_thread")

NEW = 4  # classes, of 12, 20, 28 and 36 vertices
LAST = 3


def planted(
    seed: int = 0, *, words: bool = True, edges: bool = True, dense: bool = False, shuffled: bool = False
) -> tuple[EvolvingGraph, dict[str, int]]:
    """A graph in whose last slice four classes are new, and the number of each of their vertices' class."""
    rng = np.random.default_rng(seed)
    times = np.repeat(np.arange(LAST + 1), [80, 80, 80, 80 + 96])
    classes = rng.integers(0, 5, len(times))
    classes[-96:] = np.repeat(np.arange(5, 5 + NEW), [12, 20, 28, 36])
    ids = [f"v{number:03}" for number in rng.permutation(len(times))]
    texts = [
        " ".join(
            [*(f"w{one}x{word}" for word in rng.integers(0, 15, 4)), *(f"all{word}" for word in rng.integers(0, 9, 5))]
        )
        for one in classes
    ]
    ends = []
    for one in range(len(times)):
        like = np.flatnonzero((classes == classes[one]) & (times <= times[one]))
        ends += [(ids[one], ids[other]) for other in rng.choice(like, 2)]
        ends += [(ids[one], ids[rng.integers(0, len(ids))])] * int(rng.random() < 0.2)
    centres = rng.normal(size=(9, 12)) * 2
    numbers = centres[classes] + rng.normal(size=(len(times), 12))
    order = rng.permutation(len(times)) if shuffled else np.arange(len(times))
    vertices: dict[str, Any] = {"id": [ids[one] for one in order], "time": times[order].tolist()}
    if words:
        vertices["text"] = [texts[one] for one in order]
    features = numbers[order] if dense else None
    links = [ends[one] for one in (np.random.default_rng(1).permutation(len(ends)) if shuffled else range(len(ends)))]
    graph = EvolvingGraph.build(vertices, links if edges else None, features=features)
    return graph, {ids[one]: int(classes[one]) for one in np.flatnonzero(classes >= 5)}


def sight_of(graph: EvolvingGraph, time: int = LAST) -> SliceContext:
    return SliceContext(Task(graph, time, 1), classes=())


def rows_of(sight: SliceContext, ids: Any) -> np.ndarray:
    wanted = set(ids)
    return np.flatnonzero([id in wanted for id in sight.window.ids[sight.start :]])


def agreement(groups: list[Group], truth: dict[Any, int]) -> float:
    """Adjusted Rand index; a vertex that is alone is a group of its own."""
    number = {id: place for place, group in enumerate(groups) for id in group.members}
    found = [number.get(id, -1 - place) for place, id in enumerate(truth)]
    return float(adjusted_rand_score(list(truth.values()), found))


# --- groups ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "least"),
    [
        ({}, 0.95),
        ({"edges": False}, 0.75),
        ({"words": False}, 0.7),
        ({"words": False, "dense": True}, 0.95),
        ({"words": False, "dense": True, "edges": False}, 0.75),
    ],
    ids=["words and edges", "words", "edges", "dense and edges", "dense"],
)
def test_planted_classes_are_found(options: dict[str, bool], least: float) -> None:
    for seed in range(3):
        graph, truth = planted(seed, **options)
        sight = sight_of(graph)
        groups = find_groups(sight, rows_of(sight, truth))
        assert agreement(groups, truth) > least
        if options.get("words", True):
            for group in groups[:NEW]:
                named = {truth[str(id)] for id in group.members}
                assert group.terms
                # Words are called by their class.
                assert sum(int(term[1]) in named for term in group.terms if term[0] == "w") >= len(group.terms) - 1


def test_new_classes_of_a_made_up_graph_are_found() -> None:
    made = Synthetic(vertices=3000, times=10, classes=4, new_classes=6, imbalance=0, text_noise=0.3, seed=3).generate()
    graph = made.graph
    late = [row for row, name in enumerate(graph.class_names) if made.births[name] >= 4]
    sight = sight_of(graph, 9)
    codes = made.classes[sight.window.rows][sight.start :]
    rows = np.flatnonzero(np.isin(codes, late))
    ids = sight.window.ids[sight.start :]
    truth = {int(ids[row]): int(codes[row]) for row in rows}
    assert len(set(truth.values())) > 3
    assert agreement(find_groups(sight, rows), truth) > 0.6


@pytest.mark.parametrize("options", [{}, {"words": False}, {"words": False, "dense": True}, {"edges": False}])
def test_the_order_of_vertices_edges_and_rows_does_not_matter(options: dict[str, bool]) -> None:
    graph, truth = planted(5, **options)
    other, same = planted(5, **options, shuffled=True)
    assert truth == same
    assert list(graph.ids) != list(other.ids)
    one, two = sight_of(graph), sight_of(other)
    rows = rows_of(one, truth)
    expected = find_groups(one, rows)
    assert expected
    assert find_groups(one, rows) == expected
    assert find_groups(sight_of(graph), np.random.default_rng(0).permutation(rows)) == expected
    assert find_groups(one, [*rows, *rows[:5]]) == expected
    assert find_groups(two, rows_of(two, truth)) == expected


def test_equal_texts_are_one_group_in_any_order() -> None:
    """More of them than a vertex has nearest ones, so what is even must be broken by id."""
    ids = [f"v{place}" for place in range(40)]
    texts = {id: "twins alike" if place % 2 else f"word{place} rest" for place, id in enumerate(ids)}
    found = []
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(ids).tolist()
        graph = EvolvingGraph.build(
            {"id": ["a", *order], "time": [1] + [2] * 40, "text": ["x", *(texts[id] for id in order)]}
        )
        found.append(find_groups(sight_of(graph, 2), rows_of(sight_of(graph, 2), ids[1::2])))
    assert found[0] == found[1] == found[2]


def test_groups_are_what_they_say() -> None:
    graph, truth = planted(2)
    sight = sight_of(graph)
    groups = find_groups(sight, rows_of(sight, truth))
    members = [id for group in groups for id in group.members]
    assert len(members) == len(set(members))
    assert set(members) <= truth.keys()
    sizes = [len(group) for group in groups]
    assert sizes == sorted(sizes, reverse=True)
    assert min(sizes) > 1
    for group in groups:
        rows = set(graph.find(group.members).tolist())
        links = graph.window(LAST, LAST).links
        first = graph.window(LAST, LAST).rows.start
        older, younger, _ = links.ends()
        inside = sum(a + first in rows and b + first in rows for a, b in zip(older, younger, strict=True))
        assert group.edges == inside
        assert group.exemplars == group.members[:3]
        assert len(group.terms) <= 6


def test_what_was_flagged_by_mistake_stays_out_of_the_new_classes() -> None:
    graph, truth = planted(1)
    sight = sight_of(graph)
    ids = [str(id) for id in sight.window.ids[sight.start :]]
    wrong = [id for id in ids if id not in truth][:15]
    groups = find_groups(sight, rows_of(sight, [*truth, *wrong]))
    for group in groups[:NEW]:
        assert np.mean([id in truth for id in group.members]) > 0.9
    grouped = {id for group in groups for id in group.members}
    assert np.mean([id in grouped for id in truth]) > 0.95


def test_one_that_was_flagged_by_mistake_is_alone() -> None:
    """Its nearest are others of its class, which were not flagged; of the flagged ones some would always be nearest."""
    texts = ["alpha beta gamma"] * 6 + ["alpha beta shared"] + ["shared delta epsilon"] * 6
    graph = EvolvingGraph.build({"id": list(range(14)), "time": [1] + [2] * 13, "text": ["old", *texts]})
    sight = sight_of(graph, 2)
    (group,) = find_groups(sight, np.arange(6, 13))
    assert set(group.members) == set(range(8, 14))
    (group,) = find_groups(sight, np.arange(13)[::-1])[1:]  # all flagged: it goes with its class
    assert set(group.members) == set(range(8, 14))


def test_corners() -> None:
    graph, truth = planted()
    sight = sight_of(graph)
    assert find_groups(sight, []) == []
    assert find_groups(sight, rows_of(sight, list(truth)[:1])) == []
    bare = EvolvingGraph.build({"id": [1, 2, 3], "time": [1, 2, 2]})
    assert find_groups(sight_of(bare, 2), [0, 1]) == []
    assert find_groups(sight_of(bare, 1), [0]) == []  # nothing before it
    tied = EvolvingGraph.build({"id": [1, 2, 3], "time": [1, 2, 2]}, [[3, 2]])
    assert find_groups(sight_of(tied, 2), [0, 1]) == [Group((2, 3), (), 1)]
    cited = EvolvingGraph.build({"id": [1, 2, 3], "time": [1, 2, 2]}, [[3, 1], [2, 1]])
    assert find_groups(sight_of(cited, 2), [1, 0]) == [Group((2, 3), (), 0)]
    empty = EvolvingGraph.build({"id": [1, 2, 3], "time": [1, 2, 2], "text": ["", "", ""]})
    assert find_groups(sight_of(empty, 2), [0, 1]) == []
    zero = EvolvingGraph.build({"id": [1, 2, 3], "time": [1, 2, 2]}, features=np.zeros((3, 2)))
    assert find_groups(sight_of(zero, 2), [0, 1]) == []


@pytest.mark.parametrize("rows", [[-1], [0, 10_000], [0.5], [[0]]])
def test_rows_that_are_none_are_refused(rows: Any) -> None:
    with pytest.raises(InputError, match="row"):
        find_groups(sight_of(planted()[0]), rows)


# --- ties ------------------------------------------------------------------------------------------------------------


def ties_by_hand(sight: SliceContext, rows: np.ndarray) -> np.ndarray:
    """The same with dense matrices and sorting."""
    start, n = sight.start, len(sight)
    ids = [str(id) for id in sight.window.ids]
    links = sight.window.adjacency.toarray().astype(float)
    ways = links[start:, start:].copy()
    kinds = [(links[start:], links[start:].sum(0), n)]
    if sight.words.shape[1]:
        words = sight.words.toarray().astype(float)
        kinds.append((words[start:], words.sum(0), len(sight.window)))
    likes = []
    for matrix, texts, total in kinds:
        new = matrix.sum(0)
        weight = np.where((new >= 2) & (new <= max(0.1 * n, 10)), np.log((1 + total) / (1 + texts)) + 1, 0)
        scaled = matrix * weight
        length = np.linalg.norm(scaled, axis=1, keepdims=True)
        scaled = scaled / np.where(length > 0, length, 1)
        likes.append(scaled @ scaled.T)
    if sight.dense is not None:
        likes.append(sight.vectors[start:].astype(float) @ sight.vectors[start:].T)
    near = np.zeros((n, n))
    for like in likes:
        for one in range(n):
            others = [other for other in range(n) if other != one and like[one, other] > 1e-9]
            others.sort(key=lambda other: (-round(like[one, other], 5), ids[start + other]))
            near[one, others[:5]] += 1
    ways += near + near.T
    return ways[np.ix_(rows, rows)]


@pytest.mark.parametrize("options", [{}, {"words": False}, {"words": False, "dense": True}, {"edges": False}])
def test_ties_are_edges_and_the_nearest_of_the_slice(options: dict[str, bool]) -> None:
    graph, truth = planted(4, **options)
    sight = sight_of(graph)
    rows = rows_of(sight, truth)[::2]
    found = ties_among(sight, rows).toarray()
    assert (found == found.T).all()
    differs = found != ties_by_hand(sight, rows)
    assert differs.mean() < 0.002  # single precision breaks a tie otherwise, here and there
    one, other = edges_among(sight, rows)
    expected = sight.window.adjacency.toarray()[sight.start :, sight.start :][np.ix_(rows, rows)]
    got = np.zeros(expected.shape, bool)
    got[one, other] = True
    assert (got | got.T == expected).all()
    assert not (got & got.T).any()


# --- communities -----------------------------------------------------------------------------------------------------


def modularity(ties: np.ndarray, found: np.ndarray) -> float:
    strength, total = ties.sum(1), ties.sum()
    same = found[:, None] == found
    return float(((ties - np.outer(strength, strength) / total) * same).sum() / total)


@given(st.integers(0, 10_000), st.integers(2, 40), st.floats(0.02, 0.5))
def test_communities_are_connected_and_gain(seed: int, n: int, density: float) -> None:
    rng = np.random.default_rng(seed)
    ties = np.triu((rng.random((n, n)) < density) * rng.integers(1, 4, (n, n)), 1).astype(float)
    ties += ties.T
    found = communities(sparse.csr_array(ties))
    assert found.tolist() == communities(sparse.csr_array(ties)).tolist()
    firsts = [found.tolist().index(number) for number in range(found.max() + 1)]
    assert firsts == sorted(firsts)
    for number in range(found.max() + 1):
        part = np.flatnonzero(found == number)
        assert connected_components(sparse.csr_array(ties[np.ix_(part, part)]), directed=False)[0] == 1
    if ties.any():
        assert modularity(ties, found) >= modularity(ties, np.arange(n)) - 1e-9
        assert modularity(ties, found) >= -1e-9


def test_communities_are_as_good_as_those_of_networkx() -> None:
    networkx = pytest.importorskip("networkx")
    rng = np.random.default_rng(0)
    block = np.repeat(np.arange(6), [5, 10, 20, 30, 40, 50])
    chance = np.where(block[:, None] == block, 0.3, 0.01)
    ties = np.triu(rng.random(chance.shape) < chance, 1).astype(float)
    ties += ties.T
    found = communities(sparse.csr_array(ties))
    theirs = networkx.community.louvain_communities(networkx.from_numpy_array(ties), seed=0)
    other = np.empty(len(block), int)
    for number, members in enumerate(theirs):
        other[list(members)] = number
    assert modularity(ties, found) > modularity(ties, other) - 0.01
    assert adjusted_rand_score(block, found) > 0.9


def test_nothing_is_no_community_and_entries_of_zero_are_no_ties() -> None:
    assert communities(sparse.csr_array((0, 0))).tolist() == []
    assert communities(sparse.csr_array((3, 3))).tolist() == [0, 1, 2]
    zero = sparse.csr_array((np.zeros(2), ([0, 1], [1, 0])), shape=(2, 2))
    assert communities(zero).tolist() == [0, 1]


# --- words -----------------------------------------------------------------------------------------------------------


def test_terms_are_the_words_of_the_highest_odds() -> None:
    graph, truth = planted(3)
    sight = sight_of(graph)
    rows = rows_of(sight, truth)
    ids = [str(id) for id in sight.window.ids]
    group = np.array([truth[ids[sight.start + row]] - 5 for row in rows])
    texts = [set(map(str, graph.features.words.columns.take(part.indices))) for part in _rows(graph, sight)]
    for number, found in enumerate(telling_words(sight, rows, group, most=4)):
        members = {int(row) + sight.start for row in rows[group == number]}
        scores = {}
        for word in set().union(*(texts[row] for row in members)):
            a = sum(word in texts[row] for row in members)
            c = sum(word in texts[row] for row in range(len(texts)) if row not in members)
            cells = np.array([a, len(members) - a, c, len(texts) - len(members) - c]) + 0.5
            odds = np.log(cells[0] / cells[1]) - np.log(cells[2] / cells[3])
            scores[word] = float(odds / np.sqrt((1 / cells).sum())) if a >= 2 else 0.0
        expected = sorted(scores, key=lambda word: (-round(scores[word], 9), word))[:4]
        assert list(found) == [word for word in expected if scores[word] >= 1.64]
        assert len(found) == 4


def _rows(graph: EvolvingGraph, sight: SliceContext) -> list[Any]:
    matrix = graph.features.words.rows(sight.window.rows).matrix
    return [matrix[[row]] for row in range(matrix.shape[0])]


def test_a_word_of_one_member_is_no_term() -> None:
    texts = ["old"] * 20 + ["new alpha", "new beta", "new gamma"]
    graph = EvolvingGraph.build({"id": list(range(23)), "time": [1] * 20 + [2] * 3, "text": texts})
    assert telling_words(sight_of(graph, 2), np.arange(3), np.zeros(3, np.int64), 5) == [("new",)]
    told = ["old news of it"] * 8 + ["lemma for the and"] * 3
    spoken = EvolvingGraph.build({"id": list(range(11)), "time": [1] * 8 + [2] * 3, "text": told})
    assert telling_words(sight_of(spoken, 2), np.arange(3), np.zeros(3, np.int64), 5) == [("lemma",)]
    # Columns of another kind may have any name.
    rows = np.array([[1, 0]] * 8 + [[0, 1]] * 3)
    named = EvolvingGraph.build(
        {"id": list(range(11)), "time": [1] * 8 + [2] * 3}, features=sparse.csr_array(rows), feature_names=["of", "and"]
    )
    assert telling_words(sight_of(named, 2), np.arange(3), np.zeros(3, np.int64), 5) == [("and",)]
    assert telling_words(sight_of(graph, 2), np.arange(0), np.zeros(0, np.int64), 5) == []
