"""The production loop on disk: add a slice, predict, label, update."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from evergraph.errors import DamagedWorkspaceError, EvergraphError, InputError
from evergraph.graph.columns import Columns
from evergraph.storage.records import Records
from evergraph.workspace.change import Change, Contents, Outcome, read_description, read_inputs, read_learner
from evergraph.workspace.store import LogEntry, ModelRecord, Settings, Store, WorkspaceState, read_state, read_tags

if TYPE_CHECKING:
    import pyarrow as pa

    from evergraph.detect import Detector
    from evergraph.graph.evolving import EvolvingGraph, TextMode
    from evergraph.inputs.encoders import Encoder
    from evergraph.inputs.encoding import OnEncoded
    from evergraph.learning.attribution import Attribution
    from evergraph.learning.learner import LifelongLearner
    from evergraph.learning.memory import MemoryPolicy
    from evergraph.learning.task import History
    from evergraph.learning.training import OnStep
    from evergraph.nn.base import Model
    from evergraph.workspace.review import Flagged, FlaggedVertex, ReviewGroup
    from evergraph.workspace.scores import ClassRow, SliceScores, Status

__all__ = ["Workspace"]

log = logging.getLogger(__name__)

_T = TypeVar("_T")
_PATIENCE = 60.0  # seconds to wait for another process before the result of long work is lost


class Workspace:
    """A folder with a graph, its models, decisions and labels.

    Each method that changes the workspace is atomic: it either succeeds completely or changes nothing, even if the
    process is killed. It makes a new version; `rollback` restores an earlier one.

    Parameters
    ----------
    folder
        Folder of an existing workspace; `create` makes a new one.
    model, detector
        Your own model and detector, if the workspace uses some that cannot be stored in a file. Others are ignored:
        the workspace stores them, and `set` changes them.
    wait
        Seconds to wait for another process that is changing the workspace; by default an error is raised at once.
    device
        Device to compute on, as in `LifelongLearner`. It is not stored.

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
        device: str = "cpu",
    ) -> None:
        self.store = Store(Path(folder))
        self.wait, self.device = wait, device
        self.made: int | None = None
        """The version that the last command made; None if it changed nothing."""
        self._own = (_unless_stored(model, "model"), _unless_stored(detector, "detector"))
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
        inputs: str | Sequence[str] = "auto",
        memory: MemoryPolicy | str | None = None,
        text: TextMode = "past",
        seed: int = 0,
        columns: Columns | None = None,
        keep: int = 10,
        device: str = "cpu",
        on_step: OnStep | None = None,
    ) -> Self:
        """Create a workspace from a graph, and train its first model.

        Parameters
        ----------
        folder
            A new or an empty folder.
        graph
            The graph so far, with labels.
        model, detector, steps, lr, inputs, memory, text, seed
            See `LifelongLearner`.
        history
            Number of past periods that a model trains on; ``"auto"`` chooses the number that covers half of the time
            differences, ``"full"`` means all.
        columns
            Names of the columns in the tables for `add` and `label`.
        keep
            Number of versions that are kept for `rollback`, at least 2.
        device
            Device to compute on, as in `LifelongLearner`. It is not stored.
        on_step
            Called after each training step.
        """
        if not (graph.codes >= 0).any():
            raise InputError("no vertex has a label, so there is nothing to train on", fix="label some vertices")
        from evergraph.workspace import update
        from evergraph.workspace.scores import late_warnings
        from evergraph.workspace.settings import check_keep, describe_memory

        describe_memory(memory)  # refuses one that cannot be stored
        settings = _settings(graph, history, columns or Columns(), check_keep(keep))
        learning = {"steps": steps, "lr": lr, "inputs": inputs, "memory": memory, "text": text, "seed": seed}
        learning["device"] = device
        with Store.new(Path(folder)) as (records, objects):
            update.create(records, objects, graph, (model, detector), settings, learning, on_step)
            for warning in late_warnings(records, read_state(records), Path(folder)):
                log.warning("Warning: %s", warning)
        return cls(folder, model=model, detector=detector, device=device)

    # --- what there is -----------------------------------------------------------------------------------------------

    @property
    def state(self) -> WorkspaceState:
        """The current version, without its graph."""
        return self._look(lambda _, state: state)

    @property
    def graph(self) -> EvolvingGraph:
        """The graph with the labels that have arrived."""
        return self._read(lambda _records, _state, contents: contents.graph)

    def learner(self) -> LifelongLearner:
        """Return the current model."""
        return self._look(self._learner_of)

    def describe_model(self) -> dict[str, Any]:
        """Return model, detector and settings of the current learner as they are stored."""
        return self._look(lambda _, state: read_description(self.store.objects, state))

    def status(self) -> Status:
        """Return the size of the graph, the current model, what is waiting, and what to do next."""
        from evergraph.workspace.scores import status

        return self._look(
            lambda records, state: status(records, state, self.store.folder, read_inputs(self.store.objects, state))
        )

    def log(self) -> tuple[LogEntry, ...]:
        """Return all commands that changed the workspace, oldest first."""

        def read(records: Records, _: WorkspaceState) -> tuple[LogEntry, ...]:
            tags: dict[int, tuple[str, ...]] = {}
            for name, version in read_tags(records).items():
                tags[version] = (*tags.get(version, ()), name)
            who = {row.version: row.who for row in records.select("authors")}
            rows = records.select("versions", "TRUE ORDER BY version")
            return tuple(
                replace(LogEntry(*row), tags=tags.get(row.version, ()), who=who.get(row.version, "")) for row in rows
            )

        return self._look(read)

    def settings(self) -> dict[str, Any]:
        """Return the settings that `set` can change, by name; models and detectors as in `describe_model`."""
        from evergraph.workspace.settings import current_settings

        return self._look(
            lambda _, state: current_settings(state.settings, read_description(self.store.objects, state))
        )

    def tags(self) -> dict[str, int]:
        """Return the tagged versions: their numbers by tag."""
        return self._look(lambda records, _: read_tags(records))

    def models(self) -> list[ModelRecord]:
        """Return the records of all models, oldest first."""
        from evergraph.workspace.scores import read_models

        return self._look(read_models)

    def decisions(self, times: Iterable[int] | None = None) -> dict[str, dict[str, Any]]:
        """Return the latest decision on each vertex by id, of some periods or of all."""
        from evergraph.workspace.scores import latest_decisions

        return self._look(lambda records, state: latest_decisions(records, state, times))

    def scored_decisions(self) -> dict[int, dict[str, dict[str, Any]]]:
        """Return the last decision on each vertex before its label arrived, with the label, by period and id."""
        from evergraph.workspace.scores import scored_decisions

        return self._look(scored_decisions)

    def scores(self) -> list[SliceScores]:
        """Return the scores of the decisions on each slice, for the labels that have arrived."""
        from evergraph.workspace.scores import all_scores

        return self._look(all_scores)

    def last_scores(self) -> SliceScores | None:
        """Return the scores of the newest slice with labels; None if there is none."""
        from evergraph.workspace.scores import last_scores

        return self._look(last_scores)

    def classes(self) -> list[ClassRow]:
        """Return all classes in the order in which they became known."""
        from evergraph.workspace.scores import list_classes

        return self._look(list_classes)

    def review(self, most: int | None = 20, *, group: int | None = None, why: bool = False) -> list[FlaggedVertex]:
        """Return the unlabelled vertices that were flagged as unseen, highest score first.

        Parameters
        ----------
        most
            Maximum number of vertices; None for all.
        group
            Number of a group, to return only its vertices; see `groups`.
        why
            Also return the inputs that contribute most to the most likely class. It loads the model, and takes a pass
            through it for each vertex.
        """
        from evergraph.workspace.review import review

        state, graph, found = self._flagged()
        groups, history = self._groups_of(state, graph, found), state.settings.history

        def explained(rows: Flagged) -> dict[int, tuple[Attribution, ...]]:
            from evergraph.workspace.predict import explain

            current = [place for row, place in rows if row["model"] == state.model.number]
            learner = self._look(lambda records, _: self._learner_of(records, state))
            return explain(learner, graph, current, history, state.retired)

        options: dict[str, Any] = {"explain": explained} if why else {}
        return review(graph, history, found, groups, most=most, group=group, **options)

    def groups(self) -> list[ReviewGroup]:
        """Return groups of flagged vertices that are similar to each other, the largest first.

        The numbers of groups are valid for this version: adding, labelling or predicting changes the groups.
        """
        return list(self._groups_of(*self._flagged()))

    def verify(self) -> dict[str, int]:
        """Compare everything on disk with its checksums; return the number of rows, objects and bytes."""
        return self.store.verify()

    def _look(self, look: Callable[[Records, WorkspaceState], _T]) -> _T:
        """Read from the current version; read again if another process removed it meanwhile."""
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

    def _read(self, read: Callable[[Records, WorkspaceState, Contents], _T]) -> _T:
        """Read from the current version and its graph."""
        return self._look(lambda records, state: read(records, state, self._contents_of(records, state)))

    def _learner_of(self, records: Records, state: WorkspaceState) -> LifelongLearner:
        return read_learner(records, self.store.objects, state, self._own, state.classes, self.device)

    def _contents_of(self, records: Records, state: WorkspaceState) -> Contents:
        if self._contents is None or self._contents[0] != state.version:
            self._contents = (state.version, Contents.read(records, self.store.objects, state.classes))
        return self._contents[1]

    def _flagged(self) -> tuple[WorkspaceState, EvolvingGraph, Flagged]:
        from evergraph.workspace.review import find_flagged

        return self._read(
            lambda records, state, contents: (state, contents.graph, find_flagged(records, state, contents))
        )

    def _groups_of(self, state: WorkspaceState, graph: EvolvingGraph, found: Flagged) -> list[ReviewGroup]:
        from evergraph.workspace.review import review_groups

        if self._groups is None or self._groups[0] != state.version:
            self._groups = (state.version, review_groups(graph, found))
        return self._groups[1]

    # --- commands ----------------------------------------------------------------------------------------------------

    @contextmanager
    def _change(self, wait: float | None = None) -> Iterator[Change]:
        """Change the workspace in one transaction."""
        with self._locked(self.wait if wait is None else wait) as change:
            yield change
        if change.outcome is not None:
            self._own = change.own
            self._contents = (change.version, change.contents)
            self.made = change.version

    @contextmanager
    def _locked(self, wait: float) -> Iterator[Change]:
        """Read the current version while no other process can change it."""
        self.made = None
        with self.store.write(wait) as records:
            state = read_state(records)
            yield Change(self.store, records, state, self._contents_of(records, state), self._own, self.device)

    def add(
        self,
        vertices: Any = None,
        edges: Any = None,
        *,
        features: Any = None,
        drop_dangling: bool = False,
        columns: Columns | None = None,
        encoder: str | Path | Encoder | None = None,
        on_encoded: OnEncoded | None = None,
    ) -> Outcome:
        """Add a slice, unlabelled or partly labelled.

        Edges between old vertices get the period of the slice unless they have their own, so that the past does not
        change.

        Parameters
        ----------
        vertices, edges
            A file, or columns as for `EvolvingGraph.append`. No vertex may be older than the newest slice.
        features
            A matrix of features of vertices given as columns, if the graph was built with one.
        drop_dangling
            Drop edges to unknown ids; by default they are an error.
        columns
            Names of the columns in the files, if they differ from those given to `create`.
        encoder
            The encoder of the graph's vectors, if its name is not enough to find it: the folder of a model.
        on_encoded
            Called for each batch of texts that is encoded.
        """
        if vertices is None and edges is None:
            raise InputError("there is nothing to add", fix="give vertices, edges or both")
        from evergraph.workspace import slices

        with self._change() as change:
            outcome = slices.add(
                change,
                vertices,
                edges,
                features=features,
                drop_dangling=drop_dangling,
                columns=columns,
                encoder=encoder,
                on_encoded=on_encoded,
            )
        self._compact(change.contents, outcome.version)
        return outcome

    def _compact(self, contents: Contents, version: int) -> None:
        """Merge small segments; what cannot be done now is done after another slice."""
        from evergraph.workspace.compaction import compact

        try:
            compact(self.store, contents, version)
        except (EvergraphError, OSError) as error:
            log.info("Segments of the graph were not merged: %s", error)

    def remove(
        self,
        vertices: Iterable[str | int] | str | Path = (),
        edges: Any = None,
        *,
        columns: Columns | None = None,
    ) -> Outcome:
        """Remove vertices (with their edges) or edges from the graph; decisions on them are kept.

        Parameters
        ----------
        vertices
            Ids, or a file with a column of ids.
        edges
            A file, or columns as for `EvolvingGraph.remove`.
        columns
            See `add`.
        """
        from evergraph.workspace import slices

        with self._change() as change:
            return slices.remove(change, vertices, edges, columns=columns)

    def predict(self, time: int | str | None = None) -> pa.Table:
        """Decide vertices without a label, and store the decisions; they are scored when labels arrive.

        Predicting again without a change gives the same decisions and stores nothing. Others can change the workspace
        meanwhile, as in `update`.

        Parameters
        ----------
        time
            Period of the vertices. By default all periods with undecided vertices; if there are none, the newest
            period with unlabelled vertices.

        Returns
        -------
        A table with the columns ``id``, ``time``, ``class`` (a known class, or ``"unseen"``), ``score`` (higher means
        more likely unseen), ``best`` (the most likely known class), ``probability`` (of ``best``, if the class
        is known at all: it can be high for a flagged vertex), ``model`` (its number), ``nearest`` (the most likely
        known classes, a list of ``class`` and ``probability``) and ``neighbours`` (the classes of the neighbours, a
        list of ``class`` and ``count``).
        """
        from evergraph.workspace import predict

        with self._locked(self.wait) as view:
            plan = predict.plan(view, time)
        decided = predict.decide(plan)
        with self._change(max(self.wait, _PATIENCE)) as change:
            return predict.save(change, plan, decided)

    def label(
        self,
        ids: Any,
        labels: Iterable[str] | None = None,
        *,
        columns: Columns | None = None,
    ) -> Outcome:
        """Add labels, including late ones and corrections, and score earlier decisions; a new name is a new class.

        Parameters
        ----------
        ids
            Ids of vertices. Without ``labels``: a file, a data frame, an Arrow table or a mapping with a column of ids
            and one of labels, named as in the workspace or ``id`` and ``label``; or a pandas Series of labels whose
            index is the ids. Rows without a label are ignored; for -1 see `EvolvingGraph.build`.
        labels
            Class names, one per id. Two pandas Series must have the same index.
        columns
            See `add`.
        """
        from evergraph.workspace.labels import label

        with self._change() as change:
            return label(change, ids, labels, columns=columns)

    def update(self, restart: Literal["auto", "warm", "cold"] = "auto", *, on_step: OnStep | None = None) -> Outcome:
        """Train the model on its history with the labels that have arrived.

        Others can change the workspace meanwhile. Slices and labels that they add belong to the next update; after
        any other change the update is not saved, and `StaleError` is raised.

        Parameters
        ----------
        restart
            ``"warm"`` starts from the previous weights, ``"cold"`` from new random weights. ``"auto"`` chooses between
            them, or keeps the model, by a backtest on the last labelled slice (see `choose_restart`).
        on_step
            Called after each training step.
        """
        from evergraph.workspace import update

        with self._locked(self.wait) as view:
            plan = update.plan(view, restart)
        choice, record = update.run(plan, on_step)
        with self._change(max(self.wait, _PATIENCE)) as change:
            return update.save(change, plan, choice, record)

    def create_class(
        self,
        name: str,
        ids: Iterable[str | int] | str | Path = (),
        *,
        groups: Iterable[int] = (),
        columns: Columns | None = None,
    ) -> Outcome:
        """Create a class and label vertices with it, or bring a retired class back.

        Parameters
        ----------
        name
            Name of the class.
        ids
            Ids of the vertices, or a file with a column of ids.
        groups
            Instead of ids: numbers of groups; see `groups`.
        columns
            See `add`.
        """
        from evergraph.workspace.labels import create_class

        with self._change() as change:
            return create_class(change, name, ids, groups=groups, columns=columns)

    def rename_class(self, old: str, new: str) -> Outcome:
        """Rename a class, also in the model and in earlier decisions."""
        from evergraph.workspace.labels import rename_class

        with self._change() as change:
            return rename_class(change, old, new)

    def merge_classes(self, names: Sequence[str], into: str) -> Outcome:
        """Merge classes into one; predictions use its name immediately, the next update trains it as one class."""
        from evergraph.workspace.labels import merge_classes

        with self._change() as change:
            return merge_classes(change, names, into)

    def retire_class(self, name: str) -> Outcome:
        """Retire a class: it is not predicted and not trained on any more; its labels are kept."""
        from evergraph.workspace.labels import retire_class

        with self._change() as change:
            return retire_class(change, name)

    def set(
        self,
        *,
        history: History | None = None,
        model: Model | str | Mapping[str, Any] | None = None,
        detector: Detector | str | Mapping[str, Any] | None = None,
        steps: int | None = None,
        lr: float | None = None,
        inputs: str | Sequence[str] | None = None,
        memory: MemoryPolicy | str | None = None,
        keep: int | None = None,
    ) -> Outcome:
        """Change settings that were given to `create`; None leaves a setting as it is.

        A new model, new inputs, or a detector that needs another training take effect with the next update, which
        trains from new random weights; until then predictions use the current ones. If only ``threshold``, ``alpha``
        or ``objective`` of the detector changes, the next prediction uses it. Raises `NothingToDoError` if nothing
        changes.

        Parameters
        ----------
        history, steps, lr, inputs, keep
            See `create`. A new history also applies to the edges that predictions use.
        model, detector
            An object, a text as on the command line (``"sage:hidden=64"``, ``"gdoc:0.5"``), or only the settings to
            change (``{"threshold": 0.5}``). Classes of your own must be registered by an entry point, because the
            workspace stores them by name.
        memory
            A policy or its name and budget, as in `LifelongLearner`; ``"none"`` turns it off.
        """
        from evergraph.workspace.settings import change_settings

        with self._change() as change:
            return change_settings(
                change,
                history=history,
                model=model,
                detector=detector,
                steps=steps,
                lr=lr,
                inputs=inputs,
                memory=memory,
                keep=keep,
            )

    def tag(self, name: str, version: int | str | None = None, *, delete: bool = False) -> Outcome:
        """Give a version a name; it is then kept, whatever ``keep`` is, until the name is deleted.

        Tags are not part of a version: `rollback` changes none.

        Parameters
        ----------
        name
            Up to 64 letters without accents, digits, dots, hyphens and underscores; the first is a letter.
        version
            A version that is kept, by number or tag; by default the current one.
        delete
            Delete the tag instead.
        """
        from evergraph.workspace.settings import tag

        with self._change() as change:
            return tag(change, name, version, delete=delete)

    def rollback(self, version: int | str, *, model_only: bool = False) -> Outcome:
        """Restore graph, labels, settings and model of an earlier version, or only its model with its detector.

        This makes a new version, so it can be undone; ``keep`` stays as it is. Decisions are kept: they count for
        vertices that still exist, and are scored with labels that are still valid.

        Parameters
        ----------
        version
            Number or tag of a version that is kept; see `log`.
        model_only
            Restore only the model.
        """
        from evergraph.workspace.update import rollback

        with self._change() as change:
            return rollback(change, version, model_only=model_only)


def _unless_stored(part: _T | None, kind: str) -> _T | None:
    """Return a model or detector if no file can contain it; otherwise it is the workspace's that counts."""
    if part is None:
        return None
    from evergraph.names import described, rebuilt

    try:
        rebuilt(described(part), kind)
    except InputError:
        return part
    return None


def _settings(graph: EvolvingGraph, history: History, columns: Columns, keep: int) -> Settings:
    """Return the settings with the history as a number of periods, and how it was chosen."""
    from evergraph.graph.features import WordCounts
    from evergraph.workspace.settings import choose_history

    if columns.text is None and isinstance(graph.features.words, WordCounts):
        columns = replace(columns, text="text")  # so that a slice without this column is an error
    # A graph that was imported before has the names of its columns.
    own = graph.features.arguments(None, None, columns.numbers or None, columns.categories or None)
    columns = replace(columns, numbers=tuple(own["numbers"]), categories=tuple(own["categories"]))
    return Settings(*choose_history(graph, history), columns, keep, graph.axis)
