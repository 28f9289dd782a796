"""Asking the web for something: clear reasons when it fails, and patience where patience helps."""

from __future__ import annotations

import http.client
import logging
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar, cast

from evergraph import __version__

_T = TypeVar("_T")
_log = logging.getLogger(__name__)

_TIMEOUT = 30.0  # seconds without a single byte
_LONGEST_WAIT = 60.0  # seconds; Zenodo counts requests by the minute
_MEANINGS = {
    401: "the record is not public",
    403: "the server refuses access: the record is not public, or this network is blocked",
    404: "there is no such record or file",
    410: "the record has been withdrawn",
    429: "the server asks for fewer requests",
}


class RequestError(Exception):
    """A request that failed; unless ``passing``, asking again is of no use."""

    def __init__(self, problem: str, *, passing: bool = True, status: int = 0, wait: float = 0.0) -> None:
        super().__init__(problem)
        self.passing, self.status, self.wait = passing, status, wait


def retry(attempt: Callable[[], _T], waits: Sequence[float]) -> _T:
    """Attempt once and, as long as the failure may pass, again after each wait."""
    for wait in waits:
        try:
            return attempt()
        except RequestError as error:
            if not error.passing:
                raise
            pause = max(wait, error.wait)
            _log.warning("%s; trying again in %g s", error, pause)
            time.sleep(pause)
    return attempt()


def read(url: str) -> bytes:
    """All that is at an address."""
    with open_url(url) as response, network_errors(url):
        return response.read()


def open_url(url: str, start: int = 0) -> http.client.HTTPResponse:
    """What is at an address, from a byte on if the server can do that; to be closed after use."""
    if not url.lower().startswith(("http://", "https://")):
        raise RequestError(f"{url}: only http and https addresses are followed", passing=False)
    # Zenodo turns away requests that do not say which program they come from.
    headers = {"User-Agent": f"evergraph/{__version__}"} | ({"Range": f"bytes={start}-"} if start else {})
    # An opener that knows no other scheme, so that no redirection leads to a local file or to FTP.
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler,
        urllib.request.UnknownHandler,
        urllib.request.HTTPHandler,
        urllib.request.HTTPSHandler,
        urllib.request.HTTPDefaultErrorHandler,
        urllib.request.HTTPRedirectHandler,
        urllib.request.HTTPErrorProcessor,
    ):
        opener.add_handler(handler())
    with network_errors(url):
        request = urllib.request.Request(url, headers=headers)  # noqa: S310 (checked above)
        return cast(http.client.HTTPResponse, opener.open(request, timeout=_TIMEOUT))


@contextmanager
def network_errors(url: str) -> Iterator[None]:
    """Turn the many ways in which a connection fails into a `RequestError` that says what happened."""
    try:
        yield
    except urllib.error.HTTPError as error:
        with error:  # it holds the connection
            code, after = error.code, error.headers.get("Retry-After", "")
        meaning = _MEANINGS.get(code, "the server has a fault" if code >= 500 else error.reason)
        raise RequestError(
            f"{url}: {meaning} (HTTP {code})",
            passing=code in {416, 429} or code >= 500,
            status=code,
            wait=min(float(after), _LONGEST_WAIT) if after.isdecimal() else 0.0,
        ) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise RequestError(f"{url}: no connection, or it broke ({reason})") from error
