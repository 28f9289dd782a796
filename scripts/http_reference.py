"""Write the routes in docs/reference/http-api.md from the OpenAPI document: ``python scripts/http_reference.py``.

With ``--check`` nothing is written; the exit code is 1 if the page is out of date.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from fastapi import FastAPI
from fastapi.routing import APIRoute

from evergraph import __version__
from evergraph.service import api
from evergraph.service.app import openapi
from evergraph.service.auth import Role, require

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "http-api.md"
HEADERS = ("accept", "Idempotency-Key", "If-Match")  # explained once
START, END = "<!-- table: python scripts/http_reference.py -->", "<!-- end -->"


def page() -> str:
    """The page, with the current routes."""
    app = FastAPI(title="Evergraph", version=__version__)
    app.include_router(api.router)
    found = openapi(app)
    routes = [
        (method, route.path_format, _role(route))
        for route in api.router.routes
        if isinstance(route, APIRoute)
        for method in sorted(route.methods or ())
    ]
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(START)
    generated = "".join([*_overview(found, routes), *_sections(found, routes), *_objects(found)])
    return f"{before}{START}\n{generated}\n{END}{rest.partition(END)[2]}"


def _role(route: APIRoute) -> str:
    calls = {dependency.call for dependency in route.dependant.dependencies}
    return next(role for role in get_args(Role) if require(role) in calls)


def _overview(document: dict[str, Any], routes: list[tuple[str, str, str]]) -> Iterator[str]:
    yield "\n| route | role | |\n|---|---|---|\n"
    for method, path, role in routes:
        about = _text(document["paths"][path][method.lower()]["description"].split("\n\n")[0])
        yield f"| [`{method} {_short(path)}`](#{_anchor(f'{method} {path}')}) | {role} | {about} |\n"


def _sections(document: dict[str, Any], routes: list[tuple[str, str, str]]) -> Iterator[str]:
    for method, path, role in routes:
        found = document["paths"][path][method.lower()]
        yield f"\n### {method} {path}\n\n{_text(found['description'])}\n\nRole: {role}.\n"
        given = [one for one in found.get("parameters", []) if one["name"] not in HEADERS]
        if given:
            yield "\n| parameter | in | type | default |\n|---|---|---|---|\n"
        for one in given:
            default = one["schema"].get("default")
            shown = "required" if one["required"] else "" if default is None else f"`{str(default).lower()}`"
            yield f"| `{one['name']}` | {one['in']} | {_type(one['schema']).removesuffix(' or null')} | {shown} |\n"
        bodies = found.get("requestBody", {}).get("content", {})
        for kind, body in bodies.items():
            yield f"\nBody `{kind}`: {_type(body['schema'])}.\n"
        for status, answer in found["responses"].items():
            if status < "3":
                kinds = [f"`{kind}`: {_type(one.get('schema', {}))}" for kind, one in answer["content"].items()]
                yield f"\nAnswer {status}: {'; '.join(kinds)}.\n".replace(": .", ".").replace(": ;", ";")


def _objects(document: dict[str, Any]) -> Iterator[str]:
    yield "\n## Objects\n"
    for name, found in sorted(document["components"]["schemas"].items()):
        yield f"\n### {name}\n\n{_text(found.get('description', ''))}\n\n| field | type | default |\n|---|---|---|\n"
        for field, schema in found.get("properties", {}).items():
            default = schema.get("default")
            needed = "required" if field in found.get("required", []) else ""
            shown = needed if default is None else f"`{str(default).lower()}`"
            yield f"| `{field}` | {_type(schema)} | {shown} |\n"


def _type(schema: dict[str, Any]) -> str:
    """A type in words."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[-1]
        return f"[{name}](#{_anchor(name)})"
    if parts := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(dict.fromkeys(map(_type, parts)))
    if "enum" in schema or "const" in schema:
        return ", ".join(f'`"{value}"`' for value in schema.get("enum", [schema.get("const")]))
    if schema.get("type") == "array":
        parts = schema.get("prefixItems")
        return f"list of {' and '.join(map(_type, parts)) if parts else _type(schema.get('items', {}))}"
    if schema.get("format") == "binary":
        return "a file"
    if schema.get("type") == "object" and "properties" in schema:
        return "files " + " and ".join(f"`{name}`" for name in schema["properties"])
    low, high = schema.get("minimum"), schema.get("maximum")
    bounds = f", {low:g} to {high:g}" if low is not None and high is not None else ""
    return schema.get("type", "") + bounds


def _short(path: str) -> str:
    return path.removeprefix("/api/v1/")


def _anchor(heading: str) -> str:
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower())


def _text(text: str) -> str:
    return text.replace("``", "`").replace("|", "&#124;").strip()


def main() -> None:
    """Write the page or check it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    found = page()
    if not parser.parse_args().check:
        PAGE.write_text(found, encoding="utf-8")
    elif PAGE.read_text(encoding="utf-8") != found:
        sys.exit(f"{PAGE} is out of date. Run: python scripts/http_reference.py")


if __name__ == "__main__":
    main()
