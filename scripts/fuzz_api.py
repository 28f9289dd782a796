"""Send many cases that schemathesis makes from the OpenAPI document to the service, and check every answer.

    python scripts/fuzz_api.py                         # 20,000 cases and more, seed 0
    python scripts/fuzz_api.py --examples 20 --only "POST /api/v1/labels"

Each operation gets a service of its own in this process, on a fresh copy of a small workspace with decided, flagged and
labelled vertices. Half of the ids, group numbers, class names and cursors are real ones, so that requests reach more
than the first check. Worker processes are replaced by one that answers at once: jobs do not train.

All of schemathesis's checks of a response are on: no server error; status code, content type, headers and body as the
document says; data that contradicts the document is refused, with 413 if it is too large; so are missing headers,
missing tokens and unknown methods. "Positive data acceptance" also allows 413, 415 and 422, because a request can have
the right form and be wrong, as with a vertex that does not exist. "Use after free" is off: DELETE cancels a job,
which can still be read.
"""

from __future__ import annotations

import argparse
import json
import logging
import shutil
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import schemathesis
import torch
from schemathesis.engine import events, from_schema
from schemathesis.python import asgi

from evergraph import EvolvingGraph
from evergraph.datasets import synthetic
from evergraph.datasets.tables import to_tables
from evergraph.detect import DOC
from evergraph.nn import MLP
from evergraph.service import jobs
from evergraph.service.app import build_app
from evergraph.service.auth import create_token
from evergraph.service.options import Options
from evergraph.service.served import Order, Served
from evergraph.service.worker import REPORT
from evergraph.workspace import Workspace

DOCUMENT = "/api/v1/openapi.json"
PORT = 9  # schemathesis also sends two requests over the network; no service is there
HOST = f"127.0.0.1:{PORT}"
CASES = 20_000
SEQUENCES = "sequences of operations"
OF_OPERATIONS, OF_SEQUENCES = ("examples", "coverage", "fuzzing"), ("stateful",)


class Idle(jobs.Worker):
    """A worker that answers at once: with a result, or with a problem if the job's number is a multiple of three."""

    alive = True

    def __init__(self, folder: Path, threads: int) -> None:
        pass

    def ask(self, request: dict[str, Any], on_progress: Callable[[float | None, str], None]) -> dict[str, Any]:
        """Return a result."""
        on_progress(0.5, "half done")
        if request["do"] == "explain":
            signal = {"name": "a", "meaning": "b", "contribution": 0.5, "direction": "unseen"}
            reason = {"text": "c", "value": 0.5, "block": "words", "name": "c", "own": 0.5, "neighbours": 0.0}
            return {"result": {"because": [reason], "signals": [signal], "detector": "doc"}}
        if request["job"] % 3 == 0:
            return {"problem": {"type": "about:blank", "title": "Conflict", "status": 409, "detail": "It was stopped."}}
        return {"result": {"version": 1, "what": "nothing"}}

    def kill(self) -> None:
        """Do nothing."""


@dataclass
class Findings:
    """What a campaign found: cases and those answered with 2xx by operation, answers by status, and failures."""

    cases: Counter[str] = field(default_factory=Counter)
    done: Counter[str] = field(default_factory=Counter)
    statuses: Counter[int] = field(default_factory=Counter)
    checks: Counter[str] = field(default_factory=Counter)
    failures: Counter[tuple[str, str]] = field(default_factory=Counter)
    examples: dict[tuple[str, str], str] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    def add(self, recorder: Any, name: str) -> None:
        """Count the cases of a scenario."""
        for number, one in recorder.cases.items():
            found = recorder.interactions.get(number)
            if found is None or found.response is None:
                continue
            self.cases[name] += 1
            self.done[name] += found.response.status_code < 300
            self.statuses[found.response.status_code] += 1
            for check in recorder.checks.get(number, ()):
                self.checks[check.name] += 1
                if check.failure_info is not None:
                    failure = check.failure_info.failure
                    key = (one.value.operation.label, f"{check.name}: {failure.title}")
                    self.failures[key] += 1
                    body = found.response.content[:300]
                    shown = f"{failure.message[:600]}\n{check.failure_info.code_sample[:600]}\n{body!r}"
                    self.examples.setdefault(key, shown)

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.failures and not self.errors

    def as_dict(self) -> dict[str, Any]:
        """Return the figures for JSON."""
        return {
            "cases": sum(self.cases.values()),
            "operations": {name: [count, self.done[name]] for name, count in self.cases.items()},
            "statuses": {str(status): count for status, count in sorted(self.statuses.items())},
            "checks": dict(self.checks),
            "failures": [[*key, count] for key, count in self.failures.items()],
            "errors": self.errors,
        }


