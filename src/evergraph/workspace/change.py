"""A command in progress: what it starts from, and how it ends."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from evergraph.detect import Detector
from evergraph.graph.evolving import EvolvingGraph
from evergraph.learner import LifelongLearner
from evergraph.nn.base import Model
from evergraph.workspace.keeping import kept_learner
from evergraph.workspace.renaming import current_name, renamings
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
    what
        In words.
    facts
        In numbers and names, fit for JSON.
    """

    version: int
    what: str
    facts: dict[str, Any] = field(default_factory=dict)


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

    def commit(self, state: State, command: str, what: str, **facts: Any) -> Outcome:
        """Make a state the one in force."""
        number = self.transaction.commit(state.with_entry(command, what, self.version).as_dict())
        return Outcome(number, what, facts)
