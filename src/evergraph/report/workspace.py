"""Content of the report on a workspace: how well its deployed models did."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from evergraph import __version__
from evergraph.analysis import GraphDescription, describe
from evergraph.analysis.explain import shortened
from evergraph.errors import DamagedWorkspaceError, InputError
from evergraph.evaluation.configuration import flat
from evergraph.learning.checkpoint import unpack_vocabulary
from evergraph.names import inputs_in_words
from evergraph.presentation.text import command_line, counted
from evergraph.report.content import (
    Band,
    FlaggedGroup,
    FlaggedVertex,
    Groups,
    Headline,
    Missing,
    ReportContent,
    Review,
    Slice,
    Slices,
)
from evergraph.report.measures import band_of_share, calibration_of, confusion_of, threshold_of
from evergraph.workspace import Workspace
from evergraph.workspace.scores import SliceScores, Status
from evergraph.workspace.store import ModelRecord

__all__ = ["workspace_content"]

_MOST = 20  # vertices to review
_COMMANDS = 20  # of the log, the last ones
_CHANGED = Missing("The model or the detector was changed, and no vertex that it decided since then has a label yet.")


def workspace_content(folder: Path) -> ReportContent:
    """Read a workspace."""
    workspace = Workspace(folder)
    state, graph, slices = workspace.state, workspace.graph, workspace.scores()
    status, described, models = workspace.status(), workspace.describe_model(), workspace.models()
    times = [row["period"] for row in workspace.decisions().values()] or [state.model.time]
    facts = describe(graph, folder.resolve().name, first=min(times), past=True)
    by_time = workspace.scored_decisions()
    scored = [row for rows in by_time.values() for row in rows.values()]
    missing = _missing(folder, status, decided=bool(slices))
    return ReportContent(
        title=folder.resolve().name,
        kind="workspace",
        summary=" · ".join(
            [
                f"{counted(status.vertices, 'vertex', 'vertices')} up to {status.last_time}",
                f"model {status.model}, {counted(status.classes, 'class', 'classes')}",
                f"version {status.version}",
            ]
        ),
        notes=(f"Next: {status.next_line(folder)} ({status.next_why}).",),
        headlines=_headlines(slices, scored),
        slices=_slices(models, slices, by_time) if slices else missing,
        transfer=Missing("Forward transfer compares two runs, so only the report of a run has it."),
        graph=facts,
        history=state.settings.history,
        **_of_decisions(described.get("detector") or {}, scored, _of_one_kind(models, state.model.number), missing),
        review=_review(workspace, status.to_review),
        details=_details(workspace, models, described, facts),
        groups=_groups(workspace, folder, status),
    )


def _headlines(slices: Sequence[SliceScores], scored: Sequence[dict[str, Any]]) -> tuple[Headline, ...]:
    """Return metrics over all decisions with labels."""
    decided = sum(one.decided for one in slices)
    right = [row["best"] == row["truth"] for row in scored]
    known = [hit for hit, row in zip(right, scored, strict=True) if row["known"]]
    flagged = sum(one.flagged * one.decided for one in slices)
    return (
        Headline("Decisions", decided, None, "count", "Vertices with a decision."),
        Headline("Labels", len(scored), None, "count", "Decided vertices whose label has arrived."),
        _share("Accuracy", right, "Labelled vertices whose most likely known class is correct."),
        _share("Accuracy, known classes", known, "The same for vertices of known classes."),
        Headline(
            "Flagged", flagged / decided if decided else None, None, "share", "Decided vertices flagged as unseen."
        ),
        _share("Truly unseen", [not row["known"] for row in scored], "Labelled vertices of unseen classes."),
    )


def _share(name: str, hits: Sequence[bool], meaning: str) -> Headline:
    share = sum(hits) / len(hits) if hits else None
    band = None if share is None else band_of_share(share, len(hits))
    half = None if band is None or band.low is None or band.high is None else (band.high - band.low) / 2
    return Headline(name, share, half, "share", meaning)


def _slices(
    models: Sequence[ModelRecord], slices: Sequence[SliceScores], scored: Mapping[int, Mapping[str, dict[str, Any]]]
) -> Slices:
    unseen: dict[Any, set[str]] = {}
    for row in (row for rows in scored.values() for row in rows.values()):
        unseen.setdefault(row["time"], set()).update([] if row["known"] else [row["truth"]])
    rows = tuple(_slice(models, one, unseen.get(one.time)) for one in slices)
    return Slices(rows, "Bands are 95 % intervals for the number of vertices (Wilson).")


def _slice(models: Sequence[ModelRecord], one: SliceScores, unseen: set[str] | None) -> Slice:
    known = next(record.classes for record in models if record.number == one.models[-1])
    return Slice(
        time=str(one.time),
        vertices=one.decided,
        labelled=one.labelled,
        known_classes=len(known),
        unseen_classes=None if unseen is None else len(unseen),
        accuracy=_band(one.accuracy, one.labelled),
        known_accuracy=_band(one.id_accuracy, round(one.labelled * (1 - (one.unseen or 0)))),
        unseen=one.unseen,
        flagged=band_of_share(one.flagged, one.decided),
        mcc=one.mcc if one.unseen else None,
        open_f1=one.open_f1,
        drift=one.drift,
        version=", ".join(map(str, one.models)),
    )


def _band(share: float | None, n: int) -> Band | None:
    return None if share is None else band_of_share(share, n)


def _missing(folder: Path, status: Status, *, decided: bool) -> Missing:
    """Return why decisions, or their labels, are missing, and how to get them."""
    if decided:
        return Missing(
            "No decided vertex has a label yet, so the decisions cannot be compared with the truth. To add labels: "
            f"{command_line('ws', 'label', folder, '--labels', 'FILE')}."
        )
    slice_ = command_line("ws", "add", folder, "--vertices", "FILE", "--edges", "FILE")
    add = "" if status.undecided else f"{slice_}, then "
    return Missing(f"There are no decisions yet. To get this part: {add}{command_line('ws', 'predict', folder)}.")


def _of_one_kind(models: Sequence[ModelRecord], number: int) -> set[int]:
    """Return the numbers of a model and of those before it, up to a change of model or detector."""
    records, found = {record.number: record for record in models}, {number}
    while (record := records[number]).before in records.keys() - found and not record.is_new_kind:
        number = record.before
        found.add(number)
    return found


def _of_decisions(
    detector: Mapping[str, Any], scored: Sequence[dict[str, Any]], models: Collection[int], missing: Missing
) -> dict[str, Any]:
    """Return the parts that count decisions with labels; scores are comparable only for ``models``."""
    if not scored:
        return dict.fromkeys(("confusion", "calibration", "threshold"), missing)
    truth, best, classes = (np.array([row[name] for row in scored], object) for name in ("truth", "best", "class"))
    unseen = np.array([not row["known"] for row in scored])
    probability, score = (np.array([row[name] for row in scored], float) for name in ("probability", "score"))
    same = np.array([row["model"] in models for row in scored])
    return {
        "confusion": confusion_of(truth, classes, unseen, "all decisions with labels"),
        "calibration": calibration_of(probability, best == truth),
        "threshold": threshold_of(detector, probability[same], score[same], unseen[same]) if same.any() else _CHANGED,
    }


def _review(workspace: Workspace, there: int) -> Review | Missing:
    try:
        rows = workspace.review(_MOST, why=True)
    except DamagedWorkspaceError:
        raise
    except InputError:  # the model is one of the user's own, which no file contains
        rows = workspace.review(_MOST)
    if not rows:
        return Missing("No vertex without a label is flagged as unseen.")
    found = tuple(
        FlaggedVertex(
            id=str(row.id),
            time=str(row.time),
            score=row.score,
            best=row.best,
            probability=row.probability,
            words=row.words or None,
            neighbours=row.neighbours,
            text=None if row.text is None else shortened(row.text),
            because=None if row.because is None else tuple(one.in_words for one in row.because),
        )
        for row in rows
    )
    which = f"{counted(there, 'vertex', 'vertices')} without a label {'is' if there == 1 else 'are'} flagged as unseen."
    if there > len(found):
        which += f" The table has the {len(found)} with the highest scores."
    return Review(found, which)


def _groups(workspace: Workspace, folder: Path, status: Status) -> Groups | Missing:
    groups = workspace.groups()
    if not groups:
        if status.to_review:
            return Missing("The flagged vertices are not similar to each other, so there are no groups.")
        return Missing("No vertex without a label is flagged as unseen, so there are no groups.")
    found = tuple(
        FlaggedGroup(
            number=group.number,
            time=str(group.time),
            size=group.size,
            edges=group.edges,
            words=group.terms,
            examples=tuple((str(id), what) for id, what in group.examples),
            nearest=group.nearest,
        )
        for group in groups[:_MOST]
    )
    alone = status.to_review - sum(group.size for group in groups)
    which = f"{counted(len(groups), 'group')}; {counted(alone, 'flagged vertex', 'flagged vertices')} in no group."
    if len(groups) > len(found):
        which += f" The table has the {len(found)} largest groups."
    which += (
        " Look into a group, then make it a class, or label its vertices one by one in a file (numbers of groups are "
        f"those of version {status.version} and change with the workspace):"
    )
    commands = (
        command_line("ws", "review", folder, "--group", 1),
        command_line("ws", "classes", "create", folder, "NAME", "--group", 1),
        command_line("ws", "review", folder, "--group", 1, "--out", "review.csv"),
        command_line("ws", "label", folder, "--labels", "review.csv"),
    )
    return Groups(found, which, commands)


def _details(
    workspace: Workspace, models: Sequence[ModelRecord], described: Mapping[str, Any], graph: GraphDescription
) -> tuple[tuple[str, str], ...]:
    """Return settings, models and the last commands."""
    state = workspace.state
    found = {
        "graph": ", ".join(
            (
                counted(graph.vertices, "vertex", "vertices"),
                counted(graph.edges, "edge"),
                counted(len(graph.classes), "class", "classes"),
            )
        ),
        "periods": f"{graph.times[0]} to {graph.times[-1]}, in {graph.time_steps}",
        "history": state.settings.history_why,
    }
    settings = {name: described[name] for name in ("model", "detector", "settings")}
    found |= {name: "not set" if value is None else str(value) for name, value in flat(settings).items()}
    read = inputs_in_words(unpack_vocabulary(described).sizes(workspace.graph))
    found["settings.inputs"] = f"auto: {read}" if found.get("settings.inputs", "auto") == "auto" else read
    if state.retired:
        found["retired classes"] = ", ".join(state.retired)
    for record in models:
        found[f"model {record.number}"] = (
            f"{record.restart}: {record.why}; {counted(len(record.classes), 'class', 'classes')} from "
            f"{counted(record.train_vertices, 'label')}"
        )
    for entry in workspace.log()[-_COMMANDS:]:
        found[f"version {entry.version}, {entry.when}"] = f"{entry.command}: {entry.what}"
    return (*found.items(), ("made by", f"Evergraph {__version__}"))
