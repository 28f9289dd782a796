"""What the API reads and answers, for validation and for its OpenAPI document."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__: list[str] = []

Id = Annotated[str, Field(max_length=10_000)] | Annotated[int, Field(ge=-(2**63), lt=2**63)]
Time = int | str
Name = Annotated[str, Field(min_length=1, max_length=1_000)]
Ids = Annotated[list[Id], Field(max_length=10_000_000)]
Group = Annotated[int, Field(ge=1, lt=2**31)]
ColumnName = Annotated[str, Field(max_length=1_000)]


class Body(BaseModel):
    """A body of a request; unknown fields are refused, and so are values of another type, as true for 1."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Slice(Body):
    """New vertices and edges. Columns are named as in the workspace, or id, time, label, text, source, target."""

    vertices: list[dict[str, Any]] = []
    edges: list[dict[str, Any]] = []
    drop_dangling: bool = False


class Label(Body):
    """The class of a vertex; null is ignored."""

    id: Id
    label: Annotated[str, Field(max_length=1_000)] | None


class Labels(Body):
    """Labels, including late ones and corrections; a new name is a new class."""

    labels: list[Label]


class Prediction(Body):
    """What to predict; by default all slices with undecided vertices."""

    slice: Annotated[str, Field(max_length=100)] | Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None


class Update(Body):
    """How to train."""

    restart: Literal["auto", "warm", "cold"] = "auto"


class CreateClass(Body):
    """A new class from vertices or groups, or a retired one that comes back."""

    action: Literal["create"]
    name: Name
    ids: Ids = []
    group: Group | None = None
    groups: Annotated[list[Group], Field(max_length=100_000)] = []
    grouping: str | None = None


class RenameClass(Body):
    """Another name for a class."""

    action: Literal["rename"]
    name: Name
    to: Name


class MergeClasses(Body):
    """Several classes that become one."""

    action: Literal["merge"]
    names: Annotated[list[Name], Field(min_length=1, max_length=10_000)]
    into: Name


class RetireClass(Body):
    """A class that is not predicted any more."""

    action: Literal["retire"]
    name: Name


ClassChange = Annotated[CreateClass | RenameClass | MergeClasses | RetireClass, Field(discriminator="action")]


class Answer(Body):
    """A class for groups and vertices: all members without a label, except some."""

    label: Name
    groups: list[Group] = []
    ids: Ids = []
    without: Ids = []


class Answers(Body):
    """The answers of a review, saved as one version; ``conflicts`` is for vertices that got another label meanwhile."""

    answers: Annotated[list[Answer], Field(max_length=100_000)] = []
    dismiss: list[Group] = []
    grouping: Annotated[str, Field(max_length=100)] | None = None
    conflicts: Literal["refuse", "keep", "overwrite"] = "refuse"


class Undo(Body):
    """The version to take back; it must be the current one."""

    version: Annotated[int, Field(ge=1, lt=2**62)]


class Rollback(Body):
    """The version to restore, by number or tag."""

    version: Annotated[int, Field(ge=0, lt=2**62)] | Annotated[str, Field(max_length=100)]
    model_only: bool = False


class Removal(Body):
    """Vertices and edges to remove."""

    ids: Ids = []
    edges: list[dict[str, Any]] = []


class Tag(Body):
    """A name for a version; null for the current one."""

    name: Annotated[str, Field(max_length=1_000)]
    version: Annotated[int, Field(ge=0, lt=2**62)] | Annotated[str, Field(max_length=100)] | None = None
    delete: bool = False


class SettingsChange(Body):
    """Settings to change; those that are missing stay as they are."""

    history: Annotated[int, Field(ge=1, lt=2**31)] | Literal["auto", "full"] | None = None
    model: Annotated[str, Field(max_length=1_000)] | dict[str, Any] | None = None
    detector: Annotated[str, Field(max_length=1_000)] | dict[str, Any] | None = None
    steps: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    lr: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    inputs: Annotated[str, Field(max_length=1_000)] | list[str] | None = None
    memory: Annotated[str, Field(max_length=1_000)] | None = None
    keep: Annotated[int, Field(ge=2, lt=2**31)] | None = None
    settings_file: dict[str, Any] | None = Field(
        None, description="Content of a settings file, as `evergraph tune` writes it; the other fields override it."
    )


