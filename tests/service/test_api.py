"""What the API promises, on a small workspace in this process; jobs run in worker processes."""

from __future__ import annotations

import asyncio
import io
import json
import shutil
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.csv as pa_csv
import pytest
from prometheus_client.parser import text_string_to_metric_families
from pyarrow import parquet
from starlette.testclient import TestClient

from evergraph import EvolvingGraph
from evergraph.analysis.explain import in_words
from evergraph.datasets.tables import to_tables
from evergraph.detect import DOC
from evergraph.nn import MLP
from evergraph.service.app import build_app
from evergraph.service.options import Options
from evergraph.service.reads import confident_learning
from evergraph.service.served import Order
from evergraph.workspace import Workspace
from tests.service.serving import FIRST, GRAPH, make_workspace

pytestmark = pytest.mark.usefixtures("one_thread")

HOST = "http://127.0.0.1:8765"
JOB_SECONDS = 300  # workers have a low priority, so on a busy machine they take long


class Api:
    """A service on a workspace; jobs run while its client is entered."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.app = build_app(folder, Options(no_auth=True, rate=1e9))
        self.client = TestClient(self.app, base_url=HOST)

    def get(self, path: str, **parameters: Any) -> Any:
        answer = self.client.get(f"/api/v1/{path}", params=parameters)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(self, path: str, body: Any, expect: int = 200, **headers: str) -> Any:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = self.client.post(f"/api/v1/{path}", json=body, headers=named)
        assert answer.status_code == expect, answer.text
        return answer.json()

    def pages(self, path: str, name: str, **parameters: Any) -> list[Any]:
        found, cursor = [], None
        while True:
            page = self.get(path, **parameters, **({"cursor": cursor} if cursor else {}))
            found += page[name]
            if (cursor := page["next"]) is None:
                return found

    def ended(self, job: Any) -> Any:
        until = time.monotonic() + JOB_SECONDS
        while job["ended"] is None:
            assert time.monotonic() < until, job
            time.sleep(0.05)
            job = self.get(f"jobs/{job['id']}")
        return job

    @property
    def version(self) -> int:
        return Workspace(self.folder).state.version


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("api") / "ws"
    make_workspace(folder)
    return folder


@pytest.fixture
def folder(template: Path, tmp_path: Path) -> Path:
    return shutil.copytree(template, tmp_path / "ws")


@pytest.fixture
def api(folder: Path) -> Iterator[Api]:
    api = Api(folder)
    with api.client:  # runs one event loop, and jobs
        yield api


def truth(first: int = FIRST, last: int = FIRST) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = to_tables(GRAPH, first, last)[0].select(["id", "label"]).to_pylist()
    return found


def slice_of(time_: int) -> dict[str, Any]:
    vertices, edges = to_tables(GRAPH, time_, time_, labels=False)
    return {"vertices": vertices.to_pylist(), "edges": edges.to_pylist()}


# --- idempotency and concurrency -------------------------------------------------------------------------------------


def test_a_repeated_request_gets_the_first_answer(api: Api) -> None:
    body = {"labels": truth()[:3]}
    first = api.post("labels", body, Idempotency_Key="k")
    api.post("labels", {"labels": [{**row, "label": "other"} for row in body["labels"]]})
    assert api.post("labels", body, Idempotency_Key="k") == first
    assert api.version == first["version"] + 1
    other = api.post("labels", {"labels": truth()[3:6]}, 409, Idempotency_Key="k")
    assert "used for another request" in other["detail"]
    restarted = Api(api.folder)
    assert restarted.post("labels", body, Idempotency_Key="k") == first


def test_a_repeated_request_that_did_nothing_does_nothing_later(api: Api) -> None:
    label = {"labels": truth()[:1]}
    api.post("labels", label)
    nothing = api.post("labels", label, Idempotency_Key="n")
    assert nothing["what"].startswith("nothing to do")
    api.post("labels", {"labels": [{**truth()[0], "label": "other"}]})
    assert api.post("labels", label, Idempotency_Key="n") == nothing
    assert api.get(f"vertices/{truth()[0]['id']}")["label"] == "other"


def test_a_repeated_request_is_answered_although_the_groups_have_changed(api: Api) -> None:
    grouping = api.get("groups")["grouping"]
    body = {"grouping": grouping, "answers": [{"label": "fresh", "groups": [1]}], "dismiss": [2]}
    first = api.post("answers", body, Idempotency_Key="a")
    workspace = Workspace(api.folder)
    workspace.add(*to_tables(GRAPH, FIRST + 1, FIRST + 1, labels=False))
    workspace.predict()
    assert api.post("answers", body, Idempotency_Key="a") == first
    assert api.post("answers", body, 409)["detail"].startswith("The groups have changed")


def test_concurrent_repeats_happen_once(api: Api) -> None:
    before, body = api.version, {"labels": truth()[:5]}
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: api.post("labels", body, Idempotency_Key="same"), range(16)))
    assert all(one == answers[0] for one in answers)
    assert api.version == before + 1


def test_concurrent_writes_all_happen(api: Api) -> None:
    before, rows = api.version, truth()[:16]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda row: api.post("labels", {"labels": [row]}), rows))
    assert sorted(one["version"] for one in answers) == list(range(before + 1, before + 17))
    there = Workspace(api.folder).graph
    assert [there.labels[there.find([row["id"]])[0]] for row in rows] == [row["label"] for row in rows]


def test_a_stale_version_is_refused_with_what_changed(api: Api) -> None:
    version = api.version
    api.post("labels", {"labels": truth()[:1]}, If_Match=f'"{version}"')
    Workspace(api.folder).tag("mine")
    found = api.post("labels", {"labels": truth()[1:2]}, 409, If_Match=f'"{version}"')
    assert found["version"] == version + 2
    assert [(one["version"], one["command"], one["who"]) for one in found["changes"]] == [
        (version + 1, "label", "local"),
        (version + 2, "tag", None),
    ]
    assert f"based on version {version}" in found["detail"]
    assert api.version == version + 2
    api.post("labels", {"labels": truth()[1:2]}, If_Match=f'"{version + 2}"')
    api.post("labels", {"labels": truth()[2:3]}, If_Match="*")
    assert "If-Match" in api.post("labels", {"labels": truth()[3:4]}, 422, If_Match="3")["detail"]


def test_answers_have_the_version_as_their_tag(api: Api) -> None:
    for path in ("status", "versions", "classes", "scores", "decisions", "groups", "queue", "suspects"):
        answer = api.client.get(f"/api/v1/{path}")
        assert answer.headers["etag"] == f'"{api.version}"', path


# --- decisions -------------------------------------------------------------------------------------------------------


def test_pages_of_decisions_are_all_decisions(api: Api) -> None:
    there = Workspace(api.folder).decisions()
    for limit in (7, 100, 10_000):
        found = api.pages("decisions", "decisions", limit=limit)
        assert [str(row["id"]) for row in found] == list(there)
    for row in found:
        own = there[str(row["id"])]
        assert {name: row[name] for name in ("time", "class", "score", "best", "model", "probability")} == {
            name: own[name] for name in ("time", "class", "score", "best", "model", "probability")
        }


def test_decisions_can_be_filtered(api: Api) -> None:
    Workspace(api.folder).add(*to_tables(GRAPH, FIRST + 1, FIRST + 1, labels=False))
    Workspace(api.folder).predict()
    everything = api.pages("decisions", "decisions")
    api.post("labels", {"labels": truth()[:9]})
    labelled = {row["id"] for row in truth()[:9]}
    flagged = [row for row in everything if row["class"] == "unseen"]
    name = next(row["class"] for row in everything if row["class"] != "unseen")
    assert 0 < len(flagged) < len(everything)

    def ids(**parameters: Any) -> list[int]:
        return [row["id"] for row in api.pages("decisions", "decisions", limit=50, **parameters)]

    assert ids(flagged=True) == ids(**{"class": "unseen"}) == [row["id"] for row in flagged]
    assert ids(flagged=False) == [row["id"] for row in everything if row["class"] != "unseen"]
    assert ids(**{"class": name}) == [row["id"] for row in everything if row["class"] == name]
    assert ids(slice=str(FIRST)) == [row["id"] for row in everything if row["time"] == FIRST]
    assert ids(slice=str(FIRST), flagged=True) == [row["id"] for row in flagged if row["time"] == FIRST]
    assert set(ids(labelled=True)) == labelled
    assert set(ids(labelled=False)) == {row["id"] for row in everything} - labelled
    for wrong in ({"class": "none such"}, {"slice": "soon"}, {"cursor": "???"}, {"limit": 0}, {"flagged": "perhaps"}):
        assert api.client.get("/api/v1/decisions", params=wrong).status_code == 422


def test_decisions_as_csv_and_parquet_are_those_of_json(api: Api) -> None:
    rows = api.get("decisions", limit=200)["decisions"]
    asked = {"params": {"limit": 200}}
    as_parquet = api.client.get("/api/v1/decisions", headers={"Accept": "application/vnd.apache.parquet"}, **asked)
    assert as_parquet.headers["content-type"] == "application/vnd.apache.parquet"
    assert parquet.read_table(io.BytesIO(as_parquet.content)).to_pylist() == [
        {name: row[name] for name in parquet.read_schema(io.BytesIO(as_parquet.content)).names} for row in rows
    ]
    as_csv = api.client.get("/api/v1/decisions", headers={"Accept": "text/csv"}, **asked)
    assert as_csv.headers["content-type"] == "text/csv; charset=utf-8"
    table = pa_csv.read_csv(io.BytesIO(as_csv.content)).to_pylist()
    for found, row in zip(table, rows, strict=True):
        assert found["id"] == row["id"]
        assert found["class"] == row["class"]
        assert found["score"] == pytest.approx(row["score"])
        assert found["nearest"] == in_words(row["nearest"])


def test_the_next_page_is_linked(api: Api) -> None:
    answer = api.client.get("/api/v1/decisions", params={"limit": 5, "flagged": "true"})
    link = answer.headers["link"]
    assert link.endswith('; rel="next"')
    following = api.client.get(link[1 : link.index(">")]).json()
    assert following["decisions"] == api.get("decisions", limit=10, flagged=True)["decisions"][5:]


# --- groups and answers ----------------------------------------------------------------------------------------------


def test_groups_keep_their_numbers_while_labels_arrive(api: Api) -> None:
    before = api.pages("groups", "groups", limit=3)
    grouping = api.get("groups")["grouping"]
    assert [group["number"] for group in before] == list(range(1, len(before) + 1))
    chosen = before[1]
    members = api.pages(f"groups/{chosen['number']}/members", "vertices", limit=4, grouping=grouping)
    assert len(members) == chosen["size"] == chosen["left"]
    api.post("labels", {"labels": [{"id": row["id"], "label": "mine"} for row in members[:2]]})
    after = api.pages("groups", "groups", limit=3)
    assert api.get("groups")["grouping"] == grouping
    assert [(group["number"], group["key"], group["size"]) for group in after] == [
        (group["number"], group["key"], group["size"]) for group in before
    ]
    assert after[1]["left"] == chosen["size"] - 2
    assert after[0] | {"version": 0} == before[0] | {"version": 0}
    Workspace(api.folder).add(*to_tables(GRAPH, FIRST + 1, FIRST + 1, labels=False))
    Workspace(api.folder).predict()
    api.get("groups")
    stale = api.client.get(f"/api/v1/groups/1?grouping={grouping}")
    assert stale.status_code == 409
    assert "The groups have changed" in stale.json()["detail"]
    assert api.client.get("/api/v1/groups/9999").status_code == 404


def test_a_sample_is_drawn_among_members_without_a_label(api: Api) -> None:
    group = api.get("groups/1")
    one = api.get("groups/1/sample", size=5, seed=1)
    assert one == api.get("groups/1/sample", size=5, seed=1)
    assert one["of"] == group["size"]
    ids = [row["id"] for row in one["vertices"]]
    assert len(set(ids)) == 5
    drawn = Counter(
        row["id"] for seed in range(60) for row in api.get("groups/1/sample", size=5, seed=seed)["vertices"]
    )
    assert len(drawn) == group["size"]
    api.post("labels", {"labels": [{"id": id, "label": "mine"} for id in ids]})
    again = api.get("groups/1/sample", size=100, seed=1)
    assert again["of"] == len(again["vertices"]) == group["size"] - 5
    assert not set(ids) & {row["id"] for row in again["vertices"]}


def test_a_split_has_all_members_once(api: Api) -> None:
    members = {row["id"] for row in api.pages("groups/1/members", "vertices")}
    parts = api.get("groups/1/split")["parts"]
    assert len(parts) >= 2
    assert sorted(id for part in parts for id in part["ids"]) == sorted(members)
    assert [part["size"] for part in parts] == sorted((len(part["ids"]) for part in parts), reverse=True)
    api.post("labels", {"labels": [{"id": id, "label": "mine"} for id in sorted(members)[1:]]})
    left = api.client.get("/api/v1/groups/1/split")
    assert left.status_code == 422
    assert "one vertex" in left.json()["detail"]


def test_a_drawing_has_the_edges_among_its_vertices(api: Api) -> None:
    graph = Workspace(api.folder).graph
    for found in (api.get("groups/1/graph"), api.get(f"graph/neighbourhood/{truth()[0]['id']}", hops=2, limit=30)):
        rows = graph.find([node["id"] for node in found["nodes"]])
        links = graph.links
        around = [set(links.indices[links.indptr[row] : links.indptr[row + 1]].tolist()) for row in rows.tolist()]
        places = range(len(rows))
        among = {(a, b) for a in places for b in places if rows[b] in around[a] and rows[a] < rows[b]}
        assert {tuple(edge) for edge in found["edges"]} == among
        assert any(node["centre"] for node in found["nodes"])
    one = api.get(f"graph/neighbourhood/{truth()[0]['id']}", limit=1)
    assert len(one["nodes"]) == 1
    assert one["left_out"] == graph.links.indptr[rows[0] + 1] - graph.links.indptr[rows[0]]


def test_a_preview_changes_nothing_and_says_what_saving_does(api: Api) -> None:
    version, groups = api.version, api.get("groups")
    body = {"grouping": groups["grouping"], "answers": [{"label": "fresh", "groups": [1]}], "dismiss": [2]}
    preview = api.post("answers/preview", body)
    assert api.version == version
    assert not api.get("groups/2")["dismissed"]
    assert preview["labels"] == groups["groups"][0]["size"]
    assert preview["new_classes"] == ["fresh"]
    assert preview["per_class"] == [{"class": "fresh", "count": preview["labels"]}]
    done = api.post("answers", body)
    assert done["version"] == version + 1
    assert done["labels"] == preview["labels"]
    assert api.get("groups/2")["dismissed"]
    assert api.get("groups/1")["left"] == 0


def test_answers_contain_groups_ids_and_exceptions(api: Api) -> None:
    members = [row["id"] for row in api.pages("groups/1/members", "vertices")]
    other = next(row["id"] for row in truth() if row["id"] not in members)
    body = {"answers": [{"label": "fresh", "groups": [1], "ids": [other], "without": members[:2]}]}
    assert api.post("answers", body)["labels"] == len(members) - 1
    graph = Workspace(api.folder).graph
    labels = dict(zip(members, graph.labels[graph.find(members)], strict=True))
    assert [labels[id] for id in members[:2]] == [None, None]
    assert {labels[id] for id in members[2:]} == {"fresh"}
    twice = api.post(
        "answers", {"answers": [{"label": "a", "ids": members[:1]}, {"label": "b", "ids": members[:1]}]}, 422
    )
    assert "two answers" in twice["detail"]


def test_conflicts_are_refused_kept_or_overwritten(api: Api) -> None:
    ids = [row["id"] for row in truth()[:3]]
    Workspace(api.folder).label([ids[0]], ["theirs"])
    body: dict[str, Any] = {"answers": [{"label": "mine", "ids": ids}], "dismiss": [1]}
    refused = api.post("answers", body, 409)
    assert refused["conflicts"] == [{"id": ids[0], "label": "theirs", "answer": "mine"}]
    assert not api.get("groups/1")["dismissed"]  # all or nothing
    assert api.post("answers/preview", body)["conflicts"] == refused["conflicts"]
    assert api.post("answers", body | {"conflicts": "keep"})["labels"] == 2
    assert api.get(f"vertices/{ids[0]}")["label"] == "theirs"
    assert api.post("answers", body | {"conflicts": "overwrite"})["labels"] == 1
    assert api.get(f"vertices/{ids[0]}")["label"] == "mine"


def test_the_last_change_of_labels_can_be_undone(api: Api) -> None:
    before = Workspace(api.folder).graph.labels
    done = api.post("answers", {"answers": [{"label": "fresh", "groups": [1]}]})
    api.post("undo", {"version": done["version"]}, Idempotency_Key="u")
    assert list(Workspace(api.folder).graph.labels) == list(before)
    assert api.get("groups/1")["left"] == api.get("groups/1")["size"]
    assert api.post("undo", {"version": done["version"]}, Idempotency_Key="u")["version"] == done["version"] + 1
    assert "cannot be undone here" in api.post("undo", {"version": api.version}, 422)["detail"]
    api.post("labels", {"labels": truth()[:1]})
    stale = api.version
    api.post("labels", {"labels": truth()[1:2]})
    assert api.post("undo", {"version": stale}, 409)["changes"]


def test_classes_are_created_renamed_merged_and_retired(api: Api) -> None:
    api.post("classes", {"action": "create", "name": "fresh", "group": 1, "grouping": api.get("groups")["grouping"]})
    api.post("classes", {"action": "rename", "name": "fresh", "to": "fresher"})
    api.post(
        "classes",
        {"action": "create", "name": "more", "ids": [row["id"] for row in api.get("groups/2/members")["vertices"]]},
    )
    api.post("classes", {"action": "merge", "names": ["more"], "into": "fresher"})
    assert api.get("groups/1")["left"] == api.get("groups/2")["left"] == 0
    api.post("classes", {"action": "retire", "name": "fresher"})
    found = {row["name"]: row for row in api.get("classes")["classes"]}
    assert found["fresher"]["retired"]
    assert "more" not in found
    for wrong in (
        {"action": "create", "name": next(iter(found)), "ids": [row["id"] for row in truth()[:1]]},
        {"action": "rename", "name": "none such", "to": "x"},
        {"action": "create", "name": "x", "group": 1, "ids": [1]},
        {"action": "explode"},
        {"action": "create", "name": ""},
    ):
        api.post("classes", wrong, 422)


# --- what to label ---------------------------------------------------------------------------------------------------


def test_the_queue_mixes_three_kinds(api: Api) -> None:
    api.post("labels", {"labels": truth()[:20]})
    items = api.get("queue", limit=30)["items"]
    counts = Counter(item["reason"] for item in items)
    assert set(counts) == {"flagged", "uncertain", "accepted"}
    assert max(counts.values()) - min(counts.values()) <= 1
    assert len({item["id"] for item in items}) == 30
    labelled = {row["id"] for row in truth()[:20]}
    assert all(item["label"] is None and item["id"] not in labelled for item in items)
    by_kind = defaultdict(list)
    for item in items:
        by_kind[item["reason"]].append(item)
    assert [item["score"] for item in by_kind["flagged"]] == sorted(
        (i["score"] for i in by_kind["flagged"]), reverse=True
    )
    shares = [item["probability"] for item in by_kind["uncertain"]]
    assert shares == sorted(shares)
    others = [item["id"] for item in api.get("queue", limit=30, seed=5)["items"] if item["reason"] == "accepted"]
    assert len(set(others) & {item["id"] for item in by_kind["accepted"]}) < 8
    assert api.get("queue", limit=30)["items"] == items


def brute_force(rows: list[dict[str, Any]]) -> list[tuple[Any, str, str]]:
    """Find suspected label errors by the definition: counts of each vertex against the threshold of each class."""
    classes = sorted({row["truth"] for row in rows} | {one["class"] for row in rows for one in row["nearest"]})
    share = [
        [next((one["probability"] for one in row["nearest"] if one["class"] == name), 0.0) for name in classes]
        for row in rows
    ]
    found = []
    for number, row in enumerate(rows):
        own = classes.index(row["truth"])
        best = None
        for other, name in enumerate(classes):
            with_label = [share[at][other] for at, one in enumerate(rows) if one["truth"] == name]
            reached = with_label and share[number][other] >= sum(with_label) / len(with_label)
            beats = share[number][other] > share[number][own]
            if other != own and reached and beats and (best is None or share[number][other] >= share[number][best]):
                best = other
        if best is not None:
            found.append((-(share[number][best] - share[number][own]), str(row["id"]), row["truth"], classes[best]))
    return [one[1:] for one in sorted(found)]


def test_suspects_are_those_of_confident_learning(api: Api) -> None:
    rows = truth()
    names = sorted({row["label"] for row in rows})
    wrong = [{**row, "label": names[(names.index(row["label"]) + 1) % len(names)]} for row in rows[::6]]
    right = [row for at, row in enumerate(rows) if at % 6]
    api.post("labels", {"labels": wrong + right})
    judged = [
        row for found in Workspace(api.folder).scored_decisions().values() for row in found.values() if row["known"]
    ]
    expected = brute_force(judged)
    assert len(expected) > 3
    assert [(str(one["id"]), one["label"], one["suggested"]) for one in confident_learning(judged)] == expected
    shown = api.pages("suspects", "suspects", limit=4)
    assert [(str(one["id"]), one["label"], one["suggested"]) for one in shown] == expected
    assert {one["id"] for one in shown} & {row["id"] for row in wrong}
    corrected = shown[0]
    api.post("labels", {"labels": [{"id": corrected["id"], "label": corrected["suggested"]}]})
    assert corrected["id"] not in [one["id"] for one in api.pages("suspects", "suspects")]


# --- jobs ------------------------------------------------------------------------------------------------------------


def test_the_loop_runs_over_http(api: Api) -> None:
    api.post("slices", slice_of(FIRST + 1))
    first = api.client.post("/api/v1/predictions", json={}, headers={"Idempotency-Key": "p"})
    assert first.status_code == 202
    job = first.json()
    assert first.headers["location"] == f"/api/v1/jobs/{job['id']}"
    assert api.post("predictions", {}, 202, Idempotency_Key="p")["id"] == job["id"]
    done = api.ended(job)
    assert done["state"] == "done", done
    assert done["result"]["version"] == api.version
    assert len(api.pages("decisions", "decisions", slice=str(FIRST + 1))) == len(slice_of(FIRST + 1)["vertices"])
    api.post("labels", {"labels": truth()})
    job = api.post("updates", {}, 202)
    with api.client.stream("GET", f"/api/v1/jobs/{job['id']}/events") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in stream.iter_lines() if line.startswith("data: ")]
    events = [json.loads(line.removeprefix("data: ")) for line in lines]
    assert events[-1]["state"] == "done"
    assert events[-1]["progress"] == 1
    assert {event["state"] for event in events} <= {"queued", "running", "done"}
    progress = [event["progress"] for event in events if event["progress"] is not None]
    assert progress == sorted(progress)
    assert api.get("models")["models"][-1]["number"] == 2
    assert [one["id"] for one in api.get("jobs")["jobs"]] == [2, 1]
    assert api.client.delete(f"/api/v1/jobs/{job['id']}").status_code == 409
    entry = api.get("versions", limit=1)["versions"][0]
    assert (entry["command"], entry["who"]) == ("update", "local")
    explained = api.get(f"vertices/{truth()[0]['id']}/explanation")
    assert explained["because"]
    nothing = api.ended(api.post("updates", {}, 202))
    assert nothing["state"] == "done"
    assert nothing["result"]["what"].startswith("nothing to do")
    assert api.client.get("/api/v1/report").status_code == 404
    assert api.ended(api.post("reports", {}, 202))["state"] == "done"
    page = api.client.get("/api/v1/report")
    assert page.headers["content-type"].startswith("text/html")
    assert "sandbox" in page.headers["content-security-policy"]
    failed = api.ended(api.post("predictions", {"slice": "99"}, 202))
    assert failed["state"] == "failed"
    assert failed["error"]["status"] == 422
    assert failed["error"]["detail"]
    assert failed["result"] is None


def long_update(folder: Path) -> None:
    """Give the workspace something to train on for longer than any test."""
    workspace = Workspace(folder)
    workspace.set(steps=10_000_000)
    workspace.label([row["id"] for row in truth()], [row["label"] for row in truth()])


def until_training(api: Api, job: Any) -> Any:
    until = time.monotonic() + JOB_SECONDS
    while not (found := api.get(f"jobs/{job['id']}"))["message"].startswith("training step"):
        assert time.monotonic() < until, found
        assert found["ended"] is None, found
        time.sleep(0.05)
    return found


def test_an_update_can_be_cancelled_while_it_trains(api: Api) -> None:
    long_update(api.folder)
    job, waiting = api.post("updates", {"restart": "warm"}, 202), api.post("reports", {}, 202)
    found = until_training(api, job)
    assert found["state"] == "running"
    assert 0 <= found["progress"] < 1
    assert api.get("status")["job"]["id"] == job["id"]
    assert api.get(f"jobs/{waiting['id']}")["state"] == "queued"
    version = api.version
    # Labels and slices are accepted meanwhile.
    api.post("labels", {"labels": [{**truth()[0], "label": "other"}]})
    api.post("slices", slice_of(FIRST + 1))
    cancelled = api.client.delete(f"/api/v1/jobs/{job['id']}").json()
    assert cancelled["state"] == "cancelled"
    assert cancelled["ended"]
    assert api.ended(waiting)["state"] == "done"
    assert api.get(f"jobs/{job['id']}")["state"] == "cancelled"
    assert api.version == version + 2
    assert api.get("models")["models"][-1]["number"] == 1


def test_a_class_change_meanwhile_makes_an_update_stop_as_stale(api: Api) -> None:
    workspace = Workspace(api.folder)
    workspace.set(steps=2_000)
    workspace.label([row["id"] for row in truth()], [row["label"] for row in truth()])
    job = api.post("updates", {"restart": "warm"}, 202)
    until_training(api, job)
    name = api.get("classes")["classes"][0]["name"]
    api.post("classes", {"action": "rename", "name": name, "to": f"{name} too"})
    ended = api.ended(job)
    assert ended["state"] == "failed", ended
    assert ended["error"]["status"] == 409
    assert "has changed meanwhile" in ended["error"]["detail"]
    assert api.get("models")["models"][-1]["number"] == 1


def test_jobs_survive_the_end_of_the_service(folder: Path) -> None:
    first = Api(folder)
    long_update(folder)
    with first.client:
        job, waiting = first.post("updates", {"restart": "warm"}, 202), first.post("reports", {}, 202)
        until_training(first, job)
    second = Api(folder)
    assert second.get(f"jobs/{job['id']}")["state"] == "running"  # nobody has looked yet
    with second.client:
        until_training(second, job)  # again
        assert second.get(f"jobs/{waiting['id']}")["state"] == "queued"
    with second.app.state.reads.served.store.database.write() as records:
        (row,) = records.select("jobs", "job = ?", job["id"])
        assert (row.state, row.attempts) == ("running", 2)
        records.replace("jobs", "job = ?", [row.job], attempts=3)
    third = Api(folder)
    with third.client:  # not a fourth time
        assert third.ended(waiting)["state"] == "done"
        found = third.get(f"jobs/{job['id']}")
        assert found["state"] == "interrupted"
        assert found["ended"]
    assert Workspace(folder).state.model.number == 1


def test_a_job_whose_worker_dies_fails(api: Api) -> None:
    long_update(api.folder)
    job = api.post("updates", {"restart": "warm"}, 202)
    until_training(api, job)
    api.app.state.jobs._running[1]._process.kill()
    ended = api.ended(job)
    assert ended["state"] == "failed"
    assert "signal 9" in ended["error"]["detail"]


def test_a_job_that_was_stopped_changes_nothing(folder: Path) -> None:
    api = Api(folder)
    jobs = api.app.state.jobs
    _, job = jobs.create(Order("me"), "predict", {})
    row = jobs._next()
    jobs.cancel(job["id"])
    from evergraph.errors import StaleError
    from evergraph.service.served import OrderedWorkspace

    workspace = OrderedWorkspace(api.folder)
    workspace.order = Order("me", job=row.job, attempt=row.attempts)
    with pytest.raises(StaleError, match="the job was stopped"):
        workspace.tag("late")
    assert workspace.is_stopped


# --- the command line, figures, other workspaces ---------------------------------------------------------------------


def test_versions_of_the_command_line_are_seen_at_once(
    api: Api, command: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    assert api.get("status")["to_review"]
    table = tmp_path / "labels.csv"
    table.write_text("id,label\n" + "".join(f"{row['id']},{row['label']}\n" for row in truth()))
    before = api.version
    code, _, err = command("ws", "label", api.folder, "--labels", table)
    assert code == 0, err
    found = api.get("status")
    assert found["version"] == before + 1
    assert found["to_review"] == 0
    assert api.get("groups/1")["left"] == 0
    entry = api.get("versions", limit=1)["versions"][0]
    assert (entry["command"], entry["who"]) == ("label", None)
    assert api.get(f"vertices/{truth()[0]['id']}")["label"] == truth()[0]["label"]


def test_readers_go_on_while_another_process_holds_the_lock(api: Api) -> None:
    workspace, inside, done = Workspace(api.folder), threading.Event(), threading.Event()

    def hold() -> None:
        with workspace.store.write():
            inside.set()
            done.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    assert inside.wait(10)
    start = time.monotonic()
    for path in ("status", "decisions", "groups", "scores", "jobs", f"graph/neighbourhood/{truth()[0]['id']}"):
        api.get(path)
    assert time.monotonic() - start < 10
    done.set()
    holder.join()
    api.post("labels", {"labels": truth()[:1]})


def test_figures_can_be_read_by_prometheus(api: Api) -> None:
    api.post("labels", {"labels": truth()})
    api.get("status")
    answer = api.client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    found = {family.name: family for family in text_string_to_metric_families(answer.text)}
    values = {name: family.samples[0].value for name, family in found.items() if family.samples}
    assert values["evergraph_version"] == api.version
    assert values["evergraph_vertices"] == api.get("status")["vertices"]
    assert values["evergraph_decisions"] == len(truth())
    assert 0 < values["evergraph_accuracy"] <= 1
    assert values["evergraph_labels"] == len(truth())
    requests = {
        (one.labels["route"], one.labels["status"]): one.value
        for one in found["evergraph_requests"].samples
        if one.name.endswith("_total")
    }
    assert requests["/api/v1/labels", "200"] == 1
    assert {"evergraph_jobs", "evergraph_drift", "evergraph_update_seconds", "evergraph_flagged_share"} <= set(found)
    assert api.client.get("/healthz").json() == {"status": "ok"}
    assert api.client.get("/readyz").json()["version"] == api.version


STRANGE = [
    "a/b",
    "../up",
    "%2e%2e",
    "a b",
    "é",
    "\u202eright",
    "🙂",
    "?q=1",
    "#top",
    "a%2Fb",
    "=1+1",
    "<b>x</b>",
    "x" * 2_000,
    "explanation",
    "'",
    '"',
    "\\",
    "a\tb",
]


def other_workspace(folder: Path, ids: list[Any], **columns: Any) -> Api:
    """Make a workspace with a decided slice, whose last vertices have these ids."""
    count = 40
    old = [f"old{number}" if isinstance(ids[0], str) else 10_000 + number for number in range(count)]
    table = {"id": [*old, *ids], "time": [number // 10 for number in range(count)] + [4] * len(ids)}
    table |= {"label": [("one", "two")[number % 2] for number in range(count)] + [None] * len(ids)}
    table |= {name: [value(number) for number in range(count + len(ids))] for name, value in columns.items()}
    edges = [(table["id"][number - 1], id) for number, id in enumerate(table["id"]) if number]
    kinds = {"numbers": [name for name in columns if name != "text"]}
    graph = EvolvingGraph.build(table, edges, **kinds)
    old_graph = EvolvingGraph.build(*to_tables(graph, last=3), **kinds)
    workspace = Workspace.create(
        folder, old_graph, model=MLP(hidden=4), detector=DOC(0.99), steps=5, lr=0.05, history=2
    )
    vertices, links = to_tables(graph, 4, 4, labels=False)
    workspace.add(vertices, links)
    workspace.predict()
    return Api(folder)


def read(api: Api, path: str) -> Any:
    """Read a path that is decoded once, as by the server; starlette's client would decode it twice."""
    path, sent = f"/api/v1/{path}", list[Any]()
    scope = {"type": "http", "method": "GET", "path": unquote(path), "raw_path": path.encode(), "query_string": b""}
    scope |= {"headers": [(b"host", HOST.removeprefix("http://").encode())], "client": ("test", 1), "scheme": "http"}

    async def receive() -> Any:
        return {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(api.app(scope, receive, send))
    assert sent[0]["status"] == 200, sent
    return json.loads(b"".join(message.get("body", b"") for message in sent[1:]))


def check_everything(api: Api, ids: list[Any]) -> None:
    """Read everything about some vertices, label them, and read again."""
    for path in (
        "status",
        "decisions",
        "groups",
        "queue",
        "suspects",
        "classes",
        "scores",
        "drift",
        "versions",
        "review",
    ):
        api.get(path)
    found = {row["id"] for row in api.pages("decisions", "decisions", limit=3)}
    assert found == set(ids)
    for id in ids:
        path = quote(str(id), safe="")
        assert read(api, f"vertices/{path}")["id"] == id
        assert read(api, f"graph/neighbourhood/{path}")["nodes"][0]["id"] == id
    for row in api.get("groups", limit=100)["groups"]:
        for kind in ("", "/members", "/sample", "/graph"):
            api.get(f"groups/{row['number']}{kind}")
    api.post("labels", {"labels": [{"id": id, "label": "fresh"} for id in ids]})
    assert {read(api, f"vertices/{quote(str(id), safe='')}")["label"] for id in ids} == {"fresh"}


def test_strange_ids_are_found_in_paths(tmp_path: Path) -> None:
    check_everything(
        other_workspace(tmp_path / "ws", STRANGE, text=lambda number: f"w{number % 7} w{number % 3}"), STRANGE
    )


def test_a_workspace_with_numbers_as_ids(tmp_path: Path) -> None:
    ids = [5, 7, 123_456_789_012, -3, 0]
    api = other_workspace(tmp_path / "ws", ids, text=lambda number: f"w{number % 7} w{number % 3}")
    check_everything(api, ids)
    assert all(isinstance(row["id"], int) for row in api.get("decisions")["decisions"])
    api.post("labels", {"labels": [{"id": "5", "label": "by text"}]})
    assert api.get("vertices/5")["label"] == "by text"


def test_a_workspace_without_text(tmp_path: Path) -> None:
    ids = [f"n{number}" for number in range(8)]
    api = other_workspace(tmp_path / "ws", ids, x=lambda number: float(number % 5), y=lambda number: float(number % 2))
    check_everything(api, ids)
    assert api.get("vertices/n1")["text"] is None


def test_a_workspace_without_flagged_vertices(folder: Path) -> None:
    Workspace(folder).set(detector={"threshold": 0.0})
    Workspace(folder).predict()
    api = Api(folder)
    found = api.get("groups")
    assert (found["total"], found["flagged"], found["alone"], found["groups"], found["next"]) == (0, 0, 0, [], None)
    assert api.client.get("/api/v1/groups/1").status_code == 404
    assert api.get("decisions", flagged=True)["decisions"] == []
    assert {item["reason"] for item in api.get("queue")["items"]} == {"uncertain", "accepted"}
    assert api.post("answers/preview", {})["labels"] == 0


def test_tables_in_requests_are_read_as_files(api: Api) -> None:
    rows = truth()
    table = pa.table({"id": [row["id"] for row in rows[:4]], "label": [row["label"] for row in rows[:4]]})
    buffer = io.BytesIO()
    parquet.write_table(table, buffer)
    sent = {"application/vnd.apache.parquet": buffer.getvalue()}
    sent["text/csv"] = ("id,label\n" + "".join(f"{row['id']},{row['label']}\n" for row in rows[4:8])).encode()
    for kind, data in sent.items():
        answer = api.client.post("/api/v1/labels", content=data, headers={"Content-Type": kind})
        assert answer.json()["labels"] == 4, answer.text
    vertices, edges = to_tables(GRAPH, FIRST + 1, FIRST + 1, labels=False)
    files = {}
    for name, part in (("vertices", vertices), ("edges", edges)):
        buffer = io.BytesIO()
        parquet.write_table(part, buffer)
        files[name] = (f"{name}.parquet", buffer.getvalue())
    answer = api.client.post("/api/v1/slices", files=files)
    assert answer.status_code == 200, answer.text
    other = Workspace(api.folder).graph
    assert len(other) == api.get("status")["vertices"]
    assert other.last_time == FIRST + 1
