"""Connect to a Ray cluster, or start one on this machine. Ray is an optional dependency and is imported on demand."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import sys
from collections.abc import Iterator
from typing import Any

from evergraph.errors import EvergraphError, InputError

__all__ = ["connect", "connected", "first_line", "import_ray"]

log = logging.getLogger(__name__)

_TRUST = (
    "A Ray cluster runs any code that anyone who can reach it sends. Let only trusted machines reach %s (see 'Scale "
    "out with Ray' in the documentation)."
)


def import_ray(address: str | None = None) -> Any:
    """Return the module ``ray``, with its usage statistics off unless the user turned them on.

    Ray listens on all network interfaces. So a cluster that it starts on this machine (``address`` is None) gets a
    token, and refuses processes that do not have it. Ray reads the setting when it is imported.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if _is_new(address) and "ray" not in sys.modules and "RAY_AUTH_MODE" not in os.environ:
        os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    try:
        import ray
    except ImportError as error:
        raise InputError("Ray is not installed", fix="run: pip install 'evergraph[ray]'") from error
    return ray


def _is_new(address: str | None) -> bool:
    return (address or os.environ.get("RAY_ADDRESS") or "local") == "local"


@contextlib.contextmanager
def connected(address: str | None) -> Iterator[Any]:
    """Connect for a block, see `connect`; a connection that this process has already is left open."""
    ray = import_ray(address)
    if ray.is_initialized():
        yield ray
        return
    connect(address)
    try:
        yield ray
    finally:
        ray.shutdown()


def connect(address: str | None) -> Any:
    """Return the module ``ray``, connected to a cluster.

    A connection that this process has already is used. ``address`` is None for the cluster in ``RAY_ADDRESS``, or else
    a new one on this machine, which ends with this process.
    """
    ray = import_ray(address)
    if ray.is_initialized():
        return ray
    if new := _is_new(address):
        address = "local"
    else:
        address = address or os.environ["RAY_ADDRESS"]
        log.warning(_TRUST, address)
    try:
        context = ray.init(
            address=address,
            logging_level=logging.ERROR,
            log_to_driver=False,
            **({"include_dashboard": True} if new else {}),
        )
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        if new:
            raise EvergraphError(f"Ray could not start on this machine ({first_line(error)})") from error
        raise EvergraphError(
            f"there is no Ray cluster at {address} ({first_line(error)})",
            fix="start one with 'ray start --head', or leave --address out to use this machine alone",
        ) from error
    if context.dashboard_url:
        token = os.environ.get("RAY_AUTH_TOKEN") if new else None
        log.info("Ray's dashboard: http://%s%s", context.dashboard_url, f" (token: {token})" if token else "")
    return ray


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
