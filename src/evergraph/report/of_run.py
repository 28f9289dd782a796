"""The story of a run, from nothing but its folder."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from evergraph.errors import InputError
from evergraph.evaluation.decided import Decided, read_decided
from evergraph.evaluation.metrics import Confusion, forward_transfer, over_seeds
from evergraph.evaluation.results import TaskRow, differences
from evergraph.evaluation.run import Run
from evergraph.evaluation.run_folder import KeptRun, read_run
from evergraph.graph.classes import UNSEEN
from evergraph.report.measures import (
    band_of_share,
    band_over_seeds,
    calibration_of,
    confusion_of,
    threshold_of,
)
from evergraph.report.of_graph import differences_of, drift_of, timeline_of
from evergraph.report.run_details import details_of, summary_of, title_of
from evergraph.report.story import Band, Headline, Missing, Review, ReviewRow, Slice, Slices, Story, Transfer

__all__ = ["story_of_run"]

_AGAIN = "run the same command again with --replace"
_NO_GRAPH = Missing(
    f"This run keeps nothing of its graph, for it was made by an earlier Evergraph. To get this part, {_AGAIN}."
)
_HEADLINES: dict[str, tuple[str, Literal["share", "score", "seconds"], str]] = {
    "accuracy": ("Accuracy", "share", "New vertices whose most likely known class is right."),
    "id_accuracy": ("Accuracy, known classes", "share", "The same among vertices whose class the learner knew."),
    "mcc": ("Unseen classes, MCC", "score", "Held to be unseen against truly unseen: 1 is perfect, 0 is guessing."),
    "open_f1": ("Open F1", "score", "F1 averaged over classes, with “unseen” as one more class."),
    "auroc": ("AUROC", "score", "Chance that a vertex of an unseen class scores higher than one of a known class."),
    "seconds": ("Time", "seconds", "Training and deciding, all tasks of one seed."),
}


def story_of_run(folder: Path, against: Path | None = None) -> Story:
    """Tell a run.

    Parameters
    ----------
    folder
        Where it is. A run that is not finished is told as far as it is; seeds that are behind the others are left out.
    against
        Folder of a run of the same tasks that starts cold, to tell the forward transfer.
    """
    run = read_run(folder)
    rows, notes = _finished(run)
    seeds, times = tuple(rows), tuple(str(row.time) for row in next(iter(rows.values())))
    decided = _decided(run, rows)
    told = _of_graph(run, seeds, times)
    drift = told["drift"]
    moves = {} if isinstance(drift, Missing) else dict(zip(drift.times, drift.step, strict=True))
    return Story(
        kind="run",
        notes=notes,
        headlines=_headlines(run, rows),
        slices=_slices(rows, moves),
        transfer=_transfer(run, rows, against),
        **told,
        **_of_decisions(run, decided, seeds),
        review=decided if isinstance(decided, Missing) else _review(decided[seeds[0], times[-1]], times[-1], seeds),
    )


def _of_graph(run: KeptRun, seeds: Sequence[int], times: Sequence[str]) -> dict[str, Any]:
    """The parts that are told by what is kept of the graph, and by the settings."""
    size = run.rows[seeds[0]][0].history
    history = None if isinstance(size, str) else size
    facts = run.graph
    try:
        return {
            "title": title_of(run),
            "summary": summary_of(run, seeds, times),
            "drift": _NO_GRAPH if facts is None else drift_of(facts),
            "timeline": _NO_GRAPH if facts is None else timeline_of(facts),
            "differences": _NO_GRAPH if facts is None else differences_of(facts, history),
            "details": details_of(run, seeds),
        }
    except (LookupError, TypeError, ValueError, AttributeError, ZeroDivisionError) as error:
        problem = "this is not what a run keeps of its graph, or it is damaged"
        fix = "remove the file and run the same command again, which writes it anew"
        raise InputError(problem, file=run.path / "graph.json", fix=fix) from error


def _finished(run: KeptRun) -> tuple[dict[int, tuple[TaskRow, ...]], tuple[str, ...]]:
    """The rows of the seeds that are as far as any, and what to say of the others."""
    if not run.rows:
        fix = "wait for its first task, or run the same command again"
        raise InputError("the run has no finished task yet", file=run.path, fix=fix)
    done = max((tuple(row.time for row in rows) for rows in run.rows.values()), key=len)
    whole = {seed: rows for seed, rows in run.rows.items() if tuple(row.time for row in rows) == done}
    notes = []
    told = run.graph or {}
    planned = len([time for time in told.get("times", done) if time >= told.get("first_task", done[0])])
    if len(done) < planned:
        notes.append(f"The run is not finished: {len(done)} of {planned} tasks are done.")
    behind = [str(seed) for seed in run.rows if seed not in whole]
    if behind:
        notes.append(f"Left out, for it has fewer tasks than others: seed {', '.join(behind)}.")
    return whole, tuple(notes)


def _headlines(run: KeptRun, rows: Mapping[int, tuple[TaskRow, ...]]) -> tuple[Headline, ...]:
    summary = Run(run.identity["configuration"], rows).summary()
    return tuple(
        Headline(name, summary[key]["mean"], summary[key]["ci95"], kind, meaning)
        for key, (name, kind, meaning) in _HEADLINES.items()
    )


# --- slices ----------------------------------------------------------------------------------------------------------


def _slices(rows: Mapping[int, tuple[TaskRow, ...]], drift: Mapping[str, float | None]) -> Slices:
    intervals = (
        "Bands are Wilson’s 95 % intervals of a share of so many vertices; only several seeds show how training varies."
        if len(rows) == 1
        else f"Bands are 95 % intervals of the mean over {len(rows)} seeds; with few seeds they are wide."
    )
    return Slices(tuple(_slice(task, drift) for task in zip(*rows.values(), strict=True)), intervals)


def _slice(rows: Sequence[TaskRow], drift: Mapping[str, float | None]) -> Slice:
    scores, first = [row.scores for row in rows], rows[0]
    confusions = [one.confusion for one in scores]
    unseen = [(one.tp + one.fn) / scores[0].vertices for one in confusions] if scores[0].vertices else []
    return Slice(
        time=str(first.time),
        vertices=first.test_vertices,
        labelled=scores[0].vertices,
        known_classes=round(_mean([row.known_classes for row in rows]) or 0),
        new_classes=round(_mean([len(row.new_classes) for row in rows]) or 0),
        accuracy=_band([one.accuracy for one in scores], scores[0].vertices),
        known_accuracy=_band([one.id_accuracy for one in scores], confusions[0].tn + confusions[0].fp),
        unseen=_mean(unseen),
        rejected=_band([one.rejected for one in scores], scores[0].vertices),
        mcc=_mean([one.mcc for one in confusions]) if any(unseen) else None,
        open_f1=_mean([one.open_f1 for one in scores]),
        drift=drift.get(str(first.time)),
    )


def _band(values: Sequence[float], n: int) -> Band | None:
    return band_of_share(values[0], n) if len(values) == 1 else band_over_seeds(np.array(values, np.float64))


def _mean(values: Sequence[float]) -> float | None:
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else None


# --- forward transfer ------------------------------------------------------------------------------------------------


def _transfer(run: KeptRun, rows: Mapping[int, tuple[TaskRow, ...]], against: Path | None) -> Transfer | Missing:
    if against is None:
        return Missing(
            "It compares this run with one that starts cold, from fresh weights, at each task. Run the same with "
            "--restart cold into another folder, and name that folder with --against."
        )
    other = read_run(against)
    cold, _ = _finished(other)
    times = [[row.time for row in next(iter(part.values()))] for part in (rows, cold)]
    fix = "give a run on the same graph and of the same tasks, with --restart cold"
    if other.identity["fingerprint"] != run.identity["fingerprint"]:
        raise InputError("this is a run on another graph", file=against, fix=fix)
    if times[0] != times[1]:
        raise InputError("this run has other tasks, or is not as far", file=against, fix=fix)
    here, there = ({seed: _accuracies(of) for seed, of in part.items()} for part in (rows, cold))
    warm, fresh = np.array([*here.values()]), np.array([*there.values()])
    shared = [seed for seed in here if seed in there]
    each = over_seeds([forward_transfer([here[seed]], [there[seed]]) for seed in shared])
    gains = [over_seeds(warm[:, task]).mean - over_seeds(fresh[:, task]).mean for task in range(warm.shape[1])]
    told = differences(other.identity["configuration"], run.identity["configuration"]) or "no setting differs"
    return Transfer(
        value=_or_none(forward_transfer(warm, fresh)),
        half=_or_none(each.half) if len(shared) == len(here) == len(there) else None,
        times=tuple(map(str, times[0])),
        gains=tuple(map(_or_none, gains)),
        against=f"Compared with the run {against.resolve().name}: {told}.",
    )


def _accuracies(rows: Sequence[TaskRow]) -> list[float]:
    return [row.scores.accuracy for row in rows]


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


# --- decisions -------------------------------------------------------------------------------------------------------

_ByTask = dict[tuple[int, str], Decided]


def _decided(run: KeptRun, rows: Mapping[int, tuple[TaskRow, ...]]) -> _ByTask | Missing:
    """The decisions of all tasks; missing where any are, for a part of them would tell another story."""
    found: _ByTask = {}
    missing = 0
    for seed, of_seed in rows.items():
        for row in of_seed:
            path = run.decisions(seed, row.time)
            if path is None:
                missing += 1
                continue
            found[seed, str(row.time)] = one = read_decided(path.read_bytes(), path)
            counted = Confusion.of(one.rejected[one.labelled], one.unseen[one.labelled])
            if len(one) != row.test_vertices or counted != row.scores.confusion:
                raise InputError("these decisions do not fit the results of the run", file=path, fix=_AGAIN)
    if missing:
        tasks = sum(map(len, rows.values()))
        return Missing(
            f"This needs the decisions of each task, and the run does not have them for {missing} of {tasks}: it was "
            f"made, or begun, by an earlier Evergraph. To get this part, {_AGAIN}."
        )
    return found


def _of_decisions(run: KeptRun, decided: _ByTask | Missing, seeds: Sequence[int]) -> dict[str, Any]:
    """The parts that are counted over all decisions."""
    if isinstance(decided, Missing):
        return dict.fromkeys(("confusion", "calibration", "threshold"), decided)
    labelled = [one.labelled for one in decided.values()]

    def joined(name: str) -> Any:
        return np.concatenate([getattr(one, name)[mask] for one, mask in zip(decided.values(), labelled, strict=True)])

    truth, best, unseen, probability = (joined(name) for name in ("truth", "best", "unseen", "probability"))
    detector = run.identity["configuration"].get("detector") or {}
    over = "all tasks of " + (f"seed {seeds[0]}" if len(seeds) == 1 else f"{len(seeds)} seeds")
    return {
        "confusion": confusion_of(truth, np.where(joined("rejected"), UNSEEN, best), unseen, over),
        "calibration": calibration_of(probability, best == truth),
        "threshold": threshold_of(detector, probability, joined("score"), unseen),
    }


def _review(decided: Decided, time: str, seeds: Sequence[int]) -> Review | Missing:
    """The vertices of the last task that are held to be unseen and were described."""
    rejected = np.flatnonzero(decided.rejected)
    if not len(rejected):
        return Missing(f"No vertex of {time} is held to be of an unseen class.")
    described = [row for row in rejected if decided.neighbours[row] is not None]
    rows = sorted(described, key=lambda row: (-decided.score[row], row))
    found = [
        ReviewRow(
            id=str(decided.ids[row]),
            time=time,
            score=float(decided.score[row]),
            best=decided.best[row],
            probability=float(decided.probability[row]),
            words=decided.words[row],
            neighbours=decided.neighbours[row],
            truth=decided.truth[row],
        )
        for row in rows
    ]
    of = "" if len(seeds) == 1 else f" under seed {seeds[0]}"
    number = "1 vertex is" if len(rejected) == 1 else f"{len(rejected):,} vertices are"
    held = f"{number} held to be unseen at {time}{of}"
    which = f"{held}; these are the {len(found)} with the highest scores." if len(found) < len(rejected) else f"{held}."
    return Review(tuple(found), which)
