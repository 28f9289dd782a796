"""What classes are called in one version that were called otherwise in another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from evergraph.graph.evolving import EvolvingGraph
from evergraph.workspace.state import Renaming, Return

__all__ = ["current_name", "renamed_graph", "renamings"]


def renamings(
    renamed: Iterable[Renaming], returns: Sequence[Return], then: int, now: int
) -> tuple[tuple[str, str], ...]:
    """How classes were renamed, old name and new, from one version to another; in this order.

    What was renamed until then and is not so now, because an earlier version was returned to, gets its old name again;
    of a merger nobody can tell which name that was. What was renamed since then gets its new name.

    Parameters
    ----------
    renamed, returns
        All renamings and returns there were, oldest first.
    then, now
        The two versions.

    Examples
    --------
    >>> renamed, returns = [Renaming(3, "A", "B")], [Return(5, to=2)]
    >>> renamings(renamed, [], 2, 4), renamings(renamed, returns, 4, 5), renamings(renamed, returns, 2, 5)
    ((('A', 'B'),), (('B', 'A'),), ())
    """
    events = [(event, _led_to(event, then, returns), _led_to(event, now, returns)) for event in renamed]
    undone = [(event.new, event.old) for event, before, after in reversed(events) if before and not after]
    lost = {event.new for event, before, after in events if before and not after and event.merged}
    done = [(event.old, event.new) for event, before, after in events if after and not before]
    return (*((old, new) for old, new in undone if old not in lost), *done)


def _led_to(event: Renaming, version: int, returns: Sequence[Return]) -> bool:
    """Whether a version came of the one in which a class was renamed."""
    for back in reversed(returns):
        if event.version >= back.version:
            break
        if back.version <= version:
            version = back.to
    return event.version <= version


def current_name(name: str, steps: Iterable[tuple[str, str]]) -> str:
    """What a class is called after some renamings.

    Examples
    --------
    >>> current_name("A", [("A", "B"), ("B", "C")])
    'C'
    """
    for old, new in steps:
        name = new if name == old else name
    return name


def renamed_graph(graph: EvolvingGraph, names: Mapping[str, str]) -> EvolvingGraph:
    """A graph whose classes bear new names; those of one new name become one class.

    Examples
    --------
    >>> graph = EvolvingGraph.build({"id": [1, 2, 3], "time": [1, 1, 1], "label": ["a", "b", "c"]})
    >>> renamed_graph(graph, {"a": "x", "b": "x"}).labels.tolist()
    ['x', 'x', 'c']
    """
    labels = {old: np.flatnonzero(graph.codes == graph.classes.row(old)) for old in names if old in graph.classes}
    # A name that is gone keeps its row, without vertices: rows never move.
    class_names = tuple(dict.fromkeys([*graph.class_names, *names.values()]))
    codes = graph.codes.copy()
    for old, rows in labels.items():
        codes[rows] = class_names.index(names[old])
    codes.flags.writeable = False
    return replace(graph, codes=codes, class_names=class_names)
