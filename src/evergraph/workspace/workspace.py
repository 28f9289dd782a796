"""The production loop on disk: a slice arrives, is decided, gets its labels late, and the model is kept current."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from evergraph.errors import DamagedWorkspaceError, InputError
from evergraph.graph.columns import Columns
from evergraph.storage.records import Records
from evergraph.workspace.change import Change, Contents, Outcome
from evergraph.workspace.store import Entry, ModelRecord, Settings, State, Store, read_state

if TYPE_CHECKING:
    import pyarrow as pa

    from evergraph.detect import Detector
    from evergraph.graph.evolving import EvolvingGraph, TextMode
    from evergraph.learning.learner import LifelongLearner
    from evergraph.learning.task import History
    from evergraph.learning.training import OnStep
    from evergraph.nn.base import Model
    from evergraph.workspace.classes import ClassRow
    from evergraph.workspace.decisions import Flagged, ReviewRow
    from evergraph.workspace.groups import ReviewGroup
    from evergraph.workspace.scores import SliceScores
    from evergraph.workspace.status import Status

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
    wait
        Seconds that a method which changes something waits for another process that does; by default it is refused.

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

    def __init__(
        self,
        folder: str | Path,
        *,
        model: Model | None = None,
        detector: Detector | None = None,
        wait: float = 0,
    ) -> None:
        self.store = Store(Path(folder))
        self.wait = wait
        self._own = (model, detector)
        self._contents: tuple[int, Contents] | None = None
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
        from evergraph.workspace.update import make_first

        with Store.new(Path(folder)) as (records, objects):
            make_first(
                records,
                objects,
                graph,
                (model, detector),
                _settings(graph, history, columns or Columns(), keep),
                {"steps": steps, "lr": lr, "text": text, "seed": seed},
                on_step,
            )
        return cls(folder, model=model, detector=detector)

    # --- what there is -----------------------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """The version in force."""
        return self._look(lambda _, state: state)

    @property
    def graph(self) -> EvolvingGraph:
        """The graph with the labels that have come."""
        return self._read(lambda _records, _state, contents: contents.graph)

    def learner(self) -> LifelongLearner:
        """The model in force."""
        from evergraph.workspace.change import read_learner

        return self._look(
            lambda records, state: read_learner(records, self.store.objects, state, self._own, state.classes)
        )

    def describe_model(self) -> dict[str, Any]:
        """Model, detector and settings of the learner in force, as they are stored."""
        import json

        return self._look(lambda _, state: dict(json.loads(self.store.objects.read(state.learner))))

    def status(self) -> Status:
        """Where the workspace stands, and what to do next."""
        from evergraph.workspace.status import status

        return self._look(status)

    def log(self) -> tuple[Entry, ...]:
        """All commands that changed something, oldest first."""
        return self._look(
            lambda records, _: tuple(Entry(*row) for row in records.select("versions", "TRUE ORDER BY version"))
        )

    def models(self) -> list[ModelRecord]:
        """All models so far, oldest first."""
        from evergraph.workspace.scores import read_models

        return self._look(read_models)

    def decisions(self, times: Iterable[int] | None = None) -> dict[str, dict[str, Any]]:
        """The last decision on each vertex by its id; see `latest_decisions`."""
        from evergraph.workspace.scores import latest_decisions

        return self._look(lambda records, state: latest_decisions(records, state, times))

    def scored_decisions(self) -> dict[int, dict[str, dict[str, Any]]]:
        """The decisions whose labels have come, by time and id; see `scores.scored_decisions`."""
        from evergraph.workspace.scores import scored_decisions

        return self._look(scored_decisions)

    def scores(self) -> list[SliceScores]:
        """How the decisions on each slice did, as far as labels have come."""
        from evergraph.workspace.scores import prequential

        return self._look(prequential)

    def last_scores(self) -> SliceScores | None:
        """The scores of the newest slice with labels that have come; None where there is none."""
        from evergraph.workspace.scores import last_scores

        return self._look(last_scores)

    def review(self, most: int | None = 20, *, group: int | None = None) -> list[ReviewRow]:
        """The vertices held to be of an unseen class that have no label yet, most unseen first.

        Parameters
        ----------
        most
            How many; None for all.
        group
            Number of a group, if only its vertices are wanted; see `groups`.
        """
        from evergraph.workspace.decisions import review

        state, graph, found = self._flagged()
        groups = self._groups_of(state, graph, found)
        return review(graph, state.settings.history, found, groups, most=most, group=group)

    def groups(self) -> list[ReviewGroup]:
        """The vertices to review that belong together, the largest group first; those alone are in none of them.

        Numbers of groups hold for this version: what is labelled, added or decided makes other groups.
        """
        return list(self._groups_of(*self._flagged()))

    def verify(self) -> dict[str, int]:
        """Read everything that is kept and compare it with its checksums; returns how many rows, objects and bytes."""
        return self.store.verify()

    def _look(self, look: Callable[[Records, State], _T]) -> _T:
        """Read something of the version in force, anew where commands of other processes removed it meanwhile."""
        while True:
            head = self.store.head
            try:
                with self.store.read() as records:
                    state = read_state(records)
                    head = state.version
                    return look(records, state)
            except DamagedWorkspaceError:
                if self.store.head == head:
                    raise

    def _read(self, read: Callable[[Records, State, Contents], _T]) -> _T:
        """Read something of the version in force and its graph."""
        return self._look(lambda records, state: read(records, state, self._contents_of(records, state)))

    def _contents_of(self, records: Records, state: State) -> Contents:
        if self._contents is None or self._contents[0] != state.version:
            self._contents = (state.version, Contents.read(records, self.store.objects, state.classes))
        return self._contents[1]

    def _flagged(self) -> tuple[State, EvolvingGraph, Flagged]:
        from evergraph.workspace.decisions import flagged

        return self._read(lambda records, state, contents: (state, contents.graph, flagged(records, state, contents)))

    def _groups_of(self, state: State, graph: EvolvingGraph, found: Flagged) -> list[ReviewGroup]:
        from evergraph.workspace.decisions import review_groups

        if self._groups is None or self._groups[0] != state.version:
            self._groups = (state.version, review_groups(graph, found))
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
        from evergraph.workspace import slices

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
        from evergraph.workspace import slices

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
        from evergraph.workspace.decisions import predict

        with self._change() as change:
            return predict(change, time)

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
        from evergraph.workspace.labels import label

        with self._change() as change:
            return label(change, ids, labels, columns=columns)

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
        from evergraph.workspace.update import update

        with self._change() as change:
            return update(change, restart, on_step)

    # --- classes -----------------------------------------------------------------------------------------------------

    def classes(self) -> list[ClassRow]:
        """All classes, in the order in which they became known."""
        from evergraph.workspace.classes import list_classes

        return self._look(list_classes)

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
        from evergraph.workspace.classes import create_class

        with self._change() as change:
            return create_class(change, name, ids, groups=groups, columns=columns)

    def rename_class(self, old: str, new: str) -> Outcome:
        """A class gets another name, in the labels, in the model and in what is said of earlier decisions."""
        from evergraph.workspace.classes import rename_class

        with self._change() as change:
            return rename_class(change, old, new)

    def merge_classes(self, names: Sequence[str], into: str) -> Outcome:
        """Several classes become one; the model says its name at once, and learns it as one with the next update."""
        from evergraph.workspace.classes import merge_classes

        with self._change() as change:
            return merge_classes(change, names, into)

    def retire_class(self, name: str) -> Outcome:
        """No vertex is decided to be of this class any more, nor learnt from as one; its labels stay."""
        from evergraph.workspace.classes import retire_class

        with self._change() as change:
            return retire_class(change, name)

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
        from evergraph.workspace.update import rollback

        with self._change() as change:
            return rollback(change, version, model_only=model_only)

    # --- transactions ------------------------------------------------------------------------------------------------

    @contextmanager
    def _change(self) -> Iterator[Change]:
        with self.store.write(self.wait) as records:
            state = read_state(records)
            change = Change(self.store, records, state, self._contents_of(records, state), self._own)
            yield change
        if change.made:
            self._contents = (change.version, change.contents)


def _settings(graph: EvolvingGraph, history: History, columns: Columns, keep: int) -> Settings:
    """What was chosen, with the history as a number of times, and in words how it was chosen."""
    from evergraph.graph.features import WordCounts
    from evergraph.learning.task import AUTO_LEVEL, history_sizes, resolve_history
    from evergraph.workspace.update import next_task

    if columns.text is None and isinstance(graph.features, WordCounts):
        columns = replace(columns, text="text")  # a slice without it is then a slip
    time = next_task(graph, None).time
    sizes = history_sizes(graph, time) if history == "auto" else {}
    if not sizes:
        size = resolve_history(graph, time, history)
        why = "is all there is" if size is None else f"of {graph.axis.counted(size)} was asked for"
        return Settings(size, f"the history {why}", columns, keep, graph.axis)
    shares = ", ".join(f"{level}%: {found}" for level, found in sizes.items())
    chosen = graph.axis.counted(sizes[AUTO_LEVEL])
    why = f"the history of {chosen} covers half of the time differences over two edges ({shares})"
    return Settings(sizes[AUTO_LEVEL], why, columns, keep, graph.axis)
