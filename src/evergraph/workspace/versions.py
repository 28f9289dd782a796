"""Returning to an earlier version."""

from __future__ import annotations

from dataclasses import replace

from evergraph.errors import InputError
from evergraph.workspace.change import Change, Outcome
from evergraph.workspace.renaming import current_name, renamings
from evergraph.workspace.state import Return, State

__all__ = ["rollback"]


def rollback(change: Change, version: int, *, model_only: bool) -> Outcome:
    """See `Workspace.rollback`."""
    if version == change.transaction.base:
        raise InputError(f"version {version} is the one in force", fix="choose an earlier one: evergraph ws log")
    there, state = State.from_dict(change.store.version(version)), change.state
    if not model_only:
        state = _returned(there, state, Return(change.version, version))
    elif renamings(state.renamed, state.returns, version, state.version):
        raise InputError(
            f"classes were renamed after version {version}, whose model has the old names",
            fix="roll back everything, or choose a later version",
        )
    elif there.model.number == state.model.number:
        raise InputError(f"the model of version {version} is the one in force", fix="choose an earlier version")
    else:
        state = replace(state, model=there.model, stale=True)
    what = f"to {'the model of ' if model_only else ''}version {version}"
    return change.commit(state, "rollback", what, model=state.model.number)


def _returned(there: State, here: State, back: Return) -> State:
    """All of an earlier version but what was made since: models, decisions, scores and the log."""
    returns = (*here.returns, back)
    steps = renamings(here.renamed, returns, here.version, back.version)
    later = [
        replace(record, classes=tuple(dict.fromkeys(current_name(name, steps) for name in record.classes)))
        for record in here.models
        if record.number > max(other.number for other in there.models)
    ]
    return replace(
        there,
        models=(*there.models, *later),
        renamed=here.renamed,
        returns=returns,
        decisions=here.decisions,
        scored=here.scored,
        log=here.log,
    )
