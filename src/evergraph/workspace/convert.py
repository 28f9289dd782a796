"""Conversion of older workspaces.

Format 1 stored records as JSON files and the graph as arrays. The new database is built beside the old files and
gets its name when it is complete: that is the commit point. After that the old files are removed. If a conversion is
killed, the next command repeats or finishes it.

Format 2 had one value of each setting for all versions, and no tags. Format 3 had no tables for the service. Both are
upgraded in one SQL transaction.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evergraph.errors import os_error
from evergraph.graph.arrays import find_damage, from_arrays
from evergraph.graph.classes import UNSEEN
from evergraph.graph.columns import Columns
from evergraph.graph.evolving import EvolvingGraph
from evergraph.graph.segments import base_segment
from evergraph.graph.times import TimeAxis
from evergraph.storage.checksummed import load_json
from evergraph.storage.decoding import InvalidJsonError, converted, decoding, parse_json, read_array
from evergraph.storage.files import locked, refuse_link, sync_folder
from evergraph.storage.objects import Objects
from evergraph.storage.records import Records, Schema
from evergraph.workspace.change import put_segment, unlabelled
from evergraph.workspace.store import (
    FORMAT_1,
    OBJECTS,
    SCHEMA,
    Settings,
    damaged,
    needed_objects,
    newer,
    open_database,
    write_settings,
)

__all__ = ["convert", "upgrade"]

log = logging.getLogger(__name__)

_FORMAT, _VERSIONS = "evergraph workspace", "versions"
_OLD_OBJECT = re.compile(r"[0-9a-f]{32}\.[a-z]+(\.new)?")
_WAIT = 600.0  # seconds to wait for another process that is converting


_CHANGED = {
    2: "CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL, checksum INTEGER NOT NULL) STRICT;",
    3: "",
    4: "",  # only segments have changed, and older ones are read as they are
    5: "",  # likewise
}
"""The tables of older formats that have changed since, by format."""


def upgrade(folder: Path) -> None:
    """Upgrade the database of a workspace of format 2, 3, 4 or 5."""
    with locked(folder, "workspace", _WAIT):
        for version, sql in _CHANGED.items():
            older = Schema(sql, application=SCHEMA.application, version=version)
            if open_database(folder).upgrade(older, lambda row: (*row, 1, None)):
                log.info("%s: upgraded from format %s", folder, version)


def convert(folder: Path) -> None:
    """Convert a workspace of format 1, or finish an interrupted conversion."""
    with locked(folder, "workspace", _WAIT):
        database = open_database(folder)
        if not database.path.exists() and (folder / FORMAT_1).exists():
            refuse_link(folder / OBJECTS)
            old = _OldWorkspace(folder)
            objects = Objects(folder / OBJECTS, damaged)
            with database.create() as records:
                _Conversion(old, records, objects).run()
                objects.sync()
                sync_folder(folder)
            sync_folder(folder)
            log.info("%s: converted from format 1, with %s versions", folder, len(old.states))
        _remove_old_files(folder)


def _remove_old_files(folder: Path) -> None:
    objects = Objects(folder / OBJECTS, damaged)
    with open_database(folder).read() as records:
        needed = needed_objects(records)
    objects.remove(set(objects.names()) - needed)
    objects.remove_leftovers(lambda _: True)
    for path in objects.folder.iterdir():
        if _OLD_OBJECT.fullmatch(path.name) and not path.is_dir():
            path.unlink()
    if (versions := folder / _VERSIONS).is_dir() and not versions.is_symlink():
        for path in versions.glob("*.json"):
            path.unlink()
        if not any(versions.iterdir()):
            versions.rmdir()
    (folder / f"{FORMAT_1}.new").unlink(missing_ok=True)
    (folder / FORMAT_1).unlink(missing_ok=True)


class _OldWorkspace:
    """The files of a workspace of format 1."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        path = folder / FORMAT_1
        try:
            manifest = parse_json(path.read_bytes())
            head, version = manifest["version"], manifest["format_version"]
            known = manifest["format"] == _FORMAT and isinstance(head, int) and not isinstance(head, bool) and head > 0
        except OSError as error:
            raise os_error(error, "it cannot be read", damaged=partial(damaged, path)) from error
        except (ValueError, LookupError, TypeError) as error:
            raise damaged(path, f"it cannot be read ({error})") from error
        if known and version != 1:
            raise newer(path, f"the workspace has format version {version}, which is not known here")
        if not known:
            raise damaged(path, "this is not the file of an Evergraph workspace")
        self.now = self._state(head)
        with decoding(self._path(head), damaged):
            oldest = max(1, head - int(self.now["settings"]["keep"]) + 1)
        kept = (number for number in range(oldest, head) if self._path(number).exists())
        self.states: dict[int, dict[str, Any]] = {number: self._state(number) for number in kept} | {head: self.now}

    def _path(self, number: int) -> Path:
        return self.folder / _VERSIONS / f"{number:06d}.json"

    def _state(self, number: int) -> dict[str, Any]:
        path = self._path(number)
        try:
            return converted(load_json(path.read_bytes(), _FORMAT, 1).get("content"), dict[str, Any])
        except OSError as error:
            raise os_error(error, "it cannot be read", damaged=partial(damaged, path)) from error
        except InvalidJsonError as error:
            raise (newer if error.newer else damaged)(path, str(error)) from error

    def read(self, name: str) -> bytes:
        """Return the bytes of an object after comparing them with its hash."""
        path = self.folder / OBJECTS / name
        if not _OLD_OBJECT.fullmatch(name):
            raise damaged(self.folder / _VERSIONS, f"{name!r} is not the name of an object")
        try:
            data = path.read_bytes()
        except OSError as error:
            raise os_error(error, "it cannot be read", damaged=partial(damaged, path)) from error
        if hashlib.sha256(data).hexdigest()[:32] != name[:32]:
            raise damaged(path, "the contents are not those that were saved")
        return data

    def array(self, entry: Sequence[Any]) -> NDArray[Any]:
        return read_array(self.read(entry[0]))

    def table(self, name: str) -> list[dict[str, Any]]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        # Without threads: at the end of the interpreter, a thread that holds memory of Python aborts the process.
        table = pq.ParquetFile(pa.BufferReader(self.read(name))).read(use_threads=False)
        rows: list[dict[str, Any]] = table.to_pylist()
        return rows

    def graph(self, content: Mapping[str, Any]) -> EvolvingGraph:
        arrays = {name: self.array(entry) for name, entry in content["arrays"].items()}
        graph = from_arrays(arrays, content["features"], TimeAxis(**content["time"]), content["about"])
        if (problem := find_damage(graph)) is not None:
            raise damaged(self.folder, f"the arrays of the graph are damaged: {problem}")
        return graph


