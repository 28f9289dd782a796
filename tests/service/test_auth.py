"""Tokens, sessions and the one-time link."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from fastapi import Depends, FastAPI
from starlette.testclient import TestClient

from evergraph import InputError
from evergraph.service import auth
from evergraph.service.auth import LOCAL, Authenticator, User, create_token, list_tokens, require, revoke_token
from evergraph.service.guard import Guard
from evergraph.service.options import Options
from evergraph.storage import records as storage_records
from evergraph.workspace.store import DATABASE
from tests.service.serving import make_workspace

pytestmark = pytest.mark.usefixtures("one_thread")
OPTIONS = Options(rate=10_000)


@pytest.fixture(autouse=True, scope="module")
def _no_waiting_for_the_disk() -> Iterator[None]:
    with mock.patch.object(os, "fsync"), mock.patch.object(storage_records, "SYNCHRONOUS", "OFF"):
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("auth") / "ws"
    make_workspace(made)
    return made


@pytest.fixture(autouse=True)
def _no_tokens(folder: Path) -> Iterator[None]:
    yield
    for row in list_tokens(folder):
        if row.revoked is None:
            revoke_token(folder, row.name)


def user_of(authenticator: Authenticator, token: str) -> User | None:
    return asyncio.run(authenticator.user_of_token(token))


# --- tokens -----------------------------------------------------------------------------------------------------------


def test_a_token_is_stored_as_its_hash(folder: Path) -> None:
    token = create_token(folder, "anna", "reviewer")
    assert len(token) > 43  # 256 bits
    row = next(row for row in list_tokens(folder) if row.name == "anna")
    assert (row.role, row.hash, row.revoked) == ("reviewer", hashlib.sha256(token.encode()).hexdigest(), None)
    assert token.encode() not in (folder / DATABASE).read_bytes()
    assert create_token(folder, "ben", "viewer") != token


@pytest.mark.parametrize("name", ["", " ", "a b", "-x", "a\nb", "<b>", "=1+1", "x" * 65, "local", "ä\u202e"])
def test_names_that_could_mislead_are_refused(folder: Path, name: str) -> None:
    with pytest.raises(InputError, match="cannot be the name of a token"):
        create_token(folder, name, "viewer")


def test_a_name_can_be_used_again_after_it_was_revoked(folder: Path) -> None:
    first = create_token(folder, "anna", "viewer")
    with pytest.raises(InputError, match="there is a token 'anna' already"):
        create_token(folder, "anna", "admin")
    revoke_token(folder, "anna")
    with pytest.raises(InputError, match="there is no token 'anna'"):
        revoke_token(folder, "anna")
    second = create_token(folder, "anna", "admin")
    authenticator = Authenticator(folder, OPTIONS)
    assert (user_of(authenticator, first), user_of(authenticator, second)) == (None, User("anna", "admin"))


def test_a_running_service_learns_of_tokens_at_once(folder: Path) -> None:
    authenticator = Authenticator(folder, OPTIONS)
    for number in range(5):  # without a pause, so that several changes have one time stamp
        token = create_token(folder, f"user{number}", "viewer")
        assert user_of(authenticator, token) == User(f"user{number}", "viewer")
        revoke_token(folder, f"user{number}")
        time.sleep(2 * auth._SETTLED)
        assert user_of(authenticator, token) is None


def test_a_change_with_the_same_time_stamp_is_seen_soon(folder: Path) -> None:
    authenticator = Authenticator(folder, OPTIONS)
    token = create_token(folder, "anna", "viewer")
    assert user_of(authenticator, token) is not None
    before = (folder / DATABASE).stat()
    revoke_token(folder, "anna")
    os.utime(folder / DATABASE, ns=(before.st_atime_ns, before.st_mtime_ns))
    time.sleep(2 * auth._SETTLED)
    assert user_of(authenticator, token) is None


def test_a_request_does_not_read_the_database(folder: Path) -> None:
    token = create_token(folder, "anna", "viewer")
    time.sleep(2 * auth._SETTLED)
    authenticator = Authenticator(folder, OPTIONS)
    with mock.patch.object(authenticator, "_read", wraps=authenticator._read) as read:
        for _ in range(100):
            assert user_of(authenticator, token) == User("anna", "viewer")
            assert user_of(authenticator, token[:-1]) is None
    assert read.call_count == 1


def test_hashes_are_compared_in_constant_time(folder: Path) -> None:
    token = create_token(folder, "anna", "viewer")
    with mock.patch("hmac.compare_digest", return_value=False) as compared:
        assert user_of(Authenticator(folder, OPTIONS), token) is None
    compared.assert_called_once()


def test_roles_are_ordered() -> None:
    users = [User("x", role) for role in auth.ROLES]
    assert [[user.may(role) for role in auth.ROLES] for user in users] == [
        [True, False, False],
        [True, True, False],
        [True, True, True],
    ]


# --- signing in -------------------------------------------------------------------------------------------------------


def app_on(folder: Path, options: Options = OPTIONS) -> FastAPI:
    app = FastAPI()
    app.state.authenticator = Authenticator(folder, options)
    app.include_router(auth.router)

    @app.get("/")
    async def who(user: User = Depends(require("viewer"))) -> str:  # noqa: B008
        return user.name

    @app.post("/write")
    async def write(user: User = Depends(require("reviewer"))) -> str:  # noqa: B008
        return user.name

    @app.get("/csrf")
    async def csrf(request: auth.Request) -> str:
        return request.state.csrf or ""

    app.add_middleware(Guard, authenticator=app.state.authenticator, options=options)
    return app


def browser(app: FastAPI) -> TestClient:
    options: Options = app.state.authenticator.options
    return TestClient(app, base_url=options.url, headers={"Accept": "text/html"}, follow_redirects=False)


def test_the_link_works_once(folder: Path) -> None:
    app = app_on(folder)
    code = app.state.authenticator.code
    with browser(app) as client, browser(app) as other:
        assert client.get("/signin?code=wrong").status_code == 401
        found = client.get(f"/signin?code={code}&next=/csrf")
        assert (found.status_code, found.headers["location"]) == (303, "/csrf")
        assert client.get("/").json() == "local"
        again = other.get(f"/signin?code={code}")
        assert again.status_code == 401
        assert "was used or has expired" in again.text
        assert other.get("/").headers["location"] == "/signin"


def test_the_link_expires(folder: Path) -> None:
    authenticator = Authenticator(folder, OPTIONS)
    code = authenticator.code
    assert code
    with mock.patch("time.monotonic", return_value=time.monotonic() + auth._CODE_SECONDS + 1):
        assert authenticator.use_code(code) is None
    assert authenticator.use_code(code) is not None


def test_there_is_no_link_for_others_and_without_signing_in(folder: Path) -> None:
    for options in (
        Options(no_auth=True),
        Options(behind_proxy=True, allow_hosts=("example.org",)),
        Options(host="0.0.0.0", tls_cert=Path("c"), tls_key=Path("k"), allow_hosts=("example.org",)),
    ):
        authenticator = Authenticator(folder, options)
        assert authenticator.code is None
        assert authenticator.use_code("") is None


@pytest.mark.parametrize("options", [OPTIONS, Options(behind_proxy=True, allow_hosts=("example.org",))])
def test_the_cookie_is_out_of_reach_of_scripts_and_other_sites(folder: Path, options: Options) -> None:
    token = create_token(folder, "anna", "viewer")
    with browser(app_on(folder, options)) as client:
        found = client.post("/signin", data={"token": f" {token}\n", "next": "/csrf"})
        assert (found.status_code, found.headers["location"]) == (303, "/csrf")
        attributes = found.headers["set-cookie"].lower().split("; ")[1:]
        assert {"httponly", "samesite=strict", "path=/", "max-age=43200"} <= set(attributes)
        assert ("secure" in attributes) == options.is_secure
        assert not any(part.startswith("domain") for part in attributes)
        assert token not in found.headers["set-cookie"]


def test_a_link_on_a_page_of_another_site_signs_in_too(folder: Path) -> None:
    """Browsers do not send a strict cookie with a redirect that another site began."""
    app = app_on(folder)
    with browser(app) as client:
        path = f"/signin?code={app.state.authenticator.code}"
        found = client.get(path, headers={"Sec-Fetch-Site": "cross-site"})
        assert found.status_code == 200
        assert '<meta http-equiv="refresh" content="0; url=/">' in found.text
        assert client.get("/").json() == "local"


@pytest.mark.parametrize(
    "target",
    [
        *("//example.org", "https://example.org", "/\\example.org", "\\\\example.org", "javascript:alert(1)"),
        *("/\t/example.org", "/\n/example.org", " //example.org", "example.org", ""),
    ],
)
def test_signing_in_leads_to_a_page_of_the_service_only(folder: Path, target: str) -> None:
    app = app_on(folder)
    token = create_token(folder, "anna", "viewer")
    with browser(app) as client:
        found = client.post("/signin", data={"token": token, "next": target})
        assert (found.status_code, found.headers["location"]) == (303, "/")
        assert client.get("/signin", params={"next": target}).headers["location"] == "/"
        client.cookies.clear()
        code = app.state.authenticator.code
        assert client.get("/signin", params={"code": code, "next": target}).headers["location"] == "/"


def test_the_target_is_text_in_the_page(folder: Path) -> None:
    with browser(app_on(folder)) as client:
        shown = client.get("/signin", params={"next": '/"><script>alert(1)</script>'}).text
        assert "<script" not in shown
        assert "&lt;script&gt;" in shown


def test_what_is_not_a_form_is_a_wrong_token(folder: Path) -> None:
    with browser(app_on(folder)) as client:
        for body in (b"", b"\xff\xfe", b"token=%ff", b"&".join([b"a=b"] * 50), b"token=\xc3\xa4"):
            found = client.post("/signin", content=body)
            assert found.status_code == 401
            assert "This token is not valid" in found.text


def test_signing_out_ends_the_session(folder: Path) -> None:
    app = app_on(folder)
    with browser(app) as client:
        client.get(f"/signin?code={app.state.authenticator.code}")
        cookies = dict(client.cookies)
        csrf = client.get("/csrf").json()
        assert client.post("/signout").status_code == 403  # without the header
        assert client.post("/signout", headers={"X-CSRF-Token": csrf}).headers["location"] == "/signin"
        assert not client.cookies
        client.cookies.update(cookies)
        assert client.get("/").headers["location"] == "/signin"


def test_revoking_a_token_ends_its_sessions(folder: Path) -> None:
    app = app_on(folder)
    token = create_token(folder, "anna", "viewer")
    with browser(app) as client:
        client.post("/signin", data={"token": token})
        assert client.get("/").json() == "anna"
        revoke_token(folder, "anna")
        create_token(folder, "anna", "admin")  # another token of the same name
        assert client.get("/").status_code == 303
        assert client.get("/", headers={"Authorization": f"Bearer {token}"}).status_code == 401


def test_sessions_expire_and_their_number_is_bounded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth, "_MOST_SESSIONS", 3)
    authenticator = Authenticator(folder, OPTIONS)
    sessions = [authenticator._start(None) for _ in range(4)]
    found = [asyncio.run(authenticator.session(session.id)) for session in sessions]
    assert found == [None, *((session, LOCAL) for session in sessions[1:])]
    with mock.patch("time.monotonic", return_value=time.monotonic() + auth._SESSION_SECONDS + 1):
        assert asyncio.run(authenticator.session(sessions[3].id)) is None


def test_a_role_is_required_whoever_signed_in(folder: Path) -> None:
    tokens = {role: create_token(folder, role, role) for role in auth.ROLES}
    with browser(app_on(folder)) as client:
        for role, token in tokens.items():
            found = client.post("/write", headers={"Authorization": f"Bearer {token}"})
            assert found.status_code == (403 if role == "viewer" else 200)
        found = client.post("/write", headers={"Authorization": f"Bearer {tokens['viewer']}"})
        assert found.json()["detail"] == "This needs the role reviewer; viewer has the role viewer."


def test_signing_in_is_logged_without_the_secret(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "evergraph.service")
    token = create_token(folder, "anna", "viewer")
    app = app_on(folder)
    code = app.state.authenticator.code
    with browser(app) as client:
        session = client.get(f"/signin?code={code}").cookies[app.state.authenticator.cookie]
        client.cookies.clear()
        client.post("/signin", data={"token": token})
        client.cookies.clear()
        client.post("/signin", data={"token": "wrong-one"})
    assert "local testclient signed in" in caplog.text
    assert "anna testclient signed in" in caplog.text
    assert "- testclient POST /signin 401" in caplog.text
    assert not re.search("|".join(map(re.escape, [token, code, session, "wrong-one"])), caplog.text)


# --- the commands -----------------------------------------------------------------------------------------------------


def test_tokens_are_created_listed_and_revoked(folder: Path, command: Any) -> None:
    code, out, err = command("serve-token", "create", folder, "--name", "anna", "--role", "reviewer")
    assert (code, "not shown again" in err) == (0, True)
    assert user_of(Authenticator(folder, OPTIONS), out.strip()) == User("anna", "reviewer")
    code, made, _ = command("serve-token", "create", folder, "--name", "ben", "--json")
    assert json.loads(made)["role"] == "viewer"
    code, listed, _ = command("serve-token", "list", folder)
    assert (code, "anna" in listed, out.strip() in listed) == (0, True, False)
    assert command("serve-token", "revoke", folder, "anna")[:2] == (0, "Revoked the token of anna\n")
    found = {row["name"]: row for row in json.loads(command("serve-token", "list", folder, "--json")[1])["tokens"]}
    assert found["anna"]["revoked"]
    assert not found["ben"]["revoked"]
    code, _, err = command("serve-token", "revoke", folder, "anna")
    assert (code, "Choose one of: ben." in err) == (2, True)
    assert command("serve-token", "create", folder, "--name", "a b")[0] == 2
    assert command("serve-token", "create", folder, "--name", "c", "--role", "owner")[0] == 2
    assert command("serve-token", "list", folder / "missing")[0] == 2
