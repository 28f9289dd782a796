"""Random small evolving graphs as tables, and a reference model of plain dicts and sets to compare with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st
from scipy import sparse

from evergraph.graph import EvolvingGraph, Window
from evergraph.graph.blocks import Blocks
from evergraph.graph.ids import Strings

NASTY = ["nan", "NA", "None", "null", "007", "7", "1e5", "100000", "-0", " ", "a\0", "é", "e\u0301", "ß", "🦋", "true"]
WORDS = ["graph", "graphs", "learning", "on", "a", "x2", "naïve", "Über"]
LABELS = [None, None, "", "KDD", "ICML", "nan", "NA", "0", "00", "naïve"]
KINDS = ["none", "text", "dense", "sparse", "mixed"]

Id = str | int


@dataclass(frozen=True)
class Tables:
    """Arguments of `EvolvingGraph.build`."""

    vertices: dict[str, list[Any]]
    edges: dict[str, list[Any]]
    features: Any = None
    numbers: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()

    @property
    def more(self) -> dict[str, Any]:
        """Arguments of `EvolvingGraph.build` and ``append`` besides the tables."""
        return {"features": self.features, "numbers": self.numbers, "categories": self.categories}

    def build(self) -> EvolvingGraph:
        return EvolvingGraph.build(self.vertices, self.edges, **self.more)

    def pick(self, rows: Iterable[int], edges: Iterable[int]) -> Tables:
        """Some rows of the vertices and of the edges."""
        rows, edges = list(rows), list(edges)
        return Tables(
            {name: [column[row] for row in rows] for name, column in self.vertices.items()},
            {name: [column[row] for row in edges] for name, column in self.edges.items()},
            None if self.features is None else self.features[rows],
            self.numbers,
            self.categories,
        )

    def before(self, time: int) -> tuple[Tables, Tables]:
        """Split into vertices before a time and the rest."""
        old = [row for row, at in enumerate(self.vertices["time"]) if at < time]
        return self.divide(old)

    def divide(self, old: list[int]) -> tuple[Tables, Tables]:
        """Split into some vertices with the edges among them and the rest."""
        ids, ends = self.vertices["id"], list(zip(self.edges["source"], self.edges["target"], strict=True))
        known = {ids[row] for row in old}
        inside = [row for row, pair in enumerate(ends) if known.issuperset(pair)]
        new, outside = set(range(len(ids))).difference(old), set(range(len(ends))).difference(inside)
        return self.pick(old, inside), self.pick(sorted(new), sorted(outside))


@dataclass(frozen=True)
class Model:
    """The same graph as plain dicts, the reference for comparisons."""

    times: dict[Id, int]
    labels: dict[Id, str | None]
    inputs: dict[Id, dict[str, float]]
    edges: dict[frozenset[Id], int]

    @classmethod
    def of(cls, tables: Tables) -> Model:
        ids, times = tables.vertices["id"], tables.vertices["time"]
        order = sorted(range(len(ids)), key=times.__getitem__)
        labels = tables.vertices.get("label", [None] * len(ids))
        when = {ids[row]: times[row] for row in order}
        edges: dict[frozenset[Id], int] = {}
        own_times = tables.edges.get("time", [0] * len(tables.edges["source"]))
        for source, target, own in zip(tables.edges["source"], tables.edges["target"], own_times, strict=True):
            if source != target:
                pair = frozenset((source, target))
                visible = max(when[source], when[target], own)
                edges[pair] = min(visible, edges.get(pair, visible))
        return cls(
            when,
            {ids[row]: labels[row] or None for row in order},
            {ids[row]: _inputs_of(tables, row) for row in order},
            edges,
        )

    @property
    def class_names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(label for label in self.labels.values() if label is not None))

    @property
    def words(self) -> list[str]:
        return list(dict.fromkeys(name for row in self.inputs.values() for name in row if name[0] not in "#!"))

    def neighbours(self, vertex: Id) -> set[Id]:
        return {other for pair in self.edges if vertex in pair for other in pair if other != vertex}

    def keep(self, ids: Iterable[Id]) -> Model:
        """The part with these vertices and the edges among them."""
        kept = set(ids)
        return Model(
            *({name: value for name, value in part.items() if name in kept} for part in (self.times, self.labels)),
            {name: value for name, value in self.inputs.items() if name in kept},
            {pair: time for pair, time in self.edges.items() if pair <= kept},
        )

    def window(self, first: int, last: int) -> Model:
        inside = self.keep(name for name, time in self.times.items() if first <= time <= last)
        return replace(inside, edges={pair: time for pair, time in inside.edges.items() if time <= last})


def _inputs_of(tables: Tables, row: int) -> dict[str, Any]:
    cells = {name: column[row] for name, column in tables.vertices.items()}
    found: dict[str, Any] = {}
    if "text" in cells:
        text = cells["text"] or ""
        found |= Counter(word for word in text.lower().replace(",", " ").split() if len(word) > 1)
        found["!text"] = text
    found |= {f"#{name}": cells[name] for name in tables.numbers if cells[name]}
    found |= {f"#{name}={cells[name]}": 1 for name in tables.categories if cells[name]}
    if tables.features is None:
        return found
    values = tables.features[[row]]
    values = values.toarray()[0] if sparse.issparse(values) else values[0]
    return {str(column): float(value) for column, value in enumerate(values) if value}


def model_of(graph: EvolvingGraph | Window) -> Model:
    """Convert a graph or a window by its public attributes."""
    ids = graph.ids.tolist()
    source, target, times = graph.links.ends()
    if times is None:
        times = np.maximum(graph.times[source], graph.times[target])
    return Model(
        dict(zip(ids, graph.times.tolist(), strict=True)),
        dict(zip(ids, graph.labels.tolist(), strict=True)),
        dict(zip(ids, _inputs_in(graph), strict=True)),
        {frozenset((ids[u], ids[v])): t for u, v, t in zip(source, target, times.tolist(), strict=True)},
    )


def _inputs_in(graph: EvolvingGraph | Window) -> list[dict[str, Any]]:
    whole = graph.graph if isinstance(graph, Window) else graph
    window = graph if isinstance(graph, Window) else graph.up_to(graph.last_time)
    features = whole.features
    found: list[dict[str, Any]] = [{} for _ in range(len(graph))]
    if not features:
        return found
    names = [] if features.words is None else list(features.words.columns)
    names += [] if features.categories is None else [f"#{name}" for name in features.categories.columns]
    if features.numbers is not None:
        names += [name if features.numbers.is_numbered else f"#{name}" for name in features.numbers.columns]
    values = sparse.csr_array(window.inputs("counts")).tocoo()
    for row, column, value in zip(values.row, values.col, values.data, strict=True):
        if value and not np.isnan(value):
            found[row][names[column]] = float(value)
    if features.texts is not None:
        for row, text in zip(found, features.texts[window.rows], strict=True):
            row["!text"] = text
    return found


def abc(**columns: Any) -> dict[str, Any]:
    """Return the columns of three vertices a, b and c with times 1, 2 and 3."""
    return {"id": ["a", "b", "c"], "time": [1, 2, 3]} | columns


def arrays_of(graph: EvolvingGraph) -> dict[str, Any]:
    """All arrays of a graph by name; those of strings have a colon in their names."""
    links = {name: getattr(graph.links, name) for name in ("indptr", "indices", "times")}
    parts = {"graph": vars(graph), "links": links, **{name: vars(part) for name, part in graph.features.parts.items()}}
    found: dict[str, Any] = {}
    for part, values in parts.items():
        for name, value in values.items():
            if isinstance(value, Strings):
                found |= {f"{part}.{name}:bytes": value.data, f"{part}.{name}:offsets": value.offsets}
            elif isinstance(value, (np.ndarray, Blocks)):
                found[f"{part}.{name}"] = value
    return found


def assert_equal(left: EvolvingGraph, right: EvolvingGraph) -> None:
    """Assert that two graphs have the same names, and arrays of the same types and values."""
    assert left.ids.tolist() == right.ids.tolist()
    assert left.class_names == right.class_names
    assert left.axis == right.axis
    assert left.features.kinds == right.features.kinds
    for part in ("words", "numbers", "categories"):
        names = [list(of.columns) for graph in (left, right) if (of := getattr(graph.features, part)) is not None]
        assert len(names) in (0, 2)
        assert names[1:] == names[:-1]
    one, other = arrays_of(left), arrays_of(right)
    assert one.keys() == other.keys()
    for name, array in one.items():
        assert array.dtype == other[name].dtype, name
        if ":" not in name and not name.startswith("texts."):  # those are compared as strings
            assert np.array_equal(array, other[name], equal_nan=array.dtype.kind == "f"), name
    if left.features.texts is not None and right.features.texts is not None:
        assert list(left.features.texts) == list(right.features.texts)


def ids(min_size: int = 1, max_size: int = 10) -> st.SearchStrategy[list[Any]]:
    """Unique ids: all strings, or all whole numbers."""
    strings = st.sampled_from(NASTY) | st.text(min_size=1, max_size=4)
    numbers = st.integers(-3, 20) | st.integers(-(2**63), 2**63 - 1)
    sizes = {"min_size": min_size, "max_size": max_size, "unique": True}
    return st.lists(strings, **sizes) | st.lists(numbers, **sizes)


texts = st.none() | st.lists(st.sampled_from(WORDS), max_size=4).map(" , ".join)


@st.composite
def tables(draw: st.DrawFn, kinds: list[str] = KINDS, min_size: int = 1, max_size: int = 10, last: int = 6) -> Tables:
    """Tables of vertices and edges, with times from 0 to ``last`` in any order and with ties."""
    names = draw(ids(min_size, max_size))
    size = len(names)

    def column(values: st.SearchStrategy[Any], length: int = size) -> list[Any]:
        return draw(st.lists(values, min_size=length, max_size=length))

    times = st.integers(0, last)
    vertices = {"id": names, "time": column(times)}
    if draw(st.booleans()):
        vertices["label"] = column(st.sampled_from(LABELS))
    features: Any = None
    kind = draw(st.sampled_from(kinds))
    numbers: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    if kind in ("text", "mixed"):
        vertices["text"] = column(texts)
    if kind == "mixed":
        numbers, categories = ("pages", "share"), ("country", "kind")
        vertices |= {name: column(st.sampled_from([None, 0, 1.0, -2.5])) for name in numbers}
        vertices |= {name: column(st.sampled_from([None, "", "a", "b=c", "é"])) for name in categories}
    elif kind in ("dense", "sparse"):
        width = draw(st.integers(1, 3))
        entries = st.sampled_from([0, 0, 1, -1.5, 0.1, 1e-30])
        features = np.array(column(entries, size * width), np.float32).reshape(size, width)
        features = sparse.csr_array(features) if kind == "sparse" else features
    ends = draw(st.lists(st.tuples(st.sampled_from(names), st.sampled_from(names)), max_size=2 * size))
    edges = {"source": [source for source, _ in ends], "target": [target for _, target in ends]}
    if draw(st.booleans()):
        edges["time"] = column(st.integers(0, last + 2), len(ends))
    return Tables(vertices, edges, features, numbers, categories)


__all__ = ["Id", "Model", "Tables", "abc", "arrays_of", "assert_equal", "ids", "model_of", "tables", "texts"]
