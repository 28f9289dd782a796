from __future__ import annotations

import hashlib
import http.client
import io
import json
import socket
import stat
import sys
import threading
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

import pytest

from evergraph import __version__
from evergraph.datasets import download
from evergraph.datasets.download import cache_folder, fetch_record, unpack
from evergraph.errors import DownloadError, InputError, StorageError
from evergraph.storage.files import only_one

DATA = bytes(range(256)) * 400
HALF = len(DATA) // 2
WAITS = (0, 0, 0)


class Zenodo:
    """A server of one record, 42, that can be told to misbehave."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {"data.zip": DATA}
        self.entries: dict[str, dict[str, object]] = {}  # what the record says instead of the truth
        self.form: Callable[[list[dict[str, object]]], object] = lambda files: files
        self.description: bytes | None = None
        self.answers: list[tuple[int, dict[str, str]]] = []  # given first, one to a request
        self.drops = 0  # how many transfers break half way
        self.stalls = 0
        self.ranges = "honoured"
        self.pause = 0.0
        self.requests: list[tuple[str, str | None]] = []
        self.agents: set[str | None] = set()
        self.sent = 0
        zenodo = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                zenodo.answer(self)

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.site = f"http://127.0.0.1:{self.server.server_port}"
        self.api = f"{self.site}/api/records"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.005,))
        self.thread.start()

    def stop(self) -> None:
        if self.thread.is_alive():
            self.server.shutdown()
            self.server.server_close()
            self.thread.join()

    def describe(self) -> bytes:
        if self.description is not None:
            return self.description
        files = []
        for name, data in self.files.items():
            links = {"self": f"{self.api}/42/files/{name}/content"}
            entry: dict[str, object] = {"id": "x", "key": name, "size": len(data), "links": links}
            entry["checksum"] = "md5:" + hashlib.md5(data).hexdigest()
            files.append(entry | self.entries.get(name, {}))
        return json.dumps({"id": 42, "files": self.form(files)}).encode()

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        path, wanted = unquote(handler.path), handler.headers["Range"]
        self.requests.append((path, wanted))
        self.agents.add(handler.headers["User-Agent"])
        status, body, cut = 200, b"", False
        headers: dict[str, str] = {}
        if self.answers:
            status, headers = self.answers.pop(0)
        elif path == "/api/records/42":
            body = self.describe()
        else:
            body = self.files[path.removeprefix("/api/records/42/files/").removesuffix("/content")]
            if wanted and self.ranges == "refused":
                status, body = 416, b""
            elif wanted and self.ranges != "ignored":
                start = int(wanted.removeprefix("bytes=").removesuffix("-"))
                start -= self.ranges == "shifted"
                headers["Content-Range"] = f"bytes {start}-{len(body) - 1}/{len(body)}"
                status, body = 206, body[start:]
            cut, self.drops = self.drops > 0, self.drops - 1
        handler.send_response(status)
        for key, value in ({"Content-Length": str(len(body))} | headers).items():
            handler.send_header(key, value)
        handler.end_headers()
        time.sleep(self.pause)
        body = body[: len(body) // 2] if cut else body
        self.sent += len(body) if path.endswith("/content") else 0
        handler.wfile.write(body)
        if cut and self.stalls:
            time.sleep(0.3)

    @property
    def transfers(self) -> list[str | None]:
        """The Range header of each request for the data file."""
        return [wanted for path, wanted in self.requests if path.endswith("/data.zip/content")]


@pytest.fixture
def zenodo(monkeypatch: pytest.MonkeyPatch) -> Iterator[Zenodo]:
    monkeypatch.setenv("no_proxy", "*")
    zenodo = Zenodo()
    yield zenodo
    zenodo.stop()


@pytest.fixture
def fetch(zenodo: Zenodo, tmp_path: Path) -> Callable[..., dict[str, Path]]:
    def fetch(**options: object) -> dict[str, Path]:
        return fetch_record(42, **{"cache": tmp_path, "api": zenodo.api, "waits": WAITS} | options)  # type: ignore[arg-type]

    return fetch


Fetch = Callable[..., dict[str, Path]]


def test_files_arrive_under_the_cache(zenodo: Zenodo, fetch: Fetch, tmp_path: Path) -> None:
    zenodo.files |= {"empty.txt": b"", "with blank #1 ü.csv": b"a,b\n"}
    paths = fetch()
    assert paths == {name: tmp_path / "42" / name for name in zenodo.files}
    assert {name: path.read_bytes() for name, path in paths.items()} == zenodo.files
    assert sorted(p.name for p in (tmp_path / "42").iterdir()) == sorted(zenodo.files)
    assert len(zenodo.requests) == 4
    assert zenodo.agents == {f"evergraph/{__version__}"}


def test_inveniordm_form_of_the_record(zenodo: Zenodo, fetch: Fetch) -> None:
    own = {"self": "http://127.0.0.1:1/description", "content": f"{zenodo.api}/42/files/data.zip/content"}
    zenodo.entries["data.zip"] = {"links": own}
    zenodo.form = lambda files: {"entries": {str(f["key"]): f for f in files}}
    assert fetch()["data.zip"].read_bytes() == DATA


def test_second_call_transfers_nothing(zenodo: Zenodo, fetch: Fetch) -> None:
    assert fetch() == fetch()
    assert Counter(zenodo.requests) == {
        ("/api/records/42", None): 2,
        ("/api/records/42/files/data.zip/content", None): 1,
    }


@pytest.mark.parametrize("damage", [b"short", b"x" * len(DATA)])
def test_damaged_cached_file_is_fetched_again(zenodo: Zenodo, fetch: Fetch, damage: bytes) -> None:
    path = fetch()["data.zip"]
    path.write_bytes(damage)
    assert fetch()["data.zip"].read_bytes() == DATA
    assert zenodo.transfers == [None, None]


def test_dropped_connection_is_resumed(zenodo: Zenodo, fetch: Fetch) -> None:
    zenodo.drops = 1
    assert fetch()["data.zip"].read_bytes() == DATA
    assert zenodo.transfers == [None, f"bytes={HALF}-"]
    assert zenodo.sent == len(DATA)


def test_silent_server_times_out(zenodo: Zenodo, fetch: Fetch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "_TIMEOUT", 0.1)
    zenodo.drops = zenodo.stalls = 1
    assert fetch()["data.zip"].read_bytes() == DATA
    assert zenodo.transfers == [None, f"bytes={HALF}-"]


def test_what_arrived_is_kept_for_the_next_call(zenodo: Zenodo, fetch: Fetch, tmp_path: Path) -> None:
    zenodo.drops = 99
    with pytest.raises(DownloadError, match="Run the command again") as caught:
        fetch()
    part = tmp_path / "42" / "data.zip.part"
    kept = part.stat().st_size
    assert HALF < kept < len(DATA)
    assert f"{kept:,} of {len(DATA):,} bytes" in str(caught.value)
    assert str(part) in str(caught.value)
    assert len(zenodo.transfers) == 1 + len(WAITS)

    zenodo.drops = zenodo.sent = 0
    assert fetch()["data.zip"].read_bytes() == DATA
    assert zenodo.transfers[-1] == f"bytes={kept}-"
    assert zenodo.sent == len(DATA) - kept
    assert not part.exists()


def test_interrupt_keeps_what_arrived(
    zenodo: Zenodo, fetch: Fetch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, calls = http.client.HTTPResponse.read1, []

    def interrupted(self: http.client.HTTPResponse, n: int = -1) -> bytes:
        calls.append(n)
        if len(calls) > 1:
            raise KeyboardInterrupt
        return read(self, 1000)

    with monkeypatch.context() as patch:
        patch.setattr(http.client.HTTPResponse, "read1", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fetch()
    assert (tmp_path / "42" / "data.zip.part").read_bytes() == DATA[:1000]
    assert fetch()["data.zip"].read_bytes() == DATA
    assert zenodo.transfers == [None, "bytes=1000-"]


def test_whole_part_is_only_checked(zenodo: Zenodo, fetch: Fetch, tmp_path: Path) -> None:
    (tmp_path / "42").mkdir()
    (tmp_path / "42" / "data.zip.part").write_bytes(DATA)
    assert fetch()["data.zip"].read_bytes() == DATA
    assert zenodo.transfers == []


@pytest.mark.parametrize("left", [DATA[:HALF], b"x" * (len(DATA) + 1)])
def test_server_that_ignores_ranges(zenodo: Zenodo, fetch: Fetch, tmp_path: Path, left: bytes) -> None:
    zenodo.ranges = "ignored"
    (tmp_path / "42").mkdir()
    (tmp_path / "42" / "data.zip.part").write_bytes(left)
    assert fetch()["data.zip"].read_bytes() == DATA
    assert len(zenodo.transfers) == 1


@pytest.mark.parametrize("ranges", ["refused", "shifted"])
def test_server_that_cannot_resume(zenodo: Zenodo, fetch: Fetch, ranges: str) -> None:
    zenodo.ranges, zenodo.drops = ranges, 1
    assert fetch()["data.zip"].read_bytes() == DATA
    assert zenodo.transfers == [None, f"bytes={HALF}-", None]


def test_wrong_checksum_deletes_what_arrived(zenodo: Zenodo, fetch: Fetch, tmp_path: Path) -> None:
    zenodo.entries["data.zip"] = {"checksum": "md5:" + "0" * 32}
    with pytest.raises(DownloadError, match=r"data\.zip.*checksum md5:0+ and was deleted"):
        fetch()
    assert list((tmp_path / "42").iterdir()) == []
    assert len(zenodo.transfers) == 1


@pytest.mark.parametrize("size", [len(DATA) - 1, len(DATA) + 1, 0])
def test_wrong_size(zenodo: Zenodo, fetch: Fetch, tmp_path: Path, size: int) -> None:
    zenodo.entries["data.zip"] = {"size": size}
    with pytest.raises(DownloadError, match=f"sends {len(DATA)} bytes where the record has {size}"):
        fetch()
    assert list((tmp_path / "42").iterdir()) == []
    assert len(zenodo.transfers) == 1


@pytest.mark.parametrize("name", ["../x", "a/b", "/etc/x", "..", ".", "", "a\\b", "C:x", "a/", "a\0b", 7])
def test_unsafe_names_are_refused(zenodo: Zenodo, fetch: Fetch, tmp_path: Path, name: object) -> None:
    zenodo.entries["data.zip"] = {"key": name}
    with pytest.raises(DownloadError, match="refusing the file name"):
        fetch()
    assert len(zenodo.requests) == 1
    assert list((tmp_path / "42").iterdir()) == []


def test_other_schemes_are_refused(zenodo: Zenodo, fetch: Fetch, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(DATA)
    zenodo.entries["data.zip"] = {"links": {"self": secret.as_uri()}}
    with pytest.raises(DownloadError, match="only http and https"):
        fetch()
    with pytest.raises(DownloadError, match="only http and https"):
        fetch_record(43, api="ftp://127.0.0.1/api/records", cache=tmp_path, waits=WAITS)


@pytest.mark.parametrize("place", ["file:///etc/hosts", "ftp://127.0.0.1:1/data.zip"])
def test_redirection_to_other_schemes_is_refused(zenodo: Zenodo, fetch: Fetch, place: str) -> None:
    zenodo.answers = [(302, {"Location": place})]
    with pytest.raises(DownloadError, match=r"not allowed|unknown url type"):
        fetch(waits=())


def test_redirection_is_followed(zenodo: Zenodo, fetch: Fetch) -> None:
    zenodo.drops, zenodo.answers = 1, [(302, {"Location": "/api/records/42"})]
    assert fetch()["data.zip"].read_bytes() == DATA


@pytest.mark.parametrize(
    ("status", "says"), [(401, "not public"), (403, "refuses"), (404, "no such"), (410, "withdrawn"), (418, "HTTP 418")]
)
def test_refusals_are_final(zenodo: Zenodo, fetch: Fetch, tmp_path: Path, status: int, says: str) -> None:
    zenodo.answers = [(status, {})]
    with pytest.raises(DownloadError, match=says) as caught:
        fetch()
    assert f"{zenodo.api}/42: " in str(caught.value)
    assert f"by hand from {zenodo.site}/records/42 into {tmp_path / '42'}" in str(caught.value)
    assert len(zenodo.requests) == 1


def test_missing_file_is_final(zenodo: Zenodo, fetch: Fetch) -> None:
    fetch()["data.zip"].unlink()
    zenodo.answers = [(404, {}), (404, {})]  # for the record, where the kept description stands in, and the file
    with pytest.raises(DownloadError, match=r"data\.zip/content: there is no such"):
        fetch()
    assert len(zenodo.requests) == 4


@pytest.mark.parametrize("status", [429, 500, 503])
def test_passing_trouble_is_waited_out(
    zenodo: Zenodo, fetch: Fetch, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    zenodo.answers = [(status, {}), (status, {"Retry-After": "7"}), (status, {"Retry-After": "9999"})]
    assert fetch(waits=(1, 2, 4))["data.zip"].read_bytes() == DATA
    assert [s for s in slept if s] == [1, 7, 60]


def test_lasting_trouble_ends(zenodo: Zenodo, fetch: Fetch) -> None:
    zenodo.answers = [(503, {})] * 99
    with pytest.raises(DownloadError, match="HTTP 503"):
        fetch()
    assert len(zenodo.requests) == 1 + len(WAITS)


@pytest.mark.parametrize(
    "description",
    [
        b"<html>", b"\xff", b"[]", b"7", b"null", b"{}", b'{"files": 7}', b'{"files": [7]}', b'{"files": {}}',
        b'{"files": [{"key": "a"}]}', b'{"files": [{"key": "a", "links": [], "size": 1, "checksum": "md5:0"}]}',
        b'{"files": [{"key": "a", "links": {"self": "http://x"}, "size": 1, "checksum": "crc:0"}]}',
        b'{"files": [{"key": "a", "links": {"self": "http://x"}, "size": "big", "checksum": "md5:0"}]}',
    ],
)  # fmt: skip
def test_malformed_description(zenodo: Zenodo, fetch: Fetch, tmp_path: Path, description: bytes) -> None:
    zenodo.description = description
    with pytest.raises(DownloadError, match="/api/records/42: this does not describe the files of a record"):
        fetch()
    assert not (tmp_path / "42.json").exists()


def test_record_without_public_files(zenodo: Zenodo, fetch: Fetch) -> None:
    zenodo.files = {}
    with pytest.raises(DownloadError, match="no public files"):
        fetch()


@pytest.mark.parametrize("record", ["../42", "", "4 2", "https://zenodo.org/records/42", -1, "٤٢"])
def test_record_must_be_a_number(record: str | int, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a record number"):
        fetch_record(record, cache=tmp_path)


def test_no_network(fetch: Fetch, tmp_path: Path) -> None:
    with socket.socket() as taken:  # bound but not listening: connections are refused
        taken.bind(("127.0.0.1", 0))
        api = f"http://127.0.0.1:{taken.getsockname()[1]}/api/records"
        with pytest.raises(DownloadError, match=r"refused.*Check the number 42 and the network"):
            fetch(api=api)


def test_kept_description_serves_without_network(
    zenodo: Zenodo, fetch: Fetch, caplog: pytest.LogCaptureFixture
) -> None:
    paths = fetch()
    zenodo.stop()
    assert fetch(waits=(99,)) == paths
    assert "Using the description saved in" in caplog.text
    paths["data.zip"].unlink()
    with pytest.raises(DownloadError, match="0 of 102,400 bytes"):
        fetch()


def test_two_at_once_download_once(zenodo: Zenodo, fetch: Fetch) -> None:
    zenodo.pause = 0.05
    results: list[dict[str, Path]] = []
    threads = [threading.Thread(target=lambda: results.append(fetch())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    assert results[0]["data.zip"].read_bytes() == DATA
    assert zenodo.transfers == [None]


def test_waiting_for_another_process_is_shown(fetch: Fetch, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    thread = threading.Thread(target=fetch)
    with only_one(tmp_path / "42.lock"):
        thread.start()
        for _ in range(600):
            if "Waiting for another process that downloads the same files" in caplog.text:
                break
            time.sleep(0.01)
        else:
            pytest.fail("no message")
        assert thread.is_alive()
    thread.join()
    assert (tmp_path / "42" / "data.zip").read_bytes() == DATA
    caplog.clear()
    fetch()
    assert caplog.text == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_full_disk(fetch: Fetch, tmp_path: Path) -> None:
    (tmp_path / "42").mkdir()
    (tmp_path / "42" / "data.zip.part").symlink_to("/dev/full")
    with pytest.raises(StorageError, match=r"No space left on device.*EVERGRAPH_CACHE.*Free disk space"):
        fetch()


def test_cache_that_is_no_folder(fetch: Fetch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"file.*EVERGRAPH_CACHE"):
        fetch(cache=tmp_path / "file")


@pytest.mark.parametrize(("quiet", "terminal"), [(False, True), (True, True), (False, False)])
def test_progress_only_on_a_terminal(
    fetch: Fetch, quiet: bool, terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = io.StringIO()
    screen.isatty = lambda: terminal  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stderr", screen)
    fetch(quiet=quiet)
    assert ("data.zip" in screen.getvalue()) == (terminal and not quiet)


def test_cache_folder(monkeypatch: pytest.MonkeyPatch, zenodo: Zenodo, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.delenv("EVERGRAPH_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    assert cache_folder() == Path("/home/me/.cache/evergraph")
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/me")
    assert cache_folder() == Path("/var/me/evergraph")
    monkeypatch.setenv("EVERGRAPH_CACHE", str(tmp_path))
    assert fetch_record("42", api=zenodo.api) == {"data.zip": tmp_path / "42" / "data.zip"}


def zipped(path: Path, *members: tuple[str | zipfile.ZipInfo, str]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in members:
            archive.writestr(name, text)
    return path


def test_unpack(tmp_path: Path) -> None:
    archive = zipped(tmp_path / "a.zip", ("top.txt", "1"), ("sub/", ""), ("sub/deep/x.txt", "2"))
    into = tmp_path / "new" / "folder"
    assert unpack(archive, into) == into
    assert sorted(str(p.relative_to(into)) for p in into.rglob("*")) == ["sub", "sub/deep", "sub/deep/x.txt", "top.txt"]
    assert [p.name for p in into.parent.iterdir()] == ["folder"]
    assert stat.S_IMODE(into.stat().st_mode) == stat.S_IMODE(into.parent.stat().st_mode)

    before = (into / "top.txt").stat()
    assert unpack(archive, into) == into
    assert (into / "top.txt").stat() == before
    (into / "top.txt").write_text("changed")
    with pytest.raises(InputError, match="is not what"):
        unpack(archive, into)


def test_unpack_by_several_at_once(tmp_path: Path) -> None:
    archive = zipped(tmp_path / "a.zip", *((f"{i}.txt", "x" * 999) for i in range(50)))
    results: list[Path] = []
    threads = [threading.Thread(target=lambda: results.append(unpack(archive, tmp_path / "into"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [tmp_path / "into"] * 4
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.zip", "into"]


def link(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.create_system, info.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
    return info


@pytest.mark.parametrize(
    "member", ["../out.txt", "/out.txt", "a/../../out.txt", "..\\out.txt", "C:out.txt", "a//b", link("link")]
)
def test_unpack_refuses_unsafe_members(tmp_path: Path, member: str | zipfile.ZipInfo) -> None:
    archive = zipped(tmp_path / "a.zip", ("good.txt", "1"), (member, "/etc"))
    with pytest.raises(DownloadError, match="refusing the unsafe member"):
        unpack(archive, tmp_path / "in" / "to")
    assert list(tmp_path.iterdir()) == [archive]


def test_unpack_leaves_nothing_half_done(tmp_path: Path) -> None:
    archive = zipped(tmp_path / "a.zip", ("good.txt", "1"), ("bad.txt", "payload"))
    archive.write_bytes(archive.read_bytes().replace(b"payload", b"damaged"))
    with pytest.raises(DownloadError, match=r"a\.zip: cannot be unpacked.*CRC"):
        unpack(archive, tmp_path / "into")
    archive.write_bytes(b"not a zip")
    with pytest.raises(DownloadError, match=r"a\.zip: cannot be unpacked"):
        unpack(archive, tmp_path / "into")
    archive.unlink()
    with pytest.raises(InputError, match=r"a\.zip: there is no such archive"):
        unpack(archive, tmp_path / "into")
    assert list(tmp_path.iterdir()) == []


def test_unpack_refuses_archives_that_are_much_larger_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "a.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as content:
        for name in ("1.txt", "2.txt"):
            with content.open(name, "w") as member:
                for _ in range(130):
                    member.write(bytes(1_000_000))
    assert archive.stat().st_size < 300_000
    refused = r"a\.zip: the archive has 2\d\d,\d{3} bytes, but unpacks to 260,000,000; the limit is 256,000,000"
    with pytest.raises(InputError, match=refused + r".*EVERGRAPH_MAX_UNPACKED, in GB, to more than 0\.26"):
        unpack(archive, tmp_path / "into")
    assert [path.name for path in tmp_path.iterdir()] == ["a.zip"]
    monkeypatch.setenv("EVERGRAPH_MAX_UNPACKED", "1")
    assert (unpack(archive, tmp_path / "into") / "2.txt").stat().st_size == 130_000_000
    monkeypatch.setenv("EVERGRAPH_MAX_UNPACKED", "much")
    with pytest.raises(InputError, match=r"EVERGRAPH_MAX_UNPACKED is 'much'.*Set it to a number of GB"):
        unpack(archive, tmp_path / "into")


def test_unpack_refuses_other_compressions_than_deflate(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_LZMA) as content:
        content.writestr("a.txt", "text")
    with pytest.raises(DownloadError, match=r"a\.zip: is not compressed with deflate.*Unpack it by hand"):
        unpack(tmp_path / "a.zip", tmp_path / "into")
