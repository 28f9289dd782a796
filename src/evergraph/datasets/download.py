"""Fetch the files of a Zenodo record into a cache folder, and unpack archives.

Hand-written, because pooch restarts an interrupted transfer from the beginning.
"""

from __future__ import annotations

import hashlib
import http.client
import logging
import os
import stat
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath
from typing import TypeVar, cast

from evergraph import __version__
from evergraph.datasets.files import LEAST_LIMIT, raise_limit, unpacked_limit
from evergraph.errors import DownloadError, EvergraphError, InputError, os_error
from evergraph.presentation.text import visible
from evergraph.storage.decoding import parse_json
from evergraph.storage.files import only_one, sync_folder

__all__ = ["cache_folder", "fetch_record", "unpack"]

_T = TypeVar("_T")
_log = logging.getLogger(__name__)

_CHUNK = 1 << 20
_TIMEOUT = 30.0  # seconds without a single byte
_LONGEST_WAIT = 60.0  # seconds; Zenodo limits requests per minute
_MEANINGS = {
    401: "the record is not public",
    403: "the server refuses access: the record is not public, or this network is blocked",
    404: "there is no such record or file",
    410: "the record has been withdrawn",
    429: "there were too many requests",
}
_FETCH = "delete it and download it again"
_HANDLERS = ("Proxy", "Unknown", "HTTP", "HTTPS", "HTTPDefaultError", "HTTPRedirect")


@dataclass(frozen=True, slots=True)
class _File:
    name: str
    size: int
    algorithm: str
    digest: str
    url: str

    def matches(self, path: Path) -> bool:
        if path.stat().st_size != self.size:
            return False
        with path.open("rb") as stream:
            found = hashlib.file_digest(stream, lambda: hashlib.new(self.algorithm, usedforsecurity=False))
        return found.hexdigest() == self.digest


_Show = Callable[[_File, int], None]


def cache_folder() -> Path:
    """Return ``$EVERGRAPH_CACHE`` if set, else ``$XDG_CACHE_HOME/evergraph``, else ``~/.cache/evergraph``."""
    if own := os.environ.get("EVERGRAPH_CACHE"):
        return Path(own).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "evergraph"


def fetch_record(
    record: str | int,
    *,
    cache: Path | None = None,
    api: str = "https://zenodo.org/api/records",
    quiet: bool = False,
    waits: Sequence[float] = (1, 2, 4, 8, 16),
) -> dict[str, Path]:
    """Fetch the files of a Zenodo record into the cache, check their checksums, and return their paths by name.

    Files that are in the cache with the right size and checksum are not transferred again. An interrupted transfer
    resumes where it stopped, within a call and from call to call. The description of the record is kept beside its
    files, so cached files can be used and checked without a network.

    Parameters
    ----------
    record
        The number of the record, the last part of its address.
    cache
        Folder for the files, in a subfolder named after the record; by default ``cache_folder()``.
    api
        The address of the API that describes records.
    quiet
        Show no progress bar. Without a terminal there is none.
    waits
        Seconds to wait before the second attempt, the third, and so on.

    Raises
    ------
    DownloadError
        If a file could not be fetched. What has arrived is kept for the next call, unless its checksum is wrong.
    """
    number = str(record)
    if not (number.isascii() and number.isdecimal()):
        raise InputError(f"{number!r} is not a record number", fix="give the digits that end its address")
    root = cache_folder() if cache is None else cache
    folder, saved, address = root / number, root / f"{number}.json", f"{api}/{number}"
    page = f"{api.removesuffix('/api/records')}/records/{number}"
    by_hand = f"download the files by hand from {page} into {folder} and {address} as {saved}"
    with _disk_errors(root):
        folder.mkdir(parents=True, exist_ok=True)
        # One lock, not a part file for each process, which no later process could find and resume.
        waiting = f"Waiting for another process that downloads the same files into {folder}"
        with only_one(root / f"{number}.lock", waiting), _progress(quiet) as show:
            try:
                # With a saved description, waiting for the network would only take time.
                text = _retry(lambda: _read(address), () if saved.exists() else waits)
                files = _parse(text, address)
                fresh = root / f"{number}.json.part"
                fresh.write_bytes(text)
                _put(fresh, saved)
            except _RequestError as error:
                if not saved.exists():
                    fix = f"check the number {number} and the network and run the command again, or {by_hand}"
                    raise DownloadError(str(error), fix=fix) from error
                _log.warning("%s. Using the description saved in %s.", error, saved)
                files = _parse(saved.read_bytes(), str(saved))
            for file in files:
                _fetch(file, folder, waits, show, by_hand)
    return {file.name: folder / file.name for file in files}


