"""The service keeps to its OpenAPI document, whatever it is sent. ``scripts/fuzz_api.py`` sends 20,000 cases and more."""

from __future__ import annotations

import gzip
import io
import json
import logging
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from starlette.testclient import TestClient

from evergraph.service import jobs
from evergraph.service.app import build_app, openapi
from evergraph.service.options import Options
from evergraph.workspace import Workspace
from tests.scripts import script

fuzz_api = script("fuzz_api")
pytestmark = pytest.mark.usefixtures("one_thread")

HOST = "http://127.0.0.1:8765"
JSON = "application/json"
CSV = "text/csv"
PARQUET = "application/vnd.apache.parquet"
FORM = "multipart/form-data; boundary=cut"
MOST_ROWS, MOST_BYTES = 1_000, 16 << 20


@pytest.fixture(autouse=True)
def idle(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No job starts a process, and the service logs nothing."""
    monkeypatch.setattr(jobs, "Worker", fuzz_api.Idle)
    log = logging.getLogger("evergraph.service")
    before = log.level
    yield
    log.setLevel(before)


# --- schemathesis ----------------------------------------------------------------------------------------------------


def check(found: Any, cases: int) -> None:
    assert found.ok, [*found.examples.items(), *found.errors][:3]
    assert sum(found.cases.values()) >= cases
    assert len(found.checks) >= 12
    assert all(status < 500 for status in found.statuses)


def test_answers_are_as_the_document_says(template: Path) -> None:
    found = fuzz_api.Findings()
    fuzz_api.run(template, None, 6, 0, found, ("fuzzing",))
    check(found, 200)
    assert set(found.cases) == {" ".join(one) for one in fuzz_api.operations_of(template)}


@pytest.mark.slow
def test_answers_to_more_cases_are_as_the_document_says(tmp_path: Path) -> None:
    check(fuzz_api.campaign(tmp_path, 15, seed=1, say=lambda _: None), 2_000)


def test_every_operation_of_the_document_is_tried(template: Path) -> None:
    document = openapi(build_app(template, Options()))
    assert document["openapi"].startswith("3.1")
    assert len(fuzz_api.operations_of(template)) == sum(len(methods) for methods in document["paths"].values()) > 35


# --- hostile bodies --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("fuzz") / "template"
    fuzz_api.make_workspace(folder)
    return folder


@pytest.fixture(scope="module")
def served(template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    folder = shutil.copytree(template, tmp_path_factory.mktemp("served") / "ws")
    app = build_app(folder, Options(no_auth=True, rate=1e9, max_rows=MOST_ROWS, max_body=MOST_BYTES))
    client = TestClient(app, base_url=HOST, raise_server_exceptions=False)
    client.headers["Connection"] = "close"
    yield client
    client.close()


def nested(depth: int, left: str = "[", right: str = "]") -> bytes:
    return (left * depth + right * depth).encode()


def as_parquet(columns: dict[str, Any], **more: Any) -> bytes:
    buffer = io.BytesIO()
    parquet.write_table(pa.table(columns), buffer, **more)
    return buffer.getvalue()


GOOD = as_parquet({"id": [1, 2], "label": ["x", "y"]})
BOMB = as_parquet({"id": np.zeros(10_000_000, np.int64), "label": np.zeros(10_000_000, np.int64)})
WIDE = as_parquet({f"c{number}": [1] for number in range(5_000)})
LONG_CELL = as_parquet({"id": ["a" * 5_000_000], "label": ["b"]}, compression="gzip")
CSV_PART = b'--cut\r\nContent-Disposition: form-data; name="vertices"; filename="v.csv"\r\n\r\nid,time\n'

BODIES: dict[str, tuple[str, bytes]] = {
    "nothing": (JSON, b""),
    "not JSON": (JSON, b"labels"),
    "half an object": (JSON, b'{"labels": ['),
    "two objects": (JSON, b"{}{}"),
    "a list": (JSON, b"[]"),
    "null": (JSON, b"null"),
    "deep lists": (JSON, nested(100_000)),
    "deep objects": (JSON, b'{"labels":' + nested(100_000, '{"a":', "}").replace(b":}", b":1}") + b"}"),
    "deep value": (
        JSON,
        b'{"labels":[{"id":' + nested(50_000) + b',"label":"x"}],"vertices":[{"id":' + nested(500) + b"}]}",
    ),
    "huge integer": (JSON, b'{"labels":[{"id":' + b"9" * 100_000 + b',"label":"x"}]}'),
    "integer of 2^64": (JSON, b'{"labels":[{"id":18446744073709551616,"label":"x"}]}'),
    "NaN": (JSON, b'{"labels":[{"id":NaN,"label":"x"}]}'),
    "infinity": (JSON, b'{"labels":[{"id":1e999,"label":"x"}]}'),
    "invalid UTF-8": (JSON, b'{"labels":[{"id":"\xff\xfe","label":"x"}]}'),
    "UTF-16": (JSON, '{"labels":[]}'.encode("utf-16")),
    "lone surrogate": (JSON, b'{"labels":[{"id":"\\ud800","label":"\\udfff"}]}'),
    "lone surrogate as a key": (JSON, b'{"vertices":[{"\\ud800":1,"id":5,"time":6}],"\\ud800":1}'),
    "NUL": (JSON, b'{"labels":[{"id":"a\\u0000b","label":"\\u0000"}]}'),
    "raw NUL": (JSON, b'{"labels":[{"id":"a\x00b","label":"x"}]}'),
    "the same key twice": (JSON, b'{"labels":[],"labels":1}'),
    "numbers as labels": (JSON, b'{"labels":[{"id":1,"label":1.5}]}'),
    "gzip": (JSON, gzip.compress(b'{"labels":[]}')),
    "a long line of CSV": (CSV, b"id,label\n" + b"x" * 10_000_000),
    "a long head of CSV": (CSV, b",".join(b"c%d" % number for number in range(1_000_000))),
    "NUL in CSV": (CSV, b"id,label\n1\x00,x\n"),
    "only NUL": (CSV, b"\x00" * 1_000),
    "quotes": (CSV, b'id,label\n"' * 10_000),
    "invalid UTF-8 in CSV": (CSV, b"id,label\n\xff,\xfe\n"),
    "gzip as CSV": (CSV, gzip.compress(b"id,label\n1,x\n")),
    "no Parquet": (PARQUET, b"PAR1"),
    "truncated Parquet": (PARQUET, GOOD[:-20]),
    "Parquet without its end": (PARQUET, GOOD[: len(GOOD) // 2] + b"PAR1"),
    "Parquet with a wrong length": (PARQUET, GOOD[:-8] + b"\xff\xff\xff\x7fPAR1"),
    "many rows in a small Parquet": (PARQUET, BOMB),
    "many columns": (PARQUET, WIDE),
    "a long cell": (PARQUET, LONG_CELL),
    "flipped bytes": (PARQUET, bytes(byte ^ (255 if at % 37 == 0 else 0) for at, byte in enumerate(GOOD))),
    "multipart without a boundary": ("multipart/form-data", b"--cut\r\n\r\n--cut--\r\n"),
    "multipart without an end": (FORM, CSV_PART),
    "multipart without parts": (FORM, b"--cut--\r\n"),
    "multipart of garbage": (FORM, b"\x00\xff" * 500),
    "part without a name": (FORM, b"--cut\r\nContent-Disposition: form-data\r\n\r\nx\r\n--cut--\r\n"),
    "part with a bad header": (FORM, b"--cut\r\nContent-Disposition\xff: [\r\n\r\nx\r\n--cut--\r\n"),
    "a field, not a file": (FORM, b'--cut\r\nContent-Disposition: form-data; name="vertices"\r\n\r\nx\r\n--cut--\r\n'),
    "many parts": (
        FORM,
        b'--cut\r\nContent-Disposition: form-data; name="a"; filename="a.csv"\r\n\r\n\r\n' * 5_000 + b"--cut--",
    ),
    "another type": ("application/xml", b"<a/>"),
    "no type": ("", b"{}"),
    "a type with a line end": ("application/json; charset=\x0b", b"{}"),
    "text": ("text/plain", b"{}"),
}
WRITES = (
    "slices",
    "labels",
    "answers",
    "answers/preview",
    "classes",
    "updates",
    "rollback",
    "removals",
    "tags",
    "undo",
)


@pytest.mark.parametrize("name", BODIES)
def test_hostile_bodies_are_refused_and_change_nothing(served: TestClient, name: str) -> None:
    kind, body = BODIES[name]
    folder: Path = served.app.state.reads.served.folder  # type: ignore[attr-defined]
    before, start = Workspace(folder).state.version, time.monotonic()
    for path in WRITES if len(body) < 1_000_000 else WRITES[:3]:
        headers = {"Content-Type": kind} if kind else {}
        answer = served.post(f"/api/v1/{path}", content=body, headers=headers)
        if body == b"{}" and path in ("updates", "answers", "answers/preview") and answer.status_code in (200, 202):
            continue  # all of its fields have a default
        assert 400 <= answer.status_code < 500, (path, answer.status_code, answer.text[:300])
        assert answer.headers["content-type"] == "application/problem+json", path
        found = answer.json()
        assert found["status"] == answer.status_code
        assert 0 < len(found["detail"]) <= 2_000, (path, len(found["detail"]))
    assert Workspace(folder).state.version == before
    assert time.monotonic() - start < 30


def test_a_body_that_says_it_is_compressed_is_not_unpacked(served: TestClient) -> None:
    body = gzip.compress(json.dumps({"labels": []}).encode())
    answer = served.post("/api/v1/labels", content=body, headers={"Content-Type": JSON, "Content-Encoding": "gzip"})
    assert answer.status_code in (415, 422)


def test_a_lying_length_is_refused(served: TestClient) -> None:
    for length in ("-1", "abc", "9" * 30, str(MOST_BYTES + 1)):
        answer = served.post("/api/v1/labels", content=b"{}", headers={"Content-Type": JSON, "Content-Length": length})
        assert answer.status_code in (400, 413), (length, answer.status_code)


HOSTILE_IDS = [
    *("a/b", "../x", "%2e%2e", "a%2Fb", "%00", "%ff", "é", "\u202ex", "🙂", "a b", "?", "#", "a" * 9_000, "-1", "1e5"),
    *("9" * 40, "explanation", "1/explanation", "/", "//", ".", "..", "NaN", "<b>", "'", '"', "=1+1", "\ud800"),
]


@pytest.mark.parametrize("id", HOSTILE_IDS, ids=range(len(HOSTILE_IDS)))
def test_hostile_ids_in_paths_are_not_found(served: TestClient, id: str) -> None:
    from urllib.parse import quote

    for path in ("vertices/{}", "graph/neighbourhood/{}", "vertices/{}/explanation", "groups/{}", "jobs/{}"):
        for written in {
            quote(id.encode("utf-8", "surrogatepass"), safe=""),
            quote(id.encode("utf-8", "surrogatepass")),
        }:
            answer = served.get(f"/api/v1/{path.format(written)}")
            assert answer.status_code in (200, 404, 405, 422), (path, written[:50], answer.status_code)
