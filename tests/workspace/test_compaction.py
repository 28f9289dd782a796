"""Segments are merged after slices have been added: the graph of every version stays what it was."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import signal
import sqlite3
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evergraph import EvolvingGraph
from evergraph.datasets import synthetic
from evergraph.errors import DamagedWorkspaceError
from evergraph.graph.arrays import fingerprint
from evergraph.nn import MLP
from evergraph.storage import objects, records
from evergraph.workspace import Workspace
from evergraph.workspace.compaction import choose_merge, compact
from evergraph.workspace.store import DATABASE, SCHEMA
from tests.faults import Faults

pytestmark = pytest.mark.usefixtures("one_thread")
SIZE = 6


@given(st.lists(st.integers(100, 5000), min_size=1, max_size=400), st.integers(1, 10**6))
def test_the_number_of_segments_is_logarithmic_and_so_is_what_is_written_again(sizes: list[int], base: int) -> None:
    segments, written = [base], 0
    for size in sizes:
        chosen = choose_merge(segments)  # the newest one is never merged at once
        if chosen is not None:
            assert chosen.stop == len(segments)
            assert chosen.stop - chosen.start >= 2
            segments[chosen] = [sum(segments[chosen])]
            written += segments[-1]
        segments.append(size)
    total = base + sum(sizes)
    assert sum(segments) == total
    tiers = math.log(total / 100, 4) + 2
    assert len(segments) <= 3 * tiers + 2
    assert written <= tiers * total


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, one_thread: None) -> tuple[Path, EvolvingGraph]:
    """A workspace, and its graph."""
    graph = synthetic(vertices=60, times=4, classes=3, new_classes=0, words=40, words_per_vertex=3, seed=1)
    folder = tmp_path_factory.mktemp("made") / "ws"
    Workspace.create(folder, graph, history=2, steps=1, model=MLP(hidden=2), keep=8)
    return folder, graph


def slice_of(number: int) -> tuple[dict[str, Any], list[tuple[int, int]]]:
    """Vertices and edges of a slice; some edges lead to older slices, one is between old vertices."""
    first = 100 + SIZE * number
    ids = list(range(first, first + SIZE))
    vertices = {"id": ids, "time": [4 + number] * SIZE, "text": [f"w{number % 7:04d} new{number}"] * SIZE}
    edges = [(id, id - SIZE if number else id - 100) for id in ids] + [(ids[0], 7), (number % 50, 3 + number % 40)]
    return vertices, edges


def add(workspace: Workspace, number: int) -> None:
    vertices, edges = slice_of(number)
    workspace.add(vertices, edges)
    workspace.label(vertices["id"][1:], [f"class {number % 3:02d}"] * (SIZE - 1))


def segments_of(workspace: Workspace) -> int:
    with workspace.store.read() as found:
        return int(found.value("SELECT count(*) FROM segments WHERE until IS NULL"))


def state_of(folder: Path) -> tuple[str, list[str | None]]:
    """Fingerprint and labels of the graph, read anew."""
    graph = Workspace(folder).graph
    return fingerprint(graph), graph.labels.tolist()


def test_every_kept_version_and_the_current_one_have_the_graph_they_had(
    made: tuple[Path, EvolvingGraph], tmp_path: Path
) -> None:
    folder = shutil.copytree(made[0], tmp_path / "ws")
    workspace, graph, states, counts = Workspace(folder), made[1], {}, []
    for number in range(14):
        vertices, edges = slice_of(number)
        # Edges between old vertices get the period of the slice.
        timed = {"source": [a for a, _ in edges], "target": [b for _, b in edges], "time": [4 + number] * len(edges)}
        graph = graph.append(vertices, timed)
        graph = graph.relabel(vertices["id"][1:], [f"class {number % 3:02d}"] * (SIZE - 1))
        add(workspace, number)
        states[workspace.state.version] = state_of(folder)
        counts.append(segments_of(workspace))
        assert states[workspace.state.version] == (fingerprint(workspace.graph), workspace.graph.labels.tolist())
    assert counts[2] == 4
    assert max(counts) < 12
    fresh = Workspace(folder)
    assert fresh.graph.ids.tolist() == graph.ids.tolist()
    assert fresh.graph.labels.tolist() == graph.labels.tolist()
    assert (fresh.graph.adjacency != graph.adjacency).nnz == 0
    assert fresh.graph.links.times is not None
    assert fresh.graph.links.times.tolist() == graph.links.times.tolist()  # type: ignore[union-attr]
    assert fresh.verify()["objects"] == len(list(fresh.store.objects.names()))
    for version in [number for number in fresh.store.numbers if number in states]:
        other = shutil.copytree(folder, tmp_path / f"at {version}")
        if version != fresh.state.version:
            Workspace(other).rollback(version)
        assert state_of(other) == states[version]
        Workspace(other).add(slice_of(20)[0], [(220, 7)])  # and the next slice can be added to it
        Workspace(other).verify()


@pytest.mark.parametrize("version", [4, 5])
def test_an_older_workspace_is_upgraded(version: int, made: tuple[Path, EvolvingGraph], tmp_path: Path) -> None:
    folder = shutil.copytree(made[0], tmp_path / "ws")
    before = state_of(folder)
    with contextlib.closing(sqlite3.connect(folder / DATABASE)) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
    assert state_of(folder) == before
    assert Workspace(folder).store.database.version == SCHEMA.version == 6
    Workspace(folder).verify()


def test_labels_that_arrive_after_a_merge_count_and_a_merge_keeps_corrections(
    made: tuple[Path, EvolvingGraph], tmp_path: Path
) -> None:
    folder = shutil.copytree(made[0], tmp_path / "ws")
    workspace = Workspace(folder)
    for number in range(9):
        add(workspace, number)
    assert segments_of(workspace) < 8
    workspace.label([100, 101], ["late", "corrected"])
    for number in range(9, 14):
        add(workspace, number)
    graph = Workspace(folder).graph
    assert graph.labels[graph.find([100, 101, 102, 105])].tolist() == ["late", "corrected", "class 00", "class 00"]
    workspace.remove([101, 110])
    assert state_of(folder) == (fingerprint(workspace.graph), workspace.graph.labels.tolist())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a POSIX system")
def test_a_merge_killed_at_any_call_changes_nothing_or_is_complete(
    made: tuple[Path, EvolvingGraph], tmp_path: Path
) -> None:
    with mock.patch.object(records, "SYNCHRONOUS", "OFF"), mock.patch.object(os, "fsync"):
        folder = shutil.copytree(made[0], tmp_path / "ws")
        with mock.patch.object(Workspace, "_compact"):
            for number in range(6):
                add(Workspace(folder), number)
        before, count = state_of(folder), segments_of(Workspace(folder))
        assert count == 7
        left = []
        for at in range(1, 500):
            copy = shutil.copytree(folder, tmp_path / f"killed {at}")
            child = os.fork()
            if not child:
                with Faults(at, lambda: os.kill(os.getpid(), signal.SIGKILL)):
                    merge(copy)
                os._exit(0)
            _, status = os.waitpid(child, 0)
            assert state_of(copy) == before
            left.append(segments_of(Workspace(copy)))
            Workspace(copy).verify()
            merge(copy)
            assert segments_of(Workspace(copy)) < count
            workspace = Workspace(copy)
            workspace.label([100], ["another"])
            assert workspace.verify()["objects"] == len(list(workspace.store.objects.names()))
            shutil.rmtree(copy)
            if os.WIFEXITED(status):
                break
        assert len(left) > 15
        assert left == sorted(left, reverse=True)  # one moment at which everything changes
        assert set(left) == {count, left[-1]}


def merge(folder: Path) -> None:
    workspace = Workspace(folder)
    version = workspace.state.version
    with workspace.store.read() as found:
        contents = workspace._contents_of(found, workspace.state)
    compact(workspace.store, contents, version)


def test_segments_are_not_merged_into_damaged_ones_nor_read_from_damaged_files(
    made: tuple[Path, EvolvingGraph], tmp_path: Path
) -> None:
    with mock.patch.object(objects, "_LARGE", 1):
        folder = shutil.copytree(made[0], tmp_path / "ws")
        first = state_of(folder)
        checked = (folder / "objects" / ".checked").read_text()
        assert state_of(folder) == first
        name = next(line.split()[0] for line in checked.splitlines() if ".segment" in line)
        path = folder / "objects" / name
        with mock.patch.object(objects.hashlib, "sha256", side_effect=AssertionError("it is not read again")):
            Workspace(folder).store.objects.view(name, lambda _: None)
        data = bytearray(path.read_bytes())
        header = int.from_bytes(data[:8], "little")
        counts = json.loads(data[8 : 8 + header])["features.data"]["data_offsets"]
        data[8 + header + counts[0]] ^= 1  # valid, but not what was saved
        path.write_bytes(data)
        with pytest.raises(DamagedWorkspaceError, match="not those that were saved"):
            _ = Workspace(folder).graph
        # A file whose times say that nothing has changed is still compared before its data is written again.
        status = path.stat()
        stamp = f"1 {status.st_size} {status.st_ino} {status.st_mtime_ns} {status.st_ctime_ns}"
        (folder / "objects" / ".checked").write_text(f"{name} {stamp}\n")
        with pytest.raises(DamagedWorkspaceError, match="not those that were saved"):
            Workspace(folder).remove([0])
        with pytest.raises(DamagedWorkspaceError, match="not those that were saved"):
            Workspace(folder).graph.save(tmp_path / "saved")
        with pytest.raises(DamagedWorkspaceError, match="not those that were saved"):
            Workspace(folder).verify()