def _parse(text: bytes, origin: str) -> list[_File]:
    try:
        listed = parse_json(text)["files"]
        if isinstance(listed, dict):  # InvenioRDM's own form; Zenodo's is a list
            listed = list(listed["entries"].values())
        files = [_parse_file(entry) for entry in listed]
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        problem = f"{origin}: this does not describe the files of a record ({error!r})"
        raise DownloadError(problem, fix="look at what is there, or try again later") from error
    if not files:
        raise DownloadError(f"{origin}: the record has no public files", fix="check its number")
    return files


def _parse_file(entry: dict[str, object]) -> _File:
    name, links = entry["key"], entry["links"]
    if not isinstance(name, str) or not _is_plain(name):
        raise DownloadError(f"refusing the file name {name!r}, which may lead out of the cache", fix="use other data")
    if not isinstance(links, dict):
        raise TypeError(f"no links for {name!r}")
    algorithm, _, digest = str(entry["checksum"]).lower().partition(":")
    if algorithm not in {"md5", "sha1", "sha256", "sha512"}:
        raise ValueError(f"unknown checksum {entry['checksum']!r} for {name!r}")
    # In InvenioRDM's own form, "self" is a description of the file and "content" the file.
    # Zenodo does not escape names in its links.
    url = urllib.parse.quote(str(links.get("content") or links["self"]), safe="%/:?=&+,;@!$'()*[]~")
    return _File(name, int(str(entry["size"])), algorithm, digest, url)


def _fetch(file: _File, folder: Path, waits: Sequence[float], show: _Show, by_hand: str) -> None:
    target, part = folder / file.name, folder / f"{file.name}.part"
    if target.is_file():
        if file.matches(target):
            return
        _log.warning("%s is not the file of the record. Downloading it again", target)
    try:
        _retry(lambda: _receive(file, part, show), waits)
    except _RequestError as error:
        kept = f"{_size_of(part):,} of {file.size:,} bytes have arrived and are kept in {part}"
        raise DownloadError(f"{error}. {kept}", fix=f"run the command again to fetch the rest, or {by_hand}") from error
    if not file.matches(part):
        part.unlink()
        problem = f"{file.url}: what arrived does not have the checksum {file.algorithm}:{file.digest} and was deleted"
        raise DownloadError(problem, fix=f"run the command again, or {by_hand}")
    _put(part, target)


def _receive(file: _File, part: Path, show: _Show) -> None:
    """Append to the part file what one connection yields."""
    start = _size_of(part)
    if start > file.size:  # left by a file that has since changed
        start = 0
    if start and start == file.size:
        return
    try:
        response = _open_url(file.url, start)
    except _RequestError as error:
        if error.status == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            part.unlink(missing_ok=True)  # so that the next attempt starts from the beginning
        raise
    with response:
        if response.status == http.HTTPStatus.PARTIAL_CONTENT:
            span, _, total = response.headers.get("Content-Range", "").partition("/")
            if span != f"bytes {start}-{file.size - 1}" or total not in {str(file.size), "*"}:
                part.unlink(missing_ok=True)
                raise _RequestError(f"{file.url}: the server sent another part than requested")
        else:
            start = 0
            length = response.headers.get("Content-Length", str(file.size))
            if length != str(file.size):
                problem = f"{file.url}: the server sends {length} bytes where the record has {file.size}"
                raise _RequestError(problem, temporary=False)
        with part.open("ab" if start else "wb") as out:
            while start < file.size:
                with _network_errors(file.url):
                    chunk = response.read1(min(_CHUNK, file.size - start))
                if not chunk:
                    raise _RequestError(f"{file.url}: the connection was closed early")
                out.write(chunk)
                start += len(chunk)
                show(file, start)


@contextmanager
def _progress(quiet: bool) -> Iterator[_Show]:
    if quiet or not sys.stderr.isatty():
        yield lambda _file, _done: None
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TransferSpeedColumn

    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn()
    tasks: dict[str, TaskID] = {}
    with Progress(*columns, console=Console(stderr=True)) as bar:

        def show(file: _File, done: int) -> None:
            if file.name not in tasks:
                tasks[file.name] = bar.add_task(escape(visible(file.name)), total=file.size)
            bar.update(tasks[file.name], completed=done)

        yield show


def _put(part: Path, target: Path) -> None:
    """Move a complete file into place; after a power cut it is there whole or not at all."""
    with part.open("r+b") as stream:
        os.fsync(stream.fileno())
    part.replace(target)
    sync_folder(target.parent)


class _RequestError(Exception):
    """A request that failed. Retrying helps only if the failure is ``temporary``."""

    def __init__(self, problem: str, *, temporary: bool = True, status: int = 0, wait: float = 0.0) -> None:
        super().__init__(problem)
        self.temporary, self.status, self.wait = temporary, status, wait


def _retry(attempt: Callable[[], _T], waits: Sequence[float]) -> _T:
    for wait in waits:
        try:
            return attempt()
        except _RequestError as error:
            if not error.temporary:
                raise
            pause = max(wait, error.wait)
            _log.warning("%s. Trying again in %g s", error, pause)
            time.sleep(pause)
    return attempt()