class _Conversion:
    """Turns the versions of format 1 into rows that are valid from one version until another."""

    def __init__(self, old: _OldWorkspace, records: Records, objects: Objects) -> None:
        self.old, self.records, self.objects = old, records, objects
        self.vertices: dict[tuple[str, int], int] = {}  # numbers of vertices, by id and the version that added them
        self.added: dict[str, list[int]] = {}  # the versions that added vertices with an id
        self.classes: dict[int, dict[str, int]] = {}  # numbers of classes by name, in each version
        self.merged: dict[int, dict[int, int]] = {}  # what classes were merged into, in each version
        self.next_class = 1
        self.lost: dict[str, int] = {}  # classes that occur only in earlier decisions

    def run(self) -> None:
        with decoding(self.old.folder, damaged):
            self._run()

    def _run(self) -> None:
        old, records = self.old, self.records
        settings = old.now["settings"]
        named = dict(settings["columns"])
        columns = Columns(numbers=tuple(named.pop("features")), **named)
        axis = TimeAxis(**old.now["graph"]["time"])
        write_settings(records, Settings(settings["history"], settings["history_why"], columns, settings["keep"], axis))
        entries = [(entry["version"], entry["when"], entry["command"], entry["what"]) for entry in old.now["log"]]
        records.insert("versions", entries)
        graphs = {version: old.graph(state["graph"]) for version, state in old.states.items()}
        for version, graph in graphs.items():
            self._number_classes(version, graph.class_names)
            for identity in self._identities(version, graph):
                if identity not in self.vertices:
                    self.vertices[identity] = len(self.vertices) + 1
                    self.added.setdefault(identity[0], []).append(identity[1])
        decided = self._decisions()
        self._outcomes()
        self._models()
        self._contents(graphs, decided)
        self._class_rows(graphs)

    # --- classes -----------------------------------------------------------------------------------------------------

    def _number_classes(self, version: int, class_names: Iterable[str]) -> None:
        """Number the classes of a version; a class that was renamed since the version before keeps its number."""
        state = self.old.states[version]
        models = [name for record in (state["model"], *state["models"]) for name in record["classes"]]
        returned = {item["version"]: item["to"] for item in self.old.now["returns"]}
        numbers: dict[str, int] = {}
        merged: dict[int, int] = {}
        before = max(self.classes, default=None)
        if returned.get(version) in self.classes:
            numbers, merged = dict(self.classes[returned[version]]), dict(self.merged[returned[version]])
        elif before is not None:
            merged = dict(self.merged[before])
            now: dict[str, list[str]] = {}
            for name in self.classes[before]:
                now.setdefault(self._name_in(name, before, version), []).append(name)
            for name, parts in now.items():
                of_parts = [self.classes[before][part] for part in parts]
                whole = self.classes[before][name] if name in parts else of_parts[0]
                if name not in parts and len(parts) > 1:
                    whole = self._new_class()
                numbers[name] = whole
                merged |= {number: whole for number in of_parts if number != whole}
        for name in dict.fromkeys([*class_names, *models, *state["retired"]]):
            numbers[name] = numbers.get(name) or self._new_class()
        self.classes[version], self.merged[version] = numbers, merged

    def _new_class(self) -> int:
        self.next_class += 1
        return self.next_class - 1

    def _name_in(self, name: str, then: int, now: int) -> str:
        """Return the name in version ``now`` of a class that had a name in version ``then``."""
        for old, new in _renamings(self.old.now["renamed"], self.old.now["returns"], then, now):
            name = new if name == old else name
        return name

    def _class(self, name: str, version: int) -> int:
        """Return the number of a class by its name in a version, which may be older than those that are kept."""
        first = min(self.classes)
        if version < first:
            name, version = self._name_in(name, version, first), first
        if name in self.classes[version]:
            return self.classes[version][name]
        if name not in self.lost:
            self.lost[name] = self._new_class()
        return self.lost[name]

    def _class_rows(self, graphs: Mapping[int, EvolvingGraph]) -> None:
        rows: dict[int, dict[int, tuple[Any, ...]]] = {}
        for version, numbers in self.classes.items():
            retired = {name: place for place, name in enumerate(self.old.states[version]["retired"], 1)}
            order = {name: row for row, name in enumerate(graphs[version].class_names, 1)}
            rows[version] = {
                number: (name, order.get(name, len(order) + number), None, retired.get(name))
                for name, number in numbers.items()
            }
            for number, whole in self.merged[version].items():
                rows[version].setdefault(number, ("", 0, whole, None))
        self.records.insert("classes", ((number, *row, *span) for number, row, span in _spans(rows)))
        self.records.insert("classes", ((number, name, number, None, None, 0, 0) for name, number in self.lost.items()))

    # --- vertices ----------------------------------------------------------------------------------------------------

    def _identities(self, version: int, graph: EvolvingGraph) -> list[tuple[str, int]]:
        since = self.old.array(self.old.states[version]["graph"]["since"]).tolist()
        return [(str(id), one) for id, one in zip(graph.ids.tolist(), since, strict=True)]

    def _vertex(self, id: object, version: int) -> int:
        """Return the number of the vertex that had an id in a version."""
        added = [one for one in self.added.get(str(id), ()) if one <= version]
        return self.vertices.setdefault((str(id), max(added, default=0)), len(self.vertices) + 1)

    def _contents(self, graphs: Mapping[int, EvolvingGraph], decided: set[int]) -> None:
        """Write graphs, labels and counts of all versions."""
        segments: dict[int, dict[tuple[int], tuple[str]]] = {}
        labels: dict[int, dict[tuple[int], tuple[str, int, int | None]]] = {}
        supports: dict[int, dict[tuple[int, int], tuple[int]]] = {}
        fresh: dict[int, dict[tuple[int], tuple[int]]] = {}
        written: dict[str, tuple[int, str, NDArray[np.int32]]] = {}
        for version, graph in graphs.items():
            state, times = self.old.states[version], graph.times.tolist()
            numbers = np.array([*(self.classes[version][name] for name in graph.class_names), -1], np.int32)
            found = numbers[graph.codes]
            vertices = [self.vertices[identity] for identity in self._identities(version, graph)]
            arrays = {name: entry for name, entry in state["graph"]["arrays"].items() if not _is_label(name)}
            key = json.dumps([arrays, state["graph"]["since"]])
            if key not in written:
                # Version 0: all labels of the records are later ones.
                name = put_segment(self.objects, base_segment(unlabelled(graph)), np.array(vertices), found, 0)
                written[key] = (len(written) + 1, name, found)
            number, name, first = written[key]
            segments[version] = {(number,): (name,)}
            rows = zip(vertices, graph.ids.tolist(), times, found.tolist(), first.tolist(), strict=True)
            labels[version] = {
                (vertex,): (str(id), time, None if label < 0 else label)
                for vertex, id, time, label, was in rows
                if label < 0 or label != was or vertex in decided
            }
            pairs = Counter(pair for pair in zip(times, found.tolist(), strict=True) if pair[1] >= 0)
            supports[version] = {pair: (count,) for pair, count in pairs.items()}
            fresh[version] = {(time,): (count,) for time, count in state["fresh"]}
            self._state(version, graph)
        tables: dict[str, Any] = {"segments": segments, "labels": labels, "supports": supports, "fresh": fresh}
        for table, of_version in tables.items():
            self.records.insert(table, ((*key, *row, *span) for key, row, span in _spans(of_version)))

    def _state(self, version: int, graph: EvolvingGraph) -> None:
        state = self.old.states[version]
        model = state["model"]
        names = [
            self.objects.put(self.old.read(model[part]), suffix)
            for part, suffix in (("learner", "json"), ("tensors", "safetensors"))
        ]
        figures = (len(graph), graph.n_edges, graph.first_time, graph.last_time, len(self.vertices) + 1)
        self.records.insert("states", [(version, model["number"], *names, int(state["stale"]), *figures)])

    # --- models and decisions ----------------------------------------------------------------------------------------

    def _models(self) -> None:
        columns: dict[int, list[int]] = {}
        for version, state in self.old.states.items():
            names = parse_json(self.old.read(state["model"]["learner"]))["classes"]
            columns.setdefault(state["model"]["number"], [self._class(name, version) for name in names])
        head = max(self.old.states)
        for record in self.old.now["models"]:
            known = columns.get(record["number"]) or [self._class(name, head) for name in record["classes"]]
            figures = (record["time"], record["restart"], record["why"], record["train_vertices"])
            made = (float(record["seconds"]), record["version"], record["before"])
            self.records.insert("models", [(record["number"], *figures, json.dumps(known), *made)])

    def _decisions(self) -> set[int]:
        """Write all decisions; return the vertices with a decision."""
        vertices = set()
        for kept in self.old.now["decisions"]:
            version = kept["version"]
            number = cache(lambda name, version=version: self._class(name, version))
            for row in self.old.table(kept["table"]):
                vertex = self._vertex(row["id"], version)
                vertices.add(vertex)
                decided = None if row["class"] == UNSEEN else number(row["class"])
                reasons = (row["score"], row["probability"], row["model"], row["nearest"], row["neighbours"])
                values = (vertex, version, str(row["id"]), kept["time"], decided, number(row["best"]), *reasons)
                self.records.insert("decisions", [values])
        return vertices

    def _outcomes(self) -> None:
        found: dict[tuple[int, int], tuple[int, int]] = {}
        for kept in self.old.now["scored"]:
            for row in self.old.table(kept["table"]):
                vertex = self._vertex(row["id"], row["decided"])
                found[vertex, row["labelled"]] = (self._class(row["truth"], row["labelled"]), row["latency"])
        self.records.insert("outcomes", ((*key, *value) for key, value in found.items()))