class ColumnNames(BaseModel):
    """Names of the columns of a file; those that are missing are named as in the workspace."""

    model_config = ConfigDict(extra="forbid")  # not strict: everything in a query is text
    id: ColumnName | None = None
    time: ColumnName | None = None
    label: ColumnName | None = None
    text: ColumnName | None = None
    numbers: list[ColumnName] | None = None
    source: ColumnName | None = None
    target: ColumnName | None = None
    edge_time: ColumnName | None = None
    categories: list[ColumnName] | None = None


class SliceColumns(ColumnNames):
    """Names of the columns of files, and whether edges to unknown ids are dropped."""

    drop_dangling: bool = False


# --- answers ---------------------------------------------------------------------------------------------------------


class Problem(BaseModel):
    """A problem document (RFC 9457); ``detail`` says what is wrong and how to fix it."""

    type: str
    title: str
    status: int
    detail: str
    kind: str | None = None
    problem: str | None = None
    fix: str | None = None
    file: str | None = None
    column: str | None = None
    row: int | None = None
    line: int | None = None


class Done(BaseModel):
    """What a change did."""

    version: int
    command: str
    what: str
    parts: list[str]


class JobState(BaseModel):
    """Long work in the background."""

    id: int
    kind: Literal["predict", "update", "report"]
    state: Literal["queued", "running", "done", "failed", "cancelled", "interrupted"]
    progress: float | None
    message: str
    result: dict[str, Any] | None
    error: Problem | None
    who: str
    made: str
    started: str | None
    ended: str | None


class JobList(BaseModel):
    """Jobs, newest first."""

    jobs: list[JobState]


class StatusAnswer(BaseModel):
    """Status of the workspace."""

    name: str
    version: int
    kept: int
    vertices: int
    edges: int
    labelled: int
    first_time: Time
    last_time: Time
    classes: int
    retired: list[str]
    model: int
    model_restart: str
    model_why: str
    history: int | None
    history_why: str
    fresh_labels: int
    undecided: int
    to_review: int
    next_action: str
    next_why: str
    tags: dict[str, int]
    last_labelled: Time | None
    label_lag: int | None
    warnings: list[str]
    inputs: list[str]
    job: JobState | None


class Version(BaseModel):
    """One command that changed the workspace."""

    version: int
    when: str
    command: str
    what: str
    who: str | None
    tags: list[str]
    kept: bool


class VersionPage(BaseModel):
    """The log, newest first."""

    versions: list[Version]
    next: int | None


class ClassRow(BaseModel):
    """A class."""

    name: str
    first: Time | None
    last: Time | None
    support: int
    known: bool
    retired: bool


class ClassList(BaseModel):
    """All classes in the order in which they became known."""

    classes: list[ClassRow]


class SliceScores(BaseModel):
    """Scores of the decisions on one slice; null where a score is undefined."""

    time: Time
    decided: int
    labelled: int
    flagged: float
    accuracy: float | None
    id_accuracy: float | None
    open_f1: float | None
    mcc: float | None
    unseen: float | None
    latency: float | None
    drift: float | None
    models: list[int]


class ScoreList(BaseModel):
    """Scores by slice, oldest first."""

    scores: list[SliceScores]


class SliceDrift(BaseModel):
    """Change of the class distribution since the slice before (0 to 1)."""

    time: Time
    drift: float | None


class DriftList(BaseModel):
    """Drift by slice, oldest first."""

    drift: list[SliceDrift]


class Probability(BaseModel):
    """A class with its probability, if the class is known at all."""

    model_config = ConfigDict(populate_by_name=True)
    class_: str = Field(alias="class")
    probability: float


class Count(BaseModel):
    """A class with a number of vertices; null for those without a label."""

    model_config = ConfigDict(populate_by_name=True)
    class_: str | None = Field(alias="class")
    count: int


class Decision(BaseModel):
    """The latest decision on a vertex: a known class, or unseen."""

    model_config = ConfigDict(populate_by_name=True)
    id: Id
    time: Time
    class_: str = Field(alias="class")
    score: float
    probability: float
    best: str
    model: int
    nearest: list[Probability]
    neighbours: list[Count]
    version: int
    vertex: int
    period: int


class ScoredDecision(Decision):
    """The last decision on a vertex before its label arrived, and the label."""

    truth: str
    known: bool
    latency: int


class ScoredPage(BaseModel):
    """A page of decisions whose labels have arrived."""

    decisions: list[ScoredDecision]
    next: str | None


class DecisionPage(BaseModel):
    """A page of decisions."""

    decisions: list[Decision]
    next: str | None


class Exemplar(BaseModel):
    """A typical vertex of a group."""

    id: Id
    words: list[str]
    text: str | None


