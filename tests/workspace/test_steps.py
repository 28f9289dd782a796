"""Commands in any order, each in a workspace that is opened anew, against plain dictionaries of what should be there."""

from __future__ import annotations

import os
import shutil
import tempfile
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from evergraph import EvolvingGraph, InputError
from evergraph.detect import DOC
from evergraph.nn import MLP
from evergraph.storage import records as storage_records
from evergraph.workspace import Workspace
from evergraph.workspace.store import SCHEMA

pytestmark = pytest.mark.usefixtures("one_thread")

WORDS = ["alpha", "beta", "gamma", "delta"]
NAMES = ["a", "b", "c", "d", "e"]
KEEP = 4


@dataclass
class Plain:
    """What a version holds: labels by id, times by id, and what the model in force is and knows."""

    labels: dict[str, str | None] = field(default_factory=dict)
    times: dict[str, int] = field(default_factory=dict)
    model: int = 1
    known: frozenset[str] = frozenset()
    fresh: tuple[int, ...] = ()  # the time of each label since the model was trained
    stale: bool = False
    retired: frozenset[str] = frozenset()
    trained: int = 2  # width of the model
    width: int = 2  # of the model that the next update trains
    keep: int = KEEP

    @property
    def last(self) -> int:
        return max(self.times.values())

    @property
    def there(self) -> set[str]:
        """All classes that can be named."""
        return {name for name in self.labels.values() if name is not None} | self.known | self.retired

    def learnable(self) -> list[str]:
        """Ids whose labels the next model can learn from."""
        kept = {id: name for id, name in self.labels.items() if name is not None and name not in self.retired}
        newest = any(self.times[id] == self.last for id in kept)
        return [id for id in kept if self.times[id] < self.last + newest]


