"""Returning to an earlier version."""

from __future__ import annotations

from dataclasses import replace

from evergraph.errors import InputError
from evergraph.workspace.change import Change, Outcome
from evergraph.workspace.naming import renamed_record
from evergraph.workspace.state import Renaming, State

__all__ = ["rollback"]


def rollback(change: Change, version: int, *, model_only: bool) -> Outcome:
    """See `Workspace.rollback`."""
    if version == change.transaction.base:
        raise InputError(f"version {version} is the one in force", fix="choose an earlier one: evergraph ws log")
    there, state = State.from_dict(change.store.version(version)), change.state
    since = [event for event in state.renamed if event.version > version]
    if not model_only:
        state = _returned(there, state, since, change.version)
    elif since:
        raise InputError(
            f"classes were renamed after version {version}, whose model has the old names",
            fix="roll back everything, or choose a later version",
        )
    else:
        state = replace(state, model=there.model, fresh_labels=max(state.fresh_labels, 1))
    what = f"to {'the model of ' if model_only else ''}version {version}"
    return change.commit(state, "rollback", what, model=state.model.number)


def _returned(there: State, here: State, since: list[Renaming], version: int) -> State:
    """All of an earlier version but what was made since: models, decisions, scores and the log."""
    merged = [event.new for event in since]
    # What was decided under a new name is known by the old one again; of a merger nobody can tell which it was.
    back = [Renaming(version, event.new, event.old) for event in reversed(since) if merged.count(event.new) == 1]
    names = {event.old: event.new for event in back}
    later = [record for record in here.models if record.number > max(other.number for other in there.models)]
    return replace(
        there,
        models=(*there.models, *(renamed_record(record, names) for record in later)),
        renamed=(*there.renamed, *back),
        decisions=here.decisions,
        scored=here.scored,
        log=here.log,
    )