class Earlier(BaseModel):
    """Vertices flagged in earlier slices that share words of a group, and what they became."""

    vertices: int
    classes: list[Count]


class ReviewGroup(BaseModel):
    """Flagged vertices that are similar to each other: a candidate class."""

    number: int
    grouping: str
    key: str
    time: Time
    size: int
    left: int
    terms: list[str]
    exemplars: list[Exemplar]
    edges: int
    nearest: list[Count]
    overlap: float
    earlier: Earlier
    dismissed: bool
    members: list[Id] | None = None


class GroupPage(BaseModel):
    """A page of groups, the largest first; ``predicted`` is the version of the decisions that they are of."""

    grouping: str
    predicted: int
    version: int
    groups: list[ReviewGroup]
    total: int
    flagged: int
    alone: int
    next: str | None


class Listed(BaseModel):
    """A vertex in a list."""

    id: Id
    time: Time
    label: str | None
    text: str | None
    words: list[str]
    score: float | None
    best: str | None
    probability: float | None


class MemberPage(BaseModel):
    """A page of the members of a group."""

    vertices: list[Listed]
    next: str | None


class Sample(BaseModel):
    """Members of a group, drawn at random from those without a label."""

    vertices: list[Listed]
    of: int


class GroupPart(BaseModel):
    """A part of a group."""

    size: int
    terms: list[str]
    exemplars: list[Exemplar]
    ids: list[Id]


class Split(BaseModel):
    """A group in parts."""

    parts: list[GroupPart]


class Node(BaseModel):
    """A vertex in a drawing."""

    id: Id
    time: Time
    label: str | None
    flagged: bool
    centre: bool
    text: str | None


class Drawing(BaseModel):
    """Vertices and edges to draw; an edge is a pair of places in ``nodes``."""

    nodes: list[Node]
    edges: list[tuple[int, int]]
    left_out: int


class PastDecision(BaseModel):
    """A decision on a vertex."""

    model_config = ConfigDict(populate_by_name=True)
    version: int
    model: int
    class_: str = Field(alias="class")
    score: float
    best: str
    probability: float


class Vertex(BaseModel):
    """A vertex."""

    id: Id
    time: Time
    label: str | None
    text: str | None
    words: list[str]
    neighbours: list[Count]
    decision: Decision | None
    decisions: list[PastDecision]
    group: int | None


class Reason(BaseModel):
    """An input that raises the most likely class: ``value`` is the sum of its own part and that of the neighbours."""

    text: str
    value: float
    block: str
    name: str
    own: float
    neighbours: float


class Signal(BaseModel):
    """A signal of the detector, and how much it adds to the log-odds of an unseen class."""

    name: str
    meaning: str
    contribution: float
    direction: Literal["unseen", "known"]


class Explanation(BaseModel):
    """Why a vertex was decided as it was, by the current model."""

    because: list[Reason]
    signals: list[Signal] | None
    detector: str


class QueueItem(Listed):
    """A vertex to label, and why."""

    reason: Literal["flagged", "uncertain", "accepted"]


class Queue(BaseModel):
    """What to label next."""

    items: list[QueueItem]
    why: str


class Suspect(BaseModel):
    """A label that may be wrong."""

    id: Id
    time: Time
    label: str | None
    text: str | None
    words: list[str]
    suggested: str
    probability: float
    margin: float


class SuspectPage(BaseModel):
    """Suspected label errors, largest margin first."""

    suspects: list[Suspect]
    next: str | None


class Conflict(BaseModel):
    """A vertex that got another label since it was shown."""

    id: Id
    label: str
    answer: str


class Preview(BaseModel):
    """What answers would do."""

    labels: int
    new_classes: list[str]
    per_class: list[Count]
    warnings: list[str]
    conflicts: list[Conflict]


class ModelList(BaseModel):
    """Records of all models, oldest first."""

    models: list[dict[str, Any]]


class SettingsAnswer(BaseModel):
    """Settings by name, the current learner as it is stored, and the names of the columns of tables."""

    settings: dict[str, Any]
    learner: dict[str, Any]
    columns: dict[str, Any]


class TagList(BaseModel):
    """Versions by tag."""

    tags: dict[str, int]


class FlaggedList(BaseModel):
    """Flagged vertices, highest score first."""

    vertices: list[dict[str, Any]]
    next: str | None
    predicted: int


class Verified(BaseModel):
    """What was compared with its checksums."""

    rows: int
    objects: int
    bytes: int
