"""What was run, in words: one line, a table of all settings, and the command that repeats it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evergraph.evaluation.results import flat
from evergraph.evaluation.run_folder import KeptRun
from evergraph.names import DETECTORS, MODELS

__all__ = ["command_of", "details_of", "summary_of", "title_of"]

# The settings that the command has options for, by their names in a description.
_OPTIONS = {
    "model.name": "--model",
    "model.hidden": "--hidden",
    "model.layers": "--layers",
    "model.dropout": "--dropout",
    "model.hops": "--hops",
    "history": "--history",
    "restart": "--restart",
    "detector.name": "--detector",
    "detector.threshold": "--threshold",
    "detector.alpha": "--alpha",
    "detector.most": "--most",
    "steps": "--steps",
    "lr": "--lr",
    "weight_decay": "--weight-decay",
    "first": "--first",
    "label_rate": "--label-rate",
    "mode": "--mode",
    "text": "--text",
}


def title_of(run: KeptRun) -> str:
    """The name of the graph, or of the folder where no one said how the graph is called."""
    name = (run.graph or {}).get("name")
    return Path(name).name or name if name else run.path.resolve().name


def summary_of(run: KeptRun, seeds: Sequence[int], times: Sequence[str]) -> str:
    """What was run, in one line."""
    settings = flat(run.identity["configuration"])
    size = next(iter(run.rows.values()))[0].history
    threshold = settings.get("detector.threshold")
    parts = [
        f"model {settings.get('model.name')}",
        "full history" if size == "full" else f"history of {size}",
        f"{settings.get('restart')} restarts",
        f"detector {settings.get('detector.name')}" + ("" if threshold is None else f" at {threshold:g}"),
        f"{settings.get('steps')} steps",
        f"{'seeds' if len(seeds) > 1 else 'seed'} {', '.join(map(str, seeds))}",
        f"{len(times)} tasks, {times[0]} to {times[-1]}" if len(times) > 1 else f"one task, {times[0]}",
    ]
    return " · ".join(parts)


def command_of(settings: Mapping[str, Any], graph: str, seeds: Sequence[int]) -> str | None:
    """The command that does the same again; None where a setting has no option.

    Examples
    --------
    >>> settings = {"model": {"name": "sgc", "hops": 2}, "detector": {"name": "none"}, "lr": None, "steps": 30}
    >>> command_of(settings, "my graph", [0, 1, 2, 5])
    "evergraph run 'my graph' --model sgc --hops 2 --detector none --steps 30 --seeds 0,1,2,5"
    """
    given = flat(settings)
    if given.keys() - _OPTIONS or given.get("model.name") not in MODELS or given.get("detector.name") not in DETECTORS:
        return None
    words = ["evergraph", "run", graph]
    for name, value in given.items():
        if value is not None:
            words += [_OPTIONS[name], str(value)]
    return shlex.join([*words, "--seeds", ",".join(map(str, seeds))])


def details_of(run: KeptRun, seeds: Sequence[int]) -> tuple[tuple[str, str], ...]:
    """Name and value of everything that makes the run what it is."""
    facts, settings = run.graph or {}, run.identity["configuration"]
    found: dict[str, str] = {}
    if name := facts.get("name"):
        found["graph"] = name
        if command := command_of(settings, name, seeds):
            found["command"] = command
    if facts:
        found["vertices"], found["edges"] = f"{facts['vertices']:,}", f"{facts['edges']:,}"
        found["classes"] = f"{len(facts['classes']):,}"
        found["features"] = facts["features"]
        found["times"] = f"{facts['times'][0]} to {facts['times'][-1]}, in {facts['time_steps']}"
        found |= {f"graph: {key}": value for key, value in facts["about"].items()}
    found |= {name: "not set" if value is None else str(value) for name, value in flat(settings).items()}
    found["seeds"] = ", ".join(map(str, seeds))
    for seed in seeds:
        seconds = sum(row.seconds for row in run.rows[seed])
        found[f"seconds of seed {seed}"] = f"{seconds:,.1f}"
    found["fingerprint of the graph"] = str(run.identity["fingerprint"])
    found["numerics version"] = str(run.identity["numerics_version"])
    if facts:
        found["run by"] = f"Evergraph {facts['evergraph']}"
    return tuple(found.items())
