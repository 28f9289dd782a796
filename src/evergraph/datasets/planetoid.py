"""Cora, Citeseer and PubMed as Planetoid published them, each split into two periods."""

from __future__ import annotations

import pickletools
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from evergraph.errors import InputError, os_error
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
        with self._open(part) as (content, size):
            parts = content.state if isinstance(content, _Matrix) else {}
            rows, columns = parts["_shape"]
            data, indices, indptr = (_values(parts[name]) for name in ("data", "indices", "indptr"))
            if max(rows, columns) > size or "f" in indices.dtype.kind + indptr.dtype.kind:
                raise ValueError("not a sparse matrix")
            weights = data.astype(np.float32)
            matrix = sparse.csr_array((weights, indices, indptr), shape=(rows, columns))
            # A pickle can hold indices that lead out of the matrix, and scipy would follow them.
            matrix.check_format(full_check=True)
            if not np.isfinite(weights).all():
                raise ValueError("a weight is missing or infinite")
        return matrix

    def classes(self, part: str) -> NDArray[np.object_]:
        """Return the class name of each row, the number of the column with the 1; None for no class."""
        with self._open(part) as (content, _):
            one_hot = _values(content).astype(np.float64)
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
        with self._open("graph") as (neighbours, size):
            if not isinstance(neighbours, dict) or not all(isinstance(row, list) for row in neighbours.values()):
                raise ValueError("not lists of neighbours")
            degrees = [len(row) for row in neighbours.values()]
            if sum(degrees) > size:  # one list can be the neighbours of many vertices
                raise ValueError("more edges than the file can hold")
            if not all(isinstance(end, int) for end in chain(neighbours, chain.from_iterable(neighbours.values()))):
                raise ValueError("a vertex is not a number")
            source = np.repeat(np.array(list(neighbours), np.int64), degrees)
            target = np.fromiter(chain.from_iterable(neighbours.values()), np.int64, len(source))
            ends = np.concatenate([source, target])
            if len(neighbours) != vertices or not ((ends >= 0) & (ends < vertices)).all():
                raise ValueError(f"not a graph of {vertices} vertices")
        return {"source": source, "target": target}

    def _path(self, part: str) -> Path:
        return self.folder / f"ind.{self.name}.{part}"

    @contextmanager
    def _open(self, part: str) -> Iterator[tuple[Any, int]]:
        """Yield the content of a pickle and its size in bytes; errors while they are used are damage of the file."""
        with self._damage(part):
            data = self._path(part).read_bytes()
            yield _PickleReader(self._path(part), data).read(), len(data)

    @contextmanager
    def _damage(self, part: str) -> Iterator[None]:
        try:
            yield
        except InputError:
            raise
        except OSError as error:
            raise os_error(
                error, "the file cannot be read", file=self._path(part), fix=_FIX.format(name=self.name)
            ) from error
        except Exception as error:  # damaged pickles raise anything
            self.fail(part, f"the file is damaged ({error})")


# The names that Planetoid's files use, as Python 2 wrote them and as Python 3 writes them. None of them is imported.
_KNOWN = {
    "__builtin__.list": "list",
    "builtins.list": "list",
    "collections.defaultdict": "dict",
    "numpy.dtype": "dtype",
    "numpy.ndarray": "array",
    "numpy.core.multiarray._reconstruct": "new array",
    "numpy._core.multiarray._reconstruct": "new array",
    "scipy.sparse.csr.csr_matrix": "matrix",
    "scipy.sparse._csr.csr_matrix": "matrix",
    "_codecs.encode": "encode",
}
_LONGEST_NAME = 200  # letters in a message
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
_LITERALS = {
    *("BININT", "BININT1", "BININT2", "LONG1", "BINSTRING", "SHORT_BINSTRING", "BINUNICODE", "SHORT_BINUNICODE"),
    *("BINBYTES", "SHORT_BINBYTES"),
}


@dataclass
class _Name:
    kind: str


@dataclass
class _Type:
    code: str
    order: str = "="


@dataclass
class _Array:
    values: NDArray[Any] | None = None


@dataclass
class _Matrix:
    state: dict[str, Any]


def _values(array: Any) -> NDArray[Any]:
    if not isinstance(array, _Array) or array.values is None:
        raise ValueError("an array is missing")
    return array.values


