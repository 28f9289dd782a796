"""`Client` on a served workspace does what `Workspace` does on a copy of the folder."""

from __future__ import annotations

import gzip
import http.server
import inspect
import json
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the service needs the extra serve")

import pyarrow as pa
import pyarrow.parquet as pq
import torch

from evergraph import Client, Workspace
from evergraph.datasets.tables import to_tables
from evergraph.detect import DOC
from evergraph.errors import BusyError, EvergraphError, InputError, StaleError
from evergraph.graph.columns import Columns
from evergraph.learning.memory import Random
from tests.service.serving import FIRST, GRAPH, Serving, make_workspace, serving

Call = Callable[[Any], Any]

SLICE = [int(id) for id in GRAPH.ids[GRAPH.times == FIRST]]
TRUTH = GRAPH.window(FIRST, FIRST).labels.tolist()
CHANGING = ("seconds", "when", "who")  # values that differ between two runs of the same commands


def columns_of(first: int, last: int, **more: Any) -> tuple[Any, Any]:
    return to_tables(GRAPH, first, last, labels=False, **more)


def files_of(time: int) -> tuple[Path, Path]:
    """Vertices of a slice as CSV, edges as Parquet."""
    folder = FILES[0]
    vertices, edges = columns_of(time, time)
    rows = pa.table(vertices).to_pylist()
    names = list(rows[0])
    lines = [",".join(names), *(",".join(str(row[name]) for name in names) for row in rows)]
    (folder / f"{time}.csv").write_text("\n".join(lines) + "\n")
    pq.write_table(pa.table(edges), folder / f"{time}-edges.parquet")
    return folder / f"{time}.csv", folder / f"{time}-edges.parquet"


def table_file(name: str, *lines: str) -> Path:
    path = FILES[0] / name
    text = "\n".join(lines) + "\n"
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


FILES: list[Path] = []


def steps_of_training(one: Any) -> Any:
    steps: list[int] = []
    outcome = one.update("warm", on_step=lambda step, _: steps.append(step))
    assert steps == sorted(steps)
    return outcome


def tagged(one: Any) -> Any:
    return one.tag("start"), one.tags(), one.log()[-1].tags


