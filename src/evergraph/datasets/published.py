"""Data sets in the format of Galke et al. (2023), an adjacency list and three arrays, from a folder or from Zenodo."""

from __future__ import annotations

import zipfile
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from evergraph.datasets.download import fetch_record, opened_zip, unpack
from evergraph.errors import DownloadError, InputError, Origin, os_error
from evergraph.graph import EvolvingGraph
from evergraph.graph.columns import EdgeColumns, as_table, vertex_columns
from evergraph.graph.features import Numbers, SparseFeatures, as_block
from evergraph.storage.decoding import map_array, parse_json

__all__ = ["fetch_published", "load_published", "read_published"]

_RECORD = 3764770
_NAMES = ("dblp-easy", "dblp-hard", "pharmabio")
_API = "https://zenodo.org/api/records"
_SAME = "take adjlist.txt, X.npy, y.npy and t.npy from one data set"
_DENSE_FROM = 0.25  # share of features other than 0 from which sparse rows save little memory and cost much time
_LARGEST = 8_000_000_000  # bytes; dblp-hard has up to 7 GB, mostly zeros
_BLOCK = 1 << 26  # bytes of features converted at once


def load_published(
    source: str | Path, *, cache: str | Path | None = None, api: str = _API, quiet: bool = False
) -> EvolvingGraph:
    """Read a data set of the paper from a folder or, if there is no such folder, by its name from Zenodo."""
    if Path(source).is_dir():
        return read_published(source)
    if isinstance(source, str) and source in _NAMES:
        return read_published(fetch_published(source, cache=cache, api=api, quiet=quiet))
    raise InputError(
        f"there is neither a folder nor a published data set {str(source)!r}",
        fix=f"give a folder, or one of: {', '.join(_NAMES)}",
    )


def fetch_published(name: str, *, cache: str | Path | None = None, api: str = _API, quiet: bool = False) -> Path:
    """Fetch a data set of the paper from Zenodo record 3764770; return the folder for `read_published`.

    This fetches all archives of the record (45 MB) and unpacks the one that holds the data set. It is tested with a
    local server, not with Zenodo itself. If it fails, download and unpack the archive by hand and give the folder to
    `read_published`.

    Parameters
    ----------
    name
        ``"dblp-easy"``, ``"dblp-hard"`` (up to 7 GB on disk) or ``"pharmabio"``.
    cache, api, quiet
        As for `evergraph.datasets.download.fetch_record`.
    """
    if name not in _NAMES:
        raise InputError(f"there is no published data set {name!r}", fix=f"choose from: {', '.join(_NAMES)}")
    files = fetch_record(_RECORD, cache=Path(cache) if cache is not None else None, api=api, quiet=quiet)
    for archive in files.values():
        if archive.suffix.lower() != ".zip" or not zipfile.is_zipfile(archive):
            continue
        with opened_zip(archive) as content:
            members = [PurePosixPath(member) for member in content.namelist()]
        for inside in (member.parent for member in members if member.name == "adjlist.txt"):
            # The full names of archives and folders are not documented ("dblp-easy-citation-graph.zip" is one).
            if _letters(name) in _letters(f"{archive.stem}/{inside}"):
                return unpack(archive, archive.with_suffix(""), least=_LARGEST) / inside
    problem = f"Zenodo record {_RECORD} holds no data set {name}, only {', '.join(files)}"
    raise DownloadError(problem, fix="look for the data set by hand and give its folder")


def _letters(name: str) -> str:
    return "".join(filter(str.isalnum, name.lower()))


def read_published(folder: str | Path) -> EvolvingGraph:
    """Read a data set in the format of Zenodo record 3764770; ids are row numbers.

    Parameters
    ----------
    folder
        With the files

        - ``adjlist.txt``: in each line a vertex and its neighbours, as networkx writes it; vertex ``i`` is row ``i`` of
          the arrays,
        - ``X.npy``: features, one row for each vertex; kept sparse if less than a quarter are not 0,
        - ``y.npy``: class number of each vertex, negative for no label,
        - ``t.npy``: time of each vertex, such as its year,
        - ``label2index.json``, optional: class numbers by name. Without it, the names of classes are their numbers.
    """
    folder = Path(folder)
    features = _features(folder / "X.npy")
    count = len(features)
    codes, times = (_numbers(folder / file, count) for file in ("y.npy", "t.npy"))
    origin = Origin(folder)  # with files as columns
    table = as_table(
        {"row": np.arange(count), "t.npy": times, "y.npy": _class_names(folder / "label2index.json", codes)}, origin
    )
    vertices = vertex_columns(table, origin, id="row", time="t.npy", label="y.npy", text=None, blocks=[features])
    about = {"source": f"{folder.resolve().name}, in the format of Zenodo record {_RECORD}"}
    return EvolvingGraph.from_columns(vertices, _edges(folder / "adjlist.txt", count), about=about)


