"""Every bad table of the import, sent over HTTP, gets 422 with the sentence of the command line and changes nothing."""

from __future__ import annotations

import csv
import io
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from starlette.testclient import TestClient

from evergraph import EvolvingGraph
from evergraph.detect import DOC
from evergraph.graph.columns import Columns
from evergraph.nn import MLP
from evergraph.service.app import build_app
from evergraph.service.options import Options
from evergraph.workspace import Workspace
from tests.datasets.test_files import CASES, FILES, b

pytestmark = pytest.mark.usefixtures("one_thread")

Command = Callable[..., tuple[int, str, str]]
HOST = "http://127.0.0.1:8765"

COLUMNS: dict[str, dict[str, Any]] = {
    "missing mapped text": {"text": "title"},
    "missing edge time": {"edge_time": "t"},
    "text in features": {"numbers": ("x1", "x2")},
    "infinite feature": {"numbers": ("x1", "x2")},
    "no such features": {"numbers": ("emb_1",)},
    "no such category": {"categories": ("kind",)},
}
"""Columns that a workspace must have for a case that is about an option of the import."""
OF_IMPORT = {"unknown granularity", "months of years", "category with a sign"}
"""Cases of options that only the import has: a workspace has its periods, and no such column."""
FINE = {
    "missing column label",  # a slice may have no labels
    "number among dates",  # fine in the import, too
}
"""Cases that are no errors in a slice."""


def make(folder: Path, columns: dict[str, Any], *, past: bool = False) -> Path:
    """Make a workspace with vertices before those of the cases, or with the same ids."""
    ids = ["a", "b", "c", "d"] if past else ["p", "q", "r", "s"]
    own = {name: ["1", "2", "3", "4"] for key in ("numbers", "categories") for name in columns.get(key, ())}
    times = ["1997", "1998", "1999", "2000"]
    table = {"id": ids, "time": times, "label": ["KDD", "ICML", "KDD", "ICML"], "text": [f"words {id}" for id in ids]}
    kinds: dict[str, list[str]] = {key: list(columns.get(key, ())) for key in ("numbers", "categories")}
    graph = EvolvingGraph.build(table | own, {"source": ids[:1], "target": ids[1:2]}, every="year", **kinds)
    Workspace.create(
        folder, graph, model=MLP(hidden=2), detector=DOC(0.5), steps=1, columns=Columns(**columns), history=2
    )
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    made: dict[str, Path] = {}

    def folder(columns: dict[str, Any], *, past: bool = False) -> Path:
        key = repr((columns, past))
        if key not in made:
            made[key] = make(tmp_path_factory.mktemp("ws") / "ws", columns, past=past)
        return made[key]

    return folder


@pytest.fixture(scope="module")
def client_of() -> Iterator[Callable[[Path], TestClient]]:
    made: dict[Path, TestClient] = {}

    def client(folder: Path) -> TestClient:
        if folder not in made:
            app = build_app(folder, Options(no_auth=True, rate=1e9))
            made[folder] = TestClient(app, base_url=HOST, raise_server_exceptions=False)
        return made[folder]

    yield client
    for one in made.values():
        one.close()


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No temporary folder is left behind."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    yield
    assert list((tmp_path / "temporary").iterdir()) == []


def as_parquet(table: bytes) -> bytes | None:
    """Return a CSV table as Parquet with texts in all cells; None if it is not a proper table."""
    try:
        head, *rows = csv.reader(io.StringIO(table.decode(), newline=""), strict=True)
    except (ValueError, csv.Error):
        return None
    if len(set(head)) < len(head) or len(head) < 2 or any(len(row) != len(head) for row in rows):
        return None
    columns = [[row[at] or None for row in rows] for at in range(len(head))]
    buffer = io.BytesIO()
    parquet.write_table(pa.table([pa.array(column, pa.string()) for column in columns], names=head), buffer)
    return buffer.getvalue()


def send(client: TestClient, files: dict[str, Path]) -> Any:
    return client.post("/api/v1/slices", files={name: (path.name, path.read_bytes()) for name, path in files.items()})


