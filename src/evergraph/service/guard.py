"""The guard in front of all routes: refuses requests that are foreign, too large, too slow, too many or not signed in.

It is plain ASGI, because every request passes through it.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import math
import time
from collections.abc import Awaitable, Callable, MutableMapping
from http import HTTPStatus
from typing import Any, NoReturn
from urllib.parse import quote

from evergraph.errors import EvergraphError
from evergraph.presentation.text import visible
from evergraph.service.auth import LOCAL, Authenticator, Session, User
from evergraph.service.options import Options

__all__ = ["Guard"]

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""The Content-Security-Policy of a response whose route sets none."""

_HEADERS = {
    "content-security-policy": CSP,
    "x-content-type-options": "nosniff",
    # not no-referrer: with that, browsers would send the forms of these pages with "Origin: null"
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()",
}
_SAFE = ("GET", "HEAD", "OPTIONS")
_PROBES = ("/healthz", "/readyz")
_SMALL_BODY = 16 << 10  # bytes that a client may send who is not signed in
_BYTES_PER_SECOND = 64 << 10
_BURST = 4  # seconds of the rate that may be used at once
_SIGN_INS, _SIGN_IN_RATE = 10, 0.2  # attempts at once, and per second
_MOST_BUCKETS = 10_000

_log = logging.getLogger("evergraph.service")


class _RefusedError(Exception):
    """A request that is not answered by its route."""

    def __init__(self, status: int, detail: str, **headers: str) -> None:
        super().__init__(detail)
        self.status, self.detail = status, detail
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


class Buckets:
    """Token buckets that limit a rate per key; the key that was used longest ago is forgotten if there are too many.

    Parameters
    ----------
    rate
        Tokens that a bucket gets per second.
    size
        Tokens of a full bucket.
    """

    def __init__(self, rate: float, size: float) -> None:
        self.rate, self.size = rate, size
        self._found: dict[str, tuple[float, float]] = {}  # tokens, and when; in the order of use

    def take(self, key: str) -> float:
        """Take a token; return 0, or the seconds until there is one."""
        now = time.monotonic()
        tokens, then = self._found.pop(key, (self.size, now))
        tokens = min(self.size, tokens + (now - then) * self.rate)
        wait = 0.0 if tokens >= 1 else (1 - tokens) / self.rate
        self._found[key] = (tokens if wait else tokens - 1, now)
        if len(self._found) > _MOST_BUCKETS:
            del self._found[next(iter(self._found))]
        return wait


