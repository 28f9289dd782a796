"""Settings files: the settings of a run as JSON, which ``evergraph tune`` writes and other commands read.

::

    {
      "format": "evergraph settings",
      "format_version": 1,
      "settings": {"model": {"name": "sage", "hidden": 64}, "history": 3, "lr": 0.01},
      "source": {"graph": "dblp-easy", "metric": "accuracy", "value": 0.64}
    }

``settings`` has names and values as `Configuration.described` writes them; those that are missing have their defaults.
``source`` says where the settings come from, in any form.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from evergraph.errors import InputError, os_error
from evergraph.evaluation.configuration import Configuration
from evergraph.graph.times import TimeAxis
from evergraph.names import build, build_detector, rebuilt, with_settings
from evergraph.storage.decoding import parse_json
from evergraph.storage.files import disk_errors, write_atomic

__all__ = ["FORMAT", "FORMAT_VERSION", "parse_settings", "read_settings", "workspace_settings", "write_settings"]

FORMAT, FORMAT_VERSION = "evergraph settings", 1
OF_WORKSPACES = ("history", "model", "detector", "steps", "lr", "inputs", "memory")
"""Settings that a workspace has too."""

_KEYS = ("format", "format_version", "settings", "source")
_PARTS = ("model", "detector", "memory", "regulariser")
_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "model": ((str, dict), "a name, or an object with a name and settings"),
    "detector": ((str, dict), "a name, or an object with a name and settings"),
    "history": ((int, str), 'a number of periods, "auto" or "full"'),
    "restart": ((str,), '"warm", "cold", "hybrid" or "once"'),
    "steps": ((int,), "a whole number from 1 up"),
    "lr": ((float, int, type(None)), "a number above 0, or null for the default"),
    "weight_decay": ((float, int), "a number from 0 up"),
    "first": ((int, str, type(None)), "a period, or null for the default"),
    "label_rate": ((float, int), "a number above 0 and up to 1"),
    "mode": ((str,), '"transductive" or "inductive"'),
    "text": ((str,), '"past" or "global"'),
    "inputs": ((str, list), '"auto", or blocks as in "words,classes"'),
    "label_latency": ((int,), "a number of periods from 0 up"),
    "workers": ((int,), "a whole number from 1 up"),
    "memory": ((str, dict, type(None)), 'a name, as in "class-mean:2000", or null for none'),
    "regulariser": ((str, dict, type(None)), "a name, an object with a name and settings, or null for none"),
    "retire_after": ((int, type(None)), "a number of periods from 1 up, or null for none"),
}


def write_settings(
    path: str | Path, configuration: Configuration, source: Mapping[str, Any], axis: TimeAxis | None = None
) -> None:
    """Write a settings file.

    Parameters
    ----------
    path
        The file; an earlier one is replaced.
    configuration
        The settings.
    source
        Where they come from, for JSON.
    axis
        Time axis of the graph, if the settings have a first task.
    """
    settings = configuration.described(axis or TimeAxis())
    content = {"format": FORMAT, "format_version": FORMAT_VERSION, "settings": settings, "source": dict(source)}
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, indent=2) + "\n"
    with disk_errors(Path(path), "the settings could not be written"):
        write_atomic(Path(path), text.encode())


def read_settings(path: str | Path) -> dict[str, Any]:
    """Read a settings file, and return its settings as arguments of `Configuration`.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "settings.json"
    >>> write_settings(path, Configuration(build("model", "sage:hidden=64"), history=3), {"graph": "mine"})
    >>> Configuration(**read_settings(path)).model
    GraphSAGE(hidden=64, layers=2, dropout=0.5)
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise os_error(error, "the settings cannot be read", file=path, fix="check the path") from error
    try:
        content = parse_json(data)
    except ValueError as error:
        raise InputError(
            f"the file of settings is damaged: {error}", file=path, fix="write it again with: evergraph tune"
        ) from error
    return parse_settings(content, path)


