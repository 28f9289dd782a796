"""JSON that tells whether it was changed: the content as text, and a hash of that text beside it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, TypeVar, overload

import msgspec

__all__ = ["InvalidJsonError", "dump_json", "load_json"]

_T = TypeVar("_T")


class InvalidJsonError(Exception):
    """What is wrong with checksummed JSON, in words; ``newer`` if only this Evergraph is too old for it."""

    def __init__(self, problem: str, *, newer: bool = False) -> None:
        super().__init__(problem)
        self.newer = newer


def dump_json(content: Mapping[str, Any]) -> bytes:
    """The content, which has fields ``format`` and ``format_version``, as JSON with a hash of it.

    Examples
    --------
    >>> load_json(dump_json({"format": "letter", "format_version": 1}), "letter", 1)
    {'format': 'letter', 'format_version': 1}
    """
    text = json.dumps(content, ensure_ascii=False, allow_nan=False)
    return json.dumps({"sha256": _hash(text), "content": text}).encode()


@overload
def load_json(data: bytes, kind: str, newest: int) -> dict[str, Any]: ...
@overload
def load_json(data: bytes, kind: str, newest: int, into: type[_T]) -> _T: ...
def load_json(data: bytes, kind: str, newest: int, into: Any = dict[str, Any]) -> Any:
    """The content of checksummed JSON, if its format is known and it is unchanged.

    Parameters
    ----------
    data
        What `dump_json` gave.
    kind, newest
        Name of the format, and its newest version that is known.
    into
        A dataclass or another type that msgspec knows: fields are checked and converted.
    """
    try:
        outer = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InvalidJsonError(f"it cannot be read ({error})") from error
    try:
        text = outer["content"]
        content = json.loads(text)
        version = int(content["format_version"]) if content.get("format") == kind else 0
    except (LookupError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise InvalidJsonError(f"this is not the file of an {kind.capitalize()}") from error
    if not version:
        raise InvalidJsonError(f"this is not the file of an {kind.capitalize()}")
    if version > newest:
        raise InvalidJsonError(
            f"it has format version {version}, newer than {newest}, the newest known here", newer=True
        )
    if _hash(text) != outer.get("sha256"):
        raise InvalidJsonError("the contents are not those that were saved")
    return converted(content, into)


def converted(content: Any, into: type[_T]) -> _T:
    """JSON as a dataclass or another type; an `InvalidJsonError` names the field that is missing or of a wrong type."""
    try:
        return msgspec.convert(content, into)
    except (msgspec.ValidationError, TypeError) as error:
        raise InvalidJsonError(f"it lacks or distorts something: {error}") from error


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
