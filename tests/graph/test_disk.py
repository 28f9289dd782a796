from __future__ import annotations

import contextlib
import errno
import json
import mmap
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from evergraph import EvergraphError, EvolvingGraph, InputError, load, tdiff
from evergraph.errors import DamagedGraphError
from evergraph.graph import disk
from evergraph.graph.disk import verify
from evergraph.graph.segments import base_segment, join
from evergraph.storage.checksummed import dump_json, load_json
from tests import faults
from tests.faults import Faults
from tests.strategies import Model, Tables, arrays_of, assert_equal, model_of, tables

OLD, NEW = faults.graph(3, about="old"), faults.graph(4, about="new")
needs_posix = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a POSIX system")


@pytest.fixture(autouse=True, scope="module")
def _no_waiting_for_the_disk() -> Iterator[None]:
    with mock.patch.object(os, "fsync"):
        yield


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    OLD.save(tmp_path / "graph")
    return tmp_path / "graph"


def assert_is(folder: Path, graph: EvolvingGraph) -> None:
    """The folder holds this graph, whole and alone."""
    assert verify(folder) > 0
    opened = EvolvingGraph.open(folder)
    assert_equal(opened, graph)
    assert opened.about == graph.about


def assert_swept(folder: Path) -> None:
    assert {entry.name for entry in folder.iterdir()} <= {"manifest.json", "versions", ".lock"}
    assert len(list((folder / "versions").iterdir())) == 1


# --- there and back --------------------------------------------------------------------------------------------------


@given(tables(), st.sampled_from([{}, {"from": "hand"}, {"größe": "🦋\n"}]))
def test_a_graph_comes_back_as_it_was(given: Tables, about: dict[str, str]) -> None:
    graph = replace(given.build(), about=about)
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root) / "a" / "graph"
        graph.save(folder)
        assert_is(folder, graph)
        opened = EvolvingGraph.open(str(folder))
        assert model_of(opened) == Model.of(given)
        assert repr(opened) == repr(graph)
        assert opened.class_names == graph.class_names
        # What was opened can be changed and saved like any other.
        name = given.vertices["id"][0]
        changed = opened.relabel([name], ["other"])
        assert_equal(changed, graph.relabel([name], ["other"]))
        changed.save(folder, replace=True)
        assert_is(folder, changed)
        assert_swept(folder)
        assert_equal(opened, graph)


@given(tables(min_size=3), st.integers(1, 5))
def test_an_opened_graph_can_be_appended_to_and_cut(given: Tables, time: int) -> None:
    old, new = given.before(time)
    if not old.vertices["id"] or not new.vertices["id"]:
        return
    with tempfile.TemporaryDirectory() as root:
        old.build().save(Path(root) / "graph")
        opened = EvolvingGraph.open(Path(root) / "graph")
        grown = opened.append(new.vertices, new.edges, **new.more)
        assert_equal(grown, given.build())
        assert_equal(grown.remove(new.vertices["id"]), given.build().remove(new.vertices["id"]))
        assert opened.find(old.vertices["id"]).tolist() == old.build().find(old.vertices["id"]).tolist()


@pytest.mark.parametrize("every", ["year", "month", "week", "day", 5])
def test_the_axis_of_time_is_kept(tmp_path: Path, every: Any) -> None:
    graph = EvolvingGraph.build({"id": ["a", "b"], "time": ["2004-02-29", "1969-12-31"]}, every=every)
    graph.save(tmp_path / "graph")
    opened = EvolvingGraph.open(tmp_path / "graph")
    assert (opened.axis, opened.times.tolist()) == (graph.axis, graph.times.tolist())
    assert len(opened.window("2004-02-20", "2004-03-01")) == 1


def test_a_window_of_a_graph_that_was_opened_is_that_of_the_graph(saved: Path) -> None:
    opened = EvolvingGraph.open(saved)
    for last in (0, 4, 7):
        assert model_of(opened.up_to(last)) == model_of(OLD.up_to(last))
        assert (opened.up_to(last).inputs() != OLD.up_to(last).inputs()).nnz == 0