class Steps(RuleBasedStateMachine):
    @initialize(size=st.integers(3, 6))
    def create(self, size: int) -> None:
        self.root = Path(tempfile.mkdtemp())
        self.count, self.models, self.version = size, 1, 1
        self.decided: dict[str, int] = {}  # the model that decided last
        self.scored: dict[str, str] = {}  # the label that came last
        self.returned = False  # to an earlier version, which undoes labels and names of classes
        ids = [f"v{number}" for number in range(size)]
        labels = [NAMES[number % 2] for number in range(size)]
        vertices = {
            "id": ids,
            "time": [number % 2 for number in range(size)],
            "label": labels,
            "text": WORDS[:1] * size,
        }
        graph = EvolvingGraph.build(vertices, {"source": ids[:-1], "target": ids[1:]})
        Workspace.create(
            self.root / "ws", graph, model=MLP(hidden=2), detector=DOC(0.5), history="full", steps=1, keep=KEEP
        )
        self.now = Plain(dict(zip(ids, labels, strict=True)), dict(zip(ids, vertices["time"], strict=True)))
        self.now.known = frozenset(labels)
        self.versions = {1: deepcopy(self.now)}
        self.kept = {1}
        self.tags: dict[str, int] = {}

    @property
    def workspace(self) -> Workspace:
        return Workspace(self.root / "ws")

    def done(self) -> None:
        """A command has changed something."""
        self.version += 1
        self.versions[self.version] = deepcopy(self.now)
        oldest, tagged = self.version - self.now.keep + 1, set(self.tags.values())
        self.kept = {number for number in self.kept | {self.version} if number >= oldest or number in tagged}

    def refused(self, act: Any) -> None:
        before = self.rows()
        with pytest.raises(InputError):
            act()
        assert self.rows() == before

    def rows(self) -> dict[str, list[Any]]:
        """All that is recorded."""
        with self.workspace.store.read() as records:
            return {table: records.select(table) for table in SCHEMA.tables}

    # --- commands ----------------------------------------------------------------------------------------------------

    @rule(labels=st.lists(st.none() | st.sampled_from(NAMES), min_size=1, max_size=3), later=st.integers(0, 2))
    def add(self, labels: list[str | None], later: int) -> None:
        ids = [f"v{self.count + number}" for number in range(len(labels))]
        time = self.now.last + later
        vertices = {"id": ids, "time": [time] * len(ids), "label": labels, "text": [WORDS[self.count % 4]] * len(ids)}
        edges = [(id, next(iter(self.now.labels))) for id in ids]
        if self.now.retired & set(labels):
            self.refused(lambda: self.workspace.add(vertices, edges))
            return
        self.workspace.add(vertices, edges)
        self.count += len(ids)
        self.now.labels |= dict(zip(ids, labels, strict=True))
        self.now.times |= dict.fromkeys(ids, time)
        self.now.fresh += (time,) * sum(name is not None for name in labels)
        self.done()

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        ids = data.draw(st.lists(st.sampled_from(sorted(self.now.labels)), min_size=1, max_size=2, unique=True))
        left = {id: name for id, name in self.now.labels.items() if id not in ids}
        if not any(left.values()):  # a graph without any label would say little
            return
        self.workspace.remove(ids)
        self.now.labels = left
        self.now.times = {id: self.now.times[id] for id in left}
        self.done()

    @rule(again=st.booleans())
    def predict(self, again: bool) -> None:
        open_ids = [id for id, name in self.now.labels.items() if name is None]
        if not open_ids:
            self.refused(self.workspace.predict)
            return
        undecided = {self.now.times[id] for id in open_ids if id not in self.decided}
        times = undecided or {max(self.now.times[id] for id in open_ids)}
        expected = [id for id in open_ids if self.now.times[id] in times]
        before = self.rows()
        found = self.workspace.predict()
        assert sorted(found.column("id").to_pylist()) == sorted(expected)
        assert set(found.column("model").to_pylist()) == {self.now.model}
        assert set(found.column("best").to_pylist()) <= self.now.known - self.now.retired
        if self.workspace.state.version > self.version:  # else these very decisions stand already
            self.done()
        else:
            assert all(self.decided[id] == self.now.model for id in expected)
            assert self.rows() == before
        self.decided |= dict.fromkeys(expected, self.now.model)
        if again and not undecided:
            assert self.workspace.predict().equals(found)

    @rule(data=st.data(), name=st.sampled_from(NAMES))
    def label(self, data: st.DataObject, name: str) -> None:
        ids = data.draw(st.lists(st.sampled_from(sorted(self.now.labels)), min_size=1, max_size=3, unique=True))
        changed = [id for id in ids if self.now.labels[id] != name]
        if name in self.now.retired or not changed:
            self.refused(lambda: self.workspace.label(ids, [name] * len(ids)))
            return
        outcome = self.workspace.label(ids, [name] * len(ids))
        assert outcome.facts["labels"] == len(changed)
        assert outcome.facts["corrected"] == sum(self.now.labels[id] is not None for id in changed)
        self.now.labels |= dict.fromkeys(changed, name)
        self.now.fresh += tuple(self.now.times[id] for id in changed)
        self.scored |= {id: name for id in changed if id in self.decided}
        self.done()

    @rule(restart=st.sampled_from(["auto", "warm", "cold"]))
    def update(self, restart: Any) -> None:
        learnable = self.now.learnable()
        oldest = min(self.now.times.values())
        anew = self.now.stale or self.now.width != self.now.trained or any(time >= oldest for time in self.now.fresh)
        if not anew or not learnable:
            self.refused(lambda: self.workspace.update(restart))
            return
        outcome = self.workspace.update(restart)
        new = self.now.width != self.now.trained  # then it starts from nothing
        cold = restart == "cold" or new
        assert outcome.facts["restart"] == ("cold" if cold else "warm")  # there is too little to choose by
        self.models += 1
        self.now.model, self.now.fresh, self.now.stale = self.models, (), False
        self.now.trained = self.now.width
        self.now.known = (frozenset() if new else self.now.known) | {str(self.now.labels[id]) for id in learnable}
        assert self.workspace.state.model.train_vertices == len(learnable)
        self.done()

    @rule(old=st.sampled_from(NAMES), new=st.sampled_from(NAMES))
    def rename(self, old: str, new: str) -> None:
        if old not in self.now.there or new in self.now.there:
            self.refused(lambda: self.workspace.rename_class(old, new))
            return
        self.workspace.rename_class(old, new)
        self._renamed({old: new}, self.now.retired - {old} | ({new} if old in self.now.retired else set()))

    @rule(one=st.sampled_from(NAMES), into=st.sampled_from(NAMES))
    def merge(self, one: str, into: str) -> None:
        if one == into or one not in self.now.there or into not in self.now.there:
            return
        self.workspace.merge_classes([one], into)
        both = {one, into} <= self.now.retired
        self.now.stale = True
        self._renamed({one: into}, self.now.retired - {one, into} | ({into} if both else set()))

    def _renamed(self, names: dict[str, str], retired: Any) -> None:
        self.now.labels = {id: names.get(name or "", name) for id, name in self.now.labels.items()}
        self.now.known = frozenset(names.get(name, name) for name in self.now.known)
        self.now.retired = frozenset(retired)
        self.scored = {id: names.get(name, name) for id, name in self.scored.items()}
        self.done()

    @rule(name=st.sampled_from(NAMES))
    def retire(self, name: str) -> None:
        taken = name not in self.now.there or name in self.now.retired
        if taken or not self.now.known - self.now.retired - {name}:
            self.refused(lambda: self.workspace.retire_class(name))
            return
        self.workspace.retire_class(name)
        self.now.retired |= {name}
        self.now.stale = True
        self.done()

    @rule(width=st.integers(2, 3), keep=st.integers(2, KEEP), threshold=st.sampled_from([0.5, 0.6]))
    def set(self, width: int, keep: int, threshold: float) -> None:
        given: dict[str, Any] = {"model": {"hidden": width}, "keep": keep}
        if self.now.width == width:  # otherwise it is as if nothing was trained, and the threshold is of little use
            given["detector"] = {"threshold": threshold}
        before = self.workspace.settings()
        if (
            before["model"]["hidden"] == width
            and before["keep"] == keep
            and before["detector"]["threshold"] == threshold
        ):
            self.refused(lambda: self.workspace.set(**given))
            return
        self.workspace.set(**given)
        self.now.width, self.now.keep = width, keep
        self.done()

    @rule(name=st.sampled_from(["x", "y"]), data=st.data())
    def tag(self, name: str, data: st.DataObject) -> None:
        if name in self.tags:
            self.refused(lambda: self.workspace.tag(name, max(self.kept - {self.tags[name]}, default=self.version + 1)))
            self.workspace.tag(name, delete=True)
            del self.tags[name]
        else:
            number = data.draw(st.sampled_from(sorted(self.kept)))
            self.workspace.tag(name, number)
            self.tags[name] = number
        self.done()

    @precondition(lambda self: self.version > 1)
    @rule(data=st.data())
    def rollback(self, data: st.DataObject) -> None:
        to = data.draw(st.integers(1, self.version - 1))
        if to not in self.kept:
            self.refused(lambda: self.workspace.rollback(to))
            return
        named = [name for name, number in self.tags.items() if number == to]
        self.workspace.rollback(named[0] if named else to)
        keep = self.now.keep  # as tags, not part of a version
        self.now = deepcopy(self.versions[to])
        self.now.keep = keep
        self.returned = True
        self.done()

    # --- what must hold ----------------------------------------------------------------------------------------------

    @invariant()
    def all_is_there(self) -> None:
        workspace = self.workspace
        state, graph = workspace.state, workspace.graph
        assert dict(zip(graph.ids, graph.labels, strict=True)) == self.now.labels
        assert dict(zip(graph.ids, graph.times.tolist(), strict=True)) == self.now.times
        assert state.version == self.version
        assert [entry.version for entry in workspace.log()] == list(range(1, self.version + 1))
        assert workspace.store.numbers == sorted(self.kept)
        assert workspace.tags() == self.tags
        settings_now = workspace.settings()
        assert (settings_now["model"]["hidden"], settings_now["keep"]) == (self.now.width, self.now.keep)
        assert (state.model.number, frozenset(state.model.classes)) == (self.now.model, self.now.known)
        assert [record.number for record in workspace.models()] == list(range(1, self.models + 1))
        assert state.retired == tuple(sorted(self.now.retired, key=state.retired.index))
        assert (state.fresh_labels, state.stale) == (len(self.now.fresh), self.now.stale)
        assert {id: row["model"] for id, row in workspace.decisions().items()} == self.decided
        scored = {id: row for rows in workspace.scored_decisions().values() for id, row in rows.items()}
        truth = {id: row["truth"] for id, row in scored.items()}
        if self.returned:  # more of this: `test_corners.py`
            assert truth.keys() <= self.scored.keys()
        else:
            assert truth == self.scored
        assert all(name == self.now.labels.get(id, name) for id, name in truth.items())
        status = workspace.status()
        open_ids = [id for id, name in self.now.labels.items() if name is None]
        assert status.undecided == sum(id not in self.decided for id in open_ids)

    def teardown(self) -> None:
        if hasattr(self, "root"):
            shutil.rmtree(self.root)


def test_commands_in_any_order_do_what_they_say(one_thread: None) -> None:
    with mock.patch.object(os, "fsync"), mock.patch.object(storage_records, "SYNCHRONOUS", "OFF"):
        run_state_machine_as_test(Steps, settings=settings(stateful_step_count=25))
