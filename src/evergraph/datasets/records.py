"""Graphs from publication records: papers joined by citations or by shared authors."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from evergraph.datasets.files import open_bytes, reading
from evergraph.errors import InputError, Origin
from evergraph.graph.columns import EdgeColumns, as_table, vertex_columns
from evergraph.graph.evolving import EvolvingGraph
from evergraph.storage.decoding import InvalidJsonError, parse_json

__all__ = ["read_records"]

log = logging.getLogger(__name__)

Kind = Literal["citations", "authors"]
PerYear = Literal["class-year", "every-year", "median-year", "mean-year"]

_ONE_OBJECT = "write one JSON object per line"


def read_records(
    path: str | Path,
    edges: Kind = "citations",
    *,
    min_class: int = 1,
    min_author: int = 1,
    per_year: PerYear = "class-year",
    first_year: int | None = None,
    last_year: int | None = None,
) -> EvolvingGraph:
    """Read publications from JSON lines with id, title, authors, venue, year and references.

    A vertex is a publication, its class the venue, its time the year, its text the title. Citations join a publication
    with those of its references that are in the file; authors join any two publications with an author in common.

    Parameters
    ----------
    path
        The file, also .gz.
    edges
        ``"citations"`` or ``"authors"``.
    min_class
        Minimum number of publications per class and year (the paper: 100, 45 and 20).
    min_author
        Minimum number of publications per author and year (the paper: 2 for its co-authorship graph). In years with
        fewer, the author is left out; publications left without an author are dropped.
    per_year
        The meaning of "per class per year", which the paper does not define:

        - ``"class-year"`` keeps a class in the years in which it has that many publications, and drops its others. This
          is our reading: the graph of a higher minimum is part of that of a lower one, and classes become irregular and
          start late, as the paper reports.
        - ``"every-year"`` keeps the classes that have that many in every year in which they have any.
        - ``"median-year"`` and ``"mean-year"`` keep those that have that many in the median or mean of those years.
    first_year, last_year
        Leave out publications before and after.
    """
    path = Path(path)
    if edges not in get_args(Kind):
        raise InputError(f"there are no edges {edges!r}", fix="choose citations or authors")
    if per_year not in get_args(PerYear):
        raise InputError(f"per_year is {per_year!r}", fix=f"choose from {', '.join(get_args(PerYear))}")
    every = list(_records(path))
    low, high = -1 if first_year is None else first_year, 10_000 if last_year is None else last_year
    records = [record for record in every if low <= record["year"] <= high]
    if min_class > 1:
        records = [records[row] for row in _frequent_classes(records, min_class, per_year)]
    if min_author > 1:
        records = _frequent_authors(records, min_author)
    if not records:
        raise InputError("no publication is left", file=path, fix="lower the minimum numbers, or widen the years")
    names = {"id": "id", "time": "year", "label": "venue", "text": "title"}
    columns = {column: [record[key] for record in records] for column, key in names.items()}
    table = as_table(columns, Origin(path))
    lines = [record["line"] for record in records]
    vertices = vertex_columns(table, Origin(path, lines.__getitem__))
    pairs = _citations(records) if edges == "citations" else _shared_authors(records)
    about = {"source": f"records, edges by {edges}", "file": path.name, "min_class": f"{min_class} ({per_year})"}
    if min_author > 1:
        about["min_author"] = str(min_author)
    ids = table.column("id").combine_chunks()
    links = EdgeColumns(ids.take(pairs[0]), ids.take(pairs[1]), None, Origin(path))
    graph = EvolvingGraph.from_columns(vertices, links, about=about)
    log.info("%s: kept %s of %s publications", path, f"{len(graph):,}", f"{len(every):,}")
    return graph


def _records(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the checked records, each with its line."""
    seen: dict[str, int] = {}
    with reading(path), open_bytes(path) as file:
        for line, raw in enumerate(file, 1):
            if not raw.strip():
                continue
            try:
                raw.decode()
                record = parse_json(raw)
            except UnicodeDecodeError:
                raise _error(path, line, "the text is not UTF-8", "save the file as UTF-8") from None
            except InvalidJsonError as error:
                raise _error(path, line, f"this is not a JSON object: {error}", _ONE_OBJECT) from None
            if not isinstance(record, dict):
                raise _error(path, line, "this is not a JSON object", _ONE_OBJECT)
            yield _checked(record, path, line, seen)
    if not seen:
        raise InputError("the file is empty", file=path, fix=_ONE_OBJECT)


