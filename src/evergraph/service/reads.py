"""What the service shows of a workspace: decisions, groups, vertices, neighbourhoods, and what to label next."""

from __future__ import annotations

import base64
import binascii
import json
import threading
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from evergraph.analysis.explain import neighbours_of, shortened, texts_of, words_of
from evergraph.errors import InputError
from evergraph.graph import ids as id_columns
from evergraph.graph.classes import UNSEEN
from evergraph.graph.evolving import EvolvingGraph
from evergraph.learning.task import Task
from evergraph.service.grouping import Grouping, became, split
from evergraph.service.problems import NotFoundError
from evergraph.service.served import Cached, Served, authors_of
from evergraph.storage.records import Records
from evergraph.workspace.change import Contents, read_inputs
from evergraph.workspace.review import find_flagged, review
from evergraph.workspace.scores import all_scores, as_dict, list_classes, read_models, scored_decisions, status
from evergraph.workspace.store import WorkspaceState, kept_versions, read_state, read_tags

__all__ = ["Reads"]

_PAGES = 512  # pages of decisions that are kept
_MOST_TEXTS = 100_000  # beginnings of texts that are kept
_TEXT = 2_000  # letters of a text in lists
_LATEST = "version = (SELECT max(version) FROM decisions AS other WHERE other.vertex = decisions.vertex)"
_VALID = (
    "(EXISTS (SELECT 1 FROM labels WHERE labels.vertex = decisions.vertex AND until IS NULL) "
    "OR NOT EXISTS (SELECT 1 FROM labels WHERE labels.id = decisions.id AND until IS NULL))"
)
_AMONG = f"vertex IN (SELECT value FROM json_each(?)) AND {_LATEST}"  # noqa: S608  # no parameters in it
_OPEN = "vertex IN (SELECT vertex FROM labels WHERE until IS NULL AND label IS NULL)"

_T = TypeVar("_T")
Answer = dict[str, Any]


