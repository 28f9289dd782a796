"""The HTTP API under ``/api/v1``. Its OpenAPI document is ``/api/v1/openapi.json``."""

from __future__ import annotations

import asyncio
import hashlib
import io
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any

import msgspec
from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi import Path as PathParameter
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, StreamingResponse
from pydantic import BaseModel, ValidationError
from starlette.concurrency import run_in_threadpool

from evergraph.analysis.explain import in_words
from evergraph.errors import InputError, NothingToDoError
from evergraph.evaluation.settings_file import parse_settings, workspace_settings
from evergraph.graph import ids as id_columns
from evergraph.graph.columns import Columns
from evergraph.presentation.text import csv_text
from evergraph.service import schemas, tables
from evergraph.service.answers import ConflictError, resolve
from evergraph.service.auth import User, require
from evergraph.service.jobs import Jobs
from evergraph.service.problems import CONTENT_TYPE, NotFoundError, problem
from evergraph.service.reads import Reads
from evergraph.service.served import Order, OrderedWorkspace, Served
from evergraph.service.worker import REPORT
from evergraph.storage.records import Records
from evergraph.workspace import Outcome, Workspace
from evergraph.workspace.change import Change
from evergraph.workspace.labels import create_class, label
from evergraph.workspace.store import read_state

__all__ = ["router"]

_TICK = 0.2  # seconds between two looks at a job
_PING = 15.0  # seconds after which a stream says that it is alive
_UNDONE = ("label", "classes create", "classes rename", "classes merge", "classes retire")
_VERSION = re.compile(r'(W/)?"([0-9]{1,18})"')


