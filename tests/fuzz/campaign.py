"""One input after another: damage a sample, read it, and note what happened."""

from __future__ import annotations

import contextlib
import io
import shutil
import tempfile
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Literal
from unittest import mock

from evergraph.errors import BusyError, EvergraphError, StorageError
from tests.fuzz.damage import files, write
from tests.fuzz.readers import Reader

SECONDS = 2.0
"""Longest time for one input."""

Outcome = Literal["read", "refused", "finding"]


@dataclass(frozen=True)
class Result:
    """What one input led to; ``problem`` describes a finding."""

    outcome: Outcome
    problem: str = ""


class Bench:
    """A sample of a reader in a folder, damaged and restored again and again."""

    def __init__(self, reader: Reader, folder: Path) -> None:
        self.reader, self.folder = reader, folder
        folder.mkdir(parents=True)
        with quiet():
            reader.sample(folder)
        self.sample = {path.relative_to(folder): path.read_bytes() for path in files(folder)}
        with quiet():
            reader.use(reader.read(folder))  # the sample is valid; this also compiles and imports what reading needs
        self.restore()

    def restore(self) -> None:
        """Write what has changed again, and remove what is new."""
        for path in sorted(self.folder.rglob("*"), reverse=True):
            name = path.relative_to(self.folder)
            if path.is_dir() and not path.is_symlink():
                if name in self.sample:
                    shutil.rmtree(path)
                elif not any(path.iterdir()):
                    path.rmdir()
            elif self.sample.get(name) != path.read_bytes():
                path.unlink()
        for name, data in self.sample.items():
            if not (self.folder / name).exists():
                write(self.folder / name, data)

    def damage(self, seed: int, number: int) -> None:
        """Damage the sample; the same seed and number give the same input."""
        rng = Random(f"{self.reader.name} {seed} {number}")
        rng.choice(self.reader.damage)(rng, self.folder)

    def attempt(self) -> Result:
        """Read what is in the folder."""
        start, named = time.perf_counter(), self.reader.named
        try:
            with quiet():
                found = self.reader.read(self.folder)
                named = False
                self.reader.use(found)
        except (StorageError, BusyError) as error:
            return Result("finding", f"the disk is blamed: {error}")
        except EvergraphError as error:
            names = {
                self.folder.name,
                *(path.name for path in files(self.folder)),
                *(path.name for path in self.sample),
            }
            if named and not any(name in str(error) for name in names):
                return Result("finding", f"the message names no file: {type(error).__name__}: {error}")
            result = Result("refused")
        except (Exception, SystemExit) as error:
            return Result("finding", "".join(traceback.format_exception(error, limit=-6)))
        else:
            result = Result("read")
        seconds = time.perf_counter() - start
        return result if seconds <= SECONDS else Result("finding", f"it took {seconds:.1f} s")


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Do not print, and do not wait for the disk."""
    from evergraph.storage import records

    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
        mock.patch("os.fsync"),
        mock.patch.object(records, "SYNCHRONOUS", "OFF"),
    ):
        yield


@contextlib.contextmanager
def bench(reader: Reader) -> Iterator[Bench]:
    """Return a reader's bench in a temporary folder."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir=memory if memory.is_dir() else None) as root:
        yield Bench(reader, Path(root) / f"sample-of-{reader.name}")
