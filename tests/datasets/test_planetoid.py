from __future__ import annotations

import pickle
import struct
import subprocess
import sys
import tracemalloc
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from evergraph import EvolvingGraph
from evergraph.datasets.planetoid import _PickleReader, planetoid_test, read_planetoid
from evergraph.errors import InputError

SharedData = Callable[[str], Path]

# Train vertices, train edges, unseen vertices, unseen edges and test vertices, as in the paper's table of static data
# sets; for Cora, whose split in the paper is another, as counted once.
COUNTS = {
    ("citeseer", "A"): (620, 139, 2_707, 4_413, 1_000),
    ("citeseer", "B"): (2_707, 2_939, 620, 1_613, 620),
    ("pubmed", "A"): (560, 34, 19_157, 44_290, 1_000),
    ("pubmed", "B"): (19_157, 41_858, 560, 2_466, 560),
    ("cora", "A"): (640, 345, 2_068, 4_933, 1_000),
    ("cora", "B"): (2_068, 3_037, 640, 2_241, 640),
}


@pytest.mark.parametrize(("name", "split"), COUNTS)
def test_splits_have_the_counts_of_the_paper(shared_data: SharedData, name: str, split: str) -> None:
    folder = shared_data("planetoid")
    graph, test = read_planetoid(folder, name, split=split), planetoid_test(folder, name, split)
    train = graph.up_to(0)
    unseen = len(graph) - len(train), graph.n_edges - train.n_edges
    assert (len(train), train.n_edges, *unseen, len(test)) == COUNTS[name, split]
    assert (graph.first_time, graph.last_time) == (0, 1)
    rows = graph.find(test.tolist())
    assert (graph.times[rows] == 1).all()
    assert (graph.codes[rows] >= 0).all()
    assert f"{split}: " in graph.about["split"]
    assert ("not the paper's 140 + 300" in graph.about["split"]) == (name == "cora")


@pytest.mark.parametrize(
    ("name", "vertices", "edges", "words", "sizes"),
    [
        ("cora", 2_708, 5_278, 1_433, [351, 217, 418, 818, 426, 298, 180]),
        ("citeseer", 3_327, 4_552, 3_703, [249, 590, 668, 701, 596, 508]),
        ("pubmed", 19_717, 44_324, 500, [4_103, 7_739, 7_875]),
    ],
)
def test_graphs_have_the_published_sizes(
    shared_data: SharedData, name: str, vertices: int, edges: int, words: int, sizes: list[int]
) -> None:
    graph = read_planetoid(shared_data("planetoid"), name)
    assert (len(graph), graph.n_edges, graph.features.words.width) == (vertices, edges, words)
    assert list(graph.ids) == list(range(vertices))
    assert list(graph.features.words.columns[:2]) == ["0", "1"]
    support = dict(zip(graph.class_names, graph.classes.support.tolist(), strict=True))
    assert [support[str(number)] for number in range(len(sizes))] == sizes


def test_citeseer_keeps_vertices_of_which_only_edges_are_known(shared_data: SharedData) -> None:
    graph = read_planetoid(shared_data("planetoid"), "citeseer")
    bare = np.flatnonzero(np.diff(graph.features.words.indptr) == 0)
    assert len(bare) == 15
    assert bare.tolist() == np.flatnonzero(graph.codes < 0).tolist()
    assert not np.isin(bare, planetoid_test(shared_data("planetoid"), "citeseer")).any()


@pytest.mark.filterwarnings("ignore:.*csr_matrix:DeprecationWarning")
def test_features_and_classes_follow_the_usual_loader(shared_data: SharedData) -> None:
    """Unpickle without care, as everyone else does, and put the test rows where the index says."""
    folder = shared_data("planetoid")

    def load(part: str) -> Any:
        return pickle.loads((folder / f"ind.cora.{part}").read_bytes(), encoding="latin1")

    features = sparse.vstack([load("allx"), load("tx")]).tolil()
    classes = np.vstack([load("ally"), load("ty")])
    index = np.loadtxt(folder / "ind.cora.test.index", dtype=int)
    features[index], classes[index] = features[np.sort(index)], classes[np.sort(index)]

    graph = read_planetoid(folder, "cora", split="B")
    assert list(graph.ids[[0, 2067, 2068]]) == [640, 2707, 0]
    assert (graph.features.words.matrix != features.tocsr()[graph.ids]).nnz == 0
    assert graph.labels.tolist() == [str(number) for number in classes.argmax(axis=1)[graph.ids]]