def test_opening_maps_the_arrays_into_memory(saved: Path) -> None:
    for name, array in arrays_of(EvolvingGraph.open(saved)).items():
        base = array
        while isinstance(base, np.ndarray):
            assert not base.flags.writeable, name
            base = base.base
        assert isinstance(base, mmap.mmap), name
        assert type(array) is np.ndarray
    with pytest.raises(ValueError, match="read-only"):
        EvolvingGraph.open(saved).times[0] = 9


def test_verify_counts_the_bytes_of_all_arrays(saved: Path) -> None:
    assert verify(saved) == sum(path.stat().st_size for path in saved.glob("versions/*/*.npy"))


def test_nothing_on_disk_needs_pickle(saved: Path) -> None:
    for path in saved.glob("versions/*/*.npy"):
        assert np.load(path, allow_pickle=False).dtype.kind in "iuf"


# --- where a graph may be saved --------------------------------------------------------------------------------------


def test_a_graph_is_replaced_only_on_demand(saved: Path) -> None:
    with pytest.raises(InputError, match="there is a graph already"):
        NEW.save(saved)
    assert_is(saved, OLD)
    NEW.save(saved, replace=True)
    assert_is(saved, NEW)
    assert_swept(saved)


def test_replacing_a_graph_that_is_not_there_saves_it(tmp_path: Path) -> None:
    NEW.save(tmp_path / "graph", replace=True)
    (tmp_path / "empty").mkdir()
    NEW.save(tmp_path / "empty")
    assert_is(tmp_path / "graph", NEW)
    assert_is(tmp_path / "empty", NEW)


@pytest.mark.parametrize("replace", [False, True])
def test_a_folder_of_something_else_is_left_alone(tmp_path: Path, replace: bool) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(InputError, match="the folder holds something else"):
        NEW.save(tmp_path, replace=replace)
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.tex"]


def test_sweeping_spares_what_evergraph_did_not_write(tmp_path: Path) -> None:
    precious = tmp_path / "versions" / "final-final"
    precious.mkdir(parents=True)
    NEW.save(tmp_path)
    assert precious.is_dir()
    assert_is(tmp_path, NEW)


@pytest.mark.parametrize("replace", [False, True])
def test_a_file_is_no_place_for_a_graph(tmp_path: Path, replace: bool) -> None:
    (tmp_path / "file").write_text("precious")
    with pytest.raises(InputError, match="this is a file, not a folder"):
        NEW.save(tmp_path / "file", replace=replace)
    with pytest.raises(InputError, match="no such graph folder"):
        EvolvingGraph.open(tmp_path / "file")
    with pytest.raises(EvergraphError, match="could not be saved"):
        NEW.save(tmp_path / "file" / "graph", replace=replace)
    assert (tmp_path / "file").read_text() == "precious"


def test_saving_over_the_folder_of_an_open_graph_leaves_it_open(saved: Path) -> None:
    opened = EvolvingGraph.open(saved)
    NEW.save(saved, replace=True)
    assert_equal(opened, OLD)
    opened.save(saved, replace=True)
    assert_is(saved, OLD)
    shutil.rmtree(saved)
    assert_equal(opened, OLD)


# --- damage ----------------------------------------------------------------------------------------------------------


def test_a_folder_without_a_graph_says_so(tmp_path: Path) -> None:
    for use in (EvolvingGraph.open, verify):
        with pytest.raises(InputError, match="no such graph folder"):
            use(tmp_path / "nowhere")
        with pytest.raises(DamagedGraphError, match="holds no graph, or its import was interrupted"):
            use(tmp_path)


def arrays_in(folder: Path) -> list[Path]:
    return sorted(folder.glob("versions/*/*.npy"))


