"""A small part of the campaign: a few inputs for each reader, and tables and documents of any structure."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evergraph.datasets import read_records, read_tables
from evergraph.errors import InputError
from evergraph.storage.checksummed import load_json
from evergraph.storage.decoding import InvalidJsonError, parse_json
from tests.fuzz.campaign import bench
from tests.fuzz.mutate import as_json, edited, garbled
from tests.fuzz.readers import READERS

pytestmark = pytest.mark.usefixtures("one_thread")
SLOW = {"workspace", "workspace-0.1", "run", "recording", "learner", "import-command"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in READERS]
)
@pytest.mark.filterwarnings("ignore")
def test_damage_is_read_or_refused_with_the_name_of_the_file(name: str) -> None:
    outcomes = set()
    with bench(READERS[name]) as one:
        for number in range(60 if name == "workspace" else 20):  # few of its inputs damage what a command reads
            one.damage(1, number)
            result = one.attempt()
            assert result.outcome != "finding", f"input {number} of {name}, seed 1\n{result.problem}"
            outcomes.add(result.outcome)
            one.restore()
    assert "refused" in outcomes or name == "trials"


def test_the_same_seed_gives_the_same_input() -> None:
    with bench(READERS["csv"]) as one:
        found = []
        for _ in range(2):
            one.damage(3, 14)
            found.append({path.name: path.read_bytes() for path in one.folder.iterdir()})
            one.restore()
    assert found[0] == found[1] != {name.name: data for name, data in one.sample.items()}


CELLS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from(["2001", "2001-02", "2001-02-30", "-1", "1e400", "NaN", "\x00", '"', "a,b", "\r\n", "=1+1"]),
)
NAMES = st.sampled_from(["id", "time", "label", "text", "source", "target", "x", "", "é\n"])
TABLES = st.dictionaries(NAMES, st.lists(CELLS, min_size=3, max_size=3), min_size=1, max_size=5)


@given(table=TABLES, edges=TABLES, quoted=st.booleans())
def test_tables_of_any_cells_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, table: dict[str, list[Any]], edges: dict[str, list[Any]], quoted: bool
) -> None:
    folder = tmp_path_factory.mktemp("tables")
    for name, columns in (("v.csv", table), ("e.csv", edges)):
        rows = [list(columns), *zip(*columns.values(), strict=True)]
        text = "\n".join(",".join(f'"{cell}"' if quoted else str(cell) for cell in row) for row in rows)
        (folder / name).write_bytes(text.encode("utf-8", "surrogatepass"))
    _refused(lambda: read_tables(folder / "v.csv", folder / "e.csv"), "v.csv", "e.csv")
    for name, columns in (("v.parquet", table), ("e.parquet", edges)):
        try:
            found = pa.table(columns)
        except (pa.ArrowException, OverflowError, TypeError):
            found = pa.table({key: list(map(str, column)) for key, column in columns.items()})
        pq.write_table(found, folder / name)
    _refused(lambda: read_tables(folder / "v.parquet", folder / "e.parquet"), "v.parquet", "e.parquet")


DOCUMENTS = st.recursive(
    CELLS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
)


@given(document=DOCUMENTS, seed=st.integers(0, 2**32))
def test_documents_of_any_structure_are_parsed_or_refused(document: Any, seed: int) -> None:
    rng = Random(seed)
    for data in (as_json(rng, document), garbled(rng, as_json(rng, document))):
        with contextlib.suppress(InvalidJsonError):
            parse_json(data)
    content = edited(rng, {"format": "letter", "format_version": 1, "fields": document})
    text = as_json(rng, content).decode("utf-8", "surrogatepass")
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    with contextlib.suppress(InvalidJsonError):
        load_json(as_json(rng, {"sha256": digest, "content": text}), "letter", 1)


@given(fields=st.dictionaries(st.sampled_from(["id", "year", "venue", "title", "authors", "references"]), DOCUMENTS))
def test_records_of_any_fields_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, fields: dict[str, Any]
) -> None:
    path = tmp_path_factory.mktemp("records") / "records.jsonl"
    path.write_bytes(as_json(Random(0), {"id": "a", "year": 2001} | fields) + b"\n")
    _refused(lambda: read_records(path), "records.jsonl")


def _refused(read: Callable[[], object], *files: str) -> None:
    try:
        read()
    except InputError as error:
        message = str(error)
    else:
        return
    assert any(file in message for file in files), message
