"""A small service that follows the contract of the API from memory: groups, answers, jobs, undo."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import uvicorn
from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse, StreamingResponse
from fastapi.staticfiles import StaticFiles

import evergraph.service
from evergraph.service.pages import router

CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
TOPICS = {
    "geometry": "point line segment congruence betweenness",
    "matrices": "matrix determinant trace scalar ring",
    "graphs": "walk vertex edge trail cycle",
    "surreal": "surreal birthday cut ordering dyadic",
    "lattices": "lattice join meet order atom",
    "groups": "group abelian subgroup coset quotient",
}
WHY = "Flagged, uncertain and accepted vertices are mixed, because labelling only flagged ones biases the calibration."


class Fake:
    """The state of the service. ``names`` replaces ids, texts, words and class names by hostile ones."""

    def __init__(self, groups: int = 5, size: int = 12, *, role: str = "reviewer", names: tuple[str, ...] = ()) -> None:
        self.role, self.size, self.count, self.names = role, size, groups, names
        self.version, self.grouping = 7, 3
        self.labels: dict[str, str] = {}
        self.dismissed: set[int] = set()
        self.others: dict[str, str] = {}  # labels that others gave meanwhile, with conflicts
        self.classes = {"Matrices": 320, "Groups": 210, "Order theory": 45, **dict.fromkeys(names, 3)}
        self.suspects = {f"s{i}": ("Groups", "Matrices") for i in range(3)}
        self.before: list[tuple[dict[str, str], set[int]]] = []
        self.versions = [self._version(n, "predict", "decided 60 vertices") for n in range(1, 8)]
        self.jobs: list[dict[str, Any]] = []
        self.answered: dict[str, Any] = {}
        self.saves = 0
        self.broken = False
        self.wait_at: int | None = None  # the step at which a job waits until this is another one

    def _version(self, number: int, command: str, what: str) -> dict[str, Any]:
        moment = f"2026-03-{number % 28 + 1:02d}T09:30:00+00:00"
        return {
            "version": number,
            "when": moment,
            "command": command,
            "what": what,
            "who": "ada",
            "tags": [],
            "kept": True,
        }

    def commit(self, command: str, what: str) -> None:
        self.version += 1
        self.versions.insert(0, self._version(self.version, command, what))

    def name(self, place: int, usual: str) -> str:
        return self.names[place % len(self.names)] if self.names else usual

    def ids(self, group: int) -> list[str]:
        return [self.name((group - 1) * self.size + i, "") + f"g{group}v{i}" for i in range(self.size)]

    def topic(self, group: int) -> tuple[str, list[str]]:
        name = list(TOPICS)[group % len(TOPICS)]
        words = TOPICS[name].split()
        return name, [self.name(i, word) for i, word in enumerate(words)] if self.names else words

    def vertex(self, group: int, place: int) -> dict[str, Any]:
        id, (name, words) = self.ids(group)[place], self.topic(group)
        text = (
            f"A theorem about {name}: the {words[place % 5]} of a {words[(place + 1) % 5]} is unique, see part {place}."
        )
        return {
            "id": id,
            "time": 2019,
            "text": self.name(place, text),
            "words": words[:4],
            "score": 0.9 - place / 100,
            "best": next(iter(self.classes)) if not self.names else self.names[0],
            "probability": 0.4,
            "label": self.labels.get(id),
        }

    def find(self, id: str) -> tuple[int, int]:
        if id in self.suspects:
            return 1, 0
        if "g" not in id:
            raise HTTPException(404, f"there is no vertex {id!r} in the workspace")
        group, _, place = id[id.rindex("g") + 1 :].partition("v")
        return int(group), int(place)

    def left(self, group: int) -> int:
        return sum(id not in self.labels for id in self.ids(group))

    def group(self, number: int) -> dict[str, Any]:
        _, words = self.topic(number)
        best = self.name(0, "Matrices")
        return {
            "number": number,
            "key": f"key-{number}",
            "time": 2019,
            "size": self.size,
            "left": self.left(number),
            "terms": words,
            "exemplars": [{key: self.vertex(number, i)[key] for key in ("id", "words", "text")} for i in range(3)],
            "edges": 3 * self.size,
            "nearest": [{"class": best, "count": self.size // 2}, {"class": "Groups", "count": 2}],
            "overlap": 0.5,
            "earlier": {"vertices": 4, "classes": [{"class": self.name(1, "Order theory"), "count": 3}, {"class": None, "count": 1}]},
            "dismissed": number in self.dismissed,
        }  # fmt: skip

    def graph(self, group: int) -> dict[str, Any]:
        members = min(self.size, 30)
        nodes = [
            {"id": id, "time": 2019, "label": None, "flagged": True, "centre": True, "text": "a theorem"}
            for id in self.ids(group)[:members]
        ]
        nodes += [
            {"id": f"n{i}", "time": 2018, "label": self.name(i, ["Matrices", "Groups"][i % 2]), "flagged": False, "centre": False, "text": None}
            for i in range(6)
        ]  # fmt: skip
        edges = [[i, (i * 7 + 3) % members] for i in range(members)] + [
            [i, members + i] for i in range(min(6, members))
        ]
        return {
            "nodes": nodes,
            "edges": edges + [[0, i] for i in range(1, members, 2)],
            "left_out": max(0, self.size - 30),
        }

    def targets(self, body: dict[str, Any]) -> dict[str, str]:
        found: dict[str, str] = {}
        for one in body["answers"]:
            whole = [id for number in one["groups"] for id in self.ids(number)]
            for id in {*whole, *one["ids"]} - set(one["without"]):
                if found.setdefault(id, one["label"]) != one["label"]:
                    raise HTTPException(422, f"vertex {id!r} has two answers")
        return found

    def clashes(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        old = {id: label for id, (label, _) in self.suspects.items()} | self.labels | self.others
        return [
            {"id": id, "label": old[id], "answer": label}
            for id, label in self.targets(body).items()
            if old.get(id, label) != label
        ]

    def check(self, grouping: int | None) -> None:
        if grouping is not None and grouping != self.grouping:
            raise HTTPException(409, "the groups were computed again since you loaded them. Load them again")

    def status(self) -> dict[str, Any]:
        flagged = (
            sum(self.left(number) for number in range(1, self.count + 1))
            if self.count < 100
            else self.count * self.size
        )
        fresh = len(self.labels)
        job = next((job for job in self.jobs if job["state"] in ("queued", "running")), None)
        action = "update" if fresh else "review" if flagged else "add"
        return {
            "version": self.version, "kept": 1, "vertices": 21_000, "edges": 190_000, "labelled": 20_000, "first_time": 1993,
            "last_time": 2019, "classes": len(self.classes), "retired": [], "model": 2, "model_restart": "warm", "model_why": "as set",
            "history": 4, "history_why": "auto", "fresh_labels": fresh, "undecided": 0, "to_review": flagged, "next_command": action,
            "next_arguments": [], "next_why": "flagged vertices may belong to new classes", "tags": {}, "last_labelled": 2018,
            "label_lag": 1, "warnings": ["the latest labelled period is 2018"], "inputs": ["words"], "name": self.name(3, "metamath"),
            "job": job, "next_action": action,
        }  # fmt: skip


def build(fake: Fake) -> FastAPI:
    app = FastAPI()
    api = "/api/v1"

    @app.exception_handler(HTTPException)
    async def problem(_: Request, error: HTTPException) -> JSONResponse:
        more = error.detail if isinstance(error.detail, dict) else {"detail": error.detail}
        return JSONResponse(
            {"type": "about:blank", "title": "problem", "status": error.status_code} | more, error.status_code
        )

    @app.middleware("http")
    async def guard(request: Request, call: Any) -> Any:
        request.state.user, request.state.csrf = SimpleNamespace(name="ada", role=fake.role), "token"
        if fake.broken and request.url.path.startswith(api):
            return JSONResponse({"title": "busy", "status": 503, "detail": "the disk is full"}, 503)
        if request.method != "GET" and request.headers.get("x-csrf-token") != "token":
            return JSONResponse({"title": "forbidden", "status": 403, "detail": "the CSRF token is missing"}, 403)
        answer = await call(request)
        answer.headers["Content-Security-Policy"] = CSP
        return answer

    @app.get(f"{api}/status")
    async def status() -> Any:
        return fake.status()

    @app.get(f"{api}/versions")
    async def versions(limit: int = 50, before: int | None = None) -> Any:
        rows = [row for row in fake.versions if before is None or row["version"] < before]
        return {"versions": rows[:limit], "next": rows[limit - 1]["version"] if len(rows) > limit else None}

    @app.get(f"{api}/classes")
    async def classes() -> Any:
        rows = [
            {"name": name, "first": 1993, "last": 2019, "support": count, "known": True, "retired": False}
            for name, count in fake.classes.items()
        ]
        return {"classes": rows}

    @app.get(f"{api}/scores")
    async def scores() -> Any:
        rows = [
            {"time": 2012 + i, "decided": 900, "labelled": 880, "flagged": 0.1 + i % 3 / 20, "accuracy": 0.7 + i / 50,
             "id_accuracy": 0.78 + i / 60, "open_f1": 0.6, "mcc": 0.5, "unseen": 0.12, "latency": 1.0, "drift": 0.2, "models": [1]}
            for i in range(8)
        ]  # fmt: skip
        return {"scores": rows, "version": fake.version}

    @app.get(f"{api}/drift")
    async def drift() -> Any:
        return {"drift": [{"time": 2012 + i, "drift": None if i == 0 else 0.15 + i % 4 / 20} for i in range(8)]}

    @app.get(f"{api}/groups")
    async def groups(limit: int = 20, cursor: int = 0) -> Any:
        last = min(fake.count, cursor + limit)
        flagged = fake.status()["to_review"]
        return {
            "grouping": fake.grouping, "version": fake.version, "groups": [fake.group(i + 1) for i in range(cursor, last)],
            "total": fake.count, "flagged": flagged, "alone": 0, "next": last if last < fake.count else None,
        }  # fmt: skip

    @app.get(f"{api}/groups/{{number}}/members")
    async def members(number: int, grouping: int, cursor: int = 0, limit: int = 50) -> Any:
        fake.check(grouping)
        last = min(fake.size, cursor + limit)
        return {
            "vertices": [fake.vertex(number, i) for i in range(cursor, last)],
            "next": last if last < fake.size else None,
        }

    @app.get(f"{api}/groups/{{number}}/sample")
    async def sample(number: int, grouping: int, size: int = 10, seed: int = 0) -> Any:
        fake.check(grouping)
        return {"vertices": [fake.vertex(number, i) for i in range(min(size, fake.size))], "of": fake.left(number)}

    @app.get(f"{api}/groups/{{number}}/split")
    async def split(number: int, grouping: int) -> Any:
        fake.check(grouping)
        ids, one = fake.ids(number), fake.group(number)
        halves = [ids[: len(ids) // 3], ids[len(ids) // 3 :]]
        return {
            "parts": [
                {"size": len(half), "terms": one["terms"][:3], "exemplars": one["exemplars"][:2], "ids": half}
                for half in halves
            ]
        }

    @app.get(f"{api}/groups/{{number}}/graph")
    async def graph(number: int, grouping: int) -> Any:
        fake.check(grouping)
        return fake.graph(number)

    @app.get(f"{api}/graph/neighbourhood/{{id:path}}")
    async def neighbourhood(id: str, hops: int = 1, limit: int = 60) -> Any:
        found = fake.graph(fake.find(id)[0])
        for place, node in enumerate(found["nodes"]):
            node["centre"] = place == 0
        found["nodes"][0]["id"] = id
        return found

    @app.get(f"{api}/vertices/{{id:path}}/explanation")
    async def explanation(id: str) -> Any:
        await asyncio.sleep(0.2)
        signals = [
            {
                "name": "distance",
                "meaning": "distance to the nearest known class",
                "direction": "unseen",
                "contribution": 0.8,
            },
            {
                "name": "entropy",
                "meaning": "how undecided the model is",
                "direction": "known",
                "contribution": -0.3,
            },
        ]
        return {
            "because": [{"text": fake.name(4, "word “matrix” speaks for Matrices")}],
            "signals": signals,
            "detector": "The detector auto flags a score above 0.5.",
        }

    @app.get(f"{api}/vertices/{{id:path}}")
    async def vertex(id: str) -> Any:
        group, place = fake.find(id)
        one = fake.vertex(group, place)
        decision = {
            "version": 7,
            "model": 2,
            "class": "unseen",
            "score": one["score"],
            "best": one["best"],
            "probability": 0.4,
        }
        nearest = [{"class": name, "probability": 0.5 / (i + 1)} for i, name in enumerate(fake.classes)][:5]
        label = fake.suspects[id][0] if id in fake.suspects else fake.labels.get(id)
        return one | {
            "id": id, "label": label, "neighbours": [{"class": name, "count": 2} for name in fake.classes][:4], "group": group,
            "decision": decision | {"id": id, "nearest": nearest}, "decisions": [decision],
        }  # fmt: skip

    @app.get(f"{api}/queue")
    async def queue(limit: int = 20, seed: int = 0) -> Any:
        reasons = ["flagged", "uncertain", "accepted"]
        items = [
            fake.vertex(1 + i % max(1, fake.count), i % fake.size) | {"reason": reasons[i % 3], "nearest": []}
            for i in range(6)
        ]
        return {"items": [item for item in items if item["label"] is None] if fake.count else [], "why": WHY}

    @app.get(f"{api}/suspects")
    async def suspects(limit: int = 20, cursor: str | None = None) -> Any:
        rows = [
            fake.vertex(1, 0) | {"id": id, "label": old, "suggested": new, "probability": 0.97, "margin": 0.9}
            for id, (old, new) in fake.suspects.items()
        ]
        return {"suspects": rows if fake.count else [], "next": None}

    @app.post(f"{api}/answers/preview")
    async def preview(request: Request) -> Any:
        body = await request.json()
        fake.check(body["grouping"])
        found = {id: label for id, label in fake.targets(body).items() if id not in fake.labels}
        counts = Counter(found.values())
        new = [name for name in counts if name not in fake.classes]
        warnings = [f"the new class {name!r} has a small letter" for name in new if name[:1].islower()]
        rows = [{"class": name, "count": count} for name, count in counts.items()]
        return {
            "labels": len(found),
            "new_classes": new,
            "per_class": rows,
            "warnings": warnings,
            "conflicts": fake.clashes(body),
        }

    @app.post(f"{api}/answers")
    async def answers(request: Request) -> Any:
        body, key = await request.json(), request.headers["idempotency-key"]
        if key in fake.answered:
            return fake.answered[key]
        fake.check(body["grouping"])
        clashes = fake.clashes(body)
        if clashes and body["conflicts"] == "refuse":
            raise HTTPException(
                409, {"detail": f"{len(clashes)} vertices got another label meanwhile", "conflicts": clashes}
            )
        kept = {one["id"] for one in clashes} if body["conflicts"] == "keep" else set()
        fake.before.append((dict(fake.labels), set(fake.dismissed)))
        for id, label in fake.targets(body).items():
            if id not in kept:
                fake.labels[id] = label
                fake.others.pop(id, None)
                fake.suspects.pop(id, None)
                fake.classes.setdefault(label, 0)
                fake.classes[label] += 1
        fake.dismissed |= set(body["dismiss"])
        fake.saves += 1
        fake.commit("label", f"{len(fake.targets(body))} labels")
        fake.answered[key] = {
            "version": fake.version,
            "command": "label",
            "what": "labels",
            "parts": [],
            "warnings": [],
        }
        return fake.answered[key]

    @app.post(f"{api}/undo")
    async def undo(request: Request) -> Any:
        if (await request.json())["version"] != fake.version:
            raise HTTPException(409, "others have written since")
        fake.labels, fake.dismissed = fake.before.pop()
        fake.commit("undo", "labels taken back")
        return {"version": fake.version, "command": "undo", "what": "taken back", "parts": [], "warnings": []}

    @app.get(f"{api}/jobs")
    async def jobs() -> Any:
        return {"jobs": fake.jobs}

    @app.get(f"{api}/jobs/{{id}}/events")
    async def events(id: str) -> StreamingResponse:
        job = next(job for job in fake.jobs if job["id"] == id)

        async def stream() -> AsyncIterator[str]:
            steps = 6
            for step in range(steps):
                if job["state"] in ("cancelled", "done"):
                    break
                job.update(state="running", progress=step / steps, message=f"step {step} of {steps}")
                yield f"data: {json.dumps(job)}\n\n"
                while fake.wait_at == step and job["state"] == "running":
                    await asyncio.sleep(0.02)
            if job["state"] == "running":
                job.update(state="done", progress=1, result={"what": "model 3"}, ended="2026-03-09T10:00:00+00:00")
                if job["kind"] == "update":
                    fake.labels.clear()
                    fake.grouping += 1
                    fake.commit("update", "model 3")
            yield f"data: {json.dumps(job)}\n\n"

        return StreamingResponse(stream(), media_type="text/event-stream")

    @app.delete(f"{api}/jobs/{{id}}")
    async def cancel(id: str) -> Any:
        job = next(job for job in fake.jobs if job["id"] == id)
        job["state"] = "cancelled"
        return job

    for path, kind in (("predictions", "predict"), ("updates", "update"), ("reports", "report")):

        @app.post(f"{api}/{path}", status_code=202)
        async def start(kind: str = kind) -> Any:
            job = {
                "id": str(len(fake.jobs) + 1),
                "kind": kind,
                "state": "queued",
                "progress": None,
                "message": "",
                "result": None,
            }
            job |= {"error": None, "who": "ada", "made": "2026-03-09T09:59:00+00:00", "started": None, "ended": None}
            fake.jobs.insert(0, job)
            return job

    app.include_router(router)
    app.mount("/static", StaticFiles(directory=Path(evergraph.service.__file__).with_name("static")))
    return app


@contextmanager
def serving(app: Any) -> Iterator[str]:
    """Serve an app on a free port of this machine, and yield its address."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)
