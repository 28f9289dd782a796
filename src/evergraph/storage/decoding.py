"""Decode what files hold. Damaged or edited content always ends in an error that names the file."""

from __future__ import annotations

import contextlib
import io
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from evergraph.errors import EvergraphError, InputError

__all__ = [
    "InvalidContentError",
    "InvalidJsonError",
    "converted",
    "decoding",
    "map_array",
    "parse_json",
    "read_array",
]

_T = TypeVar("_T")
_DEEPEST = 100  # brackets inside brackets; more would exceed Python's recursion limit somewhere later


class InvalidContentError(ValueError):
    """Content that was stored cannot be used."""


class InvalidJsonError(InvalidContentError):
    """JSON cannot be used; ``newer`` is set if it was written by a newer Evergraph."""

    def __init__(self, problem: str, *, newer: bool = False) -> None:
        super().__init__(problem)
        self.newer = newer


@contextlib.contextmanager
def decoding(path: Path, damaged: Callable[[Path, str], Exception]) -> Iterator[None]:
    """Turn every failure to decode the content of a file into an error that names it.

    Content that was edited fails in as many ways as it has fields, so this is for blocks that do nothing but decode.
    Errors of the disk, of SQLite and of memory are passed on.
    """
    try:
        yield
    except InputError as error:
        if error.file is not None:
            raise
        raise type(error)(error.problem, fix=error.fix, file=path, column=error.column, row=error.row) from error
    except (EvergraphError, OSError, MemoryError, sqlite3.Error):
        raise
    except InvalidContentError as error:
        if getattr(error, "newer", False):
            raise
        raise damaged(path, str(error)) from error
    except Exception as error:
        raise damaged(path, f"a part is missing or invalid ({str(error) or type(error).__name__})") from error


def parse_json(data: bytes | str) -> Any:
    """Parse JSON; stricter than Python's parser: no NaN, no lone surrogates, and at most 100 levels.

    Examples
    --------
    >>> parse_json(b'{"a": [1, null]}')
    {'a': [1, None]}
    """
    if isinstance(data, bytes):
        data = data.removeprefix(b"\xef\xbb\xbf")
    try:
        found = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise InvalidJsonError(f"it is not JSON ({error})") from error
    if _is_deep(found):
        raise InvalidJsonError(f"it has more than {_DEEPEST} levels")
    return found


def _is_deep(document: Any) -> bool:
    level = [document]
    for _ in range(_DEEPEST):
        containers = [item for item in level if isinstance(item, dict | list)]
        if not containers:
            return False
        level = [part for item in containers for part in (item.values() if isinstance(item, dict) else item)]
    return True


def converted(content: Any, into: type[_T]) -> _T:
    """Convert JSON to a dataclass or another type; the error names a missing or wrong field."""
    try:
        return msgspec.convert(content, into)
    except (msgspec.ValidationError, TypeError) as error:
        raise InvalidJsonError(f"a field is missing or invalid: {error}") from error


def map_array(path: Path) -> NDArray[Any]:
    """Return the array of an .npy file as a read-only memory map; any damage is a ``ValueError``."""
    try:
        return np.lib.format.open_memmap(path, mode="r")
    except OSError:
        raise
    except Exception as error:  # a damaged header breaks numpy's parser in more ways than it documents
        raise ValueError(f"it is not an array ({error})") from error


def read_array(data: bytes) -> NDArray[Any]:
    """Return the array of the bytes of an .npy file, sharing their memory; any damage is a ``ValueError``."""
    file = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(file)
        if dtype.hasobject:
            raise ValueError("it holds Python objects")
        flat = np.frombuffer(data, dtype, offset=file.tell())  # numpy's own function allocates what the header claims
        return flat.reshape(shape, order="F" if fortran else "C")
    except Exception as error:
        raise ValueError(f"it is not an array ({error})") from error
