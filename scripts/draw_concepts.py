"""Draw the pictures of docs/explanation/concepts.md.

Usage: ``python scripts/draw_concepts.py docs/assets/concepts``
"""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle

import evergraph
from evergraph.presentation.style import COLOURS, styled

BLUE, RED, GREEN, _, ORANGE, SKY, _ = COLOURS
INK, GREY, FAINT = "#222222", "#777777", "#D5D5D5"
SEEN, ASKED = "#DDE9F4", "#FBE3D4"  # backgrounds of training and of predicted periods
WIDTH = 6.4  # inches: text is then large enough on a phone, too


def main(folder: Path) -> None:
    """Draw all five pictures into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for draw in (window, restart, growing, unseen, time_differences):
        with styled():
            picture = draw()
            data = io.BytesIO()
            picture.savefig(data, format="svg", metadata={"Date": None}, transparent=True)
        text = data.getvalue().decode()
        (folder / f"{draw.__name__}.svg").write_text("\n".join(map(str.rstrip, text.splitlines())) + "\n", "utf-8")


def canvas(height: float, right: float, top: float) -> tuple[Figure, Axes]:
    """White card with round corners, readable on light and dark pages, and axes that start at (0, 0)."""
    picture = Figure(figsize=(WIDTH, height))
    _card(picture)
    axes = picture.add_axes((0.015, 0.02, 0.97, 0.96))
    axes.set(xlim=(0, right), ylim=(0, top))
    axes.set_axis_off()
    return picture, axes


def _card(picture: Figure) -> None:
    picture.patch.set_visible(False)
    width, height = picture.get_size_inches()
    card = FancyBboxPatch(
        (0.02, 0.02),
        width - 0.04,
        height - 0.04,
        boxstyle="round,pad=0,rounding_size=0.12",
        transform=picture.dpi_scale_trans,
        facecolor="white",
        edgecolor="#CCCCCC",
        linewidth=0.8,
        zorder=-10,
    )
    picture.add_artist(card)


def box(axes: Axes, x: float, y: float, width: float, height: float, colour: str, **more: Any) -> None:
    """A rounded box around the point (x, y)."""
    look = {"linewidth": 0, "zorder": 1, **more}
    axes.add_patch(
        FancyBboxPatch(
            (x - width / 2, y - height / 2), width, height, boxstyle="round,pad=0,rounding_size=0.1", facecolor=colour,
            **look,
        )
    )  # fmt: skip


def say(axes: Axes, x: float, y: float, text: str, **more: Any) -> None:
    """Text centred on the point (x, y)."""
    look = {"ha": "center", "va": "center", "fontsize": 9.5, "color": INK, "zorder": 5, "linespacing": 1.35, **more}
    axes.text(x, y, text, **look)


def arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], **more: Any) -> None:
    """An arrow from one point to another."""
    look = {"arrowstyle": "-|>", "mutation_scale": 11, "color": INK, "linewidth": 1.3, "zorder": 4, **more}
    axes.add_patch(FancyArrowPatch(start, end, shrinkA=0, shrinkB=0, **look))


def fresh(axes: Axes, x: float, y: float) -> None:
    """Mark for new random weights."""
    axes.scatter(x, y, s=34, marker="D", facecolors="white", edgecolors=INK, linewidths=1.1, zorder=5)


def window() -> Figure:
    """Three tasks, one below the other, with a moving window."""
    years, history = range(2015, 2022), 3
    picture, axes = canvas(3.5, 8.9, 5.5)
    classes = {2015: "AB", 2016: "BA", 2017: "AAB", 2018: "BAC", 2019: "CAB", 2020: "ACB", 2021: "BCA"}
    colours = {"A": BLUE, "B": GREEN, "C": ORANGE}
    for column, year in enumerate(years):
        say(axes, 2.2 + column, 5.15, str(year), color=GREY)
    for row, task in enumerate((2019, 2020, 2021)):
        y = 4.1 - row * 1.25
        say(axes, 0.15, y, f"task of {task}", ha="left", weight="bold")
        first = task - history - 2015
        box(axes, 2.2 + first + 1, y, 2.9, 1.0, SEEN)
        box(axes, 2.2 + first + 3, y, 0.9, 1.0, ASKED)
        for column, year in enumerate(years):
            for place, name in enumerate(classes[year]):
                x, height = 2.2 + column + (-0.18, 0.18, 0)[place], y + (0.15, 0.15, -0.22)[place]
                if year == task:
                    axes.scatter(x, height, s=95, facecolors="white", edgecolors=INK, linewidths=1.1, zorder=3)
                    say(axes, x, height, "?", fontsize=8)
                elif year > task:
                    axes.scatter(x, height, s=14, color=GREY, marker=".", zorder=3)
                else:
                    seen = year >= task - history
                    axes.scatter(
                        x, height, s=95, color=colours[name], alpha=1 if seen else 0.22, linewidths=0, zorder=3
                    )
    box(axes, 0.32, 0.42, 0.34, 0.34, SEEN)
    say(axes, 0.58, 0.42, "history of 3: training", ha="left", fontsize=9)
    box(axes, 3.47, 0.42, 0.34, 0.34, ASKED)
    say(axes, 3.73, 0.42, "predicted", ha="left", fontsize=9)
    axes.scatter(5.22, 0.42, s=95, color=BLUE, alpha=0.22, linewidths=0)
    say(axes, 5.44, 0.42, "outside the window", ha="left", fontsize=9)
    axes.scatter(7.8, 0.42, s=14, color=GREY, marker=".")
    say(axes, 7.92, 0.42, "future", ha="left", fontsize=9)
    return picture


def restart() -> Figure:
    """Four restarts over the same four tasks."""
    picture, axes = canvas(3.9, 8.9, 6.4)
    columns = [3.0, 4.65, 6.3, 7.95]
    for number, x in enumerate(columns):
        say(axes, x, 6.05, f"task {number + 1}", color=GREY)
    box(axes, columns[2] - 0.1, 3.18, 1.56, 4.25, "#FFF3E0", zorder=0)
    say(axes, columns[2], 5.65, "new class", fontsize=8.5, color=RED)
    # For each way: which weights each task ends with (one letter per start) and whether it trains.
    ways = {"warm": "aaaa", "cold": "abcd", "hybrid": "aabb", "once": "aaaa"}
    shades = dict(zip("abcd", (BLUE, GREEN, ORANGE, "#9A6FB0"), strict=True))
    for row, (way, line) in enumerate(ways.items()):
        y = 4.8 - row * 1.15
        say(axes, 0.3, y, way, ha="left", weight="bold", fontsize=10.5)
        for number, (x, letter) in enumerate(zip(columns, line, strict=True)):
            trains = way != "once" or number == 0
            look = {"edgecolor": shades[letter], "linewidth": 1.4}
            box(axes, x, y, 0.95, 0.56, shades[letter] if trains else "white", **look)
            say(axes, x, y, "train" if trains else "predict", color="white" if trains else shades[letter], fontsize=9)
            if number == 0 or line[number - 1] != letter:
                axes.scatter(
                    x - 0.66, y, s=34, marker="D", facecolors="white", edgecolors=INK, linewidths=1.1, zorder=5
                )
            if number and line[number - 1] == letter:
                arrow(axes, (columns[number - 1] + 0.5, y), (x - 0.5, y), color=shades[letter])
    fresh(axes, 0.42, 0.32)
    say(axes, 0.62, 0.32, "new random weights", ha="left", fontsize=9)
    arrow(axes, (4.0, 0.32), (4.75, 0.32), color=BLUE)
    say(axes, 4.9, 0.32, "continues from the previous weights", ha="left", fontsize=9)
    return picture


def growing() -> Figure:
    """Input and output weights of three tasks."""
    picture, axes = canvas(3.5, 8.9, 5.8)
    words, classes = ["graph", "kernel", "mining", "web", "stream"], ["ICML", "KDD", "WSDM"]
    told = ("task 1:\nall is new", "task 2: a new word\nand a new class", "task 3: a new word,\nno new class")
    counts = {"input layer": (words, 4.45, (3, 4, 5)), "output layer": (classes, 2.05, (2, 3, 3))}
    for layer, (_, top, sizes) in counts.items():
        say(axes, 0.3, top - (max(sizes) - 1) * 0.17, layer, rotation=90, color=GREY)
    for number, text in enumerate(told):
        left = 0.75 + number * 2.75
        say(axes, left + 1.2, 5.3, text, weight="bold", fontsize=9)
        for names, top, sizes in counts.values():
            for place in range(sizes[number]):
                new = number == 0 or place >= sizes[number - 1]
                y = top - place * 0.36
                say(axes, left + 0.95, y, names[place], ha="right", fontsize=9, color=RED if new else INK)
                for column in range(4):
                    where = (left + 1.1 + column * 0.33, y - 0.15)
                    axes.add_patch(Rectangle(where, 0.28, 0.3, facecolor=ORANGE if new else SKY))
    for x, colour, text in ((0.75, SKY, "kept from the previous task"), (4.4, ORANGE, "new random weights")):
        axes.add_patch(Rectangle((x, 0.27), 0.28, 0.3, facecolor=colour))
        say(axes, x + 0.43, 0.42, text, ha="left", fontsize=9)
    return picture


def unseen() -> Figure:
    """Class probabilities and decisions of three vertices."""
    picture, axes = canvas(3.3, 8.9, 5.5)
    known, threshold, bottom, height = ["ICML", "KDD", "WSDM"], 0.75, 1.35, 2.9
    vertices = {"p31": (0.06, 0.93, 0.12), "p32": (0.82, 0.77, 0.05), "p33": (0.34, 0.08, 0.55)}
    for number, (name, chances) in enumerate(vertices.items()):
        left = 1.05 + number * 2.65
        say(axes, left + 1.05, 5.05, f"paper {name}", weight="bold")
        axes.plot([left, left + 2.1], [bottom, bottom], color=INK, linewidth=0.8)
        best = max(chances)
        for column, (each, chance) in enumerate(zip(known, chances, strict=True)):
            claims = chance >= threshold
            colour = (BLUE if chance == best else SKY) if claims else FAINT
            x = left + 0.35 + column * 0.7
            axes.add_patch(Rectangle((x - 0.21, bottom), 0.42, chance * height, facecolor=colour))
            say(axes, x, bottom - 0.25, each, fontsize=8)
            say(axes, x, bottom + chance * height + 0.17, f"{chance:.2f}"[1:], fontsize=8.5)
        found = best >= threshold
        text, colour = (known[chances.index(best)], BLUE) if found else ("unseen", RED)
        box(axes, left + 1.05, 0.5, 1.5, 0.5, colour)
        say(axes, left + 1.05, 0.5, text, color="white", weight="bold")
    line = bottom + threshold * height
    axes.plot([0.75, 8.7], [line, line], color=RED, linewidth=1.2, linestyle=(0, (5, 3)), zorder=4)
    say(axes, 0.68, line, "τ .75", ha="right", color=RED, fontsize=9)
    say(axes, 0.15, 0.5, "decision", ha="left", fontsize=9, color=GREY)
    return picture


def time_differences() -> Figure:
    """How pairs are counted, and the histogram of their time differences."""
    picture = Figure(figsize=(WIDTH, 3.1))
    _card(picture)
    _pairs(picture.add_axes((0.02, 0.02, 0.45, 0.8)))
    _histogram(picture.add_axes((0.565, 0.2, 0.4, 0.6)))
    for x, text in ((0.245, "from u, up to two edges"), (0.765, "all pairs of metamath")):
        picture.text(x, 0.905, text, ha="center", va="center", weight="bold", fontsize=9.5)
    return picture


def _pairs(axes: Axes) -> None:
    axes.set(xlim=(0, 4.4), ylim=(0, 3.8))
    axes.set_axis_off()
    # Name, time, height, and how many edges away from u.
    vertices = {
        "u": (2020, 2.2, 0),
        "a": (2019, 3.2, 1),
        "b": (2018, 1.6, 1),
        "c": (2017, 2.9, 2),
        "e": (2017, 0.95, 2),
    }
    vertices["d"] = (2016, 2.0, 3)
    places = {name: (0.5 + (year - 2016) * 0.8125, height) for name, (year, height, _) in vertices.items()}
    for one, other in ("ua", "ub", "ac", "be", "cd"):
        colour = GREY if vertices[other][2] <= 2 else FAINT
        axes.plot(*zip(places[one], places[other], strict=True), color=colour, linewidth=1.2, zorder=1)
    for name, (year, _, edges) in vertices.items():
        axes.scatter(*places[name], s=330, color=(INK, BLUE, BLUE, FAINT)[edges], linewidths=0, zorder=2)
        text = "u" if name == "u" else str(2020 - year) if edges <= 2 else ""
        say(axes, *places[name], text, color="white", weight="bold")
    say(axes, 0.58, 1.45, "three edges:\nnot counted", fontsize=8, color=GREY)
    for year in range(2016, 2021):
        say(axes, 0.5 + (year - 2016) * 0.8125, 0.25, str(year), fontsize=8.5, color=GREY)


def _histogram(axes: Axes) -> None:
    differences = evergraph.tdiff(evergraph.load("metamath"), k=2)
    share = differences.distribution * 100
    sizes = differences.history_sizes()
    upto = np.arange(len(share))
    colours = [BLUE if gap <= sizes[50] else SKY if gap <= sizes[75] else FAINT for gap in upto]
    axes.bar(upto, share, color=colours, width=0.85)
    top = share.max() * 1.05
    for level, colour, height in ((50, BLUE, 0.92), (75, "#2C86B8", 0.62)):
        axes.plot([sizes[level] + 0.5] * 2, [0, top * height], color=colour, linewidth=1.1, linestyle=(0, (4, 2)))
        text = f"{level} % of the pairs:\nhistory {sizes[level]}"
        axes.text(sizes[level] + 0.9, top * height, text, fontsize=8.5, color=colour, va="top", linespacing=1.35)
    axes.set(xlabel="years between two theorems", xlim=(-0.7, 28.7), ylim=(0, top))
    axes.set_ylabel("% of all pairs")
    axes.patch.set_visible(False)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
