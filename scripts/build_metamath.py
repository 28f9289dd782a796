"""Build the embedded data set of mathematical theorems from Metamath's ``set.mm``.

Usage::

    python scripts/build_metamath.py SET_MM [--out FILE]

``set.mm`` is the Metamath Proof Explorer's database of formal proofs (CC0).  The shipped file is built from
the copy in Debian's package ``metamath-databases``; :data:`PACKAGE` and :data:`PACKAGE_SHA256` pin it.  The
same input gives the same bytes (for one version of zlib).  How the arrays are packed is documented once, with
their reader, in ``evergraph.datasets.metamath``.

How the source is converted
---------------------------
Vertex
    A theorem (``$p`` statement) whose description, the comment directly before it, states
    ``(Contributed by NAME, d-mmm-yyyy.)``.  Vertices are in order of (year, place in the file).
    Superseded versions (labels in ``OLD``, 321 of them) and alternative proofs (``ALT``, 97) are kept: each
    is a theorem of its own with its own proof and date, and the superseded ones hold uses of the theorems of
    their time that the current proofs no longer show.
Time
    The year of the first contribution.  "Revised by" and "Proof shortened by" dates are not used.
Class
    The section around the theorem.  Metamath's headings are titles between two decoration lines in a
    comment, of four levels: part ``####``, section ``#*#*``, subsection ``=-=-`` and subsubsection ``-.-.``.
    The users' mathboxes (drafts sorted by person) and the guides and miscellanea are left out, then sections
    of fewer than 50 theorems.  A title that two parts share is prefixed by the part's title (none is, as of
    2020).  Titles are otherwise kept as they are written.
Edge
    The proof of one theorem refers to the other; undirected, once per pair.  The proof is the one in the
    file, so the last revision: an old theorem may use a newer one.
Words
    Counts of the words in the description, which are runs of at least two letters, in lower case.  Formulas,
    references to theorems, addresses, HTML tags, citations with their page, dates, parentheses that end in a
    date (who contributed, revised, shortened or suggested what) and the two "discouraged" tags are removed.
    Words with digits in them go as a whole.  A word must occur in two descriptions (of any years) to be kept:
    the others connect nothing.  Words are in order of first use.  49 descriptions, such as "3 + 2 = 5.", have
    none.
Persons
    No contributor is named by a word.  The words of the names in the file's contributor list and in the
    credits of the descriptions are left out, in any case of letters; their initials only in upper case, as
    "AS" and "SO" are persons while "as" and "so" are not.  :data:`ORDINARY_WORDS` stay.  Mathematicians whose
    name is the name of a theorem stay as well, unless they share it with a contributor ("Scott's trick").
"""

from __future__ import annotations

import argparse
import hashlib
import html
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

DEFAULT_OUT = Path(__file__).resolve().parents[1] / "src" / "evergraph" / "datasets" / "metamath.npz"

PACKAGE = "metamath-databases 0.0.0~20210101.git55fe226-2 (Debian)"
PACKAGE_SHA256 = "4d93307bc81337a621031739acfffb4159175f94fb90e727f4a231401091e45b"

MIN_SECTION_SIZE = 50
MIN_DESCRIPTIONS = 2
FIRST_TASK_SHARE = 0.25
DROPPED_PARTS = ("GUIDES AND MISCELLANEA", "SUPPLEMENTARY MATERIAL")

# Two contributors are called Line and He.  Neither is mentioned in a description outside a credit, so these
# are always the English words there.
ORDINARY_WORDS = frozenset({"he", "line"})

DATE = r"\d{1,2}-[A-Z][a-z]{2}-\d{4}"
BY = r"by ([^()]*?),?"

# A keyword of the language is a token, so it has white space (or the file's end) on both sides.
COMMENT = re.compile(r"(?<!\S)\$\((?=\s)(.*?)(?<=\s)\$\)(?!\S)", re.DOTALL)
HEADING = re.compile(
    r"^(?P<rule>#{4,}|#\*#\*[#*]*|=-=-[=-]*|-\.-\.[.-]*)[ ]*\n(?P<title>.*?)\n(?P=rule)[ ]*$",
    re.DOTALL | re.MULTILINE,
)
LEVELS = {"####": "part", "#*#*": "section", "=-=-": "subsection", "-.-.": "subsubsection"}
VERSION = re.compile(rf"Version of ({DATE})")

