"""The pages of the service: empty shells by Jinja2, which scripts fill with data from the API."""

from __future__ import annotations

from functools import cache
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from evergraph import __version__

__all__ = ["render", "router"]

router = APIRouter(include_in_schema=False)


@router.get("/")
def overview(request: Request) -> HTMLResponse:
    """State of the workspace, slices over time, what to do next."""
    return _page(request, "overview", "Overview")


@router.get("/review")
def review(request: Request) -> HTMLResponse:
    """Groups of flagged vertices."""
    return _page(request, "review", "Review")


@router.get("/vertex")
def vertex(request: Request) -> HTMLResponse:
    """One vertex; the script reads its id from the address."""
    return _page(request, "vertex", "Vertex")


@router.get("/label")
def label(request: Request) -> HTMLResponse:
    """What to label next, and suspected label errors."""
    return _page(request, "label", "Label")


@router.get("/activity")
def activity(request: Request) -> HTMLResponse:
    """Versions and jobs."""
    return _page(request, "activity", "Activity")


def _page(request: Request, name: str, title: str) -> HTMLResponse:
    user = request.state.user
    return HTMLResponse(render(name, title=title, page=name, user=user, csrf=request.state.csrf))


def render(name: str, **values: Any) -> str:
    """Return a page by the name of its template; values are escaped, and a missing one is an error."""
    rendered: str = _environment().get_template(f"{name}.html").render(version=__version__, **values)
    return rendered


@cache
def _environment() -> Any:
    import jinja2

    from evergraph.presentation.text import visible

    loader = jinja2.PackageLoader("evergraph.service")
    made = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    made.filters["visible"] = visible
    return made
