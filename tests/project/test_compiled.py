"""Compiled code on disk: several processes write it at the same time, and files can be damaged."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from numba.core import types

from evergraph import compiled
from evergraph.compiled import _CodeFiles

# Two loops with one name, as those for different numbers of columns have.
_MODULE = """
from evergraph.compiled import compiled

def make(factor):
    @compiled
    def scaled(x):
        return x * factor
    return scaled

double, triple = make(2), make(3)
"""


def _run(folder: Path, *statements: str) -> str:
    lines = ("from loops import double, triple", *statements)
    call = [sys.executable, "-c", "\n".join(lines)]
    return subprocess.run(call, cwd=folder, capture_output=True, text=True, timeout=120, check=True).stdout


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    (tmp_path / "loops.py").write_text(_MODULE)
    return tmp_path


def _code(folder: Path) -> list[Path]:
    return sorted((folder / "__pycache__").glob("*.nbc"))


def test_keys_share_no_file_so_processes_cannot_exchange_their_code(tmp_path: Path) -> None:
    keys = [(signature, cpu) for signature in ((types.int64,), (types.float64,)) for cpu in ("haswell", "icelake")]
    one_each = [_CodeFiles(str(tmp_path), "loop-1.py311", "stamp") for _ in keys]  # type: ignore[no-untyped-call]
    for files, key in zip(one_each, keys, strict=True):
        files.save(key, f"code for {key}")
    assert len(list(tmp_path.iterdir())) == len(keys)
    for files in one_each:
        assert [files.load(key) for key in keys] == [f"code for {key}" for key in keys]
        assert files.load(((types.int32,), "haswell")) is None


def test_closures_of_one_name_have_code_of_their_own(folder: Path) -> None:
    statements = ("print(double(1), triple(1), double(1.5), sum(double.stats.cache_hits.values()))",)
    assert _run(folder, *statements) == "2 3 3.0 0\n"
    assert len(_code(folder)) == 3
    assert _run(folder, *statements) == "2 3 3.0 2\n"  # both signatures of `double` are read


def test_code_that_is_damaged_or_of_an_older_source_is_compiled_again(folder: Path) -> None:
    statement = "print(double(1), sum(double.stats.cache_hits.values()))"
    _run(folder, statement)
    [path] = _code(folder)
    whole = path.read_bytes()
    for damaged in (b"", whole[: len(whole) // 2], b"cos\nno_such_name\n."):
        path.write_bytes(damaged)
        assert _run(folder, statement) == "2 0\n"
        assert _run(folder, statement) == "2 1\n"
    (folder / "loops.py").write_text(_MODULE.replace("x * factor", "x * factor + 1"))
    assert _run(folder, statement) == "3 0\n"


def test_a_full_disk_does_not_stop_compiled_code(folder: Path) -> None:
    full = "import errno; from numba.core.caching import IndexDataCacheFile as files"
    fail = "def write(*_): raise OSError(errno.ENOSPC, 'no space left')"
    assert _run(folder, full, fail, "files._save_data = write", "print(triple(2))") == "6\n"
    assert not _code(folder)


def test_each_compiled_function_uses_these_files() -> None:
    assert isinstance(compiled.floats_in_lines._cache._cache_file, _CodeFiles)  # type: ignore[attr-defined]