def test_a_missing_or_truncated_or_longer_array_is_found_on_opening(saved: Path) -> None:
    assert len(arrays_in(saved)) == 17
    for path in arrays_in(saved):
        content = path.read_bytes()
        for damage in (None, b"", content[:-1], content + b"\0"):
            path.unlink(missing_ok=True)
            if damage is not None:
                path.write_bytes(damage)
            for use in (EvolvingGraph.open, verify):
                with pytest.raises(DamagedGraphError, match=r"is missing|bytes, not the") as error:
                    use(saved)
            assert error.value.file == path
        path.write_bytes(content)
    assert_is(saved, OLD)


def test_a_flipped_bit_is_found_by_verify(saved: Path) -> None:
    for path in arrays_in(saved):
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
        EvolvingGraph.open(saved)
        with pytest.raises(DamagedGraphError, match="the contents are not those that were saved") as error:
            verify(saved)
        assert error.value.file == path
        content[-1] ^= 1
        path.write_bytes(content)
    assert_is(saved, OLD)


@pytest.mark.parametrize(
    ("name", "place", "problem"),
    [
        ("times", 0, "times do not ascend"),
        ("codes", 0, "classes are out of range"),
        ("indices", -1, "edges are out of range"),
        ("indptr", 1, "rows of edges are out of order"),
        ("features.indices", 0, "features are out of range"),
        ("features.indptr", 1, "rows of features are out of order"),
        ("ids.offsets", 1, "ids are out of order"),
    ],
)
def test_damage_that_opening_does_not_see_is_told_and_does_not_crash(
    tmp_path: Path, name: str, place: int, problem: str
) -> None:
    columns = {"id": list("abc"), "time": [1, 2, 3], "label": ["x", "y", "x"], "text": ["one", "two", "one"]}
    EvolvingGraph.build(columns, [("a", "b"), ("b", "c")]).save(tmp_path / "graph")
    (path,) = (path for path in arrays_in(tmp_path / "graph") if path.name == f"{name}.npy")
    array = np.load(path)
    array[place] += 1_000
    np.save(path, array)
    with pytest.raises(DamagedGraphError, match=problem):
        load(tmp_path / "graph")
    if name in ("times", "indices", "indptr"):
        with pytest.raises(InputError, match="damaged"):
            tdiff(EvolvingGraph.open(tmp_path / "graph"))


def test_no_damage_to_a_header_breaks_opening(saved: Path) -> None:
    path = next(path for path in arrays_in(saved) if path.name == "times.npy")
    content = path.read_bytes()
    for place in range(128):
        damaged = bytearray(content)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        with contextlib.suppress(DamagedGraphError):
            EvolvingGraph.open(saved)
        with pytest.raises(DamagedGraphError):
            verify(saved)


def manifest_of(folder: Path) -> Any:
    return load_json((folder / "manifest.json").read_bytes(), disk.FORMAT, disk.FORMAT_VERSION)


def write_manifest(folder: Path, content: Any, *, checksum: bool = True) -> None:
    """Another manifest, with a checksum or as Evergraph 0.1 wrote it."""
    if not checksum and content.get("format_version") == disk.FORMAT_VERSION:
        content = content | {"format_version": 1}
    (folder / "manifest.json").write_bytes(dump_json(content) if checksum else json.dumps(content).encode())


with_and_without_checksum = pytest.mark.parametrize("checksum", [True, False])


@with_and_without_checksum
def test_graphs_with_and_without_a_checksum_are_read(saved: Path, checksum: bool) -> None:
    write_manifest(saved, manifest_of(saved), checksum=checksum)
    assert_is(saved, OLD)
    NEW.save(saved, replace=True)
    assert_is(saved, NEW)
    assert set(json.loads((saved / "manifest.json").read_text())) == {"sha256", "content"}


