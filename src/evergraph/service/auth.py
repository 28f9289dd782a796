"""Who is who: access tokens, sessions in the browser, and the one-time link that ``evergraph serve`` prints."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Literal, get_args
from urllib.parse import parse_qs

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from starlette.exceptions import HTTPException

from evergraph.errors import InputError
from evergraph.presentation.text import command_line, visible
from evergraph.service.options import Options
from evergraph.service.pages import render
from evergraph.storage.records import Row
from evergraph.workspace.store import Store, open_database

__all__ = [
    "LOCAL",
    "Authenticator",
    "Role",
    "Session",
    "User",
    "create_token",
    "list_tokens",
    "local_path",
    "require",
    "revoke_token",
    "router",
]

Role = Literal["viewer", "reviewer", "admin"]
"""What a user may do; each role may do all that those before it may do."""

ROLES: tuple[Role, ...] = get_args(Role)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}")
_SESSION_SECONDS = 12 * 3600
_CODE_SECONDS = 15 * 60
_MOST_SESSIONS = 10_000
_PREFIX = 16  # letters of a hash that tokens are found by
_SETTLED = 0.02  # seconds after which another change of a file gets another time stamp

_log = logging.getLogger("evergraph.service")


@dataclass(frozen=True)
class User:
    """A user: the name of the token, and its role."""

    name: str
    role: Role

    def may(self, role: Role) -> bool:
        """Whether the user has a role, or one that includes it."""
        return ROLES.index(self.role) >= ROLES.index(role)


LOCAL = User("local", "admin")
"""The user of the one-time link, and everyone with ``--no-auth``. No token has this name."""


# --- tokens -----------------------------------------------------------------------------------------------------------


def create_token(folder: Path, name: str, role: Role) -> str:
    """Create a token and return it; only its hash is stored. The name of a revoked token can be used again."""
    if not _NAME.fullmatch(name) or name == LOCAL.name:
        fix = f"give 1 to 64 letters, digits and any of . _ @ + -, starting with a letter or digit, not {LOCAL.name!r}"
        raise InputError(f"{name!r} cannot be the name of a token", fix=fix)
    token = f"evg_{secrets.token_urlsafe(32)}"
    with Store(folder).database.write() as records:
        if records.select("tokens", "name = ? AND revoked IS NULL", name):
            revoke = command_line("serve-token", "revoke", folder, name)
            raise InputError(f"there is a token {name!r} already", fix=f"choose another name, or revoke it: {revoke}")
        records.delete("tokens", "name = ?", name)
        records.insert("tokens", [(name, role, _hash(token), _now(), None)])
    return token


def list_tokens(folder: Path) -> list[Row]:
    """Return the tokens, the oldest first: name, role, hash, when it was made and when it was revoked."""
    with Store(folder).read() as records:
        return records.select("tokens", "TRUE ORDER BY made, name")


def revoke_token(folder: Path, name: str) -> None:
    """Revoke a token. A running service refuses it from the next request on, and ends its sessions."""
    with Store(folder).database.write() as records:
        if not records.replace("tokens", "name = ? AND revoked IS NULL", (name,), revoked=_now()):
            names = [row.name for row in records.select("tokens", "revoked IS NULL ORDER BY name")]
            fix = f"choose one of: {', '.join(names)}" if names else "there are none to revoke"
            raise InputError(f"there is no token {name!r}", fix=fix)


def _hash(token: str) -> str:
    # Tokens have 256 random bits, so a slow hash with salt would add nothing.
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


# --- sessions ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Session:
    """A browser that has signed in.

    Parameters
    ----------
    id
        Value of the cookie.
    csrf
        Value of the header ``X-CSRF-Token`` of writes.
    expires
        When it ends, by `time.monotonic`.
    token
        Hash of the token it was made with; None for the one-time link.
    """

    id: str
    csrf: str
    expires: float
    token: str | None


class Authenticator:
    """Knows the tokens of a workspace and the sessions of one process.

    Tokens are read again when the file of the workspace has changed, so a request costs no SQL, and a token that is
    revoked stops working at once.
    """

    def __init__(self, folder: Path, options: Options) -> None:
        self.options = options
        self.cookie = f"evergraph_session_{options.port}"  # cookies are shared by all ports of a host
        self.code = secrets.token_urlsafe(32) if options.is_local and not options.no_auth else None
        self._code_expires = time.monotonic() + _CODE_SECONDS
        self._sessions: dict[str, Session] = {}
        self._database = open_database(folder)
        self._tokens: dict[str, tuple[str, User]] = {}  # by the first letters of the hash
        self._seen: tuple[int, int] | None = None  # time stamp and size of the file when tokens were read
        self._settled = False
        self._reading = asyncio.Lock()

    async def user_of_token(self, token: str) -> User | None:
        """Return the user of a token, or None if it is not valid."""
        return await self._user_of_hash(_hash(token))

    async def session(self, id: str) -> tuple[Session, User] | None:
        """Return a session and its user, or None if it has ended."""
        session = self._sessions.get(id)
        if session is None:
            return None
        user = LOCAL if session.token is None else await self._user_of_hash(session.token)
        if user is None or session.expires < time.monotonic():
            self.end(session)
            return None
        return session, user

    async def sign_in(self, token: str) -> tuple[Session, User] | None:
        """Start a session with a token; None if it is not valid."""
        digest = _hash(token)
        user = await self._user_of_hash(digest)
        return None if user is None else (self._start(digest), user)

    def use_code(self, code: str) -> Session | None:
        """Start a session with the one-time code; None if it is wrong, used or expired."""
        right = self.code is not None and hmac.compare_digest(self.code.encode(), code.encode("utf-8", "replace"))
        if not right or time.monotonic() > self._code_expires:
            return None
        self.code = None
        return self._start(None)

    def end(self, session: Session) -> None:
        """End a session."""
        self._sessions.pop(session.id, None)

    def _start(self, token: str | None) -> Session:
        now = time.monotonic()
        self._sessions = {id: session for id, session in self._sessions.items() if session.expires > now}
        if len(self._sessions) >= _MOST_SESSIONS:
            del self._sessions[next(iter(self._sessions))]  # the oldest
        session = Session(secrets.token_urlsafe(32), secrets.token_urlsafe(32), now + _SESSION_SECONDS, token)
        self._sessions[session.id] = session
        return session

    async def _user_of_hash(self, digest: str) -> User | None:
        if not self._is_current():
            async with self._reading:
                if not self._is_current():
                    await asyncio.to_thread(self._read)
        found = self._tokens.get(digest[:_PREFIX])
        return found[1] if found is not None and hmac.compare_digest(found[0], digest) else None

    def _is_current(self) -> bool:
        """Whether the file is as it was when the tokens were read.

        Two changes within some milliseconds have the same time stamp. So tokens that were read just after a change are
        read once more.
        """
        found = self._database.path.stat()
        unsettled = not self._settled and time.time() - found.st_mtime > _SETTLED
        return self._seen == (found.st_mtime_ns, found.st_size) and not unsettled

    def _read(self) -> None:
        found = self._database.path.stat()  # before reading, so that a change meanwhile is noticed
        settled = time.time() - found.st_mtime > _SETTLED
        with self._database.read() as records:
            rows = records.select("tokens", "revoked IS NULL")
        self._tokens = {row.hash[:_PREFIX]: (row.hash, User(row.name, row.role)) for row in rows if row.role in ROLES}
        self._seen, self._settled = (found.st_mtime_ns, found.st_size), settled


@cache
def require(role: Role) -> Callable[[Request], Awaitable[User]]:
    """Return a dependency that gives a route its user, and refuses users without the role."""

    async def user_with_role(request: Request) -> User:
        user: User | None = request.scope["state"].get("user")
        if user is None:
            raise HTTPException(401, "Sign in, or send a token: Authorization: Bearer TOKEN.")  # prose: ok
        if not user.may(role):
            raise HTTPException(403, f"This needs the role {role}; {user.name} has the role {user.role}.")
        return user

    return user_with_role


# --- signing in and out -----------------------------------------------------------------------------------------------

router = APIRouter(include_in_schema=False)


def local_path(target: str) -> str:
    r"""Return a path of this service, or ``/`` if the target could lead elsewhere.

    Examples
    --------
    >>> [local_path(target) for target in ("/review?group=1", "//example.org", "/\\example.org", "https://example.org")]
    ['/review?group=1', '/', '/', '/']
    """
    return target if re.fullmatch(r"/(?![/\\])[^\\\x00-\x20\x7f]*", target) else "/"


@router.get("/signin")
async def show_signin(request: Request, code: str = "", next: str = "/") -> Response:  # noqa: A002
    """Show the form, or sign in with the one-time code."""
    authenticator: Authenticator = request.app.state.authenticator
    if code:
        session = authenticator.use_code(code)
        if session is None:
            problem = (
                "This link was used or has expired. Sign in with a token, or restart evergraph serve for a new link."
            )
            return _page(local_path(next), problem)
        return _signed_in(request, session, LOCAL, local_path(next))
    if request.scope["state"].get("user") is not None:
        return RedirectResponse(local_path(next), 303)
    return _page(local_path(next))


@router.post("/signin")
async def sign_in(request: Request) -> Response:
    """Sign in with a token."""
    try:
        form = parse_qs((await request.body()).decode(), max_num_fields=10)
    except ValueError:
        form = {}
    token, target = (form.get(name, [""])[0] for name in ("token", "next"))
    authenticator: Authenticator = request.app.state.authenticator
    found = await authenticator.sign_in(token.strip())
    if found is None:
        return _page(local_path(target), "This token is not valid, or was revoked.")
    return _signed_in(request, *found, local_path(target))


@router.post("/signout")
async def sign_out(request: Request) -> Response:
    """End the session."""
    authenticator: Authenticator = request.app.state.authenticator
    session: Session | None = request.scope["state"].get("session")
    if session is not None:
        authenticator.end(session)
    response = RedirectResponse("/signin", 303)
    response.delete_cookie(authenticator.cookie)
    return response


def _signed_in(request: Request, session: Session, user: User, target: str) -> Response:
    """Set the cookie and go on.

    If the link was on a page of another site, browsers would not send the cookie with a redirect; so the page itself
    goes on.
    """
    authenticator: Authenticator = request.app.state.authenticator
    _log.info("%s %s signed in", user.name, visible(request.client.host if request.client else "unknown"))
    elsewhere = request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin")
    response = _page(target, go=True) if elsewhere else RedirectResponse(target, 303)
    response.set_cookie(
        authenticator.cookie,
        session.id,
        max_age=_SESSION_SECONDS,
        httponly=True,
        samesite="strict",
        secure=authenticator.options.is_secure,
    )
    return response


def _page(target: str, problem: str = "", *, go: bool = False) -> Response:
    return HTMLResponse(render("signin", next=target, problem=problem, go=go), 401 if problem else 200)
