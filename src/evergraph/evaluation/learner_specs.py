"""Learners as text, such as ``window:1+memory:class-mean:10%``, and their configurations."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, get_args

from evergraph.errors import InputError
from evergraph.evaluation.configuration import Configuration
from evergraph.learning.memory import as_memory
from evergraph.names import build, unknown

__all__ = ["PARTS", "LearnerSpec", "learner_specs"]

PARTS: dict[str, str] = {
    "window": "history",
    "memory": "memory",
    "regulariser": "regulariser",
    "retire": "retire_after",
    "model": "model",
    "restart": "restart",
    "steps": "steps",
    "lr": "lr",
}
"""The parts of a learner, and the fields of `Configuration` that they set. Options of ``run`` have the same names."""

_BUILT = ("regulariser", "model")
_EXAMPLE = "write parts joined by +, as in window:1+memory:class-mean:10%"


@dataclass(frozen=True)
class LearnerSpec:
    """A learner in a comparison: its parts by name, each as text.

    Examples
    --------
    >>> spec = LearnerSpec.parse("window:3+restart:cold+steps:50")
    >>> spec.parts
    {'window': '3', 'restart': 'cold', 'steps': '50'}
    >>> found = spec.configuration(Configuration())
    >>> found.history, found.restart, found.steps
    (3, 'cold', 50)
    """

    name: str
    parts: Mapping[str, str] = field(hash=False)

    @classmethod
    def parse(cls, text: str) -> LearnerSpec:
        """Read a learner, and check its parts."""
        name, parts = text.strip(), dict[str, str]()
        for part in re.split(r"\+(?=\s*[A-Za-z])", name):  # not within 1e+2
            kind, colon, value = (side.strip() for side in part.partition(":"))
            if kind not in PARTS:
                raise unknown("part of a learner", kind, list(PARTS))
            if not colon or not value:
                raise InputError(f"the part {kind!r} of the learner {name!r} has no value", fix=_EXAMPLE)
            if kind in parts:
                raise InputError(f"the learner {name!r} has the part {kind!r} twice", fix="give it once")
            parts[kind] = value
        spec = cls(name, parts)
        spec.settings()
        return spec

    def settings(self) -> dict[str, Any]:
        """Return the fields of `Configuration` that the learner sets."""
        found: dict[str, Any] = {}
        for kind, value in self.parts.items():
            if kind == "memory":
                found[PARTS[kind]] = as_memory(value)
            elif kind in _BUILT:
                found[PARTS[kind]] = None if value == "none" and kind != "model" else build(kind, value)
            else:
                found[PARTS[kind]] = _plain(kind, value, self.name)
        return found

    def configuration(self, base: Configuration) -> Configuration:
        """Return the configuration; what the learner does not set is that of ``base``."""
        return replace(base, **self.settings())


def learner_specs(text: str) -> tuple[LearnerSpec, ...]:
    """Return the learners of a comma-separated list, each once.

    Examples
    --------
    >>> [one.name for one in learner_specs("window:1, model:sage:hidden=8,dropout=0.2+window:3,window:1")]
    ['window:1', 'model:sage:hidden=8,dropout=0.2+window:3']
    """
    found: list[str] = []
    for part in filter(None, map(str.strip, text.split(","))):
        if found and re.match(r"\w+\s*=", part):  # one more setting of the part before
            found[-1] += f",{part}"
        else:
            found.append(part)
    if not found:
        raise InputError("there is no learner to compare", fix="name some, such as window:1,window:full")
    return tuple(LearnerSpec.parse(name) for name in dict.fromkeys(found))


def _plain(kind: str, value: str, name: str) -> Any:
    """Return the value of a part that is a word or a number."""
    if kind == "window":
        if value in ("full", "auto"):
            return value
        return _whole(value, f"the window of the learner {name!r}", "a number of periods from 1 up, full or auto")
    if kind == "restart":
        from evergraph.learning.learner import Restart

        if value not in get_args(Restart):
            raise unknown("restart", value, list(get_args(Restart)))
        return value
    if kind == "retire" and value == "none":
        return None
    if kind in ("steps", "retire"):
        what = "steps" if kind == "steps" else "periods"
        return _whole(value, f"the part {kind!r} of the learner {name!r}", f"a whole number of {what} from 1 up")
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number > 0):
        raise InputError(f"the learning rate of the learner {name!r} is {value!r}", fix="set it to a number above 0")
    return number


def _whole(value: str, what: str, wanted: str) -> int:
    if not re.fullmatch("[0-9]{1,9}", value) or not int(value):
        raise InputError(f"{what} is {value!r}", fix=f"set it to {wanted}")
    return int(value)
