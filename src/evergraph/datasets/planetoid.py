"""Cora, Citeseer and PubMed as Planetoid published them, each split into two periods."""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from evergraph.errors import InputError
from evergraph.graph import EvolvingGraph

__all__ = ["planetoid_test", "read_planetoid"]

_NAMES = ("cora", "citeseer", "pubmed")
_SPLITS = ("A", "B")
_VALIDATION = 500  # vertices for validation follow those for training
_FIX = "put ind.{name}.* from the folder data of github.com/kimiyoung/planetoid there"


def read_planetoid(folder: str | Path, name: str, *, split: str = "A") -> EvolvingGraph:
    """Read a static citation graph as a graph of two periods; train on ``graph.up_to(0)``.

    In split A (few train, many test) period 0 holds Planetoid's vertices for training and validation, and period 1 all
    others. Split B (many, few) is the reverse. Ids are the row numbers in Planetoid's order.

    Citeseer and PubMed have the counts of the paper by Galke et al. (2023). The paper's Cora comes from other files,
    split 140 + 300 in the order of LINQS's ``cora.content``. Here Cora has Planetoid's own split, 140 + 500.

    The files name neither classes nor words; here their names are numbers. Of 15 vertices of Citeseer only the edges
    are known: they have no label and no words. Some loaders give them the first class.

    Parameters
    ----------
    folder
        The folder with the files ``ind.{name}.*``; ``x`` is not needed, because ``allx`` includes it.
    name
        ``"cora"``, ``"citeseer"`` or ``"pubmed"``.
    split
        ``"A"`` or ``"B"``.
    """
    files = _Files(folder, name, split)
    first_words, first_classes = files.matrix("allx"), files.classes("ally")
    test_words, test_classes = files.matrix("tx"), files.classes("ty")
    test, train = files.test_index(), files.train()
    files.same("allx", first_words.shape[:1], first_classes.shape)
    files.same("tx", test_words.shape, (len(test), first_words.shape[1]))
    files.same("ty", test_classes.shape, test.shape)
    if train > len(first_classes) or test.min() < len(first_classes):
        files.fail("test.index", "some training vertices are also test vertices")

    # Rows of tx and ty are in the order of test.index, which leaves vertices out.
    count = int(test.max()) + 1
    edges = files.edges(count)
    rows = np.concatenate([np.arange(len(first_classes)), test])
    words = sparse.vstack([first_words, test_words], format="coo")
    features = sparse.csr_array((words.data, (rows[words.row], words.col)), shape=(count, words.shape[1]))
    labels = np.full(count, None, dtype=object)
    labels[rows] = np.concatenate([first_classes, test_classes])

    early = np.arange(count) < train
    one, other = ("time 0", "time 1") if split == "A" else ("time 1", "time 0")
    note = "; not the paper's 140 + 300, which are in the order of cora.content" if name == "cora" else ""
    about = {
        "source": f"ind.{name}.* of github.com/kimiyoung/planetoid (Yang, Cohen, Salakhutdinov 2016)",
        "split": f"{split}: Planetoid's {train - _VALIDATION} training and {_VALIDATION} validation vertices are "
        f"{one}, all others {other}{note}",
    }
    vertices = {"id": np.arange(count), "time": (early != (split == "A")).astype(np.int64), "label": labels}
    return EvolvingGraph.build(vertices, edges, features=features, about=about)


def planetoid_test(folder: str | Path, name: str, split: str = "A") -> NDArray[np.int64]:
    """Return the ids on which accuracy is measured: Planetoid's 1000 in split A, all of period 1 in split B."""
    files = _Files(folder, name, split)
    return np.sort(files.test_index()) if split == "A" else np.arange(files.train())


