"""A served workspace: the methods of `Workspace` over HTTP."""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import json
import re
import ssl
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from evergraph.errors import (
    BusyError,
    DamagedWorkspaceError,
    EvergraphError,
    InputError,
    NothingToDoError,
    StaleError,
    StorageError,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from evergraph.detect import Detector
    from evergraph.graph.columns import Columns
    from evergraph.inputs.encoders import Encoder
    from evergraph.inputs.encoding import OnEncoded
    from evergraph.learning.memory import MemoryPolicy
    from evergraph.learning.task import History
    from evergraph.learning.training import OnStep
    from evergraph.nn.base import Model
    from evergraph.workspace.change import Outcome
    from evergraph.workspace.review import FlaggedVertex, ReviewGroup
    from evergraph.workspace.scores import ClassRow, SliceScores, Status
    from evergraph.workspace.store import LogEntry, ModelRecord

__all__ = ["Client"]

_T = TypeVar("_T")
_Job = dict[str, Any]

_API = "/api/v1"
_JSON = "application/json"
_KINDS: dict[str, type[EvergraphError]] = {
    error.kind: error for error in (BusyError, DamagedWorkspaceError, EvergraphError, StaleError, StorageError)
}
_TYPES = {".csv": "text/csv", ".tsv": "text/tab-separated-values", ".parquet": "application/vnd.apache.parquet"}
_NOTHING = "nothing to do: "
_FIRST_WAIT, _LONGEST_WAIT = 0.2, 60.0  # seconds before a request is repeated
_LOOK, _LOOKS = 0.1, 100  # seconds between two looks for the client's own version, and their number
_PAGE = {"decisions": 10_000, "scored-decisions": 10_000, "versions": 1_000, "review": 1_000, "groups": 100}
_REASONS = 3  # of a vertex in `review`
_STEP = re.compile(r"training step (\d+) of \d+, loss (\S+)")


@dataclass(frozen=True)
class _Body:
    """The body of a request."""

    data: bytes
    kind: str

    @classmethod
    def of(cls, content: Any) -> _Body:
        return cls(json.dumps(content, default=_plain, ensure_ascii=False).encode("utf-8", "surrogatepass"), _JSON)


class Client:
    """A workspace that ``evergraph serve`` serves, with the methods of `Workspace`.

    Code that uses a `Workspace` also runs with a client, and gets the same results and errors. The differences:

    - The graph and the model stay where they are: `graph`, `learner`, `state` and `create` raise an error.
    - Groups keep their numbers while labels arrive, and members with a label are left out. If a new prediction changes
      the groups between `groups` and a method that names one, the method raises `StaleError`.
    - Models and detectors are given as text or as settings, features as columns, and no encoder can be given.
    - ``on_step`` is called about ten times per second, not for each step.

    A request that fails because of the connection, or because the service asks to wait, is repeated. Writes have a key
    by which the service knows a repeated one, so nothing is done twice. If you interrupt `predict` or `update`, the job
    is cancelled.

    Parameters
    ----------
    url
        Address of the service, as ``http://127.0.0.1:8765``.
    token
        A token of ``evergraph serve-token create``. None if the service runs with ``--no-auth``.
    timeout
        Seconds to wait for an answer, or for a part of it.
    retries
        How often a request is repeated.
    allow_http
        Whether to send a token over HTTP without TLS to another machine. By default this is an error, because others
        could read the token on the way.
    tls
        Settings for HTTPS, for example with a certificate of your own:
        ``ssl.create_default_context(cafile="cert.pem")``.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout: float = 60.0,
        retries: int = 5,
        allow_http: bool = False,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._connect, self._base = _connection(url, timeout, tls, plain=allow_http or token is None)
        self.url, self.retries = url, retries
        self.made: int | None = None
        """The version that the last command made; None if it changed nothing."""
        self._headers = {"Accept": _JSON} | ({} if token is None else {"Authorization": f"Bearer {_checked(token)}"})
        self._version = self._predicted = 0  # the newest ones that this client knows of
        self._grouping: str | None = None

    # --- what there is -----------------------------------------------------------------------------------------------

    @property
    def state(self) -> NoReturn:
        """Not available over HTTP; use `status`, `settings`, `models` and `classes`."""
        _refuse("the state", "use status(), settings(), models() or classes()")

    @property
    def graph(self) -> NoReturn:
        """Not available over HTTP; open the folder of the workspace with `Workspace`."""
        _refuse("the graph", "open the folder with Workspace on the machine of the service")

    def learner(self) -> NoReturn:
        """Raise an error: the model is not sent over HTTP; open the folder of the workspace with `Workspace`."""
        _refuse("the model", "open the folder with Workspace on the machine of the service, or use describe_model()")

    @classmethod
    def create(cls, *_: Any, **__: Any) -> NoReturn:
        """Raise an error: create a workspace with `Workspace.create`, and serve it."""
        _refuse("a new workspace", "create it with Workspace.create or evergraph ws init, and serve it")

    def describe_model(self) -> dict[str, Any]:
        """Return model, detector and settings of the current learner as they are stored."""
        found: dict[str, Any] = self._get("settings")["learner"]
        return found

    def status(self) -> Status:
        """Return the size of the graph, the current model, what is waiting, and what to do next."""
        from evergraph.workspace.scores import Status

        return _made(Status, self._get("status"))

    def log(self) -> tuple[LogEntry, ...]:
        """Return all commands that changed the workspace, oldest first."""
        from evergraph.workspace.store import LogEntry

        rows = self._all("versions", "versions", cursor="before")
        return tuple(_made(LogEntry, row) for row in reversed(rows))

    def settings(self) -> dict[str, Any]:
        """Return the settings that `set` can change, by name; models and detectors as in `describe_model`."""
        found: dict[str, Any] = self._get("settings")["settings"]
        return found

    def tags(self) -> dict[str, int]:
        """Return the tagged versions: their numbers by tag."""
        found: dict[str, int] = self._get("tags")["tags"]
        return found

    def models(self) -> list[ModelRecord]:
        """Return the records of all models, oldest first."""
        from evergraph.workspace.store import ModelRecord

        return [_made(ModelRecord, row) for row in self._get("models")["models"]]

    def decisions(self, times: Iterable[int] | None = None) -> dict[str, dict[str, Any]]:
        """Return the latest decision on each vertex by id, of some periods or of all."""
        wanted = None if times is None else set(times)
        rows = sorted(self._all("decisions", "decisions"), key=lambda row: row["version"])
        return {str(row["id"]): _decision(row) for row in rows if wanted is None or row["period"] in wanted}

    def scored_decisions(self) -> dict[int, dict[str, dict[str, Any]]]:
        """Return the last decision on each vertex before its label arrived, with the label, by period and id."""
        found: dict[int, dict[str, dict[str, Any]]] = {}
        for row in self._all("scored-decisions", "decisions"):
            found.setdefault(row["period"], {})[str(row["id"])] = _decision(row)
        return found

    def scores(self) -> list[SliceScores]:
        """Return the scores of the decisions on each slice, for the labels that have arrived."""
        from evergraph.workspace.scores import SliceScores

        return [_made(SliceScores, row) for row in self._get("scores")["scores"]]

    def last_scores(self) -> SliceScores | None:
        """Return the scores of the newest slice with labels; None if there is none."""
        return next((row for row in reversed(self.scores()) if row.labelled), None)

    def classes(self) -> list[ClassRow]:
        """Return all classes in the order in which they became known."""
        from evergraph.workspace.scores import ClassRow

        return [_made(ClassRow, row) for row in self._get("classes")["classes"]]

    def review(self, most: int | None = 20, *, group: int | None = None, why: bool = False) -> list[FlaggedVertex]:
        """Return the unlabelled vertices that were flagged as unseen, highest score first.

        Parameters
        ----------
        most
            Maximum number of vertices; None for all.
        group
            Number of a group, to return only its vertices; see `groups`.
        why
            Also return the inputs that contribute most to the most likely class. It takes one request for each vertex.
        """
        from evergraph.workspace.review import FlaggedVertex

        query: dict[str, Any] = {} if group is None else {"group": group, "grouping": self._grouping}
        rows = self._all("review", "vertices", most, **query)
        model = self.status().model if why else None
        for row in rows:
            row["neighbours"] = tuple((one["class"], one["count"]) for one in row["neighbours"])
            row["because"] = self._reasons(row["id"]) if row["model"] == model else None
        return [_made(FlaggedVertex, row) for row in rows]

    def _reasons(self, id: str | int) -> tuple[Any, ...]:
        from evergraph.learning.attribution import Attribution

        found = self._get(f"vertices/{quote(str(id), safe='')}/explanation")["because"][:_REASONS]
        return tuple(_made(Attribution, one) for one in found)

    def groups(self) -> list[ReviewGroup]:
        """Return groups of flagged vertices that are similar to each other, the largest first.

        They have the numbers that the review page shows, also after some of their vertices got labels. Texts are
        shortened to 300 letters.
        """
        from evergraph.workspace.review import ReviewGroup

        found, self._grouping = [], None
        for row in self._all("groups", "groups", members="true"):
            self._grouping = row["grouping"]
            if row["members"]:
                texts = tuple(one["text"] for one in row["exemplars"])
                row |= {
                    "size": len(row["members"]),
                    "exemplars": tuple((one["id"], tuple(one["words"])) for one in row["exemplars"]),
                    "nearest": tuple((one["class"], one["count"]) for one in row["nearest"]),
                    "texts": texts if any(texts) else (),
                }
                found.append(_made(ReviewGroup, row))
        return found

    def verify(self) -> dict[str, int]:
        """Compare everything on disk with its checksums; return the number of rows, objects and bytes."""
        return self._get("verification")

    # --- commands ----------------------------------------------------------------------------------------------------

    def add(
        self,
        vertices: Any = None,
        edges: Any = None,
        *,
        features: Any = None,
        drop_dangling: bool = False,
        columns: Columns | None = None,
        encoder: str | Path | Encoder | None = None,
        on_encoded: OnEncoded | None = None,  # noqa: ARG002  # texts are encoded where the service runs
    ) -> Outcome:
        """Add a slice, unlabelled or partly labelled.

        Parameters
        ----------
        vertices, edges
            Files, which are uploaded; or columns as for `EvolvingGraph.append`. No vertex may be older than the newest
            slice.
        features
            Must be None: give features as columns.
        drop_dangling
            Drop edges to unknown ids; by default they are an error.
        columns
            Names of the columns in the files, if they differ from those of the workspace.
        encoder
            Must be None: the service encodes texts with the encoder of the graph.
        on_encoded
            Not called.
        """
        if features is not None:
            _refuse("a matrix of features", "give the features as columns of the vertices")
        if encoder is not None:
            _refuse("an encoder", "run evergraph ws add on the machine of the service")
        if vertices is None and edges is None:
            raise InputError("there is nothing to add", fix="give vertices, edges or both")
        given = {name: part for name, part in (("vertices", vertices), ("edges", edges)) if part is not None}
        query = {"drop_dangling": str(drop_dangling).lower()} | _names(columns)
        if not any(isinstance(part, (str, Path)) for part in given.values()):
            return self._write("slices", _Body.of({name: _rows(name, part) for name, part in given.items()}), query)
        for name, part in given.items():
            if not isinstance(part, (str, Path)):
                raise InputError(f"the {name} are not a file, and the others are", fix="give two files, or two tables")
        return self._write("slices", _multipart(given), query, given)

    def remove(
        self,
        vertices: Iterable[str | int] | str | Path = (),
        edges: Any = None,
        *,
        columns: Columns | None = None,
    ) -> Outcome:
        """Remove vertices (with their edges) or edges from the graph; decisions on them are kept.

        Parameters
        ----------
        vertices
            Ids, or a file with a column of ids.
        edges
            A file, or columns as for `EvolvingGraph.remove`.
        columns
            See `add`.
        """
        body: dict[str, Any] = {"ids": self._ids(vertices, columns)}
        if edges is not None:
            if isinstance(edges, (str, Path)):
                from dataclasses import replace

                from evergraph.datasets.tables import read_edges
                from evergraph.graph.times import TimeAxis

                named = replace(columns or self._columns(), edge_time="")  # the time of an edge does not matter
                read = read_edges(edges, named, TimeAxis("integer", 1))
                edges = {"source": read.source, "target": read.target}
            body["edges"] = _rows("edges", edges)
        return self._write("removals", _Body.of(body), files={"edges": edges})

    def predict(self, time: int | str | None = None) -> pa.Table:
        """Decide vertices without a label, and store the decisions; they are scored when labels arrive.

        Parameters
        ----------
        time
            Period of the vertices. By default all periods with undecided vertices; if there are none, the newest
            period with unlabelled vertices.

        Returns
        -------
        A table as that of `Workspace.predict`.
        """
        done = self._job("predictions", {"slice": time})
        if self.made is not None:
            self._predicted = self.made
        rows = [
            row
            for period in done["slices"]
            for row in self._all("decisions", "decisions", slice=str(period), labelled="false")
        ]
        return _table(rows)

    def label(
        self,
        ids: Any,
        labels: Iterable[str] | None = None,
        *,
        columns: Columns | None = None,
    ) -> Outcome:
        """Add labels, including late ones and corrections, and score earlier decisions; a new name is a new class.

        Parameters
        ----------
        ids
            Ids of vertices. Without ``labels``: a file, which is uploaded, or a table or Series as for
            `Workspace.label`.
        labels
            Class names, one per id. Two pandas Series must have the same index.
        columns
            See `add`.
        """
        if isinstance(ids, (str, Path)) and labels is None:
            _, data, kind = _file(ids)
            return self._write("labels", _Body(data, kind), _names(columns), {"labels": ids})
        from evergraph.workspace.labels import read_labels

        read, names, _, _ = read_labels(ids, labels, columns or self._columns())
        pairs = zip(read.to_pylist(), [] if names is None else names.to_pylist(), strict=False)
        return self._write("labels", _Body.of({"labels": [{"id": id, "label": name} for id, name in pairs]}))

    def update(self, restart: Literal["auto", "warm", "cold"] = "auto", *, on_step: OnStep | None = None) -> Outcome:
        """Train the model on its history with the labels that have arrived.

        Parameters
        ----------
        restart
            See `Workspace.update`.
        on_step
            Called with the number of the last training step and its loss, about ten times per second.
        """
        last = None

        def report(job: _Job) -> None:
            nonlocal last
            found = _STEP.fullmatch(job["message"])
            if found and on_step is not None and found[1] != last:
                last = found[1]
                on_step(int(found[1]), float(found[2]))

        return _outcome(self._job("updates", {"restart": restart}, report))

    def create_class(
        self,
        name: str,
        ids: Iterable[str | int] | str | Path = (),
        *,
        groups: Iterable[int] = (),
        columns: Columns | None = None,
    ) -> Outcome:
        """Create a class and label vertices with it, or bring a retired class back.

        Parameters
        ----------
        name
            Name of the class.
        ids
            Ids of the vertices, or a file with a column of ids.
        groups
            Instead of ids: numbers of groups; see `groups`.
        columns
            See `add`.
        """
        body: dict[str, Any] = {"action": "create", "name": name, "ids": self._ids(ids, columns)}
        if numbers := list(groups):
            body |= {"groups": numbers, "grouping": self._grouping}
        return self._write("classes", _Body.of(body))

    def rename_class(self, old: str, new: str) -> Outcome:
        """Rename a class, also in the model and in earlier decisions."""
        return self._write("classes", _Body.of({"action": "rename", "name": old, "to": new}))

    def merge_classes(self, names: Sequence[str], into: str) -> Outcome:
        """Merge classes into one; predictions use its name immediately, the next update trains it as one class."""
        return self._write("classes", _Body.of({"action": "merge", "names": list(names), "into": into}))

    def retire_class(self, name: str) -> Outcome:
        """Retire a class: it is not predicted and not trained on any more; its labels are kept."""
        return self._write("classes", _Body.of({"action": "retire", "name": name}))

    def set(
        self,
        *,
        history: History | None = None,
        model: Model | str | Mapping[str, Any] | None = None,
        detector: Detector | str | Mapping[str, Any] | None = None,
        steps: int | None = None,
        lr: float | None = None,
        inputs: str | Sequence[str] | None = None,
        memory: MemoryPolicy | str | None = None,
        keep: int | None = None,
    ) -> Outcome:
        """Change settings of the workspace; None leaves a setting as it is.

        Parameters
        ----------
        history, steps, lr, inputs, keep
            See `Workspace.set`.
        model, detector
            A text as on the command line (``"sage:hidden=64"``), or only the settings to change
            (``{"threshold": 0.5}``); objects cannot be sent.
        memory
            A text as on the command line (``"class-mean:2000"``), or ``"none"``.
        """
        for kind, part in (("model", model), ("detector", detector)):
            if part is not None and not isinstance(part, (str, Mapping)):
                _refuse(f"the {kind} as an object", "give it as a text, as in 'sage:hidden=64', or give its settings")
        if memory is not None and not isinstance(memory, str):
            _refuse("the memory as an object", "give it as a text, as in 'class-mean:2000'")
        given = {"history": history, "model": model, "detector": detector, "steps": steps, "lr": lr, "inputs": inputs}
        body = {name: value for name, value in (given | {"memory": memory, "keep": keep}).items() if value is not None}
        return self._write("settings", _Body.of(body), method="PATCH")

    def tag(self, name: str, version: int | str | None = None, *, delete: bool = False) -> Outcome:
        """Give a version a name; it is then kept, whatever ``keep`` is, until the name is deleted.

        Parameters
        ----------
        name
            Up to 64 letters without accents, digits, dots, hyphens and underscores; the first is a letter.
        version
            A version that is kept, by number or tag; by default the current one.
        delete
            Delete the tag instead.
        """
        return self._write("tags", _Body.of({"name": name, "version": version, "delete": delete}))

    def rollback(self, version: int | str, *, model_only: bool = False) -> Outcome:
        """Restore graph, labels, settings and model of an earlier version, or only its model with its detector.

        Parameters
        ----------
        version
            Number or tag of a version that is kept; see `log`.
        model_only
            Restore only the model.
        """
        return self._write("rollback", _Body.of({"version": version, "model_only": model_only}))

    # --- reading -----------------------------------------------------------------------------------------------------

    def _get(self, path: str, **query: Any) -> dict[str, Any]:
        """Read; wait for the versions that this client has made, because the service may show the one before."""
        for _ in range(_LOOKS):
            found: dict[str, Any] = self._send("GET", path, query=query)
            behind = found.get("version", self._version) < self._version
            if not behind and found.get("predicted", self._predicted) >= self._predicted:
                break
            time.sleep(_LOOK)
        return found

    def _all(
        self, path: str, name: str, most: int | None = None, *, cursor: str = "cursor", **query: Any
    ) -> list[dict[str, Any]]:
        """Read all pages of a list, or the first ``most`` rows; begin again if the workspace changes meanwhile."""
        query = {name: value for name, value in query.items() if value is not None}
        for _ in range(_LOOKS):
            rows: list[dict[str, Any]] = []
            after, versions = None, set[int]()
            while after is not None or not versions:
                limit = _PAGE[path] if most is None else max(1, min(_PAGE[path], most - len(rows)))
                page = self._get(path, limit=limit, **query, **({} if after is None else {cursor: after}))
                versions.add(page["version"])
                rows += page[name]
                after = None if most is not None and len(rows) >= most else page["next"]
            if len(versions) == 1:
                break
        return rows[:most]

    def _columns(self) -> Columns:
        from evergraph.graph.columns import Columns

        return _made(Columns, self._get("settings")["columns"])

    def _ids(self, given: Iterable[str | int] | str | Path, columns: Columns | None) -> list[str | int]:
        """Return ids as a list, also those in a file."""
        if isinstance(given, (str, Path)):
            from evergraph.datasets.tables import read_ids

            found: list[str | int] = read_ids(given, (columns or self._columns()).id)[0].to_pylist()
            return found
        return [id if isinstance(id, str) else int(id) for id in given]

    # --- writing -----------------------------------------------------------------------------------------------------

    def _write(
        self,
        path: str,
        body: _Body,
        query: Mapping[str, Any] | None = None,
        files: Mapping[str, Any] | None = None,
        method: str = "POST",
    ) -> Outcome:
        self.made = None
        answer = self._send(method, path, body, query or {}, files or {})
        _raise_if_nothing(answer)
        self.made = self._version = answer["version"]
        if answer["command"] == "remove":
            self._predicted = self._version
        return _outcome(answer)

    def _job(self, path: str, body: dict[str, Any], on_job: Callable[[_Job], None] = lambda _: None) -> dict[str, Any]:
        """Start a job, wait for its end, and return its result."""
        self.made = None
        job = self._send("POST", path, _Body.of(body))
        try:
            while job["ended"] is None:
                for seen in self._events(job["id"]):
                    job = seen
                    on_job(job)
                if job["ended"] is None:  # the stream was cut off
                    time.sleep(_FIRST_WAIT)
                    job = self._send("GET", f"jobs/{job['id']}")
        except BaseException:
            with contextlib.suppress(EvergraphError):
                self._send("DELETE", f"jobs/{job['id']}")
            raise
        if job["state"] == "failed":
            raise _error(job["error"])
        if job["state"] != "done":
            raise EvergraphError(f"the job was {job['state']}", fix="start it again")
        result: dict[str, Any] = job["result"]
        _raise_if_nothing(result)
        self._version = max(self._version, result["version"])
        self.made = result["version"] if "command" in result else None
        return result

    def _events(self, number: int) -> Iterator[_Job]:
        """Yield the states of a job until it has ended or the connection is cut off."""
        try:
            with contextlib.closing(self._connect()) as connection:
                connection.request("GET", f"{self._base}/jobs/{number}/events", headers=self._headers)
                response = connection.getresponse()
                if response.status != http.HTTPStatus.OK:
                    return
                for line in response:
                    if line.startswith(b"data:"):
                        yield json.loads(line[5:])
        except (OSError, http.client.HTTPException, ValueError):
            return

    # --- HTTP --------------------------------------------------------------------------------------------------------

    def _send(
        self,
        method: str,
        path: str,
        body: _Body | None = None,
        query: Mapping[str, Any] | None = None,
        files: Mapping[str, Any] | None = None,
    ) -> Any:
        """Send a request, several times if need be, and return the JSON of its answer."""
        target = f"{self._base}/{path}" + (f"?{urlencode(query, doseq=True)}" if query else "")
        headers = dict(self._headers)
        if body is not None:
            headers |= {"Content-Type": body.kind, "Idempotency-Key": str(uuid.uuid4())}
        for attempt in range(self.retries + 1):
            wait = min(_FIRST_WAIT * 2**attempt, _LONGEST_WAIT)
            try:
                with contextlib.closing(self._connect()) as connection:
                    connection.request(method, target, None if body is None else body.data, headers)
                    response = connection.getresponse()
                    data = response.read()
            except (OSError, http.client.HTTPException) as error:
                if attempt == self.retries or isinstance(error, ssl.SSLCertVerificationError):
                    raise self._unreachable(error) from error
            else:
                after = response.headers.get("Retry-After", "")
                if attempt == self.retries or response.status not in (429, 503) or not after.isdigit():
                    return self._content(response, data, files or {})
                wait = min(float(after), _LONGEST_WAIT)
            time.sleep(wait)
        raise AssertionError  # the last attempt returns or raises

    def _content(self, response: http.client.HTTPResponse, data: bytes, files: Mapping[str, Any]) -> Any:
        try:
            found = json.loads(data)
        except ValueError:
            found = None
        if response.status < 300 and found is not None:
            return found
        if not isinstance(found, dict) or "detail" not in found:
            problem = f"{self.url} answered {response.status} {response.reason}, and not as a service of Evergraph"
            raise EvergraphError(problem, fix="check the address")
        raise _error(found, files)

    def _unreachable(self, error: Exception) -> EvergraphError:
        fix = "check the address, and whether evergraph serve is running"
        if isinstance(error, ssl.SSLCertVerificationError):
            fix = "check the address, or give the certificate of the service with tls"
        return EvergraphError(f"the service {self.url} cannot be reached ({error or type(error).__name__})", fix=fix)


# --- addresses -------------------------------------------------------------------------------------------------------


def _connection(
    url: str, timeout: float, tls: ssl.SSLContext | None, *, plain: bool
) -> tuple[Callable[[], http.client.HTTPConnection], str]:
    """Return how to connect to a service, and the path of its API."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or parts.scheme not in ("http", "https") or parts.query or parts.fragment or parts.username:
        raise InputError(f"{url!r} is not the address of a service", fix="give one as in http://127.0.0.1:8765")
    base = parts.path.rstrip("/") + _API
    if parts.scheme == "https":
        context = tls or ssl.create_default_context()
        return lambda: http.client.HTTPSConnection(host, port, timeout=timeout, context=context), base
    if not plain and not _is_here(host):
        raise InputError(
            f"{url} has no TLS, so others could read the token on the way",
            fix="use https://, or allow_http=True in a network that you trust",
        )
    return lambda: http.client.HTTPConnection(host, port, timeout=timeout), base


def _is_here(host: str) -> bool:
    """Whether a host is this machine."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _checked(token: str) -> str:
    if not re.fullmatch("[!-~]+", token):
        raise InputError("the token has other characters than letters, digits and signs", fix="copy it again")
    return token


# --- tables and files ------------------------------------------------------------------------------------------------


def _rows(name: str, given: Any) -> list[dict[str, Any]]:
    """Return the rows of a table in memory."""
    from evergraph.errors import Origin
    from evergraph.graph.columns import as_table

    if name == "edges" and not hasattr(given, "columns") and not isinstance(given, Mapping):
        pairs = [list(pair) for pair in given]
        if any(len(pair) != 2 for pair in pairs):
            raise InputError("edges are not pairs", fix="give an array of pairs, or columns source and target")
        given = {"source": [pair[0] for pair in pairs], "target": [pair[1] for pair in pairs]}
    rows: list[dict[str, Any]] = as_table(given, Origin(name)).to_pylist()
    return rows


def _plain(value: Any) -> Any:
    """Return a value that JSON has no type for as one that it has."""
    if isinstance(value, date):  # also a datetime
        return value.isoformat()
    if isinstance(value, Decimal):
        return float(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    raise InputError(f"a value of the type {type(value).__name__} cannot be sent", fix="give texts, numbers or dates")


def _file(path: str | Path) -> tuple[str, bytes, str]:
    """Return the ending of a file's name, its content, and its type; compressed files are unpacked."""
    from evergraph.datasets.files import open_bytes, open_table, reading

    path = Path(path)
    suffix = ".parquet" if open_table(path).is_parquet else path.name.lower().removesuffix(".gz")[-4:]
    with reading(path), open_bytes(path) as file:
        return suffix, file.read(), _TYPES[suffix]


def _multipart(files: Mapping[str, str | Path]) -> _Body:
    boundary = uuid.uuid4().hex
    parts = []
    for name, path in files.items():
        suffix, data, kind = _file(path)
        head = f'Content-Disposition: form-data; name="{name}"; filename="{name}{suffix}"\r\nContent-Type: {kind}'
        parts.append(f"--{boundary}\r\n{head}\r\n\r\n".encode() + data + b"\r\n")
    return _Body(b"".join(parts) + f"--{boundary}--\r\n".encode(), f"multipart/form-data; boundary={boundary}")


def _names(columns: Columns | None) -> dict[str, Any]:
    """Return names of columns for the query of a request."""
    if columns is None:
        return {}
    return {name: value for name, value in asdict(columns).items() if value is not None and value != ()}


def _table(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Return decisions as the table that `Workspace.predict` returns."""
    import pyarrow as pa

    def listed(name: str, kind: pa.DataType) -> pa.DataType:
        return pa.list_(pa.struct([("class", pa.string()), (name, kind)]))

    def kind_of(name: str, text: pa.DataType) -> pa.DataType:
        return pa.int64() if rows and isinstance(rows[0][name], int) else text

    kinds = {
        "id": kind_of("id", pa.large_string()),
        "time": kind_of("time", pa.string()),
        "class": pa.string(),
        "score": pa.float64(),
        "probability": pa.float64(),
        "best": pa.string(),
        "model": pa.int64(),
        "nearest": listed("probability", pa.float64()),
        "neighbours": listed("count", pa.int64()),
    }
    return pa.table({name: pa.array([row[name] for row in rows], kind) for name, kind in kinds.items()})


# --- answers ---------------------------------------------------------------------------------------------------------


def _made(kind: type[_T], row: Mapping[str, Any]) -> _T:
    """Return a dataclass from those values of a JSON object that it has; its lists are tuples."""
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    return kind(**{name: _frozen(row[name]) for name in names if name in row})


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _decision(row: dict[str, Any]) -> dict[str, Any]:
    return row | {"id": str(row["id"])}


def _outcome(answer: Mapping[str, Any]) -> Outcome:
    from evergraph.workspace.change import Outcome

    own = ("version", "command", "what", "parts")
    facts = {name: value for name, value in answer.items() if name not in own and (name != "warnings" or value)}
    return Outcome(answer["version"], tuple(answer["parts"]), facts, answer["command"])


def _raise_if_nothing(answer: Mapping[str, Any]) -> None:
    if answer["what"].startswith(_NOTHING):
        raise NothingToDoError(answer["what"].removeprefix(_NOTHING))


def _error(problem: Mapping[str, Any], files: Mapping[str, Any] | None = None) -> EvergraphError:
    """Return the error that a problem document describes; an uploaded file has its name of this machine."""
    kind = _KINDS.get(problem.get("kind", ""), InputError)
    if "kind" not in problem and problem["status"] >= 500:
        kind = BusyError if problem["status"] == 503 else EvergraphError
    elif problem["status"] == 429:
        kind = BusyError
    place = {name: problem.get(name) for name in ("fix", "file", "column", "row", "line")}
    sent = (files or {}).get(str(place["file"]).partition(".")[0])
    if isinstance(sent, (str, Path)):
        place["file"] = sent
    return kind(problem.get("problem") or problem["detail"].rstrip("."), **place)


def _refuse(what: str, fix: str) -> NoReturn:
    raise InputError(f"{what} cannot be sent over HTTP", fix=fix)
