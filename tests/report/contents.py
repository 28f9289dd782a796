"""Contents of reports: an ordinary one, one with hostile names, and one in which everything is missing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from evergraph.analysis.description import ClassHistory, DifferenceSummary, DriftAt, GraphDescription
from evergraph.report.content import (
    FlaggedGroup,
    FlaggedVertex,
    Groups,
    Headline,
    Missing,
    ReportContent,
    Review,
    Slice,
    Slices,
    Transfer,
)
from evergraph.report.measures import band_of_share, calibration_of, confusion_of, threshold_curve_of

ATTACK = "</script><script>alert(1)</script>"
HOSTILE = (
    ATTACK,
    "<img src=x onerror=alert(2)>",
    '<a href="javascript:alert(3)">click</a>',
    "x" * 300,
    "<b>bold</b> & <br> %{x} $x^2$ var(--blue)",
    "\"quotes' and \\ backslashes \u2028 \u202e turned",
    "very " * 60,
    "漢字とかな交じりの長い名前" * 5,
)


def ordinary(names: tuple[str, ...] | None = None, times: tuple[str, ...] | None = None) -> ReportContent:
    """A full report over some years."""
    draw = np.random.default_rng(7)
    times = times or tuple(map(str, range(1999, 2015)))
    names = names or tuple(f"Class number {number}, with a name" for number in range(1, 24))
    n = 900
    truth = draw.choice(np.array(names, object), n, p=np.arange(len(names), 0, -1) / sum(range(len(names) + 1)))
    unseen = draw.random(n) < 0.15
    right = ~unseen & (draw.random(n) < 0.7)
    best = np.where(right, truth, draw.choice(np.array(names, object), n))
    probability = np.clip(np.where(best == truth, 0.75, 0.45) + draw.normal(0, 0.15, n), 0, 1)
    decided = np.where(probability < 0.5, "unseen", best)
    rows = tuple(
        Slice(
            time=time,
            vertices=300 + at,
            labelled=200,
            known_classes=10 + at,
            unseen_classes=at % 4,
            accuracy=band_of_share(0.5 + 0.02 * (at % 7), 200),
            known_accuracy=band_of_share(0.6 + 0.02 * (at % 5), 180),
            unseen=0.05 * (at % 4),
            flagged=band_of_share(0.08 * (at % 4), 200),
            mcc=None if at % 4 == 0 else 0.1 * (at % 4) - 0.15,
            open_f1=0.4,
            drift=None if at == 0 else 0.3,
            version=f"v{at // 4}" if at % 2 else None,
        )
        for at, time in enumerate(times)
    )
    review = tuple(
        FlaggedVertex(f"vertex {at} {name}", times[-1], 0.5 - 0.01 * at, name, 0.3, (name, "word"), ((name, 3),), name)
        for at, name in enumerate(names)
    )
    groups = tuple(
        FlaggedGroup(at, times[-1], 9, 7, (name, "word"), ((f"vertex {name}", name), ("x", "")), ((name, 3),))
        for at, name in enumerate(names[:4], 1)
    )
    confusion = confusion_of(truth, decided, unseen, "a test")
    return ReportContent(
        title=names[0],
        kind="run",
        summary=f"a report of {names[-1]}",
        notes=(f"Not finished: {names[0]}",),
        headlines=(
            Headline("Accuracy", 0.7654, 0.0123, "share", "Right."),
            Headline(names[0], None, None, "score", names[0]),
            Headline("Time", 12345.6, 1.5, "seconds", "Training and prediction."),
            Headline("Labels", 12345, None, "count", "Labels that arrived."),
        ),
        slices=Slices(rows, "Bands are Wilson’s 95 % intervals."),
        transfer=Transfer(0.031, 0.01, times, tuple(0.1 - 0.02 * at for at in range(len(times))), names[0]),
        graph=described(names, times),
        history=1,
        confusion=confusion,
        calibration=calibration_of(probability, best == truth),
        threshold=threshold_curve_of(probability, unseen, on="probability", in_force=0.5),
        review=Review(review, f"All of {names[0]}."),
        groups=Groups(groups, f"Some of {names[0]}.", (f"evergraph ws review {names[0]}", f"evergraph {names[-1]}")),
        details=(("graph", names[0]), ("command", f"evergraph run {names[0]} --out x"), (names[0], names[-1])),
    )


def described(names: tuple[str, ...], times: tuple[str, ...], steps: str = "years") -> GraphDescription:
    """A graph with the given classes and periods."""
    draw = np.random.default_rng(8)
    classes = [
        ClassHistory(name, list(times[at % len(times) :]), draw.integers(1, 99, len(times) - at % len(times)).tolist())
        for at, name in enumerate(names)
    ]
    sizes = {"25": 1, "50": 1, "75": 2, "100": 3}
    zeros = [0] * len(times)
    return GraphDescription(
        name=names[0],
        about={},
        vertices=900,
        edges=1234,
        features="words",
        feature_kind="words",
        feature_width=7,
        label_rate=1.0,
        time_unit="year",
        time_step=1,
        time_steps=steps,
        times=list(times),
        vertices_at=zeros,
        classes_at=zeros,
        unseen_at=zeros,
        first_task=times[len(times) // 2],
        test_vertices=0,
        unseen_vertices=0,
        new_classes=[],
        classes=classes,
        homophily=None,
        mean_degree=2.0,
        isolated=0,
        degrees={},
        power_law=None,
        drift=[DriftAt(time, 0.4 if at else None, 0.5 if at else None) for at, time in enumerate(times)],
        differences={},
        past_differences=DifferenceSummary(2, 20, [10, 6, 3, 1], {}, sizes, 900, None),
    )


def hostile() -> ReportContent:
    """The same with names that would like to be more than names, over days."""
    return ordinary(HOSTILE, tuple(f"2020-01-{day:02d}" for day in range(1, 12)))


def empty() -> ReportContent:
    """Nothing but reasons."""
    reason = Missing(f"There is none of it: {ATTACK}.")
    names = ("slices", "transfer", "graph", "confusion", "calibration", "threshold", "groups", "review")
    parts: dict[str, Any] = dict.fromkeys(names, reason)
    return replace(ordinary(), kind="workspace", notes=(), **parts)


def single() -> ReportContent:
    """A run of one task under one seed, without history and without intervals."""
    content = ordinary(("only class",), ("7",))
    assert not isinstance(content.slices, Missing)
    row = replace(content.slices.rows[0], accuracy=None, known_accuracy=None, flagged=None, unseen=None, open_f1=None)
    assert not isinstance(content.graph, Missing)
    graph = replace(content.graph, drift=[DriftAt("7", None, None), DriftAt("8", 0.5, 0.5)], first_task=None)
    return replace(content, slices=Slices((row,), "No bands."), graph=graph, history=None)
