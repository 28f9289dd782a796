"""The guard in front of all routes, and the options that it takes its limits from."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from starlette.testclient import TestClient

from evergraph import InputError
from evergraph.service import guard as guard_module
from evergraph.service import server
from evergraph.service.auth import LOCAL, Session, User
from evergraph.service.guard import CSP, Buckets, Guard
from evergraph.service.options import Options

OPTIONS = Options(rate=10_000, max_body=100_000, patience=0.3)
TOKEN = {"Authorization": "Bearer right"}
SESSION = Session("id", "csrf-value", time.monotonic() + 1e6, None)
COOKIE = {"Cookie": "other=1; session=id; x=y"}


class Known:
    """An authenticator that knows one token and one session."""

    cookie = "session"
    code = None

    async def user_of_token(self, token: str) -> User | None:
        if token == "broken":
            raise InputError("the database is damaged")
        return User("anna", "reviewer") if token == "right" else None

    async def session(self, id: str) -> tuple[Session, User] | None:
        return (SESSION, LOCAL) if id == "id" else None


def app_with(options: Options = OPTIONS) -> FastAPI:
    app = FastAPI(docs_url=None, redoc_url=None)
    app.state.authenticator = Known()

    @app.api_route("/{path:path}", methods=["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"])
    async def answer(path: str, request: Request) -> Response:
        if path == "fail":
            raise ZeroDivisionError
        if path == "own":
            return Response("x", headers={"Content-Security-Policy": "sandbox", "Cache-Control": "max-age=9"})
        if path == "swallow":  # as a framework that turns every error of a body into its own
            try:
                await request.body()
            except Exception:
                return JSONResponse({"detail": "odd body"}, 400)
        if path == "unread":
            return JSONResponse("done")
        size = len(await request.body())
        user = request.state.user
        return JSONResponse({"user": user and user.name, "csrf": request.state.csrf, "bytes": size})

    app.add_middleware(Guard, authenticator=app.state.authenticator, options=options)
    return app


def client_of(options: Options = OPTIONS, **how: Any) -> TestClient:
    return TestClient(app_with(options), base_url=options.url, follow_redirects=False, **how)


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with client_of() as made:
        yield made


def problem(response: Any) -> tuple[int, str]:
    """Return status and detail of a problem document."""
    assert response.headers["content-type"] == "application/problem+json"
    found = response.json()
    assert found["type"] == "about:blank"
    assert found["title"]
    assert found["status"] == response.status_code
    return found["status"], found["detail"]


# --- where a request comes from ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    [
        *("example.org", "example.org:8765", "127.0.0.1", "127.0.0.1:80", "localhost:8765.example.org", "0.0.0.0:8765"),
        *("localhost.:8765", "127.0.0.1:8765@example.org", "", "[::1]", "localhost:8765, example.org"),
    ],
)
def test_another_host_is_refused(client: TestClient, host: str) -> None:
    for path in ("/", "/healthz", "/signin", "/static/x", "/api/v1/status"):
        assert problem(client.get(path, headers={**TOKEN, "Host": host}))[0] == 421


@pytest.mark.parametrize("host", ["127.0.0.1:8765", "localhost:8765", "LOCALHOST:8765", "[::1]:8765"])
def test_names_of_this_machine_are_answered(client: TestClient, host: str) -> None:
    assert client.get("/", headers={**TOKEN, "Host": host}).status_code == 200


def test_two_hosts_are_refused() -> None:
    headers = [(b"host", b"example.org"), (b"host", b"localhost:8765"), (b"authorization", b"Bearer right")]
    assert status_of(headers) == 421
    assert status_of(headers[1:]) == 200
    assert status_of(headers[2:]) == 421


def status_of(headers: list[tuple[bytes, bytes]]) -> int:
    """Return the status of a request with these headers and no others."""
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": "/x", "query_string": b"", "headers": headers, "client": None}
    asyncio.run(app_with()({**scope, "root_path": "", "scheme": "http"}, receive, send))
    return int(sent[0]["status"])


@pytest.mark.parametrize("no_auth", [False, True])
@pytest.mark.parametrize(
    "origin",
    [
        *("http://example.org", "null", "http://127.0.0.1:8766", "https://127.0.0.1:8765", "http://localhost:8765"),
        *("http://127.0.0.1:8765.example.org", "", "http://127.0.0.1"),
    ],
)
def test_a_foreign_origin_is_refused(origin: str, no_auth: bool) -> None:
    options = Options(no_auth=no_auth, rate=10_000)
    with client_of(options) as client:
        for method in ("GET", "POST", "OPTIONS"):
            for path in ("/", "/signin"):
                assert problem(client.request(method, path, headers={**TOKEN, "Origin": origin}))[0] == 403


@pytest.mark.parametrize("no_auth", [False, True])
def test_the_own_origin_is_answered(no_auth: bool) -> None:
    options = Options(no_auth=no_auth)
    with client_of(options) as client:
        for headers in ({}, {"Origin": "http://127.0.0.1:8765", "Sec-Fetch-Site": "same-origin"}):
            assert client.post("/", headers={**TOKEN, **headers}).status_code == 200


@pytest.mark.parametrize("no_auth", [False, True])
@pytest.mark.parametrize("site", ["cross-site", "same-site", "odd"])
def test_writes_of_other_sites_are_refused_even_without_an_origin(no_auth: bool, site: str) -> None:
    with client_of(Options(no_auth=no_auth)) as client:
        assert problem(client.post("/", headers={**TOKEN, "Sec-Fetch-Site": site}))[0] == 403
        assert client.get("/", headers={**TOKEN, "Sec-Fetch-Site": site}).status_code == 200  # a link


def test_websockets_are_refused() -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(Guard(None, authenticator=Known(), options=OPTIONS)({"type": "websocket"}, None, send))  # type: ignore[arg-type]
    assert sent == [{"type": "websocket.close"}]


# --- who sends it -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Bearer "},
        {"Authorization": "Basic right"},
        {"Authorization": "right"},
        {"Cookie": "session=forged"},
        {"Cookie": "session=; id"},
        {"Cookie": "Session=id"},
        {"Authorization": "Bearer wrong", "Cookie": "session=id", "X-CSRF-Token": "csrf-value"},
    ],
)
def test_without_a_valid_token_or_session_there_is_401(
    client: TestClient, headers: dict[str, str], method: str
) -> None:
    for path in ("/", "/api/v1/status", "/metrics", "/openapi.json", "/static", "/signin/", "/healthz/x", "//signin"):
        found = client.request(method, f"{OPTIONS.url}{path}", headers=headers)
        assert (found.status_code, found.headers["www-authenticate"]) == (401, "Bearer")
        if method != "HEAD":
            problem(found)


def test_some_paths_need_no_user(client: TestClient) -> None:
    for path in ("/healthz", "/readyz", "/signin", "/static/app.css"):
        assert client.get(path).json()["user"] is None


def test_a_token_needs_no_csrf_header(client: TestClient) -> None:
    for scheme in ("Bearer", "bearer", "BEARER"):
        assert client.post("/x", headers={"Authorization": f"{scheme} right"}).json()["user"] == "anna"


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_a_write_with_a_cookie_needs_the_csrf_header(client: TestClient, method: str) -> None:
    for sent in ({}, {"X-CSRF-Token": ""}, {"X-CSRF-Token": "other"}, {"X-CSRF-Token": b"\xff"}):
        for path in ("/x", "/signout"):
            assert problem(client.request(method, path, headers={**COOKIE, **sent}))[0] == 403  # type: ignore[dict-item]
    assert client.request(method, "/x", headers={**COOKIE, "X-CSRF-Token": "csrf-value"}).status_code == 200
    assert client.get("/x", headers=COOKIE).json() == {"user": "local", "csrf": "csrf-value", "bytes": 0}


def test_without_authentication_everyone_is_local() -> None:
    with client_of(Options(no_auth=True)) as client:
        assert client.post("/x").json() == {"user": "local", "csrf": None, "bytes": 0}
        assert client.get("/x", headers={"Authorization": "Bearer wrong"}).json()["user"] == "local"


def test_tokens_that_cannot_be_read_let_no_one_in(client: TestClient) -> None:
    status, detail = problem(client.get("/x", headers={"Authorization": "Bearer broken"}))
    assert (status, "The tokens cannot be read" in detail) == (503, True)


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("/", "/signin"),
        ("/review?group=1&x=%22", "/signin?next=%2Freview%3Fgroup%3D1%26x%3D%2522"),
        ("//example.org", "/signin?next=%2F%2Fexample.org"),
        ("/%0d%0aSet-Cookie:x", "/signin?next=%2F%250d%250aSet-Cookie%3Ax"),
    ],
)
def test_pages_lead_to_the_sign_in_page(client: TestClient, path: str, target: str) -> None:
    found = client.get(f"{OPTIONS.url}{path}", headers={"Accept": "text/html,*/*"})
    assert (found.status_code, found.headers["location"]) == (303, target)


def test_programs_are_not_redirected(client: TestClient) -> None:
    html = {"Accept": "text/html"}
    assert client.get("/api/v1/report", headers=html).status_code == 401
    assert client.post("/review", headers=html).status_code == 401
    assert client.get("/review", headers={**html, "Authorization": "Bearer wrong"}).status_code == 401
    assert client.get("/review").status_code == 401


# --- how much and how fast --------------------------------------------------------------------------------------------


def in_parts(size: int, part: int = 1000) -> Iterator[bytes]:
    """A body without a Content-Length."""
    for _ in range(size // part):
        yield b"x" * part


@pytest.mark.parametrize("path", ["/x", "/swallow"])
def test_a_body_that_is_too_large_is_refused(client: TestClient, path: str) -> None:
    most = OPTIONS.max_body
    assert client.post(path, headers=TOKEN, content=b"x" * most).json()["bytes"] == most
    assert client.post(path, headers=TOKEN, content=in_parts(most)).json()["bytes"] == most
    for body in (b"x" * (most + 1), in_parts(most + 1000)):
        status, detail = problem(client.post(path, headers=TOKEN, content=body))
        assert (status, "larger than 97.6562 kB" in detail) == (413, True)


@pytest.mark.parametrize("length", ["-1", "1e3", "9" * 30, "0x10", "+5"])
def test_an_odd_content_length_is_refused(client: TestClient, length: str) -> None:
    assert problem(client.post("/x", headers={**TOKEN, "Content-Length": length}))[0] == 413


def test_without_a_user_a_body_is_small(client: TestClient) -> None:
    for body in (b"x" * 20_000, in_parts(20_000)):
        status, detail = problem(client.post("/signin", content=body))
        assert (status, "Sign in first" in detail) == (413, True)


def test_a_slow_body_is_refused() -> None:
    """The client sends a few bytes now and then, which would otherwise keep the request open."""
    sent: list[Any] = []

    async def receive() -> Any:
        await asyncio.sleep(0.1)
        return {"type": "http.request", "body": b"x", "more_body": True}

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"host", b"127.0.0.1:8765"), (b"authorization", b"Bearer right")]
    scope = {"type": "http", "method": "POST", "path": "/x", "query_string": b"", "headers": headers, "client": None}
    for path in ("/x", "/swallow"):
        sent.clear()
        asyncio.run(app_with()({**scope, "path": path, "root_path": "", "scheme": "http"}, receive, send))
        assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
        assert (sent[0]["status"], json.loads(sent[1]["body"])["status"]) == (408, 408)


def test_a_body_that_arrives_steadily_may_take_its_time() -> None:
    async def receive() -> Any:
        nonlocal left
        left -= 1
        await asyncio.sleep(0.1)
        return {"type": "http.request", "body": b"x" * 16_000, "more_body": left > 0}

    async def send(message: Any) -> None:
        sent.append(message)

    left, sent = 5, []  # type: ignore[var-annotated]
    headers = [(b"host", b"127.0.0.1:8765"), (b"authorization", b"Bearer right")]
    scope = {"type": "http", "method": "POST", "path": "/x", "query_string": b"", "headers": headers, "client": None}
    began = time.monotonic()
    asyncio.run(app_with()({**scope, "root_path": "", "scheme": "http"}, receive, send))
    assert time.monotonic() - began > OPTIONS.patience
    assert sent[0]["status"] == 200


def test_waiting_for_the_end_of_a_connection_has_no_limit() -> None:
    """A stream of events waits for a disconnect, which may come hours later."""
    options = Options(patience=0.05, no_auth=True)

    async def stream(scope: Any, receive: Any, send: Any) -> None:
        assert (await receive())["type"] == "http.request"
        assert (await receive())["type"] == "http.disconnect"
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def messages() -> AsyncIterator[Any]:
        yield {"type": "http.request", "body": b"", "more_body": False}
        await asyncio.sleep(0.3)
        yield {"type": "http.disconnect"}

    async def run() -> list[Any]:
        received, sent = messages(), []  # type: ignore[var-annotated]

        async def send(message: Any) -> None:
            sent.append(message)

        headers = [(b"host", b"127.0.0.1:8765")]
        scope = {"type": "http", "method": "GET", "path": "/x", "query_string": b"", "headers": headers}
        await Guard(stream, authenticator=Known(), options=options)(scope, received.__anext__, send)  # type: ignore[arg-type]
        return sent

    assert asyncio.run(run())[0]["status"] == 200


def test_too_many_requests_are_refused_per_user() -> None:
    with client_of(Options(rate=1)) as client:
        found = [client.get("/x", headers=TOKEN) for _ in range(6)]
        assert [response.status_code for response in found[:4]] == [200] * 4
        status, detail = problem(found[-1])
        assert (status, found[-1].headers["retry-after"]) == (429, "1")
        assert "Try again in 1 s" in detail
        assert client.get("/x", headers=COOKIE).status_code == 200  # another user
        assert client.get("/x").status_code == 401  # and an address
        for _ in range(5):
            refused = client.get("/readyz")
        assert refused.status_code == 429


def test_attempts_to_sign_in_are_few() -> None:
    with client_of() as client:
        found = [client.post("/signin").status_code for _ in range(guard_module._SIGN_INS)]
        assert set(found) == {200}
        assert problem(client.post("/signin"))[0] == 429
        assert problem(client.get("/signin?code=guess"))[0] == 429
        assert client.get("/signin").status_code == 200


def test_buckets_fill_again_and_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    buckets, now = Buckets(rate=2, size=3), 100.0
    monkeypatch.setattr(guard_module, "_MOST_BUCKETS", 10)
    with mock.patch("time.monotonic", side_effect=lambda: now):
        assert [buckets.take("a") for _ in range(4)] == [0, 0, 0, 0.5]
        now += 0.5
        assert [buckets.take("a") for _ in range(2)] == [0, 0.5]
        now += 1000
        assert [buckets.take("a") for _ in range(4)] == [0, 0, 0, 0.5]
        for number in range(100):
            buckets.take(str(number))
            buckets.take("a")
    assert len(buckets._found) == 10
    assert "a" in buckets._found


# --- responses and the log --------------------------------------------------------------------------------------------


def test_every_response_has_the_security_headers() -> None:
    with client_of(raise_server_exceptions=False) as client:
        responses = [
            client.get("/x", headers=TOKEN),
            client.get("/fail", headers=TOKEN),
            client.get("/x"),
            client.get("/x", headers={"Host": "example.org"}),
            client.get("/", headers={"Accept": "text/html"}),
            client.post("/x", headers=TOKEN, content=in_parts(200_000)),
            client.get("/static/x"),
        ]
    assert [response.status_code for response in responses] == [200, 500, 401, 421, 303, 413, 200]
    for response in responses:
        assert response.headers["content-security-policy"] == CSP
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["referrer-policy"] == "same-origin"
        assert response.headers["cross-origin-opener-policy"] == "same-origin"
        assert response.headers["cross-origin-resource-policy"] == "same-origin"
        assert "camera=()" in response.headers["permissions-policy"]
        assert "strict-transport-security" not in response.headers
        is_static = response is responses[-1]
        assert response.headers["cache-control"] == ("no-cache" if is_static else "no-store")
    assert "unsafe" not in CSP


def test_a_route_may_set_its_own_policy(client: TestClient) -> None:
    found = client.get("/own", headers=TOKEN)
    assert found.headers.get_list("content-security-policy") == ["sandbox"]
    assert found.headers.get_list("cache-control") == ["max-age=9"]


def test_https_is_remembered_by_browsers() -> None:
    options = Options(behind_proxy=True, allow_hosts=("example.org",))
    with client_of(options) as client:
        found = client.get("/x", headers={**TOKEN, "Origin": "https://example.org"})
        assert (found.status_code, found.headers["strict-transport-security"]) == (200, "max-age=31536000")
        assert client.get("/x", headers={**TOKEN, "Host": "127.0.0.1:8765"}).status_code == 421


def test_a_failure_says_nothing_of_the_inside(caplog: pytest.LogCaptureFixture) -> None:
    with client_of(raise_server_exceptions=False) as client:
        assert problem(client.get("/fail", headers=TOKEN)) == (500, "The service failed. Its log says why.")


def test_writes_and_refusals_are_logged_and_secrets_are_not(
    client: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "evergraph.service")
    client.get("/read", headers=TOKEN)
    client.post("/write?code=secret-code", headers=TOKEN)
    client.post("/a%0a%1b%5b2J%e2%80%aeb", headers=TOKEN)
    client.get("/refused?token=secret-code", headers={"Authorization": "Bearer secret", "Cookie": "session=secret"})
    client.delete("/csrf", headers=COOKIE)
    client.get("/host", headers={"Host": "example.org"})
    client.post("/" + "x" * 5000, headers=TOKEN)
    assert [record.getMessage() for record in caplog.records if record.name == "evergraph.service"] == [
        "anna testclient POST /write 200",
        "anna testclient POST /a\\n\\x1b[2J\\u202eb 404",
        "- testclient GET /refused 401",
        "local testclient DELETE /csrf 403",
        "- testclient GET /host 421",
        f"anna testclient POST /{'x' * 199}… 200",
    ]


# --- options ----------------------------------------------------------------------------------------------------------

TLS = {"tls_cert": Path("cert.pem"), "tls_key": Path("key.pem")}


@pytest.mark.parametrize(
    ("options", "has_token", "message"),
    [
        ({"host": "0.0.0.0"}, True, "--host 0.0.0.0 without HTTPS would send tokens in plain text"),
        ({"host": "192.168.1.5"}, True, "without HTTPS"),
        ({"host": "example.org"}, True, "without HTTPS"),
        ({"host": "::"}, True, "without HTTPS"),
        ({"host": ""}, True, "without HTTPS"),
        ({"host": "192.168.1.5", **TLS}, False, "needs a token, and this workspace has none"),
        ({"host": "192.168.1.5", "no_auth": True, **TLS}, True, "--no-auth with --host 192.168.1.5"),
        ({"behind_proxy": True, "no_auth": True}, True, "--no-auth with --behind-proxy would let everyone in"),
        ({"behind_proxy": True, "allow_hosts": ("example.org",)}, False, "--behind-proxy needs a token"),
        ({"behind_proxy": True}, True, "by which name the service is addressed. Give --allow-host NAME"),
        ({"host": "0.0.0.0", **TLS}, True, "by which name the service is addressed"),
        ({"tls_cert": Path("cert.pem")}, True, "--tls-cert and --tls-key belong together"),
        ({"tls_key": Path("key.pem")}, True, "--tls-cert and --tls-key belong together"),
        ({"behind_proxy": True, **TLS}, True, "--tls-cert and --behind-proxy are both given"),
        ({"allow_hosts": ("*",)}, True, r"--allow-host is '\*'"),
        ({"allow_hosts": ("https://example.org",)}, True, "--allow-host is 'https://example.org'"),
        ({"allow_hosts": ("",)}, True, "--allow-host is ''"),
    ],
)
def test_unsafe_options_are_refused(options: dict[str, Any], has_token: bool, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Options(**options).check(Path("ws"), has_token=has_token)


@pytest.mark.parametrize(
    ("options", "url", "hosts"),
    [
        ({}, "http://127.0.0.1:8765", {"127.0.0.1:8765", "localhost:8765", "[::1]:8765"}),
        ({"host": "localhost", **TLS}, "https://localhost:8765", {"127.0.0.1:8765", "localhost:8765", "[::1]:8765"}),
        ({"host": "192.168.1.5", **TLS}, "https://192.168.1.5:8765", {"192.168.1.5:8765"}),
        ({"host": "0.0.0.0", "allow_hosts": ("a.b",), **TLS}, "https://a.b:8765", {"a.b:8765"}),
        ({"host": "::", "port": 443, "allow_hosts": ("a.b",), **TLS}, "https://a.b:443", {"a.b:443", "a.b"}),
        ({"behind_proxy": True, "allow_hosts": ("a.b:8443",)}, "https://a.b:8443", {"a.b:8443"}),
        (
            {"behind_proxy": True, "host": "0.0.0.0", "allow_hosts": ("a.b", "c.d")},
            "https://a.b",
            {"a.b", "a.b:443", "c.d", "c.d:443"},
        ),
    ],
)
def test_safe_options_say_how_the_service_is_addressed(options: dict[str, Any], url: str, hosts: set[str]) -> None:
    made = Options(**options)
    made.check(Path("ws"), has_token=True)
    assert (made.url, made.hosts) == (url, hosts)


# --- slow and endless clients, on a real port -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def address() -> Iterator[tuple[str, int]]:
    """A server in a thread, with little patience."""
    with server._bind(Options(port=0)) as bound:
        options = Options(port=bound.getsockname()[1], max_body=100_000, patience=1, rate=10_000)
        started = threading.Event()
        made = server._Server(server._config(app_with(options), options), started.set)
        thread = threading.Thread(target=made.run, args=([bound],))
        thread.start()
        assert started.wait(30)
        yield options.host, options.port
        made.should_exit = True
        thread.join(30)
        assert not thread.is_alive()


class Raw:
    """A connection that sends what it is told to."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, timeout=20)
        self.head = f"Host: {address[0]}:{address[1]}\r\nAuthorization: Bearer right\r\n".encode()

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> bool:
        """Send; return whether the connection was open."""
        try:
            self.socket.sendall(data)
        except OSError:
            return False
        return True

    def drip(self, data: bytes, seconds: float = 15) -> bool:
        """Send bytes again and again until the connection is closed; return whether it was."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if not self.send(data):
                return True
            time.sleep(0.05)
        return False

    def until(self, end: bytes) -> bytes:
        """Return what is received up to an end."""
        found = b""
        while end not in found and (data := self.socket.recv(65536)):
            found += data
        return found

    def rest(self) -> bytes:
        """Return all that is received until the connection is closed."""
        found = b""
        try:
            while data := self.socket.recv(65536):
                found += data
        except ConnectionError:
            pass
        return found


def test_a_client_that_sends_nothing_is_disconnected(address: tuple[str, int]) -> None:
    with Raw(address) as raw:
        assert raw.rest() == b""


@pytest.mark.parametrize("start", [b"", b"GET / HTTP/1.1\r\n", b"\r\n"])
def test_a_head_that_arrives_drop_by_drop_is_cut_off(address: tuple[str, int], start: bytes) -> None:
    with Raw(address) as raw:
        raw.send(start)
        assert raw.drip(b"\r\n" if start == b"\r\n" else b"X-A: b\r\n" if start else b"G")


def test_the_second_head_of_a_connection_has_a_limit_too(address: tuple[str, int]) -> None:
    with Raw(address) as raw:
        raw.send(b"GET /unread HTTP/1.1\r\n" + raw.head + b"\r\n")
        assert raw.until(b'"done"').startswith(b"HTTP/1.1 200")
        time.sleep(1.3)  # an idle connection is kept for longer than a head may take
        raw.send(b"GET /unread HTTP/1.1\r\n" + raw.head + b"\r\n")
        assert raw.until(b'"done"').startswith(b"HTTP/1.1 200")
        raw.send(b"GET /unread HT")
        assert raw.rest() == b""


@pytest.mark.parametrize("line", [b"X-A: b\r\n" * 1000, b"x" * 8000])
def test_an_endless_head_is_cut_off(address: tuple[str, int], line: bytes) -> None:
    with Raw(address) as raw:
        raw.send(b"GET / HTTP/1.1\r\nX-Long: ")
        sent = sum(raw.send(line) for _ in range(2000))
        assert sent < 1500  # of 16 MB


def test_a_body_that_arrives_drop_by_drop_gets_408(address: tuple[str, int]) -> None:
    for length in (b"Content-Length: 5000\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n"):
        with Raw(address) as raw:
            raw.send(b"POST /x HTTP/1.1\r\n" + raw.head + length)
            raw.drip(b"1\r\nx\r\n" if b"chunked" in length else b"x", 1.4)
            assert raw.rest().startswith(b"HTTP/1.1 408")


def test_a_body_that_no_one_reads_does_not_keep_the_connection_open(address: tuple[str, int]) -> None:
    for path in (b"/unread", b"/refused"):
        with Raw(address) as raw:
            head = raw.head if path == b"/unread" else raw.head.replace(b"right", b"wrong")
            raw.send(b"POST " + path + b" HTTP/1.1\r\n" + head + b"Content-Length: 50000\r\n\r\n")
            assert raw.socket.recv(65536).startswith(b"HTTP/1.1 200" if path == b"/unread" else b"HTTP/1.1 401")
            assert raw.drip(b"x")


def test_a_body_that_is_too_large_is_refused_before_it_is_sent(address: tuple[str, int]) -> None:
    with Raw(address) as raw:
        raw.send(b"POST /x HTTP/1.1\r\n" + raw.head + b"Content-Length: 1000000000\r\nExpect: 100-continue\r\n\r\n")
        assert raw.socket.recv(65536).startswith(b"HTTP/1.1 413")


def test_a_chunked_body_that_is_too_large_is_refused_while_it_is_sent(address: tuple[str, int]) -> None:
    with Raw(address) as raw:
        raw.send(b"POST /x HTTP/1.1\r\n" + raw.head + b"Transfer-Encoding: chunked\r\n\r\n")
        for _ in range(30):
            raw.send(b"2710\r\n" + b"x" * 10_000 + b"\r\n")
        raw.send(b"0\r\n\r\n")
        raw.send(b"GET /unread HTTP/1.1\r\nConnection: close\r\n" + raw.head + b"\r\n")
        found = raw.rest()
        assert found.startswith(b"HTTP/1.1 413")
        assert b"HTTP/1.1 200" in found  # the connection could still be used


def test_two_lengths_and_smuggled_requests_are_refused(address: tuple[str, int]) -> None:
    for odd in (
        b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nxxxxx",
        b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    ):
        with Raw(address) as raw:
            raw.send(b"POST /x HTTP/1.1\r\n" + raw.head + odd)
            assert raw.rest().startswith(b"HTTP/1.1 400")


def test_the_server_does_not_say_what_it_is(address: tuple[str, int]) -> None:
    with Raw(address) as raw:
        raw.send(b"GET /x HTTP/1.1\r\nConnection: close\r\n" + raw.head + b"\r\n")
        head = raw.rest().split(b"\r\n\r\n")[0].lower()
        assert b"server:" not in head
        assert b"uvicorn" not in head
