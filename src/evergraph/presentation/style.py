"""The style of all figures: distinct colours and lines, legends beside the data, a note below."""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evergraph.presentation.table import replace_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's colours, distinct for any kind of colour vision, without their faint yellow."""

# One of each for each colour, so that series are distinct in grey too.
_DASHES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (8, 2.5)), (0, (4, 1.5, 1, 1.5, 1, 1.5)), (0, (1.8, 1)))
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_MOST_MARKERS = 12  # on one line

_SETTINGS: dict[str, Any] = {
    "svg.hashsalt": "evergraph",  # the same figure gives the same SVG, byte for byte
    "svg.fonttype": "path",  # letters as shapes do not depend on installed fonts
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
_NOTE: dict[str, Any] = {"fontsize": 6, "color": "#666666", "linespacing": 1.3, "parse_math": False}
_NOTE |= {"va": "top", "in_layout": False}
_DPI = 150
_MARGIN = 0.08  # inches beside and below the note
_LINE = 0.115  # inches that a line of the note takes
_LETTERS = 18  # of the note that fit in an inch


@contextmanager
def styled() -> Iterator[None]:
    """Apply this style inside the ``with``, independent of matplotlib's settings outside."""
    from matplotlib import style

    with style.context(["default", _SETTINGS]):
        yield


@contextmanager
def figure(
    rows: int = 1, columns: int = 1, *, width: float | None = None, height: float = 2.6, sharey: bool = False
) -> Iterator[tuple[Figure, NDArray[Any]]]:
    """Yield an empty figure and its panels by row and column, to draw on in this style.

    ``width`` is that of the figure (by default a page, or less for one column) and ``height`` that of a row, in inches.

    Examples
    --------
    >>> with figure(1, 2) as (picture, axes):
    ...     lines_with_band(axes[0, 0], [1, 2], [0.5, 0.6], [0.4, 0.5], [0.6, 0.7], "sage", 0)
    ...     legend_below(picture)
    >>> len(picture.axes)
    2
    """
    from matplotlib.figure import Figure

    with styled():
        size = (width or (7.5 if columns > 1 else 6), height * rows + 0.3)
        picture = Figure(figsize=size, layout="constrained")
        yield picture, picture.subplots(rows, columns, squeeze=False, sharey=sharey)


def series(index: int) -> dict[str, Any]:
    """Return colour, dashes and marker of a series, by its number from 0."""
    count = len(COLOURS)
    again = index // count  # a repeated colour has other dashes and another marker
    return {
        "color": COLOURS[index % count],
        "linestyle": _DASHES[(index + again) % count],
        "marker": _MARKERS[(index + 2 * again) % count],
    }


def lines_with_band(
    axes: Axes, x: ArrayLike, mean: ArrayLike, low: ArrayLike, high: ArrayLike, label: str, index: int
) -> None:
    """Draw a series, by its number from 0, as a line with a band; NaN leaves a gap."""
    look, every = series(index), max(1, -(-np.size(x) // _MOST_MARKERS))
    axes.fill_between(np.asarray(x), np.asarray(low), np.asarray(high), color=look["color"], alpha=0.15, linewidth=0)
    axes.plot(x, mean, label=plain(label), **look, markersize=3.5, markevery=every, linewidth=1.3)


def legend_below(picture: Figure) -> None:
    """Add one legend for all panels below them, in as few rows as fit; show each label once."""
    shown: dict[str, Any] = {}
    for axes in picture.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            shown.setdefault(label, handle)
    for rows in range(1, len(shown) + 1):
        columns = -(-len(shown) // rows)
        look: dict[str, Any] = {"frameon": False, "fontsize": 8, "handlelength": 3.2, "columnspacing": 1.5}
        look["loc"] = "outside lower center"  # prose: ok, the spelling of Matplotlib
        legend = picture.legend(shown.values(), shown.keys(), ncols=columns, **look)
        if columns == 1 or legend.get_window_extent().width <= picture.bbox.width:
            return
        legend.remove()


def plain(text: str) -> str:
    """Escape a text so that matplotlib does not read it as a formula."""
    return text.replace("$", r"\$")


def save(picture: Figure, stem: str | Path, note: str = "") -> list[Path]:
    """Save a finished figure with a note (command, seeds, data) below it, as ``stem.svg`` and ``stem.png``.

    The same figure gives the same bytes.
    """
    from matplotlib.transforms import Bbox

    stem = Path(stem)
    note = "\n".join("".join(letter if letter.isprintable() else " " for letter in line) for line in note.splitlines())
    about = {"Description": note} if note.strip() else {}
    files = []
    with styled():
        _settle(picture)
        width, height = (float(inches) for inches in picture.get_size_inches())
        wrapped = (textwrap.wrap(line, int(_LETTERS * width), break_on_hyphens=False) for line in note.splitlines())
        lines = [part for parts in wrapped for part in parts]
        pixels = math.ceil(_DPI * (_LINE * len(lines) + _MARGIN)) if lines else 0
        page = Bbox.from_extents(0, -pixels / _DPI, width, height)
        text = picture.text(_MARGIN / width, -_MARGIN / 2 / height, "\n".join(lines), **_NOTE)
        try:
            for kind, metadata in (("svg", about | {"Date": None}), ("png", about)):
                data = io.BytesIO()
                picture.savefig(data, format=kind, dpi=_DPI, bbox_inches=page, metadata=metadata)
                files.append(replace_file(stem, kind, data.getvalue()))
        finally:
            text.remove()
    return files


def _settle(picture: Figure) -> None:
    """Fix the positions of panels and legends, so that they do not change when the figure is drawn again."""
    from matplotlib.transforms import Bbox

    picture.set_dpi(_DPI)
    for _ in range(2):  # ticks depend on places, and places on ticks
        picture.draw_without_rendering()
    picture.set_layout_engine("none")
    for axes in picture.axes:
        axes.set_position(Bbox(axes.get_position(original=True).get_points().round(6)))
    for legend in picture.legends:  # keep them out of the room for the note
        legend.set_bbox_to_anchor((0, 0, 1, 1), picture.transFigure)