class Reads:
    """The reading part of the service. Answers are dictionaries for JSON, with the version that they are of.

    Parameters
    ----------
    served
        The workspace.
    """

    def __init__(self, served: Served) -> None:
        self.served = served
        self._pages: OrderedDict[Any, Answer] = OrderedDict()
        self._lock = threading.Lock()
        self._status = Cached(lambda: self._look(self._read_status))
        self._scores = Cached(lambda: self._look(self._read_scores))
        self._classes = Cached(
            lambda: self._look(lambda r, s: {"classes": [row.as_dict() for row in list_classes(r, s)]})
        )
        self._suspects = Cached(lambda: self._look(_suspects))
        self._scored = Cached(self._read_scored)
        self._id_kind: tuple[tuple[int, int], type[int] | type[str]] | None = None
        self._grouping: tuple[tuple[int, int], Grouping] | None = None
        self._regrouping = threading.Lock()
        self._unseen = Cached(self._read_unseen)
        self._short: tuple[int, dict[int, str | None]] = (-1, {})

    def _look(self, look: Callable[[Records, WorkspaceState], Answer]) -> Answer:
        """Read from one version, and note which."""
        with self.served.store.read() as records:
            state = read_state(records)
            return look(records, state) | {"version": state.version}

    # --- state -------------------------------------------------------------------------------------------------------

    def status(self) -> Answer:
        """Return the status of the workspace."""
        return self._status.get(self.served.view().version)[1]

    def _read_status(self, records: Records, state: WorkspaceState) -> Answer:
        inputs = read_inputs(self.served.store.objects, state)
        found = status(records, state, self.served.folder, inputs)
        action = found.next_command.split()[0]
        return found.as_dict() | {"name": self.served.folder.resolve().name, "next_action": action}

    def versions(self, limit: int, before: int | None) -> Answer:
        """Return the log, newest first."""

        def read(records: Records, _: WorkspaceState) -> Answer:
            condition = "version < ? ORDER BY version DESC LIMIT ?"
            rows = records.select("versions", condition, before or 2**62, limit + 1)
            kept, tags = set(kept_versions(records)), defaultdict(list)
            for name, version in read_tags(records).items():
                tags[version].append(name)
            who = authors_of(records, rows[-1].version - 1) if rows else {}
            shown = [
                {
                    "version": row.version,
                    "when": row.made,
                    "command": row.command,
                    "what": row.what,
                    "who": who.get(row.version),
                    "tags": tags[row.version],
                    "kept": row.version in kept,
                }
                for row in rows[:limit]
            ]
            return {"versions": shown, "next": shown[-1]["version"] if len(rows) > limit else None}

        return self._look(read)

    def classes(self) -> Answer:
        """Return all classes."""
        return self._classes.get(self.served.view().version)[1]

    def scores(self) -> Answer:
        """Return the scores of all slices."""
        return self._scores.get(self.served.view().version)[1]

    def _read_scores(self, records: Records, state: WorkspaceState) -> Answer:
        return {"scores": [row.as_dict() for row in all_scores(records, state)]}

    def drift(self) -> Answer:
        """Return how much the class distribution changed in each slice."""
        found = self.scores()
        drifts = [{"time": row["time"], "drift": row["drift"]} for row in found["scores"]]
        return {"drift": drifts, "version": found["version"]}

    def models(self) -> Answer:
        """Return the records of all models."""
        return self._look(lambda records, state: {"models": [asdict(row) for row in read_models(records, state)]})

    # --- decisions ---------------------------------------------------------------------------------------------------

    def decisions(
        self,
        *,
        slice_: str | None = None,
        class_: str | None = None,
        flagged: bool | None = None,
        labelled: bool | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Answer:
        """Return a page of the latest decisions, in the order in which the vertices arrived."""
        view, after, kind = self.served.view(), _after(cursor), self._kind
        key = (view.decided, kind, slice_, class_, flagged, after, limit)
        if labelled is None and (found := self._pages.get(key)) is not None:
            return found | {"version": view.version}
        conditions, parameters = ["vertex > ?", _LATEST, _VALID], list[Any]([after])
        if slice_ is not None:
            conditions.append("time = ?")
            parameters.append(_period(view.state, slice_))
        if class_ == UNSEEN or flagged is not None:
            conditions.append("decided IS NULL" if class_ == UNSEEN or flagged else "decided IS NOT NULL")
        if class_ is not None and class_ != UNSEEN:
            conditions.append("decided IN (SELECT value FROM json_each(?))")
            parameters.append(json.dumps(_numbers(view.state, class_)))
        if labelled is not None:
            conditions.append(_OPEN if not labelled else f"NOT {_OPEN}")
        condition = f"{' AND '.join(conditions)} ORDER BY vertex LIMIT ?"
        answer = self._look(lambda records, state: _page(records, state, condition, parameters, limit, kind))
        if labelled is None:
            with self._lock:
                self._pages[key] = answer
                while len(self._pages) > _PAGES:
                    self._pages.popitem(last=False)
        return answer

    def scored_decisions(self, cursor: str | None, limit: int) -> Answer:
        """Return a page of the decisions whose labels have arrived, with the labels."""
        version, rows = self._scored.get(self.served.view().version)
        first, kind = _after(cursor), self._kind
        page = [_shown(row, kind(row["id"])) for row in rows[first : first + limit]]
        return {
            "decisions": page,
            "next": _cursor(first + limit) if first + limit < len(rows) else None,
            "version": version,
        }

    def _read_scored(self) -> list[Answer]:
        with self.served.store.read() as records:
            found = scored_decisions(records, read_state(records))
        return [row for of_period in found.values() for row in of_period.values()]

    @property
    def _kind(self) -> type[int] | type[str]:
        """The kind of ids; a slice with other ones turns numbers into texts."""
        view = self.served.view()
        key = (view.state.next_vertex, view.restored)
        if self._id_kind is None or self._id_kind[0] != key:
            graph = self.served.snapshot()[1].graph
            self._id_kind = (key, str if isinstance(graph.ids, id_columns.Strings) else int)
        return self._id_kind[1]

    # --- groups ------------------------------------------------------------------------------------------------------

    def grouping(self, name: str | None = None) -> Grouping:
        """Return the current groups; refuse if ``name`` is that of others."""
        view = self.served.view()
        key = (view.predicted, view.restored)
        if (found := self._grouping) is None or found[0] != key:
            with self._regrouping:  # others wait: groups of older decisions would be wrong
                if (found := self._grouping) is None or found[0] != key:
                    found = self._grouping = (key, self._compute_grouping(max(key), view.predicted))
        found[1].check(name)
        return found[1]

    def _compute_grouping(self, least: int, predicted: int) -> Grouping:
        _, contents = self.served.snapshot(least)
        with self.served.store.read() as records:
            flagged = find_flagged(records, read_state(records), contents)
            ever = records.query("SELECT DISTINCT vertex FROM decisions WHERE decided IS NULL")
        before, now = self._grouping, contents.vertices[[row for _, row in flagged]].tolist()
        if before is not None and before[1].version == predicted and before[1].flagged.issuperset(now):
            return before[1]  # after a rollback that only took back labels
        return Grouping(predicted, contents, flagged, contents.rows_of(vertex for (vertex,) in ever))

    def groups(self, cursor: str | None, limit: int, *, members: bool = False) -> Answer:
        """Return a page of groups, the largest first; with the ids of those without a label if you ask for them."""
        grouping, (state, contents), first = self.grouping(), self.served.snapshot(), _after(cursor)
        numbers = range(first + 1, min(first + limit, len(grouping.groups)) + 1)
        dismissed = self._dismissed()
        last = numbers[-1] if numbers else 0
        return {
            "grouping": grouping.name,
            "predicted": grouping.version,
            "version": state.version,
            "groups": [self._group(grouping, number, contents, dismissed, members=members) for number in numbers],
            "total": len(grouping.groups),
            "flagged": self.status()["to_review"],
            "alone": self.status()["to_review"] - self._in_groups(grouping, contents),
            "next": _cursor(last) if last and last < len(grouping.groups) else None,
        }

    def group(self, number: int, name: str | None) -> Answer:
        """Return one group."""
        grouping, (state, contents) = self.grouping(name), self.served.snapshot()
        grouping.at(number)
        return self._group(grouping, number, contents, self._dismissed()) | {"version": state.version}

    def _group(
        self, grouping: Grouping, number: int, contents: Contents, dismissed: set[str], *, members: bool = False
    ) -> Answer:
        place = grouping.at(number)
        group, vertices = grouping.groups[place], grouping.similar[place]
        left = grouping.left(number, contents)
        return grouping.shown[place] | {
            "members": [id_columns.at(contents.graph.ids, row) for row in left] if members else None,
            "grouping": grouping.name,
            "key": grouping.keys[place],
            "left": len(left),
            "overlap": group.nearest[0][1] / group.size if group.nearest else 0.0,
            "earlier": {"vertices": len(vertices), "classes": became(contents, vertices)[:5]},
            "dismissed": grouping.keys[place] in dismissed,
        }

    def _in_groups(self, grouping: Grouping, contents: Contents) -> int:
        rows = contents.rows_of(grouping.members)
        return int((contents.labels[rows[rows >= 0]] < 0).sum())

    def _dismissed(self) -> set[str]:
        return self.served.cached("dismissals", lambda records: {row.key for row in records.select("dismissals")})

    def members(self, number: int, name: str | None, cursor: str | None, limit: int) -> Answer:
        """Return a page of a group's members, the most central first."""
        grouping, (state, contents), first = self.grouping(name), self.served.snapshot(), _after(cursor)
        vertices = grouping.vertices[grouping.at(number)]
        page = contents.rows_of(vertices[first : first + limit])
        more = _cursor(first + limit) if first + limit < len(vertices) else None
        return {"vertices": self._listed(state, contents, page[page >= 0]), "next": more, "version": state.version}

    def sample(self, number: int, name: str | None, size: int, seed: int) -> Answer:
        """Return members without a label, drawn at random without replacement."""
        grouping, (state, contents) = self.grouping(name), self.served.snapshot()
        left = grouping.left(number, contents)
        drawn = np.random.default_rng(seed).permutation(left)[:size]
        return {"vertices": self._listed(state, contents, drawn), "of": len(left), "version": state.version}

    def review(self, group: int | None, name: str | None, cursor: str | None, limit: int) -> Answer:
        """Return a page of the flagged vertices without a label, or of those of a group, highest score first."""
        grouping, (state, contents), first = self.grouping(name), self.served.snapshot(), _after(cursor)
        with self.served.store.read() as records:
            found = find_flagged(records, read_state(records), contents)
        if group is not None:
            own = set(grouping.vertices[grouping.at(group)])
            found = [one for one in found if one[0]["vertex"] in own]
        page = review(contents.graph, state.settings.history, found[first : first + limit], grouping.groups)
        more = _cursor(first + limit) if first + limit < len(found) else None
        found_by = {"predicted": grouping.version, "version": state.version}
        return {"vertices": [row.as_dict() for row in page], "next": more, **found_by}

    def split(self, number: int, name: str | None) -> Answer:
        """Split a group into parts."""
        grouping, (state, contents) = self.grouping(name), self.served.snapshot()
        parts = []
        for part in split(contents.graph, grouping.left(number, contents)):
            rows = contents.graph.find(part.members[:3])
            shown = self._listed(state, contents, rows)
            exemplars = [{name: row[name] for name in ("id", "words", "text")} for row in shown]
            parts.append({"size": len(part.members), "terms": part.terms, "exemplars": exemplars, "ids": part.members})
        return {"parts": parts, "version": state.version}

    # --- vertices ----------------------------------------------------------------------------------------------------

    def vertex(self, id: str) -> Answer:
        """Return a vertex with its text, label and decisions."""
        state, contents = self.served.snapshot()
        row = _row(contents.graph, id)
        number = int(contents.vertices[row])
        with self.served.store.read() as records:
            past = [as_dict(one, state) for one in records.select("decisions", "vertex = ? ORDER BY version", number)]
        shown = self._described(contents, np.array([row]), full=True)[0]
        time = int(contents.graph.times[row])
        window = Task(contents.graph, time, state.settings.history).window
        around = neighbours_of(window, np.array([row - window.rows.start]))[0]
        grouping = self.grouping()
        short = ("version", "model", "class", "score", "best", "probability")
        return shown | {
            "neighbours": [{"class": name, "count": count} for name, count in around],
            "decision": _shown(past[-1], shown["id"]) if past else None,
            "decisions": [{name: one[name] for name in short} for one in past],
            "group": grouping.group_of.get(number),
            "version": state.version,
        }

    def neighbourhood(self, id: str, hops: int, limit: int) -> Answer:
        """Return the vertices around one, the nearest first, and the edges among them."""
        state, contents = self.served.snapshot()
        links, centre = contents.graph.links, _row(contents.graph, id)
        found, edge, left_out = {centre: 0}, [centre], 0
        for _ in range(hops):
            around: dict[int, None] = {}
            for row in edge:
                # Newest first: vertices are in the order of time.
                around |= dict.fromkeys(links.near(row)[::-1].tolist())
            new = [row for row in around if row not in found]
            edge = new[: max(limit - len(found), 0)]
            left_out += len(new) - len(edge)
            found |= {row: len(found) + place for place, row in enumerate(edge)}
        return self._drawing(state, contents, list(found), {centre}, left_out)

    def group_graph(self, number: int, name: str | None, limit: int) -> Answer:
        """Return some members of a group and their neighbours, and the edges among them."""
        grouping, (state, contents) = self.grouping(name), self.served.snapshot()
        links = contents.graph.links
        rows = contents.rows_of(grouping.vertices[grouping.at(number)])
        rows = rows[rows >= 0]
        members = rows[: limit * 2 // 3].tolist()
        counts: dict[int, int] = defaultdict(int)
        inside = set(rows.tolist())
        for row in members:
            for other in links.near(row).tolist():
                counts[other] += other not in inside
        others = sorted((row for row, count in counts.items() if count), key=lambda row: (-counts[row], row))
        room = limit - len(members)
        left_out = len(rows) - len(members) + max(len(others) - room, 0)
        return self._drawing(state, contents, [*members, *others[:room]], set(members), left_out)

    def _drawing(
        self, state: WorkspaceState, contents: Contents, rows: list[int], centre: set[int], left_out: int
    ) -> Answer:
        graph, chosen = contents.graph, np.array(rows, np.int64)
        flagged, texts = self._flagged(contents.vertices[chosen]), self._short_texts(contents, chosen)
        nodes = [
            {
                "id": id_columns.at(graph.ids, row),
                "time": graph.axis.value(int(graph.times[row])),
                "label": None if graph.codes[row] < 0 else graph.class_names[graph.codes[row]],
                "flagged": bool(flagged[at]),
                "centre": row in centre,
                "text": texts[at],
            }
            for at, row in enumerate(rows)
        ]
        found = {"nodes": nodes, "edges": _edges_among(graph, chosen), "left_out": left_out}
        return found | {"version": state.version}

    def _short_texts(self, contents: Contents, rows: NDArray[np.int64]) -> list[str | None]:
        """Return the beginnings of texts. They are kept, because texts are stored in compressed chunks."""
        numbers, decided = contents.vertices[rows].tolist(), self.served.view().decided
        if self._short[0] != decided or len(self._short[1]) > _MOST_TEXTS:
            self._short = (decided, {})
        kept = self._short[1]
        new = [at for at, number in enumerate(numbers) if number not in kept]
        found = dict(zip(new, _texts(contents.graph, rows[new]), strict=True)) if new else {}
        for at, text in found.items():
            kept[numbers[at]] = None if text is None else shortened(str(text), 100)
        return [kept[number] for number in numbers]

    def _flagged(self, vertices: NDArray[np.int64]) -> list[bool]:
        """Return whether the latest decision on each vertex is `UNSEEN`."""
        found = self._unseen.get(self.served.view().decided)[1]
        return [vertex in found for vertex in vertices.tolist()]

    def _read_unseen(self) -> frozenset[int]:
        with self.served.store.read() as records:
            rows = records.query(f"SELECT vertex FROM decisions WHERE decided IS NULL AND {_LATEST}")  # noqa: S608
        return frozenset(vertex for (vertex,) in rows)

    def _described(self, contents: Contents, rows: NDArray[np.int64], *, full: bool = False) -> list[Answer]:
        """Return id, time, label, text and words of vertices."""
        graph = contents.graph
        words: dict[int, tuple[str, ...]] = {}
        times = graph.times[rows]
        for time in np.unique(times).tolist():
            own = rows[times == time]
            slice_ = graph.window(graph.axis.value(time), graph.axis.value(time))
            words |= zip(own.tolist(), words_of(slice_, own - slice_.rows.start, before=time + 1), strict=True)
        texts = _texts(graph, rows)
        return [
            {
                "id": id_columns.at(graph.ids, row),
                "time": graph.axis.value(int(graph.times[row])),
                "label": None if graph.codes[row] < 0 else graph.class_names[graph.codes[row]],
                "text": text if text is None or full else shortened(text, _TEXT),
                "words": words[row],
            }
            for row, text in zip(rows.tolist(), texts, strict=True)
        ]

    def _listed(self, state: WorkspaceState, contents: Contents, rows: NDArray[np.int64]) -> list[Answer]:
        """Return vertices with the figures of their latest decisions."""
        numbers = contents.vertices[rows].tolist()
        with self.served.store.read() as records:
            decided = {row.vertex: row for row in records.select("decisions", _AMONG, json.dumps(numbers))}
        found = []
        for shown, number in zip(self._described(contents, rows), numbers, strict=True):
            row = decided.get(number)
            figures = dict.fromkeys(("score", "best", "probability"))
            if row is not None:
                figures = {"score": row.score, "best": state.classes.name(row.best), "probability": row.probability}
            found.append(shown | figures)
        return found

    # --- what to label -----------------------------------------------------------------------------------------------

    def queue(self, limit: int, seed: int) -> Answer:
        """Return vertices to label next: flagged, uncertain and randomly drawn accepted ones, in turn."""
        state, contents = self.served.snapshot()
        waiting = f"{_OPEN} AND {_LATEST}"
        # A fixed order for each seed, which must not follow that of the vertices: a quadratic function modulo a prime.
        prime, shift = 2**31 - 1, int(np.random.default_rng(seed).integers(2**31 - 1))
        mixed = f"((vertex * 1103515245 + {shift}) % {prime})"
        random = f"({mixed} * ({mixed} + {shift})) % {prime}"
        kinds = {
            "flagged": f"{waiting} AND decided IS NULL ORDER BY score DESC, vertex LIMIT ?",
            "uncertain": f"{waiting} AND decided IS NOT NULL ORDER BY probability, vertex LIMIT ?",
            "accepted": f"{waiting} AND decided IS NOT NULL ORDER BY {random}, vertex LIMIT ?",
        }
        with self.served.store.read() as records:
            found = {
                kind: [row.vertex for row in records.select("decisions", sql, limit)] for kind, sql in kinds.items()
            }
        chosen: dict[int, str] = {}
        queues = {kind: iter(vertices) for kind, vertices in found.items()}
        while queues and len(chosen) < limit:
            for kind in list(queues):
                vertex = next((one for one in queues[kind] if one not in chosen), None)
                if vertex is None:
                    del queues[kind]
                elif len(chosen) < limit:
                    chosen[vertex] = kind
        rows = contents.rows_of(chosen)
        kept = [(row, kind) for row, kind in zip(rows.tolist(), chosen.values(), strict=True) if row >= 0]
        listed = self._listed(state, contents, np.array([row for row, _ in kept], np.int64))
        items = [row | {"reason": kind} for row, (_, kind) in zip(listed, kept, strict=True)]
        why = (
            "Flagged, uncertain and randomly drawn vertices take turns. If you label flagged vertices only, the "
            "detector sees an unfair sample, and its threshold and scores become wrong."
        )
        return {"items": items, "why": why, "version": state.version}

    def suspects(self, cursor: str | None, limit: int) -> Answer:
        """Return vertices whose label may be wrong, the most suspicious first."""
        found = self._suspects.get(self.served.view().version)[1]
        first = _after(cursor)
        page = found["suspects"][first : first + limit]
        state, contents = self.served.snapshot()
        rows = contents.rows_of(one["vertex"] for one in page)
        shown = self._described(contents, rows[rows >= 0])
        by_id = {str(row["id"]): row for row in shown}
        items = [
            by_id[one["id"]] | {name: one[name] for name in ("suggested", "probability", "margin")}
            for one in page
            if one["id"] in by_id and by_id[one["id"]]["label"] == one["label"]
        ]
        more = _cursor(first + limit) if first + limit < len(found["suspects"]) else None
        return {"suspects": items, "next": more, "version": state.version}


# --- helpers ---------------------------------------------------------------------------------------------------------


def _page(
    records: Records, state: WorkspaceState, condition: str, parameters: Sequence[Any], limit: int, kind: type
) -> Answer:
    rows = records.select("decisions", condition, *parameters, limit + 1)
    more = _cursor(rows[limit - 1].vertex) if len(rows) > limit else None
    return {"decisions": [_shown(as_dict(row, state), kind(row.id)) for row in rows[:limit]], "next": more}


def _shown(decision: Answer, id: str | int) -> Answer:
    """Return a decision as the API shows it."""
    return decision | {"id": id}


def _cursor(place: int) -> str:
    return base64.urlsafe_b64encode(str(place).encode()).decode().rstrip("=")


def _after(cursor: str | None) -> int:
    """Return the place that a cursor encodes."""
    if not cursor:
        return 0
    try:
        place = int(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        if 0 <= place < 2**62:
            return place
    except (binascii.Error, ValueError):
        pass
    raise InputError(f"the cursor {cursor!r} is not one of this service", fix="use the value of next in the last page")


def _period(state: WorkspaceState, time: str) -> int:
    try:
        return state.settings.axis.period(time)
    except InputError as error:  # without the column and row it names
        raise InputError(error.problem, fix=error.fix) from None


def _numbers(state: WorkspaceState, name: str) -> list[int]:
    """Return the numbers of a class and of those that were merged into it."""
    found = [number for number in (*state.classes.rows, *state.classes.gone) if state.classes.name(number) == name]
    if not found:
        raise InputError(f"there is no class {name!r}", fix="choose one that GET /api/v1/classes lists")
    return found


def _row(graph: EvolvingGraph, id: str) -> int:
    """Return the row of a vertex."""
    import pyarrow as pa

    row = int(id_columns.find(graph.ids, pa.array([id], pa.large_string()))[0])
    if row < 0:
        raise NotFoundError(f"there is no vertex {id!r} in the workspace", fix="check the id")
    return row


def _edges_among(graph: EvolvingGraph, rows: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Return the edges among vertices as pairs of places in ``rows``."""
    links, order = graph.links, np.argsort(rows)
    others = [links.near(row) for row in rows.tolist()]
    source = np.repeat(np.arange(len(rows)), [len(found) for found in others])
    target = np.concatenate(others) if others else np.empty(0, np.int64)
    places = order[np.minimum(np.searchsorted(rows, target, sorter=order), len(rows) - 1)] if len(rows) else target
    kept = (rows[places] == target) & (rows[source] < target)
    return list(zip(source[kept].tolist(), places[kept].tolist(), strict=True))


def _texts(graph: EvolvingGraph, rows: NDArray[np.int64]) -> list[str | None]:
    """Return the original texts of vertices, which may be of several slices."""
    return texts_of(graph.up_to(graph.axis.value(graph.last_time)), rows)


def _suspects(records: Records, state: WorkspaceState) -> Answer:
    """Return labels that are probably wrong, by confident learning (Northcutt et al., 2021).

    The probabilities are those of the decisions that were made before the labels arrived, so no model has learnt the
    label that it judges. A class's threshold is the mean probability that vertices with its label have for it. A label
    is suspicious if the vertex reaches the threshold of another class, and that class is more probable than its own.
    Only labels of classes that the model knew are judged.
    """
    rows = [row for found in scored_decisions(records, state).values() for row in found.values() if row["known"]]
    return {"suspects": confident_learning(rows)}


def confident_learning(rows: Iterable[Answer]) -> list[Answer]:
    """Return the rows whose label is suspicious, largest margin first; see `_suspects`.

    Examples
    --------
    >>> def row(id, truth, **nearest):
    ...     pairs = [{"class": name, "probability": share} for name, share in nearest.items()]
    ...     return {"id": id, "vertex": id, "truth": truth, "nearest": pairs}
    >>> rows = [row(1, "x", x=0.9, y=0.1), row(2, "y", y=0.8, x=0.2), row(3, "y", x=0.95, y=0.05)]
    >>> [(one["id"], one["label"], one["suggested"]) for one in confident_learning(rows)]
    [(3, 'y', 'x')]
    """
    of_class: dict[str, list[float]] = defaultdict(list)
    judged = []
    for row in rows:
        shares = {one["class"]: float(one["probability"]) for one in row["nearest"]}
        of_class[row["truth"]].append(shares.get(row["truth"], 0.0))
        judged.append((row, shares))
    threshold = {name: sum(shares) / len(shares) for name, shares in of_class.items()}
    found = []
    for row, shares in judged:
        own = shares.get(row["truth"], 0.0)
        others = [
            (share, name)
            for name, share in shares.items()
            if name != row["truth"] and share > own and share >= threshold.get(name, 2.0)
        ]
        if others:
            share, name = max(others)
            figures = {"suggested": name, "probability": share, "margin": share - own}
            found.append({"vertex": row["vertex"], "id": row["id"], "label": row["truth"]} | figures)
    return sorted(found, key=lambda one: (-one["margin"], str(one["id"])))
