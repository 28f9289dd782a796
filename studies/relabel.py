"""After how many updates are changed labels relearnt? Learners on labels that change, and classes that retire.

python -m studies.relabel change    train on labels that change at one time, and on the final labels from the start
python -m studies.relabel retire    decide with and without retired classes
python -m studies.relabel show      write the tables and the figure of both

Each case changes the labels of a graph before one update; learners are scored on later vertices of the affected
classes, and compared with the same learner on the final labels. What is stored is not run again, so stop and
continue at any time, and run one graph only with ``--graph NAME``. Results are in studies/results/relabel.
"""

from __future__ import annotations

import argparse
import json
import time as clock
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

from evergraph.evaluation.configuration import Configuration
from evergraph.evaluation.learner_specs import LearnerSpec
from evergraph.evaluation.results import NUMERICS_VERSION
from evergraph.evaluation.workers import graph_of, threads_each
from evergraph.graph import ids as id_columns
from evergraph.graph.evolving import EvolvingGraph
from evergraph.learning.learner import LifelongLearner
from evergraph.learning.task import Task
from evergraph.names import build_detector
from evergraph.presentation.style import figure, legend_below, save, series
from studies.memory import PREPARED, prepared

RESULTS = Path(__file__).parent / "results" / "relabel"
FIGURE = Path(__file__).parents[1] / "docs" / "assets" / "relabel"
SEEDS = (0, 1, 2)
FULL = "window:full"
LEARNERS = {
    "window:1": "window 1",
    "window:3": "window 3",
    FULL: "full, warm",
    "window:full+restart:cold": "full, cold",
    "window:1+memory:class-mean:10%": "window 1 + memory",
    "window:1+memory:class-mean:10%+regulariser:ewc": "window 1 + memory + EWC",
    "window:full+model:ridge": "full, ridge",
}
RETIRED = (FULL, "window:1+memory:class-mean:10%")
AFTER = (2, 3, 5)
"""Periods without a label after which classes retire."""
PAUSE = 3
"""Periods without a vertex after which a class that has one again returns."""
ONCE = 2
"""Updates that are followed after a cold restart."""
CORRECT = "correct"


