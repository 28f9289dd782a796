"""Content of the report on a run, read from its folder."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from evergraph.analysis import GraphDescription
from evergraph.errors import InputError
from evergraph.evaluation.configuration import TRAINING_SETTINGS, differences, flat
from evergraph.evaluation.metrics import Confusion, forward_transfer, or_none, over_seeds
from evergraph.evaluation.results import Results, TaskRow, histories, inputs_read
from evergraph.evaluation.run_folder import DecisionTable, StoredRun, decisions_file, read_decisions, read_run
from evergraph.graph.classes import UNSEEN
from evergraph.names import DETECTORS, MODELS, load
from evergraph.report.content import (
    Band,
    FlaggedVertex,
    Headline,
    Missing,
    ReportContent,
    Review,
    Slice,
    Slices,
    Transfer,
)
from evergraph.report.measures import band_of_share, band_over_seeds, calibration_of, confusion_of, threshold_of
from evergraph.storage.decoding import decoding

__all__ = ["run_content"]

_AGAIN = "run the same command again with --replace"
_NO_GRAPH = Missing(
    f"An earlier Evergraph made this run and did not store a description of the graph. To get this part, {_AGAIN}."
)
_HEADLINES: dict[str, tuple[str, Literal["share", "score", "seconds"], str]] = {
    "accuracy": ("Accuracy", "share", "New vertices whose most likely known class is correct."),
    "id_accuracy": ("Accuracy, known classes", "share", "The same for vertices of known classes."),
    "mcc": ("MCC, unseen classes", "score", "Flagged against truly unseen vertices: 1 is perfect, 0 is guessing."),
    "open_f1": ("Open-F1", "score", "F1 averaged over classes, with “unseen” as one more class."),
    "auroc": ("AUROC", "score", "Probability that an unseen vertex has a higher score than a known one."),
    "seconds": ("Time", "seconds", "Training and prediction on all tasks, per seed."),
}
# The command line option of each setting.
_OPTIONS = {"model.name": "--model", "detector.name": "--detector"} | {
    f"{part}{name}": f"--{name.replace('_', '-')}"
    for part, names in (
        ("model.", ("hidden", "layers", "dropout", "hops")),
        ("detector.", ("threshold", "alpha", "objective")),
        ("", (name for name in TRAINING_SETTINGS if name != "model")),
    )
    for name in names
}

_Rows = Mapping[int, tuple[TaskRow, ...]]
_ByTask = dict[tuple[int, str], DecisionTable]


def run_content(folder: Path, against: Path | None = None) -> ReportContent:
    """Read a run; ``against`` is the folder of a run of the same tasks with cold restarts, for the forward transfer.

    An unfinished run is read as far as it is; seeds with fewer tasks than others are left out.
    """
    run = read_run(folder)
    with decoding(folder / "run.json", _damaged):
        return _content(run, against)


def _damaged(path: Path, problem: str) -> InputError:
    return InputError(f"the run is damaged: {problem}", file=path, fix=_AGAIN)


def _content(run: StoredRun, against: Path | None) -> ReportContent:
    graph = _described(run)
    rows, notes = _finished(run, graph)
    seeds, times = tuple(rows), tuple(str(row.time) for row in next(iter(rows.values())))
    results, decided = Results.of(rows), _decided(run, rows)
    summary = results.aggregate()
    size, reached = histories(run.identity["configuration"].get("history", "auto"), rows)
    return ReportContent(
        title=Path(graph.name).name or graph.name if graph and graph.name else run.path.resolve().name,
        kind="run",
        summary=_summary(run, size, seeds, times),
        notes=(*notes, reached) if reached else notes,
        headlines=tuple(
            Headline(name, summary[key]["mean"], summary[key]["ci95"], kind, meaning)
            for key, (name, kind, meaning) in _HEADLINES.items()
        ),
        slices=_slices(results, rows, graph, decided),
        transfer=_transfer(run, rows, against),
        graph=graph or _NO_GRAPH,
        history=None if isinstance(size, str) else size,
        **_of_decisions(run, decided, seeds),
        review=decided if isinstance(decided, Missing) else _review(decided[seeds[0], times[-1]], times[-1], seeds),
        details=_details(run, graph, seeds),
    )


def _described(run: StoredRun) -> GraphDescription | None:
    try:
        return None if run.graph is None else GraphDescription.from_dict(run.graph)
    except msgspec.ValidationError as error:
        problem = "this is not the description of a graph, or it is damaged"
        fix = "remove the file and run the same command again, which writes it again"
        raise InputError(problem, file=run.path / "graph.json", fix=fix) from error


def _finished(run: StoredRun, graph: GraphDescription | None = None) -> tuple[_Rows, tuple[str, ...]]:
    """Return the rows of the seeds with the most tasks, and notes on what is missing."""
    if not run.rows:
        fix = "wait for its first task, or run the same command again"
        raise InputError("no task of the run is finished yet", file=run.path, fix=fix)
    done = max((tuple(row.time for row in rows) for rows in run.rows.values()), key=len)
    whole = {seed: rows for seed, rows in run.rows.items() if tuple(row.time for row in rows) == done}
    notes = []
    planned = len(done if graph is None else graph.times[graph.tasks])
    if len(done) < planned:
        notes.append(f"The run is not finished: {len(done)} of {planned} tasks are done.")
    behind = [str(seed) for seed in run.rows if seed not in whole]
    if behind:
        notes.append(f"Left out because of fewer finished tasks: seed {', '.join(behind)}.")
    return whole, tuple(notes)


# --- settings in words -----------------------------------------------------------------------------------------------


def _summary(run: StoredRun, size: int | str, seeds: Sequence[int], times: Sequence[str]) -> str:
    settings = flat(run.identity["configuration"])
    threshold = settings.get("detector.threshold")
    parts = [
        f"model {settings.get('model.name')}",
        "full history" if size == "full" else f"history {size}",
        f"{settings.get('restart')} restarts",
        f"detector {settings.get('detector.name')}" + ("" if threshold is None else f" at {threshold:g}"),
        f"{settings.get('steps')} steps",
        f"{'seeds' if len(seeds) > 1 else 'seed'} {', '.join(map(str, seeds))}",
        f"{len(times)} tasks, {times[0]} to {times[-1]}" if len(times) > 1 else f"one task, {times[0]}",
    ]
    return " · ".join(parts)


def command_of(settings: Mapping[str, Any], graph: str, seeds: Sequence[int]) -> str | None:
    """Return the command that repeats a run; None if a setting has no option.

    Examples
    --------
    >>> settings = {"model": {"name": "sgc", "hops": 2}, "detector": {"name": "none"}, "lr": None, "steps": 30}
    >>> command_of(settings, "my graph", [0, 1, 2, 5])
    "evergraph run 'my graph' --model sgc --hops 2 --detector none --steps 30 --seeds 0,1,2,5"
    """
    given = flat(settings)
    version, prior = (given.pop(f"detector.{name}", None) for name in ("version", "prior"))
    if given.keys() - _OPTIONS or given.get("model.name") not in MODELS or given.get("detector.name") not in DETECTORS:
        return None
    if prior is not None or (version is not None and load("detector", given["detector.name"]).version != version):
        return None  # the command would flag by something else
    words = [word for name, value in given.items() if value is not None for word in (_OPTIONS[name], str(value))]
    return shlex.join(["evergraph", "run", graph, *words, "--seeds", ",".join(map(str, seeds))])


def _details(run: StoredRun, graph: GraphDescription | None, seeds: Sequence[int]) -> tuple[tuple[str, str], ...]:
    settings = run.identity["configuration"]
    found: dict[str, str] = {}
    if graph is not None:
        if graph.name:
            found["graph"] = graph.name
            if command := command_of(settings, graph.name, seeds):
                found["command"] = command
        found["vertices"], found["edges"] = f"{graph.vertices:,}", f"{graph.edges:,}"
        found["classes"], found["features"] = f"{len(graph.classes):,}", graph.features
        found["periods"] = f"{graph.times[0]} to {graph.times[-1]}, in {graph.time_steps}"
        found |= {f"graph: {key}": value for key, value in graph.about.items()}
    found |= {name: "not set" if value is None else str(value) for name, value in flat(settings).items()}
    if read := inputs_read({seed: run.rows[seed] for seed in seeds}):
        found["inputs"] = f"auto: {read}" if found.get("inputs") == "auto" else read
    found["seeds"] = ", ".join(map(str, seeds))
    found |= {f"seconds, seed {seed}": f"{sum(row.seconds for row in run.rows[seed]):,.1f}" for seed in seeds}
    found["graph fingerprint"] = str(run.identity["fingerprint"])
    found["numerics version"] = str(run.identity["numerics_version"])
    if version := (run.graph or {}).get("evergraph"):
        found["made by"] = f"Evergraph {version}"
    return tuple(found.items())


# --- slices and forward transfer -------------------------------------------------------------------------------------


def _slices(results: Results, rows: _Rows, graph: GraphDescription | None, decided: _ByTask | Missing) -> Slices:
    moves = {} if graph is None else {one.time: one.consecutive for one in graph.drift}
    means = results.task_means()
    shares = {name: results.by_task(name).T for name in ("accuracy", "id_accuracy", "rejected")}
    found = []
    for task, (row, mean) in enumerate(zip(next(iter(rows.values())), means, strict=True)):
        labelled, counts = row.scores.vertices, row.scores.confusion
        unseen = mean["unseen"] / labelled if labelled else None
        found.append(
            Slice(
                time=str(row.time),
                vertices=row.test_vertices,
                labelled=labelled,
                known_classes=round(mean["known_classes"]),
                unseen_classes=_unseen_classes(decided, rows, str(row.time)) if labelled else None,
                accuracy=_band(shares["accuracy"][task], labelled),
                known_accuracy=_band(shares["id_accuracy"][task], counts.tn + counts.fp),
                unseen=unseen,
                flagged=_band(shares["rejected"][task], row.test_vertices),
                mcc=mean["mcc"],
                open_f1=mean["open_f1"],
                drift=moves.get(row.time),
            )
        )
    return Slices(
        tuple(found),
        "Bands are 95 % intervals for the number of vertices (Wilson). To see how training varies, run several seeds."
        if len(rows) == 1
        else f"Bands are 95 % intervals of the mean over {len(rows)} seeds. They are wide with few seeds.",
    )


def _unseen_classes(decided: _ByTask | Missing, rows: _Rows, time: str) -> float | None:
    """Return how many classes of a slice the learner did not know, as a mean over seeds."""
    if isinstance(decided, Missing):
        return None
    found = [decided[seed, time] for seed in rows]
    return float(np.mean([len(set(one.truth[one.unseen].tolist())) for one in found]))


def _band(values: np.ndarray[Any, np.dtype[np.float64]], n: int) -> Band | None:
    return band_of_share(float(values[0]), n) if len(values) == 1 else band_over_seeds(values)


def _transfer(run: StoredRun, rows: _Rows, against: Path | None) -> Transfer | Missing:
    if against is None:
        return Missing(
            "Forward transfer compares this run with a run with cold restarts, which trains from new weights in each "
            "task. To get this part, run the same command with --restart cold and another --out folder, and pass that "
            "folder to evergraph report with --against."
        )
    other = read_run(against)
    here, there = Results.of(rows), Results.of(_finished(other)[0])
    fix = "give a run of the same tasks on the same graph, with --restart cold"
    if other.identity["fingerprint"] != run.identity["fingerprint"]:
        raise InputError("this is a run on another graph", file=against, fix=fix)
    if here.times != there.times:
        raise InputError("this run has other tasks, or fewer of them", file=against, fix=fix)
    warm, fresh = here.by_task("accuracy"), there.by_task("accuracy")
    shared = [seed for seed in here.seeds if seed in there.seeds]
    by_seed = [(warm[[here.seeds.index(seed)]], fresh[[there.seeds.index(seed)]]) for seed in shared]
    each = over_seeds([forward_transfer(*pair) for pair in by_seed])
    gains = [over_seeds(warm[:, task]).mean - over_seeds(fresh[:, task]).mean for task in range(warm.shape[1])]
    changed = differences(other.identity["configuration"], run.identity["configuration"]) or "no setting differs"
    return Transfer(
        value=or_none(forward_transfer(warm, fresh)),
        half=or_none(each.half) if len(shared) == len(here.seeds) == len(there.seeds) else None,
        times=tuple(map(str, here.times)),
        gains=tuple(map(or_none, gains)),
        against=f"Compared with the run {against.resolve().name}: {changed}.",
    )


# --- decisions -------------------------------------------------------------------------------------------------------


def _decided(run: StoredRun, rows: _Rows) -> _ByTask | Missing:
    """Return the decisions of all tasks; `Missing` if any are missing, because a part would mislead."""
    found: _ByTask = {}
    missing = 0
    for seed, of_seed in rows.items():
        for row in of_seed:
            path = decisions_file(run.path, seed, row.time)
            if not path.is_file():
                missing += 1
                continue
            found[seed, str(row.time)] = one = read_decisions(path.read_bytes(), path)
            counted = Confusion.of(one.flagged[one.labelled], one.unseen[one.labelled])
            if len(one) != row.test_vertices or counted != row.scores.confusion:
                raise InputError("the decisions do not match the results of the run", file=path, fix=_AGAIN)
    if missing:
        tasks = sum(map(len, rows.values()))
        return Missing(
            f"The decisions of {missing} of {tasks} tasks are missing: an earlier Evergraph made or started this run. "
            f"To get this part, {_AGAIN}."
        )
    return found


def _of_decisions(run: StoredRun, decided: _ByTask | Missing, seeds: Sequence[int]) -> dict[str, Any]:
    """Return the parts that count all decisions."""
    if isinstance(decided, Missing):
        return dict.fromkeys(("confusion", "calibration", "threshold"), decided)
    labelled = [one.labelled for one in decided.values()]

    def joined(name: str) -> Any:
        return np.concatenate([getattr(one, name)[mask] for one, mask in zip(decided.values(), labelled, strict=True)])

    truth, best, unseen, probability = (joined(name) for name in ("truth", "best", "unseen", "probability"))
    detector = run.identity["configuration"].get("detector") or {}
    over = "all tasks of " + (f"seed {seeds[0]}" if len(seeds) == 1 else f"{len(seeds)} seeds")
    return {
        "confusion": confusion_of(truth, np.where(joined("flagged"), UNSEEN, best), unseen, over),
        "calibration": calibration_of(probability, best == truth),
        "threshold": threshold_of(detector, probability, joined("score"), unseen),
    }


def _review(decided: DecisionTable, time: str, seeds: Sequence[int]) -> Review | Missing:
    """Return the flagged vertices of the last task that have words and neighbours."""
    flagged = np.flatnonzero(decided.flagged)
    if not len(flagged):
        return Missing(f"No vertex of {time} is flagged as unseen.")
    described = [row for row in flagged if decided.neighbours[row] is not None]
    found = [
        FlaggedVertex(
            id=str(decided.ids[row]),
            time=time,
            score=float(decided.score[row]),
            best=decided.best[row],
            probability=float(decided.probability[row]),
            words=decided.words[row],
            neighbours=decided.neighbours[row],
            truth=decided.truth[row],
            text=decided.texts[row],
            because=decided.because[row],
        )
        for row in sorted(described, key=lambda row: (-decided.score[row], row))
    ]
    with_seed = "" if len(seeds) == 1 else f" with seed {seeds[0]}"
    which = f"{len(flagged):,} of {len(decided):,} vertices of {time} are flagged as unseen{with_seed}."
    if len(found) < len(flagged):
        which += f" The table has the {len(found)} with the highest scores."
    return Review(tuple(found), which)