def test_a_manifest_of_the_new_format_needs_its_checksum(saved: Path) -> None:
    (saved / "manifest.json").write_text(json.dumps(manifest_of(saved)))
    with pytest.raises(DamagedGraphError, match="the manifest is damaged"):
        EvolvingGraph.open(saved)


def test_a_flipped_bit_in_the_manifest_is_damage(saved: Path) -> None:
    content = (saved / "manifest.json").read_bytes()
    for place in range(0, len(content), 11):
        damaged = bytearray(content)
        damaged[place] ^= 1 << place % 8
        (saved / "manifest.json").write_bytes(damaged)
        with pytest.raises(DamagedGraphError) as error:
            EvolvingGraph.open(saved)
        assert error.value.file == saved / "manifest.json"


def changed(graph: EvolvingGraph) -> Iterator[EvolvingGraph]:
    """Graphs made from a graph in every way."""
    yield graph
    yield graph.append({"id": ["new"], "time": [graph.last_time], "text": ["words"]})
    yield graph.append({"id": ["late"], "time": [graph.first_time], "text": ["words"]})
    yield graph.relabel([graph.ids[0]], ["other"])
    yield graph.remove([graph.ids[0]])
    yield pickle.loads(pickle.dumps(graph))


def test_damaged_texts_name_their_file_when_they_are_read(saved: Path) -> None:
    (path,) = saved.rglob("texts.bytes.npy")
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    texts = disk.open_checked(saved).features.texts
    assert texts is not None
    with pytest.raises(DamagedGraphError, match="the texts are damaged") as error:
        list(texts)
    assert error.value.file == path


def test_damaged_bytes_never_get_a_valid_hash(saved: Path, tmp_path: Path) -> None:
    for path in arrays_in(saved):
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
        opened = EvolvingGraph.open(saved)
        made = [opened] if path.stem in ("ids.offsets", "indptr", "features.indptr") else changed(opened)
        with contextlib.suppress(InputError, UnicodeDecodeError, IndexError, ValueError):
            for graph in made:  # some damage breaks the change itself, which is as well
                for use in (lambda graph: graph.save(tmp_path / "copy"), base_segment):
                    with pytest.raises(DamagedGraphError, match="not those that were saved") as error:
                        use(graph)
                    assert error.value.file == path
        with pytest.raises(DamagedGraphError, match="not those that were saved"):
            opened.save(saved, replace=True)
        content[-1] ^= 1
        path.write_bytes(content)
    assert not (tmp_path / "copy").exists()
    for graph in changed(EvolvingGraph.open(saved)):
        graph.save(tmp_path / "copy", replace=True)
        assert verify(tmp_path / "copy")
        assert len(join([base_segment(graph)])) == len(graph)


def test_what_was_opened_can_be_checked_when_its_files_are_gone(saved: Path) -> None:
    opened = EvolvingGraph.open(saved)
    grown = opened.append({"id": ["new"], "time": [opened.last_time], "text": ["words"]})
    NEW.save(saved, replace=True)
    grown.save(saved, replace=True)
    assert_is(saved, grown)


@needs_posix
def test_writers_do_not_follow_links(saved: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious")
    for name in ("manifest.json.new", "manifest.json"):
        (saved / name).unlink(missing_ok=True)
        (saved / name).symlink_to(precious)
        NEW.save(saved, replace=True)
        assert_is(saved, NEW)
    (saved / ".lock").unlink()
    (saved / ".lock").symlink_to(precious)
    with pytest.raises(InputError, match="symbolic link"):
        OLD.save(saved, replace=True)
    (saved / ".lock").unlink()
    (tmp_path / "elsewhere" / "000001").mkdir(parents=True)
    shutil.rmtree(saved / "versions")
    (saved / "versions").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="symbolic link"):
        OLD.save(saved, replace=True)
    assert [entry.name for entry in (tmp_path / "elsewhere").iterdir()] == ["000001"]
    assert precious.read_text() == "precious"


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"7",
        b'"evergraph graph"',
        b"\xff\xfe",
        b"{}",
        b'{"format": "parquet"}',
        b"[" * 100_000,
    ],
)
def test_a_manifest_that_is_none_is_damage(saved: Path, text: bytes) -> None:
    (saved / "manifest.json").write_bytes(text)
    for use in (EvolvingGraph.open, verify):
        with pytest.raises(DamagedGraphError) as error:
            use(saved)
        assert error.value.file == saved / "manifest.json"
        assert error.value.fix