def make_workspace(folder: Path) -> None:
    """Make a workspace with two decided slices, the first with some labels, and two later models."""
    graph = synthetic(vertices=480, times=8, classes=4, new_classes=2, words=120, words_per_vertex=5, seed=2)
    old = EvolvingGraph.build(*to_tables(graph, last=3))
    workspace = Workspace.create(
        folder, old, model=MLP(hidden=8), detector=DOC(0.75), steps=20, lr=0.05, history=2, keep=20
    )
    workspace.add(*to_tables(graph, 4, 4, labels=False))
    workspace.predict()
    table = to_tables(graph, 4, 4)[0].to_pylist()
    workspace.label([row["id"] for row in table[::2]], [row["label"] for row in table[::2]])
    workspace.update("warm")
    workspace.add(*to_tables(graph, 5, 5, labels=False))
    workspace.predict()
    workspace.tag("first", 1)
    late = to_tables(graph, 5, 5)[0].to_pylist()[:5]
    workspace.label([row["id"] for row in late], [row["label"] for row in late])
    waiting = jobs.Jobs(Served(folder), 1)
    for kind in ("report", "predict", "update"):
        waiting.create(Order("fuzz"), kind, {})
    (folder / REPORT).write_text("<!doctype html><title>Report</title>", encoding="utf-8")


def config_of(folder: Path, token: str, examples: int, seed: int, phases: Collection[str]) -> schemathesis.Config:
    """Return the configuration of schemathesis, with values that exist in the workspace."""
    workspace = Workspace(folder)
    ids = list(workspace.decisions())[::9]
    names = [row.name for row in workspace.classes()][:4]
    values: dict[str, list[Any]] = {
        "ids": [int(id) for id in ids],
        "paths": ids,
        "names": [*names, "unseen", "brand new", "=1+1", "<b>x</b>"],
        "numbers": [1, 2, 3],
        "versions": [workspace.state.version, 1, 2],
        "cursors": ["Mw", "MTAw", "MA"],
        "matches": [f'"{workspace.state.version}"', "*", '"1"'],
        "keys": ["one", "two", "three"],
        "slices": ["4", "5", "99"],
        "types": ["application/json", "text/csv", "application/vnd.apache.parquet", "*/*"],
    }
    bound = {
        "path.id": "paths",
        "path.job": "numbers",
        "path.number": "numbers",
        "query.cursor": "cursors",
        "query.slice": "slices",
        "query.class": "names",
        "query.group": "numbers",
        "header.accept": "types",
        "header.Idempotency-Key": "keys",
        "header.If-Match": "matches",
        "body.labels[*].id": "ids",
        "body.labels[*].label": "names",
        "body.ids[*]": "ids",
        "body.name": "names",
        "body.to": "names",
        "body.into": "names",
        "body.names[*]": "names",
        "body.group": "numbers",
        "body.version": "versions",
        "body.slice": "slices",
        "body.answers[*].label": "names",
        "body.answers[*].groups[*]": "numbers",
        "body.answers[*].ids[*]": "ids",
        "body.answers[*].without[*]": "ids",
        "body.dismiss[*]": "numbers",
        "body.vertices[*].id": "ids",
        "body.edges[*].source": "ids",
        "body.edges[*].target": "ids",
    }
    accepted = ["2xx", "401", "403", "404", "409", "413", "415", "422", "429"]
    return schemathesis.Config.from_dict(
        {
            "seed": seed,
            "dictionaries": {name: {"values": found} for name, found in values.items()},
            "parameters": {name: {"dictionary": found, "probability": 0.5} for name, found in bound.items()},
            "generation": {
                "max-examples": examples,
                "deterministic": True,
                "no-shrink": True,
                "with-security-parameters": False,
            },
            "phases": {name: {"enabled": name in phases} for name in (*OF_OPERATIONS, *OF_SEQUENCES)},
            "checks": {
                "positive_data_acceptance": {"expected-statuses": accepted},
                "use_after_free": {"enabled": False},
                "negative_data_rejection": {"expected-statuses": [*accepted[1:], "400", "405"]},
            },
            "continue-on-failure": True,
            "base-url": f"http://{HOST}",
            "headers": {"Host": HOST, "Authorization": f"Bearer {token}"},
        }
    )