class _Files:
    """The files of one data set, read and checked on first use."""

    def __init__(self, folder: str | Path, name: str, split: str) -> None:
        if name not in _NAMES:
            raise InputError(f"there is no Planetoid data set {name!r}", fix=f"choose from: {', '.join(_NAMES)}")
        if split not in _SPLITS:
            raise InputError(f"there is no split {split!r}", fix=f"choose from: {', '.join(_SPLITS)}")
        self.folder, self.name = Path(folder), name

    def fail(self, part: str, problem: str) -> NoReturn:
        raise InputError(problem, fix=_FIX.format(name=self.name), file=self._path(part))

    def same(self, part: str, found: tuple[int, ...], expected: tuple[int, ...]) -> None:
        if found != expected:
            self.fail(part, f"its shape is {found}, but according to the other files it should be {expected}")

    def matrix(self, part: str) -> sparse.csr_array:
        with self._open(part) as content:
            rows, columns = content._shape
            weights = np.asarray(content.data, dtype=np.float32)
            matrix = sparse.csr_array((weights, content.indices, content.indptr), shape=(rows, columns))
            # A pickle can hold indices that lead out of the matrix, and scipy would follow them.
            matrix.check_format(full_check=True)
            if not np.isfinite(weights).all():
                raise ValueError("a weight is missing or infinite")
        return matrix

    def classes(self, part: str) -> NDArray[np.object_]:
        """Return the class name of each row, the number of the column with the 1; None for no class."""
        with self._open(part) as content:
            one_hot = np.asarray(content, dtype=np.float64)
            if one_hot.ndim != 2 or ((one_hot != 0) & (one_hot != 1)).any() or (one_hot.sum(axis=1) > 1).any():
                raise ValueError("not one class per row")
        names = np.array([*map(str, range(one_hot.shape[1])), None], dtype=object)
        return names[np.where(one_hot.any(axis=1), one_hot.argmax(axis=1), -1)]

    def train(self) -> int:
        """Return the number of vertices for training and validation, which are the first."""
        return len(self.classes("y")) + _VALIDATION

    def test_index(self) -> NDArray[np.int64]:
        with self._damage("test.index"):
            index = np.array(self._path("test.index").read_bytes().split(), dtype=np.int64)
            if not len(index) or index.min() < 0 or len(np.unique(index)) < len(index):
                raise ValueError("not a list of different vertices")
        return index

    def edges(self, vertices: int) -> dict[str, NDArray[np.int64]]:
        with self._open("graph") as content:
            neighbours = dict(content)
            source = np.repeat(np.array(list(neighbours), np.int64), [len(row) for row in neighbours.values()])
            target = np.fromiter(chain.from_iterable(neighbours.values()), np.int64, len(source))
            ends = np.concatenate([source, target])
            if len(neighbours) != vertices or not ((ends >= 0) & (ends < vertices)).all():
                raise ValueError(f"not a graph of {vertices} vertices")
        return {"source": source, "target": target}

    def _path(self, part: str) -> Path:
        return self.folder / f"ind.{self.name}.{part}"

    @contextmanager
    def _open(self, part: str) -> Iterator[Any]:
        """Yield the content of a pickle; any error while it is used is reported as damage of the file."""
        path = self._path(part)
        with self._damage(part), path.open("rb") as stream:
            yield _Unpickler(path, stream).load()

    @contextmanager
    def _damage(self, part: str) -> Iterator[None]:
        try:
            yield
        except InputError:
            raise
        except OSError as error:
            self.fail(part, f"the file cannot be read ({error.strerror})")
        except Exception as error:  # damaged pickles raise anything
            self.fail(part, f"the file is damaged ({error})")


class _Matrix:
    """Replaces scipy's class, whose attributes have changed since the files were written."""

    data: NDArray[Any]
    indices: NDArray[Any]
    indptr: NDArray[Any]
    _shape: tuple[int, int]


_rebuild_array = np.empty(0).__reduce__()[0]

_ALLOWED: dict[str, Any] = {
    # as Python 2 wrote them
    "__builtin__.list": list,
    "collections.defaultdict": defaultdict,
    "numpy.dtype": np.dtype,
    "numpy.ndarray": np.ndarray,
    "numpy.core.multiarray._reconstruct": _rebuild_array,
    "scipy.sparse.csr.csr_matrix": _Matrix,
    # as Python 3 writes them
    "builtins.list": list,
    "numpy._core.multiarray._reconstruct": _rebuild_array,
    "scipy.sparse._csr.csr_matrix": _Matrix,
    "_codecs.encode": lambda text, _encoding: text.encode("latin1"),
}


class _Unpickler(pickle.Unpickler):
    """Read pickles of arrays, sparse matrices and lists, and refuse everything that could run code."""

    def __init__(self, path: Path, stream: BinaryIO) -> None:
        super().__init__(stream, encoding="latin1")
        self._path = path

    def find_class(self, module: str, name: str) -> Any:
        if f"{module}.{name}" not in _ALLOWED:
            raise InputError(
                f"this pickle uses {module}.{name}, which could run code, and was not read",
                fix="do not trust this file; " + _FIX.format(name=self._path.name.split(".")[1]),
                file=self._path,
            )
        return _ALLOWED[f"{module}.{name}"]
