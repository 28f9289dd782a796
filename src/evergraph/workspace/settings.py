"""Settings of a workspace that can be changed later, and tags: names of versions."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from evergraph.errors import InputError, NothingToDoError
from evergraph.graph.evolving import EvolvingGraph
from evergraph.learning.task import AUTO_LEVEL, History, extend_to_labels, history_sizes, resolve_history
from evergraph.names import build_detector, build_model, described, rebuilt, with_settings
from evergraph.presentation.text import command_line
from evergraph.workspace.change import Change, Outcome, read_description
from evergraph.workspace.store import Settings, find_version, read_state, read_tags, write_settings

if TYPE_CHECKING:
    from evergraph.detect import Detector
    from evergraph.learning.memory import MemoryPolicy
    from evergraph.nn.base import Model

__all__ = [
    "change_settings",
    "check_keep",
    "choose_history",
    "current_settings",
    "decides_with",
    "describe_memory",
    "in_words",
    "tag",
]

_AT_ONCE = {"threshold", "alpha", "objective"}
"""Settings of a detector that only decisions depend on, neither the training nor the detector's state."""
_NONE = {"name": "none"}  # format 1 wrote null instead
_TAG = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,63}")


# --- what is set -----------------------------------------------------------------------------------------------------


def current_settings(settings: Settings, learner: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings by name, for JSON; a changed model or detector counts although it is not trained yet."""
    found: dict[str, Any] = {
        "history": "full" if settings.history is None else settings.history,
        "model": learner["model"],
        "detector": learner["detector"] or _NONE,
    }
    found |= {name: learner["settings"][name] for name in ("steps", "lr", "inputs")}
    found["memory"] = learner.get("memory") or _NONE
    return found | settings.pending | {"keep": settings.keep}


def in_words(value: Any) -> str:
    """Return the description of a model or detector, or another value, as text.

    Examples
    --------
    >>> in_words({"name": "gdoc", "threshold": 0.5, "alpha": None}), in_words(None)
    ('gdoc (threshold 0.5)', 'default')
    """
    if value is None:
        return "default"
    if not isinstance(value, Mapping):
        return ", ".join(map(in_words, value)) if isinstance(value, list) else str(value)
    if value["name"] == "post-hoc":  # as in energy/back-test
        return f"{in_words(value['by'])} with the threshold {in_words(value['threshold'])}"
    parts = {key: part for key, part in value.items() if key not in ("name", "version") and part is not None}
    listed = ", ".join(f"{key} {in_words(part)}" for key, part in parts.items())
    return f"{value['name']} ({listed})" if listed else str(value["name"])


def choose_history(graph: EvolvingGraph, history: History) -> tuple[int | None, str]:
    """Return the history as a number of periods (None for all), and how it was chosen."""
    from evergraph.workspace.update import next_task

    time = next_task(graph, None).time
    sizes = history_sizes(graph, time) if history == "auto" else {}
    if not sizes:
        size = resolve_history(graph, time, history)
        asked = "as requested" if history != "auto" else "all periods so far, because there are no edges to choose by"
        return size, "full history" if size is None else f"history of {graph.axis.counted(size)}, {asked}"
    shares = ", ".join(f"{level}%: {found}" for level, found in sizes.items())
    size = extend_to_labels(graph, time, sizes[AUTO_LEVEL])
    covers = "covers half of the time differences over two edges"
    if size > sizes[AUTO_LEVEL]:
        covers = "reaches back to the latest labels"
    return size, f"history of {graph.axis.counted(size)}, which {covers} ({shares})"


def check_keep(keep: Any) -> int:
    """Return a number of versions to keep as a plain integer; refuse fewer than 2."""
    if not isinstance(keep, (int, np.integer)) or not 2 <= keep < 2**31:
        raise InputError(f"keep is {keep!r}", fix="keep at least 2 versions, and fewer than 2,147,483,648")
    return int(keep)


# --- changing them ---------------------------------------------------------------------------------------------------


def change_settings(
    change: Change,
    *,
    history: History | None = None,
    model: Model | str | Mapping[str, Any] | None = None,
    detector: Detector | str | Mapping[str, Any] | None = None,
    steps: int | None = None,
    lr: float | None = None,
    inputs: str | Sequence[str] | None = None,
    memory: MemoryPolicy | str | None = None,
    keep: int | None = None,
) -> Outcome:
    """Change settings; see `Workspace.set`."""
    state, graph = change.state, change.graph
    learner = read_description(change.objects, state)
    before, settings, pending = current_settings(state.settings, learner), state.settings, dict(state.settings.pending)
    # A pending model or detector replaces the object that the caller passed, so changes start from its settings.
    own = dict(zip(("model", "detector"), change.own, strict=True)) | dict.fromkeys(pending)
    wanted: dict[str, Any] = {}
    if history is not None:
        size, why = choose_history(graph, history)
        wanted["history"] = "full" if size is None else size
        if size != settings.history:
            settings = replace(settings, history=size, history_why=why)
            # The default learning rate depends on the history: the next update chooses it again.
            learner["lr"] = learner["auxiliary_lr"] = None
    if model is not None:
        wanted["model"] = pending["model"] = _description("model", model, before["model"], own["model"])
        if pending["model"] == learner["model"]:
            del pending["model"]
    if detector is not None:
        new = _description("detector", detector, before["detector"], own["detector"])
        wanted["detector"] = pending["detector"] = new
        if decides_with(learner["detector"], new):
            learner["detector"] = pending.pop("detector")
    if inputs is not None:
        from evergraph.inputs.vocabulary import as_inputs, blocks_of

        inputs = as_inputs(inputs)
        blocks_of(graph, inputs)  # refuses what the graph does not have
        wanted["inputs"] = pending["inputs"] = inputs
        if inputs == learner["settings"]["inputs"]:
            del pending["inputs"]
    if steps is not None or lr is not None:
        from evergraph.learning.learner import LifelongLearner  # it imports torch

        LifelongLearner(steps=1 if steps is None else steps, lr=lr)  # refuses wrong values
    for name, value in (("steps", steps), ("lr", lr)):
        if value is not None:
            wanted[name] = learner["settings"][name] = described(value)
    if memory is not None:
        learner["memory"] = describe_memory(memory)
        wanted["memory"] = learner["memory"] or _NONE
        if (wanted["memory"] == _NONE) != (before["memory"] == _NONE):
            learner["lr"] = learner["auxiliary_lr"] = None  # the default depends on it
    if keep is not None:
        wanted["keep"] = check_keep(keep)
        settings = replace(settings, keep=wanted["keep"])
    changed = {name: value for name, value in wanted.items() if value != before[name]}
    same = [f"{name} is {in_words(before[name])} already" for name in wanted if name not in changed]
    facts = {"changed": {name: [before[name], value] for name, value in changed.items()}, "settings": before | wanted}
    if not changed:
        raise NothingToDoError(", ".join(same) or "no setting is given")
    settings = replace(settings, pending=pending)
    stale = state.stale or not changed.keys().isdisjoint(("history", "steps", "lr", "memory"))
    write_settings(change.records, settings, change.version)
    described_as = change.objects.put(json.dumps(learner, ensure_ascii=False, allow_nan=False).encode(), "json")
    change.state = replace(state, settings=settings, learner=described_as, stale=stale)
    parts = [f"{name}: {in_words(before[name])} -> {in_words(value)}" for name, value in changed.items()]
    outcome = change.finish("set", *parts, **facts)
    change.outcome = replace(outcome, parts=(*parts, *_consequences(changed, settings, graph), *same))
    return change.outcome


def _consequences(changed: Mapping[str, Any], settings: Settings, graph: EvolvingGraph) -> list[str]:
    """Return what changed settings mean, and from when on."""
    found = []
    anew = [name for name in ("model", "detector", "inputs") if name in changed and name in settings.pending]
    if anew:
        found.append(
            f"the next update trains a new model from random weights, because the {' and the '.join(anew)} changed; "
            "until then, predictions use the current model, detector and inputs"
        )
    if "model" in changed and "model" not in settings.pending:
        found.append("this is the model that is trained already")
    if "detector" in changed and "detector" not in settings.pending:
        found.append("the detector applies from the next predict on; earlier decisions stay as they are")
    if "history" in changed:
        periods = "all periods" if settings.history is None else graph.axis.counted(settings.history)
        found.append(f"the next update trains on {periods}; predictions use edges within {periods} at once")
    if changed.keys() & {"steps", "lr"}:
        found.append("steps and learning rate apply to the next update")
    if "memory" in changed:
        found.append("the memory applies to the next update")
    if "keep" in changed:
        found.append(f"the last {settings.keep} versions and those with a tag are kept")
    return found


def _description(kind: str, given: Any, before: Any, own: Any) -> dict[str, Any]:
    """Return the description of a model or detector, from an object, a name, or some settings of the current one."""
    if isinstance(given, str):
        given = (build_model if kind == "model" else build_detector)(given)
    elif isinstance(given, Mapping):
        given = with_settings(kind, own or rebuilt(before, kind), **given)
    description = described(given)
    try:
        rebuilt(description, kind)
    except InputError as error:
        raise InputError(
            f"{error.problem[0].upper()}{error.problem[1:]}",
            fix=f"register it by an entry point, or create a new workspace with this {kind}",
        ) from None
    return dict(description)


def describe_memory(memory: MemoryPolicy | str | None) -> dict[str, Any] | None:
    """Return the description of a memory, None for none; refuse one that a workspace cannot read again."""
    from evergraph.learning.memory import as_memory

    description = described(as_memory(memory))
    try:
        rebuilt(description, "memory")
    except InputError as error:
        raise InputError(error.problem, fix="register it by an entry point") from None
    return None if description is None else dict(description)


def decides_with(trained: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> bool:
    """Whether a model that was trained with a detector can decide with another one, without new training."""
    one, other = trained or _NONE, new or _NONE
    return {name for name in (*one, *other) if one.get(name) != other.get(name)} <= _AT_ONCE


# --- tags ------------------------------------------------------------------------------------------------------------


def tag(change: Change, name: str, version: int | str | None, *, delete: bool) -> Outcome:
    """Give a version a name, or delete the name; see `Workspace.tag`."""
    records, tags = change.records, read_tags(change.records)
    if delete:
        if name not in tags:
            listed = command_line("ws", "tag", change.store.folder)
            raise InputError(f"there is no tag {name!r}", fix=f"list the tags with: {listed}")
        records.delete("tags", "name = ?", name)
        outcome = change.finish("tag", f"tag {name} deleted from version {tags[name]}", tag=name, tagged=tags[name])
        if records.one("states", "version = ?", tags[name]) is None:
            gone = f"version {tags[name]} is not kept any more"
            outcome = change.outcome = replace(outcome, parts=(*outcome.parts, gone))
        return outcome
    if not _TAG.fullmatch(name):
        raise InputError(
            f"a version cannot be named {name!r}",
            fix="use up to 64 letters without accents, digits, dots, hyphens and underscores; the first is a letter",
        )
    number = change.state.version if version is None else find_version(records, version)
    read_state(records, number)  # refuses a version that is not kept
    if name in tags:
        if tags[name] == number:
            raise NothingToDoError(f"version {number} has the tag {name} already")
        deletion = command_line("ws", "tag", change.store.folder, name, "--delete")
        raise InputError(
            f"version {tags[name]} has the tag {name}",
            fix=f"choose another name, or delete it first with: {deletion}",
        )
    records.insert("tags", [(name, number)])
    return change.finish("tag", f"version {number} is tagged {name} and kept", tag=name, tagged=number)