def _checked(record: dict[str, Any], path: Path, line: int, seen: dict[str, int]) -> dict[str, Any]:
    name, year = record.get("id"), record.get("year")
    if not isinstance(name, (str, int)) or isinstance(name, bool) or name == "":
        raise _error(path, line, f"{name!r} is not an id", "give every record an id, a string or a whole number", "id")
    if (first := seen.setdefault(str(name), line)) != line:
        raise _error(path, line, f"id {name!r} occurs twice (first in line {first})", "remove one", "id")
    if not isinstance(year, int) or isinstance(year, bool) or not 0 <= year < 10_000:
        raise _error(path, line, f"{year!r} is not a year", "give every record a year from 0 to 9999", "year")
    checked = {"id": str(name), "year": year, "line": line}
    for field in ("title", "venue"):
        value = record.get(field)
        if value is not None and not isinstance(value, str):
            raise _error(path, line, f"{value!r} is not text", "give a string, or leave it out", field)
        checked[field] = value
    for field in ("authors", "references"):
        values = record.get(field) or []
        if not isinstance(values, list) or not all(isinstance(value, (str, int)) for value in values):
            raise _error(path, line, f"{values!r} is not a list of strings", "give a list of strings", field)
        checked[field] = [str(value) for value in values]
    return checked


def _error(path: Path, line: int, problem: str, fix: str, field: str | None = None) -> InputError:
    return InputError(problem, fix=fix, file=path, column=field, row=line, line=line)


def _frequent_classes(records: list[dict[str, Any]], least: int, per_year: PerYear) -> NDArray[np.int64]:
    """Return the rows of the records to keep; records without a class are dropped."""
    _, venues = np.unique([record["venue"] or "" for record in records], return_inverse=True)
    years = np.array([record["year"] for record in records])
    labelled = np.array([bool(record["venue"]) for record in records])
    years = years - years.min(initial=0)
    counts = np.zeros((venues.max(initial=-1) + 1, years.max(initial=-1) + 1), np.int64)
    np.add.at(counts, (venues, years), 1)
    if per_year == "class-year":
        return np.flatnonzero(labelled & (counts[venues, years] >= least))
    measures: dict[str, Callable[[NDArray[np.int64]], Any]]
    measures = {"every-year": np.min, "median-year": np.median, "mean-year": np.mean}
    frequent = np.array([measures[per_year](row[row > 0]) >= least for row in counts])
    return np.flatnonzero(labelled & frequent[venues])


def _frequent_authors(records: list[dict[str, Any]], least: int) -> list[dict[str, Any]]:
    counts = Counter((author, record["year"]) for record in records for author in set(record["authors"]))
    kept = []
    for record in records:
        authors = [author for author in record["authors"] if counts[author, record["year"]] >= least]
        if authors:
            kept.append({**record, "authors": authors})
    return kept


def _citations(records: list[dict[str, Any]]) -> NDArray[np.int64]:
    row_of = {record["id"]: row for row, record in enumerate(records)}
    cited = ((row, row_of.get(reference)) for row, record in enumerate(records) for reference in record["references"])
    return np.array([pair for pair in cited if pair[1] is not None], np.int64).reshape(-1, 2).T


def _shared_authors(records: list[dict[str, Any]]) -> NDArray[np.int64]:
    codes: dict[str, int] = {}
    entries = [
        (row, codes.setdefault(author, len(codes)))
        for row, record in enumerate(records)
        for author in record["authors"]
    ]
    rows, columns = np.array(entries, np.int64).reshape(-1, 2).T
    written = sparse.csr_array((np.ones(len(rows), np.int32), (rows, columns)), shape=(len(records), len(codes)))
    shared = sparse.triu(written @ written.T, k=1).tocoo()
    return np.stack([shared.row, shared.col]).astype(np.int64)
