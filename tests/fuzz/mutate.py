"""Mutations of bytes, JSON documents and arrays. Each takes a `random.Random`, so a seed repeats it."""

from __future__ import annotations

import copy
import io
import json
import re
import struct
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

EDGES = (0, 1, -1, 127, 128, 255, 256, 65_535, 2**31 - 1, 2**31, -(2**31), 2**32, 2**53, 2**63 - 1, 2**63, -(2**63))
NUMBERS = (
    *map(str, EDGES),
    str(2**64),
    "1" + "0" * 400,
    "1e308",
    "1e999",
    "-1e999",
    "-0.0",
    "1e-320",
    "NaN",
    "0x10",
    "٣",
)
TOKENS: tuple[bytes, ...] = (
    *(text.encode() for text in NUMBERS),
    *(b"", b"\0", b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xef\xbb\xbf", b"\xe2\x80\xae", b"\x1b[2J"),
    *(b"\r", b"\n", b"\r\n", b"\n\n", b"\t", b",", b",,,", b";", b'"', b'""', b"'", b"\\", b"\\ud800", b"\\u0000"),
    *(b"null", b"true", b"Infinity", b"{}", b"[]", b"[" * 3_000, b'{"":' * 3_000, b"(" * 300, b"x" * 2_000),
    *(b"\x1f\x8b", b"PK\x03\x04", b"PK\x05\x06", b"PAR1", b"\x93NUMPY", b"\x80\x02", b"SQLite format 3\0"),
)
ODD_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0.5, 1e308, -1e-320, float("nan"), float("inf"), *EDGES, 2**64, 10**30),
    *("", "x", "\0", "\ud800", "nan", "1", "../../x", "é", "x" * 500, "\x1b[2J", "2004-02-31", "unseen"),
    *([], {}, [[]], [None], {"": None}, [1, "a", None], {"name": "sage"}, ["x"] * 50, [0] * 300),
)
_KINDS = (
    "?",
    "i1",
    "i4",
    "i8",
    "u1",
    "u4",
    "u8",
    "f2",
    "f4",
    "f8",
    ">i4",
    ">i8",
    ">f4",
    "c8",
    "S3",
    "U2",
    "M8[D]",
    "V4",
)


def garbled(rng: Random, data: bytes, others: Sequence[bytes] = ()) -> bytes:
    """Return data with one to four changes of its bytes."""
    for _ in range(rng.choice((1, 1, 1, 2, 2, 4))):
        data = rng.choice(_CHANGES)(rng, data, others)
    return data


def _span(rng: Random, data: bytes, longest: int = 40) -> tuple[int, int]:
    start = rng.randrange(len(data) + 1)
    return start, min(len(data), start + rng.randrange(1, longest))


def _flip(rng: Random, data: bytes, _: Any) -> bytes:
    found = bytearray(data)
    for _turn in range(rng.choice((1, 1, 3))):
        if found:
            found[rng.randrange(len(found))] ^= 1 << rng.randrange(8)
    return bytes(found)


def _set(rng: Random, data: bytes, _: Any) -> bytes:
    start = rng.randrange(len(data) + 1)
    return data[:start] + bytes([rng.choice((0, 1, 0x7F, 0x80, 0xFE, 0xFF, rng.randrange(256)))]) + data[start + 1 :]


def _cut(rng: Random, data: bytes, _: Any) -> bytes:
    start, stop = _span(rng, data)
    return rng.choice((data[:start], data[start:], data[:start] + data[stop:], data[:start] + data[stop:], b""))


def _repeat(rng: Random, data: bytes, _: Any) -> bytes:
    start, stop = _span(rng, data)
    return data[:stop] + data[start:stop] * rng.choice((1, 1, 2, 30)) + data[stop:]


def _insert(rng: Random, data: bytes, _: Any) -> bytes:
    start, stop = _span(rng, data, 8)
    return data[:start] + rng.choice(TOKENS) + data[rng.choice((start, stop)) :]


def _number(rng: Random, data: bytes, _: Any) -> bytes:
    places = [match.span() for match in re.finditer(rb"-?\d+(\.\d+)?", data[:100_000])]
    if not places:
        return _insert(rng, data, _)
    start, stop = rng.choice(places)
    return data[:start] + rng.choice(NUMBERS).encode() + data[stop:]


def _length(rng: Random, data: bytes, _: Any) -> bytes:
    code, bits = rng.choice((("<H", 16), ("<I", 32), ("<Q", 64), (">I", 32)))
    start, size = rng.randrange(len(data) + 1), bits // 8
    return data[:start] + struct.pack(code, rng.choice(EDGES) % 2**bits) + data[start + size :]


