from __future__ import annotations

import hashlib
import io
import json
import pickle
import threading
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from evergraph.datasets import published
from evergraph.datasets.download import fetch_record
from evergraph.datasets.published import fetch_published, load_published, read_published
from evergraph.errors import DownloadError, InputError
from evergraph.graph.features import Numbers, SparseFeatures

ADJLIST = "# written by hand\n3 0  1\t\n\n1 3 3 # a note\n0 0\r\n2\n"
ARRAYS: dict[str, Any] = {
    "X": np.diag([0.5, 0, 2, -1, 1]),
    "y": np.array([2, 0, -1, 2, 0]),
    "t": np.array([2003, 2001, 2002, 2001, 2004]),
}


def write(folder: Path, adjlist: str = ADJLIST, **arrays: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "adjlist.txt").write_text(adjlist, newline="")
    for name, values in (ARRAYS | arrays).items():
        np.save(folder / f"{name}.npy", values)
    return folder


def test_vertices_keep_their_rows(tmp_path: Path) -> None:
    graph = read_published(write(tmp_path / "tiny"))
    assert list(graph.ids) == [1, 3, 2, 0, 4]
    assert graph.times.tolist() == [2001, 2001, 2002, 2003, 2004]
    assert graph.labels.tolist() == ["0", "2", None, "2", "0"]
    assert isinstance(graph.features.words, SparseFeatures)
    assert graph.features.words.matrix.toarray().tolist() == ARRAYS["X"][[1, 3, 2, 0, 4]].tolist()
    ends = {frozenset((int(graph.ids[a]), int(graph.ids[b]))) for a, b, *_ in zip(*graph.links.ends()[:2], strict=True)}
    assert ends == {frozenset({3, 0}), frozenset({3, 1})}
    assert graph.about == {"source": "tiny, in the format of Zenodo record 3764770"}


@pytest.mark.parametrize("seed", range(5))
def test_adjacency_lists_read_as_networkx_reads_them(tmp_path: Path, seed: int) -> None:
    networkx = pytest.importorskip("networkx")
    rng = np.random.default_rng(seed)
    known = networkx.gnm_random_graph(60, 150, seed=seed, directed=bool(seed % 2))
    networkx.write_adjlist(known, tmp_path / "ordered.txt")
    lines = (tmp_path / "ordered.txt").read_text().splitlines()
    shuffled = "\n".join(lines[row] for row in rng.permutation(len(lines)))
    features = rng.random((60, 3))
    graph = read_published(write(tmp_path, shuffled, X=features, y=np.zeros(60), t=rng.integers(0, 9, 60)))

    expected = networkx.read_adjlist(tmp_path / "adjlist.txt", nodetype=int)
    assert list(expected) != sorted(expected)  # so that order of encounter would be wrong
    found = networkx.Graph()
    found.add_nodes_from(graph.ids.tolist())
    found.add_edges_from(zip(graph.ids[graph.links.ends()[0]], graph.ids[graph.links.ends()[1]], strict=True))
    assert networkx.utils.graphs_equal(found, networkx.Graph(known))
    assert {frozenset(edge) for edge in expected.edges} == {frozenset(edge) for edge in found.edges}
    assert graph.features.numbers.values == pytest.approx(features[graph.ids])


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing\n"])
def test_a_graph_may_have_no_edges(tmp_path: Path, text: str) -> None:
    assert read_published(write(tmp_path, text)).n_edges == 0


def test_classes_are_named_by_the_file_of_names(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "label2index.json").write_text('{"KDD": 2, "größer": 0, "unused": 7}', encoding="utf-8")
    graph = read_published(tmp_path)
    assert graph.labels.tolist() == ["größer", "KDD", None, "KDD", "größer"]
    assert graph.class_names == ("größer", "KDD")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"KDD": 2}', "there is no name for class 0"),
        ('{"KDD": 2, "ICML": 2, "ECML": 0}', "not one whole number per class"),
        ('{"KDD": 2.5, "ICML": 0}', "not one whole number per class"),
        ('{"KDD": [2], "ICML": 0}', "holds no class numbers"),
        ('["KDD", "ICML"]', "holds no class numbers"),
        ('{"KDD": ', "holds no class numbers"),
        ("\xff", "holds no class numbers"),
    ],
)
def test_a_bad_file_of_names_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    write(tmp_path)
    (tmp_path / "label2index.json").write_text(text, encoding="latin1")
    with pytest.raises(InputError, match=rf"label2index\.json: .*{problem}.*or remove the file"):
        read_published(tmp_path)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int8, np.uint64, bool])
