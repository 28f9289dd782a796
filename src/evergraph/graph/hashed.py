"""Compiled loops over large columns of strings: an index of ids, and counted words.

Both keep their strings in an open-addressing hash table that is built once. Arrow's functions do the same for small
columns without importing numba, see `ids.find` and `features.count_words`; the results are equal.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evergraph.compiled import compiled, cores, one_each, over_range, row_bounds
from evergraph.graph.ids import Ids, Strings

_LETTERS = np.zeros(256, np.uint8)
"""By byte: the letter or digit in lower case; 0 for bytes that separate words. Those of other letters stay."""
_LETTERS[128:] = np.arange(128, 256)
for _byte in b"abcdefghijklmnopqrstuvwxyz0123456789":
    _LETTERS[_byte] = _byte
    _LETTERS[ord(chr(_byte).upper())] = _byte
_GROUP = 256  # ids that are looked up together
_MANY = 32  # words of a text from which numpy sorts them
_SHARED = 2**22  # bytes of texts from which a second core pays


class IdIndex:
    """The rows of unique ids, to be looked up many times.

    Examples
    --------
    >>> index = IdIndex.of(Strings.of(["b", "a", "größer"]))
    >>> index.find(Strings.of(["größer", "c", "b"])).tolist()
    [2, -1, 0]
    >>> IdIndex.of(np.array([7, 5, 7])) is None
    True
    """

    def __init__(self, ids: Ids, slots: NDArray[np.uint64]) -> None:
        self.ids, self._slots = ids, slots

    @classmethod
    def of(cls, ids: Ids) -> IdIndex | None:
        """Return the index of a column; None if an id occurs twice."""
        slots = np.zeros(2 * _slots_for(len(ids)), np.uint64)
        return cls(ids, slots) if _insert_all(*_bytes(ids), slots) else None

    def sorted_by(self, order: NDArray[np.integer], ids: Ids) -> IdIndex:
        """Return the index of the same ids in another order: row ``i`` of ``ids`` is the former ``order[i]``.

        The memory is shared, so this index cannot be used any more.
        """
        place = np.empty(len(order), np.int32)
        place[order] = np.arange(len(order), dtype=np.int32)
        over_range(_renumber, len(self._slots) // 2, self._slots, place)
        return IdIndex(ids, self._slots)

    def find(self, wanted: Ids) -> NDArray[np.int32]:
        """Return the row of each wanted id, which must be a string if the ids are; -1 if there is none."""
        found = np.empty(len(wanted), np.int32)
        over_range(_find_all, len(wanted), *_bytes(wanted), *_bytes(self.ids), self._slots, found, width=16)
        return found


def _bytes(ids: Ids) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return ids as strings of bytes: numbers as their eight bytes."""
    if isinstance(ids, Strings):
        return ids.data, ids.offsets
    data = np.ascontiguousarray(ids, np.int64).view(np.uint8)
    data.flags.writeable = False  # one type of array, so that loops are compiled once
    offsets = np.arange(0, 8 * len(ids) + 1, 8)
    offsets.flags.writeable = False
    return data, offsets


def id_codes(ids: Ids) -> NDArray[np.int64]:
    """Return a number for each id that depends on the id only; different ids have different ones, almost surely.

    Examples
    --------
    >>> one, other = (id_codes(Strings.of(ids)).tolist() for ids in (["a", "b"], ["b", "c", "a"]))
    >>> one == [other[2], other[0]]
    True
    """
    found = np.empty(len(ids), np.uint64)
    over_range(_hash_all, len(ids), *_bytes(ids), found, width=16)
    return found.view(np.int64)