def check(answer: Any, err: str, folder: Path, version: int) -> None:
    assert answer.status_code == 422, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert f"Error: {answer.json()['detail']}\n" == err
    assert Workspace(folder).state.version == version


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
@pytest.mark.parametrize("name", sorted(set(CASES) - OF_IMPORT - FINE))
def test_bad_slices(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    folders: Any,
    client_of: Any,
    name: str,
    ending: str,
    command: Command,
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = folders(COLUMNS.get(name, {}))
    version = Workspace(folder).state.version
    files = {}
    for part, table in zip(("vertices", "edges"), CASES[name][:2], strict=True):
        data = b(table) if ending == ".csv" else as_parquet(b(table))
        files[part] = Path(f"{part}{ending}")
        if data is None:  # it has no form but that of CSV
            files[part], data = Path(f"{part}.csv"), b(table)
        files[part].write_bytes(data)
    code, _, err = command("ws", "add", folder, "--vertices", files["vertices"], "--edges", files["edges"])
    assert code == 2, err
    check(send(client_of(folder), files), err, folder, version)


@pytest.mark.parametrize("name", sorted(FINE))
def test_tables_that_are_fine_as_slices(tmp_path: Path, folders: Any, client_of: Any, name: str) -> None:
    folder = shutil.copytree(folders({}), tmp_path / "ws")
    files = {part: tmp_path / f"{part}.csv" for part in ("vertices", "edges")}
    for path, table in zip(files.values(), CASES[name][:2], strict=True):
        path.write_bytes(b(table))
    answer = send(client_of(folder), files)
    assert answer.status_code == 200, answer.text
    assert Workspace(folder).state.version == 2


@pytest.mark.parametrize("name", sorted(set(FILES) - {"missing file", "folder"}))
@pytest.mark.parametrize("side", ["vertices", "edges"])
def test_bad_files(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    folders: Any,
    client_of: Any,
    name: str,
    side: str,
    command: Command,
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = folders({})
    version, (file, content, _) = Workspace(folder).state.version, FILES[name]
    good = {"vertices": CASES["number among dates"][0], "edges": "source,target\na,b\nb,c\n"}
    files = {}
    for part, table in good.items():
        bad = part == side
        files[part] = Path(f"{part}{file[1:]}" if bad else f"{part}.csv")
        files[part].write_bytes(content if bad else b(table))
    if not file.endswith(".parquet"):  # formats that a request cannot have
        answer = send(client_of(folder), files)
        assert answer.status_code == 422, answer.text
        assert f"the format of the part {side!r} is not known" in answer.text.replace("The format", "the format")
        assert Workspace(folder).state.version == version
        return
    code, _, err = command("ws", "add", folder, "--vertices", files["vertices"], "--edges", files["edges"])
    assert code == 2, err
    check(send(client_of(folder), files), err, folder, version)


LABELLED = sorted(set(CASES) - OF_IMPORT - set(COLUMNS))
TYPES = {".csv": "text/csv", ".parquet": "application/vnd.apache.parquet"}


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
@pytest.mark.parametrize("name", LABELLED)
def test_bad_labels(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    folders: Any,
    client_of: Any,
    name: str,
    ending: str,
    command: Command,
) -> None:
    monkeypatch.chdir(tmp_path)
    folder, table = folders({}, past=True), b(CASES[name][0])
    data = table if ending == ".csv" else as_parquet(table)
    if data is None:
        pytest.skip("this table has no form but that of CSV")
    path = Path(f"labels{ending}")
    path.write_bytes(data)
    copy = shutil.copytree(folder, tmp_path / "copy")
    code, _, err = command("ws", "label", copy, "--labels", path)
    again = shutil.copytree(folder, tmp_path / "again") if code == 0 else folder
    answer = client_of(again).post("/api/v1/labels", content=data, headers={"Content-Type": TYPES[ending]})
    if code == 0:  # what is wrong with the table has nothing to do with its labels
        assert answer.status_code == 200, answer.text
        assert list(Workspace(again).graph.labels) == list(Workspace(copy).graph.labels)
        return
    assert code == 2, err
    check(answer, err, folder, 1)
