from __future__ import annotations

import sys
import threading
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evergraph import EvolvingGraph, InputError
from evergraph.graph.blocks import append_rows
from evergraph.graph.ids import Strings
from tests.strategies import Tables, tables

build = EvolvingGraph.build


@given(tables(), st.data())
def test_ids_are_found_in_whatever_order_they_are_asked_for(given: Tables, data: st.DataObject) -> None:
    graph = given.build()
    wanted = data.draw(st.lists(st.sampled_from(given.vertices["id"])))
    rows = graph.find(wanted)
    assert [graph.ids[row] for row in rows] == wanted
    assert graph.find(name for name in wanted).tolist() == rows.tolist()
    as_strings = [str(name) for name in wanted]
    assert graph.find(as_strings).tolist() == rows.tolist()


@pytest.mark.parametrize("wanted", ["007", "1e0", "+1", "1.0", " 1", "01", "-0", "1234567890123456780", "٧", 2, 1.5])
def test_ids_that_are_only_nearly_right_are_not_found(wanted: Any) -> None:
    graph = build({"id": [1, 7, 0, 1234567890123456789], "time": [1, 1, 1, 1]})
    with pytest.raises(InputError, match="there is no vertex"):
        graph.find([wanted])


def test_nasty_ids_stay_what_they_are() -> None:
    names = ["nan", "NA", "None", "null", "007", "7", "1e5", "100000", " ", "a\0", "a", "é", "e\u0301"]
    graph = build({"id": names, "time": [1] * len(names)}, [("7", "007"), ("nan", "NA"), ("a", "a\0")])
    assert graph.ids.tolist() == names
    assert graph.n_edges == 3
    assert graph.find([7, 100000]).tolist() == [5, 7]


def test_whole_numbers_are_found_in_every_dress() -> None:
    graph = build({"id": [1, 10**15, 1234567890123456789, -5], "time": [1, 1, 1, 1]})
    for wanted in (
        np.array([10**15, 1], np.uint64),
        [10.0**15, 1.0],
        ["1000000000000000", "1"],
        np.array(["1000000000000000", "1"]),
        pd.Categorical([10**15, 1]),
        pd.Series([10**15, 1]),
    ):
        assert graph.find(wanted).tolist() == [1, 0]
    assert graph.find(["1234567890123456789", "-5"]).tolist() == [2, 3]


def test_columns_of_strings_are_sequences() -> None:
    names = ["nan", "", "größer", "🦋", "a\0"]
    strings = Strings.of(names)
    assert [strings[row] for row in range(-5, 5)] == names + names
    assert [list(strings[part]) for part in (slice(1, 3), slice(9, 9), slice(3, 1), slice(None, None, -2))] == [
        names[1:3],
        [],
        [],
        names[::-2],
    ]
    assert strings[1:][1:].tolist() == names[2:]
    assert strings[1:4].packed().offsets[0] == 0
    assert ("größer" in strings, "gr" in strings, strings.index("🦋")) == (True, False, 3)
    assert repr(strings[2:]) == "Strings(['größer', '🦋', 'a\\x00'], length=3)"
    assert repr(strings) == "Strings(['nan', '', 'größer', …], length=5)"
    with pytest.raises(IndexError):
        strings[5]


@given(st.lists(st.tuples(st.integers(0, 5), st.lists(st.integers(0, 9), max_size=4)), max_size=12), st.booleans())
def test_rows_that_were_appended_never_change(steps: list[tuple[int, list[int]]], wide: bool) -> None:
    def array(values: list[int]) -> Any:
        return np.array([[value, -value] for value in values]).reshape(-1, 2) if wide else np.array(values, int)

    found = [([7], array([7]))]
    for start, more in steps:
        values, rows = found[start % len(found)]
        found.append((values + more, append_rows(rows, [array(more)])))
        for expected, kept in found:
            assert kept.tolist() == array(expected).tolist()


def test_slices_and_other_types_are_copied_before_rows_are_appended() -> None:
    rows = append_rows(np.arange(3), [np.arange(2)])
    assert append_rows(rows[::-1], [np.array([9])]).tolist() == [1, 0, 2, 1, 0, 9]
    assert append_rows(rows[1:], [np.array([9])]).tolist() == [1, 2, 0, 1, 9]
    assert append_rows(rows, [np.array([0.5])]).tolist() == [0, 1, 2, 0, 1, 0.5]
    assert rows.tolist() == [0, 1, 2, 0, 1]


def test_threads_that_append_to_the_same_rows_never_share_room() -> None:
    parents = [append_rows(np.zeros(64, int), [np.zeros(1, int)]) for _ in range(1000)]
    found: dict[int, list[Any]] = {1: [], 2: []}
    together = threading.Barrier(2, timeout=60)

    def append(value: int) -> None:
        for rows in parents:
            together.wait()
            found[value].append(append_rows(rows, [np.full(9, value)]))

    threads = [threading.Thread(target=append, args=(value,)) for value in found]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    for value, children in found.items():
        assert len(children) == len(parents)
        assert all((rows[65:] == value).all() for rows in children)