CONTRIBUTION = re.compile(rf"\(Contributed {BY} ({DATE})\.?\)")
CREDIT = re.compile(rf"\((?:Contributed|Revised|Proof shortened) {BY} {DATE}\.?\)")
CONTRIBUTOR_LIST = re.compile(r"Contributor list:(.*?)\$\)", re.DOTALL)
CONTRIBUTOR = re.compile(r"(?<!\S)([A-Z]{2,3}) {1,2}(\S+(?: \S+)*)")

# In this order: a formula may hold brackets, which would hide the end of a credit.
NOT_WORDS = tuple(
    re.compile(pattern)
    for pattern in (
        r"``",  # a backquote that is part of a formula
        r"`[^`]*(?:`|$)",
        rf"\([^()]*{DATE}\.?\s*\)",
        r"\((?:New usage|Proof modification) is discouraged\.\)",
        r"~\s+\S+",
        r"https?://\S+",
        r"</?[A-Za-z][^<>]*>",
        r"\[[A-Z]\w*\](?:,?\s*pp?\.\s*[\w.-]+)?",
        DATE,
        r"_",  # marks emphasis and subscripts
    )
)
WORD = re.compile(r"(?<!\w)[^\W\d_]{2,}(?!\w)")


@dataclass(frozen=True)
class Theorem:
    """A ``$p`` statement: its label, place, description (white space normalised) and proof tokens."""

    label: str
    part: str | None
    section: str | None
    description: str
    proof: tuple[str, ...]


@dataclass(frozen=True)
class Names:
    """Contributors: the words of their names in lower case, and their initials in upper case."""

    words: frozenset[str]
    initials: frozenset[str]


@dataclass(frozen=True)
class Dataset:
    """The graph before packing; every per-vertex sequence is in order of (year, place in the file)."""

    labels: list[str]
    times: NDArray[np.int64]
    codes: NDArray[np.int64]
    class_names: list[str]
    edges: NDArray[np.int64]
    """Pairs (earlier vertex, later vertex), shape (edges, 2), sorted."""
    words: list[str]
    counts: list[dict[int, int]]
    """For each vertex, word number to number of occurrences, by rising word number."""


def one_line(text: str) -> str:
    """Replace each run of white space by one space."""
    return " ".join(text.split())


def headings(comment: str) -> Iterator[tuple[str, str]]:
    """Yield (level, title) of the headings in a comment."""
    for match in HEADING.finditer(comment):
        yield LEVELS[match["rule"][:4]], one_line(match["title"])


def read_theorems(text: str) -> list[Theorem]:
    """Read the theorems of a Metamath database, with part and section of each."""
    theorems: list[Theorem] = []
    part: str | None = None
    section: str | None = None
    comment = ""
    previous = ""  # the token before `$p` is the label
    label: str | None = None  # of the theorem being read
    description = ""
    proof: list[str] | None = None
    # Splitting at comments leaves code at even and the comments' text at odd places.  The state outlives a
    # piece of code, as a comment may stand within a statement.
    for number, piece in enumerate(COMMENT.split(text)):
        if number % 2:
            comment = piece
            for level, title in headings(piece):
                if level == "part":
                    part, section = title, None
                elif level == "section":
                    section = title
            continue
        for place, token in enumerate(piece.split()):
            if token == "$p":
                label = previous
                description = one_line(comment) if place == 1 else ""
            elif label is not None:
                if token == "$=":
                    proof = []
                elif token == "$.":
                    theorems.append(Theorem(label, part, section, description, tuple(proof or ())))
                    label, proof = None, None
                elif proof is not None:
                    proof.append(token)
            previous = token
    return theorems


def contribution_year(description: str) -> int | None:
    """Year of the first "(Contributed by NAME, d-mmm-yyyy.)", if there is one."""
    match = CONTRIBUTION.search(description)
    return int(match[2][-4:]) if match else None


def used_labels(proof: Sequence[str]) -> list[str]:
    """Labels that a proof refers to, from the compressed form ``( label ... ) ABC...`` or the plain one."""
    if proof and proof[0] == "(":
        return list(proof[1 : proof.index(")")])
    return [token for token in proof if token != "?"]


def find_names(text: str, descriptions: Iterable[str]) -> Names:
    """Collect contributors from the list in the file's header and from the credits in descriptions."""
    named: list[str] = []
    initials: set[str] = set()
    block = CONTRIBUTOR_LIST.search(text)
    for line in html.unescape(block[1]).splitlines() if block else ():
        for short, name in CONTRIBUTOR.findall(line):
            initials.add(short)
            named.append(name)
    for description in descriptions:
        named += (html.unescape(name) for name in CREDIT.findall(description))
    words: set[str] = set()
    # Credits join names by "and"; "van der" is not a name either: what counts is the capital letter.
    for word in {word for name in named for word in WORD.findall(name) if word[0].isupper()}:
        if word.isupper():
            initials.add(word)
        else:
            words.add(word.lower())
    return Names(frozenset(words) - ORDINARY_WORDS, frozenset(initials))


