"""What one version of a workspace holds: settings, graph, model, decisions, scores and the log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Self

from evergraph.datasets.tables import Columns
from evergraph.errors import InputError

__all__ = ["Entry", "Kept", "ModelRecord", "Renaming", "Return", "Settings", "State"]


@dataclass(frozen=True)
class Settings:
    """What was chosen when the workspace was made.

    Parameters
    ----------
    history
        Number of times before a slice that are seen; None for all.
    history_why
        How it was chosen, in words.
    columns
        What the columns of tables are called.
    keep
        How many versions are kept.
    """

    history: int | None
    history_why: str
    columns: Columns = field(default_factory=Columns)
    keep: int = 10


@dataclass(frozen=True)
class ModelRecord:
    """A model that was in force.

    Parameters
    ----------
    number
        Counted from 1.
    time
        The time it was trained for, as the axis counts: it has learnt from labels of earlier times only.
    restart
        What it started from: ``"cold"`` or ``"warm"``.
    why
        Why so, in words.
    train_vertices
        Number of labels it has learnt from.
    classes
        Names of the classes it knows.
    seconds
        That training took.
    version
        In which it was made.
    before
        Number of the model that it followed; 0 for the first.
    learner, tensors
        Objects that hold it.
    """

    number: int
    time: int
    restart: str
    why: str
    train_vertices: int
    classes: tuple[str, ...]
    seconds: float
    version: int
    before: int
    learner: str
    tensors: str


@dataclass(frozen=True)
class Kept:
    """A table of decisions or of scored decisions.

    Parameters
    ----------
    table
        The object.
    version
        In which it was made.
    time
        Of its vertices, as the axis counts.
    model
        Number of the model that decided; 0 in a table of several.
    rows
        How many.
    """

    table: str
    version: int
    time: int
    model: int
    rows: int


@dataclass(frozen=True)
class Entry:
    """A line of the log: one command that changed something.

    Parameters
    ----------
    version
        What it made.
    when
        In coordinated universal time, to the second.
    command, what
        Its name, and what came of it, in words.
    """

    version: int
    when: str
    command: str
    what: str


@dataclass(frozen=True)
class Renaming:
    """A class got another name or, ``merged``, became part of another class."""

    version: int
    old: str
    new: str
    merged: bool = False


@dataclass(frozen=True)
class Return:
    """A version in which graph, labels and model became those of an earlier one."""

    version: int
    to: int


@dataclass(frozen=True)
class State:
    """All of a version.

    Parameters
    ----------
    settings
        What was chosen when the workspace was made.
    graph
        Objects of its arrays with their sizes, and what else a graph has.
    model
        The model in force.
    models
        All models so far, the one in force among them, without their objects.
    fresh
        Labels that have come since the model was trained: times, and how many of each.
    stale
        Whether the model is behind for another reason: classes were changed, or it is an older one again.
    retired
        Classes that are not to be decided for any more.
    renamed
        All renamings of classes so far, oldest first: earlier decisions carry the old names.
    returns
        All returns to an earlier version so far, oldest first: with it its names returned.
    decisions, scored
        All tables so far, oldest first; never removed.
    log
        All commands so far, oldest first.
    """

    settings: Settings
    graph: Mapping[str, Any]
    model: ModelRecord
    models: tuple[ModelRecord, ...] = ()
    fresh: tuple[tuple[int, int], ...] = ()
    stale: bool = False
    retired: tuple[str, ...] = ()
    renamed: tuple[Renaming, ...] = ()
    returns: tuple[Return, ...] = ()
    decisions: tuple[Kept, ...] = ()
    scored: tuple[Kept, ...] = ()
    log: tuple[Entry, ...] = ()

    @property
    def version(self) -> int:
        """Its number."""
        return self.log[-1].version

    @property
    def fresh_labels(self) -> int:
        """How many labels have come since the model was trained."""
        return self.fresh_since(None)

    def fresh_since(self, time: int | None) -> int:
        """How many of them are of vertices from a time on."""
        return sum(count for moment, count in self.fresh if time is None or moment >= time)

    def with_labels(self, times: Iterable[int]) -> State:
        """The same with labels of vertices of these times that have just come."""
        counts = Counter(dict(self.fresh))
        counts.update(times)
        return replace(self, fresh=tuple(sorted(counts.items())))

    def with_entry(self, command: str, what: str, version: int) -> State:
        """The same with one more line in the log."""
        when = datetime.now(UTC).isoformat(timespec="seconds")
        return replace(self, log=(*self.log, Entry(version, when, command, what)))

    def as_dict(self) -> dict[str, Any]:
        """Fit for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """The inverse of `as_dict`."""
        try:
            settings = dict(content["settings"])
            columns = dict(settings["columns"])
            columns["features"] = tuple(columns["features"])
            settings["columns"] = Columns(**columns)
            return cls(
                settings=Settings(**settings),
                graph=dict(content["graph"]),
                model=_model(content["model"]),
                models=tuple(map(_model, content["models"])),
                fresh=tuple((int(time), int(count)) for time, count in content["fresh"]),
                stale=bool(content["stale"]),
                retired=tuple(content["retired"]),
                renamed=tuple(Renaming(**item) for item in content["renamed"]),
                returns=tuple(Return(**item) for item in content["returns"]),
                decisions=tuple(Kept(**item) for item in content["decisions"]),
                scored=tuple(Kept(**item) for item in content["scored"]),
                log=tuple(Entry(**item) for item in content["log"]),
            )
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"the version lacks or distorts {error}", fix="restore the workspace") from error


def _model(item: Mapping[str, Any]) -> ModelRecord:
    return ModelRecord(**(dict(item) | {"classes": tuple(item["classes"])}))
