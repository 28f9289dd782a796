"""Figures as bytes and as pixels."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.image import imread

from evergraph.errors import EvergraphError
from evergraph.presentation.style import COLOURS, figure, legend_below, lines_with_band, plain, save, series

# --- figures ---------------------------------------------------------------------------------------------------------

COMMAND = "$ evergraph run dblp-easy --history 3 $ <&> --out " + "/".join(["a_long_folder"] * 20)


def picture(count: int = 6) -> Any:
    with figure(1, 2, sharey=True) as (made, axes):
        for i in range(count):
            x = np.arange(2000, 2030)
            mean = 0.1 * i + 0.01 * np.sin(x)
            for panel in axes[0]:
                lines_with_band(panel, x, mean, mean - 0.02, mean + 0.02, f"a $series$ called {i}", i)
        legend_below(made)
    return made


@pytest.fixture(autouse=True)
def untouched_settings() -> Iterator[None]:
    before = dict(matplotlib.rcParams)
    yield
    assert dict(matplotlib.rcParams) == before
    assert "matplotlib.pyplot" not in sys.modules or not matplotlib.pyplot.get_fignums()


@pytest.mark.slow
def test_a_figure_repeats_byte_for_byte(tmp_path: Path) -> None:
    first = picture()
    bytes_of = [
        [path.read_bytes() for path in save(made, tmp_path / "c=0.5", COMMAND)] for made in (first, first, picture())
    ]
    assert bytes_of[0] == bytes_of[1], "saved again"
    assert bytes_of[0] == bytes_of[2], "drawn again"
    assert {path.name for path in tmp_path.iterdir()} == {"c=0.5.svg", "c=0.5.png"}


def test_a_figure_does_not_depend_on_the_settings_of_its_reader(tmp_path: Path) -> None:
    plainly = [path.read_bytes() for path in save(picture(), tmp_path / "a", COMMAND)]
    with matplotlib.rc_context({"font.size": 20, "axes.facecolor": "black", "savefig.bbox": "tight"}):
        assert [path.read_bytes() for path in save(picture(), tmp_path / "a", COMMAND)] == plainly


def test_svg_is_xml_with_the_note_and_no_date(tmp_path: Path) -> None:
    path, _ = save(picture(), tmp_path / "a", f"{COMMAND}\nseeds 0-4\0")
    tree = ElementTree.parse(path)
    told = [element.text for element in tree.iter("{http://purl.org/dc/elements/1.1/}description")]
    assert told == [f"{COMMAND}\nseeds 0-4 "]
    assert not list(tree.iter("{http://purl.org/dc/elements/1.1/}date"))
    assert not list(tree.iter("{http://www.w3.org/2000/svg}text")), "letters are shapes"
    source = path.read_text(encoding="utf-8")
    drawn = [unescape(text).replace("- -", "--") for text in re.findall("<!-- (.*?) -->", source)]
    start = next(
        at for at, text in enumerate(drawn) if text.startswith("$ evergraph run dblp-easy --history 3 $ <&> --out")
    )
    assert "".join(drawn[start:]).startswith(f"{COMMAND}seeds 0-4")


def test_the_note_changes_nothing_above_it_and_is_all_there(tmp_path: Path) -> None:
    made = picture()
    bare, noted = (imread(save(made, tmp_path / "a", note)[1])[..., :3] for note in ("", f"{COMMAND}\nseeds 0-4"))
    assert bare.shape == (435, 1125, 3)
    assert (noted[: len(bare)] == bare).all()
    note = noted[len(bare) :]
    assert 60 < len(note) < 120
    dark = (note < 0.9).any(axis=-1)
    assert not dark[:2].any()
    assert not dark[-6:].any()
    assert not dark[:, :6].any()
    assert not dark[:, -6:].any()
    written = dark.any(axis=1)
    assert np.count_nonzero(written[1:] & ~written[:-1]) == 4, "lines: the words, the path in two, the seeds"
    assert np.abs(note - note.mean(axis=-1, keepdims=True)).max() < 0.01, "all grey, so nothing of the figure"


def test_the_legend_covers_no_data(tmp_path: Path) -> None:
    for count in (1, 14):
        made = picture(count)
        save(made, tmp_path / "a", COMMAND)
        made.draw_without_rendering()
        (legend,) = made.legends
        box = legend.get_window_extent()
        assert box.y1 <= min(axes.get_tightbbox().y0 for axes in made.axes)
        assert box.x0 >= 0
        assert box.x1 <= made.bbox.width
        assert [text.get_text() for text in legend.get_texts()] == [
            plain(f"a $series$ called {i}") for i in range(count)
        ]
    with figure() as (empty, _):
        legend_below(empty)
    assert not empty.legends


def test_series_are_told_apart_by_colour_and_without() -> None:
    count = len(COLOURS)
    for key in ("color", "linestyle", "marker"):
        assert len({series(i)[key] for i in range(count)}) == count
    assert len({(series(i)["linestyle"], series(i)["marker"]) for i in range(7 * count)}) == 7 * count
    assert len({(series(i)["color"], series(i)["linestyle"]) for i in range(7 * count)}) == 7 * count


def test_a_line_has_its_band_and_may_have_gaps() -> None:
    with figure() as (made, axes):
        lines_with_band(axes[0, 0], [1, 2, 3], [1, math.nan, 3], [math.nan] * 3, [math.nan] * 3, "one seed", 0)
        lines_with_band(axes[0, 0], [1, 2], [1, 2], [0, 1], [2, 4], "two seeds", 1)
    _, line = axes[0, 0].lines
    _, band = axes[0, 0].collections
    assert line.get_xydata().tolist() == [[1, 1], [2, 2]]
    assert band.get_datalim(axes[0, 0].transData).bounds == (1, 0, 1, 4)
    assert line.get_color() == COLOURS[1]
    made.draw_without_rendering()


@given(st.text("$\\a{}^_ ", min_size=1, max_size=12))
def test_plain_text_is_no_formula(text: str) -> None:
    from matplotlib.text import Text

    assert Text(0, 0, plain(text))._preprocess_math(plain(text)) == (text, False)  # type: ignore[attr-defined]


def test_a_figure_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    made = picture(1)
    with pytest.raises(EvergraphError, match="could not be written"):
        save(made, tmp_path / "file" / "figure", "note")
    assert not made.texts


def test_tables_need_no_matplotlib_and_figures_no_rich_and_no_pyplot() -> None:
    code = """
import sys
from evergraph.presentation.style import *
from evergraph.presentation.table import *
assert not {"matplotlib", "rich"} & {*sys.modules}
table = Table("t", (Column("x"),), ((Cell(1),),))
to_markdown(table), to_latex(table), to_csv(table)
assert not {"matplotlib", "rich"} & {*sys.modules}
with figure() as (made, axes):
    made.draw_without_rendering()
assert not {"matplotlib.pyplot", "rich"} & {*sys.modules}
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
