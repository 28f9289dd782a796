"""JSON that tells whether it was changed: the content as text, and a hash of that text beside it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

__all__ = ["NotSealedError", "seal", "unseal"]


class NotSealedError(Exception):
    """What is wrong with data that should be sealed JSON, in words; ``newer`` if only this Evergraph is too old."""

    def __init__(self, problem: str, *, newer: bool = False) -> None:
        super().__init__(problem)
        self.newer = newer


def seal(content: Mapping[str, Any]) -> bytes:
    """The content as JSON with a hash of it.

    Examples
    --------
    >>> unseal(seal({"format": "letter", "format_version": 1}), "letter", 1)
    {'format': 'letter', 'format_version': 1}
    """
    text = json.dumps(content, ensure_ascii=False, allow_nan=False)
    return json.dumps({"sha256": _hash(text), "content": text}).encode()


def unseal(data: bytes, kind: str, newest: int) -> dict[str, Any]:
    """The content of sealed JSON of a format, if it is known and unchanged.

    Parameters
    ----------
    data
        What `seal` gave.
    kind, newest
        Name of the format, and its newest version that is known.
    """
    try:
        sealed = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise NotSealedError(f"it cannot be read ({error})") from error
    try:
        text = sealed["content"]
        content = json.loads(text)
        version = int(content["format_version"]) if content.get("format") == kind else 0
    except (LookupError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise NotSealedError(f"this is not the file of an {kind.capitalize()}") from error
    if not version:
        raise NotSealedError(f"this is not the file of an {kind.capitalize()}")
    if version > newest:
        raise NotSealedError(f"it has format version {version}, newer than {newest}, the newest known here", newer=True)
    if _hash(text) != sealed.get("sha256"):
        raise NotSealedError("the contents are not those that were saved")
    return dict(content)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
