"""The application that ``evergraph serve`` runs: API, pages, health and metrics."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

from anyio import CapacityLimiter
from fastapi import Depends, FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi
from starlette.staticfiles import StaticFiles

from evergraph import __version__
from evergraph.errors import EvergraphError
from evergraph.service import api, auth, pages, schemas, tables
from evergraph.service.guard import Guard
from evergraph.service.jobs import Jobs
from evergraph.service.metrics import Metrics
from evergraph.service.options import Options
from evergraph.service.problems import add_handlers, problem, response
from evergraph.service.reads import Reads
from evergraph.service.served import Served

__all__ = ["build_app"]

log = logging.getLogger("evergraph.service")


def build_app(folder: Path, options: Options) -> FastAPI:
    """Return the application on a workspace.

    Parameters
    ----------
    folder
        Folder of the workspace.
    options
        Address, limits and access.
    """
    served = Served(folder)
    reads = Reads(served)
    warm = threading.Event()
    jobs = Jobs(served, options.threads, warm.set)

    @asynccontextmanager
    async def running(app: FastAPI) -> AsyncIterator[None]:
        tables.remove_leftovers()
        jobs.start()
        threading.Thread(target=_prepare, args=[app, reads, warm], daemon=True).start()
        yield
        app.state.stopping = True
        warm.set()
        jobs.stop()
        served.close()

    app = FastAPI(
        title="Evergraph",
        version=__version__,
        summary="Lifelong learning on an evolving graph: slices, decisions, labels, review.",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        lifespan=running,
    )
    app.state.options, app.state.reads, app.state.jobs = options, reads, jobs
    app.state.metrics, app.state.stopping = Metrics(), False
    app.state.writers, app.state.explainers = CapacityLimiter(1), CapacityLimiter(1)
    app.state.authenticator = auth.Authenticator(folder, options)
    add_handlers(app)
    app.include_router(api.router)
    app.include_router(auth.router)
    app.include_router(pages.router)
    app.mount("/static", StaticFiles(directory=str(files("evergraph.service") / "static")), name="static")
    _add_health(app)
    app.add_middleware(_Measured, metrics=app.state.metrics)
    app.add_middleware(Guard, authenticator=app.state.authenticator, options=options)
    return app


def _prepare(app: FastAPI, reads: Reads, warm: threading.Event) -> None:
    """Compute the groups after each job, so that no reader has to wait for them."""
    while not app.state.stopping:
        try:
            reads.grouping()
        except (EvergraphError, OSError) as error:
            log.warning("the groups could not be computed: %s", error)
        warm.wait()
        warm.clear()


def _add_health(app: FastAPI) -> None:
    @app.get("/healthz", include_in_schema=False)
    async def healthz() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/readyz", include_in_schema=False)
    def readyz(request: Request) -> Response:
        try:
            version = request.app.state.reads.served.view().version
        except (EvergraphError, OSError):
            return response(problem(503, "The workspace cannot be read."))
        return Response(f'{{"status":"ok","version":{version}}}', media_type="application/json")

    @app.get("/metrics", include_in_schema=False)
    def metrics(request: Request, _: Annotated[auth.User, Depends(auth.require("viewer"))]) -> Response:
        state = request.app.state
        return Response(state.metrics.text(state.reads, state.jobs), media_type="text/plain; version=0.0.4")

    @app.get("/api/v1/openapi.json", include_in_schema=False)
    def document(_: Annotated[auth.User, Depends(auth.require("viewer"))]) -> dict[str, Any]:
        return openapi(app)


def openapi(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI document."""
    if app.openapi_schema is None:
        found = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
        parts = found["components"]["schemas"]
        for model in (schemas.Problem, schemas.Slice, schemas.Labels):
            described = model.model_json_schema(ref_template="#/components/schemas/{model}")
            parts |= described.pop("$defs", {}) | {model.__name__: described}
        for name in ("HTTPValidationError", "ValidationError"):
            parts.pop(name, None)
        found["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        found["security"] = [{"token": []}]
        app.openapi_schema = found
    return app.openapi_schema


class _Measured:
    """Middleware that counts requests."""

    def __init__(self, app: Any, metrics: Metrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Any, receive: Any, send: Callable[[Any], Awaitable[None]]) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status = time.perf_counter(), 500

        async def watched(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, watched)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self.metrics.answered(scope["method"], route, status, start)