@pytest.mark.parametrize("order", ["C", "F"])
def test_features_of_any_kind_of_number_and_order(tmp_path: Path, dtype: type, order: Any) -> None:
    values = np.array(np.arange(15).reshape(5, 3), dtype=dtype, order=order)
    graph = read_published(write(tmp_path, X=values))
    assert isinstance(graph.features.numbers, Numbers)
    assert graph.features.numbers.values.tolist() == values.astype(np.float32)[graph.ids].tolist()


@pytest.mark.parametrize("shape", [(5,), (5, 1)])
@pytest.mark.parametrize("dtype", [np.int16, np.float64])
def test_labels_and_times_of_any_kind_of_number(tmp_path: Path, shape: tuple[int, ...], dtype: type) -> None:
    columns = {name: ARRAYS[name].astype(dtype).reshape(shape) for name in "yt"}
    graph = read_published(write(tmp_path, **columns))
    assert graph.times.tolist() == [2001, 2001, 2002, 2003, 2004]
    assert graph.labels.tolist() == ["0", "2", None, "2", "0"]


def test_few_features_are_kept_sparse_whatever_the_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = sparse.random_array((50, 20), density=0.2, rng=np.random.default_rng(1)).toarray()
    write(tmp_path, "", X=values, y=np.zeros(50), t=np.zeros(50))
    for block in (1, 999, 1 << 26):
        monkeypatch.setattr(published, "_BLOCK", block)
        features = read_published(tmp_path).features.words
        assert isinstance(features, SparseFeatures)
        assert features.matrix.toarray().tolist() == values.astype(np.float32).tolist()
        assert list(features.columns) == [str(column) for column in range(20)]


@pytest.mark.parametrize(("filled", "kind"), [(24, SparseFeatures), (25, Numbers)])
def test_a_quarter_filled_is_dense(tmp_path: Path, filled: int, kind: type) -> None:
    values = (np.arange(100) < filled).reshape(10, 10).astype(float)
    features = read_published(write(tmp_path, "", X=values, y=np.zeros(10), t=np.zeros(10))).features.main
    assert isinstance(features, kind)