class Guard:
    """ASGI middleware; sets ``user``, ``csrf`` and ``session`` of ``request.state``.

    Parameters
    ----------
    app
        The application behind it.
    authenticator
        Knows tokens and sessions.
    options
        Names of this service and limits.
    """

    def __init__(self, app: App, *, authenticator: Authenticator, options: Options) -> None:
        self.app, self.authenticator, self.options = app, authenticator, options
        self.requests = Buckets(options.rate, options.rate * _BURST)
        self.sign_ins = Buckets(_SIGN_IN_RATE, _SIGN_INS)
        self.hosts = {host.encode() for host in options.hosts}
        self.scheme = b"https://" if options.is_secure else b"http://"
        headers = dict(_HEADERS)
        if options.is_secure:
            headers["strict-transport-security"] = "max-age=31536000"
        self.headers = [(name.encode(), value.encode()) for name, value in headers.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "http":
            await _Exchange(self, scope, receive, send).run()
        elif scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        else:  # there are no websockets
            await send({"type": "websocket.close"})


class _Exchange:
    """One request and its response."""

    __slots__ = (
        *("_receive", "_send", "began", "client", "given", "guard", "is_write", "limit", "path", "received"),
        *("refused", "scope", "started", "user", "whole"),
    )

    def __init__(self, guard: Guard, scope: Scope, receive: Receive, send: Send) -> None:
        self.guard, self.scope, self._receive, self._send = guard, scope, receive, send
        self.given: dict[bytes, bytes] = dict(scope["headers"])
        self.path: str = scope["path"]
        self.is_write = scope["method"] not in _SAFE
        self.client: str = scope["client"][0] if scope.get("client") else "unknown"
        self.user: User | None = None
        self.started = False  # the response
        self.refused: _RefusedError | None = None  # while the body was read
        self.whole = False  # the body has arrived
        self.received, self.limit, self.began = 0, _SMALL_BODY, 0.0

    async def run(self) -> None:
        try:
            self._check_origin()
            await self._authenticate()
            await self.guard.app(self.scope, self.receive, self.send)
        except _RefusedError as error:
            if not self.started:
                await self._refuse(error)
        except Exception:
            if not self.started:
                detail = "The service failed. Its log says why."
                await self._refuse(self.refused or _RefusedError(500, detail))
                if self.refused:
                    return
            raise

    # --- checks -------------------------------------------------------------------------------------------------------

    def _check_origin(self) -> None:
        """Refuse requests for another host, and those that a page of another site has sent."""
        host = self.given.get(b"host", b"").lower()
        if host not in self.guard.hosts or sum(name == b"host" for name, _ in self.scope["headers"]) != 1:
            detail = "This service does not have this name. Start it with --allow-host NAME to give it another one."
            raise _RefusedError(421, detail)
        origin = self.given.get(b"origin")
        if origin is not None and origin.lower() != self.guard.scheme + host:
            raise _RefusedError(403, "The request comes from a page of another site.")
        if self.is_write and self.given.get(b"sec-fetch-site", b"none") not in (b"same-origin", b"none"):
            raise _RefusedError(403, "The request comes from a page of another site.")

    async def _authenticate(self) -> None:
        guard, path = self.guard, self.path
        try:
            self.user, session = await self._identify()
        except (EvergraphError, OSError) as error:
            raise _RefusedError(
                503, "The tokens cannot be read. Check the workspace with: evergraph ws verify."
            ) from error
        if path == "/signin" and (self.is_write or b"code=" in self.scope["query_string"]):
            self._limit(guard.sign_ins.take(self.client))
        else:
            self._limit(guard.requests.take(f"user {self.user.name}" if self.user else self.client))
        if self.user is None and not (path == "/signin" or path in _PROBES or path.startswith("/static/")):
            self._ask_to_sign_in()
        if session is not None and self.is_write and path != "/signin":
            sent = self.given.get(b"x-csrf-token", b"")
            if not hmac.compare_digest(sent, session.csrf.encode()):
                raise _RefusedError(403, "The header X-CSRF-Token is missing or wrong. Load the page again.")
        state = self.scope.setdefault("state", {})
        state["user"], state["session"], state["csrf"] = self.user, session, session.csrf if session else None
        self.limit = guard.options.max_body if self.user else _SMALL_BODY
        length = self.given.get(b"content-length", b"0")
        if not length.isdigit() or len(length) > 18 or int(length) > self.limit:
            raise self._too_large()

    async def _identify(self) -> tuple[User | None, Session | None]:
        authenticator = self.guard.authenticator
        if self.guard.options.no_auth:
            return LOCAL, None
        sent = self.given.get(b"authorization")
        if sent is not None:
            scheme, _, token = sent.decode("latin-1").partition(" ")
            return await authenticator.user_of_token(token.strip()) if scheme.lower() == "bearer" else None, None
        for cookie in self.given.get(b"cookie", b"").decode("latin-1").split(";"):
            name, _, value = cookie.strip().partition("=")
            if name == authenticator.cookie:
                found = await authenticator.session(value)
                return (found[1], found[0]) if found else (None, None)
        return None, None

    def _limit(self, wait: float) -> None:
        if wait:
            seconds = str(math.ceil(wait))
            raise _RefusedError(429, f"Too many requests. Try again in {seconds} s.", retry_after=seconds)

    def _ask_to_sign_in(self) -> NoReturn:
        is_page = not self.is_write and not self.path.startswith("/api/") and b"authorization" not in self.given
        if is_page and b"text/html" in self.given.get(b"accept", b""):
            query = self.scope["query_string"]
            wanted = self.scope.get("raw_path", self.path.encode()) + (b"?" + query if query else b"")
            target = "/signin" if wanted == b"/" else f"/signin?next={quote(wanted, safe='')}"
            raise _RefusedError(303, "Sign in.", location=target)
        detail = "Sign in, or send a valid token: Authorization: Bearer TOKEN."  # prose: ok
        raise _RefusedError(401, detail, www_authenticate="Bearer")

    def _too_large(self) -> _RefusedError:
        limit = f"{self.limit / (1 << 20):g} MB" if self.limit >= 1 << 20 else f"{self.limit / (1 << 10):g} kB"
        advice = "Send it in parts, or start the service with a larger --max-body." if self.user else "Sign in first."
        return _RefusedError(413, f"The request body is larger than {limit}. {advice}")

    # --- messages -----------------------------------------------------------------------------------------------------

    async def receive(self) -> Message:
        """Receive a part of the body, within its limits of size and time."""
        if self.whole:
            return await self._receive()
        now = time.monotonic()
        self.began = self.began or now
        left = self.began + self.guard.options.patience + self.received / _BYTES_PER_SECOND - now
        try:
            async with asyncio.timeout(left):
                message = await self._receive()
        except TimeoutError:
            self.refused = _RefusedError(408, "The request body took too long.", connection="close")
            raise self.refused from None
        self.received += len(message.get("body", b""))
        self.whole = not message.get("more_body", False)
        if self.received > self.limit:
            self.refused = self._too_large()
            raise self.refused
        return message

    async def send(self, message: Message) -> None:
        """Send a part of the response; its head gets the headers that all have, and its line in the log."""
        if self.refused is not None and not self.started:
            await self._refuse(self.refused)  # instead of what the route makes of a body that is cut off
        if self.refused is not None:
            return
        if message["type"] == "http.response.start":
            self.started = True
            headers = list(message.get("headers", ()))
            set_by_route = {name for name, _ in headers}
            headers += [pair for pair in self.guard.headers if pair[0] not in set_by_route]
            if b"cache-control" not in set_by_route:
                kept = self.path.startswith("/static/") and message["status"] in (200, 304)
                headers.append((b"cache-control", b"no-cache" if kept else b"no-store"))
            message["headers"] = headers
            if self.is_write or message["status"] in (401, 403):
                self._note(message["status"])
        await self._send(message)

    async def _refuse(self, error: _RefusedError) -> None:
        self.started = True
        status, detail = error.status, error.detail
        problem = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": detail}
        body = json.dumps(problem).encode()
        headers = {"content-type": "application/problem+json", "content-length": str(len(body)), **error.headers}
        headers["cache-control"] = "no-store"
        if status != 303:
            self._note(status)
        start = [(name.encode(), value.encode()) for name, value in headers.items()] + self.guard.headers
        await self._send({"type": "http.response.start", "status": status, "headers": start})
        await self._send({"type": "http.response.body", "body": body})

    def _note(self, status: int) -> None:
        """Log who did what. The query is left out, because it may contain a one-time code."""
        who = self.user.name if self.user else "-"
        path = self.path if len(self.path) <= 200 else f"{self.path[:200]}…"
        _log.info("%s %s %s %s %d", who, visible(self.client), self.scope["method"], visible(path), status)