def with_vertices(context: Any, body: Any) -> Any:
    """Let half of the slices have vertices that can be added."""
    if context.operation.path.endswith("/slices") and isinstance(body, dict) and isinstance(body.get("vertices"), list):
        number = zlib.crc32(repr(body).encode("utf-8", "replace"))
        if number % 2 and all(isinstance(row, dict) for row in body["vertices"]):
            rows = [{"id": number + at, "time": 6, "text": "w1 w2"} for at in range(len(body["vertices"]))]
            return {"vertices": rows or [{"id": number, "time": 6, "text": "w3"}]}
    return body


def run(
    template: Path,
    operation: tuple[str, str] | None,
    examples: int,
    seed: int,
    findings: Findings,
    phases: Collection[str],
) -> None:
    """Send cases to one operation, given by method and path, or to all."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "ws"
        shutil.copytree(template, folder)
        token = create_token(folder, "fuzz", "admin")
        app = build_app(folder, Options(port=PORT, rate=1e9, max_rows=10_000, max_body=1 << 20))
        config = config_of(folder, token, examples, seed, phases)
        headers = {"Host": HOST, "Authorization": f"Bearer {token}"}
        schema = schemathesis.openapi.from_asgi(DOCUMENT, app, config=config, headers=headers)
        if operation is not None:
            schema = schema.include(method=operation[0], path=operation[1])
        schema.hook("map_body")(with_vertices)
        for event in from_schema(schema).execute():
            if isinstance(event, events.ScenarioFinished):
                findings.add(event.recorder, SEQUENCES if phases == OF_SEQUENCES else event.recorder.label)
            elif isinstance(event, events.NonFatalError):
                findings.errors.append(f"{event.label}: {event.value}")
            elif isinstance(event, events.FatalError):
                findings.errors.append(str(event.exception))
        asgi.shutdown_lifespans()


def operations_of(template: Path) -> list[tuple[str, str]]:
    """Return method and path of all operations."""
    from evergraph.service.app import openapi

    document = openapi(build_app(template, Options()))
    return [(method.upper(), path) for path, found in document["paths"].items() for method in found]


def campaign(
    root: Path, examples: int, seed: int, only: str | None = None, say: Callable[[str], Any] = print
) -> Findings:
    """Run all operations, or the one whose method and path are given; return what was found."""
    template, findings = root / "template", Findings()
    make_workspace(template)
    wanted: list[tuple[str, str] | None] = [one for one in operations_of(template) if only in (None, " ".join(one))]
    if only is None:
        wanted.append(None)
    for number, operation in enumerate(wanted):
        start = time.monotonic()
        phases, name = (OF_OPERATIONS, " ".join(operation)) if operation else (OF_SEQUENCES, SEQUENCES)
        run(template, operation, examples, seed + number, findings, phases)
        seconds = time.monotonic() - start
        say(f"{findings.cases[name]:6,} cases, {findings.done[name]:6,} done {seconds:6.1f} s  {name}")
    return findings


def main() -> int:
    """Run a campaign and print what it found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=900, help="of each operation and phase")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help="method and path of one operation")
    parser.add_argument("--json", type=Path, help="a file for the figures")
    options = parser.parse_args()
    torch.set_num_threads(1)
    jobs.Worker = Idle  # type: ignore[misc]
    logging.getLogger("evergraph.service").setLevel(logging.CRITICAL)
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as root:
        findings = campaign(Path(root), options.examples, options.seed, options.only)
    total = sum(findings.cases.values())
    print(f"\n{total:,} cases in {time.monotonic() - start:.0f} s, seed {options.seed}")
    print("answers:", ", ".join(f"{status}: {count:,}" for status, count in sorted(findings.statuses.items())))
    print("checks:", ", ".join(f"{name}: {count:,}" for name, count in sorted(findings.checks.items())))
    for key, count in findings.failures.items():
        print(f"\n{count:,} x {key[0]}: {key[1]}\n{findings.examples[key]}")
    for error in findings.errors:
        print("\nerror:", error)
    if options.json:
        options.json.write_text(json.dumps(findings.as_dict(), indent=1) + "\n", encoding="utf-8")
    if findings.ok and options.only is None and total < CASES:
        print(f"fewer than {CASES:,} cases: give more --examples")
        return 1
    return int(not findings.ok)


if __name__ == "__main__":
    sys.exit(main())