# Read before anything changes; then a life of the workspace, in this order.
SCRIPT: dict[str, Call] = {
    "status": lambda one: one.status(),
    "log": lambda one: one.log(),
    "settings": lambda one: one.settings(),
    "describe_model": lambda one: one.describe_model(),
    "models": lambda one: one.models(),
    "decisions": lambda one: one.decisions(),
    "decisions of a period": lambda one: one.decisions([FIRST]),
    "decisions of no period": lambda one: one.decisions([99]),
    "scored_decisions of none": lambda one: one.scored_decisions(),
    "scores without labels": lambda one: one.scores(),
    "last_scores without labels": lambda one: one.last_scores(),
    "classes": lambda one: one.classes(),
    "review": lambda one: one.review(),
    "review all": lambda one: one.review(None),
    "review some": lambda one: one.review(3),
    "review why": lambda one: one.review(2, why=True),
    "groups": lambda one: one.groups(),
    "review a group": lambda one: one.review(None, group=1),
    "review no group": lambda one: one.review(group=999),
    "tag": tagged,
    "tag again": lambda one: one.tag("start"),
    "tag with a bad name": lambda one: one.tag("no name"),
    "delete no tag": lambda one: one.tag("nothing", delete=True),
    "tag of no version": lambda one: one.tag("other", 99),
    "label": lambda one: one.label(SLICE[:20], TRUTH[:20]),
    "label again": lambda one: one.label(SLICE[:20], TRUTH[:20]),
    "label a mapping": lambda one: one.label({"id": SLICE[20:24], "label": TRUTH[20:24]}),
    "label an Arrow table": lambda one: one.label(pa.table({"id": SLICE[24:28], "label": TRUTH[24:28]})),
    "label with numbers": lambda one: one.label(SLICE[:2], [7, 8]),
    "label back": lambda one: one.label(SLICE[:2], TRUTH[:2]),
    "label an unknown vertex": lambda one: one.label([SLICE[0], -5], ["x", "y"]),
    "label twice": lambda one: one.label([SLICE[0], SLICE[0]], ["x", "y"]),
    "label without labels": lambda one: one.label(SLICE),
    "label none": lambda one: one.label([SLICE[0]], [None]),
    "label a file": lambda one: one.label(table_file("some.csv", "id,label", f"{SLICE[30]},{TRUTH[30]}")),
    "label a TSV file": lambda one: one.label(table_file("some.tsv", "id\tlabel", f"{SLICE[31]}\t{TRUTH[31]}")),
    "label a packed file": lambda one: one.label(table_file("some.csv.gz", "id,label", f"{SLICE[32]},{TRUTH[32]}")),
    "label a file by columns": lambda one: one.label(
        table_file("named.csv", "paper,venue", f"{SLICE[33]},{TRUTH[33]}"), columns=Columns(id="paper", label="venue")
    ),
    "label a file without the column": lambda one: one.label(table_file("bad.csv", "id,other", "1,x")),
    "label a file of an unknown vertex": lambda one: one.label(
        table_file("who.csv", "id,label", f"{SLICE[0]},a", "-7,a")
    ),
    "label no file": lambda one: one.label(FILES[0] / "nothing.csv"),
    "scores": lambda one: one.scores(),
    "last_scores": lambda one: one.last_scores(),
    "scored_decisions": lambda one: one.scored_decisions(),
    "status with labels": lambda one: one.status(),
    "create_class": lambda one: one.create_class("new", SLICE[40:44]),
    "create_class again": lambda one: one.create_class("new", SLICE[44:45]),
    "create_class without vertices": lambda one: one.create_class("empty"),
    "create_class of a file": lambda one: one.create_class("filed", table_file("ids.csv", "id", str(SLICE[45]))),
    "create_class with a bad name": lambda one: one.create_class("unseen", SLICE[:1]),
    "create_class that resembles": lambda one: one.create_class("New", SLICE[46:47]),
    "rename_class": lambda one: one.rename_class("new", "newer"),
    "rename_class to itself": lambda one: one.rename_class("newer", "newer"),
    "rename no class": lambda one: one.rename_class("nothing", "something"),
    "merge_classes": lambda one: one.merge_classes(["filed", "New"], "newer"),
    "retire_class": lambda one: one.retire_class("newer"),
    "retire_class again": lambda one: one.retire_class("newer"),
    "label with a retired class": lambda one: one.label(SLICE[50:51], ["newer"]),
    "create_class that comes back": lambda one: one.create_class("newer"),
    "classes later": lambda one: one.classes(),
    "set": lambda one: one.set(steps=10, detector={"threshold": 0.7}, keep=30),
    "set again": lambda one: one.set(steps=10),
    "set a wrong value": lambda one: one.set(keep=1),
    "set a wrong model": lambda one: one.set(model="nothing"),
    "settings later": lambda one: one.settings(),
    "update": steps_of_training,
    "update again": lambda one: one.update("warm"),
    "models later": lambda one: one.models(),
    "add": lambda one: one.add(*columns_of(FIRST + 1, FIRST + 1)),
    "add again": lambda one: one.add(*columns_of(FIRST + 1, FIRST + 1)),
    "add nothing": lambda one: one.add(),
    "add what is older": lambda one: one.add({"id": [9000], "time": [0], "text": ["w"]}),
    "add an edge to no vertex": lambda one: one.add(None, [[SLICE[0], 12345]]),
    "add without a time": lambda one: one.add({"id": [9001], "text": ["w"]}),
    "add, and drop an edge": lambda one: one.add(
        {"id": [9002], "time": [FIRST + 1], "text": ["w0001"]}, [[9002, 12345], [9002, SLICE[0]]], drop_dangling=True
    ),
    "predict": lambda one: one.predict(),
    "groups later": lambda one: one.groups(),
    "create_class of groups": lambda one: (one.create_class("grouped", groups=[2, 1]), one.log()[-1]),
    "create_class of ids and groups": lambda one: one.create_class("both", SLICE[:1], groups=[1]),
    "predict again": lambda one: one.predict(),
    "predict a slice": lambda one: one.predict(FIRST),
    "predict no slice": lambda one: one.predict(99),
    "predict a labelled slice": lambda one: one.predict(0),
    "add files": lambda one: one.add(*files_of(FIRST + 2)),
    "add files again": lambda one: one.add(*files_of(FIRST + 2)),
    "add a file by columns": lambda one: one.add(
        table_file("named-vertices.csv", "paper,year,text", f"9003,{FIRST + 2},w0001"),
        columns=Columns(id="paper", time="year"),
    ),
    "add a file with a bad time": lambda one: one.add(table_file("bad-time.csv", "id,time,text", "9004,soon,w")),
    "add no file": lambda one: one.add(FILES[0] / "nothing.csv"),
    "remove": lambda one: one.remove([9003]),
    "remove again": lambda one: one.remove([9003]),
    "remove nothing": lambda one: one.remove(),
    "remove edges": lambda one: one.remove(edges=[[9002, SLICE[0]]]),
    "remove no edge": lambda one: one.remove(edges=[[9002, SLICE[0]]]),
    "remove a file": lambda one: one.remove(table_file("gone.csv", "id", "9002")),
    "predict what was added": lambda one: one.predict(),
    "decisions in the end": lambda one: one.decisions(),
    "rollback": lambda one: one.rollback("start"),
    "rollback again": lambda one: one.rollback(one.log()[-1].version),
    "rollback to nowhere": lambda one: one.rollback("nowhere"),
    "rollback of the model": lambda one: one.rollback(one.log()[-1].version - 1, model_only=True),
    "delete the tag": lambda one: one.tag("start", delete=True),
    "log in the end": lambda one: one.log(),
    "status in the end": lambda one: one.status(),
}


