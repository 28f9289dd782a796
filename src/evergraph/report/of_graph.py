"""Parts of a story that a graph tells by itself: classes over time, drift, time differences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evergraph.report.story import ClassLine, ClassTimeline, Drift, Missing, TimeDifferences

__all__ = ["differences_of", "drift_of", "timeline_of"]

_LARGEST = 20  # classes of a timeline


def timeline_of(facts: Mapping[str, Any]) -> ClassTimeline | Missing:
    """The largest classes of a graph in the order of their birth; ``facts`` are those of `describe`.

    Examples
    --------
    >>> classes = [{"name": "x", "times": [1, 3], "counts": [2, 1]}, {"name": "y", "times": [3], "counts": [5]}]
    >>> timeline_of({"times": [1, 2, 3], "classes": classes}).classes[0]
    ClassLine(name='x', first='1', last='3', counts=(2, 0, 1))
    """
    if not facts["classes"]:
        return Missing("No vertex of the graph has a label, so there are no classes to follow.")
    times = facts["times"]
    place = {time: index for index, time in enumerate(times)}
    largest = sorted(facts["classes"], key=lambda one: (-sum(one["counts"]), one["name"]))[:_LARGEST]
    lines = []
    for one in sorted(largest, key=lambda one: (place[one["times"][0]], -sum(one["counts"]), one["name"])):
        counts = [0] * len(times)
        for time, count in zip(one["times"], one["counts"], strict=True):
            counts[place[time]] = count
        lines.append(ClassLine(one["name"], str(one["times"][0]), str(one["times"][-1]), tuple(counts)))
    return ClassTimeline(tuple(map(str, times)), tuple(lines), len(facts["classes"]) - len(lines))


def drift_of(facts: Mapping[str, Any]) -> Drift | Missing:
    """How the mix of classes moved, over all times of a graph.

    Examples
    --------
    >>> moved = [{"time": 1, "consecutive": None, "cumulative": None}]
    >>> drift_of({"drift": moved, "first_task": None})
    Missing(reason='Only one time has labels, so there is nothing to compare it with.')
    """
    moved = facts["drift"]
    if len(moved) < 2:
        return Missing("Only one time has labels, so there is nothing to compare it with.")
    return Drift(
        times=tuple(str(row["time"]) for row in moved),
        step=tuple(row["consecutive"] for row in moved),
        total=tuple(row["cumulative"] for row in moved),
        first=None if facts["first_task"] is None else str(facts["first_task"]),
    )


def differences_of(facts: Mapping[str, Any], history: int | None) -> TimeDifferences | Missing:
    """The distribution of time differences, and the history in use (None for all of it).

    Examples
    --------
    >>> found = {"counts": [1, 3], "history_sizes": {"50": 1}}
    >>> differences_of({"past_differences": found, "time_steps": "years", "first_task": 4}, history=1).shares
    (0.25, 0.75)
    """
    found = facts["past_differences"]
    if found is None:
        return Missing("The graph has no edges before the first task, so no history size could be read off them.")
    total = sum(found["counts"])
    return TimeDifferences(
        shares=tuple(count / total for count in found["counts"]),
        steps=facts["time_steps"],
        sizes=tuple((int(level), size) for level, size in found["history_sizes"].items()),
        history=history,
        before=str(facts["first_task"]),
    )