def test_features_are_never_in_memory_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, columns = 5_000, 2_000
    write(tmp_path, "", y=np.zeros(rows), t=np.zeros(rows))
    values = np.lib.format.open_memmap(tmp_path / "X.npy", "w+", np.float64, (rows, columns))
    values[::7, 5] = 1
    values.flush()
    del values
    monkeypatch.setattr(published, "_BLOCK", 1 << 20)
    tracemalloc.start()
    try:
        graph = read_published(tmp_path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert graph.features.words.matrix.sum() == len(range(0, rows, 7))
    assert peak < rows * columns * 8 / 10


@pytest.mark.parametrize("file", ["adjlist.txt", "X.npy", "y.npy", "t.npy"])
def test_a_missing_file_is_named(tmp_path: Path, file: str) -> None:
    (write(tmp_path) / file).unlink()
    with pytest.raises(InputError, match=rf"{file}: the file cannot be read \(No such file.*Take adjlist\.txt, X\.npy"):
        read_published(tmp_path)


@pytest.mark.parametrize(
    ("arrays", "problem"),
    [
        ({"X": np.ones((4, 2))}, r"y\.npy: its shape is \(5,\), but X\.npy has 4 rows.*from one data set"),
        ({"y": np.zeros(6)}, r"y\.npy: its shape is \(6,\), but X\.npy has 5 rows"),
        ({"t": np.zeros((5, 2))}, r"t\.npy: its shape is \(5, 2\), but X\.npy has 5 rows"),
        ({"X": np.zeros(5)}, r"X\.npy: its shape is \(5,\)\. Save one row for each vertex"),
        ({"X": np.zeros((0, 3))}, r"X\.npy: "),
        ({"X": np.zeros((5, 0))}, r"X\.npy: "),
        ({"X": np.full((5, 2), np.inf)}, r"X\.npy, column '0', row 1: a feature is infinite"),
        ({"X": np.diag([0, 0, np.nan, 0, 0])}, r"X\.npy, column '2', row 3: a feature is missing"),
        ({"X": np.diag([0, 1e300, 0, 0, 0])}, r"X\.npy, column '1', row 2: a feature is missing"),
        ({"X": np.full((5, 2), -1e300)}, r"X\.npy, column '0', row 1: a feature is infinite or too large"),
        ({"X": np.full((5, 2), 1j)}, r"X\.npy: an array of complex128 holds no numbers"),
        ({"y": np.array(["a"] * 5)}, r"y\.npy: an array of <U1 holds no numbers"),
        ({"y": np.array([0, 1, np.nan, 0, 0])}, r"y\.npy, row 3: nan is not a whole number"),
        ({"y": np.array([0, 0.5, 0, 0, 0])}, r"y\.npy, row 2: 0\.5 is not a whole number"),
        ({"t": np.array([0, np.inf, 0, 0, 0])}, r"t\.npy, row 2: inf is not a whole number"),
        ({"t": np.array([1e200, 1, 1, 1, 1])}, r"t\.npy, row 1: 1e\+200 is not a whole number"),
        ({"t": np.array([2000, -1, 0, 0, 0])}, r"column 't\.npy', row 2: -1 is negative"),
        ({"t": np.array([2000, 2001, 900_000, 2002, 2003])}, r"column 't\.npy', row 3: time 900000 is far"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(tmp_path: Path, arrays: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        read_published(write(tmp_path, **arrays))


@pytest.mark.parametrize("file", ["X.npy", "y.npy", "t.npy"])
def test_pickles_and_damaged_arrays_are_refused(tmp_path: Path, file: str) -> None:
    path = write(tmp_path) / file
    whole = path.read_bytes()
    objects, archive = io.BytesIO(), io.BytesIO()
    np.save(objects, np.array([print] * 5), allow_pickle=True)
    np.savez(archive, values=np.zeros(5))
    pickled = pickle.dumps(np.zeros(5))
    for content in (objects.getvalue(), archive.getvalue(), pickled, b"", whole[:-8], whole[:40], b"<html></html>"):
        path.write_bytes(content)
        with pytest.raises(InputError, match=rf"{file}: the file holds no array of numbers.*with numpy\.save"):
            read_published(tmp_path)


@pytest.mark.parametrize(
    ("adjlist", "problem"),
    [
        ("# head\n\n0 1\n2 x3\n", r"row 2 \(line 4\): 'x3' is not the number of a vertex.*Write whole numbers"),
        ("0 1.0", r"row 1 \(line 1\): '1\.0' is not the number"),
        ("0 0x1", r"'0x1' is not the number"),
        ("0,1", r"'0,1' is not the number"),
        ("0 é", r"is not the number"),
        ("0 99999999999999999999", r"'99999999999999999999' is not the number"),
        ("0 1\n4 5\n", r"row 2 \(line 2\): vertex 5 is not a row of X\.npy, which has 5.*from one data set"),
        ("0 1\n\n-1 0\n", r"row 2 \(line 3\): vertex -1 is not a row of X\.npy"),
    ],
)
def test_bad_adjacency_lists_are_told_with_their_line(tmp_path: Path, adjlist: str, problem: str) -> None:
    with pytest.raises(InputError, match=rf"adjlist\.txt, {'.*' * (not problem.startswith('row'))}{problem}"):
        read_published(write(tmp_path, adjlist))


# ---- fetching


def archive(**folders: str) -> bytes:
    """A zip archive of folders with one adjacency list each, and the arrays of the small data set."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as content:
        for folder, adjlist in folders.items():
            content.writestr(f"{folder}/adjlist.txt".lstrip("./"), adjlist)
            for name, values in ARRAYS.items():
                stream = io.BytesIO()
                np.save(stream, values)
                content.writestr(f"{folder}/{name}.npy".lstrip("./"), stream.getvalue())
    return out.getvalue()


@pytest.fixture
def zenodo(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., str]]:
    """Serve a record with these files, of which ``drops`` transfers break half-way; the address is returned."""
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(published, "fetch_record", partial(fetch_record, waits=(0, 0)))
    files: dict[str, bytes] = {}
    drops = [0]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.rpartition("/")[2]
            if name == "3764770":
                host = f"http://127.0.0.1:{self.server.server_port}"
                entries = [
                    {
                        "key": key,
                        "size": len(data),
                        "checksum": "md5:" + hashlib.md5(data).hexdigest(),
                        "links": {"self": f"{host}/files/{key}"},
                    }
                    for key, data in files.items()
                ]
                body, start, cut = json.dumps({"files": entries}).encode(), 0, False
            else:
                body, cut = files[name], drops[0] > 0
                start = int((self.headers["Range"] or "bytes=0-")[6:-1])
                drops[0] -= cut
            self.send_response(206 if start else 200)
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
            self.send_header("Content-Length", str(len(body) - start))
            self.end_headers()
            self.wfile.write(body[start : start + (len(body) - start) // 2] if cut else body[start:])

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.005,))
    thread.start()

    def serve(record: dict[str, bytes], broken: int = 0) -> str:
        files.update(record)
        drops[0] = broken
        return f"http://127.0.0.1:{server.server_port}/api/records"

    yield serve
    server.shutdown()
    server.server_close()
    thread.join()


Zenodo = Callable[..., str]


@pytest.mark.parametrize(
    "record",
    [
        {
            "dblp-hard-citation-graph.zip": archive(**{"dblp-hard": "0 1"}),
            "dblp-easy-citation-graph.zip": archive(**{"dblp-easy": "0 1 2 3"}),
            "readme-dblp-easy.txt": b"hello",
        },
        {"DBLP_Easy.ZIP": archive(**{".": "0 1 2 3"}), "dblp_hard.zip": archive(**{".": "0 1"})},
        {"data.zip": archive(**{"data/PharmaBio": "", "data/DBLP_hard": "0 1", "data/DBLPeasy": "0 1 2 3"})},
    ],
    ids=["one archive each", "no folders", "all in one"],
)
def test_a_data_set_is_found_in_the_record(zenodo: Zenodo, tmp_path: Path, record: dict[str, bytes]) -> None:
    api = zenodo(record)
    folder = fetch_published("dblp-easy", cache=tmp_path, api=api, quiet=True)
    assert folder.is_relative_to(tmp_path / "3764770")
    assert read_published(folder).n_edges == 3
    assert load_published("dblp-hard", cache=str(tmp_path), api=api, quiet=True).n_edges == 1
    assert fetch_published("dblp-easy", cache=tmp_path, api=api) == folder


def test_a_broken_transfer_goes_on(zenodo: Zenodo, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    api = zenodo({"pharmabio.zip": archive(pharmabio=ADJLIST)}, broken=1)
    assert load_published("pharmabio", cache=tmp_path, api=api, quiet=True).n_edges == 2
    assert "Trying again" in caplog.text


def test_what_is_fetched_needs_no_network_again(
    zenodo: Zenodo, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = fetch_published("pharmabio", cache=tmp_path, api=zenodo({"pharmabio.zip": archive(pharmabio="0 1")}))
    assert fetch_published("pharmabio", cache=tmp_path, api="http://127.0.0.1:9/api/records") == folder
    assert "Using the description saved" in caplog.text


def test_a_connection_that_keeps_breaking_is_told(zenodo: Zenodo, tmp_path: Path) -> None:
    api = zenodo({"pharmabio.zip": archive(pharmabio=ADJLIST)}, broken=9)
    with pytest.raises(DownloadError, match=r"closed early.*kept in .*by hand"):
        fetch_published("pharmabio", cache=tmp_path, api=api, quiet=True)


@pytest.mark.parametrize(
    "record", [{"other.zip": archive(other="")}, {"pharmabio.zip": b"no archive"}, {"pharmabio": b""}]
)
def test_a_record_without_the_data_set_is_told(zenodo: Zenodo, tmp_path: Path, record: dict[str, bytes]) -> None:
    with pytest.raises(DownloadError, match=rf"holds no data set pharmabio, only {next(iter(record))}\. Look"):
        fetch_published("pharmabio", cache=tmp_path, api=zenodo(record), quiet=True)


def test_a_folder_comes_before_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "dblp-easy")
    monkeypatch.chdir(tmp_path)
    assert len(load_published("dblp-easy")) == 5
    assert len(load_published(tmp_path / "dblp-easy")) == 5


def test_unknown_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no published data set 'cora'.*Choose from: dblp-easy, dblp-hard, pharmabio"):
        fetch_published("cora", cache=tmp_path)
    with pytest.raises(InputError, match=r"neither a folder nor a published data set .*nowhere'.*one of: dblp-easy"):
        load_published(tmp_path / "nowhere")