def _splice(rng: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    other = rng.choice([data, *others])
    (start, stop), (first, last) = _span(rng, data), _span(rng, other, 400)
    return data[:start] + other[first:last] + data[rng.choice((start, stop)) :]


_Change = Callable[[Random, bytes, Sequence[bytes]], bytes]
_CHANGES: tuple[_Change, ...] = (
    _flip,
    _flip,
    _set,
    _cut,
    _repeat,
    _insert,
    _insert,
    _number,
    _number,
    _length,
    _splice,
)


# --- JSON ------------------------------------------------------------------------------------------------------------


def edited(rng: Random, document: Any) -> Any:
    """Return a copy of a JSON document with one or two wrong, missing, additional or exchanged values."""
    document = copy.deepcopy(document)
    for _ in range(rng.choice((1, 1, 1, 2))):
        places = _places(document)
        if not places or rng.random() < 0.02:
            return odd(rng)
        inside, key = rng.choice(places)
        match rng.randrange(6):
            case 0:
                del inside[key]
            case 1 if isinstance(inside, dict):
                inside[rng.choice(("x", "", "name", "format", str(key) + "s"))] = odd(rng)
            case 2:
                other, name = rng.choice(places)
                inside[key] = copy.deepcopy(other[name])
            case 3:
                inside[key] = rng.choice(([inside[key]], str(inside[key]), {"name": inside[key]}))
            case _:
                inside[key] = odd(rng)
    return document


def odd(rng: Random) -> Any:
    """Return a value that few fields allow."""
    if rng.random() < 0.02:
        deep: Any = []
        for _ in range(rng.choice((30, 400))):
            deep = [deep]
        return deep
    return copy.deepcopy(rng.choice(ODD_VALUES))


def _places(document: Any) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    waiting = [document]
    while waiting:
        inside = waiting.pop()
        keys = list(inside) if isinstance(inside, dict) else range(len(inside)) if isinstance(inside, list) else ()
        found += [(inside, key) for key in keys]
        waiting += [inside[key] for key in keys]
    return found


def as_json(rng: Random, document: Any) -> bytes:
    """Return JSON, with or without escapes; a lone surrogate becomes bytes that are not UTF-8."""
    return json.dumps(document, ensure_ascii=rng.random() < 0.7).encode("utf-8", "surrogatepass")


# --- arrays ----------------------------------------------------------------------------------------------------------


def odd_array(rng: Random, array: NDArray[Any]) -> NDArray[Any]:
    """Return an array with other values, another type or another shape."""
    array = np.array(array)
    match rng.randrange(8):
        case 0 | 1 | 2 if array.size:
            for _ in range(rng.choice((1, 1, 3))):
                flat, place = array.reshape(-1), rng.randrange(array.size)
                number = rng.choice((*EDGES, rng.randrange(-3, 30)))
                value: Any = rng.choice((np.nan, np.inf, 1e38, number)) if array.dtype.kind == "f" else number
                if array.dtype.kind in "iu":
                    value = np.array(number % 2**64, np.uint64).astype(array.dtype)
                with np.errstate(all="ignore"):
                    flat[place] = value
            return array
        case 3 | 4:
            try:
                with np.errstate(all="ignore"):
                    return array.astype(rng.choice(_KINDS))
            except (TypeError, ValueError):
                return array[:0]
        case 5:
            shapes = ((-1, 1), (1, -1), (array.size,), (1, 1, -1)) if array.size else ((0, 3), (3, 0), (0,))
            return array.reshape(rng.choice(shapes))
        case 6:
            return rng.choice((array[:0], array[:-1], array[1:], array[::-1], np.asfortranarray(array)))
        case _:
            return np.concatenate([array, array]) if array.ndim else array.reshape(1)


def npy(array: NDArray[Any]) -> bytes:
    """Return the content of an .npy file."""
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


def odd_npy(rng: Random, data: bytes) -> bytes:
    """Return an .npy file with an odd array, or with a header that was edited as text."""
    if rng.random() < 0.6:
        return npy(odd_array(rng, np.load(io.BytesIO(data))))
    size = struct.unpack("<H", data[8:10])[0]
    header = data[10 : 10 + size].rstrip()
    replaced = rng.choice(
        (
            (b"}", b""),
            (b"{", b"[" * rng.choice((1, 200))),
            (b"False", rng.choice((b"True", b"None", b"1"))),
            (b"'<", rng.choice((b"'>", b"'|", b"'O", b"('"))),
            (b"(", rng.choice((b"", b"(-", b"(99999999999,", b"(9223372036854775807, ", b"(None,", b"('a',"))),
            (b",", rng.choice((b"", b":", b",,", b"\0"))),
            (b"shape", rng.choice((b"shope", b"descr", b"sha\xffpe"))),
        )
    )
    header = garbled(rng, header) if rng.random() < 0.3 else header.replace(*replaced, 1)
    header = (header + b"\n")[:60_000]
    return data[:8] + struct.pack("<H", len(header)) + header + data[10 + size :]


def odd_tensors(rng: Random, data: bytes) -> bytes:
    """Return a safetensors file with an edited header or other numbers."""
    size = struct.unpack("<Q", data[:8])[0]
    header, rest = json.loads(data[8 : 8 + size]), data[8 + size :]
    if rng.random() < 0.4 and rest:
        numbers = np.frombuffer(rest[: len(rest) // 4 * 4], np.float32)
        return data[: 8 + size] + odd_array(rng, numbers).tobytes()[: len(rest)].ljust(len(rest), b"\0")
    if rng.random() < 0.3:
        one, other = rng.choice(list(header)), rng.choice(list(header))
        header[one], header[other] = header[other], header[one]
    else:
        header = edited(rng, header)
    text = as_json(rng, header)
    return struct.pack("<Q", len(text)) + text + rest
