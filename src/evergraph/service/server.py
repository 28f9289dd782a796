"""The process behind ``evergraph serve``: checks the options, opens the port, and runs uvicorn until a signal."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import signal
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from evergraph.errors import InputError
from evergraph.service.auth import list_tokens
from evergraph.service.options import Options

__all__ = ["serve"]

_LONGEST_HEAD = 64 << 10
_MOST_CONNECTIONS = 500
_KEEP_ALIVE = 30  # seconds
_LAST_ANSWERS = 2.0  # seconds that requests have at the end


def serve(folder: Path, options: Options, on_start: Callable[[str, str | None], None]) -> None:
    """Serve a workspace until Ctrl-C or SIGTERM.

    Parameters
    ----------
    folder
        The workspace.
    options
        Options of the service.
    on_start
        Called with the address and the one-time sign-in link (None: there is none) when requests are answered.
    """
    has_token = any(row.revoked is None for row in list_tokens(folder))
    options.check(folder, has_token=has_token)
    _check_certificate(options)
    with contextlib.closing(_bind(options)) as bound:
        options = replace(options, port=bound.getsockname()[1])
        from evergraph.service.app import build_app

        app = build_app(folder, options)
        code = app.state.authenticator.code
        link = f"{options.url}/signin?code={code}" if code else None
        _Server(_config(app, options), lambda: on_start(options.url, link)).run([bound])


def _check_certificate(options: Options) -> None:
    if options.tls_cert is None:
        return
    try:
        # Without a password, OpenSSL would ask for it on the terminal.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(options.tls_cert, options.tls_key, password="")
    except (OSError, ValueError) as error:
        fix = "give --tls-cert and --tls-key the PEM files of a certificate and its key without a password"
        raise InputError(f"the certificate cannot be used ({error})", file=options.tls_cert, fix=fix) from error


def _bind(options: Options) -> socket.socket:
    """Open the port, before anything expensive is loaded."""
    host, port = options.host, options.port
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as error:
        raise InputError(f"--host is {host!r}, which is not an address", fix="give an address, as 127.0.0.1") from error
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port that was used a moment ago is free
        bound.bind(address)
        bound.listen(2048)
    except OSError as error:
        bound.close()
        if error.errno == errno.EADDRINUSE:
            fix = "choose another --port, or --port 0 for a free one"
            raise InputError(f"port {port} is in use", fix=fix) from error
        fix = "choose another --port, from 1024 up" if error.errno == errno.EACCES else "choose another --host"
        raise InputError(f"cannot listen on {host}, port {port} ({error.strerror})", fix=fix) from error
    return bound


def _config(app: Any, options: Options) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        loop="uvloop" if os.name == "posix" else "asyncio",
        http=_patient(options.patience),
        ws="none",
        lifespan="on",
        log_config=None,
        log_level=logging.WARNING,
        access_log=False,  # the guard logs writes and refusals
        proxy_headers=options.behind_proxy,
        server_header=False,
        limit_concurrency=_MOST_CONNECTIONS,
        timeout_keep_alive=_KEEP_ALIVE,
        timeout_graceful_shutdown=1,
        ssl_certfile=options.tls_cert,
        ssl_keyfile=options.tls_key,
    )


class _Server(uvicorn.Server):
    """A server that says when it has started, and ends without an error after a signal."""

    def __init__(self, config: uvicorn.Config, on_start: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_start = on_start

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let requests end; then close what is still open, such as streams of events."""
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        until = time.monotonic() + _LAST_ANSWERS
        while self.server_state.connections and time.monotonic() < until and not self.force_exit:
            await asyncio.sleep(0.05)
        for connection in list(self.server_state.connections):
            connection.transport.close()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn's, which sends the signal again at the end."""
        if threading.current_thread() is not threading.main_thread():  # others get no signals
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _patient(seconds: float) -> type[asyncio.Protocol]:
    """Return uvicorn's protocol with limits for clients that send slowly, or send an endless head."""

    class Protocol(HttpToolsProtocol):
        deadline: asyncio.TimerHandle | None = None
        head: int | None = None  # bytes of the head so far; None while a request is answered

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._wait(head=0)

        def connection_lost(self, exc: Exception | None) -> None:
            self._wait_no_more()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            if self.deadline is None and self.cycle is not None and self.cycle.response_complete:
                self._wait(head=0)
            super().data_received(data)
            if self.head is not None:
                self.head += len(data)
                if self.head > _LONGEST_HEAD and not self.transport.is_closing():
                    self.send_400_response("The head of the request is too long.")

        def on_headers_complete(self) -> None:
            self._wait_no_more()
            super().on_headers_complete()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            if self.cycle.response_complete and self.cycle.more_body:
                self._wait(head=None)  # the rest is skipped, because clients read the response after sending

        def on_message_complete(self) -> None:
            if self.deadline is not None:
                self._wait(head=0)
            super().on_message_complete()

        def _unsupported_upgrade_warning(self) -> None:
            """Say nothing: it would recommend a package for websockets, which the service does not use."""

        def _wait(self, head: int | None) -> None:
            self._wait_no_more()
            self.head = head
            self.deadline = self.loop.call_later(seconds, self._give_up)

        def _wait_no_more(self) -> None:
            self.head = None
            if self.deadline is not None:
                self.deadline.cancel()
                self.deadline = None

        def _give_up(self) -> None:
            if not self.transport.is_closing():
                self.transport.abort()

    return Protocol