# A small data set in the same form: 2 + 500 vertices to train on, one more, and test vertices 503, 504 and 506.

FIRST, TEST = 503, [506, 503, 504]


ROW = list(range(500))


def parts() -> dict[str, Any]:
    rng = np.random.default_rng(3)
    graph: dict[int, list[int]] = defaultdict(list, {vertex: [] for vertex in range(507)})
    graph[0], graph[505], graph[506] = [1, 1, 0], [2], [0]
    return {
        "y": np.eye(2, dtype=np.int32),
        "allx": sparse.csr_matrix(rng.integers(0, 2, (FIRST, 4)).astype(np.float32)),
        "ally": np.eye(2, dtype=np.int32)[np.arange(FIRST) % 2],
        "tx": sparse.csr_matrix(np.eye(3, 4, dtype=np.float32)),
        "ty": np.eye(2, dtype=np.int32)[[1, 0, 0]],
        "graph": graph,
    }


def write(folder: Path, **changed: Any) -> Path:
    for part, content in (parts() | changed).items():
        (folder / f"ind.cora.{part}").write_bytes(pickle.dumps(content, protocol=2))
    (folder / "ind.cora.test.index").write_text("\n".join(map(str, TEST)))
    return folder


def test_test_rows_go_where_the_index_says(tmp_path: Path) -> None:
    graph = read_planetoid(write(tmp_path), "cora")
    assert (len(graph), graph.n_edges) == (507, 3)
    assert graph.labels[503:].tolist() == ["0", "0", None, "1"]
    assert graph.features.words.matrix[503:].toarray().tolist() == [
        [0, 1, 0, 0],
        [0, 0, 1, 0],
        [0, 0, 0, 0],
        [1, 0, 0, 0],
    ]
    assert (graph.features.words.matrix[:503] != parts()["allx"]).nnz == 0
    assert graph.times.tolist() == [0] * 502 + [1] * 5
    assert planetoid_test(tmp_path, "cora").tolist() == [503, 504, 506]
    assert planetoid_test(tmp_path, "cora", "B").tolist() == list(range(502))


def test_a_graph_survives_saving(tmp_path: Path) -> None:
    graph = read_planetoid(write(tmp_path), "cora", split="B")
    graph.save(tmp_path / "saved")
    saved = EvolvingGraph.open(tmp_path / "saved")
    assert list(saved.ids) == list(graph.ids)
    assert saved.about == graph.about


class Calls:
    """Pickled, this is a call of any function."""

    def __init__(self, function: Callable[..., object], *arguments: object, state: object = None) -> None:
        self.call = function, arguments, state

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...], object]:
        return self.call


def test_code_in_a_pickle_is_refused_and_not_run(tmp_path: Path) -> None:
    import os

    target = tmp_path / "was-run"
    write(tmp_path, graph=Calls(os.system, f"touch {target}"))
    refused = r"ind\.cora\.graph: this pickle uses (posix|nt)\.system, .*not read.*Do not trust.*ind\.cora\.\*"
    with pytest.raises(InputError, match=refused):
        read_planetoid(tmp_path, "cora")
    assert not target.exists()


@pytest.mark.parametrize("function", [eval, getattr, __import__, np.load, np.testing.assert_equal, pickle.loads])
def test_other_functions_are_refused(tmp_path: Path, function: Callable[..., object]) -> None:
    with pytest.raises(InputError, match="which could run code, and was not read"):
        read_planetoid(write(tmp_path, ally=Calls(function, "1")), "cora")


def text(value: bytes) -> bytes:
    return b"U" + bytes([len(value)]) + value


def objects_from_bytes() -> bytes:
    """A pickle of an array of objects whose addresses are in the file: its type has the flags 0."""
    new_array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + text(b"b") + b"\x87R"
    kind = b"cnumpy\ndtype\n" + text(b"O8") + b"K\x00K\x01\x87R"
    flags = b"(K\x03" + text(b"|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    state = (
        b"(K\x01K\x02K\x02\x86" + kind + flags + b"\x89" + text(struct.pack("<4Q", *[0x4141414141414141] * 4)) + b"tb"
    )
    return b"\x80\x02" + new_array + state + b"."


def nested(levels: int) -> bytes:
    """A pickle of a list that holds the list before it twice, and so on."""
    twice = b"".join(
        b"](h" + bytes([level]) + b"h" + bytes([level]) + b"eq" + bytes([level + 1]) for level in range(levels)
    )
    return b"\x80\x02](K\x00K\x01eq\x00" + twice + b"."