def _features(path: Path) -> SparseFeatures | Numbers:
    mapped = _array(path)
    if mapped.ndim != 2 or not mapped.size:
        raise InputError(f"its shape is {mapped.shape}", fix="save one row for each vertex", file=path)
    origin, parts, entries = Origin(path), [], 0
    step = max(1, _BLOCK // (mapped.itemsize * mapped.shape[1]))
    with np.errstate(over="ignore"):  # a number that is too large becomes infinite, which is refused
        for start in range(0, len(mapped), step):
            part = sparse.csr_array(mapped[start : start + step].astype(np.float32))
            entries += part.nnz
            if entries >= _DENSE_FROM * mapped.size:
                return as_block(mapped, origin=origin)
            parts.append(part)
    return as_block(sparse.vstack(parts, format="csr"), origin=origin)


def _numbers(path: Path, count: int) -> NDArray[np.int64]:
    values = _array(path)
    if values.shape not in {(count,), (count, 1)}:
        raise InputError(f"its shape is {values.shape}, but X.npy has {count} rows", fix=_SAME, file=path)
    values = np.array(values).reshape(-1)
    whole = (np.abs(values) < 2.0**53) & (values == np.rint(values))
    if not whole.all():
        row = int(np.argmin(whole))
        raise InputError(f"{values[row]} is not a whole number", fix="save whole numbers", file=path, row=row + 1)
    return values.astype(np.int64)


def _array(path: Path) -> NDArray[Any]:
    try:
        array = map_array(path)
    except OSError as error:
        raise os_error(error, "the file cannot be read", file=path, fix=_SAME) from error
    except ValueError as error:  # not an array file, truncated, or pickles
        fix = "save an array of numbers with numpy.save"
        raise InputError(f"the file holds no array of numbers ({error})", fix=fix, file=path) from error
    if array.dtype.kind not in "biuf":
        raise InputError(f"an array of {array.dtype} holds no numbers", fix="save whole numbers or floats", file=path)
    return array


def _class_names(path: Path, codes: NDArray[np.int64]) -> NDArray[np.object_]:
    numbers, place = np.unique(codes, return_inverse=True)
    names = {number: str(number) for number in numbers.tolist()}
    if path.exists():
        fix = "map each class name to its number in y.npy, or remove the file to name classes by their numbers"
        try:
            given = parse_json(path.read_bytes())
            names = {number: name for name, number in given.items()}
            if len(names) < len(given) or not all(isinstance(number, int) for number in names):
                raise ValueError("not one whole number per class")
        except OSError as error:
            raise InputError(f"the file cannot be read ({error.strerror})", fix=fix, file=path) from error
        except (ValueError, TypeError, AttributeError) as error:
            raise InputError(f"the file holds no class numbers ({error})", fix=fix, file=path) from error
        missing = [number for number in numbers.tolist() if number >= 0 and number not in names]
        if missing:
            raise InputError(f"there is no name for class {missing[0]}", fix=fix, file=path)
    return np.array([names[number] if number >= 0 else None for number in numbers.tolist()], dtype=object)[place]


def _edges(path: Path, count: int) -> EdgeColumns:
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        text = path.read_bytes().decode("latin1")  # cannot fail, so an error can name the line of a bad number
    except OSError as error:
        raise os_error(error, "the file cannot be read", file=path, fix=_SAME) from error
    lines = pa.array(text.split("\n"), pa.large_string())
    lines = pc.ascii_trim_whitespace(pc.replace_substring_regex(lines, "#.*", ""))
    filled = np.flatnonzero(pc.not_equal(lines, "").to_numpy(zero_copy_only=False))
    rows = pc.ascii_split_whitespace(lines.take(pa.array(filled)))
    lengths = pc.list_value_length(rows).to_numpy().astype(np.int64)
    words = rows.flatten()

    origin = Origin(path, line_of=lambda row: int(filled[row]) + 1)
    row_of = np.repeat(np.arange(len(lengths)), lengths)
    plain = pc.match_substring_regex(words, r"^-?\d{1,18}$").to_numpy(zero_copy_only=False)
    if not plain.all():
        bad = int(np.argmin(plain))
        problem = f"{words[bad].as_py()!r} is not the number of a vertex"
        origin.fail(problem, row=int(row_of[bad]), fix="write whole numbers separated by blanks")
    ids = words.cast(pa.int64()).to_numpy()
    inside = (ids >= 0) & (ids < count)
    if not inside.all():
        bad = int(np.argmin(inside))
        problem = f"vertex {ids[bad]} is not a row of X.npy, which has {count} rows"
        origin.fail(problem, row=int(row_of[bad]), fix=_SAME)
    heads = np.cumsum(lengths) - lengths
    source, target = np.repeat(ids[heads], lengths - 1), np.delete(ids, heads)
    return EdgeColumns(pa.array(source), pa.array(target), None, origin)