def test_a_manifest_that_is_a_folder_is_damage(saved: Path) -> None:
    (saved / "manifest.json").unlink()
    (saved / "manifest.json").mkdir()
    with pytest.raises(DamagedGraphError, match="cannot be read"):
        EvolvingGraph.open(saved)


@pytest.mark.parametrize("version", [5, 99])
def test_a_graph_of_a_newer_format_asks_for_an_update(saved: Path, version: Any) -> None:
    write_manifest(saved, manifest_of(saved) | {"format_version": version})
    with pytest.raises(DamagedGraphError, match=r"newer than 4, the newest known here\. Update Evergraph"):
        EvolvingGraph.open(saved)


@with_and_without_checksum
@pytest.mark.parametrize("junk", [..., None, 0, -1, 5, "x", "../..", [], ["x"], {}, {"unit": "week", "step": 0}])
def test_a_distorted_manifest_is_damage_or_does_no_harm(saved: Path, junk: Any, checksum: bool) -> None:
    whole = manifest_of(saved)
    for key in whole:
        distorted = {name: value for name, value in whole.items() if name != key}
        if junk is not ...:
            distorted[key] = junk
        write_manifest(saved, distorted, checksum=checksum)
        if key == "about" and junk in ({}, {"unit": "week", "step": 0}):
            assert_equal(EvolvingGraph.open(saved), OLD)
            continue
        for use in (EvolvingGraph.open, verify):
            with pytest.raises(DamagedGraphError):
                use(saved)


def test_a_distorted_entry_of_an_array_is_damage(saved: Path) -> None:
    whole = manifest_of(saved)
    for junk, problem in [
        *((junk, "a field is missing or invalid") for junk in (None, {}, [], "x", 5, {"bytes": None}, {"bytes": 5})),
        ({"bytes": -1, "sha256": ""}, "not the -1 that were saved"),
    ]:
        write_manifest(saved, whole | {"arrays": whole["arrays"] | {"times": junk}})
        for use in (EvolvingGraph.open, verify):
            with pytest.raises(DamagedGraphError, match=problem):
                use(saved)
    entry = {"bytes": whole["arrays"]["times"]["bytes"], "sha256": ""}
    write_manifest(saved, whole | {"arrays": whole["arrays"] | {"times": entry}})
    with pytest.raises(DamagedGraphError, match="the contents are not those that were saved"):
        verify(saved)


@pytest.mark.parametrize("unit", [{"unit": "fortnight", "step": 1}, {"unit": "year", "step": 0}, {"unit": "year"}])
def test_an_unknown_axis_of_time_is_damage(saved: Path, unit: Any) -> None:
    write_manifest(saved, manifest_of(saved) | {"time": unit})
    with pytest.raises(DamagedGraphError):
        EvolvingGraph.open(saved)


@pytest.mark.parametrize("name", ["../secret", "/etc/secret", "a/b", "..", "", "nul\0", "c:\\x", "."])
def test_a_manifest_cannot_reach_out_of_its_folder(saved: Path, name: str) -> None:
    np.save(saved / "versions" / "secret.npy", np.arange(3))
    entry = {"bytes": (saved / "versions" / "secret.npy").stat().st_size, "sha256": ""}
    manifest = manifest_of(saved)
    manifest["arrays"][name] = entry
    write_manifest(saved, manifest)
    for use in (EvolvingGraph.open, verify):
        with pytest.raises(DamagedGraphError, match=r"is not the name of an array|is missing"):
            use(saved)


