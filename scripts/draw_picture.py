"""Draw the picture of the README: a graph that grows, the window of a task, and an unseen class.

Usage: ``python scripts/draw_picture.py docs/assets/evolving.svg``
"""

from __future__ import annotations

import sys

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

YEARS = range(2015, 2022)
TASK, HISTORY = 2021, 3
COLOURS = {"A": "#0072B2", "B": "#009E73", "C": "#E69F00", "new": "#D55E00"}


def main(path: str) -> None:
    """Write the picture to a file."""
    rng = np.random.default_rng(5)
    places, classes, years = [], [], []
    for year in YEARS:
        for row in range(3 + (year - 2015) // 2):
            places.append((year + rng.uniform(-0.28, 0.28), row * 0.8 + rng.uniform(-0.2, 0.2)))
            classes.append(rng.choice(["A", "B", "C"] if year > 2017 else ["A", "B"]))
            years.append(year)
    for index in (-1, -3):
        classes[index] = "new"
    edges = []
    for i in range(1, len(places)):
        older = [j for j in range(i) if years[i] - years[j] <= 3]
        like = [j for j in older if classes[j] == classes[i]] or older
        edges += [(i, int(j)) for j in rng.choice(like, min(2, len(like)), replace=False)]
    with rc_context(
        {"svg.hashsalt": "evergraph", "font.size": 10, "svg.fonttype": "none", "font.family": "sans-serif"}
    ):
        figure = Figure(figsize=(8, 3.6), layout="constrained")
        axes = figure.subplots()
        first = TASK - HISTORY
        box = {"boxstyle": "round,pad=0.02,rounding_size=0.15", "linewidth": 0}
        axes.add_patch(FancyBboxPatch((first - 0.42, -0.6), HISTORY - 0.12, 6.2, facecolor="#DDE9F4", **box))
        axes.add_patch(FancyBboxPatch((TASK - 0.42, -0.6), 0.88, 6.2, facecolor="#FBE3D4", **box))
        for i, j in edges:
            inside = min(years[i], years[j]) >= first
            axes.plot(
                *zip(places[i], places[j], strict=True),
                color="#555555" if inside else "#CCCCCC",
                linewidth=0.7,
                zorder=1,
            )
        for (x, y), name, year in zip(places, classes, years, strict=True):
            test = year == TASK
            axes.scatter(x, y, s=130, zorder=2, edgecolors=COLOURS[name], facecolors="white" if test else COLOURS[name],
                         linewidths=1.6, alpha=1 if year >= first else 0.35)  # fmt: skip
            if test:
                axes.text(
                    x,
                    y,
                    "!" if name == "new" else "?",
                    ha="center",
                    va="center_baseline",
                    color=COLOURS[name],
                    fontsize=9,
                    weight="bold",
                )
        axes.text(
            first - 0.3,
            5.0,
            f"history: {HISTORY} labelled years,\nthe model is trained on them",
            fontsize=9,
            va="center",
        )
        axes.text(TASK - 0.3, 5.0, "new slice,\nno labels", fontsize=9, va="center")
        older = "older data: not used any more,\nonly the weights remain"
        axes.text(2014.7, 5.0, older, fontsize=9, color="#777777", va="center")
        unseen = "unseen class:\nno labels in\nthe past"
        axes.annotate(unseen, places[-1], (TASK + 0.75, 2.2), fontsize=9, color=COLOURS["new"],
                      arrowprops={"arrowstyle": "->", "color": COLOURS["new"]}, va="center")  # fmt: skip
        axes.set(xlim=(2014.5, 2022.6), ylim=(-0.8, 5.8), xticks=list(YEARS), yticks=[])
        axes.spines[["left", "top", "right"]].set_visible(False)
        figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main(sys.argv[1])