def description_words(description: str, names: Names) -> list[str]:
    """Words of a description in lower case, as the module's docstring says, without contributors' names."""
    for pattern in NOT_WORDS:
        description = pattern.sub(" ", description)
    return [
        word.lower()
        for word in WORD.findall(html.unescape(description))
        if word not in names.initials and word.lower() not in names.words
    ]


def select(theorems: Iterable[Theorem], min_section_size: int) -> list[tuple[int, Theorem]]:
    """Choose the vertices and return them with their year, in order of (year, place in the file)."""
    dated = [
        (year, theorem)
        for theorem in theorems
        if theorem.part is not None
        and theorem.section is not None
        and not theorem.part.upper().startswith(DROPPED_PARTS)
        and (year := contribution_year(theorem.description)) is not None
    ]
    sizes = Counter((theorem.part, theorem.section) for _, theorem in dated)
    kept = [pair for pair in dated if sizes[pair[1].part, pair[1].section] >= min_section_size]
    return sorted(kept, key=lambda pair: pair[0])  # stable, so the file's order remains within a year


def class_codes(theorems: Sequence[Theorem]) -> tuple[list[int], list[str]]:
    """Give sections numbers by first appearance; return those of the vertices, and the sections' names."""
    numbers: dict[tuple[str | None, str | None], int] = {}
    codes = [numbers.setdefault((theorem.part, theorem.section), len(numbers)) for theorem in theorems]
    titles = Counter(section for _, section in numbers)
    names = [str(section) if titles[section] == 1 else f"{part}: {section}" for part, section in numbers]
    return codes, names


def find_edges(theorems: Sequence[Theorem]) -> NDArray[np.int64]:
    """Sorted unique pairs (earlier vertex, later vertex) of which one's proof refers to the other."""
    number = {theorem.label: vertex for vertex, theorem in enumerate(theorems)}
    if len(number) != len(theorems):
        raise ValueError("theorem labels are not unique")
    pairs = {
        (min(vertex, other), max(vertex, other))
        for vertex, theorem in enumerate(theorems)
        for used in used_labels(theorem.proof)
        if (other := number.get(used, vertex)) != vertex
    }
    return np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2)


def count_words(documents: Sequence[Sequence[str]], min_documents: int) -> tuple[list[str], list[dict[int, int]]]:
    """Return the vocabulary by first use, and each document's counts by word number."""
    spread = Counter(word for document in documents for word in set(document))
    number: dict[str, int] = {}
    counts: list[dict[int, int]] = []
    for document in documents:
        kept = [word for word in document if spread[word] >= min_documents]
        counter = Counter(number.setdefault(word, len(number)) for word in kept)
        counts.append(dict(sorted(counter.items())))
    return list(number), counts


def build(text: str, *, min_section_size: int = MIN_SECTION_SIZE, min_descriptions: int = MIN_DESCRIPTIONS) -> Dataset:
    """Make the data set from the text of a Metamath database."""
    dated = select(read_theorems(text), min_section_size)
    theorems = [theorem for _, theorem in dated]
    codes, class_names = class_codes(theorems)
    names = find_names(text, (theorem.description for theorem in theorems))
    documents = [description_words(theorem.description, names) for theorem in theorems]
    words, counts = count_words(documents, min_descriptions)
    return Dataset(
        labels=[theorem.label for theorem in theorems],
        times=np.array([year for year, _ in dated], dtype=np.int64),
        codes=np.array(codes, dtype=np.int64),
        class_names=class_names,
        edges=find_edges(theorems),
        words=words,
        counts=counts,
    )


def describe_source(raw: bytes, text: str) -> dict[str, str | None]:
    """Say where the data come from; the package is claimed only if the file is the one it holds."""
    sha256 = hashlib.sha256(raw).hexdigest()
    version = VERSION.search(text)
    return {
        "source": "set.mm, Metamath Proof Explorer",
        "package": PACKAGE if sha256 == PACKAGE_SHA256 else None,
        "date": datetime.strptime(version[1], "%d-%b-%Y").date().isoformat() if version else None,
        "sha256": sha256,
        "licence": "CC0-1.0",
    }