def _read(url: str) -> bytes:
    with _open_url(url) as response, _network_errors(url):
        return response.read()


def _open_url(url: str, start: int = 0) -> http.client.HTTPResponse:
    """Open an address, from a byte on if the server supports that."""
    if not url.lower().startswith(("http://", "https://")):
        raise _RequestError(f"{url}: only http and https addresses are followed", temporary=False)
    # Zenodo refuses requests that do not name their program.
    headers = {"User-Agent": f"evergraph/{__version__}"} | ({"Range": f"bytes={start}-"} if start else {})
    # An opener without other schemes, so that no redirection leads to a local file or to FTP.
    opener = urllib.request.OpenerDirector()
    for name in _HANDLERS:
        opener.add_handler(getattr(urllib.request, f"{name}Handler")())
    opener.add_handler(urllib.request.HTTPErrorProcessor())
    with _network_errors(url):
        request = urllib.request.Request(url, headers=headers)  # noqa: S310 (checked above)
        return cast(http.client.HTTPResponse, opener.open(request, timeout=_TIMEOUT))


@contextmanager
def _network_errors(url: str) -> Iterator[None]:
    """Turn the many ways in which a connection fails into a `_RequestError`."""
    try:
        yield
    except urllib.error.HTTPError as error:
        with error:  # it holds the connection
            code, after = error.code, error.headers.get("Retry-After", "")
        meaning = _MEANINGS.get(code, "the server has a fault" if code >= 500 else error.reason)
        raise _RequestError(
            f"{url}: {meaning} (HTTP {code})",
            temporary=code in {416, 429} or code >= 500,
            status=code,
            wait=min(float(after), _LONGEST_WAIT) if after.isdecimal() else 0.0,
        ) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise _RequestError(f"{url}: the connection failed ({getattr(error, 'reason', error)})") from error


@contextmanager
def _disk_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except DownloadError:
        raise
    except OSError as error:
        raise os_error(error, file=folder, note="EVERGRAPH_CACHE sets the folder of downloads") from error


def _is_plain(name: str) -> bool:
    """Whether a name is that of a file in its folder, by the rules of Windows, the strictest."""
    return name not in {"", ".", ".."} and PureWindowsPath(name).name == name and "\0" not in name


def _size_of(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def unpack(archive: Path, into: Path, *, least: int = LEAST_LIMIT) -> Path:
    """Unpack a zip archive into a new folder and return it. Atomic: it either succeeds completely or changes nothing.

    An archive with links, or with names that lead out of the folder, is refused. If the folder already holds what the
    archive holds, nothing is done.

    An archive that unpacks to more than ``least`` bytes and more than 100 times its size is refused before anything is
    written. The environment variable ``EVERGRAPH_MAX_UNPACKED``, in GB, replaces this limit.
    """
    if not archive.is_file():
        raise InputError("there is no such archive", fix="check its path", file=archive)
    with _disk_errors(into), opened_zip(archive) as content:
        members = content.infolist()
        # zipfile writes no more than the sizes in the directory. Of other methods than these it unpacks as much as
        # the archive holds before it checks.
        if not all(member.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for member in members):
            raise DownloadError(f"{archive}: is not compressed with deflate", fix="unpack it by hand")
        size, limit = sum(member.file_size for member in members), unpacked_limit(archive, least)
        if size > limit:
            raise InputError(
                f"the archive has {_size_of(archive):,} bytes, but unpacks to {size:,}; the limit is {limit:,}",
                fix=raise_limit(size),
                file=archive,
            )
        for member in members:
            plain = all(map(_is_plain, member.filename.removesuffix("/").split("/")))
            if not plain or stat.S_ISLNK(member.external_attr >> 16):
                raise DownloadError(f"{archive}: refusing the unsafe member {member.filename!r}", fix=_FETCH)
        if into.exists():
            if all(_size_of(into / m.filename) == m.file_size for m in members if not m.is_dir()):
                return into
            raise InputError(f"{into} is not what {archive} holds", fix="remove it or name another folder")
        into.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".unpack-", dir=into.parent) as scratch:
            # One level down, because other users cannot read the temporary folder itself.
            whole = Path(scratch, into.name)
            whole.mkdir()  # the archive may be empty
            content.extractall(whole)
            try:
                whole.rename(into)
            except OSError:
                if not into.is_dir():  # else another process was faster, and it is complete
                    raise
    return into


@contextmanager
def opened_zip(archive: Path) -> Iterator[zipfile.ZipFile]:
    """Open a zip archive; errors while it is used say what is wrong with it."""
    try:
        with zipfile.ZipFile(archive) as content:
            yield content
    except (EvergraphError, OSError, MemoryError):
        raise
    except Exception as error:  # names, methods and sizes that were changed break zipfile in many ways
        raise DownloadError(f"{archive}: cannot be unpacked ({error})", fix=_FETCH) from error
