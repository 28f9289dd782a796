"""New class names that differ from another one only in case, spaces, Unicode form or a typo."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

__all__ = ["find_resembling"]

_LONG = 8
_TYPOS = np.array(
    [0] * 5 + [1] * 3 + [2]
)  # by length up to 8: short names often differ by one letter, such as ICML and ECML
_SHORT_WORD = 3  # letters; "part A" and "part B", "phase II" and "phase III" are no typos
_PATH = "/.:"  # between the parts of a path
_APART = re.compile(r"[\s_\-\u2010-\u2015\u2212]+")  # spaces, underscores, hyphens and dashes


def find_resembling(new: Iterable[str], known: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return for new names the known or earlier new name that each resembles, and how they differ.

    Names with different numbers never resemble each other, nor do names without letters.

    Examples
    --------
    >>> find_resembling(["kdd", "Topolgy", "v2", "2020"], ["KDD", "Topology", "v1", "2019"])
    {'kdd': ('KDD', 'only in letter case'), 'Topolgy': ('Topology', 'by one letter')}
    """
    old = list(dict.fromkeys(known))
    names = list(dict.fromkeys([*old, *new]))
    folded = [_folded(name) for name in names]
    keys = ["".join(words) for words, _ in folded]
    lengths = np.array([len(key) for key in keys])
    kinds: dict[object, int] = {}
    kind = np.array([kinds.setdefault((len(words), numbers), len(kinds)) for words, numbers in folded])
    letters = np.array([_letters(key) for key in keys], np.uint64)
    first: dict[object, str] = {}
    for key, (_, numbers), name in zip(keys[: len(old)], folded, old, strict=False):
        first.setdefault((key, numbers), name)
    found = {}
    for row in range(len(old), len(names)):
        name, key, (words, numbers) = names[row], keys[row], folded[row]
        same = first.setdefault((key, numbers), name)
        if not any(letter.isalpha() for letter in key):
            continue
        if same != name:
            found[name] = (same, _difference(name, same))
            continue
        most = _TYPOS[np.minimum(np.minimum(lengths[:row], lengths[row]), _LONG)]
        near = (kind[:row] == kind[row]) & (np.abs(lengths[:row] - lengths[row]) <= most) & (most > 0)
        near[near] = np.bitwise_count(letters[:row][near] ^ letters[row]).sum(1) <= 2 * most[near]
        typos = [(_typos(words, folded[other][0], most[other]), names[other]) for other in np.flatnonzero(near)]
        if likely := [(distance, other) for distance, other in typos if distance]:
            distance, other = min(likely)
            found[name] = (other, f"by {'one letter' if distance == 1 else 'two letters'}")
    return found


def _folded(name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the words of a name without case and Unicode form, and its numbers."""
    text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    text = "".join(letter for letter in text if unicodedata.category(letter) != "Cf")  # such as zero-width spaces
    return tuple(filter(None, _APART.split(text))), tuple(re.findall(r"\d+", text))


def _letters(key: str) -> list[int]:
    """Return 256 bits, one for each letter and how often it occurred before; a typo changes at most two."""
    bits, seen = [0] * 4, Counter[str]()
    for letter in key:
        seen[letter] += 1
        place = (31 * ord(letter) + 97 * seen[letter]) % 256
        bits[place // 64] |= 1 << place % 64
    return bits


def _typos(words: Sequence[str], others: Sequence[str], most: int) -> int:
    """Return the number of typos between two names of as many words; 0 if they are not likely typos."""
    start = _first_difference(words, others)
    one, two = words[start], others[start]
    cut = max(one.rfind(mark, 0, _first_difference(one, two)) for mark in _PATH) + 1
    pairs = [(one[cut:], two[cut:]), *zip(words[start + 1 :], others[start + 1 :], strict=True)]
    pairs = [pair for pair in pairs if pair[0] != pair[1]]
    # Only the part behind the common beginning counts: network/icx and network/ios are short names.
    length = min(sum(map(len, name[start:])) for name in (words, others)) - cut
    most = min(most, int(_TYPOS[min(length, _LONG)]))
    if all(len(word) <= _SHORT_WORD for pair in pairs for word in pair):
        return 0
    distance = sum(_distance(*pair, most) for pair in pairs)
    return distance if distance <= most else 0


def _first_difference(one: Sequence[str], two: Sequence[str]) -> int:
    pairs = zip(one, two, strict=False)
    return next((place for place, pair in enumerate(pairs) if pair[0] != pair[1]), min(len(one), len(two)))


def _difference(name: str, other: str) -> str:
    one, two = (unicodedata.normalize("NFKC", text) for text in (name, other))
    if one == two:
        return "only in Unicode form"
    if name.casefold() == other.casefold():
        return "only in letter case"
    if _APART.sub("", name) == _APART.sub("", other):
        return "only in spaces or hyphens"
    return "only in letter case, spaces or Unicode form"


def _distance(one: str, two: str, most: int) -> int:
    """Return the number of letters added, left out, replaced or swapped with the next; more than ``most`` if many.

    Examples
    --------
    >>> _distance("topolgoy", "topology", 2), _distance("algebra", "geometry", 1) > 1
    (1, True)
    """
    before: list[int] = []
    above = list(range(len(two) + 1))
    for row, letter in enumerate(one, 1):
        here = [row] + [most + 1] * len(two)
        for at in range(max(1, row - most), min(len(two), row + most) + 1):
            cost = letter != two[at - 1]
            here[at] = min(above[at] + 1, here[at - 1] + 1, above[at - 1] + cost)
            if row > 1 and at > 1 and letter == two[at - 2] and one[row - 2] == two[at - 1]:
                here[at] = min(here[at], before[at - 2] + 1)
        if min(here) > most:
            return most + 1
        before, above = above, here
    return above[-1]
