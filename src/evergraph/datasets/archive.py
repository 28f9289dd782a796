"""Files that arrived from elsewhere: careful with their names, whole or not there at all."""

from __future__ import annotations

import stat
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PureWindowsPath

from evergraph.errors import DownloadError, InputError

__all__ = ["unpack"]


@contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except DownloadError:
        raise
    except OSError as error:
        problem = f"{error.filename or folder}: {error.strerror or error}"
        fix = "make room on the disk, or choose a folder with room that you may write to"
        raise DownloadError(f"{problem}. To fix it: {fix} (EVERGRAPH_CACHE sets the cache).") from error


def is_plain(name: str) -> bool:
    """Tell whether a name is that of a file in its folder, by the rules of Windows, the strictest."""
    return name not in {"", ".", ".."} and PureWindowsPath(name).name == name and "\0" not in name


def size_of(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def unpack(archive: Path, into: Path) -> Path:
    """Unpack a zip archive into a folder of its own: whole, or not at all.

    Parameters
    ----------
    archive
        The zip file. One with links, or with names that lead out of the folder, is refused.
    into
        The folder to make. If it is there and holds what the archive holds, nothing is done.

    Returns
    -------
    Path
        ``into``.

    Raises
    ------
    DownloadError
        If the archive is damaged or refused, or the disk is full.
    InputError
        If there is no such archive, or ``into`` is there with something else in it.

    Examples
    --------
    >>> import tempfile, zipfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with zipfile.ZipFile(f"{folder}/data.zip", "w") as archive:
    ...         archive.writestr("years/1999.txt", "abc")
    ...     unpacked = unpack(Path(folder, "data.zip"), Path(folder, "data"))
    ...     (unpacked / "years" / "1999.txt").read_text()
    'abc'
    """
    if not archive.is_file():
        raise InputError("there is no such archive", fix="check its path", file=archive)
    advice = "To fix it: delete it and download it again"
    try:
        with disk_errors(into), zipfile.ZipFile(archive) as content:
            members = content.infolist()
            for member in members:
                plain = all(map(is_plain, member.filename.removesuffix("/").split("/")))
                if not plain or stat.S_ISLNK(member.external_attr >> 16):
                    raise DownloadError(f"{archive}: refusing the unsafe member {member.filename!r}. {advice}.")
            if into.exists():
                if all(size_of(into / m.filename) == m.file_size for m in members if not m.is_dir()):
                    return into
                raise InputError(f"{into} is not what {archive} holds", fix="remove it or name another folder")
            into.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=".unpack-", dir=into.parent) as scratch:
                # One level down, as the temporary folder itself is closed to other users.
                whole = Path(scratch, into.name)
                whole.mkdir()  # an archive may hold nothing
                content.extractall(whole)
                try:
                    whole.rename(into)
                except OSError:
                    if not into.is_dir():  # else another process was faster, and it is whole
                        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise DownloadError(f"{archive}: cannot be unpacked ({error}). {advice}.") from error
    return into