def test_an_array_with_objects_is_not_read(saved: Path) -> None:
    path = arrays_in(saved)[0]
    np.save(path, np.array([{"a": 1}], object), allow_pickle=True)
    manifest = manifest_of(saved)
    manifest["arrays"][path.stem]["bytes"] = path.stat().st_size
    write_manifest(saved, manifest)
    with pytest.raises(DamagedGraphError, match="this is not an array"):
        EvolvingGraph.open(saved)


def test_damage_is_mended_by_saving_again(saved: Path) -> None:
    (saved / "manifest.json").write_text("garbled")
    NEW.save(saved, replace=True)
    assert_is(saved, NEW)


# --- killed, full, crowded -------------------------------------------------------------------------------------------


def run(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, faults.__file__, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, **options)


@needs_posix
@pytest.mark.parametrize("existing", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_save_killed_at_any_call_leaves_the_old_graph_or_the_new_one(tmp_path: Path, existing: bool) -> None:
    done = run("kill", tmp_path, *(["existing"] if existing else []))
    assert done.returncode == 0, done.stderr
    shutil.rmtree(tmp_path / "old")
    folders = sorted(tmp_path.iterdir())
    assert len(folders) > 75
    states = []
    for folder in folders:
        if not (folder / "manifest.json").exists():
            assert not existing
            with pytest.raises(DamagedGraphError, match="its import was interrupted"):
                EvolvingGraph.open(folder)
            states.append("none")
        else:
            states.append(manifest_of(folder)["about"]["name"])
            assert_is(folder, {"old": OLD, "new": NEW}[states[-1]])
        OLD.save(folder, replace=True)
        assert_equal(EvolvingGraph.open(folder), OLD)
        assert_swept(folder)
    # One moment at which everything changes, and what is killed after it has changed everything.
    before = "old" if existing else "none"
    assert states == sorted(states, key=[before, "new"].index)
    assert {before, "new"} == set(states)


@pytest.mark.parametrize("existing", [pytest.param(True, marks=pytest.mark.slow), False])
def test_a_full_disk_at_any_call_leaves_what_was_there(tmp_path: Path, existing: bool) -> None:
    def fail() -> None:
        raise OSError(errno.ENOSPC, "no space left")

    at, failures = 0, 0
    while True:
        at += 1
        folder = tmp_path / str(at)
        if existing:
            OLD.save(folder)
        with Faults(at, fail) as counted:
            try:
                NEW.save(folder, replace=True)
                outcome = "new"
                told = ""
            except EvergraphError as error:
                told = str(error)
        if told:
            failures += 1
            outcome = "new" if "the graph is saved" in told else "old" if existing else "none"
            assert "no space left" in told
            assert ("Nothing was changed" in told) == (outcome != "new")
        if outcome == "none":
            assert not folder.exists()
        else:
            assert_is(folder, NEW if outcome == "new" else OLD)
        if outcome == "old":
            assert_swept(folder)
        NEW.save(folder, replace=True)
        assert_is(folder, NEW)
        assert_swept(folder)
        if counted.count < at:
            break
    assert failures > 70


@needs_posix
def test_a_disk_that_is_really_full_is_told_and_leaves_what_was_there(saved: Path, tmp_path: Path) -> None:
    done = run("room", saved, tmp_path / "new")
    for folder in (saved, tmp_path / "new"):
        assert f"{folder}: the graph could not be saved (File too large). Nothing was changed." in done.stdout
    assert "small enough: saved" in done.stdout
    assert not (tmp_path / "new").exists()
    assert_is(saved, OLD)
    assert_swept(saved)


def test_an_interrupt_leaves_what_was_there(saved: Path, tmp_path: Path) -> None:
    for folder in (saved, tmp_path / "new"):
        with mock.patch.object(disk, "_write_array", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
            NEW.save(folder, replace=True)
    assert not (tmp_path / "new").exists()
    assert_is(saved, OLD)
    assert_swept(saved)


def test_everything_is_synced_before_the_commit(tmp_path: Path) -> None:
    events: list[str] = []
    paths: dict[int, str] = {}
    real_open, real_replace = os.open, os.replace

    def note_open(path: Any, *args: Any, **kwargs: Any) -> int:
        handle = real_open(path, *args, **kwargs)
        paths[handle] = Path(path).name
        return handle

    def note_sync(handle: int) -> None:
        name = Path(f"/proc/self/fd/{handle}")
        events.append(name.readlink().name if name.exists() else paths.get(handle, "file"))

    def note_replace(*args: Any) -> None:
        events.append("COMMIT")
        real_replace(*args)

    with mock.patch.multiple(os, open=note_open, fsync=note_sync, replace=note_replace):
        NEW.save(tmp_path / "graph")
    arrays = [path.name for path in (tmp_path / "graph").glob("versions/*/*.npy")]
    commit = events.index("COMMIT")
    if Path("/proc/self/fd").exists():
        assert sorted(events[:commit]) == sorted([tmp_path.name, *arrays, "000001", "versions", "manifest.json.new"])
        assert max(map(events.index, arrays)) < events.index("000001") < events.index("manifest.json.new")
    assert events[commit + 1 :] == ["graph"]


def test_a_second_writer_is_told_and_harms_nothing(tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    real, tried = disk._write_array, []

    def write_while_another_tries(*args: Any) -> Any:
        if not tried:
            tried.append(True)
            with pytest.raises(EvergraphError, match="another process is writing this graph"):
                NEW.save(tmp_path / "graph", replace=True)
        return real(*args)

    for folder_is_new in (True, False):
        tried.clear()
        with mock.patch.object(disk, "_write_array", write_while_another_tries):
            OLD.save(tmp_path / "graph", replace=not folder_is_new)
        assert tried
        assert_is(tmp_path / "graph", OLD)


def test_a_writer_that_came_late_does_not_replace_unasked(tmp_path: Path) -> None:
    real = disk._locked

    def slow_lock(folder: Path) -> Any:
        with mock.patch.object(disk, "_locked", real):
            OLD.save(folder)  # another process is faster
        return real(folder)

    with mock.patch.object(disk, "_locked", slow_lock), pytest.raises(InputError, match="there is a graph already"):
        NEW.save(tmp_path / "graph")
    assert_is(tmp_path / "graph", OLD)


@needs_posix
def test_readers_never_fail_while_a_writer_replaces_the_graph(tmp_path: Path) -> None:
    folder = tmp_path / "graph"
    OLD.save(folder)
    sizes, failures = set(), []

    def read(done: threading.Event) -> None:
        while not done.is_set():
            try:
                opened = EvolvingGraph.open(folder)
                sizes.add(len(opened))
                assert opened.ids.tolist() == [
                    f"old{row}" for row in sorted(range(len(opened)), key=lambda row: row % 5)
                ]
                verify(folder)
            except BaseException as error:
                failures.append(error)
                return

    finished = threading.Event()
    reader = threading.Thread(target=read, args=(finished,))
    reader.start()
    writer = run("again", folder, 60)
    finished.set()
    reader.join()
    assert writer.returncode == 0, writer.stderr
    assert failures == []
    assert sizes == {3, 60}
    assert_swept(folder)


@example({"number": 5})
@given(st.dictionaries(st.text(max_size=3), st.text(max_size=5) | st.integers() | st.booleans(), max_size=3))
def test_what_is_said_about_a_graph_is_kept(about: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as root:
        graph = EvolvingGraph.build({"id": ["a"], "time": [1]}, about=about)
        graph.save(Path(root) / "graph")
        assert EvolvingGraph.open(Path(root) / "graph").about == about
