from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evergraph import EvolvingGraph, InputError
from evergraph.graph.times import MAX_SPAN, TimeAxis
from tests.strategies import abc

build = EvolvingGraph.build


@settings(max_examples=5 * settings().max_examples)
@given(
    st.lists(st.dates(dt.date(1900, 1, 1), dt.date(2100, 12, 31)), min_size=1, max_size=5),
    st.sampled_from([None, "year", "month", "week", "day", 5, "7"]),
    st.sampled_from(["strings", "dates", "timestamps", "numpy", "pandas"]),
)
def test_dates_become_the_periods_that_the_calendar_says(days: list[dt.date], every: Any, dress: str) -> None:
    column: Any = {
        "strings": [day.isoformat() for day in days],
        "dates": days,
        "timestamps": [dt.datetime.combine(day, dt.time(23, 59, 59)) for day in days],
        "numpy": np.array(days, "datetime64[D]"),
        "pandas": pd.Series(pd.to_datetime([day.isoformat() for day in days])) + pd.Timedelta("13h"),
    }[dress]
    graph = build({"id": range(len(days)), "time": column}, every=every)
    starts = [_start(day, every) for day in days]
    order = sorted(range(len(days)), key=starts.__getitem__)
    assert graph.ids.tolist() == order
    assert [graph.axis.label(time) for time in graph.times] == [_label(days[row], every) for row in order]
    if every in ("week", "day"):  # periods follow each other without gaps
        steps = [(starts[row] - starts[order[0]]).days // (7 if every == "week" else 1) for row in order]
        assert (graph.times - graph.times[0]).tolist() == steps


def _start(day: dt.date, every: Any) -> dt.date:
    """First day of the period of a day."""
    if every == "day":
        return day
    if every == "week":
        return dt.date.fromisocalendar(*day.isocalendar()[:2], 1)
    if every == "month":
        return day.replace(day=1)
    step = int(every) if str(every).isdigit() else 1
    return dt.date(day.year // step * step, 1, 1)


def _label(day: dt.date, every: Any) -> str:
    start = _start(day, every).isoformat()
    return start if every in ("day", "week") else start[:7] if every == "month" else start[:4]


@given(st.sampled_from(["integer", "year", "month", "week", "day"]), st.sampled_from([1, 5]), st.integers(0, 30_000))
def test_labels_of_periods_are_read_back(unit: Any, step: int, period: int) -> None:
    axis = TimeAxis(unit, step if unit in ("integer", "year") else 1)
    assert axis.period(axis.label(period)) == period
    assert axis.label(axis.period(axis.label(period))) == axis.label(period)
    assert axis.value(period) == (period * axis.step if unit in ("integer", "year") else axis.label(period))


@given(st.lists(st.integers(0, 3000), min_size=1, max_size=5), st.sampled_from([None, 1, 2, 10, "10", "year"]))
def test_whole_numbers_become_periods_in_every_dress(numbers: list[int], every: Any) -> None:
    step = int(every) if every not in (None, "year") else 1
    dresses: list[Any] = [
        numbers,
        [str(number) for number in numbers],
        [f" {number}.0 " for number in numbers],
        [float(number) for number in numbers],
        np.array(numbers, np.uint16),
        pd.Series(numbers, dtype="Int32"),
        pd.Categorical(numbers),
        pa.array(numbers, pa.int8() if max(numbers) < 128 else pa.int64()),
    ]
    for dress in dresses:
        graph = build({"id": range(len(numbers)), "time": dress}, every=every)
        assert graph.times.tolist() == sorted(number // step for number in numbers)
        assert graph.axis.unit == ("year" if every == "year" else "integer")


def test_years_and_months_stand_for_their_first_day_among_dates() -> None:
    graph = build(abc(time=["2004", "2004-02", "2004-02-29 10:00"]), every="day")
    assert [graph.axis.label(time) for time in graph.times] == ["2004-01-01", "2004-02-01", "2004-02-29"]


def test_numpy_and_zoned_times_are_read_as_their_own_calendar_day() -> None:
    for unit in ("Y", "M", "D", "h", "ns"):
        assert build({"id": [1], "time": np.array(["2004-01-01"], f"datetime64[{unit}]")}).times.tolist() == [2004]
    evening = pd.to_datetime(["2003-12-31 23:00"]).tz_localize("America/New_York")
    assert build({"id": [1], "time": evening}).times.tolist() == [2003]


@pytest.mark.parametrize("every", ["Year", "", "fortnight", 0, -1, 2.5, [1], 10**20, float("nan"), "1.5"])
def test_unknown_granularities_are_refused(every: Any) -> None:
    with pytest.raises(InputError, match="there is no period"):
        build(abc(), every=every)


@pytest.mark.parametrize("every", ["month", "week", "day"])
def test_whole_numbers_have_no_months(every: str) -> None:
    with pytest.raises(InputError, match=f"the times are whole numbers, which have no {every}s"):
        build(abc(), every=every)


def test_a_graph_of_dates_takes_dates_for_all_that_comes() -> None:
    graph = build(abc(time=["2004-01-05", "2004-02-01", "2004-03-01"]), [("a", "b")], every="month")
    more = graph.append(
        {"id": ["d"], "time": [dt.date(2004, 4, 30)]}, {"source": ["d"], "target": ["c"], "time": ["2004-06-01"]}
    )
    assert [more.window("2004-01", last).n_edges for last in ("2004-05", "2004-06")] == [1, 2]
    with pytest.raises(InputError, match="the times are whole numbers, which have no months"):
        graph.append({"id": ["d"], "time": [2004]})


def test_the_span_of_time_is_bounded() -> None:
    assert len(build({"id": [1, 2], "time": [0, MAX_SPAN]})) == 2
    with pytest.raises(InputError, match="far from the others"):
        build({"id": [1, 2], "time": [0, MAX_SPAN + 1]})
    assert len(build({"id": [1, 2], "time": [0, MAX_SPAN + 1]}, every=1000)) == 2