def count_words(texts: Strings) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32], Strings]:
    """Count the words of texts in which everything but letters and digits is ASCII.

    Returns the arrays of the compressed sparse rows, and the words in the order of first use.

    Examples
    --------
    >>> indptr, indices, data, words = count_words(Strings.of(["Graphs on graphs", "A big graph"]))
    >>> indptr.tolist(), indices.tolist(), data.tolist(), list(words)
    ([0, 2, 4], [0, 1, 2, 3], [2.0, 1.0, 1.0, 1.0], ['graphs', 'on', 'big', 'graph'])
    """
    # Each core counts the words of some rows with a vocabulary of its own.
    many = int(texts.offsets[-1] - texts.offsets[0]) >= _SHARED
    bounds = row_bounds(texts.offsets, cores()).tolist() if many else [0, len(texts)]
    parts = [texts[first:last] for first, last in pairwise(bounds)]
    starts = np.zeros(len(parts) + 1, np.int64)

    def bound(place: int, _: int) -> None:
        starts[place + 1] = _most_words(parts[place].data, parts[place].offsets)

    one_each(bound, len(parts))
    np.cumsum(starts, out=starts)
    indices, data = np.empty(starts[-1], np.int32), np.empty(starts[-1], np.float32)
    indptrs, tables = [np.zeros(len(part) + 1, np.int64) for part in parts], [_Table() for _ in parts]

    def count(place: int, _: int) -> None:
        room = slice(starts[place], starts[place + 1])
        tables[place].count(parts[place], indptrs[place], indices[room], data[room])

    one_each(count, len(parts))
    words = tables[0]
    indptr, end = [indptrs[0]], indptrs[0][-1]
    for own, table, start in zip(indptrs[1:], tables[1:], starts[1:], strict=False):
        room = slice(start, start + own[-1])
        # Rows of the first part have their final numbers: a word's number is its place in the order of first use.
        numbers = words.add(table.strings())
        over_range(_renumber_words, len(own) - 1, own, indices[room], data[room], numbers, width=16)
        for array in (indices, data):
            array[end : end + own[-1]] = array[room]
        indptr.append(own[1:] + end)
        end += own[-1]
    return np.concatenate(indptr), _trimmed(indices, end), _trimmed(data, end), words.strings()


def _trimmed(array: NDArray[Any], end: int) -> NDArray[Any]:
    """Return the first entries without keeping the memory of the others if there are many."""
    return array[:end] if end > len(array) * 7 // 8 else array[:end].copy()


class _Table:
    """Words in the order of first use, and where the hash of each is."""

    def __init__(self) -> None:
        self.words, self.used = 0, 0
        self.data, self.offsets = np.empty(2**16, np.uint8), np.zeros(2**12 + 1, np.int64)
        self._place(2**13)

    def state(self) -> tuple[Any, ...]:
        return self.words, self.used, self.data, self.offsets, self.slots

    def strings(self) -> Strings:
        return Strings(self.data[: self.used].copy(), self.offsets[: self.words + 1].copy())

    def count(
        self, texts: Strings, indptr: NDArray[np.int64], indices: NDArray[np.int32], data: NDArray[np.float32]
    ) -> None:
        """Count the words of texts, and write the arrays of the compressed sparse rows."""
        row = 0
        while row < len(texts):
            # The loop stops where the table or the room for words is full.
            row, self.words, self.used = _count(
                texts.data, texts.offsets, row, indptr, indices, data, *self.state(), _LETTERS
            )
            if row < len(texts):
                self.grow(int(texts.offsets[row + 1] - texts.offsets[row]))

    def add(self, words: Strings) -> NDArray[np.int32]:
        """Add words that are not there yet; return the numbers of all of them."""
        indptr, numbers = np.zeros(len(words) + 1, np.int64), np.empty(len(words), np.int32)
        self.count(words, indptr, numbers, np.empty(len(words), np.float32))
        return numbers

    def grow(self, longest: int) -> None:
        """Double the room; make it large enough for a text of ``longest`` bytes."""
        self.data = np.concatenate([self.data, np.empty(len(self.data) + longest, np.uint8)])
        words = 2 * len(self.offsets) + longest // 2
        self.offsets = np.concatenate([self.offsets, np.zeros(words - len(self.offsets), np.int64)])
        self._place(_slots_for(words))

    def _place(self, size: int) -> None:
        self.slots = np.zeros(2 * size, np.uint64)
        _insert_all(self.data, self.offsets[: self.words + 1], self.slots)