def _documented(*codes: int) -> dict[int | str, dict[str, Any]]:
    content = {CONTENT_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {code: {"description": problem(code, "")["title"], "content": content} for code in codes}


router = APIRouter(prefix="/api/v1", responses=_documented(400, 401, 403, 404, 409, 413, 415, 422, 429, 503))

Viewer = Annotated[User, Depends(require("viewer"))]
Reviewer = Annotated[User, Depends(require("reviewer"))]
Admin = Annotated[User, Depends(require("admin"))]
Key = Annotated[str | None, Header(alias="Idempotency-Key", max_length=200, pattern="^[!-~]+$")]
Match = Annotated[str | None, Header(alias="If-Match", max_length=200)]
Cursor = Annotated[str | None, Query(max_length=100)]
Limit = Annotated[int, Query(ge=1, le=1000)]
GroupNumber = Annotated[int, PathParameter(ge=1, lt=2**31)]
GroupingName = Annotated[str | None, Query(max_length=100, alias="grouping")]
VertexId = Annotated[str, PathParameter(max_length=10_000)]


# --- helpers ---------------------------------------------------------------------------------------------------------


def _reads(request: Request) -> Reads:
    found: Reads = request.app.state.reads
    return found


def _served(request: Request) -> Served:
    return _reads(request).served


def _jobs(request: Request) -> Jobs:
    found: Jobs = request.app.state.jobs
    return found


def _answer(content: dict[str, Any], status: int = 200, **headers: str) -> Response:
    if "version" in content and status == 200:
        headers["ETag"] = f'"{content["version"]}"'
    return Response(msgspec.json.encode(content), status, headers, "application/json")


def _order(request: Request, user: User, key: str | None, match: str | None, body: bytes) -> Order:
    expected = None
    if match is not None and match.strip() != "*":
        found = _VERSION.fullmatch(match.strip())
        if found is None:
            raise InputError(f"the header If-Match is {match!r}", fix='send a version in quotes, as in "12"')
        expected = int(found[2])
    asked = f"{request.method} {request.url.path}?{request.url.query}\n".encode() + body
    return Order(user.name, key, hashlib.sha256(asked).hexdigest(), expected)


async def _order_of(request: Request, user: User, key: str | None, match: str | None) -> Order:
    return _order(request, user, key, match, await request.body())


async def _write(request: Request, order: Order, command: Callable[[OrderedWorkspace], Outcome]) -> Response:
    # Writers take turns. Those that wait must not take the threads that readers need.
    limiter: CapacityLimiter = request.app.state.writers
    status, answer = await to_thread.run_sync(_served(request).write, order, command, limiter=limiter)
    request.app.state.metrics.wrote(answer)
    return _answer(answer, status)


async def _start(request: Request, order: Order, kind: str, arguments: dict[str, Any]) -> Response:
    limiter: CapacityLimiter = request.app.state.writers
    status, job = await to_thread.run_sync(_jobs(request).create, order, kind, arguments, limiter=limiter)
    return _answer(job, status, Location=f"/api/v1/jobs/{job['id']}")


def _parsed(model: type[BaseModel], body: bytes) -> Any:
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        raise RequestValidationError([{**one, "loc": ("body", *one["loc"])} for one in error.errors()]) from None


def _columns(workspace: Workspace, given: schemas.ColumnNames) -> Columns | None:
    """Return the workspace's columns with the names of a request; None if it gives none."""
    named = given.model_dump(exclude_none=True, exclude={"drop_dangling"})
    named = {name: tuple(value) if isinstance(value, list) else value for name, value in named.items()}
    return replace(workspace.state.settings.columns, **named) if named else None


def _bodies(model: type[BaseModel], *others: str) -> dict[str, Any]:
    """Return the description of a body that may have several types."""
    content: dict[str, Any] = {tables.JSON: {"schema": {"$ref": f"#/components/schemas/{model.__name__}"}}}
    for kind in others:
        schema: dict[str, Any] = {"type": "string", "format": "binary"}
        if kind == tables.MULTIPART:
            parts = {"vertices": schema, "edges": schema}
            schema = {"type": "object", "properties": parts, "additionalProperties": False}
        content[kind] = {"schema": schema}
    return {"requestBody": {"required": True, "content": content}}


# --- reading ---------------------------------------------------------------------------------------------------------


@router.get("/status", response_model=schemas.StatusAnswer)
def status(request: Request, _: Viewer) -> Response:
    """Return the size of the graph, the current model, what is waiting, and what to do next."""
    return _answer(_reads(request).status() | {"job": _jobs(request).current()})


@router.get("/versions", response_model=schemas.VersionPage)
def versions(
    request: Request, _: Viewer, limit: Limit = 50, before: Annotated[int | None, Query(ge=0, lt=2**62)] = None
) -> Response:
    """Return the log: who did what, newest first."""
    return _answer(_reads(request).versions(limit, before))


@router.get("/classes", response_model=schemas.ClassList)
def classes(request: Request, _: Viewer) -> Response:
    """Return all classes."""
    return _answer(_reads(request).classes())


@router.get("/scores", response_model=schemas.ScoreList)
def scores(request: Request, _: Viewer) -> Response:
    """Return the scores of the decisions on each slice, for the labels that have arrived."""
    return _answer(_reads(request).scores())


@router.get("/drift", response_model=schemas.DriftList)
def drift(request: Request, _: Viewer) -> Response:
    """Return how much the class distribution changed in each slice."""
    return _answer(_reads(request).drift())


@router.get("/models", response_model=schemas.ModelList)
def models(request: Request, _: Viewer) -> Response:
    """Return the records of all models, oldest first."""
    return _answer(_reads(request).models())


@router.get("/settings", response_model=schemas.SettingsAnswer)
def settings(request: Request, _: Viewer) -> Response:
    """Return the settings of the workspace."""
    workspace, columns = Workspace(_served(request).folder), _served(request).view().state.settings.columns
    return _answer(
        {"settings": workspace.settings(), "learner": workspace.describe_model(), "columns": asdict(columns)}
    )


@router.get("/tags", response_model=schemas.TagList)
def tags(request: Request, _: Viewer) -> Response:
    """Return the tagged versions."""
    return _answer({"tags": Workspace(_served(request).folder).tags()})


@router.get(
    "/decisions",
    response_model=schemas.DecisionPage,
    responses={200: {"content": {tables.CSV: {}, tables.PARQUET: {}}}},
)
def decisions(
    request: Request,
    _: Viewer,
    slice_: Annotated[str | None, Query(alias="slice", max_length=100)] = None,
    class_: Annotated[str | None, Query(alias="class", max_length=1_000)] = None,
    flagged: bool | None = None,
    labelled: bool | None = None,
    cursor: Cursor = None,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 100,
    accept: Annotated[str, Header()] = tables.JSON,
) -> Response:
    """Return the latest decision on each vertex, page by page: as JSON, CSV or Parquet."""
    found = _reads(request).decisions(
        slice_=slice_, class_=class_, flagged=flagged, labelled=labelled, cursor=cursor, limit=limit
    )
    headers = {"ETag": f'"{found["version"]}"'}
    if found["next"]:
        url = request.url.include_query_params(cursor=found["next"])
        headers["Link"] = f'<{url.path}?{url.query}>; rel="next"'
    if tables.PARQUET in accept:
        return Response(_parquet(found["decisions"]), 200, headers, tables.PARQUET)
    if tables.CSV in accept:
        return Response(_csv(found["decisions"]), 200, headers, f"{tables.CSV}; charset=utf-8")
    return Response(msgspec.json.encode(found), 200, headers, tables.JSON)


_COLUMNS = ("id", "time", "class", "score", "probability", "best", "model", "nearest", "neighbours", "version")


def _csv(rows: list[dict[str, Any]]) -> str:
    lists = ("nearest", "neighbours")
    cells = ([in_words(row[name]) if name in lists else row[name] for name in _COLUMNS] for row in rows)
    return csv_text(_COLUMNS, cells)


def _parquet(rows: list[dict[str, Any]]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    def listed(name: str, kind: pa.DataType) -> pa.DataType:
        return pa.list_(pa.struct([("class", pa.string()), (name, kind)]))

    kinds = {"nearest": listed("probability", pa.float64()), "neighbours": listed("count", pa.int64())}
    buffer = io.BytesIO()
    columns = {name: pa.array([row[name] for row in rows], kinds.get(name)) for name in _COLUMNS}
    pq.write_table(pa.table(columns), buffer)
    return buffer.getvalue()


@router.get("/review", response_model=schemas.FlaggedList)
def review(
    request: Request,
    _: Viewer,
    limit: Limit = 20,
    group: Annotated[int | None, Query(ge=1, lt=2**31)] = None,
    grouping: GroupingName = None,
    cursor: Cursor = None,
) -> Response:
    """Return the unlabelled vertices that were flagged as unseen, or those of a group, highest score first."""
    return _answer(_reads(request).review(group, grouping, cursor, limit))


@router.get("/groups", response_model=schemas.GroupPage)
def groups(
    request: Request,
    _: Viewer,
    cursor: Cursor = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    members: bool = False,
) -> Response:
    """Return groups of flagged vertices that are similar to each other, the largest first.

    Their numbers stay the same while labels arrive. A prediction, a rollback or a removal makes new groups: then
    ``grouping`` changes. ``members`` adds the ids of the members without a label.
    """
    return _answer(_reads(request).groups(cursor, limit, members=members))


@router.get("/groups/{number}", response_model=schemas.ReviewGroup)
def group(request: Request, _: Viewer, number: GroupNumber, grouping: GroupingName = None) -> Response:
    """Return one group."""
    return _answer(_reads(request).group(number, grouping))


@router.get("/groups/{number}/members", response_model=schemas.MemberPage)
def members(
    request: Request,
    _: Viewer,
    number: GroupNumber,
    grouping: GroupingName = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Response:
    """Return the members of a group, the most central first."""
    return _answer(_reads(request).members(number, grouping, cursor, limit))


@router.get("/groups/{number}/sample", response_model=schemas.Sample)
def sample(
    request: Request,
    _: Viewer,
    number: GroupNumber,
    grouping: GroupingName = None,
    size: Annotated[int, Query(ge=1, le=100)] = 10,
    seed: Annotated[int, Query(ge=0, lt=2**31)] = 0,
) -> Response:
    """Return members of a group without a label, drawn at random without replacement."""
    return _answer(_reads(request).sample(number, grouping, size, seed))


@router.get("/groups/{number}/split", response_model=schemas.Split)
def split(request: Request, _: Viewer, number: GroupNumber, grouping: GroupingName = None) -> Response:
    """Split a group into smaller ones; nothing is stored."""
    return _answer(_reads(request).split(number, grouping))


@router.get("/groups/{number}/graph", response_model=schemas.Drawing)
def group_graph(
    request: Request,
    _: Viewer,
    number: GroupNumber,
    grouping: GroupingName = None,
    limit: Annotated[int, Query(ge=2, le=300)] = 40,
) -> Response:
    """Return some members of a group and their neighbours, to be drawn."""
    return _answer(_reads(request).group_graph(number, grouping, limit))


@router.get("/graph/neighbourhood/{id:path}", response_model=schemas.Drawing)
def neighbourhood(
    request: Request,
    _: Viewer,
    id: VertexId,
    hops: Annotated[int, Query(ge=1, le=3)] = 1,
    limit: Annotated[int, Query(ge=1, le=500)] = 60,
) -> Response:
    """Return the vertices around one, to be drawn."""
    return _answer(_reads(request).neighbourhood(id, hops, limit))


@router.get("/vertices/{id:path}/explanation", response_model=schemas.Explanation)
async def explanation(request: Request, _: Viewer, id: VertexId) -> Response:
    """Explain the decision on a vertex with the current model; this takes seconds."""
    await run_in_threadpool(_reads(request).vertex, id)  # refuses an unknown one
    limiter: CapacityLimiter = request.app.state.explainers
    return _answer(await to_thread.run_sync(_jobs(request).explain, id, limiter=limiter))


@router.get("/vertices/{id:path}", response_model=schemas.Vertex)
def vertex(request: Request, _: Viewer, id: VertexId) -> Response:
    """Return a vertex with its text, label and decisions."""
    return _answer(_reads(request).vertex(id))


@router.get("/queue", response_model=schemas.Queue)
def queue(
    request: Request,
    _: Viewer,
    limit: Annotated[int, Query(ge=1, le=200)] = 20,
    seed: Annotated[int, Query(ge=0, lt=2**31)] = 0,
) -> Response:
    """Return vertices to label next: flagged, uncertain and randomly drawn accepted ones."""
    return _answer(_reads(request).queue(limit, seed))


@router.get("/suspects", response_model=schemas.SuspectPage)
def suspects(
    request: Request, _: Viewer, cursor: Cursor = None, limit: Annotated[int, Query(ge=1, le=200)] = 20
) -> Response:
    """Return labels that may be wrong (confident learning), the most suspicious first."""
    return _answer(_reads(request).suspects(cursor, limit))


@router.get("/scored-decisions", response_model=schemas.ScoredPage)
def scored_decisions(
    request: Request, _: Viewer, cursor: Cursor = None, limit: Annotated[int, Query(ge=1, le=10_000)] = 100
) -> Response:
    """Return the last decision on each vertex before its label arrived, with the label, page by page."""
    return _answer(_reads(request).scored_decisions(cursor, limit))


@router.get("/verification", response_model=schemas.Verified)
def verify(request: Request, _: Admin) -> Response:
    """Compare everything on disk with its checksums; this reads the whole folder."""
    return _answer({**Workspace(_served(request).folder).verify()})


# --- writing ---------------------------------------------------------------------------------------------------------


@router.post("/slices", response_model=schemas.Done, openapi_extra=_bodies(schemas.Slice, tables.MULTIPART))
async def add_slice(
    request: Request,
    user: Admin,
    given: Annotated[schemas.SliceColumns, Query()],
    key: Key = None,
    match: Match = None,
) -> Response:
    """Add a slice: JSON, or a multipart body with the files ``vertices`` and ``edges`` (CSV, TSV or Parquet).

    Names of columns are for files.
    """
    kind = tables.content_type(request, tables.JSON, tables.MULTIPART)
    most, served = request.app.state.options.max_rows, _served(request)
    order = await _order_of(request, user, key, match)
    if kind == tables.MULTIPART:
        parts = await tables.uploads(request, "vertices", "edges")

        def from_files(workspace: OrderedWorkspace) -> Outcome:
            with tables.saved(parts, most) as paths:
                vertices, edges, columns = paths.get("vertices"), paths.get("edges"), _columns(workspace, given)
                return workspace.add(vertices, edges, drop_dangling=given.drop_dangling, columns=columns)

        return await _write(request, order, from_files)
    body = await run_in_threadpool(_parsed, schemas.Slice, await request.body())
    names = tables.own_names(served.view().state.settings.columns)

    def from_rows(workspace: OrderedWorkspace) -> Outcome:
        vertices, edges = (tables.columns_of(rows, names, most) for rows in (body.vertices, body.edges))
        return workspace.add(vertices, edges, drop_dangling=body.drop_dangling or given.drop_dangling)

    return await _write(request, order, from_rows)


@router.post(
    "/labels",
    response_model=schemas.Done,
    openapi_extra=_bodies(schemas.Labels, tables.CSV, tables.TSV, tables.PARQUET),
)
async def add_labels(
    request: Request,
    user: Reviewer,
    given: Annotated[schemas.ColumnNames, Query()],
    key: Key = None,
    match: Match = None,
) -> Response:
    """Add labels, including late ones and corrections: JSON, CSV, TSV or Parquet; a new name is a new class.

    Names of columns are for files.
    """
    kind = tables.content_type(request, tables.JSON, tables.CSV, tables.TSV, tables.PARQUET)
    most, data = request.app.state.options.max_rows, await request.body()
    order = _order(request, user, key, match, data)
    if kind != tables.JSON:

        def from_file(workspace: OrderedWorkspace) -> Outcome:
            with tables.saved({"labels": (kind, data)}, most) as paths:
                return workspace.label(paths["labels"], columns=_columns(workspace, given))

        return await _write(request, order, from_file)
    body: schemas.Labels = await run_in_threadpool(_parsed, schemas.Labels, data)
    tables.check_rows(len(body.labels), most)
    ids, names = [row.id for row in body.labels], [row.label for row in body.labels]
    return await _write(request, order, lambda workspace: workspace.label({"id": ids, "label": names}))


@router.post("/predictions", response_model=schemas.JobState, status_code=202)
async def predict(
    request: Request, user: Reviewer, body: schemas.Prediction, key: Key = None, match: Match = None
) -> Response:
    """Decide vertices without a label, as a job."""
    order = await _order_of(request, user, key, match)
    return await _start(request, order, "predict", {"slice": body.slice})


@router.post("/updates", response_model=schemas.JobState, status_code=202)
async def update(
    request: Request, user: Reviewer, body: schemas.Update, key: Key = None, match: Match = None
) -> Response:
    """Train the model with the labels that have arrived, as a job."""
    order = await _order_of(request, user, key, match)
    return await _start(request, order, "update", {"restart": body.restart})


@router.post("/reports", response_model=schemas.JobState, status_code=202)
async def render_report(request: Request, user: Viewer, key: Key = None) -> Response:
    """Render the report, as a job; ``GET report`` returns it."""
    order = await _order_of(request, user, key, None)
    return await _start(request, order, "report", {})


@router.post("/classes", response_model=schemas.Done)
async def change_classes(
    request: Request, user: Reviewer, body: schemas.ClassChange, key: Key = None, match: Match = None
) -> Response:
    """Create, rename, merge or retire classes."""
    order, reads = await _order_of(request, user, key, match), _reads(request)

    def do(workspace: OrderedWorkspace) -> Outcome:
        if isinstance(body, schemas.RenameClass):
            return workspace.rename_class(body.name, body.to)
        if isinstance(body, schemas.MergeClasses):
            return workspace.merge_classes(body.names, body.into)
        if isinstance(body, schemas.RetireClass):
            return workspace.retire_class(body.name)
        numbers = dict.fromkeys([*body.groups, *([] if body.group is None else [body.group])])
        if not numbers:
            return workspace.create_class(body.name, body.ids)
        if body.ids:
            raise InputError("both ids and groups are given", fix="give only one of them")
        grouping = reads.grouping(body.grouping)

        def create(change: Change) -> Outcome:
            among = list(grouping.groups)
            for number in numbers:
                left = tuple(id_columns.at(change.graph.ids, row) for row in grouping.left(number, change.contents))
                among[number - 1] = replace(among[number - 1], members=left, size=len(left))
            return create_class(change, body.name, (), groups=numbers, among=among)

        return workspace.apply(create)

    return await _write(request, order, do)


@router.post("/answers", response_model=schemas.Done)
async def save_answers(
    request: Request, user: Reviewer, body: schemas.Answers, key: Key = None, match: Match = None
) -> Response:
    """Save the answers of a review as one version."""
    order, reads = await _order_of(request, user, key, match), _reads(request)
    if (before := await run_in_threadpool(reads.served.answered, order)) is not None:
        return _answer(before[1], before[0])
    grouping = await run_in_threadpool(reads.grouping, body.grouping)
    keys = [grouping.keys[grouping.at(number)] for number in dict.fromkeys(body.dismiss)]
    if not body.answers:
        dismiss, limiter = partial(_set_aside, user.name, keys), request.app.state.writers
        return _answer((await to_thread.run_sync(reads.served.record, order, dismiss, limiter=limiter))[1])

    def do(change: Change) -> Outcome:
        now = resolve(body, grouping, change.contents)
        if now.conflicts and body.conflicts == "refuse":
            raise ConflictError(now.conflicts)
        _dismiss(change.records, user.name, keys)
        return label(change, now.ids, now.labels)

    def save(workspace: OrderedWorkspace) -> Outcome:
        try:
            return workspace.apply(do)
        except NothingToDoError:
            with workspace.store.database.write() as records:
                _dismiss(records, user.name, keys)
            raise

    return await _write(request, order, save)


def _dismiss(records: Records, who: str, keys: list[str]) -> None:
    made = datetime.now(UTC).isoformat(timespec="seconds")
    for key in keys:
        records.delete("dismissals", "key = ?", key)
        records.insert("dismissals", [(key, who, made)])


def _set_aside(who: str, keys: list[str], records: Records) -> tuple[int, dict[str, Any]]:
    _dismiss(records, who, keys)
    return 200, {"version": read_state(records).version, "command": "", "what": "groups set aside", "parts": []}


@router.post("/answers/preview", response_model=schemas.Preview)
def preview_answers(request: Request, _: Reviewer, body: schemas.Answers) -> Response:
    """Return what answers would do, and what contradicts them; nothing is stored."""
    reads = _reads(request)
    state, contents = reads.served.snapshot()
    return _answer(
        resolve(body, reads.grouping(body.grouping), contents).preview(contents) | {"version": state.version}
    )


@router.post("/undo", response_model=schemas.Done)
async def undo(request: Request, user: Reviewer, body: schemas.Undo, key: Key = None) -> Response:
    """Take back the last version if it changed labels or classes, and nothing came after it."""
    order = await _order_of(request, user, key, f'"{body.version}"')

    def do(workspace: OrderedWorkspace) -> Outcome:
        last = workspace.log()[-1]
        if last.version == body.version and last.command not in _UNDONE:
            raise InputError(
                f"version {last.version} was made by {last.command}, which cannot be undone here",
                fix="ask an administrator to roll back",
            )
        return workspace.rollback(body.version - 1)

    return await _write(request, order, do)


@router.post("/rollback", response_model=schemas.Done)
async def rollback(
    request: Request, user: Admin, body: schemas.Rollback, key: Key = None, match: Match = None
) -> Response:
    """Restore an earlier version, or only its model. This makes a new version, so it can be undone."""
    order = await _order_of(request, user, key, match)
    return await _write(request, order, lambda one: one.rollback(body.version, model_only=body.model_only))


@router.post("/removals", response_model=schemas.Done)
async def remove(
    request: Request, user: Admin, body: schemas.Removal, key: Key = None, match: Match = None
) -> Response:
    """Remove vertices with their edges, or edges."""
    order = await _order_of(request, user, key, match)
    names = tables.own_names(_served(request).view().state.settings.columns)
    edges = tables.columns_of(body.edges, names, request.app.state.options.max_rows)
    return await _write(request, order, lambda one: one.remove(body.ids, edges))


@router.post("/tags", response_model=schemas.Done)
async def tag(request: Request, user: Admin, body: schemas.Tag, key: Key = None, match: Match = None) -> Response:
    """Give a version a name, or delete the name."""
    order = await _order_of(request, user, key, match)
    return await _write(request, order, lambda one: one.tag(body.name, body.version, delete=body.delete))


@router.patch("/settings", response_model=schemas.Done)
async def change_settings(
    request: Request, user: Admin, body: schemas.SettingsChange, key: Key = None, match: Match = None
) -> Response:
    """Change settings of the workspace."""
    order = await _order_of(request, user, key, match)
    given = body.model_dump(exclude_none=True)
    if (content := given.pop("settings_file", None)) is not None:
        given = workspace_settings(parse_settings(content), given)
    return await _write(request, order, lambda one: one.set(**given))


# --- jobs and the report ---------------------------------------------------------------------------------------------


@router.get("/jobs", response_model=schemas.JobList)
def jobs(request: Request, _: Viewer, limit: Annotated[int, Query(ge=1, le=1000)] = 20) -> Response:
    """Return the last jobs, newest first."""
    return _answer({"jobs": _jobs(request).list(limit)})


JobNumber = Annotated[int, PathParameter(ge=1, lt=2**62)]


@router.get("/jobs/{id}", response_model=schemas.JobState)
def job(request: Request, _: Viewer, id: JobNumber) -> Response:
    """Return a job."""
    return _answer(_jobs(request).get(id))


@router.delete("/jobs/{id}", response_model=schemas.JobState)
def cancel(request: Request, _: Reviewer, id: JobNumber) -> Response:
    """Cancel a job; what it has not saved by then is not saved."""
    return _answer(_jobs(request).cancel(id))


@router.get(
    "/jobs/{id}/events",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {}}}},
)
async def events(request: Request, _: Viewer, id: JobNumber) -> StreamingResponse:
    """Follow a job: server-sent events with the job as JSON, until it has ended."""
    found = _jobs(request)
    await run_in_threadpool(found.get, id)

    async def stream() -> AsyncIterator[bytes]:
        last, silent = b"", 0.0
        while not request.app.state.stopping and not await request.is_disconnected():
            shown = await run_in_threadpool(found.get, id)
            data = msgspec.json.encode(shown)
            if data != last or silent >= _PING:
                yield b"data: " + data + b"\n\n" if data != last else b": alive\n\n"
                last, silent = data, 0.0
            if shown["ended"] is not None:
                return
            await asyncio.sleep(_TICK)
            silent += _TICK

    return StreamingResponse(stream(), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


@router.get(
    "/report",
    response_class=FileResponse,
    responses={200: {"content": {"text/html": {"schema": {"type": "string"}}}}},
)
def report(request: Request, _: Viewer) -> Response:
    """Return the report that was rendered last."""
    path = _served(request).folder / REPORT
    if not path.is_file() or path.is_symlink():
        raise NotFoundError("no report has been rendered yet", fix="render it with POST /api/v1/reports")
    data = path.read_bytes()
    policy = re.search(rb'http-equiv="Content-Security-Policy" content="([^"]+)"', data)
    own = policy[1].decode().replace("&#39;", "'") if policy else "default-src 'none'"
    return Response(data, 200, {"Content-Security-Policy": f"sandbox allow-scripts; {own}"}, "text/html; charset=utf-8")
