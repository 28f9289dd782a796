"""Draw the signals of `AutoDetector` for one slice, for vertices of known and of unseen classes.

Usage: ``python scripts/draw_signals.py GRAPH TIME docs/assets/unseen/signals [--first TIME]`` (writes .svg and .png)
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import evergraph
from evergraph import LifelongLearner, Task
from evergraph.detect import AutoDetector
from evergraph.detect.auto import SIGNALS, average_signals
from evergraph.detect.scores import Average, Propagated, inner_state
from evergraph.presentation.style import COLOURS, figure, legend_below, save

NAMES = ("probability (msp)", "auxiliary model", "excess words", "class likelihood", "known distance", "slice density")


def main() -> None:
    """Train up to the slice and draw it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("graph", help="a graph folder, or metamath")
    parser.add_argument("time", type=int, help="time of the slice")
    parser.add_argument("out", type=Path, help="the picture, without suffix")
    parser.add_argument("--first", type=int, help="time of the first task")
    given = parser.parse_args()
    learner = LifelongLearner(detector=AutoDetector())
    for task in evergraph.tasks(evergraph.load(given.graph), first=given.first):
        learner.adapt(task)
        if task.time == given.time:
            break
    draw(learner, task, given.out, "python " + " ".join(sys.argv))


def draw(learner: LifelongLearner, task: Task, out: Path, command: str) -> None:
    """One panel per signal, one for their average, and one after propagation, with the threshold."""
    unseen = np.array([name is not None and name not in learner.classes_ for name in task.truth])
    found, line = values_of(learner, task)
    with figure(2, 4, height=1.7) as (picture, axes):
        titles = (*NAMES, "average of all six", "propagated")
        for panel, title, values in zip(axes.ravel(), titles, found, strict=True):
            edges = np.linspace(values.min(), values.max(), 40)
            for which, label, colour in ((~unseen, "known class", COLOURS[0]), (unseen, "unseen class", COLOURS[1])):
                panel.hist(values[which], edges, density=True, alpha=0.55, color=colour, label=label)
            panel.set_title(title)
            panel.set_yticks([])
        axes[-1, -1].axvline(line, color="black", linewidth=1, linestyle="--", label="threshold")
        legend_below(picture)
    label = task.graph.axis.label(task.time)
    note = f"{command}\n{label}: {unseen.sum():,} of {len(unseen):,} vertices are of unseen classes."
    for path in save(picture, out, note):
        print(path)


def values_of(learner: LifelongLearner, task: Task) -> tuple[list[NDArray[np.float64]], float]:
    """Values of each panel, in standard deviations of past known-class vertices; and the threshold."""
    outputs, state = learner.outputs(task), learner.detector_.state
    inner = inner_state(state, "score")
    found = []
    for number, signal in enumerate(SIGNALS.values()):
        own = {f"0/{name}": value for name, value in inner_state(inner, str(number)).items()}
        own |= {name: value[:, [number]] for name, value in inner.items() if "/" not in name}
        found.append(Average((signal,)).compute(outputs, own).numpy())
    smoothed = Propagated(average_signals()).compute(outputs, state).numpy()
    line = float((smoothed - AutoDetector().decide(outputs, state).score.numpy())[0])
    return [*found, average_signals().compute(outputs, inner).numpy(), smoothed], line


if __name__ == "__main__":
    main()
