from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evergraph import EvolvingGraph, InputError
from evergraph.graph.features import DenseFeatures
from tests.strategies import Model, Tables, abc, model_of, tables

build = EvolvingGraph.build


@given(tables(), st.integers(-2, 9), st.integers(0, 6))
def test_a_window_is_what_the_reference_has_between_two_times(given: Tables, first: int, length: int) -> None:
    window = given.build().window(first, first + length)
    model = Model.of(given).window(first, first + length)
    assert model_of(window) == model
    assert window.ids.tolist() == list(model.times)
    assert (len(window), window.n_edges) == (len(model.times), len(model.edges))
    assert window.adjacency.shape == (len(window), len(window))
    assert window.labels.tolist() == list(model.labels.values())


@given(tables(), st.integers(-2, 9))
def test_up_to_is_all_that_exists_at_a_time(given: Tables, last: int) -> None:
    assert model_of(given.build().up_to(last)) == Model.of(given).window(-10, last)


@given(tables(kinds=["dense", "sparse", "text"]), st.integers(0, 6), st.integers(0, 6))
def test_windows_share_the_memory_of_their_graph(given: Tables, first: int, length: int) -> None:
    graph = given.build()
    window = graph.window(first, first + length)
    assert np.shares_memory(window.times, graph.times) == (len(window) > 0)
    values = window.inputs("counts")
    if isinstance(graph.features, DenseFeatures):
        assert np.shares_memory(values, graph.features.values) == (values.size > 0)
    else:
        assert np.shares_memory(values.data, graph.features.data) == (values.nnz > 0)
        assert np.shares_memory(values.indices, graph.features.indices) == (values.nnz > 0)


def test_windows_outside_the_times_are_empty() -> None:
    graph = build(abc(text=["one", "two", "three"], label=["x", None, "y"]), [("a", "b")])
    for window in (graph.window(10, 20), graph.window(-20, 0), graph.up_to(0), graph.window(-(10**30), -(10**20))):
        assert (len(window), window.n_edges, window.inputs().shape) == (0, 0, (0, 3))
        assert (window.labels.tolist(), window.ids.tolist()) == ([], [])
    assert len(graph.window(-(10**30), 10**30)) == 3


def test_windows_take_every_way_to_write_a_time() -> None:
    graph = build(abc(time=["2004-01-31", "2004-02-01", "2005-01-01"]), every="month")
    february = 2004 * 12 + 1
    ways = ["2004-02", "2004-02-29", " 2004-02-03T10:00", dt.date(2004, 2, 2), dt.datetime(2004, 2, 2, 1)]
    ways += [pd.Timestamp("2004-02-02"), np.datetime64("2004-02"), february, np.int32(february), float(february)]
    for way in ways:
        assert graph.window(way, way).ids.tolist() == ["b"], way


@pytest.mark.parametrize("time", [None, float("nan"), 1.5, "soon", "", [1], dt.date(2004, 1, 1), "2004-01-01", "-3"])
def test_windows_refuse_what_is_no_time(time: Any) -> None:
    with pytest.raises(InputError):
        build(abc()).window(time, 3)
    with pytest.raises(InputError):
        build(abc()).up_to(time)


def test_a_window_that_ends_before_it_starts_is_refused() -> None:
    with pytest.raises(InputError, match=r"the window ends \(1\) before it starts \(3\)"):
        build(abc()).window(3, 1)


def test_inputs_need_features_and_a_known_mode() -> None:
    with pytest.raises(InputError, match="no features"):
        build(abc()).window(1, 3).inputs()
    with pytest.raises(InputError, match="no text mode 'future'"):
        build(abc(text=["", "", ""])).window(1, 3).inputs("future")