def _slots_for(count: int) -> int:
    """Return a power of two of which the strings fill two thirds at most."""
    return 1 << max(4, (3 * count // 2).bit_length())


@compiled
def _word(data: NDArray[np.uint8], start: int, stop: int) -> np.uint64:
    """Return the first eight bytes of a string as a number; those behind its end are 0."""
    found = np.uint64(0)
    if start + 8 > len(data):
        for place in range(start, min(stop, start + 8)):
            found |= np.uint64(data[place]) << np.uint64(8 * (place - start))
        return found
    first = np.uint64(start)
    # One access to memory once it is compiled, because unsigned places need no check for negative ones.
    for byte in range(np.uint64(8)):
        found |= np.uint64(data[first + byte]) << (np.uint64(8) * byte)
    if stop - start < 8:
        found &= (np.uint64(1) << np.uint64(8 * (stop - start))) - np.uint64(1)
    return found


@compiled
def _hash(data: NDArray[np.uint8], start: int, stop: int) -> np.uint64:
    found = np.uint64(0)
    for place in range(start, stop, 8):
        found = _mixed(found, _word(data, place, stop))
    return _finished(found, stop - start)


@compiled
def _hash_all(
    first: int, last: int, data: NDArray[np.uint8], offsets: NDArray[np.int64], found: NDArray[np.uint64]
) -> None:
    for row in range(first, last):
        found[row] = _hash(data, offsets[row], offsets[row + 1])


@compiled
def _mixed(code: np.uint64, word: np.uint64) -> np.uint64:
    """Return the hash of a string that eight bytes more belong to."""
    code = (code ^ word) * np.uint64(0x9E3779B97F4A7C15)
    return code ^ (code >> np.uint64(32))


@compiled
def _finished(code: np.uint64, size: int) -> np.uint64:
    """Return the hash of a whole string. The low bits choose the slot, and depend on all bytes only after this."""
    code = (code ^ np.uint64(size)) * np.uint64(0xD6E8FEB86659FD93)
    return code ^ (code >> np.uint64(32))


@compiled
def _equal(one: NDArray[np.uint8], start: int, stop: int, other: NDArray[np.uint8], first: int, last: int) -> bool:
    if stop - start != last - first:
        return False
    for place in range(stop - start):  # noqa: SIM110  # numba compiles no generators
        if one[start + place] != other[first + place]:
            return False
    return True


# A slot of a table is two numbers: first 28 bits of the hash, the length (15 for more) and the row of the string,
# counted from 1; then the first eight bytes of the string. So a short string is compared without reading it elsewhere,
# and most searches cost one access to memory. The first number of an empty slot is 0.

_HIGH = np.uint64(0xFFFFFFFF00000000)
_SHORT = 8  # bytes of a string that are in its slot


@compiled
def _row(entry: np.uint64) -> np.int64:
    return np.int64(entry & np.uint64(0xFFFFFFFF)) - 1


@compiled
def _tagged(code: np.uint64, size: int) -> np.uint64:
    """Return the high half of an entry."""
    return (code & np.uint64(0xFFFFFFF000000000)) | (np.uint64(min(size, 15)) << np.uint64(32))


@compiled
def _insert_all(data: NDArray[np.uint8], offsets: NDArray[np.int64], slots: NDArray[np.uint64]) -> bool:
    """Fill an empty table; False if a string occurs twice."""
    mask = np.uint64(len(slots) // 2 - 1)
    codes, words, entries = (np.empty(_GROUP, np.uint64), np.empty(_GROUP, np.uint64), np.empty(_GROUP, np.uint64))
    for group in range(0, len(offsets) - 1, _GROUP):
        count = min(_GROUP, len(offsets) - 1 - group)
        _look_up(group, count, data, offsets, slots, mask, codes, words, entries)
        for one in range(count):
            start, stop = offsets[group + one], offsets[group + one + 1]
            found, slot = _search(data, start, stop, codes[one], words[one], data, offsets, slots)
            if found >= 0:
                return False
            slots[2 * slot] = _tagged(codes[one], stop - start) | np.uint64(group + one + 1)
            slots[2 * slot + 1] = words[one]
    return True


@compiled
def _look_up(
    group: int,
    count: int,
    data: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    slots: NDArray[np.uint64],
    mask: np.uint64,
    codes: NDArray[np.uint64],
    words: NDArray[np.uint64],
    entries: NDArray[np.uint64],
) -> None:
    """Write the hashes of a group of strings, their first bytes and their first entries.

    The CPU then waits for many places in memory at once, and not again when the strings are searched.
    """
    for one in range(count):
        start, stop = offsets[group + one], offsets[group + one + 1]
        codes[one], words[one] = _hash(data, start, stop), _word(data, start, stop)
    for one in range(count):
        entries[one] = slots[2 * np.int64(codes[one] & mask)]


@compiled
def _search(
    wanted: NDArray[np.uint8],
    start: int,
    stop: int,
    code: np.uint64,
    letters: np.uint64,
    data: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    slots: NDArray[np.uint64],
) -> tuple[Any, np.int64]:
    """Return the row of a string and its slot; -1 and a free slot if there is none."""
    mask = np.int64(len(slots) // 2 - 1)
    slot, tag = np.int64(code & np.uint64(mask)), _tagged(code, stop - start)
    while slots[2 * slot] != 0:
        entry = slots[2 * slot]
        if entry & _HIGH == tag and slots[2 * slot + 1] == letters:
            row = _row(entry)
            if stop - start <= _SHORT or _equal(wanted, start, stop, data, offsets[row], offsets[row + 1]):
                return row, slot
        slot = (slot + 1) & mask
    return -1, slot


@compiled
def _renumber(first: int, last: int, slots: NDArray[np.uint64], place: NDArray[np.int32]) -> None:
    for slot in range(2 * first, 2 * last, 2):
        if slots[slot] != 0:
            slots[slot] = (slots[slot] & _HIGH) | np.uint64(place[_row(slots[slot])] + 1)


@compiled
def _find_all(
    first: int,
    last: int,
    wanted: NDArray[np.uint8],
    ends: NDArray[np.int64],
    data: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    slots: NDArray[np.uint64],
    found: NDArray[np.int32],
) -> None:
    mask = np.uint64(len(slots) // 2 - 1)
    codes, words, entries = (np.empty(_GROUP, np.uint64), np.empty(_GROUP, np.uint64), np.empty(_GROUP, np.uint64))
    for group in range(first, last, _GROUP):
        count = min(_GROUP, last - group)
        _look_up(group, count, wanted, ends, slots, mask, codes, words, entries)
        for one in range(count):
            start, stop = ends[group + one], ends[group + one + 1]
            found[group + one] = -1
            if entries[one] != 0:
                found[group + one] = _search(wanted, start, stop, codes[one], words[one], data, offsets, slots)[0]


@compiled
def _most_words(data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> int:
    """Return a bound on the number of words: each has a byte that does not separate words after one that does."""
    count = 0
    for row in range(len(offsets) - 1):
        inside = False
        for place in range(offsets[row], offsets[row + 1]):
            is_letter = _LETTERS[data[place]] != 0
            count += is_letter and not inside
            inside = is_letter
    return count


@compiled
def _count(
    data: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    first: int,
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    counts: NDArray[np.float32],
    words: int,
    used: int,
    known: NDArray[np.uint8],
    ends: NDArray[np.int64],
    slots: NDArray[np.uint64],
    lower: NDArray[np.uint8],
) -> tuple[int, int, int]:
    """Count the words of texts from row ``first`` on.

    Returns the row of the first text that may not fit, the number of words and how many bytes they take.
    """
    for row in range(first, len(offsets) - 1):
        start, stop = offsets[row], offsets[row + 1]
        # A word takes at least two bytes, and one more separates it from the next.
        if used + stop - start > len(known) or words + (stop - start) // 3 + 2 > len(ends):
            return row, words, used
        begin = indptr[row]
        end = begin
        place = start
        while place < stop:
            # The word is written behind the known ones; if it is new, it stays there.
            size = 0
            characters = 0
            code = letters = part = np.uint64(0)
            while place < stop:
                letter = lower[data[place]]
                if letter == 0:
                    break
                known[used + size] = letter
                part |= np.uint64(letter) << np.uint64(8 * (size & 7))
                size += 1
                if size & 7 == 0:
                    letters = part if size == 8 else letters
                    code, part = _mixed(code, part), np.uint64(0)
                characters += (letter & 0xC0) != 0x80
                place += 1
            place += 1
            if characters < 2:
                continue
            if size & 7:
                letters = part if size < 8 else letters
                code = _mixed(code, part)
            code = _finished(code, size)
            word, slot = _search(known, used, used + size, code, letters, known, ends, slots)
            if word < 0:
                word = words
                slots[2 * slot] = _tagged(code, size) | np.uint64(word + 1)
                slots[2 * slot + 1] = letters
                used += size
                words += 1
                ends[words] = used
            indices[end] = word
            end += 1
        indptr[row + 1] = _merge(indices, counts, begin, end)
    return len(offsets) - 1, words, used


@compiled
def _renumber_words(
    first: int,
    last: int,
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    counts: NDArray[np.float32],
    numbers: NDArray[np.int32],
) -> None:
    """Replace the words of texts by their new numbers, in ascending order."""
    for row in range(first, last):
        begin, end = indptr[row], indptr[row + 1]
        for place in range(begin, end):
            indices[place] = numbers[indices[place]]
        if end - begin > _MANY:
            order = np.argsort(indices[begin:end])
            indices[begin:end], counts[begin:end] = indices[begin:end][order], counts[begin:end][order]
            continue
        for place in range(begin + 1, end):
            word, count = indices[place], counts[place]
            before = place - 1
            while before >= begin and indices[before] > word:
                indices[before + 1], counts[before + 1] = indices[before], counts[before]
                before -= 1
            indices[before + 1], counts[before + 1] = word, count


@compiled
def _merge(indices: NDArray[np.int32], counts: NDArray[np.float32], begin: int, end: int) -> int:
    """Sort the words of a text and count equal ones; return the new end."""
    if end - begin > _MANY:
        indices[begin:end].sort()
    else:
        for place in range(begin + 1, end):
            word = indices[place]
            before = place - 1
            while before >= begin and indices[before] > word:
                indices[before + 1] = indices[before]
                before -= 1
            indices[before + 1] = word
    last = begin - 1
    for place in range(begin, end):
        if last >= begin and indices[place] == indices[last]:
            counts[last] += np.float32(1)
        else:
            last += 1
            indices[last] = indices[place]
            counts[last] = np.float32(1)
    return last + 1
