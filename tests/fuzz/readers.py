"""The table of readers: all that reads bytes from outside or from disk, each with a small sample and its damage.

``sample`` writes a valid sample into a folder, ``read`` reads it as users do, and ``damage`` lists what is done to it.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import io
import json
import pickle
import tarfile
import warnings
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import numpy as np

from evergraph import EvolvingGraph
from evergraph.storage.checksummed import dump_json
from tests.fuzz import damage as to
from tests.fuzz.mutate import garbled, npy, odd_npy

OLD_WORKSPACE = Path(__file__).parents[1] / "workspace" / "data" / "workspace-0.1.tar.gz"


@dataclass(frozen=True)
class Reader:
    """A reader.

    ``named`` is whether errors of ``read`` have to name the file. ``use`` gets what ``read`` returned.
    """

    name: str
    sample: Callable[[Path], None]
    read: Callable[[Path], Any]
    damage: tuple[to.Damage, ...]
    named: bool = True
    use: Callable[[Any], object] = lambda _: None


ROWS = [("007", 2001, "KDD", "graph learning"), ("nan", 2001, "", "words"), ("é", 2002, "ICML", "naïve graph, two")]
VERTICES = {
    "id": [*(row[0] for row in ROWS), "b", "c"],
    "time": [*(row[1] for row in ROWS), 2003, 2003],
    "label": [*(row[2] or None for row in ROWS), "KDD", None],
    "text": [*(row[3] for row in ROWS), "learning words", "graph"],
}
EDGES = {"source": ["007", "b", "c"], "target": ["nan", "é", "b"], "time": [2001, 2003, 2003]}
SIZE = len(VERTICES["id"])


def _text(columns: dict[str, list[Any]], mark: str) -> bytes:
    def cell(value: Any) -> str:
        text = "" if value is None else str(value)
        return f'"{text}"' if "," in text else text

    lines = [mark.join(columns), *(mark.join(map(cell, row)) for row in zip(*columns.values(), strict=True))]
    return ("\n".join(lines) + "\n").encode()


def _tables(folder: Path, read: Callable[..., Any], ending: str, **more: Any) -> None:
    from evergraph.datasets.tables import to_tables

    graph = read(folder / f"vertices{ending}", folder / f"edges{ending}", **more)
    to_tables(graph)


def _csv_sample(folder: Path) -> None:
    numbers = {"x": ["1", "0.5", "-2", "1e3", "0"]}
    to.write(folder / "vertices.csv", _text(VERTICES | numbers, ","))
    to.write(folder / "edges.csv", _text(EDGES, ","))


def _read_csv(folder: Path) -> None:
    from evergraph.datasets import read_tables

    _tables(folder, read_tables, ".csv")
    _tables(folder, read_tables, ".csv", numbers=["x", "time"], categories=["text"], edge_time="")


_TREE: dict[str, Any] = {}


def _command(*arguments: object) -> None:
    """Run a command in this process; only success and refused input are allowed."""
    import typer.main

    from evergraph.cli import main
    from evergraph.errors import InputError

    _TREE.setdefault("get_command", functools.cache(typer.main.get_command))  # building it takes longer than the rest
    argv = ["evergraph", *map(str, arguments)]
    with mock.patch("sys.argv", argv), mock.patch.multiple(typer.main, **_TREE):
        try:
            main()
        except SystemExit as leaving:
            if leaving.code == 2:
                raise InputError(str(arguments[-1])) from None
            if leaving.code:
                raise


def _import(folder: Path) -> None:
    tables = ("--vertices", folder / "vertices.csv", "--edges", folder / "edges.csv")
    _command("import", "tables", *tables, "--json", "--out", folder / "out")


def _tsv_sample(folder: Path) -> None:
    for name, columns in (("vertices", VERTICES), ("edges", EDGES)):
        to.write(folder / f"{name}.tsv.gz", gzip.compress(_text(columns, "\t"), mtime=0))


def _parquet_bytes(columns: Any) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = io.BytesIO()
    pq.write_table(pa.table(columns), file)
    return file.getvalue()


def _parquet_sample(folder: Path) -> None:
    dense = {"x": [float(row) for row in range(SIZE)], "emb": [[1.0, row] for row in range(SIZE)]}
    to.write(folder / "vertices.parquet", _parquet_bytes(VERTICES | dense))
    to.write(folder / "edges.parquet", _parquet_bytes(EDGES))


def _read_parquet(folder: Path) -> None:
    from evergraph.datasets import read_tables

    _tables(folder, read_tables, ".parquet")
    _tables(folder, read_tables, ".parquet", numbers=["x", "emb"], categories=["label"])


def _labels_sample(folder: Path) -> None:
    to.write(folder / "labels.csv", _text({"id": VERTICES["id"], "label": ["x", "'=1", "y", "", "z"]}, ","))
    to.write(folder / "safe.csv", _text({"id": ["a", "'-b"], "label": ["'=1", "y"], "evergraph_safe": [1, 1]}, ","))
    to.write(folder / "labels.parquet", _parquet_bytes({"id": [1, 2], "label": ["x", None]}))


def _read_labels(folder: Path) -> None:
    from evergraph.datasets.tables import read_ids

    for name in ("labels.csv", "safe.csv", "labels.parquet"):
        read_ids(folder / name, "id", "label")


def _records_sample(folder: Path) -> None:
    lines = [
        {"id": "a", "title": "Graphs", "authors": ["x", "y"], "venue": "KDD", "year": 2001, "references": []},
        {"id": 7, "title": None, "authors": ["y"], "venue": None, "year": 2002, "references": ["a", "z"]},
        {"id": "c", "title": "é", "authors": [], "venue": "ICML", "year": 2003, "references": ["7"]},
    ]
    data = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    to.write(folder / "records.jsonl", data)
    to.write(folder / "records.jsonl.gz", gzip.compress(data, mtime=0))


def _read_records(folder: Path) -> None:
    from evergraph.datasets import read_records

    read_records(folder / "records.jsonl", "citations", min_class=1)
    read_records(folder / "records.jsonl", "authors", min_author=1)
    read_records(folder / "records.jsonl.gz")


def _planetoid_sample(folder: Path) -> None:
    from scipy import sparse

    first, test = 502, [504, 502]
    rng = np.random.default_rng(3)
    graph: dict[int, list[int]] = defaultdict(list, {vertex: [] for vertex in range(505)})
    graph[0], graph[3] = [1, 1, 0], [2]
    with warnings.catch_warnings(action="ignore"):
        parts = {
            "y": np.eye(2, dtype=np.int32),
            "allx": sparse.csr_matrix(rng.integers(0, 2, (first, 2)).astype(np.float32)),
            "ally": np.eye(2, dtype=np.int32)[rng.integers(0, 2, first)],
            "tx": sparse.csr_matrix(np.ones((2, 2), np.float32)),
            "ty": np.eye(2, dtype=np.int32),
            "graph": graph,
        }
        for name, part in parts.items():
            to.write(folder / f"ind.cora.{name}", pickle.dumps(part, protocol=2))
    to.write(folder / "ind.cora.test.index", "\n".join(map(str, test)).encode())


def _read_planetoid(folder: Path) -> None:
    from evergraph.datasets.planetoid import planetoid_test, read_planetoid

    read_planetoid(folder, "cora")
    planetoid_test(folder, "cora")


def _published_sample(folder: Path) -> None:
    to.write(folder / "adjlist.txt", b"# by hand\n3 0  1\n1 3\n0 0\n2\n")
    to.write(folder / "X.npy", npy(np.diag([0.5, 0, 2, -1, 1])))
    to.write(folder / "y.npy", npy(np.array([2, 0, -1, 2, 0])))
    to.write(folder / "t.npy", npy(np.array([2003, 2001, 2002, 2001, 2004])))
    to.write(folder / "label2index.json", b'{"a": 0, "b": 2}')


def _read_published(folder: Path) -> None:
    from evergraph.datasets.published import read_published

    read_published(folder)


def _zip_sample(folder: Path) -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo("one/adjlist.txt"), b"0 1\n" * 30)
        archive.writestr(zipfile.ZipInfo("one/y.npy"), b"array")
    to.write(folder / "data.zip", file.getvalue())


def _read_zip(folder: Path) -> None:
    from evergraph.datasets.download import unpack

    unpack(folder / "data.zip", folder / "out")


def _record_sample(folder: Path) -> None:
    _zip_sample(folder / "3764770")
    data = (folder / "3764770" / "data.zip").read_bytes()
    links = {"self": "http://127.0.0.1:1/data.zip"}
    checksum = f"md5:{hashlib.md5(data).hexdigest()}"
    files = [{"key": "data.zip", "size": len(data), "checksum": checksum, "links": links}]
    to.write(folder / "3764770.json", json.dumps({"files": files}).encode())


def _read_record(folder: Path) -> None:
    from evergraph.datasets import download
    from evergraph.datasets.published import fetch_published

    failed = download._RequestError("http://127.0.0.1:1: no network", temporary=False)
    with mock.patch.object(download, "_open_url", side_effect=failed):
        try:
            fetch_published("dblp-easy", cache=folder, quiet=True)
        except download.DownloadError as error:
            if "holds no data set" not in str(error):
                raise


def _metamath_sample(folder: Path) -> None:
    def text(*words: str) -> Any:
        return np.frombuffer("\n".join(words).encode(), np.uint8)

    def gaps(*numbers: int) -> Any:
        return np.array([numbers, [0] * len(numbers)], np.uint8)

    file = io.BytesIO()
    np.savez_compressed(
        file,
        about=np.frombuffer(json.dumps({"source": "set.mm", "licence": None}).encode(), np.uint8),
        labels=text("a", "b", "c"),
        times=np.array([1992, 1993, 1993], np.int16),
        classes=np.array([0, 1, 0], np.uint8),
        class_names=text("x", "y"),
        edge_lengths=np.array([2, 0, 0], np.uint16),
        edge_gaps=gaps(1, 1),
        words=text("one", "two"),
        word_lengths=np.array([1, 0, 2], np.uint16),
        word_gaps=gaps(1, 0, 1),
        word_counts=np.array([1, 2, 1], np.uint8),
    )
    to.write(folder / "metamath.npz", file.getvalue())


def _read_metamath(folder: Path) -> None:
    from evergraph.datasets import metamath

    module = __import__("sys").modules["evergraph.datasets.metamath"]
    with mock.patch.object(module.resources, "files", return_value=folder):
        (metamath if callable(metamath) else module.metamath)()


# --- what Evergraph writes -------------------------------------------------------------------------------------------


def _synthetic(**more: Any) -> EvolvingGraph:
    from evergraph.datasets import synthetic

    return synthetic(vertices=60, times=5, classes=3, new_classes=1, words=30, words_per_vertex=3, seed=1, **more)


def _graph_sample(folder: Path) -> None:
    from scipy import sparse

    from evergraph.graph.features import Vectors

    EvolvingGraph.build(VERTICES, EDGES, about={"source": "here"}).save(folder / "words")
    bare = {"id": [5, 6, 7], "time": [1, 1, 4], "label": ["x", None, "y"]}
    EvolvingGraph.build(bare, [(5, 6)], features=np.eye(3)).save(folder / "dense")
    EvolvingGraph.build(bare, [(5, 7)], features=sparse.csr_array(np.eye(3))).save(folder / "sparse")
    mixed = bare | {"text": ["One", "", "Two"], "x": [1, None, 0.5], "kind": ["a", None, "é"]}
    graph = EvolvingGraph.build(mixed, [(5, 7)], numbers=["x"], categories=["kind"])
    vectors = Vectors(np.eye(3, 2, dtype=np.float32), "some encoder sha256:00")
    replace(graph, features=replace(graph.features, vectors=vectors)).save(folder / "mixed")


def _read_graph(folder: Path) -> None:
    from evergraph.analysis.description import describe
    from evergraph.datasets import load
    from evergraph.datasets.tables import to_tables
    from evergraph.graph.arrays import fingerprint
    from evergraph.graph.disk import verify

    for name in ("words", "dense", "sparse", "mixed"):
        graph = load(folder / name)
        list(graph.features.texts or ())
        to_tables(graph)
        fingerprint(graph)
        describe(graph)
        verify(folder / name)


def _learner(detector: str = "gdoc") -> Any:
    from evergraph.learning.learner import LifelongLearner
    from evergraph.learning.task import Task
    from evergraph.names import build_detector
    from evergraph.nn import MLP

    graph = _synthetic()
    learner = LifelongLearner(MLP(hidden=2), build_detector(detector), steps=1)
    return learner.adapt(Task(graph, time=2, history=2)).adapt(Task(graph, time=3, history=2))


def _learner_sample(folder: Path) -> None:
    _learner("gdoc:threshold=0.5,alpha=3").save(folder / "doc")
    _learner("relative-energy").save(folder / "energy")
    _learner("auto").save(folder / "auto")


def _read_learner(folder: Path) -> Any:
    from evergraph.learning.learner import LifelongLearner

    return [LifelongLearner.load(folder / name) for name in ("doc", "energy", "auto")]


def _use_learner(learners: Any) -> None:
    from evergraph.learning.task import Task

    for learner in learners:
        learner.predict(Task(_GRAPH[0], time=4, history=2))


class _Later:
    """A graph that is made when it is first used."""

    def __getitem__(self, _: int) -> EvolvingGraph:
        if not hasattr(self, "graph"):
            self.graph = _synthetic()
        return self.graph


_GRAPH = _Later()


def _workspace_sample(folder: Path) -> None:
    from evergraph.datasets.tables import to_tables
    from evergraph.detect import DOC
    from evergraph.nn import MLP
    from evergraph.workspace import Workspace

    graph = _GRAPH[0]
    before = EvolvingGraph.build(*to_tables(graph, last=2))
    workspace = Workspace.create(folder / "ws", before, model=MLP(hidden=2), detector=DOC(0.5), history=2, steps=1)
    workspace.add(*to_tables(graph, 3, 3, labels=False))
    workspace.predict()
    slice_ = graph.window(3, 3)
    named = [(id, name) for id, name in zip(slice_.ids, slice_.labels.tolist(), strict=True) if name is not None]
    workspace.label([id for id, _ in named[1:]], [name for _, name in named[1:]])
    workspace.update("warm")
    workspace.rename_class(graph.class_names[0], "renamed")
    workspace.merge_classes([graph.class_names[1], "renamed"], "merged")
    workspace.add(*to_tables(graph, 4, 4, labels=False))
    workspace.retire_class("merged")
    workspace.predict()


def _read_workspace(folder: Path) -> Any:
    from evergraph.workspace import Workspace

    workspace = Workspace(folder / "ws")
    looks = ["status", "log", "models", "classes", "decisions", "scored_decisions", "scores", "last_scores", "learner"]
    # All of them take long, so each input gets some: which ones depends on the input.
    rng = Random(zlib.crc32((folder / "ws" / "workspace.db").read_bytes()))
    for look in rng.sample([*looks, "describe_model", "verify"], 3):
        getattr(workspace, look)()
    return workspace if rng.random() < 0.2 else None


def _use_workspace(workspace: Any) -> None:
    from evergraph.report.workspace import workspace_content

    if workspace is None:
        return
    workspace_content(workspace.store.folder)
    workspace.review()
    workspace.predict()
    workspace.rollback(max(workspace.store.numbers[-3:-1]))


def _old_workspace_sample(folder: Path) -> None:
    with tarfile.open(OLD_WORKSPACE) as archive:
        archive.extractall(folder, filter="data")
    for path in to.files(folder):
        if path.parent == folder:
            path.unlink()
    (folder / "full").rename(folder / "ws")
    # Keep the newest two versions only: more take long.
    *older, before, head = to.files(folder / "ws" / "versions", "*.json")
    content = json.loads(json.loads(head.read_bytes())["content"])
    content["content"]["settings"]["keep"] = 2
    to.write(head, dump_json(content))
    needed = before.read_text() + head.read_text()
    for path in (*older, *to.files(folder / "ws" / "objects")):
        if path in older or path.name not in needed:
            path.unlink()


def _read_old_workspace(folder: Path) -> None:
    from evergraph.workspace import Workspace

    workspace = Workspace(folder / "ws")
    workspace.status()
    workspace.scores()
    workspace.learner()


def _run_sample(folder: Path) -> None:
    from evergraph.evaluation.configuration import Configuration
    from evergraph.evaluation.run import run
    from evergraph.nn import MLP

    run(Configuration(MLP(hidden=2), history=2, steps=1), _GRAPH[0], [0, 1], out=folder / "run")


def _read_run(folder: Path) -> None:
    from evergraph.evaluation.configuration import Configuration
    from evergraph.evaluation.results import NUMERICS_VERSION
    from evergraph.evaluation.run_folder import open_run
    from evergraph.graph.arrays import fingerprint
    from evergraph.nn import MLP
    from evergraph.report.run import run_content

    graph = _GRAPH[0]
    run_content(folder / "run")
    identity = {
        "configuration": Configuration(MLP(hidden=2), history=2, steps=1).described(graph.axis),
        "fingerprint": fingerprint(graph),
        "numerics_version": NUMERICS_VERSION,
    }
    with open_run(folder / "run", identity, range(10)) as found:
        found.store_graph(dict)


def _trials_sample(folder: Path) -> None:
    from evergraph.evaluation.trials import TrialStore

    made = {"version": "0", "threads": 1, "seconds": 0.5, "when": "2024-01-01"}
    for seed in range(3):
        trial: Any = mock.Mock(graph_name="toys", seed=seed)
        trial.described.return_value = {"model": {"name": "sage"}, "history": 2}
        TrialStore(folder).append(trial, {"accuracy": [0.5, None], "loss": 1.0}, made)


def _read_trials(folder: Path) -> None:
    from evergraph.evaluation.trials import TrialStore

    store = TrialStore(folder)
    store.read()
    [str(problem) for problem in store.problems]


def _recording_sample(folder: Path) -> None:
    from evergraph.detect import Softmax
    from evergraph.evaluation.configuration import Configuration
    from evergraph.evaluation.replay import record
    from evergraph.nn import MLP

    record(Configuration(MLP(hidden=2), Softmax(), history=2, steps=1), _GRAPH[0], 0, folder / "recording")


def _read_recording(folder: Path) -> Any:
    from evergraph.evaluation.replay import open_recording

    recording = open_recording(folder / "recording")
    for event in recording.events:
        recording.read(event)
    return recording


def _use_recording(recording: Any) -> None:
    from evergraph.evaluation.replay import replay
    from evergraph.names import build_detector

    replay(recording, _GRAPH[0], build_detector("energy"))


# --- configuration strings -------------------------------------------------------------------------------------------

STRINGS = {
    "detector": (
        "gdoc:threshold=0.5,alpha=3",
        "relative-energy/budget:50",
        "auto:objective=false-alarms:0.05",
        "energy/conformal:0.1",
    ),
    "detectors": ("none, gdoc:threshold=0.5,alpha=3, energy,none",),
    "model": ("saint:hidden=8,dropout=0.5", "sgc:hops=3", "mlp:layers=1"),
    "history": ("auto", "full", "12"),
    "seeds": ("0-4", "0,2,5", "3", "1-2,4-6"),
    "features": ("x,emb_*", "emb[0]", "time"),
    "every": ("year", "7"),
    "time": ("2004-03", "2004-03-31"),
    "limit": ("8", "0.5"),
}


def _strings_sample(folder: Path) -> None:
    _csv_sample(folder)
    for name, texts in STRINGS.items():
        for number, text in enumerate(texts):
            to.write(folder / name / str(number), text.encode())


def _some_string(rng: Random, folder: Path) -> None:
    name = rng.choice(sorted(STRINGS))
    path = folder / name / str(rng.randrange(len(STRINGS[name])))
    others = [text.encode() for texts in STRINGS.values() for text in texts]
    to.write(path, garbled(rng, path.read_bytes(), others))


def _read_strings(folder: Path) -> None:
    import os

    from evergraph.cli.common import names_in, parse_history, parse_seeds
    from evergraph.datasets.files import unpacked_limit
    from evergraph.datasets.tables import find_columns, read_tables
    from evergraph.graph.times import TimeAxis
    from evergraph.names import build_detector, build_model, split_detectors

    table = folder / "vertices.csv"

    def limit(text: str) -> int:
        with mock.patch.dict(os.environ, EVERGRAPH_MAX_UNPACKED=text.replace("\0", "")):
            return unpacked_limit(table)

    def features(text: str) -> object:
        return find_columns(table, [name for name in names_in(text) if "emb" not in name])

    readers: dict[str, Callable[[str], object]] = {
        "detector": build_detector,
        "detectors": lambda text: [build_detector(part) for part in split_detectors(text)],
        "model": build_model,
        "history": parse_history,
        "seeds": parse_seeds,
        "features": features,
        "every": lambda text: read_tables(table, every=text),
        "time": TimeAxis("month").period,
        "limit": limit,
    }
    for name, read in readers.items():
        for number in range(len(STRINGS[name])):
            text = (folder / name / str(number)).read_bytes().decode("utf-8", "surrogateescape")  # as argv
            read(text)


_plain_json = to.changing("*.json", to.json_values)
_checksummed = to.changing("*.json", to.checksummed)

READERS = {
    reader.name: reader
    for reader in (
        Reader("csv", _csv_sample, _read_csv, (to.some_bytes, to.changing("*.csv", to.cells))),
        Reader("import-command", _csv_sample, _import, (to.some_bytes, to.changing("*.csv", to.cells)), named=False),
        Reader(
            "tsv.gz",
            _tsv_sample,
            lambda folder: _tables(folder, __import__("evergraph.datasets").datasets.read_tables, ".tsv.gz"),
            (to.some_bytes, to.changing("*.gz", to.gzipped)),
        ),
        Reader("parquet", _parquet_sample, _read_parquet, (to.some_bytes, to.changing("*.parquet", to.odd_parquet))),
        Reader("labels", _labels_sample, _read_labels, (to.some_bytes, to.changing("*.parquet", to.odd_parquet))),
        Reader(
            "records",
            _records_sample,
            _read_records,
            (to.some_bytes, to.changing("*.jsonl", to.json_lines), to.changing("*.gz", to.gzipped)),
        ),
        Reader("planetoid", _planetoid_sample, _read_planetoid, (to.some_bytes,)),
        Reader(
            "published",
            _published_sample,
            _read_published,
            (to.some_bytes, to.changing("*.npy", odd_npy), _plain_json),
        ),
        Reader("zip", _zip_sample, _read_zip, (to.some_bytes, to.changing("*.zip", to.members))),
        Reader("zenodo-record", _record_sample, _read_record, (to.some_bytes, _plain_json), named=False),
        Reader(
            "metamath",
            _metamath_sample,
            _read_metamath,
            (to.changing("*.npz", garbled), to.changing("*.npz", to.npz)),
        ),
        Reader(
            "graph",
            _graph_sample,
            _read_graph,
            (to.some_bytes, to.array_of_graph, to.array_of_graph, _checksummed, to.unchecked_manifest),
        ),
        Reader(
            "learner",
            _learner_sample,
            _read_learner,
            (to.some_bytes, _checksummed, _checksummed, to.tensors_of("learner.json")),
            use=_use_learner,
        ),
        Reader(
            "workspace",
            _workspace_sample,
            _read_workspace,
            (
                to.some_bytes,
                lambda rng, folder: to.row_of_workspace(rng, folder / "ws"),
                lambda rng, folder: to.row_of_workspace(rng, folder / "ws"),
                lambda rng, folder: to.object_of_workspace(rng, folder / "ws"),
            ),
            use=_use_workspace,
        ),
        Reader(
            "workspace-0.1",
            _old_workspace_sample,
            _read_old_workspace,
            (
                to.some_bytes,
                lambda rng, folder: to.old_version(rng, folder / "ws"),
                to.changing("workspace.json", to.json_values),
            ),
        ),
        Reader(
            "run",
            _run_sample,
            _read_run,
            (
                to.some_bytes,
                _plain_json,
                to.changing("*.jsonl", to.json_lines),
                to.changing("*.parquet", to.odd_parquet),
            ),
        ),
        Reader("trials", _trials_sample, _read_trials, (to.some_bytes, to.changing("*.jsonl", to.trial_lines))),
        Reader(
            "recording",
            _recording_sample,
            _read_recording,
            (to.some_bytes, _checksummed, to.tensors_of("recording.json")),
            use=_use_recording,
        ),
        Reader("options", _strings_sample, _read_strings, (_some_string,), named=False),
    )
}
