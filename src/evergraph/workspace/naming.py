"""Classes created, renamed, merged and retired: in the graph, in the model, and in what is remembered of models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from evergraph.datasets.tables import Columns
from evergraph.errors import InputError
from evergraph.graph.classes import UNSEEN
from evergraph.graph.evolving import EvolvingGraph
from evergraph.workspace.change import Change, Outcome
from evergraph.workspace.grouping import ReviewGroup, chosen_groups
from evergraph.workspace.keeping import keep_graph, keep_learner
from evergraph.workspace.labelling import give_labels, rows_in
from evergraph.workspace.renaming import renamed_graph
from evergraph.workspace.reviewing import review_groups
from evergraph.workspace.state import ModelRecord, Renaming, State

__all__ = [
    "ClassRow",
    "create_class",
    "list_classes",
    "merge_classes",
    "rename_class",
    "renamed_record",
    "retire_class",
]


@dataclass(frozen=True)
class ClassRow:
    """A class of a workspace.

    Parameters
    ----------
    name
        Its name.
    first, last
        Times of the first and the last vertex that has it, as the axis writes them; None where none has.
    support
        Number of vertices that have it.
    known
        Whether the model in force knows it.
    retired
        Whether it is not to be decided for any more.
    """

    name: str
    first: int | str | None
    last: int | str | None
    support: int
    known: bool
    retired: bool

    def as_dict(self) -> dict[str, Any]:
        """Fit for JSON."""
        return asdict(self)


def list_classes(state: State, graph: EvolvingGraph) -> list[ClassRow]:
    """All classes, in the order in which they became known."""
    classes, known = graph.classes, set(state.model.classes)
    found = []
    for name in dict.fromkeys([*classes.names, *state.model.classes, *state.retired]):
        support = classes.count_of(name)
        if support or name in known or name in state.retired:
            first, last = (
                graph.axis.value(int(times[classes.row(name)])) if support else None
                for times in (classes.first, classes.last)
            )
            found.append(ClassRow(name, first, last, support, name in known, name in state.retired))
    return found


def create_class(
    change: Change,
    name: str,
    ids: Iterable[str | int] | str | Path,
    *,
    groups: Iterable[int] = (),
    columns: Columns | None = None,
) -> Outcome:
    """See `Workspace.create_class`."""
    check_name(name)
    graph, retired, ids, chosen = change.graph, change.state.retired, _listed(ids), _groups(change, groups)
    if chosen and ids:
        raise InputError("ids and groups were given", fix="leave one of them out: both say which vertices")
    if chosen:
        ids = [id for group in chosen for id in group.members]
    rows = rows_in(graph, ids, columns or change.state.settings.columns)
    if graph.classes.count_of(name) and name not in retired:
        raise InputError(f"there is a class {name!r} already", fix="choose another name, or label the vertices with it")
    if not len(rows) and name not in retired:
        raise InputError("a class needs vertices", fix="give the ids of vertices that belong to it")
    back = name in retired
    state = replace(
        change.state,
        retired=tuple(other for other in retired if other != name),
        stale=change.state.stale or (back and bool(graph.classes.count_of(name))),
    )
    if not len(rows):
        return change.commit(state, "classes create", f"{name} is back", name=name)
    return give_labels(replace(change, state=state), rows, [name] * len(rows), "classes create", groups=chosen)


def _listed(ids: Iterable[str | int] | str | Path) -> list[str | int] | str | Path:
    return ids if isinstance(ids, (str, Path)) else list(ids)


def _groups(change: Change, numbers: Iterable[int]) -> list[ReviewGroup]:
    """The groups of these numbers; they are looked for only if some are wanted."""
    wanted = list(numbers)
    return chosen_groups(review_groups(change.store, change.state, change.graph), wanted) if wanted else []


def rename_class(change: Change, old: str, new: str) -> Outcome:
    """See `Workspace.rename_class`."""
    if any(row.name == new for row in list_classes(change.state, change.graph)):
        raise InputError(f"there is a class {new!r} already", fix="choose another name, or merge the classes")
    return _rename(change, {old: new}, "classes rename", f"{old} is now {new}")


def merge_classes(change: Change, names: Sequence[str], into: str) -> Outcome:
    """See `Workspace.merge_classes`."""
    others = [name for name in dict.fromkeys(names) if name != into]
    if len({*names, into}) < 2 or not others:
        raise InputError("there is nothing to merge", fix="name two classes or more")
    return _rename(change, dict.fromkeys(others, into), "classes merge", f"{', '.join(others)} into {into}")


def retire_class(change: Change, name: str) -> Outcome:
    """See `Workspace.retire_class`."""
    state = change.state
    _check_known(change, [name])
    if name in state.retired:
        raise InputError(f"the class {name!r} is retired already", fix="see: evergraph ws classes list")
    if not set(state.model.classes) - {*state.retired, name}:
        raise InputError("no class would be left to decide for", fix="keep at least one")
    state = replace(state, retired=(*state.retired, name), stale=True)
    return change.commit(state, "classes retire", name, name=name)


def _rename(change: Change, names: dict[str, str], command: str, what: str) -> Outcome:
    state, learner = change.state, change.learner()
    for new in names.values():
        check_name(new)
    _check_known(change, list(names))
    there = [row.name for row in list_classes(state, change.graph)]
    live = {names.get(name, name) for name in there if name not in state.retired}
    merged = len(names) > 1 or not set(there).isdisjoint(names.values())
    # Outputs of merged classes say the same name until the next update, which trains one of them alone.
    learner.classes_ = tuple(names.get(name, name) for name in learner.classes_)
    kept = keep_learner(change.transaction, learner)
    record = replace(renamed_record(state.model, names), learner=kept["learner"], tensors=kept["tensors"])
    state = replace(
        state,
        graph=keep_graph(change.transaction, renamed_graph(change.graph, names), change.since),
        stale=state.stale or merged,
        model=record,
        models=tuple(renamed_record(other, names) for other in state.models),
        # A class is retired as long as nothing that lives is part of it.
        retired=tuple(name for name in dict.fromkeys(names.get(old, old) for old in state.retired) if name not in live),
        renamed=(*state.renamed, *(Renaming(change.version, old, new, merged) for old, new in names.items())),
    )
    return change.commit(state, command, what, renamed=names)


def check_name(name: str) -> str:
    """A name that a class may have."""
    if not name.strip() or name.strip().lower() == UNSEEN:
        raise InputError(f"a class cannot be called {name!r}", fix="choose another name")
    return name


def _check_known(change: Change, names: Sequence[str]) -> None:
    there = {row.name for row in list_classes(change.state, change.graph)}
    for name in names:
        if name not in there:
            raise InputError(f"there is no class {name!r}", fix="see: evergraph ws classes list")


def renamed_record(record: ModelRecord, names: Mapping[str, str]) -> ModelRecord:
    """What is remembered of a model, with the new names."""
    return replace(record, classes=tuple(dict.fromkeys(names.get(name, name) for name in record.classes)))
