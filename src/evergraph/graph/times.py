"""The time axis of a graph: converts years, dates or whole numbers to consecutive integer periods, and back."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from evergraph.errors import InputError, Origin

if TYPE_CHECKING:
    import pyarrow as pa

Unit = Literal["integer", "year", "month", "week", "day"]

MAX_SPAN = 100_000
"""Largest number of periods from the first to the last; more indicates a typing error or too short periods."""

_CLOCK = r"([01]\d|2[0-3])(:[0-5]\d(:[0-6]\d([.,]\d+)?)?)?\s?(Z|UTC|[+-]\d{2}:?\d{2})?"
_DATE = rf"^\d{{4}}(-\d{{2}}(-\d{{2}}([T ]{_CLOCK})?)?)?$"
_MONDAY = 3  # days from Monday 1969-12-29 to the epoch, 1970-01-01
_SMALL = "use years, dates or small whole numbers"
_HOW_TO_WRITE = "write whole numbers (2004), or dates (2004-03 or 2004-03-31)"


@dataclass(frozen=True)
class TimeAxis:
    """Unit and step of a graph's time.

    Periods are consecutive integers, so a history of ``c`` periods before ``t`` is ``[t - c, t)``. For whole numbers
    and years, the period is that number divided by ``step``, rounded down. Weeks and days count from 1970, months from
    the year 0.

    Examples
    --------
    >>> TimeAxis("month").label(2004 * 12 + 2)
    '2004-03'
    >>> TimeAxis("integer", step=5).label(400)
    '2000'
    """

    unit: Unit = "integer"
    step: int = 1

    def __post_init__(self) -> None:
        if self.unit not in get_args(Unit) or type(self.step) is not int or not 0 < self.step < 2**31:
            raise InputError(
                f"there is no time axis with unit {self.unit!r} and step {self.step!r}",
                fix=f"choose a unit ({', '.join(get_args(Unit))}) and a whole number above 0",
            )

    @property
    def steps(self) -> str:
        """Name of the periods: ``"years"``, ``"periods"``, ``"steps of 5 years"`` or ``"steps of 5"``."""
        units = "" if self.unit == "integer" else f"{self.unit}s"
        return (units or "periods") if self.step == 1 else f"steps of {self.step} {units}".rstrip()

    def counted(self, number: int) -> str:
        """Return a number of periods in words.

        Examples
        --------
        >>> TimeAxis("year").counted(3), TimeAxis("integer").counted(1), TimeAxis("year", step=5).counted(1)
        ('3 years', '1 period', '1 step of 5 years')
        """
        first, *rest = self.steps.split(" ", 1)
        return " ".join([f"{number:,}", first[:-1] if number == 1 else first, *rest])

    def label(self, period: int) -> str:
        """Return the start of a period as people write it."""
        start = int(period) * self.step
        if self.unit == "month":
            return f"{start // 12:04d}-{start % 12 + 1:02d}"
        if self.unit in ("week", "day"):
            days = start * 7 - _MONDAY if self.unit == "week" else start
            return str(np.datetime64(days, "D"))
        return str(start)

    def value(self, period: int) -> int | str:
        """Return the period for JSON and tables: a number for whole numbers and years, else the label."""
        return int(period) * self.step if self.unit in ("integer", "year") else self.label(period)

    def period(self, time: object) -> int:
        """Return the period of a time: a period number or, on an axis of dates, a date or ``"2004-03-31"``."""
        if isinstance(time, np.datetime64):
            time = str(time.astype("datetime64[D]"))
        elif isinstance(time, date):
            time = time.isoformat()
        if isinstance(time, (int, np.integer)) or (isinstance(time, (float, np.floating)) and float(time).is_integer()):
            return int(time)
        if not isinstance(time, str):
            raise InputError(f"{time!r} is not a time", fix=_HOW_TO_WRITE)
        import pyarrow as pa

        try:
            column = pa.array([time])
        except UnicodeError:  # an argument of the command line that is not UTF-8
            raise InputError(f"{time!r} is not a time", fix=_HOW_TO_WRITE) from None
        return int(self.parse(column, Origin("argument"), "time")[0])

    def parse(self, column: pa.Array, origin: Origin, name: str) -> NDArray[np.int64]:
        """Return the periods of a column of times; an error names the first row that is not a time."""
        values, are_dates = _numbers_or_days(column, origin, name)
        if not are_dates:
            if self.unit not in ("integer", "year"):
                origin.fail(
                    f"the times are whole numbers, which have no {self.unit}s",
                    column=name,
                    fix="write dates (2004-03-31), or choose another period",
                )
            return values // self.step
        dates = values.astype("datetime64[D]")
        if self.unit == "integer":
            origin.fail(
                "the times are dates, but the graph counts in whole numbers", column=name, fix="write whole numbers"
            )
        if self.unit == "year":
            periods = dates.astype("datetime64[Y]").astype(np.int64) + 1970
        elif self.unit == "month":
            periods = dates.astype("datetime64[M]").astype(np.int64) + 1970 * 12
        else:
            periods = values if self.unit == "day" else (values + _MONDAY) // 7
        return periods // self.step


def choose_axis(column: pa.Array, every: str | int | None, origin: Origin, name: str) -> TimeAxis:
    """Return the axis for a column of times and a period (``year``, ``month``, ``week``, ``day`` or a number)."""
    if every is None or str(every) == "year":
        return TimeAxis("integer" if every is None and not are_dates(column, origin, name) else "year")
    if isinstance(every, str) and every in ("month", "week", "day"):
        return TimeAxis(every)  # type: ignore[arg-type]  # narrowed by the line above
    try:
        step = int(every)
    except (TypeError, ValueError):
        step = 0
    if not 0 < step < 2**31 or (not isinstance(every, str) and step != every):
        raise InputError(f"there is no period {every!r}", fix="choose year, month, week, day or a whole number above 0")
    return TimeAxis("integer" if not are_dates(column, origin, name) else "year", step)


def check_span(times: NDArray[np.int64], origin: Origin, name: str, *, rows: bool = True) -> None:
    """Refuse times that are more than `MAX_SPAN` periods apart; ``rows`` if they are the rows of the origin."""
    if len(times) and (span := int(times.max()) - int(times.min())) > MAX_SPAN:
        middle = int(np.median(times))
        row = int(np.argmax(np.abs(times - middle)))
        origin.fail(
            f"time {times[row]} is far from the others: {span:,} periods from first to last, at most {MAX_SPAN:,}",
            column=name,
            row=row if rows else None,
            fix="correct it, or choose longer periods (every=month, every=1000)",
        )


def time_order(times: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the order that sorts periods and keeps the order within each, as a stable `numpy.argsort`."""
    first = int(times.min(initial=0))
    if int(times.max(initial=0)) - first < 2**16:
        return np.argsort((times - first).astype(np.uint16), kind="stable")  # a radix sort
    return np.argsort(times, kind="stable")