# --- cases -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """Labels that change before the update for one period.

    Parameters
    ----------
    kind
        ``"wrong"``: a share of the vertices has the label of another class; all classes if none is given, else the
        first class, with the label of the second. ``"split"``: both classes are one. ``"new"``: the same, but only
        labels that arrive with the change, or later, are of the two classes. ``"gone"``: moreover, older labels of both
        are removed, as if the class that was split had been retired in a workspace.
    what
        Short name of the affected classes.
    first, change, last
        Periods of the first task, of the first task that is trained on the changed labels, and of the last task.
    """

    graph: str
    kind: str
    what: str
    first: int
    change: int
    last: int
    classes: tuple[str, ...] = ()
    share: float = 0.0

    @property
    def name(self) -> str:
        """Name of the case in results."""
        return f"{self.kind}{f' {self.share:.0%}' if self.share else ''} {self.what}"

    @property
    def joined(self) -> str:
        """Name of the class that is split."""
        return " + ".join(self.classes)

    def versions(self, graph: EvolvingGraph) -> tuple[EvolvingGraph, EvolvingGraph]:
        """Return the graph with the labels until the change, and with those after it."""
        if self.kind == "wrong":
            return _relabelled(graph, *self._wrong(graph)), graph
        rows = np.flatnonzero(np.isin(graph.labels.astype(str), self.classes))
        old = rows[graph.times[rows] < self.change - 1]  # the slice before the change gets its labels with the change
        given = {"split": None, "new": [self.joined] * len(old), "gone": [None] * len(old)}[self.kind]
        joined = _relabelled(graph, rows, [self.joined] * len(rows))
        return joined, graph if given is None else _relabelled(graph, old, given)

    def _wrong(self, graph: EvolvingGraph) -> tuple[np.ndarray, list[str]]:
        rng, labels = np.random.default_rng(0), graph.labels.astype(str)
        known = np.flatnonzero((graph.codes >= 0) & (graph.times < self.change - 1))
        if self.classes:
            rows = known[labels[known] == self.classes[0]]
            rows = np.sort(rng.choice(rows, round(self.share * len(rows)), replace=False))
            return rows, [self.classes[1]] * len(rows)
        rows = np.sort(rng.choice(known, round(self.share * len(known)), replace=False))
        given = labels[rng.choice(known, len(rows))]
        while (same := given == labels[rows]).any():
            given[same] = labels[rng.choice(known, int(same.sum()))]
        return rows, given.tolist()

    def affected(self, truth: np.ndarray) -> np.ndarray:
        """Whether each vertex is of an affected class."""
        return np.isin(truth.astype(str), self.classes) if self.classes else truth != None  # noqa: E711


def _relabelled(graph: EvolvingGraph, rows: np.ndarray, labels: Sequence[str | None]) -> EvolvingGraph:
    return graph.relabel(id_columns.take(graph.ids, rows), labels) if len(rows) else graph


SETS = ("ZF Set Theory - start with the Axiom of Extensionality", "ZF Set Theory - add the Axiom of Power Sets")
IMAGES = ("Signal Processing", "IEEE Transactions on Image Processing")
NETS = ("IEEE Transactions on Communications", "Computer Communications")
CASES = (
    Case("dblp-easy", "wrong", "nets", 2001, 2003, 2006, NETS, 0.2),
    Case("dblp-easy", "wrong", "nets", 2001, 2003, 2006, NETS, 0.5),
    Case("dblp-easy", "split", "images", 2001, 2003, 2006, IMAGES),
    Case("metamath", "split", "sets", 2010, 2012, 2015, SETS),
    Case("metamath", "new", "sets", 2010, 2012, 2015, SETS),
    Case("metamath", "gone", "sets", 2010, 2012, 2015, SETS),
    Case("julia-packages", "wrong", "all", 2020, 2022, 2025, (), 0.2),
)
RETIRING = ("metamath", "sympy-files")


# --- running ---------------------------------------------------------------------------------------------------------


class Store:
    """Lines of results; the key of each is its graph, case, learner and seed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        lines = path.read_text().splitlines() if path.exists() else []
        found = [json.loads(line) for line in lines]
        self.rows = {self.key(row): row for row in found if row["numerics_version"] == NUMERICS_VERSION}

    @staticmethod
    def key(row: dict[str, Any]) -> tuple[Any, ...]:
        """Return what identifies a result."""
        return row["graph"], row["case"], row["learner"], row["seed"]

    def add(self, row: dict[str, Any]) -> None:
        """Add a result."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        row = row | {"numerics_version": NUMERICS_VERSION}
        self.rows[self.key(row)] = row
        with self.path.open("a") as file:
            file.write(json.dumps(row, separators=(",", ":")) + "\n")


def configuration(learner: str) -> Configuration:
    """Return the settings of a learner; detectors do not matter here."""
    return LearnerSpec.parse(learner).configuration(Configuration(detector=build_detector("none")))


@cache
def opened(name: str, folder: Path) -> EvolvingGraph:
    """Return a graph."""
    return graph_of(prepared([name], folder)[0])[0]


@cache
def versions(case: Case, folder: Path) -> tuple[EvolvingGraph, EvolvingGraph]:
    """Return the graph of a case before and after the change."""
    return case.versions(opened(case.graph, folder))


def planned(learner: str, graph: EvolvingGraph, first: int, last: int, seed: int) -> Iterator[Task]:
    """Yield the tasks of some periods."""
    for task in replace(configuration(learner), first=first).tasks(graph):
        if task.time <= last:
            yield replace(task, seed=seed)


class Followed:
    """A learner that is followed over several updates: decisions on the vertices of each case, and the cost."""

    def __init__(self, truth: EvolvingGraph, cases: Sequence[Case]) -> None:
        self.truth, self.cases = truth, cases
        self.rows: list[dict[str, Any]] = []

    def update(self, learner: LifelongLearner, task: Task) -> None:
        """Train for a task, and score the decisions on its affected vertices."""
        begun = clock.process_time()
        learner.adapt(task)
        spent = clock.process_time() - begun
        decided = learner.predict(task).best
        truth = self.truth.labels[task.window.rows][task.test]
        row: dict[str, Any] = {"time": task.time, "cpu": round(spent, 2)}
        for case in {case.what: case for case in self.cases}.values():
            chosen = case.affected(truth)
            dead = int((decided[chosen] == case.joined).sum()) if case.classes else 0
            row[case.what] = [int((decided == truth)[chosen].sum()), int(chosen.sum()), dead]
            if case.kind == "new":
                kept = learner.set_params(retire_after=AFTER[0]).predict(task).best
                row[case.what].append(int((kept == truth)[chosen].sum()))
                learner.set_params(retire_after=None)
        self.rows.append(row)


def follow_change(case: Case, learner: str, seed: int, folder: Path) -> dict[str, Any]:
    """Train on the labels of a case, before and after the change; also with one cold restart at the change."""
    truth, (before, after) = opened(case.graph, folder), versions(case, folder)
    made, usual, once = configuration(learner).learner(seed), Followed(truth, [case]), Followed(truth, [case])
    for task in planned(learner, before, case.first, case.change - 1, seed):
        usual.update(made, task)
    later = list(planned(learner, after, case.change, case.last, seed))
    if not learner.startswith(FULL) or "ridge" in learner:  # else it is another learner of the list
        other = made.rewound(case.change).set_params(restart="cold")  # a copy
        for number, task in enumerate(later[:ONCE]):
            once.update(other, replace(task))
            if not number:
                other.set_params(restart="warm")
    for task in later:
        usual.update(made, replace(task))
    found = {"graph": case.graph, "case": case.name, "learner": learner, "seed": seed}
    return found | {"rows": usual.rows, "once": once.rows}


def follow_correct(cases: Sequence[Case], learner: str, seed: int, folder: Path) -> dict[str, Any]:
    """Train on the final labels from the start."""
    graph, usual = opened(cases[0].graph, folder), Followed(opened(cases[0].graph, folder), cases)
    made = configuration(learner).learner(seed)
    for task in planned(learner, graph, cases[0].first, cases[0].last, seed):
        usual.update(made, task)
    return {"graph": cases[0].graph, "case": CORRECT, "learner": learner, "seed": seed, "rows": usual.rows}


def run_change(given: argparse.Namespace) -> None:
    """Run what is not stored, all learners with the first seed before the second."""
    store = Store(given.out / "change.jsonl")
    for seed in given.seeds:
        for graph in dict.fromkeys(case.graph for case in CASES):
            if given.graph not in (None, graph):
                continue
            cases = [case for case in CASES if case.graph == graph]
            for learner in LEARNERS:
                for case in (None, *cases):
                    if (graph, CORRECT if case is None else case.name, learner, seed) in store.rows:
                        continue
                    if case is None:
                        found = follow_correct(cases, learner, seed, given.graphs_in)
                    else:
                        found = follow_change(case, learner, seed, given.graphs_in)
                    store.add(found)
                    spent = sum(row["cpu"] for row in (*found["rows"], *found.get("once", ())))
                    print(graph, found["case"], learner, seed, f"{spent:.0f} s", flush=True)


# --- retired classes -------------------------------------------------------------------------------------------------


def follow_retired(graph: EvolvingGraph, learner: str, seed: int) -> dict[str, Any]:
    """Decide with and without retirement: training does not depend on it, so one learner decides with all settings."""
    made = configuration(learner).learner(seed)
    rows: list[dict[str, Any]] = []
    for planned_task in configuration(learner).tasks(graph):
        task = replace(planned_task, seed=seed)
        begun = clock.process_time()
        made.adapt(task)
        row: dict[str, Any] = {"time": task.time, "cpu": round(clock.process_time() - begun, 2)}
        truth = task.truth
        known = np.isin(truth.astype(str), made.classes_)
        slices = _slices_since_return(graph, task)
        for after in (None, *AFTER):
            begun = clock.process_time()
            decided = made.set_params(retire_after=after).predict(task).best
            right = (decided == truth) & known
            back = [slices == number for number in (1, 2, 3)]
            row[str(after)] = {
                "all": [int(right.sum()), len(truth)],
                "back": [[int(right[chosen].sum()), int(chosen.sum())] for chosen in back],
                "retired": len(made.retired(task)),
                "cpu": round(clock.process_time() - begun, 3),
            }
        made.set_params(retire_after=None)
        rows.append(row)
    return {"learner": learner, "seed": seed, "rows": rows}


def _slices_since_return(graph: EvolvingGraph, task: Task) -> np.ndarray:
    """For each test vertex 1 if its class returns after a pause in this period, 2 or 3 if it did before; else 0."""
    codes, found = task.window.codes[task.test], np.zeros(len(task.test_ids), np.int64)
    for code in np.unique(codes[codes >= 0]):
        times = np.unique(graph.times[graph.codes == code])
        back = times[1:][np.diff(times) > PAUSE]  # periods with a vertex after at least so many without one
        since = task.time - back[back <= task.time] + 1
        if len(since) and since.min() <= 3:
            found[codes == code] = since.min()
    return found


def run_retire(given: argparse.Namespace) -> None:
    """Run what is not stored."""
    store = Store(given.out / "retire.jsonl")
    for seed in given.seeds:
        for name in RETIRING:
            for learner in RETIRED:
                if given.graph in (None, name) and (name, "", learner, seed) not in store.rows:
                    found = follow_retired(opened(name, given.graphs_in), learner, seed)
                    store.add({"graph": name, "case": "", **found})
                    print(name, learner, seed, f"{sum(row['cpu'] for row in found['rows']):.0f} s", flush=True)


# --- tables and figure -----------------------------------------------------------------------------------------------


class Compared:
    """How far learners are behind the same learners on the final labels, in points, by update since the change."""

    def __init__(self, store: Store, case: Case, seeds: Sequence[int]) -> None:
        self.store, self.case, self.seeds = store, case, seeds

    def accuracy(self, learner: str, name: str, seed: int, part: str = "rows") -> np.ndarray | None:
        """Accuracy in percent on the affected classes in each update; None if it is not stored."""
        row = self.store.rows.get((self.case.graph, name, learner, seed))
        if row is None or not row[part]:
            return None
        found = np.array([one[self.case.what] for one in row[part]], float)
        return 100 * found[:, 0] / found[:, 1]

    def there(self, learner: str) -> list[int]:
        """The seeds that are stored."""
        names = (CORRECT, self.case.name)
        return [seed for seed in self.seeds if all(self.accuracy(learner, name, seed) is not None for name in names)]

    def behind(self, learner: str, part: str = "rows") -> np.ndarray:
        """Mean difference in each update over the seeds, from the last one before the change on."""
        start = self.case.change - self.case.first
        rows = []
        for seed in self.there(learner):
            changed = self.accuracy(learner, self.case.name, seed, part)
            correct = self.accuracy(learner, CORRECT, seed)
            if changed is None or correct is None:
                return np.empty(0)
            changed = changed[start - 1 :] if part == "rows" else changed
            correct = correct[start - (part == "rows") :]
            rows.append(changed - correct[: len(changed)])
        return np.mean(rows, 0) if rows else np.empty(0)

    @cached_property
    def limit(self) -> float:
        """How far behind a learner may be to count as equal: a point, or what is noise in 95 of 100 cases.

        The noise is that of the mean difference of two learners with other seeds, whose labels never changed.
        """
        errors = []
        for learner in LEARNERS:
            found = [self.accuracy(learner, CORRECT, seed) for seed in self.there(learner)]
            if len(found) > 1:
                errors.append(np.var(found, axis=0, ddof=1).mean() * 2 / len(found))
        return max(1.0, 1.64 * float(np.sqrt(np.mean(errors)))) if errors else 1.0

    def needed(self, learner: str, part: str = "rows") -> str:
        """Number of updates with the final labels, after which the learner is no longer behind."""
        limit, behind = -self.limit, self.behind(learner, part)[part == "rows" :]
        near = [number for number in range(len(behind)) if behind[number:][:2].mean() >= limit <= behind[number]]
        return "" if not len(behind) else str(near[0] + 1) if near else f"> {len(behind)}"

    def decided(self, learner: str, place: int) -> np.ndarray:
        """Percentage of the affected vertices that is stored at a place, in each update after the change."""
        start = self.case.change - self.case.first
        rows = [self.store.rows[self.case.graph, self.case.name, learner, seed]["rows"] for seed in self.there(learner)]
        found = np.array([[one[self.case.what] for one in row[start:]] for row in rows]).sum(0)
        return 100 * found[:, place] / found[:, 1]


def _points(values: np.ndarray) -> str:
    return ", ".join(f"{value:+.1f}" for value in values)


def change_table(store: Store, seeds: Sequence[int]) -> Iterator[str]:
    """Yield the lines of the table of changed labels."""
    for case in CASES:
        compared = Compared(store, case, seeds)
        yield f"## {case.graph}: {case.name}"
        yield ""
        yield (
            f"Change before the update for {case.change}. Classes: {', '.join(case.classes) or 'all'}. "
            f"At most {compared.limit:.1f} points behind counts as relearnt."
        )
        yield ""
        yield (
            "| learner | seeds | accuracy before the change | before | updates 1, 2, … after | needed "
            "| after one cold restart | needed | decided as the old class, % | gained by retire_after=2 |"
        )
        yield "|---|--:|--:|--:|---|--:|---|--:|---|---|"
        for learner, short in LEARNERS.items():
            if not (there := compared.there(learner)):
                continue
            behind, once = compared.behind(learner), compared.behind(learner, "once")
            start = case.change - case.first
            old, gained = "", ""
            if case.kind != "wrong":
                old = ", ".join(f"{share:.0f}" for share in compared.decided(learner, 2))
            if case.kind == "new":
                gained = _points(compared.decided(learner, 3) - compared.decided(learner, 0))
            level = np.mean([compared.accuracy(learner, CORRECT, seed)[start - 1] for seed in there])
            yield (
                f"| {short} | {len(there)} | {level:.1f} | {behind[0]:+.1f} | {_points(behind[1:])} "
                f"| {compared.needed(learner)} | {_points(once)} "
                f"| {compared.needed(learner, 'once')} | {old} | {gained} |"
            )
        yield ""


def retire_table(store: Store) -> Iterator[str]:
    """Yield the lines of the table of retired classes."""
    yield (
        "| graph | learner | retire after | accuracy, mean of tasks | classes retired at the end "
        "| right in the 1st, 2nd, 3rd slice of a return | vertices | CPU of a prediction, ms |"
    )
    yield "|---|---|--:|--:|--:|---|---|--:|"
    for name in RETIRING:
        for learner in RETIRED:
            found = [row["rows"] for key, row in store.rows.items() if key[0] == name and key[2] == learner]
            if not found:
                continue
            for after in map(str, (None, *AFTER)):
                cells = [[one[after] for one in row] for row in found]
                shares = [np.mean([cell["all"][0] / cell["all"][1] for cell in row]) for row in cells]
                back = np.array([[cell["back"] for cell in row] for row in cells], float).sum((0, 1))
                ms = 1000 * np.mean([[cell["cpu"] for cell in row] for row in cells])
                yield (
                    f"| {name} | {LEARNERS[learner]} | {after.replace('None', 'never')} | {100 * np.mean(shares):.1f} "
                    f"| {np.mean([row[-1]['retired'] for row in cells]):.0f} "
                    f"| {', '.join(f'{100 * one / max(all_, 1):.0f} %' for one, all_ in back)} "
                    f"| {', '.join(f'{all_ / len(found):.0f}' for _, all_ in back)} | {ms:.0f} |"
                )


def draw(store: Store, seeds: Sequence[int]) -> None:
    """Draw one corrected case and two split ones."""
    titles = {
        "wrong 50% nets": "Half of a class was wrong",
        "split sets": "A class is split",
        "new sets": "Only new labels are split",
    }
    chosen = [case for case in CASES if case.name in titles]
    with figure(1, len(chosen), width=9, height=2.8) as (picture, axes):
        for case, axis in zip(chosen, axes[0], strict=True):
            compared = Compared(store, case, seeds)
            for number, (learner, short) in enumerate(LEARNERS.items()):
                if len(behind := compared.behind(learner)):
                    axis.plot(range(len(behind)), behind, label=short, markersize=4, **series(number))
            axis.axhline(0, color="#999999", linewidth=0.8, zorder=0)
            axis.axvline(0.5, color="#999999", linewidth=0.8, linestyle=":", zorder=0)
            axis.set_title(f"{titles[case.name]} ({case.graph})")
            axis.set_xlabel("updates since the change")
            axis.set_xticks(range(case.last - case.change + 2))
        axes[0, 0].set_ylabel("points, compared with the\nright labels from the start")
        legend_below(picture)
        save(picture, FIGURE)[1].unlink()  # the docs show the SVG only


def show(given: argparse.Namespace) -> None:
    """Write the tables and the figure."""
    changed, retired = Store(given.out / "change.jsonl"), Store(given.out / "retire.jsonl")
    parts = {"change.md": change_table(changed, given.seeds), "retire.md": retire_table(retired)}
    for name, lines in parts.items():
        text = "\n".join(lines).strip() + "\n"
        (given.out / name).write_text(text)
        print(text)
    draw(changed, given.seeds)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("change", "retire", "show"))
    parser.add_argument("--graph", help="only this graph")
    parser.add_argument("--graphs-in", type=Path, default=PREPARED, help="folder of the imported graphs")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    given = parser.parse_args()
    with threads_each(1):
        {"change": run_change, "retire": run_retire, "show": show}[given.what](given)


if __name__ == "__main__":
    main()
