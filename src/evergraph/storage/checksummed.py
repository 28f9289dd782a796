"""JSON with a checksum, so that a changed or damaged file is noticed when it is read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, TypeVar, overload

from evergraph.storage.decoding import InvalidJsonError, converted, parse_json

__all__ = ["dump_json", "load_json"]

_T = TypeVar("_T")


def dump_json(content: Mapping[str, Any]) -> bytes:
    """Return content with the fields ``format`` and ``format_version`` as JSON with a checksum.

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
    """Return the content of checksummed JSON after checking format and checksum.

    Parameters
    ----------
    data
        Bytes written by `dump_json`.
    kind, newest
        Name of the format, and its newest supported version.
    into
        A dataclass or another type that msgspec supports: fields are checked and converted.
    """
    try:
        outer = parse_json(data)
    except InvalidJsonError as error:
        raise InvalidJsonError(f"it cannot be read ({error})") from error
    try:
        text = outer["content"]
        content = parse_json(text)
        version = content["format_version"] if content["format"] == kind else 0
    except (LookupError, TypeError, ValueError) as error:
        raise InvalidJsonError(f"this is not the file of an {kind.capitalize()}") from error
    if type(version) is not int or version < 1:
        raise InvalidJsonError(f"this is not the file of an {kind.capitalize()}")
    if version > newest:
        raise InvalidJsonError(
            f"it has format version {version}, newer than {newest}, the newest known here", newer=True
        )
    if _hash(text) != outer.get("sha256"):
        raise InvalidJsonError("the contents are not those that were saved")
    return converted(content, into)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
