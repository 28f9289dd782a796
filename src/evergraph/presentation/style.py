"""The one style of all figures: colours and lines to tell series apart, legends beside the data, a note below."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evergraph.errors import InputError
from evergraph.presentation.table import replace_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Text

__all__ = ["COLOURS", "figure", "legend_below", "lines_with_band", "panels", "plain", "save", "series", "styled"]

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's colours, which people with any kind of colour vision can tell apart; all but their faint yellow."""

# One of each for each colour, so that series are told apart in grey too.
_DASHES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (8, 2.5)), (0, (4, 1.5, 1, 1.5, 1, 1.5)), (0, (1.8, 1)))
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_MOST_MARKERS = 12  # on one line

_SETTINGS: dict[str, Any] = {
    "svg.hashsalt": "evergraph",  # the same figure gives the same SVG, byte for byte
    "svg.fonttype": "path",  # letters as shapes look the same whatever fonts there are
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
_DPI = 150
_NOTE: dict[str, Any] = {"fontsize": 6, "color": "#666666", "linespacing": 1.3}
_MARGIN = 0.08  # inches beside and below the note


@contextmanager
def styled() -> Iterator[None]:
    """Inside, matplotlib's settings are those of this style; afterwards they are what they were.

    The style starts from matplotlib's defaults, so that a reader's own settings change no figure.

    Examples
    --------
    >>> import matplotlib
    >>> with styled():
    ...     inside = matplotlib.rcParams["font.size"]
    >>> inside
    9.0
    """
    from matplotlib import style

    with style.context(["default", _SETTINGS]):
        yield


@contextmanager
def figure(
    rows: int = 1, columns: int = 1, *, width: float | None = None, height: float = 2.6, sharey: bool = False
) -> Iterator[tuple[Figure, NDArray[Any]]]:
    """An empty figure of some panels; what is drawn inside the ``with`` is drawn in this style.

    Parameters
    ----------
    rows, columns
        How many panels.
    width
        Of the figure, in inches. By default it is that of a page, or less for a single column.
    height
        Of a row of panels, in inches.
    sharey
        Whether all panels have the same range of values.

    Yields
    ------
    tuple of Figure and array of Axes
        The figure and its panels, by row and column.

    Examples
    --------
    >>> with figure(1, 2) as (picture, axes):
    ...     lines_with_band(axes[0, 0], [1, 2], [0.5, 0.6], [0.4, 0.5], [0.6, 0.7], "sage", 0)
    ...     legend_below(picture)
    >>> len(picture.axes)
    2
    """
    with styled():
        yield panels(rows, columns, width=width, height=height, sharey=sharey)


def panels(
    rows: int = 1, columns: int = 1, *, width: float | None = None, height: float = 2.6, sharey: bool = False
) -> tuple[Figure, NDArray[Any]]:
    """The same as `figure`, for use inside `styled`."""
    from matplotlib.figure import Figure

    size = (width or (7.5 if columns > 1 else 6), height * rows + 0.3)
    picture = Figure(figsize=size, layout="constrained")
    return picture, picture.subplots(rows, columns, squeeze=False, sharey=sharey)


def series(index: int) -> dict[str, Any]:
    """Colour, dashes and marker of a series, by its number from 0.

    Examples
    --------
    >>> series(1)
    {'color': '#D55E00', 'linestyle': '--', 'marker': 's'}
    """
    count = len(COLOURS)
    again = index // count  # a colour that comes again comes with other dashes and another marker
    return {
        "color": COLOURS[index % count],
        "linestyle": _DASHES[(index + again) % count],
        "marker": _MARKERS[(index + 2 * again) % count],
    }


def lines_with_band(
    axes: Axes, x: ArrayLike, mean: ArrayLike, low: ArrayLike, high: ArrayLike, label: str, index: int
) -> None:
    """Draw a line and the band around it.

    Parameters
    ----------
    axes
        The panel to draw on.
    x, mean, low, high
        One value a point; NaN leaves a gap.
    label
        What the legend calls it.
    index
        The number of the series from 0, which gives it its colour, dashes and marker.
    """
    points, line, lower, upper = (np.asarray(values) for values in (x, mean, low, high))
    if not points.shape == line.shape == lower.shape == upper.shape == (points.size,):
        shapes = ", ".join(str(values.shape) for values in (points, line, lower, upper))
        raise InputError(f"x, mean, low and high have the shapes {shapes}", fix="give one value a point to each")
    look = series(index)
    axes.fill_between(points, lower, upper, color=look["color"], alpha=0.15, linewidth=0)
    every = max(1, -(-points.size // _MOST_MARKERS))
    axes.plot(points, line, label=plain(label), **look, markersize=3.5, markevery=every, linewidth=1.3)


def legend_below(picture: Figure) -> None:
    """One legend for all panels, below them, in as few rows as fit; a label that comes twice is shown once.

    It stands where `Figure.supxlabel` would, so label the panels instead.
    """
    shown: dict[str, Any] = {}
    for axes in picture.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            shown.setdefault(label, handle)
    for rows in range(1, len(shown) + 1):
        columns = -(-len(shown) // rows)
        look: dict[str, Any] = {"frameon": False, "fontsize": 8, "handlelength": 3.2, "columnspacing": 1.5}
        legend = picture.legend(shown.values(), shown.keys(), loc="outside lower center", ncols=columns, **look)
        if columns == 1 or legend.get_window_extent().width <= picture.bbox.width:
            return
        legend.remove()


def plain(text: str) -> str:
    r"""Text that matplotlib does not take for a formula.

    Examples
    --------
    >>> print(plain("from 5$ to 7$"))
    from 5\$ to 7\$
    """
    return text.replace("$", r"\$")


def save(picture: Figure, stem: str | Path, note: str = "") -> list[Path]:
    """Save a figure as SVG and PNG; the same figure gives the same bytes.

    Parameters
    ----------
    picture
        What to save; it stays as it is.
    stem
        The files without their ending. The folder is made if need be.
    note
        Where the figure is from: command, seeds, data. It stands below the figure, which grows by it.

    Returns
    -------
    list of Path
        The files, ``stem.svg`` and ``stem.png``.
    """
    from matplotlib.transforms import Bbox

    stem = Path(stem)
    note = "\n".join("".join(letter if letter.isprintable() else " " for letter in line) for line in note.splitlines())
    about = {"Description": note} if note.strip() else {}
    files = []
    with styled(), _settled(picture):
        width, height = (float(inches) for inches in picture.get_size_inches())
        where: dict[str, Any] = {"x": _MARGIN / width, "y": -_MARGIN / 2 / height, "va": "top", "in_layout": False}
        text = picture.text(s="", parse_math=False, **where, **_NOTE)
        try:
            text.set_text("\n".join(_wrapped(text, note, width - 2 * _MARGIN)))
            pixels = text.get_window_extent().height + 2 * _MARGIN * _DPI if about else 0
            page = Bbox.from_extents(0, -math.ceil(pixels) / _DPI, width, height)
            for kind, metadata in (("svg", about | {"Date": None}), ("png", about)):
                data = io.BytesIO()
                picture.savefig(data, format=kind, dpi=_DPI, bbox_inches=page, metadata=metadata)
                files.append(replace_file(stem, kind, data.getvalue()))
        finally:
            text.remove()
    return files


@contextmanager
def _settled(picture: Figure) -> Iterator[None]:
    """Inside, panels and legends stay in their places, however the page grows and as often as it is drawn."""
    from matplotlib.transforms import Bbox

    engine, dpi = picture.get_layout_engine(), picture.dpi
    picture.set_dpi(_DPI)  # what is measured is then in pixels of the PNG
    for _ in range(2):  # ticks depend on places, and places on ticks
        picture.draw_without_rendering()
    picture.set_layout_engine("none")
    for axes in picture.axes:
        part_of_layout = axes.get_in_layout()
        # Laid out again, a panel moves by less than anyone sees, but its bytes would be others.
        axes.set_position(Bbox(axes.get_position(original=True).get_points().round(6)))
        axes.set_in_layout(part_of_layout)
    on_page = [legend for legend in picture.legends if legend.get_bbox_to_anchor() is picture.bbox]
    for legend in on_page:  # the page will have room for the note, where they do not belong
        legend.set_bbox_to_anchor((0, 0, 1, 1), picture.transFigure)
    try:
        yield
    finally:
        for legend in on_page:
            legend.set_bbox_to_anchor(None)
        picture.set_layout_engine(engine)
        picture.set_dpi(dpi)


def _wrapped(text: Text, note: str, width: float) -> Iterator[str]:
    """The lines of a note, none wider than so many inches when written as this text."""

    def fits(line: str) -> bool:
        text.set_text(line)
        return text.get_window_extent().width <= width * _DPI

    for line in note.splitlines():
        begun = ""
        for word in line.split():
            if begun and not fits(f"{begun} {word}"):
                yield begun
                begun = ""
            begun = f"{begun} {word}" if begun else word
            while len(begun) > 1 and not fits(begun):  # a single word, such as a long path
                cut = next(size for size in range(len(begun) - 1, 0, -1) if size == 1 or fits(begun[:size]))
                yield begun[:cut]
                begun = begun[cut:]
        if begun:
            yield begun