def plain(value: Any, folder: Path) -> Any:
    """What is compared of a result: values and types, without times of day and paths."""
    if isinstance(value, pa.Table):
        return {"schema": str(value.schema), "rows": value.to_pylist()}
    if is_dataclass(value) and not isinstance(value, type):
        named = {name: part for name, part in asdict(value).items() if name not in CHANGING}
        if "facts" in named:
            facts = {name: part for name, part in named["facts"].items() if name not in CHANGING}
            named["facts"] = json.loads(json.dumps(facts))  # facts are values for JSON
        return type(value).__name__, plain(named, folder)
    if isinstance(value, dict):
        return {name: plain(part, folder) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(plain(part, folder) for part in value)
    return value.replace(str(folder), "WS") if isinstance(value, str) else value


def told(call: Call, one: Workspace | Client, folder: Path) -> Any:
    """What a call returns or raises, and which version it makes."""
    try:
        found = plain(call(one), folder)
    except EvergraphError as error:
        kind = "InputError" if type(error).__name__ == "NotFoundError" else type(error).__name__
        place = (error.column, error.row, error.line, Path(error.file).name if error.file else None)
        return kind, plain(error.problem, folder), plain(error.fix, folder), place, one.made
    return found, one.made


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """The results of the script on a workspace and on a client."""
    folder = tmp_path_factory.mktemp("client")
    FILES[:] = [folder]
    make_workspace(folder / "ws", keep=30)
    shutil.copytree(folder / "ws", folder / "served")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as in the service: sums depend on the number of threads
    workspace = Workspace(folder / "ws")
    local = {name: told(call, workspace, folder / "ws") for name, call in SCRIPT.items()}
    torch.set_num_threads(threads)
    with serving(folder / "served", "--no-auth", "--rate", 1000) as service:
        client = Client(service.url)
        yield local, {name: told(call, client, folder / "served") for name, call in SCRIPT.items()}


# The service has its own words for these: it checks values before the workspace does, and has other groups.
OWN_WORDS = ("review no group", "set a wrong value")


@pytest.mark.parametrize("name", SCRIPT)
def test_a_call_gives_the_same_on_both(name: str, results: tuple[dict[str, Any], dict[str, Any]]) -> None:
    local, remote = results[0][name], results[1][name]
    if name in OWN_WORDS:
        local, remote = ((kind, made) for kind, *_, made in (local, remote))
    assert remote == local


# --- what differs ----------------------------------------------------------------------------------------------------

REFUSED = {"create", "graph", "learner", "state"}  # they need the folder


def test_all_methods_of_a_workspace_are_there_with_the_same_arguments() -> None:
    names = {name for name in vars(Workspace) if not name.startswith("_")}
    assert names <= {name for name in vars(Client) if not name.startswith("_")}
    for name in names - REFUSED:
        one, other = getattr(Workspace, name), getattr(Client, name)
        assert inspect.signature(one) == inspect.signature(other), name


@pytest.mark.parametrize(
    "call",
    [
        lambda one: one.graph,
        lambda one: one.state,
        lambda one: one.learner(),
        lambda one: one.create("folder", None),
        lambda one: one.add({}, features=[[1]]),
        lambda one: one.add({}, encoder="static"),
        lambda one: one.add("vertices.csv", [[1, 2]]),
        lambda one: one.set(detector=DOC(0.5)),
        lambda one: one.set(memory=Random(5)),
    ],
)
def test_what_cannot_be_sent_is_refused_with_a_way_out(call: Call) -> None:
    with pytest.raises(InputError, match=r"HTTP|not a file") as caught:
        call(Client("http://127.0.0.1:1"))
    assert caught.value.fix


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Serving, Path]]:
    folder = tmp_path_factory.mktemp("groups") / "ws"
    make_workspace(folder)
    with serving(folder, "--no-auth", "--rate", 1000) as found:
        yield found, folder