def parse_settings(content: Any, file: str | Path | None = None) -> dict[str, Any]:
    """Return the settings in the content of a settings file as arguments of `Configuration`; errors name the file."""
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise InputError(
            f"this is not a file of settings: its key 'format' is not {FORMAT!r}",
            file=file,
            fix="give the file settings.json that 'evergraph tune' writes",
        )
    version = content.get("format_version")
    if type(version) is not int or version != FORMAT_VERSION:
        raise InputError(
            f"'format_version' is {version!r}, and this Evergraph reads {FORMAT_VERSION}",
            file=file,
            fix="use the version of Evergraph that wrote the file, or write it again with: evergraph tune",
        )
    for key in content:
        if key not in _KEYS:
            raise _unknown(key, _KEYS, file)
    settings = content.get("settings")
    if not isinstance(settings, dict):
        raise InputError("the key 'settings' is missing or not an object", file=file, fix='write "settings": {…}')
    found: dict[str, Any] = {}
    for name, value in settings.items():
        if name not in _KINDS:
            raise _unknown(name, tuple(_KINDS), file, "settings.")
        kinds, meaning = _KINDS[name]
        if isinstance(value, bool) or not isinstance(value, kinds):
            raise InputError(f"'settings.{name}' is {value!r}", file=file, fix=f"set it to {meaning}")
        try:
            found[name] = _part(name, value) if name in _PARTS and value is not None else value
            _checked({name: found[name]})
        except InputError as error:
            fix = error.fix or f"set it to {meaning}"
            raise InputError(f"'settings.{name}': {error.problem}", file=file, fix=fix) from error
        except (TypeError, ValueError, LookupError, AttributeError) as error:
            raise InputError(
                f"'settings.{name}' cannot be used ({error})", file=file, fix=f"set it to {meaning}"
            ) from (error)
    return found


def workspace_settings(settings: Mapping[str, Any], given: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return those of the settings that `Workspace.create` and `Workspace.set` take.

    ``given`` are arguments of `Workspace.set` that override them; None is ignored.

    Examples
    --------
    >>> workspace_settings({"history": 3, "restart": "cold"}, {"steps": 100, "lr": None})
    {'history': 3, 'steps': 100}
    """
    found = {name: settings[name] for name in OF_WORKSPACES if name in settings}
    for name, value in (given or {}).items():
        if isinstance(value, Mapping) and name in found:  # some settings of the model or detector
            found[name] = with_settings(name, found[name], **value)
        elif value is not None:
            found[name] = value
    if "memory" in found and found["memory"] is None:  # None would leave it as it is
        found["memory"] = "none"
    return found


def _part(kind: str, value: Any) -> Any:
    """Return a part, such as a model, from its description, or from a text as on the command line."""
    if isinstance(value, str):
        return _build(kind, value)
    if not isinstance(value.get("name"), str):
        raise InputError("it has no name", fix='write a name, as in {"name": "sage"}')
    plain = all(not isinstance(part, dict | list) for part in value.values())
    if plain:  # settings that are missing have their defaults, and unknown ones a clear error
        settings = {key: part for key, part in value.items() if key not in ("name", "version")}
        if "version" in value:
            rebuilt({"name": value["name"], "version": value["version"]}, kind)  # refuses another version
        return with_settings(kind, _build(kind, value["name"]), **settings)
    return rebuilt(value, kind)


def _build(kind: str, text: str) -> Any:
    return build_detector(text) if kind == "detector" else build(kind, text)


def _checked(settings: Mapping[str, Any]) -> None:
    """Refuse values that `Configuration` or `tasks` would refuse later."""
    from evergraph.graph.evolving import EvolvingGraph
    from evergraph.learning.task import Task, resolve_history

    configuration = Configuration(**settings)
    tiny = EvolvingGraph.build({"id": [1, 2], "time": [1, 2]})
    resolve_history(tiny, 2, "full" if configuration.history == "auto" else configuration.history)
    Task(tiny, 2, 1, configuration.mode, configuration.label_rate, label_latency=configuration.label_latency)


def _unknown(key: str, known: Sequence[str], file: str | Path | None, where: str = "") -> InputError:
    close = get_close_matches(key, known, 1)
    fix = f"write '{where}{close[0]}', or remove it" if close else f"remove it; there are: {', '.join(known)}"
    return InputError(f"there is no key '{where}{key}'", file=file, fix=fix)
