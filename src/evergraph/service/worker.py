"""A process that predicts, trains, renders and explains for the service, at low priority.

It reads requests as lines of JSON and answers with lines of JSON: progress, then a result or a problem. It ends as
soon as the service ends, because then its input is closed. What it saves is one transaction, so it can be killed at any
moment.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evergraph.errors import EvergraphError, NothingToDoError, StaleError
from evergraph.service.problems import problem, problem_of
from evergraph.service.served import Order, OrderedWorkspace, answer_of

if TYPE_CHECKING:
    from evergraph.learning.attribution import Attribution

__all__ = ["REPORT", "main"]

REPORT = "report.html"
"""The last rendered report, in the folder of the workspace."""

_NICE = 10
_TRIES = 3  # of a prediction that other changes make stale
_EVERY = 0.1  # seconds between two messages of progress
_SIGNALS = 8

Progress = Callable[[float | None, str], None]


def main() -> None:
    """Answer requests until the input is closed."""
    os.nice(_NICE)
    requests: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_read, args=[requests], daemon=True).start()
    folder, threads = Path(sys.argv[1]), int(sys.argv[2])
    import torch

    torch.set_num_threads(threads)
    explainer = _Explainer(folder)
    while True:
        request = json.loads(requests.get())
        try:
            if request["do"] == "explain":
                result = explainer(request["id"])
            else:
                order = Order(request["who"], job=request["job"], attempt=request["attempt"])
                result = _JOBS[request["do"]](folder, order, request["arguments"], _reporter())
            _say(result=result)
        except NothingToDoError as nothing:
            _say(result={"what": f"nothing to do: {nothing.problem}"})
        except EvergraphError as error:
            _say(problem=problem_of(error))
        except Exception as error:
            _say(problem=problem(500, f"The work failed unexpectedly ({type(error).__name__}: {error})."))
            raise


def _read(requests: queue.Queue[str]) -> None:
    for line in sys.stdin:
        requests.put(line)
    os._exit(0)


def _say(**message: Any) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def _reporter() -> Progress:
    last = 0.0

    def report(share: float | None, message: str) -> None:
        nonlocal last
        if time.monotonic() - last > _EVERY or share in (None, 1):
            last = time.monotonic()
            _say(progress=share, message=message)

    return report


# --- jobs ------------------------------------------------------------------------------------------------------------


def _predict(folder: Path, order: Order, arguments: dict[str, Any], report: Progress) -> dict[str, Any]:
    report(None, "deciding the vertices without a label")
    workspace = OrderedWorkspace(folder, wait=60)
    workspace.order = order
    for attempt in range(_TRIES):
        try:
            table = workspace.predict(arguments.get("slice"))
            break
        except StaleError:
            if attempt == _TRIES - 1 or workspace.is_stopped:
                raise
    if workspace.made is not None and workspace.last is not None:
        return answer_of(workspace.last)
    slices = list(dict.fromkeys(table.column("time").to_pylist()))
    return {"version": workspace.state.version, "what": "the same decisions as before", "slices": slices}


def _update(folder: Path, order: Order, arguments: dict[str, Any], report: Progress) -> dict[str, Any]:
    from evergraph.learning.training import steps_a_task
    from evergraph.names import rebuilt

    report(None, "reading the graph")
    workspace = OrderedWorkspace(folder, wait=60)
    workspace.order = order
    settings = workspace.settings()
    total = steps_a_task(settings["steps"], rebuilt(settings["detector"], "detector"))
    report(None, "choosing how to train, by a backtest")

    def on_step(step: int, loss: float) -> None:
        report(min(step / total, 1), f"training step {step} of {total}, loss {loss:.3f}")

    return answer_of(workspace.update(arguments.get("restart") or "auto", on_step=on_step))


def _report(folder: Path, _order: Order, _arguments: dict[str, Any], report: Progress) -> dict[str, Any]:
    from evergraph.report.page import page_of, write_page
    from evergraph.report.workspace import workspace_content
    from evergraph.workspace import Workspace

    report(None, "rendering the report")
    version = Workspace(folder).state.version
    size = write_page(page_of(workspace_content(folder)), folder / REPORT)
    return {"version": version, "what": f"the report of version {version}", "bytes": size}


_JOBS = {"predict": _predict, "update": _update, "report": _report}


# --- explanations ----------------------------------------------------------------------------------------------------


class _Explainer:
    """Explains decisions with the current model, which is kept for the next request."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._slice: tuple[Any, Any] = (None, None)

    def __call__(self, id: str) -> dict[str, Any]:
        from evergraph.workspace import Workspace
        from evergraph.workspace.predict import explain

        workspace = Workspace(self.folder)
        state, graph = workspace.state, workspace.graph
        row = int(graph.find([id])[0])
        time = int(graph.times[row])
        key = (state.version, time)
        if self._slice[0] != key:
            self._slice = (key, _slice_of(workspace, time))
        learner, first, signals = self._slice[1]
        reasons = explain(learner, graph, [row], state.settings.history, state.retired, most=6)[row]
        because = [{"text": _in_words(one), "value": one.total, **asdict(one)} for one in reasons]
        detector = workspace.settings()["detector"]["name"]
        return {
            "because": because,
            "signals": None if signals is None else _signals(signals[row - first]),
            "detector": detector,
        }


def _in_words(reason: Attribution) -> str:
    """Return an input in words, and whether the vertices around have it rather than the vertex itself."""
    around = reason.block != "classes" and abs(reason.own) < abs(reason.neighbours)
    return f"{reason.in_words}, of its neighbours" if around else reason.in_words


def _slice_of(workspace: Any, time: int) -> tuple[Any, int, Any]:
    """Return the learner, the first row of a slice, and what each signal adds for each of its vertices."""
    from evergraph.detect.auto import AutoDetector
    from evergraph.learning.task import Task
    from evergraph.workspace.predict import without_labels_of

    state, learner = workspace.state, workspace.learner()
    task = Task(without_labels_of(workspace.graph, state.retired), time, state.settings.history, mode="inductive")
    first, signals = task.window.rows.start + task.test.start, None
    fitted = learner.detector_
    if isinstance(fitted.detector, AutoDetector):
        rewound = learner.without_classes(state.retired).rewound(time)
        signals = fitted.detector.contributions(rewound.outputs(task), rewound.detector_.state)
    return learner, first, signals


def _signals(values: Any) -> list[dict[str, Any]]:
    """Return the signals that add or take most, each with its meaning."""
    from evergraph.detect.signals import MEANINGS, NAMES

    order = sorted(range(len(NAMES)), key=lambda place: -abs(values[place]))[:_SIGNALS]
    found = []
    for place in order:
        if not values[place]:
            continue
        name, _, similar = NAMES[place].partition(" of ")
        around = " (on average over similar vertices)" if similar else ""
        direction = "unseen" if values[place] > 0 else "known"
        figures = {"contribution": float(values[place]), "direction": direction}
        found.append({"name": NAMES[place], "meaning": MEANINGS[name] + around, **figures})
    return found


if __name__ == "__main__":
    main()
