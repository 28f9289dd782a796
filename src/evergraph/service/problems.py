"""Errors as problem documents (RFC 9457), with the same sentences as the command line."""

from __future__ import annotations

import logging
from http import HTTPStatus
from pathlib import Path
from typing import Any

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Match

from evergraph.errors import EvergraphError, InputError, os_error

__all__ = ["CONTENT_TYPE", "NotFoundError", "add_handlers", "problem", "problem_of", "status_of"]

CONTENT_TYPE = "application/problem+json"
UPLOAD = "evergraph-upload-"
"""Start of the names of temporary folders with tables of a request."""

_STATUS = {"input": 422, "missing": 404, "stale": 409, "busy": 503, "storage": 507, "large": 413, "format": 415}

log = logging.getLogger("evergraph.service")


class NotFoundError(InputError):
    """A vertex, job or group of a request that does not exist."""

    kind = "missing"


class TooLargeError(InputError):
    """More rows than the service accepts in one request."""

    kind = "large"


class UnknownFormatError(InputError):
    """A body of a type that the service does not read."""

    kind = "format"


def problem(status: int, detail: str, **more: Any) -> dict[str, Any]:
    """Return a problem document.

    Examples
    --------
    >>> problem(404, "There is no job 7.")
    {'type': 'about:blank', 'title': 'Not Found', 'status': 404, 'detail': 'There is no job 7.'}
    """
    return {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": detail, **more}


def status_of(error: EvergraphError) -> int:
    """Return the HTTP status of an error."""
    return _STATUS.get(error.kind, 500)


def problem_of(error: EvergraphError) -> dict[str, Any]:
    """Return the problem document of an error; files of uploads have the name of their part, not a path."""
    if isinstance(error.file, Path) and error.file.parent.name.startswith(UPLOAD):
        place = {"file": error.file.name, "column": error.column, "row": error.row, "line": error.line}
        error = InputError(error.problem, fix=error.fix, **place)  # type: ignore[arg-type]
    found = error.as_dict()
    detail = found.pop("message")
    del found["code"]
    more = getattr(error, "facts", {})
    return problem(
        status_of(error), f"{detail[0].upper()}{detail[1:]}" if error.file is None else detail, **found, **more
    )


def response(content: dict[str, Any], headers: dict[str, str] | None = None) -> Response:
    """Return a problem document as a response."""
    return Response(msgspec.json.encode(content), content["status"], headers, CONTENT_TYPE)


def add_handlers(app: FastAPI) -> None:
    """Answer every error with a problem document."""

    @app.exception_handler(EvergraphError)
    def evergraph_error(request: Request, error: EvergraphError) -> Response:
        if status_of(error) >= 500:
            log.error("%s %s: %s", request.method, request.url.path, error)
        return response(problem_of(error))

    @app.exception_handler(OSError)
    def disk_error(request: Request, error: OSError) -> Response:
        return evergraph_error(request, os_error(error, "the disk reported an error"))

    @app.exception_handler(RequestValidationError)
    def invalid(_: Request, error: RequestValidationError) -> Response:
        first, *others = error.errors()
        where = ".".join(str(part) for part in first["loc"])
        more = f" ({len(others)} more problems)" if others else ""
        return response(problem(422, f"{where}: {first['msg']}.{more}"[:1000], kind="input"))

    @app.exception_handler(HTTPException)
    def http_error(request: Request, error: HTTPException) -> Response:
        detail = error.detail if error.detail != HTTPStatus(error.status_code).phrase else _USUAL.get(error.status_code)
        headers = dict(error.headers or {})
        if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            headers["Allow"] = ", ".join(_methods(app, request))
        return response(problem(error.status_code, detail or error.detail), headers)

    @app.exception_handler(Exception)
    def unexpected(request: Request, error: Exception) -> Response:
        log.exception("%s %s: %s", request.method, request.url.path, error)
        return response(problem(500, "The service failed unexpectedly; its log says more."))


def _methods(app: FastAPI, request: Request) -> list[str]:
    """Return the methods of an address; each has a route of its own."""
    found: set[str] = set()
    for route in app.routes:
        if route.matches(request.scope)[0] is not Match.NONE:
            found |= getattr(route, "methods", None) or set()
    return sorted(found)


_USUAL = {
    404: "There is no such address. See /api/v1/openapi.json.",
    405: "This address does not accept this method. See /api/v1/openapi.json.",
}
