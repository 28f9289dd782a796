"""The production loop on disk: a slice arrives, is decided, gets its labels late, and the model is kept current."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

import numpy as np

from evergraph.datasets.tables import Columns
from evergraph.detect import GDOC, Detector
from evergraph.errors import DamagedWorkspaceError, InputError
from evergraph.graph.evolving import EvolvingGraph
from evergraph.graph.features import WordCounts
from evergraph.graph.window import TextMode
from evergraph.learning.learner import LifelongLearner
from evergraph.learning.task import History, check_history, history_sizes
from evergraph.learning.training import OnStep
from evergraph.nn import GraphSAGE
from evergraph.nn.base import Model
from evergraph.workspace import labelling, naming, predicting, slices, updating, versions
from evergraph.workspace.backtest import Choice
from evergraph.workspace.change import Change, Outcome
from evergraph.workspace.coming import coming_task
from evergraph.workspace.grouping import ReviewGroup
from evergraph.workspace.keeping import keep_graph, kept_graph, kept_learner
from evergraph.workspace.naming import ClassRow
from evergraph.workspace.reviewing import ReviewRow, review, review_groups
from evergraph.workspace.scoring import SliceScores, prequential
from evergraph.workspace.state import Entry, Settings, State
from evergraph.workspace.status import Status, status
from evergraph.workspace.store import Store
from evergraph.workspace.words import counted

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Workspace"]

_T = TypeVar("_T")


class Workspace:
    """A folder that holds a graph, model versions, decisions and labels, and keeps them together.

    Each method that changes something is a transaction: it happens wholly or not at all, whatever becomes of the
    process or the disk, and makes a new version, to which `rollback` can return.

    Parameters
    ----------
    folder
        Where it is; `create` makes one.
    model, detector
        Those of your own, which a file cannot hold.

    Examples
    --------
    >>> import tempfile
    >>> from evergraph.datasets import synthetic
    >>> graph = synthetic(vertices=300, times=6, classes=3, seed=1)
    >>> new = graph.ids[graph.times == 5]
    >>> truth = graph.window(5, 5).labels.tolist()
    >>> workspace = Workspace.create(Path(tempfile.mkdtemp()) / "ws", graph.relabel(new, [None] * len(new)), history=2,
    ...                              steps=20)
    >>> decided = workspace.predict()
    >>> decided.num_rows == len(new), decided.column_names[:3]
    (True, ['id', 'time', 'class'])
    >>> workspace.label(new, truth).facts["scored"] == len(new)
    True
    >>> workspace.update("warm").version, workspace.status().model
    (4, 2)
    """

    def __init__(self, folder: str | Path, *, model: Model | None = None, detector: Detector | None = None) -> None:
        self.store = Store(Path(folder))
        self._own = (model, detector)
        self._graph: tuple[Any, EvolvingGraph] | None = None
        self._groups: tuple[int, list[ReviewGroup]] | None = None

    @classmethod
    def create(
        cls,
        folder: str | Path,
        graph: EvolvingGraph,
        *,
        model: Model | None = None,
        detector: Detector | None = None,
        history: History = "auto",
        steps: int = 200,
        lr: float | None = None,
        text: TextMode = "past",
        seed: int = 0,
        columns: Columns | None = None,
        keep: int = 10,
        on_step: OnStep | None = None,
    ) -> Self:
        """Make a workspace around a graph, and train its first model.

        Parameters
        ----------
        folder
            A new or an empty folder.
        graph
            What there is so far, with labels.
        model, detector, steps, lr, text, seed
            See `LifelongLearner`; GraphSAGE and gDOC unless given.
        history
            Times before a slice that are seen; ``"auto"`` chooses as many as cover half of the time differences.
        columns
            What columns are called in the tables that `add` and `label` will read.
        keep
            How many versions are kept to roll back to.
        on_step
            Called after each step of training.
        """
        if keep < 2:
            raise InputError(f"keep is {keep}", fix="keep at least 2 versions")
        if not (graph.codes >= 0).any():
            raise InputError(
                "no vertex has a label, so there is nothing to learn from", fix="give some vertices their labels"
            )
        learner = LifelongLearner(
            model or GraphSAGE(), detector or GDOC(), restart="warm", steps=steps, lr=lr, text=text, seed=seed
        )
        with Store.new(Path(folder)) as transaction:
            size, why = _chosen(graph, coming_task(graph, None).time, history)
            settings = Settings(size, why, _named(columns or Columns(), graph), keep)
            task = coming_task(graph, size)
            record = updating.train(transaction, learner, task, Choice("cold", "it is the first"), on_step)
            since = np.ones(len(graph), np.int64)
            state = State(settings, keep_graph(transaction, graph, since), record, (updating.remembered(record),))
            what = (
                f"{counted(len(graph), 'vertex', 'vertices')} up to {graph.axis.label(graph.last_time)}; model 1 has "
                f"learnt {counted(len(record.classes), 'class', 'classes')} from "
                f"{counted(record.train_vertices, 'label')}; {settings.history_why}"
            )
            transaction.commit(state.with_entry("init", what, 1).as_dict())
        return cls(folder, model=model, detector=detector)

    # --- what there is -----------------------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """The version in force."""
        return State.from_dict(self.store.version())

    @property
    def graph(self) -> EvolvingGraph:
        """The graph with the labels that have come."""
        return self._read(lambda _, graph: graph)

    def learner(self) -> LifelongLearner:
        """The model in force."""
        return self._read(lambda state, _: kept_learner(self.store, state.model, *self._own))

    def status(self) -> Status:
        """Where the workspace stands, and what to do next."""
        return self._read(lambda state, graph: status(self.store, state, graph))

    def log(self) -> tuple[Entry, ...]:
        """All commands that changed something, oldest first."""
        return self.state.log

    def scores(self) -> list[SliceScores]:
        """How the decisions on each slice did, as far as labels have come."""
        return self._read(lambda state, graph: prequential(self.store, state, graph))

    def review(self, most: int | None = 20, *, group: int | None = None) -> list[ReviewRow]:
        """The vertices held to be of an unseen class that have no label yet, most unseen first.

        Parameters
        ----------
        most
            How many; None for all.
        group
            Number of a group, if only its vertices are wanted; see `groups`.
        """
        return self._read(
            lambda state, graph: review(
                self.store, state, graph, most, groups=self._groups_of(state, graph), group=group
            )
        )

    def groups(self) -> list[ReviewGroup]:
        """The vertices to review that belong together, the largest group first; those alone are in none of them.

        Numbers of groups hold for this version: what is labelled, added or decided makes other groups.
        """
        return self._read(lambda state, graph: list(self._groups_of(state, graph)))

    def _read(self, read: Callable[[State, EvolvingGraph], _T]) -> _T:
        """Read something of the version in force, anew where commands of other processes swept it away meanwhile."""
        while True:
            state = self.state
            try:
                return read(state, self._graph_of(state))
            except DamagedWorkspaceError:
                if self.store.head == state.version:
                    raise

    def _graph_of(self, state: State) -> EvolvingGraph:
        if self._graph is None or self._graph[0] != state.graph:
            self._graph = (state.graph, kept_graph(self.store, state.graph))
        return self._graph[1]

    def _groups_of(self, state: State, graph: EvolvingGraph) -> list[ReviewGroup]:
        if self._groups is None or self._groups[0] != state.version:
            self._groups = (state.version, review_groups(self.store, state, graph))
        return self._groups[1]

    # --- slices ------------------------------------------------------------------------------------------------------

    def add(
        self,
        vertices: Any = None,
        edges: Any = None,
        *,
        features: Any = None,
        drop_dangling: bool = False,
        columns: Columns | None = None,
    ) -> Outcome:
        """A new slice arrives, unlabelled or partly labelled.

        Edges between vertices that were there before, without a time of their own, count from the slice on: the past
        must not change by what became known later.

        Parameters
        ----------
        vertices, edges
            A file, or columns as `EvolvingGraph.append` takes them. No vertex may be older than the newest one.
        features
            Those of vertices in memory, where the graph has features instead of text.
        drop_dangling
            Drop edges to unknown ids instead of refusing them.
        columns
            What columns are called in the files, where it is not what `create` was told.
        """
        if vertices is None and edges is None:
            raise InputError("there is nothing to add", fix="give vertices, edges or both")
        with self._change() as change:
            return slices.add(change, vertices, edges, features=features, drop_dangling=drop_dangling, columns=columns)

    def remove(
        self,
        vertices: Iterable[str | int] | str | Path = (),
        edges: Any = None,
        *,
        columns: Columns | None = None,
    ) -> Outcome:
        """Take vertices (with their edges) or edges out of the graph; what was decided on them is kept.

        Parameters
        ----------
        vertices
            Ids, or a file with a column of ids.
        edges
            A file, or columns as `EvolvingGraph.remove` takes them.
        columns
            See `add`.
        """
        with self._change() as change:
            return slices.remove(change, vertices, edges, columns=columns)

    # --- decisions ---------------------------------------------------------------------------------------------------

    def predict(self, time: int | str | None = None) -> pa.Table:
        """Decide the vertices without a label: of each its class, or that it was never seen before, and why.

        What was decided is kept, to be scored once labels come. Deciding the same again gives the same and keeps
        nothing twice.

        Parameters
        ----------
        time
            Of which vertices. By default all times with vertices that were never decided or, where there are none, the
            newest one that has vertices without a label.

        Returns
        -------
        A table with the columns ``id``, ``time``, ``class`` (a known class, or ``"unseen"``), ``score`` (how unseen),
        ``probability`` and ``best`` (the most likely known class), ``model`` (its number), ``nearest`` (the most likely
        known classes) and ``neighbours`` (the classes of the neighbours).
        """
        with self._change() as change:
            return predicting.predict(change, time)

    # --- labels ------------------------------------------------------------------------------------------------------

    def label(
        self,
        ids: Iterable[str | int] | str | Path,
        labels: Iterable[str] | None = None,
        *,
        columns: Columns | None = None,
    ) -> Outcome:
        """Labels have come, late ones and corrections too; a new name is a new class.

        All earlier decisions on these vertices are scored against them; see `scores`.

        Parameters
        ----------
        ids
            Ids of vertices, or a file with a column of ids and one of labels; rows without a label are passed over.
        labels
            Class names, one an id.
        columns
            See `add`.
        """
        with self._change() as change:
            return labelling.label(change, ids, labels, columns=columns)

    # --- learning ----------------------------------------------------------------------------------------------------

    def update(self, restart: Literal["auto", "warm", "cold"] = "auto", *, on_step: OnStep | None = None) -> Outcome:
        """Retrain incrementally on the history, with the labels that have come.

        Parameters
        ----------
        restart
            ``"warm"`` goes on from the weights, ``"cold"`` starts afresh; ``"auto"`` chooses between them, or to leave
            the model as it is, by a back-test on the last labelled slice (see `choose_restart`).
        on_step
            Called after each step of training.
        """
        with self._change() as change:
            return updating.update(change, restart, on_step)

    # --- classes -----------------------------------------------------------------------------------------------------

    def classes(self) -> list[ClassRow]:
        """All classes, in the order in which they became known."""
        return self._read(naming.list_classes)

    def create_class(
        self,
        name: str,
        ids: Iterable[str | int] | str | Path = (),
        *,
        groups: Iterable[int] = (),
        columns: Columns | None = None,
    ) -> Outcome:
        """A new class from reviewed vertices, which get it as their label; or a retired one brought back.

        Parameters
        ----------
        name
            Of the class.
        ids
            Of the vertices, or a file with a column of ids.
        groups
            Numbers of groups instead, all of whose vertices are meant; see `groups`.
        columns
            See `add`.
        """
        with self._change() as change:
            return naming.create_class(change, name, ids, groups=groups, columns=columns)

    def rename_class(self, old: str, new: str) -> Outcome:
        """A class gets another name, in the labels, in the model and in what is said of earlier decisions."""
        with self._change() as change:
            return naming.rename_class(change, old, new)

    def merge_classes(self, names: Sequence[str], into: str) -> Outcome:
        """Several classes become one; the model says its name at once, and learns it as one with the next update."""
        with self._change() as change:
            return naming.merge_classes(change, names, into)

    def retire_class(self, name: str) -> Outcome:
        """No vertex is decided to be of this class any more, nor learnt from as one; its labels stay."""
        with self._change() as change:
            return naming.retire_class(change, name)

    # --- versions ----------------------------------------------------------------------------------------------------

    def rollback(self, version: int, *, model_only: bool = False) -> Outcome:
        """Return to the graph, the labels and the model of an earlier version, or to its model alone.

        That makes a new version: nothing is forgotten, and one can return from it, too. Decisions stay, for they were
        made; they count for vertices that are still the same, and are scored against labels that are still in force.

        Parameters
        ----------
        version
            Number of a version that is kept; see `log`.
        model_only
            Leave graph and labels as they are.
        """
        with self._change() as change:
            return versions.rollback(change, version, model_only=model_only)

    # --- transactions ------------------------------------------------------------------------------------------------

    @contextmanager
    def _change(self) -> Iterator[Change]:
        with self.store.change(self.state.settings.keep) as transaction:
            state = self.state  # read again: another process may have changed it before the lock was had
            yield Change(self.store, transaction, state, self._graph_of(state), self._own)


def _chosen(graph: EvolvingGraph, time: int, history: History) -> tuple[int | None, str]:
    """A history as a number of times, None for all, and how it was chosen, in words."""
    sizes = history_sizes(graph, time) if history == "auto" else {}
    if not sizes:
        size = check_history(graph, time, history)
        why = "is all there is" if size is None else f"of {graph.axis.counted(size)} was asked for"
        return size, f"the history {why}"
    shares = ", ".join(f"{level}%: {found}" for level, found in sizes.items())
    chosen = graph.axis.counted(sizes[50])
    return sizes[50], f"the history of {chosen} covers half of the time differences over two edges ({shares})"


def _named(columns: Columns, graph: EvolvingGraph) -> Columns:
    """Columns of which that of the text has a name where the graph has text: a slice without it is then a slip."""
    return replace(columns, text="text") if columns.text is None and isinstance(graph.features, WordCounts) else columns
