"""Options of the service, and what makes a combination of them unsafe."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from evergraph.errors import InputError
from evergraph.presentation.text import command_line

__all__ = ["Options"]

_NAME = re.compile(r"([a-z0-9]([a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:.]+\])(:[0-9]{1,5})?", re.IGNORECASE)
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


@dataclass(frozen=True)
class Options:
    """Options of ``evergraph serve``.

    Parameters
    ----------
    host, port
        The address to listen on; port 0 for a free one.
    no_auth
        Whether everyone on this machine may do everything, without signing in.
    tls_cert, tls_key
        Certificate and private key (PEM) for HTTPS.
    behind_proxy
        Whether a reverse proxy on this machine provides HTTPS.
    allow_hosts
        Further names by which clients address the service, with a port if it is not the usual one.
    max_body
        Most bytes of a request body.
    max_rows
        Most rows of a table in a request.
    rate
        Requests per second that a user, or an address without one, may send; four times as many at once.
    threads
        Threads that a job computes with.
    patience
        Seconds that a client has for the head of a request, and for its body before 64 KiB per second are expected.
    """

    host: str = "127.0.0.1"
    port: int = 8765
    no_auth: bool = False
    tls_cert: Path | None = None
    tls_key: Path | None = None
    behind_proxy: bool = False
    allow_hosts: tuple[str, ...] = ()
    max_body: int = 64 << 20
    max_rows: int = 1_000_000
    rate: float = 50.0
    threads: int = 1
    patience: float = 10.0

    @cached_property
    def is_local(self) -> bool:
        """Whether only programs on this machine can reach the service."""
        return not self.behind_proxy and (self.host == "localhost" or _is(self.host, "is_loopback"))

    @cached_property
    def is_secure(self) -> bool:
        """Whether clients use HTTPS."""
        return self.tls_cert is not None or self.behind_proxy

    @cached_property
    def hosts(self) -> frozenset[str]:
        """The values of the header ``Host`` that are answered.

        Examples
        --------
        >>> sorted(Options(port=80).hosts)
        ['127.0.0.1', '127.0.0.1:80', '[::1]', '[::1]:80', 'localhost', 'localhost:80']
        >>> sorted(Options(behind_proxy=True, allow_hosts=("Example.org",)).hosts)
        ['example.org', 'example.org:443']
        """
        port = 443 if self.behind_proxy else self.port
        names = {name.lower() for name in self.allow_hosts}
        if not self.behind_proxy and not _is(self.host, "is_unspecified"):
            names.add(_in_url(self.host))
        if self.is_local:
            names.update(_LOOPBACK)
        usual = port == (443 if self.is_secure else 80)
        bare = {name for name in names if not re.search(r":[0-9]+$", name)}
        return frozenset((names - bare) | {f"{name}:{port}" for name in bare} | (bare if usual else set()))

    @cached_property
    def url(self) -> str:
        """The address to open in a browser, without a path.

        Examples
        --------
        >>> Options(host="::1").url
        'http://[::1]:8765'
        """
        scheme = "https" if self.is_secure else "http"
        if self.behind_proxy:
            return f"{scheme}://{self.allow_hosts[0]}"
        if not _is(self.host, "is_unspecified"):
            return f"{scheme}://{_in_url(self.host)}:{self.port}"
        name = self.allow_hosts[0]
        return f"{scheme}://{name}" if re.search(r":[0-9]+$", name) else f"{scheme}://{name}:{self.port}"

    def check(self, folder: Path, *, has_token: bool) -> None:
        """Refuse options that contradict each other or would open the workspace to others.

        Parameters
        ----------
        folder
            The workspace, for the commands in messages.
        has_token
            Whether the workspace has a token.
        """
        if (self.tls_cert is None) != (self.tls_key is None):
            raise InputError("--tls-cert and --tls-key belong together", fix="give both or neither")
        if self.tls_cert is not None and self.behind_proxy:
            raise InputError("--tls-cert and --behind-proxy are both given", fix="give only one of them")
        for name in self.allow_hosts:
            if not _NAME.fullmatch(name):
                fix = "give a name or an address, with a port if it is not the usual one, as in example.org:8443"
                raise InputError(f"--allow-host is {name!r}", fix=fix)
        if self.is_local:
            return
        where = f"--host {self.host}" if not self.behind_proxy else "--behind-proxy"
        if self.no_auth:
            fix = "leave out --no-auth, or serve this machine only"
            raise InputError(f"--no-auth with {where} would let everyone in", fix=fix)
        if not self.is_secure:
            fix = "give --tls-cert and --tls-key, or --behind-proxy if a reverse proxy provides HTTPS"
            raise InputError(f"{where} without HTTPS would send tokens in plain text", fix=fix)
        if not has_token:
            create = command_line("serve-token", "create", folder, "--name", "me", "--role", "admin")
            raise InputError(f"{where} needs a token, and this workspace has none", fix=f"create one with: {create}")
        if not self.allow_hosts and (self.behind_proxy or _is(self.host, "is_unspecified")):
            fix = "give --allow-host NAME, the name in the address that users open"
            raise InputError(f"{where} does not say by which name the service is addressed", fix=fix)


def _is(host: str, kind: str) -> bool:
    try:
        return bool(getattr(ipaddress.ip_address(host), kind))
    except ValueError:
        return False


def _in_url(host: str) -> str:
    return f"[{host.lower()}]" if ":" in host else host.lower()
