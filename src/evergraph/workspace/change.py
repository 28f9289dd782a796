"""A command in progress: what it starts from, and how it ends."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evergraph.detect import Detector
from evergraph.graph.evolving import EvolvingGraph
from evergraph.learning.learner import LifelongLearner
from evergraph.nn.base import Model
from evergraph.workspace.keeping import kept_graph, kept_learner, kept_since
from evergraph.workspace.renaming import current_name, renamed_graph, renamings
from evergraph.workspace.state import State
from evergraph.workspace.store import Store, Transaction

__all__ = ["Change", "Outcome"]


@dataclass(frozen=True)
class Outcome:
    """What a command did.

    Parameters
    ----------
    version
        The version in force afterwards.
    parts
        In words, one thing a part.
    facts
        In numbers and names, fit for JSON.
    """

    version: int
    parts: tuple[str, ...]
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def what(self) -> str:
        """All in one line."""
        return "; ".join(self.parts)


@dataclass(frozen=True)
class Change:
    """A workspace that is held to be changed.

    Parameters
    ----------
    store, transaction
        Where things are read from and kept.
    state, graph
        The version in force.
    own
        Model and detector of the user's own, which a file cannot hold.
    """

    store: Store
    transaction: Transaction
    state: State
    graph: EvolvingGraph
    own: tuple[Model | None, Detector | None] = (None, None)

    @property
    def version(self) -> int:
        """The number of the version that it makes."""
        return self.transaction.base + 1

    @property
    def since(self) -> NDArray[np.int64]:
        """For each vertex of the graph, the version it came with."""
        return kept_since(self.store, self.state.graph)

    def learner(self) -> LifelongLearner:
        """The model in force."""
        return kept_learner(self.store, self.state.model, *self.own)

    def learner_before(self) -> LifelongLearner | None:
        """The model before the one in force, where a version that had it is kept; its classes by their names of now."""
        state = self.state
        for number in reversed(self.store.numbers):
            record = State.from_dict(self.store.version(number)).model
            if record.number < state.model.number:
                learner = kept_learner(self.store, record, *self.own)
                steps = renamings(state.renamed, state.returns, number, state.version)
                learner.classes_ = tuple(current_name(name, steps) for name in learner.classes_)
                return learner
        return None

    def graph_at(self, version: int) -> EvolvingGraph | None:
        """The graph as it was in a version, with classes by their names of now; None where that is not kept."""
        state = self.state
        if version not in self.store.numbers:
            return None
        graph = kept_graph(self.store, State.from_dict(self.store.version(version)).graph)
        steps = renamings(state.renamed, state.returns, version, state.version)
        names = {name: current_name(name, steps) for name in graph.class_names}
        return renamed_graph(graph, {old: new for old, new in names.items() if old != new})

    def commit(self, state: State, command: str, *parts: str, **facts: Any) -> Outcome:
        """Make a state the one in force, and say in words what was done."""
        outcome = Outcome(self.version, parts, facts)
        self.transaction.commit(state.with_entry(command, outcome.what, self.version).as_dict())
        return outcome
