"""Inputs that once ended in a traceback, in a wrong error or in gigabytes of memory."""

from __future__ import annotations

import decimal
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from evergraph import EvolvingGraph
from evergraph.datasets import load, read_records, read_tables
from evergraph.datasets.download import unpack
from evergraph.datasets.published import read_published
from evergraph.errors import DamagedGraphError, DamagedLearnerError, DownloadError, InputError
from evergraph.evaluation.run_folder import read_run
from evergraph.learning.learner import LifelongLearner
from evergraph.storage.checksummed import load_json
from evergraph.storage.decoding import InvalidJsonError, parse_json
from tests.fuzz import damage
from tests.fuzz.readers import EDGES, READERS, VERTICES, _parquet_bytes

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize(
    "text", [r'{"format": "letter", "format_version": 1, "x": "\ud800"}', '"\\ud800"', "[" * 100_000]
)
def test_checksummed_json_that_python_accepts_or_cannot_nest(text: str) -> None:
    for data in (json.dumps({"sha256": "0", "content": text}), text):
        with pytest.raises(InvalidJsonError):
            load_json(data.encode(), "letter", 1)


@pytest.mark.parametrize(
    "data", [b"[" * 100_000, b'{"a":' * 100_000, b"[" * 101 + b"]" * 101, b'"\\ud800"', b"NaN", b"\xff"]
)
def test_json_in_records_and_manifests(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(InvalidJsonError):
        parse_json(data)
    (tmp_path / "records.jsonl").write_bytes(data + b"\n")
    with pytest.raises(InputError, match=r"records\.jsonl"):
        read_records(tmp_path / "records.jsonl")
    EvolvingGraph.build(VERTICES, EDGES).save(tmp_path / "graph")
    (tmp_path / "graph" / "manifest.json").write_bytes(data)
    with pytest.raises(DamagedGraphError, match=r"manifest\.json"):
        load(tmp_path / "graph")


def graph_with(folder: Path, name: str, change: Any) -> Path:
    """Save a graph with a changed array whose size and hash are right."""
    EvolvingGraph.build(VERTICES, EDGES).save(folder / "graph")
    path = folder / "graph" / "versions" / "000001" / f"{name}.npy"
    content = json.loads(json.loads((folder / "graph" / "manifest.json").read_bytes())["content"])
    data = change(path.read_bytes())
    damage.write(path, data)
    content["arrays"][name] = {"bytes": len(data), "sha256": damage.hashlib.sha256(data).hexdigest()}
    damage.write(folder / "graph" / "manifest.json", damage._sealed(Random(0), content))
    return folder / "graph"


@pytest.mark.parametrize("name", ["features.columns.bytes", "ids.bytes", "classes.bytes"])
def test_bytes_that_are_not_utf8(tmp_path: Path, name: str) -> None:
    with pytest.raises(DamagedGraphError, match="graph"):
        load(graph_with(tmp_path, name, lambda data: data[:-1] + b"\xff"))


def test_a_header_of_an_array_that_is_not_closed(tmp_path: Path) -> None:
    with pytest.raises(DamagedGraphError, match=r"times\.npy: this is not an array"):
        load(graph_with(tmp_path, "times", lambda data: data.replace(b"}", b" ", 1)))
    READERS["published"].sample(tmp_path / "published")
    path = tmp_path / "published" / "y.npy"
    path.write_bytes(path.read_bytes().replace(b"}", b" ", 1))
    with pytest.raises(InputError, match=r"y\.npy: the file holds no array"):
        read_published(tmp_path / "published")


@pytest.mark.parametrize("kind", ["<f8", ">i8", "<i4", "S8", "M8[D]"])
def test_arrays_of_another_type(tmp_path: Path, kind: str) -> None:
    with pytest.raises(DamagedGraphError, match="the array times has type"):
        load(graph_with(tmp_path, "times", lambda _: _npy(np.arange(5).astype(kind))))


def _npy(array: Any) -> bytes:
    from tests.fuzz.mutate import npy

    return npy(array)


def test_parquet_with_text_that_is_not_utf8_numbers_over_64_bits_and_damaged_thrift(tmp_path: Path) -> None:
    rows, path = len(VERTICES["id"]), tmp_path / "v.parquet"
    offsets = pa.py_buffer(np.arange(rows + 1, dtype=np.int32))
    text = pa.StringArray.from_buffers(rows, offsets, pa.py_buffer(b"\xff" * rows))
    large = pa.array([decimal.Decimal(10**30)] * rows)
    for name, column in (("id", text), ("label", text), ("text", text), ("time", large), ("time", text)):
        path.write_bytes(_parquet_bytes(VERTICES | {name: column}))
        with pytest.raises(InputError, match=r"v\.parquet"):
            read_tables(path)
    whole = _parquet_bytes(VERTICES)
    for place in range(len(whole) - 200, len(whole), 7):
        path.write_bytes(whole[:place] + b"\xff\xff" + whole[place + 2 :])
        try:
            read_tables(path)
        except InputError as error:
            message = str(error)
            assert "v.parquet" in message
            assert "disk" not in message


def test_parquet_whose_footer_contradicts_itself(tmp_path: Path) -> None:
    path, whole = tmp_path / "v.parquet", _parquet_bytes(VERTICES)
    nullable, required = b"\x25\x02\x18\x02id", b"\x25\x00\x18\x02id"
    assert whole.count(nullable) == 1
    path.write_bytes(whole.replace(nullable, required))
    code = f"from evergraph.datasets import read_tables; read_tables({str(path)!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done  # the process is not aborted
    assert "v.parquet: the Parquet file is damaged (Definition level histogram size mismatch" in done.stderr


@pytest.mark.parametrize("encoding", ["RLE_DICTIONARY", "DELTA_BYTE_ARRAY", None])
def test_parquet_that_expands_beyond_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoding: str | None
) -> None:
    path, rows = tmp_path / "v.parquet", 20_000
    table: dict[str, Any] = {"id": range(rows), "time": [2001] * rows, "text": ["long " * 200] * rows}
    if encoding is None:
        table["text"] = pa.array([[0.0] * 500] * rows, pa.list_(pa.float32()))
    how: dict[str, Any] = {"use_dictionary": encoding != "DELTA_BYTE_ARRAY"}
    if encoding == "DELTA_BYTE_ARRAY":
        how["column_encoding"] = {"text": encoding}
    pq.write_table(pa.table(table), path, **how)
    assert path.stat().st_size < 400_000
    monkeypatch.setenv("EVERGRAPH_MAX_UNPACKED", "0.01")
    before = pa.default_memory_pool().max_memory()
    with pytest.raises(InputError, match=r"unpacks to .* more.*EVERGRAPH_MAX_UNPACKED|unpacks to more than 10,000,000"):
        read_tables(path, label="", numbers=["text"] if encoding is None else ())
    assert pa.default_memory_pool().max_memory() <= max(before, 60_000_000)
    monkeypatch.setenv("EVERGRAPH_MAX_UNPACKED", "1")
    assert len(read_tables(path, label="", numbers=["text"] if encoding is None else ())) == rows