LIMITED = """
import resource, sys
from evergraph.datasets.planetoid import read_planetoid
from evergraph.errors import InputError
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 500_000_000,) * 2)
try:
    read_planetoid(sys.argv[1], "cora")
except InputError as error:
    print(error)
    print(type(error.__context__).__name__)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits memory as Linux does")
@pytest.mark.parametrize("part", ["ally", "graph"])
@pytest.mark.parametrize(
    "content",
    [
        objects_from_bytes(),
        b"\x80\x02Nr\xff\xff\xff\x1f.",  # a memo of 8 GB
        nested(28),
        nested(28)[:-1] + text(b"a") + b"\x93.",  # the name of a function is a list
        b"\x80\x02" + b"T\xff\xff\xff\x7f.",
        b"\x80\x04\x8e" + struct.pack("<Q", 2**40) + b".",
    ],
    ids=["objects", "memo", "nested", "name", "string", "bytes"],
)
def test_pickles_made_to_corrupt_or_exhaust_memory_are_refused(tmp_path: Path, part: str, content: bytes) -> None:
    (write(tmp_path) / f"ind.cora.{part}").write_bytes(content)
    done = subprocess.run([sys.executable, "-c", LIMITED, tmp_path], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"ind.cora.{part}: the file is damaged" in done.stdout
    assert "MemoryError" not in done.stdout


def array(values: Any, **changed: Any) -> Any:
    """An array whose pickled state differs in some places."""
    rebuild, arguments, state = np.asarray(values).__reduce__()
    names = ("version", "shape", "dtype", "fortran", "raw")
    state = tuple(changed.get(name, old) for name, old in zip(names, state, strict=True))
    return Calls(rebuild, *arguments, state=state)


@pytest.mark.parametrize(
    ("part", "content"),
    [
        ("ally", array(np.eye(2), shape=(2**40, 2))),
        ("ally", array(np.eye(2)[:0], shape=(0, 2**40), raw="")),
        ("ally", array(np.eye(2), shape=(-1, 2))),
        ("ally", array(np.eye(2), raw=["a", "b", "c", "d"])),
        ("ally", array(np.eye(2), dtype=np.dtype("f16"))),
        ("ally", array(np.eye(2), dtype=np.dtype([("a", "f8")]))),
        ("ally", np.array([[None, print]])),
        ("ally", [[1, 0]] * FIRST),
        ("tx", sparse.csr_matrix(([1.0], ([0], [0])), shape=(3, 2**40))),
        ("graph", dict.fromkeys(range(507), ROW)),
        ("graph", parts()["graph"] | {3: "12"}),
        ("graph", parts()["graph"] | {3: [2**80]}),
    ],
)
def test_memory_is_bounded_by_the_size_of_the_file(tmp_path: Path, part: str, content: Any) -> None:
    write(tmp_path, **{part: content})
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match=rf"ind\.cora\.{part}: (the file is damaged|this pickle uses)"):
            read_planetoid(tmp_path, "cora")
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("protocol", [2, 3, 4])
@pytest.mark.parametrize("kind", [">f8", "<f4", ">i2", "u1"])
def test_protocols_and_number_types(tmp_path: Path, protocol: int, kind: str) -> None:
    expected = read_planetoid(write(tmp_path), "cora")
    for part, content in parts().items():
        if isinstance(content, np.ndarray):
            content = np.asfortranarray(content.astype(kind))
        elif part != "graph":
            content = content.astype(kind.replace(">", "<"))
        (tmp_path / f"ind.cora.{part}").write_bytes(pickle.dumps(content, protocol=protocol))
    graph = read_planetoid(tmp_path, "cora")
    assert graph.labels.tolist() == expected.labels.tolist()
    assert (graph.features.words.matrix != expected.features.words.matrix).nnz == 0


@pytest.mark.filterwarnings("ignore:.*csr_matrix:DeprecationWarning")
@pytest.mark.parametrize("name", ["cora", "citeseer", "pubmed"])
def test_every_file_is_read_as_python_reads_it(shared_data: SharedData, name: str) -> None:
    for part in ("x", "y", "allx", "ally", "tx", "ty", "graph"):
        path = shared_data("planetoid") / f"ind.{name}.{part}"
        data = path.read_bytes()
        found, expected = _PickleReader(path, data).read(), pickle.loads(data, encoding="latin1")
        if part == "graph":
            assert list(found.items()) == list(expected.items())
            continue
        arrays = [(found, expected)]
        if part.endswith("x"):
            assert found.state["_shape"] == expected.shape
            arrays = [(found.state[field], getattr(expected, field)) for field in ("data", "indices", "indptr")]
        for ours, theirs in arrays:
            assert (ours.values.dtype, ours.values.shape) == (theirs.dtype, theirs.shape)
            assert ours.values.tobytes() == theirs.tobytes()


def crooked(**fields: Any) -> sparse.csr_matrix:
    matrix = parts()["tx"]
    vars(matrix).update(fields)
    return matrix


@pytest.mark.parametrize(
    ("part", "content", "problem"),
    [
        ("allx", [1, 2], "the file is damaged"),
        ("allx", np.ones((FIRST, 4)), "the file is damaged"),
        ("allx", parts()["tx"], r"its shape is \(3,\), but according to the other files it should be \(503,\)"),
        ("tx", crooked(indices=np.array([0, 1, 9], np.int32)), "the file is damaged"),
        ("tx", crooked(indptr=np.array([0, 1, 2, 7], np.int32)), "the file is damaged"),
        ("tx", crooked(data=np.array([1, np.nan, 1])), "the file is damaged .*missing or infinite"),
        ("tx", crooked(_shape=(3,)), "the file is damaged"),
        ("tx", sparse.csr_matrix(np.eye(3, 5)), r"its shape is \(3, 5\), but"),
        ("ty", np.eye(2), r"its shape is \(2,\), but"),
        ("ally", np.ones((FIRST, 2)), "not one class per row"),
        ("ally", np.full((FIRST, 2), 0.5), "not one class per row"),
        ("ally", np.array(["a"] * FIRST), "the file is damaged"),
        ("y", np.eye(4), "some training vertices are also test vertices"),
        ("graph", {0: [1]}, "not a graph of 507 vertices"),
        ("graph", parts()["graph"] | {3: [507]}, "not a graph of 507 vertices"),
        ("graph", parts()["graph"] | {3: ["a"]}, "the file is damaged"),
        ("graph", [[1], [0]], "the file is damaged"),
    ],
)
def test_what_does_not_fit_is_told_with_its_file(tmp_path: Path, part: str, content: Any, problem: str) -> None:
    file = "test.index" if part == "y" else part
    with pytest.raises(InputError, match=rf"ind\.cora\.{file}: .*{problem}.*Put ind\.cora\.\*"):
        read_planetoid(write(tmp_path, **{part: content}), "cora")


@pytest.mark.parametrize(
    "index", [b"", b"503\n504", b"506 503 503", b"506 503 x", b"506 503 -1", b"506 503 9999999999"]
)
def test_a_bad_test_index_is_refused(tmp_path: Path, index: bytes) -> None:
    write(tmp_path)
    (tmp_path / "ind.cora.test.index").write_bytes(index)
    with pytest.raises(InputError, match=r"ind\.cora\.(test\.index|tx|graph): "):
        read_planetoid(tmp_path, "cora")


@pytest.mark.parametrize("part", ["allx", "ally", "tx", "ty", "y", "graph"])
def test_cut_and_garbled_pickles_are_refused(tmp_path: Path, part: str) -> None:
    write(tmp_path)
    path = tmp_path / f"ind.cora.{part}"
    whole = path.read_bytes()
    for damaged in (b"", whole[: len(whole) // 2], whole[1:], b"<html>" + whole):
        path.write_bytes(damaged)
        with pytest.raises(InputError, match=rf"ind\.cora\.{part}: the file is damaged"):
            read_planetoid(tmp_path, "cora")


@pytest.mark.parametrize("part", ["allx", "ally", "tx", "ty", "y", "graph", "test.index"])
def test_a_missing_file_is_named(tmp_path: Path, part: str) -> None:
    (write(tmp_path) / f"ind.cora.{part}").unlink()
    with pytest.raises(InputError, match=rf"ind\.cora\.{part}: the file cannot be read \(No such file.*Put ind\.cora"):
        read_planetoid(tmp_path, "cora")


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere.*No such file"):
        read_planetoid(tmp_path / "nowhere", "pubmed")


def test_unknown_names_and_splits_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no Planetoid data set 'Kora'.*Choose from: cora, citeseer, pubmed"):
        read_planetoid(tmp_path, "Kora")
    with pytest.raises(InputError, match=r"no split 'C'.*Choose from: A, B"):
        read_planetoid(tmp_path, "cora", split="C")
    with pytest.raises(InputError, match="no split 'a'"):
        planetoid_test(tmp_path, "cora", "a")