def test_groups_keep_their_numbers_while_labels_arrive(service: tuple[Serving, Path]) -> None:
    client = Client(service[0].url)
    first, second, *_ = client.groups()
    client.label(first.members[:1], ["a"])
    again = {group.number: group for group in client.groups()}
    assert again[1].members == first.members[1:]
    assert again[1].size == first.size - 1
    assert again[2] == second
    outcome = client.create_class("two groups", groups=[1, 2])
    assert outcome.facts["labels"] == first.size - 1 + second.size
    assert not {1, 2} & {group.number for group in client.groups()}
    assert client.review(None, group=1) == []


def test_numbers_of_other_groups_are_stale(service: tuple[Serving, Path]) -> None:
    client = Client(service[0].url)
    client.groups()
    workspace = Workspace(service[1])
    workspace.add(*to_tables(GRAPH, FIRST + 1, FIRST + 1, labels=False))
    workspace.predict()
    with pytest.raises(StaleError, match="groups have changed"):
        client.create_class("stale", groups=[3])
    assert client.groups()


def test_an_interrupted_update_is_cancelled(service: tuple[Serving, Path]) -> None:
    client, version = Client(service[0].url), Workspace(service[1]).state.version
    Client(service[0].url).label(SLICE[-3:], ["a", "b", "a"])

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    Workspace(service[1]).set(steps=100_000)
    with pytest.raises(KeyboardInterrupt):
        client.update("cold", on_step=stop)
    assert json.loads(service[0].call("GET", "/api/v1/jobs")[2])["jobs"][0]["state"] == "cancelled"
    assert Workspace(service[1]).log()[-1].command == "set"
    assert Workspace(service[1]).state.version == version + 2


# --- connections -----------------------------------------------------------------------------------------------------


class Unsteady(http.server.BaseHTTPRequestHandler):
    """Closes the connection of the first request, asks to wait at the second, and answers the third."""

    requests: list[tuple[str, str, bytes]]
    answers: list[int]

    def log_message(self, *_: Any) -> None:
        pass

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.requests.append((self.path, self.headers["Idempotency-Key"], body))
        status = self.answers.pop(0) if self.answers else 200
        if not status:
            self.close_connection = True
            return
        self.send_response(status)
        if status == 429:
            self.send_header("Retry-After", "1")
        self.end_headers()
        answer = {"version": 2, "command": "label", "what": "1 label", "parts": ["1 label"]}
        problem = {"type": "about:blank", "title": "", "status": status, "detail": "Not now."}
        self.wfile.write(json.dumps(answer if status == 200 else problem).encode())


@pytest.fixture
def unsteady() -> Iterator[tuple[str, type[Unsteady]]]:
    class Handler(Unsteady):
        requests, answers = [], []

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", Handler
        server.shutdown()


def test_a_request_is_repeated_with_the_same_key(unsteady: tuple[str, type[Unsteady]]) -> None:
    url, handler = unsteady
    handler.answers = [0, 429]
    client = Client(url)
    assert client.retire_class("x").version == client.made == 2
    assert len(handler.requests) == 3
    assert len(set(handler.requests)) == 1
    client.retire_class("x")
    assert handler.requests[3][1] != handler.requests[0][1]


@pytest.mark.parametrize(
    ("answers", "kind"), [([429] * 9, BusyError), ([503], BusyError), ([403], InputError), ([500], EvergraphError)]
)
def test_what_stays_refused_is_an_error(
    answers: list[int], kind: type[EvergraphError], unsteady: tuple[str, type[Unsteady]]
) -> None:
    url, handler = unsteady
    handler.answers = answers
    client = Client(url, retries=1)
    with pytest.raises(EvergraphError, match="Not now") as caught:
        client.retire_class("x")
    assert type(caught.value) is kind
    assert client.made is None


def test_no_service_is_an_error() -> None:
    with pytest.raises(EvergraphError, match="cannot be reached"):
        Client("http://127.0.0.1:1", retries=0).status()


@pytest.mark.parametrize("url", ["127.0.0.1:8765", "ftp://x", "http://", "http://x:y", "http://me@x", "http://x/?a=1"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(InputError, match="not the address"):
        Client(url)


def test_a_token_is_not_sent_in_plain_text_to_others() -> None:
    with pytest.raises(InputError, match="read the token"):
        Client("http://example.org", "evg_x")
    for url in ("http://127.0.0.1", "http://localhost:1", "http://[::1]:1", "https://example.org"):
        Client(url, "evg_x")
    Client("http://example.org", "evg_x", allow_http=True)
    Client("http://example.org")
    with pytest.raises(InputError, match="other characters"):
        Client("https://example.org", "a\r\nb")


def test_a_wrong_token_is_an_input_error(tmp_path: Path) -> None:
    make_workspace(tmp_path / "ws", steps=1)
    with serving(tmp_path / "ws") as found, pytest.raises(InputError, match="token"):
        Client(found.url, "evg_wrong").status()