def test_zips_with_other_methods_and_odd_names(tmp_path: Path) -> None:
    path = tmp_path / "data.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("a", b"text")
    whole = path.read_bytes()
    for data in (whole, whole.replace(b"\x0e\x00", b"\x00\x00")):
        path.write_bytes(data)
        with pytest.raises(DownloadError, match=r"data\.zip"):
            unpack(path, tmp_path / "out")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("abc", b"text")
    for name in (b"a\0c", b"../", b"\xff\xfe\xfd", b"abd"):
        path.write_bytes(path.read_bytes()[:30] + name + path.read_bytes()[33:])
        with pytest.raises(DownloadError, match=r"data\.zip"):
            unpack(path, tmp_path / "out")


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("vocabulary", "names"), [["a"]]),
        (("vocabulary", "dense"), 2**60),
        (("vocabulary", "runs"), [["words", "abc"]]),
        (("model", "hidden"), 2**40),
        (("model", "layers"), 2**40),
        (("settings", "device"), "cuda:-1"),
        (("settings", "device"), True),
        (("settings", "device"), 0.5),
        (("settings", "steps"), None),
        (("classes",), "abc"),
        (("losses",), {}),
        (("time",), "2004"),
        (("weights", "file"), "../x"),
        (("detector", "threshold"), [0.5]),
    ],
)
def test_edited_learners(tmp_path: Path, place: tuple[str, ...], value: Any) -> None:
    READERS["learner"].sample(tmp_path)
    path = tmp_path / "doc" / "learner.json"
    content = json.loads(json.loads(path.read_bytes())["content"])
    inside = content
    for name in place[:-1]:
        inside = inside[name]
    inside[place[-1]] = value
    damage.write(path, damage._sealed(Random(0), content))
    with pytest.raises(InputError, match=r"learner\.json"):
        LifelongLearner.load(tmp_path / "doc")


@pytest.mark.parametrize(
    ("name", "value"), [("tp", -5), ("time", []), ("seed", "0"), ("accuracy", {}), ("new_classes", 3)]
)
def test_edited_rows_of_a_run(tmp_path: Path, name: str, value: Any) -> None:
    READERS["run"].sample(tmp_path)
    path = tmp_path / "run" / "results.jsonl"
    first, *rest = path.read_text().splitlines()
    path.write_text("\n".join([json.dumps(json.loads(first) | {name: value}), *rest, ""]))
    with pytest.raises(InputError, match=r"results\.jsonl, line 1"):
        read_run(tmp_path / "run")


@pytest.mark.parametrize("value", [[], "x", 3])
def test_an_edited_threshold_of_a_learner(tmp_path: Path, value: Any) -> None:
    READERS["learner"].sample(tmp_path)
    _edit(tmp_path / "energy" / "learner.json", lambda content: content["detector"].update(threshold=value))
    with pytest.raises(InputError, match=r"learner\.json"):
        LifelongLearner.load(tmp_path / "energy")


def test_an_edited_state_of_a_detector(tmp_path: Path) -> None:
    reader = READERS["learner"]
    reader.sample(tmp_path)
    learners = reader.read(tmp_path)
    learners[1]._state["mean"] = torch.tensor(0.5)
    learners[1].save(tmp_path / "energy")
    with pytest.raises(DamagedLearnerError, match="cannot use the state"):
        reader.use(reader.read(tmp_path))


def test_edited_recordings(tmp_path: Path) -> None:
    reader, path = READERS["recording"], tmp_path / "recording" / "recording.json"
    reader.sample(tmp_path)
    whole = path.read_bytes()

    def swap_kinds(content: Any) -> None:
        for event in content["events"]:
            event["kind"] = {"decide": "observe"}.get(event["kind"], event["kind"])

    def drop_classes(content: Any) -> None:
        for event in content["events"]:
            event["classes"] = []

    for change in (swap_kinds, drop_classes, lambda content: content["view"].pop("history")):
        damage.write(path, whole)
        _edit(path, change)
        with pytest.raises(InputError, match=r"\.safetensors: |recording\.json: "):
            reader.use(reader.read(tmp_path))


def _edit(path: Path, change: Any) -> None:
    content = json.loads(json.loads(path.read_bytes())["content"])
    change(content)
    damage.write(path, damage._sealed(Random(0), content))
