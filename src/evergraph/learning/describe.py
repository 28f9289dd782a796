"""Models and detectors as names and settings, fit for JSON, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from evergraph.detect import DETECTORS, Detector, IsoMax, PostHoc
from evergraph.detect.scores import SCORES, Relative, Score, Smoothed, Together
from evergraph.detect.thresholds import THRESHOLDS, Threshold
from evergraph.errors import InputError
from evergraph.nn.base import Model
from evergraph.nn.catalogue import MODELS
from evergraph.nn.isomax import IsoMaxOutputs

__all__ = ["described", "rebuilt"]

# What a file can hold: all that has a name on the command line, the two halves of IsoMax+, and scores with thresholds.
_KINDS: dict[str, Any] = {
    **MODELS,
    **DETECTORS,
    "isomax": IsoMax,
    "isomax-outputs": IsoMaxOutputs,
    "post-hoc": PostHoc,
    "relative": Relative,
    "smoothed": Smoothed,
    "together": Together,
    **SCORES,
    **THRESHOLDS,
}


def described(value: Any) -> Any:
    """A model or detector as a dict of its name and settings, nested ones too; what JSON knows stays as it is.

    What is not ours is named by its type; such a description tells it apart, but cannot be turned back.

    Examples
    --------
    >>> from evergraph.nn import SGC
    >>> described(SGC(hops=3))
    {'name': 'sgc', 'hops': 3}
    """
    if isinstance(value, (Model, Detector, Score, Threshold)):
        names = {kind: name for name, kind in _KINDS.items()}
        settings: tuple[Any, ...] = fields(value) if is_dataclass(value) else ()
        name = names.get(type(value), type(value).__qualname__)
        version = {"version": value.version} if isinstance(value, Detector) and value.version else {}
        return {"name": name} | version | {entry.name: described(getattr(value, entry.name)) for entry in settings}
    if isinstance(value, tuple):
        return [described(part) for part in value]
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return getattr(value, "__qualname__", type(value).__qualname__)


def rebuilt(description: Mapping[str, Any] | str | None, what: str) -> Any:
    """A model or detector from its description.

    Examples
    --------
    >>> rebuilt({"name": "sgc", "hops": 3}, "model")
    SGC(hops=3)
    """
    if description is None:
        return None
    settings = {"name": description} if isinstance(description, str) else dict(description)
    name = settings.pop("name")
    kind = _KINDS.get(name)
    if kind is None:
        raise InputError(
            f"the {what} is one of your own ({name}), which a file cannot hold", fix=f"give it again: load(…, {what}=…)"
        )
    if settings.pop("version", 0) != getattr(kind, "version", 0):
        raise InputError(
            f"the {what} is {name} of another version, and what it has kept would be misread",
            fix="go on with the Evergraph that wrote it, or start anew",
        )
    return kind(**{key: _rebuilt_part(part, what) for key, part in settings.items()})


def _rebuilt_part(part: Any, what: str) -> Any:
    if isinstance(part, list):
        return tuple(_rebuilt_part(one, what) for one in part)
    return rebuilt(part, what) if isinstance(part, dict) else part