def narrow(values: NDArray[np.int64], dtype: type[np.integer]) -> NDArray[np.integer]:
    """Cast to a smaller integer type, refusing values that it cannot hold."""
    limits = np.iinfo(dtype)
    if values.size and not limits.min <= values.min() <= values.max() <= limits.max:
        raise ValueError(f"values from {values.min()} to {values.max()} do not fit {np.dtype(dtype)}")
    return values.astype(dtype)


def pack_text(items: Sequence[str]) -> NDArray[np.uint8]:
    """Join by line ends, as UTF-8 bytes."""
    return np.frombuffer("\n".join(items).encode(), dtype=np.uint8)


def pack_rows(lengths: NDArray[np.int64], values: NDArray[np.int64]) -> tuple[NDArray[np.integer], NDArray[np.uint8]]:
    """Pack rows of rising numbers into their lengths, and the low and high bytes of their differences."""
    gaps = np.diff(values, prepend=0)
    starts = (np.cumsum(lengths) - lengths)[lengths > 0]
    gaps[starts] = values[starts]
    gaps = narrow(gaps, np.uint16)
    return narrow(lengths, np.uint16), np.stack([gaps & 0xFF, gaps >> 8]).astype(np.uint8)


def pack(dataset: Dataset, about: dict[str, str | None]) -> dict[str, NDArray[np.integer]]:
    """Return the arrays of the file."""
    degrees = np.bincount(dataset.edges[:, 0], minlength=len(dataset.labels))
    edge_lengths, edge_gaps = pack_rows(degrees, dataset.edges[:, 1])
    distinct = np.array([len(row) for row in dataset.counts], dtype=np.int64)
    word_numbers = np.array([word for row in dataset.counts for word in row], dtype=np.int64)
    word_counts = np.array([count for row in dataset.counts for count in row.values()], dtype=np.int64)
    word_lengths, word_gaps = pack_rows(distinct, word_numbers)
    return {
        "about": pack_text([json.dumps(about, sort_keys=True)]),
        "labels": pack_text(dataset.labels),
        "times": narrow(dataset.times, np.int16),
        "classes": narrow(dataset.codes, np.uint8),
        "class_names": pack_text(dataset.class_names),
        "edge_lengths": edge_lengths,
        "edge_gaps": edge_gaps,
        "words": pack_text(dataset.words),
        "word_lengths": word_lengths,
        "word_gaps": word_gaps,
        "word_counts": narrow(word_counts, np.uint8),
    }


def summarise(dataset: Dataset) -> str:
    """Lines on the graph, its first task and its classes."""
    times, codes = dataset.times, dataset.codes
    years, sizes = np.unique(times, return_counts=True)
    earlier = np.cumsum(sizes) - sizes
    first_task = years[np.argmax(earlier >= FIRST_TASK_SHARE * len(times))]
    first_year = np.full(len(dataset.class_names), np.iinfo(np.int64).max)
    np.minimum.at(first_year, codes, times)
    in_tasks = times >= first_task
    unseen = in_tasks & (first_year[codes] == times)
    lines = [
        f"{size:6d} from {year}  {name}"
        for name, size, year in zip(dataset.class_names, np.bincount(codes), first_year, strict=True)
    ]
    lines += [
        f"vertices         {len(times)} ({years[0]}-{years[-1]})",
        f"edges            {len(dataset.edges)}",
        f"classes          {len(dataset.class_names)}",
        f"first task       {first_task}",
        f"new classes      {np.count_nonzero(first_year >= first_task)}",
        f"unseen vertices  {np.count_nonzero(unseen)} of {np.count_nonzero(in_tasks)} from {first_task} on",
        f"words            {len(dataset.words)} in {sum(map(len, dataset.counts))} counts",
        f"without words    {sum(not row for row in dataset.counts)}",
    ]
    return "\n".join(lines)


def main() -> None:
    """Build the file and print a summary."""
    parser = argparse.ArgumentParser(description="Build the embedded data set from Metamath's set.mm.")
    parser.add_argument("set_mm", metavar="SET_MM", type=Path, help="the database to read")
    parser.add_argument("--out", metavar="FILE", type=Path, default=DEFAULT_OUT, help="the file to write")
    options = parser.parse_args()
    raw = options.set_mm.read_bytes()
    text = raw.decode("ascii")  # Metamath's specification allows nothing else
    dataset = build(text)
    np.savez_compressed(options.out, **pack(dataset, describe_source(raw, text)))  # type: ignore[arg-type]
    print(summarise(dataset))
    print(f"file             {options.out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
