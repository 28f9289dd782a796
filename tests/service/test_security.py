"""The promises of docs/security.md on the whole service: every route, and the process that serves them."""

from __future__ import annotations

import contextlib
import csv
import http.client
import io
import json
import re
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import urlsplit

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from evergraph.service.app import build_app, openapi
from evergraph.service.auth import ROLES, Role, create_token, revoke_token
from evergraph.service.options import Options
from tests.service.serving import FIRST, Serving, make_workspace, serving

pytestmark = pytest.mark.usefixtures("one_thread")
ROOT = Path(__file__).parents[2]
OPTIONS = Options(rate=100_000, max_rows=20)
FORMULA = "=cmd|' /C calc'!A1"

NEEDED: dict[str, Role] = {
    "POST /api/v1/slices": "admin",
    "POST /api/v1/labels": "reviewer",
    "POST /api/v1/predictions": "reviewer",
    "POST /api/v1/updates": "reviewer",
    "POST /api/v1/reports": "viewer",
    "POST /api/v1/classes": "reviewer",
    "POST /api/v1/answers": "reviewer",
    "POST /api/v1/answers/preview": "reviewer",
    "POST /api/v1/undo": "reviewer",
    "POST /api/v1/rollback": "admin",
    "POST /api/v1/removals": "admin",
    "POST /api/v1/tags": "admin",
    "PATCH /api/v1/settings": "admin",
    "DELETE /api/v1/jobs/{job}": "reviewer",
    "GET /api/v1/verification": "admin",  # reads every file
}
"""The role that an operation needs. Other reads need a viewer."""
PUBLIC = ("/healthz", "/readyz")
PAGES = ("/", "/review", "/vertex", "/label", "/activity", "/metrics", "/api/v1/openapi.json", "/docs")
TRAVERSALS = [
    *("../../../../../../etc/passwd", "..%2f..%2f..%2f..%2f..%2f..%2fetc%2fpasswd", "%2e%2e/%2e%2e/%2e%2e/etc/passwd"),
    *("%2e%2e%2f%2e%2e%2f%2e%2e%2fetc%2fpasswd", "..%5c..%5c..%5cetc%5cpasswd", "%252e%252e%252fetc%252fpasswd"),
    *("%2fetc%2fpasswd", "/etc/passwd", "//etc/passwd", "....//....//etc/passwd", "%00/etc/passwd", "x%00.css"),
    *("..%c0%af..%c0%afetc/passwd", "workspace.db", "..%2fworkspace.db", "file:%2f%2f%2fetc%2fpasswd", "~root", "%ff"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("security") / "ws"
    workspace = make_workspace(made)
    hostile = {"id": [FORMULA, "<script>alert(1)</script>"], "time": [FIRST + 1] * 2, "text": ["word one", "word two"]}
    workspace.add(hostile, [])
    workspace.predict()
    return made


@pytest.fixture(scope="module")
def tokens(folder: Path) -> dict[Role, str]:
    return {role: create_token(folder, f"the-{role}", role) for role in ROLES}


@pytest.fixture(scope="module")
def app(folder: Path, tokens: dict[Role, str]) -> FastAPI:
    return build_app(folder, OPTIONS)


@pytest.fixture(scope="module")
def client(app: FastAPI) -> Iterator[TestClient]:
    with TestClient(app, base_url=OPTIONS.url, follow_redirects=False) as made:
        yield made


@pytest.fixture(scope="module")
def service(folder: Path, tokens: dict[Role, str]) -> Iterator[Serving]:
    with serving(folder, "--max-body", 1, "--rate", 10_000) as running:
        yield running


@pytest.fixture(scope="module")
def operations(app: FastAPI) -> list[tuple[str, str]]:
    """Method and path of each operation of the OpenAPI document."""
    found = [(method.upper(), path) for path, each in openapi(app)["paths"].items() for method in each]
    assert len(found) > 30
    return found


def filled(path: str, value: str = "1") -> str:
    return re.sub(r"\{[^}]*\}", value, path)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def ask(client: TestClient, method: str, path: str, headers: dict[str, str]) -> Any:
    body = {} if method in ("GET", "HEAD", "DELETE") else {"json": {}}
    return client.request(method, filled(path), headers=headers, **body)


def same(path: str) -> str:
    """A path without the names of its parameters."""
    return re.sub(r"\{[^}]*\}", "{}", path)


# --- every route ------------------------------------------------------------------------------------------------------


def test_every_route_refuses_requests_without_a_token(client: TestClient, operations: list[tuple[str, str]]) -> None:
    everything = [
        *operations,
        *(("GET", path) for path in PAGES),
        ("GET", "/api/v1/unknown"),
        ("PUT", "/api/v1/status"),
    ]
    for method, path in everything:
        if path not in PUBLIC:
            for headers in ({}, bearer("wrong"), bearer(""), {"Authorization": "Basic YTpi"}):
                found = ask(client, method, path, headers)
                assert (found.status_code, found.json()["status"]) == (401, 401), (method, path)
                assert found.headers["content-type"] == "application/problem+json"


def test_every_route_refuses_a_forged_cookie(
    app: FastAPI, client: TestClient, operations: list[tuple[str, str]]
) -> None:
    name = app.state.authenticator.cookie
    for value in ("forged", "", "../../x", "a" * 4000, "%00"):
        for method, path in operations:
            if path not in PUBLIC:
                found = ask(client, method, path, {"Cookie": f"{name}={value}", "X-CSRF-Token": value})
                assert found.status_code == 401, (method, path)


def test_every_write_is_refused_without_its_role(
    client: TestClient, operations: list[tuple[str, str]], tokens: dict[Role, str]
) -> None:
    needed = {same(operation): role for operation, role in NEEDED.items()}
    writes = {same(f"{method} {path}") for method, path in operations if method != "GET"}
    assert writes == {each for each in needed if not each.startswith("GET")}  # a new route must say what it needs
    for method, path in operations:
        role = needed.get(same(f"{method} {path}"), "viewer")
        for other in ROLES[: ROLES.index(role)]:
            found = ask(client, method, path, bearer(tokens[other]))
            assert found.status_code == 403, (method, path, other)
            assert found.json()["detail"].startswith(f"This needs the role {role}")


def test_every_read_needs_no_more_than_a_viewer(
    client: TestClient, operations: list[tuple[str, str]], tokens: dict[Role, str]
) -> None:
    for method, path in operations:
        if method == "GET" and f"GET {path}" not in NEEDED and not path.endswith("/events"):
            assert ask(client, method, path, bearer(tokens["viewer"])).status_code not in (401, 403, 500), path


def test_every_route_refuses_pages_of_other_sites(
    client: TestClient, operations: list[tuple[str, str]], tokens: dict[Role, str]
) -> None:
    for method, path in operations:
        for origin in ("https://example.org", "null", "http://127.0.0.1:9999"):
            found = ask(client, method, path, {**bearer(tokens["admin"]), "Origin": origin})
            assert found.status_code == 403, (method, path)
            assert "access-control-allow-origin" not in found.headers
        if method != "GET":
            found = ask(client, method, path, {**bearer(tokens["admin"]), "Sec-Fetch-Site": "cross-site"})
            assert found.status_code == 403, (method, path)


def test_every_write_with_a_cookie_needs_the_csrf_header(
    app: FastAPI, client: TestClient, operations: list[tuple[str, str]], tokens: dict[Role, str]
) -> None:
    browser = TestClient(app, base_url=OPTIONS.url, follow_redirects=False)  # with cookies of its own
    assert browser.post("/signin", data={"token": tokens["admin"]}).status_code == 303
    page = browser.get("/", headers={"Accept": "text/html"}).text
    csrf = re.search(r'<meta name="csrf-token" content="([^"]+)">', page)
    assert csrf
    assert browser.get("/api/v1/status").status_code == 200
    for method, path in [*operations, ("POST", "/signout")]:
        if method != "GET":
            for headers in ({}, {"X-CSRF-Token": "wrong"}):
                assert ask(browser, method, path, headers).status_code == 403, (method, path)
    found = browser.post("/api/v1/tags", json={}, headers={"X-CSRF-Token": csrf[1]})
    assert found.status_code == 422  # let through, and its body is wrong


def test_every_route_refuses_another_host(
    client: TestClient, operations: list[tuple[str, str]], tokens: dict[Role, str]
) -> None:
    for method, path in [*operations, *(("GET", page) for page in (*PAGES, *PUBLIC, "/signin", "/static/app.css"))]:
        found = ask(client, method, path, {**bearer(tokens["admin"]), "Host": "rebound.example.org:8765"})
        assert found.status_code == 421, (method, path)


def test_pages_of_the_service_forbid_foreign_and_inline_script(client: TestClient, tokens: dict[Role, str]) -> None:
    for path in ("/", "/review", "/vertex?id=1", "/label", "/activity", "/signin"):
        found = client.get(path, headers={**bearer(tokens["viewer"]), "Accept": "text/html"})
        if path != "/signin":  # whoever is signed in is sent on
            assert found.status_code == 200
            assert not re.search(r"<script(?![^>]*\bsrc=)|\son\w+=|\sstyle=|<style", found.text)
            assert not re.search(r"""(src|href|action)=["'](https?:)?//""", found.text)
        policy = dict(part.split(" ", 1) for part in found.headers["content-security-policy"].split("; "))
        assert (policy["default-src"], policy["script-src"], policy["style-src"]) == ("'none'", "'self'", "'self'")
        assert policy["frame-ancestors"] == "'none'"


# --- what a request contains ------------------------------------------------------------------------------------------


def test_no_path_reaches_a_file(service: Serving, operations: list[tuple[str, str]], tokens: dict[Role, str]) -> None:
    paths = [path for method, path in operations if method == "GET" and "{" in path]
    assert paths
    for path in [*paths, "/static/{}", "/{}", "/api/v1/{}", "/signin/{}"]:
        for value in TRAVERSALS:
            status, _, body = service.call("GET", filled(path, value.replace("\\", "\\\\")), token=tokens["admin"])
            assert status in (400, 404, 405, 409, 422), (path, value, status)
            assert b"root:" not in body
            assert b"SQLite format" not in body


@pytest.mark.parametrize("name", ["../../../evil.csv", "/tmp/evil.csv", "..\\evil.csv", "evil.csv\x00.csv", "a/b.csv"])
def test_the_name_of_an_uploaded_file_reaches_no_file(
    client: TestClient, folder: Path, tokens: dict[Role, str], name: str
) -> None:
    def here() -> set[Path]:
        return set(folder.parents[1].rglob("*evil*")) | set(Path("/tmp").glob("evil*"))

    before = here()
    files = {"vertices": (name, b"id,time,text\nnew,not-a-time,x\n", "text/csv")}
    found = client.post("/api/v1/slices", files=files, headers=bearer(tokens["admin"]))
    assert found.status_code == 422
    assert here() == before
    assert str(folder) not in found.text


@pytest.mark.parametrize("path", ["/api/v1/labels", "/api/v1/slices", "/api/v1/tags", "/api/v1/answers", "/signin"])
def test_oversized_bodies_are_refused(service: Serving, tokens: dict[Role, str], path: str) -> None:
    large = (1 << 20) + 1
    head = {**bearer(tokens["admin"]), "Content-Type": "application/json"}
    with contextlib.closing(http.client.HTTPConnection(*service.address, timeout=30)) as connection:
        connection.putrequest("POST", path)
        for item in {**head, "Content-Length": str(large)}.items():
            connection.putheader(*item)
        connection.endheaders()  # refused before the body is sent
        assert connection.getresponse().status == 413
    with contextlib.closing(http.client.HTTPConnection(*service.address, timeout=30)) as connection:
        parts = (b" " * 65536 for _ in range(large // 65536 + 1))
        connection.request("POST", path, parts, head, encode_chunked=True)  # without Content-Length
        response = connection.getresponse()
        if path == "/signin":  # it reads no body that is no form
            assert response.status in (401, 413)
        else:
            assert response.status == 413
            assert json.loads(response.read())["detail"].startswith("The request body is larger than 1 MB")


def test_too_many_rows_are_refused(client: TestClient, tokens: dict[Role, str]) -> None:
    rows = [{"id": str(number), "label": "x"} for number in range(OPTIONS.max_rows + 1)]
    found = client.post("/api/v1/labels", json={"labels": rows}, headers=bearer(tokens["reviewer"]))
    assert (found.status_code, found.json()["status"]) == (413, 413)


def test_too_many_requests_are_refused(folder: Path, tokens: dict[Role, str]) -> None:
    options = Options(rate=1)
    with TestClient(build_app(folder, options), base_url=options.url) as client:
        found = [client.get("/api/v1/status", headers=bearer(tokens["viewer"])) for _ in range(30)]
        assert {response.status_code for response in found} == {200, 429}
        assert int(next(each for each in found if each.status_code == 429).headers["retry-after"]) >= 1
        assert client.get("/api/v1/status", headers=bearer(tokens["reviewer"])).status_code == 200


def test_exported_cells_are_not_run_by_a_spreadsheet(client: TestClient, tokens: dict[Role, str]) -> None:
    found = client.get("/api/v1/decisions?limit=1000", headers={**bearer(tokens["viewer"]), "Accept": "text/csv"})
    assert found.headers["content-type"].startswith("text/csv")
    cells = [cell for row in csv.reader(io.StringIO(found.text)) for cell in row]
    assert f"'{FORMULA}" in cells
    assert FORMULA not in cells


# --- the process ------------------------------------------------------------------------------------------------------


def test_a_slow_head_is_cut_off(service: Serving) -> None:
    with socket.create_connection(service.address, timeout=60) as slow:
        slow.sendall(b"GET /healthz HTTP/1.1\r\nHost: ")
        with contextlib.suppress(ConnectionError):
            assert slow.recv(1000) == b""  # after ten seconds


def test_the_link_signs_in_once_and_a_revoked_token_is_refused_at_once(service: Serving, folder: Path) -> None:
    assert service.signin
    link = urlsplit(service.signin)
    path = f"{link.path}?{link.query}"
    status, headers, _ = service.call("GET", path)
    assert (status, headers["location"]) == (303, "/")
    cookie = {"Cookie": headers["set-cookie"].split(";")[0]}
    assert service.call("GET", "/api/v1/status", headers=cookie)[0] == 200
    assert service.call("GET", path)[0] == 401
    token = create_token(folder, "short", "viewer")
    assert service.call("GET", "/api/v1/status", token=token)[0] == 200
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    _, headers, _ = service.call("POST", "/signin", f"token={token}".encode(), headers=form)
    signed_in = {"Cookie": headers["set-cookie"].split(";")[0]}
    assert service.call("GET", "/api/v1/status", headers=signed_in)[0] == 200
    revoke_token(folder, "short")
    time.sleep(0.1)
    assert service.call("GET", "/api/v1/status", token=token)[0] == 401
    assert service.call("GET", "/api/v1/status", headers=signed_in)[0] == 401
    assert service.call("GET", "/api/v1/status", headers=cookie)[0] == 200


def test_the_log_says_who_did_what_and_no_secret(folder: Path, tokens: dict[Role, str]) -> None:
    with serving(folder) as running:
        assert running.signin
        link = urlsplit(running.signin)
        _, headers, _ = running.call("GET", f"{link.path}?{link.query}")
        cookie = headers["set-cookie"].split(";")[0]
        running.call("GET", f"{link.path}?{link.query}")
        running.call("GET", "/api/v1/status?token=tried-in-query", token="tried-wrong-token")
        running.call("POST", "/api/v1/labels", {"labels": []}, token=tokens["reviewer"])
        running.call("POST", "/api/v1/rollback", {}, token=tokens["reviewer"])
        running.call("POST", "/api/v1/%0aforged%20line%1b%5b2J", {}, token=tokens["reviewer"])
        running.call("POST", "/signin", b"token=tried-wrong-token")
        running.call("DELETE", "/api/v1/jobs/1", headers={"Cookie": cookie, "X-CSRF-Token": "tried-csrf"})
        assert running.stop() == 0
    log = "".join(running.log)
    for told in (
        "local 127.0.0.1 signed in",
        "- 127.0.0.1 GET /api/v1/status 401",
        "the-reviewer 127.0.0.1 POST /api/v1/labels ",
        "the-reviewer 127.0.0.1 POST /api/v1/rollback 403",
        "the-reviewer 127.0.0.1 POST /api/v1/\\nforged line\\x1b[2J ",
        "- 127.0.0.1 POST /signin 401",
        "local 127.0.0.1 DELETE /api/v1/jobs/1 403",
    ):
        assert told in log
    code = link.query.removeprefix("code=")
    for secret in (*tokens.values(), code, cookie.split("=")[1], "tried-", "Bearer"):
        assert secret not in log


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_it_cleanly(folder: Path, number: signal.Signals) -> None:
    with serving(folder, "--no-auth") as running:
        assert running.signin is None
        assert running.call("GET", "/api/v1/status")[0] == 200
        assert running.call("GET", "/api/v1/status", headers={"Origin": "http://example.org"})[0] == 403
        running.process.send_signal(number)
        assert running.process.wait(30) == 0
    assert not [line for line in running.log if "Traceback" in line]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--host", "0.0.0.0"], "--host 0.0.0.0 without HTTPS would send tokens in plain text"),
        (["--host", "0.0.0.0", "--behind-proxy", "--no-auth"], "--no-auth with --behind-proxy would let everyone in"),
        (["--host", "0.0.0.0", "--behind-proxy"], "--behind-proxy needs a token, and this workspace has none"),
        (["--tls-cert", "missing.pem"], "--tls-cert and --tls-key belong together"),
        (["--tls-cert", __file__, "--tls-key", __file__], "the certificate cannot be used"),
        (["--host", "not an address"], "without HTTPS"),
        (["--allow-host", "*"], "--allow-host is '*'"),
        (["--max-body", "0"], "--max-body"),
        (["--rate", "0"], "--rate"),
        (["--port", "-1"], "--port"),
    ],
)
def test_unsafe_starts_are_refused(tmp_path_factory: Any, command: Any, options: list[str], message: str) -> None:
    bare = tmp_path_factory.getbasetemp() / "bare"
    if not bare.exists():
        make_workspace(bare)
    code, _, err = command("serve", bare, *options)
    assert (code, message in err) == (2, True), err


def test_a_port_in_use_and_a_missing_workspace_are_errors(folder: Path, tmp_path: Path, command: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        code, _, err = command("serve", folder, "--port", port)
        assert (code, f"port {port} is in use. Choose another --port" in err) == (2, True)
    assert command("serve", tmp_path / "none")[0] == 2


def test_a_missing_package_is_an_error(folder: Path, command: Any) -> None:
    with mock.patch.dict(sys.modules, {"uvicorn": None}):
        sys.modules.pop("evergraph.service.server", None)
        code, _, err = command("serve", folder)
    assert (code, "pip install 'evergraph[serve]'" in err) == (2, True)


def test_every_promise_has_a_test() -> None:
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    promised = re.findall(r"`(tests/[\w/]+\.py)` +`(test_\w+)`", page)
    assert len(promised) > 20
    for path, name in promised:
        assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8"), (path, name)