class _PickleReader:
    """Interpret the few opcodes of Planetoid's pickles.

    Python's own unpickler calls what the file names with the arguments of the file, and numpy's types accept arguments
    that corrupt memory. This reader calls nothing. It creates lists, dictionaries, tuples, integers, strings and arrays
    of numbers. Each opcode creates at most one small object, and all arrays together are not larger than the file.
    """

    def __init__(self, path: Path, data: bytes) -> None:
        self._path, self._data = path, data
        self._left = len(data)  # bytes for arrays
        self._stack: list[Any] = []
        self._below: list[list[Any]] = []  # stacks below the marks
        self._memo: dict[int, Any] = {}

    def read(self) -> Any:
        for opcode, argument, _ in pickletools.genops(self._data):
            self._step(opcode.name, argument)
        return self._stack.pop()

    def _step(self, opcode: str, argument: Any) -> None:
        stack = self._stack
        match opcode:
            case _ if opcode in _LITERALS:
                if isinstance(argument, int) and not -(2**63) <= argument < 2**63:
                    raise ValueError("an integer has more than 64 bits")
                stack.append(argument)
            case _ if opcode in _CONSTANTS:
                stack.append(_CONSTANTS[opcode])
            case "EMPTY_LIST":
                stack.append([])
            case "EMPTY_DICT":
                stack.append({})
            case "BINPUT" | "LONG_BINPUT":
                self._memo[argument] = stack[-1]
            case "MEMOIZE":
                self._memo[len(self._memo)] = stack[-1]
            case "BINGET" | "LONG_BINGET":
                stack.append(self._memo[argument])
            case "MARK":
                self._below.append(stack)
                self._stack = []
            case "TUPLE":
                items = self._since_mark()
                self._stack.append(tuple(items))
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                items = [stack.pop() for _ in range(int(opcode[-1]))]
                stack.append(tuple(reversed(items)))
            case "APPEND":
                item = stack.pop()
                self._top(list).append(item)
            case "APPENDS":
                items = self._since_mark()
                self._top(list).extend(items)
            case "SETITEM":
                value, key = stack.pop(), stack.pop()
                self._set([key, value])
            case "SETITEMS":
                self._set(self._since_mark())
            case "GLOBAL":
                stack.append(self._name(*argument.split(" ", 1)))
            case "STACK_GLOBAL":
                name, module = stack.pop(), stack.pop()
                stack.append(self._name(module, name))
            case "REDUCE" | "NEWOBJ":
                arguments, name = stack.pop(), stack.pop()
                stack.append(self._create(name, arguments))
            case "BUILD":
                state = stack.pop()
                self._build(stack[-1], state)
            case "PROTO" | "FRAME" | "STOP":
                pass
            case _:
                raise ValueError(f"the pickle has the opcode {opcode}, which Planetoid's files do not use")

    def _since_mark(self) -> list[Any]:
        items, self._stack = self._stack, self._below.pop()
        return items

    def _top(self, kind: type) -> Any:
        if not isinstance(self._stack[-1], kind):
            raise ValueError(f"something is added to what is not a {kind.__name__}")
        return self._stack[-1]

    def _set(self, items: list[Any]) -> None:
        keys = items[::2]
        if not all(isinstance(key, int | str) for key in keys):
            raise ValueError("a key is neither a number nor a string")
        self._top(dict).update(zip(keys, items[1::2], strict=True))

    def _name(self, module: Any, name: Any) -> _Name:
        if not (isinstance(module, str) and isinstance(name, str)):  # as text, nested lists can be of any size
            raise ValueError("a name is not a string")
        full = f"{module}.{name}"
        if full not in _KNOWN:
            raise InputError(
                f"this pickle uses {full[:_LONGEST_NAME]}, which could run code, and was not read",
                fix="do not trust this file; " + _FIX.format(name=self._path.name.split(".")[1]),
                file=self._path,
            )
        return _Name(_KNOWN[full])

    def _create(self, name: Any, arguments: Any) -> Any:
        match name, arguments:
            case _Name("dict"), (_Name("list"),):
                return {}
            case _Name("dtype"), (str(code), *_) if re.fullmatch("[iu][1248]|f[248]", code):
                return _Type(code)
            case _Name("new array"), (_Name("array"), *_):
                return _Array()
            case _Name("matrix"), ():
                return _Matrix({})
            case _Name("encode"), (str(text), "latin1"):
                return text  # encoded in _build, which bounds the size
        raise ValueError("the pickle creates what is neither an array of numbers nor a list")

    def _build(self, target: Any, state: Any) -> None:
        match target, state:
            case _Type(), (3, "<" | ">" | "|" | "=" as order, None, None, None, -1, -1, _):
                target.order = order
            case _Array(None), (1, tuple(shape), _Type() as kind, fortran, str() | bytes() as raw):
                self._left -= len(raw)
                if self._left < 0 or not all(isinstance(n, int) and 0 <= n <= len(self._data) for n in shape):
                    raise ValueError("an array is larger than the file")
                raw = raw.encode("latin1") if isinstance(raw, str) else raw
                values = np.frombuffer(raw, np.dtype(kind.order + kind.code))
                native = values.astype(values.dtype.newbyteorder("="))
                target.values = native.reshape(shape, order="F" if fortran else "C")
            case _Matrix(), dict():
                target.state = state
            case _:
                raise ValueError("an array or its type has a state that Planetoid's files do not have")