def are_dates(column: pa.Array, origin: Origin, name: str) -> bool:
    """Whether a column of times has dates, not whole numbers."""
    return _numbers_or_days(column, origin, name)[1]


def _numbers_or_days(column: pa.Array, origin: Origin, name: str) -> tuple[NDArray[np.int64], bool]:
    """Return whole numbers and False, or days since 1970 and True."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if column.null_count:
        _refuse(column, pc.is_null(column), origin, name)
    if pa.types.is_temporal(kind) and not (pa.types.is_time(kind) or pa.types.is_duration(kind)):
        days = column.cast(pa.date32(), safe=False).cast(pa.int32())
        return days.to_numpy(zero_copy_only=False).astype(np.int64), True
    if pa.types.is_integer(kind):
        # Compared as floats, because unsigned numbers can be too large to compare with signed ones.
        large = pc.greater(column.cast(pa.float64(), safe=False), 2.0**31)
        _refuse(column, large, origin, name, "is too large", _SMALL)
        numbers = column
    elif pa.types.is_floating(kind):
        _refuse(column, pc.invert(pc.equal(pc.floor(column), column)), origin, name)
        _refuse(column, pc.greater(pc.abs(column), 2.0**31), origin, name)
        numbers = column.cast(pa.int64())
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        # Most columns are of small numbers, and need no regular expression.
        if pc.all(pc.ascii_is_decimal(column)).as_py() and (pc.max(pc.binary_length(column)).as_py() or 0) <= 9:
            return column.cast(pa.int64()).to_numpy(zero_copy_only=False), False
        trimmed = pc.utf8_trim_whitespace(column)
        # A year becomes "2004.0" in a round trip through a table with gaps.
        whole = pc.replace_substring_regex(trimmed, r"^(-?\d+)\.0*$", r"\1")
        if not pc.all(pc.match_substring_regex(whole, r"^-?\d{1,18}$")).as_py():  # the cast alone accepts 0x10 too
            return _days(column, trimmed, origin, name), True
        numbers = whole.cast(pa.int64())
    else:
        origin.fail(f"a column of {kind} holds no times", column=name, fix=_HOW_TO_WRITE)
    _refuse(column, pc.less(numbers, 0), origin, name, "is negative", "shift the times so that the first is 0 or later")
    _refuse(column, pc.greater(numbers, 2**31 - 1), origin, name, "is too large", _SMALL)
    return numbers.cast(pa.int64()).to_numpy(zero_copy_only=False), False


def _days(column: pa.Array, trimmed: pa.Array, origin: Origin, name: str) -> NDArray[np.int64]:
    import pyarrow as pa
    import pyarrow.compute as pc

    is_date = pc.match_substring_regex(trimmed, _DATE)
    is_number = pc.match_substring_regex(trimmed, r"^-?\d+(\.0*)?$")
    _refuse(column, pc.and_(is_number, pc.greater(pc.utf8_length(trimmed), 9)), origin, name, "is too large")
    _refuse(column, pc.invert(pc.or_(is_date, is_number)), origin, name)
    _refuse(column, pc.invert(is_date), origin, name, "is a number among dates", "write all times in the same way")
    text = pc.utf8_slice_codeunits(trimmed, 0, 10)
    try:
        dates = np.array(text.to_pylist(), dtype="datetime64[D]")
    except ValueError:
        bad = [not _is_day(value) for value in text.to_pylist()]
        _refuse(column, pa.array(bad), origin, name, "is not a day of the calendar")
        raise
    return dates.astype(np.int64)


def _is_day(value: str) -> bool:
    try:
        np.datetime64(value, "D")
    except ValueError:
        return False
    return True


def _refuse(
    column: pa.Array, bad: pa.Array, origin: Origin, name: str, why: str = "is not a time", fix: str = _HOW_TO_WRITE
) -> None:
    """Raise an error for the first bad value; null (from NaN) counts as bad."""
    is_bad = bad.fill_null(True).to_numpy(zero_copy_only=False)
    if is_bad.any():
        row = int(np.argmax(is_bad))
        value = column[row].as_py()
        shown = "an empty cell" if value is None or value == "" else repr(value)
        origin.fail(f"{shown} {why}", column=name, row=row, fix=fix)