def _is_label(name: str) -> bool:
    return name == "codes" or name.startswith("classes")


def _spans(of_version: Mapping[int, Mapping[Any, Any]]) -> Iterator[tuple[Any, Any, tuple[int, int | None]]]:
    """Yield each value of each key with the version from which and the one until which it is valid."""
    since: dict[Any, tuple[Any, int]] = {}
    for version, values in of_version.items():
        for key in [key for key, (value, _) in since.items() if key not in values or values[key] != value]:
            value, start = since.pop(key)
            yield key, value, (start, version)
        for key, value in values.items():
            since.setdefault(key, (value, version))
    for key, (value, start) in since.items():
        yield key, value, (start, None)


def _renamings(
    renamed: Sequence[Mapping[str, Any]], returns: Sequence[Mapping[str, int]], then: int, now: int
) -> list[tuple[str, str]]:
    """Return how classes were renamed between two versions of format 1: old and new names, in order.

    A renaming that a rollback has undone is reversed, except for a merger: which of the names it was is not known.
    """
    events = [(event, _led_to(event, then, returns), _led_to(event, now, returns)) for event in renamed]
    undone = [(event["new"], event["old"]) for event, before, after in reversed(events) if before and not after]
    lost = {event["new"] for event, before, after in events if before and not after and event["merged"]}
    done = [(event["old"], event["new"]) for event, before, after in events if after and not before]
    return [*((old, new) for old, new in undone if old not in lost), *done]


def _led_to(event: Mapping[str, Any], version: int, returns: Sequence[Mapping[str, int]]) -> bool:
    """Whether a renaming is part of the past of a version."""
    for back in reversed(returns):
        if event["version"] >= back["version"]:
            break
        if back["version"] <= version:
            version = back["to"]
    return int(event["version"]) <= version
