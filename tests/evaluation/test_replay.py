"""Recorded trainings: a replayed detector decides as if it had been there during the training."""

from __future__ import annotations

import json
import logging
import shutil
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from evergraph import EvolvingGraph, InputError
from evergraph.datasets import synthetic
from evergraph.detect import DOC, GDOC, AutoDetector, Decision, Detector, Outputs, PostHoc, Requirements, Softmax
from evergraph.detect.scores import Energy, Relative, Score
from evergraph.detect.thresholds import BackTest, Budget, Conformal, Past
from evergraph.evaluation import replay as module
from evergraph.evaluation.configuration import Configuration
from evergraph.evaluation.replay import Recording, open_recording, record, replay, replay_all
from evergraph.learning.training import default_rate
from evergraph.nn import MLP, SGC, GraphSAGE
from evergraph.storage.checksummed import dump_json
from evergraph.storage.files import only_one
from evergraph_baselines.average import AverageDetector
from evergraph_baselines.scores import WordGrowth

pytestmark = pytest.mark.usefixtures("one_thread")

SIZE: dict[str, Any] = {"vertices": 300, "times": 8, "classes": 4, "new_classes": 2, "words": 80, "words_per_vertex": 5}
GRAPH, OTHER = (synthetic(**SIZE, seed=seed) for seed in (2, 3))
SMALL = Configuration(GraphSAGE(hidden=4), Softmax(), history=2, steps=3, lr=0.05, first=4)
State = Mapping[str, Tensor]


@dataclass(frozen=True)
class Distance(Score):
    """Distance of the hidden vector from the mean of the training vertices."""

    def fit(self, outputs: Outputs, targets: Tensor, state: State) -> State:  # noqa: ARG002
        assert outputs.hidden is not None
        return {"centre": outputs.hidden.double().mean(0)}

    def compute(self, outputs: Outputs, state: State) -> Tensor:
        assert outputs.hidden is not None
        return (outputs.hidden.double() - state["centre"]).norm(dim=1)


POST_HOC = (
    PostHoc(),
    PostHoc(Energy(), Conformal(0.1)),
    PostHoc(Distance(), Conformal(0.1)),
    PostHoc(Relative(Distance()), BackTest(weight=5)),
    PostHoc(WordGrowth(), Budget(7)),
    AutoDetector(),
    AverageDetector(),
    Softmax(),
)


@dataclass(frozen=True)
class NoReplay(PostHoc):
    replay: ClassVar[int] = 0


@dataclass(frozen=True)
class MoreReplay(PostHoc):
    replay: ClassVar[int] = 5


@dataclass(frozen=True)
class OfTheWeights(Softmax):
    """Its state is of the weights, so that a cold restart must lose it; it counts fits and observed slices."""

    @property
    def requires(self) -> Requirements:
        return Requirements(observe=True, replay=3)

    def fit(self, outputs: Outputs, targets: Tensor, state: State) -> State:  # noqa: ARG002
        return {"fits": state.get("fits", torch.zeros(())) + 1}

    def observe(self, outputs: Outputs, targets: Tensor, state: State) -> State:  # noqa: ARG002
        return {**state, "fits": state["fits"] + 100, "past.looks": state.get("past.looks", torch.zeros(())) + 1}

    def decide(self, outputs: Outputs, state: State) -> Decision:
        value = state["fits"] + 1000 * state.get("past.looks", torch.zeros(()))
        score = torch.full((len(outputs),), float(value), dtype=torch.float64)
        return super().decide(outputs, state)._replace(score=score)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a recording that no test may change."""
    return record(SMALL, GRAPH, 0, tmp_path_factory.mktemp("kept") / "r").folder


@pytest.fixture
def folder(kept: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return shutil.copytree(kept, tmp_path / "r")


def lived(configuration: Configuration, detector: Detector, seed: int = 0, graph: EvolvingGraph = GRAPH) -> list[Any]:
    """What a learner with the detector itself decides."""
    configuration = replace(configuration, detector=detector)
    learner, found = configuration.learner(seed), []
    for task in configuration.tasks(graph):
        own = replace(task, seed=seed)
        found.append(learner.adapt(own).predict(own))
    return found


def recorded_twice(
    configuration: Configuration, seed: int, folder: Path
) -> tuple[Recording, dict[Detector, Recording]]:
    """The training itself, and that of the auxiliary model that some detectors require."""
    second = record(replace(configuration, detector=GDOC()), GRAPH, seed, folder / "second")
    return record(configuration, GRAPH, seed, folder / "first"), {GDOC(): second}


def assert_same(judged: list[Any], decided: list[Any]) -> None:
    assert len(judged) == len(decided) > 2
    for one, other in zip((each.decisions for each in judged), decided, strict=True):
        assert list(one.ids) == list(other.ids)
        assert (one.time, one.known) == (other.time, other.known)
        assert one.best.tolist() == other.best.tolist()
        assert one.flagged.dtype == other.flagged.dtype == np.bool_
        assert one.score.dtype == np.float64
        assert np.array_equal(one.flagged, other.flagged)
        assert one.score.tobytes() == other.score.tobytes()
        assert one.probability.tobytes() == other.probability.tobytes()


@pytest.mark.parametrize("restart", ["warm", "cold", "hybrid"])
def test_a_replay_is_bit_for_bit_what_a_learner_decides(tmp_path: Path, restart: Any) -> None:
    configuration = replace(SMALL, restart=restart)
    recording, seconds = recorded_twice(configuration, 0, tmp_path)
    rejected = 0
    detectors = (*POST_HOC, OfTheWeights())
    for detector, judged in zip(detectors, replay_all(recording, GRAPH, detectors, seconds), strict=True):
        assert_same(judged, lived(configuration, detector))
        rejected += sum(int(one.decisions.flagged.sum()) for one in judged)
        assert all(one.seconds > 0 for one in judged)
    assert rejected > 20


@pytest.mark.parametrize(
    ("kind", "restart", "history", "rate"),
    [(DOC, "warm", "full", 0.01), (DOC, "cold", 1, 0.005), (GDOC, "warm", 1, 0.001), (GDOC, "cold", 1, 0.005)],
)
def test_gdoc_is_recorded_with_its_own_loss_and_rate(
    tmp_path: Path, kind: Any, restart: Any, history: Any, rate: float
) -> None:
    # Without a learning rate that is given: the paper's depends on the detector, and would be .005 without one.
    configuration = replace(SMALL, detector=kind(), restart=restart, history=history, lr=None, first=5)
    level = next(configuration.tasks(GRAPH)).level
    assert default_rate(SMALL.model, kind(), warm=restart == "warm", level=level) == rate
    recording = record(configuration, GRAPH, 1, tmp_path / "r")
    for detector in (kind(0.5), kind(0.75, alpha=2.0)):
        assert_same(replay(recording, GRAPH, detector), lived(configuration, detector, seed=1))


@pytest.mark.parametrize(
    "changed",
    [
        {"mode": "inductive", "history": "full"},
        {"label_rate": 0.4, "history": 1},
        {"model": MLP(hidden=4), "lr": None},
        {"model": SGC()},  # which may give no hidden vectors
        {"restart": "once"},
    ],
)
def test_a_replay_is_right_in_other_settings(tmp_path: Path, changed: dict[str, Any]) -> None:
    configuration = replace(SMALL, **changed)
    recording, seconds = recorded_twice(configuration, 3, tmp_path)
    for detector in (PostHoc(), AutoDetector(), AverageDetector()):
        assert_same(replay(recording, GRAPH, detector, seconds), lived(configuration, detector, seed=3))


@pytest.mark.parametrize("label_rate", [1.0, 0.5])
def test_a_replay_reaches_back_as_the_training_did(tmp_path: Path, label_rate: float) -> None:
    bare = GRAPH.ids[np.isin(GRAPH.times, [3, 5])]
    graph = GRAPH.relabel(bare, [None] * len(bare))
    configuration = replace(SMALL, history=1, label_rate=label_rate)
    assert [task.periods for task in configuration.tasks(graph)] == [2, 1, 2, 1]
    recording = record(configuration, graph, 3, tmp_path / "r")
    for detector in (PostHoc(), PostHoc(WordGrowth(), Budget(7))):
        assert_same(replay(recording, graph, detector), lived(configuration, detector, seed=3, graph=graph))
    for task in configuration.tasks(graph):
        assert recording.task(graph, task.time).window.rows == replace(task, seed=3).window.rows


def test_a_second_model_needs_a_recording_of_the_same_training(kept: Path, tmp_path: Path) -> None:
    recording = open_recording(kept)
    others = [
        recording,
        record(replace(SMALL, detector=DOC()), GRAPH, 0, tmp_path / "loss"),
        record(replace(SMALL, detector=GDOC(0.5)), GRAPH, 0, tmp_path / "threshold"),
        record(replace(SMALL, detector=GDOC()), GRAPH, 1, tmp_path / "seed"),
        record(replace(SMALL, detector=GDOC(), steps=2), GRAPH, 0, tmp_path / "steps"),
        record(replace(SMALL, detector=GDOC()), OTHER, 0, tmp_path / "graph"),
    ]
    for seconds in ({}, {DOC(): others[1]}, *({GDOC(): second} for second in others)):
        with pytest.raises(
            InputError, match="AverageDetector requires an auxiliary model, but there is no matching recording"
        ):
            replay_all(recording, GRAPH, [PostHoc(), AverageDetector()], seconds)
    assert replay(recording, GRAPH, PostHoc(), {GDOC(): others[0]})  # who does not ask does not care


def test_a_detector_without_replay_ignores_the_slices_before_the_first_task(kept: Path) -> None:
    recording = open_recording(kept)
    assert_same(replay(recording, GRAPH, NoReplay()), lived(SMALL, NoReplay()))
    first = [replay(recording, GRAPH, one)[0].decisions.flagged.any() for one in (NoReplay(), PostHoc())]
    assert first == [False, True]  # without a past none is flagged
    with pytest.raises(InputError, match="MoreReplay requires a replay of 5 slices, but 3 were recorded"):
        replay(recording, GRAPH, MoreReplay())


def test_the_tape_has_all_events_in_their_order(tmp_path: Path) -> None:
    steps: list[tuple[int, ...]] = []
    recording = record(SMALL, GRAPH, 0, tmp_path / "r", on_progress=lambda *told: steps.append(told))
    kinds = [(event.kind, event.time, event.backtest, event.cold) for event in recording.events]
    assert kinds == [
        ("fit", None, True, True),
        ("observe", 1, True, False),
        ("fit", None, True, False),
        ("observe", 2, True, False),
        ("fit", None, True, False),
        ("observe", 3, True, False),
        ("fit", None, False, True),
        ("decide", 4, False, False),
        *[
            each
            for time in (5, 6, 7)
            for each in (
                ("observe", time - 1, False, False),
                ("fit", None, False, False),
                ("decide", time, False, False),
            )
        ],
    ]
    assert steps == [(task, 4, step, 3) for task in range(4) for step in range(1, 4)]
    decided = [event for event in recording.events if event.kind == "decide"]
    assert all(event.seconds > 0 for event in decided)
    assert recording.seconds == sum(event.seconds for event in decided)
    assert recording.backtest_seconds > 0
    assert recording.training_seconds(Softmax()) == recording.seconds
    assert recording.training_seconds(PostHoc()) == recording.seconds + recording.backtest_seconds


# --- on disk ---------------------------------------------------------------------------------------------------------


def hashes(recording: Recording) -> list[str]:
    return [event.sha256 for event in recording.events]


def test_a_recording_that_is_there_is_not_made_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = open_recording(folder)
    monkeypatch.setattr(module, "_train", None)
    assert record(SMALL, GRAPH, 0, folder) == one


@pytest.mark.parametrize(
    ("changed", "graph", "seed", "told"),
    [
        ({"steps": 5}, GRAPH, 0, "other settings (steps is 3 there and 5 here)"),
        ({"detector": GDOC()}, GRAPH, 0, "other settings (detector is none there and gdoc here)"),
        ({}, OTHER, 0, "another graph"),
        ({}, GRAPH, 1, "other settings (seed is 0 there and 1 here)"),
    ],
)
def test_a_recording_of_something_else_is_made_again(
    tmp_path: Path, folder: Path, caplog: Any, changed: Any, graph: EvolvingGraph, seed: int, told: str
) -> None:
    configuration = replace(SMALL, **changed)
    with caplog.at_level(logging.WARNING):
        found = record(configuration, graph, seed, folder)
    assert f"the recording has {told}. The training is recorded again." in caplog.text
    fresh = record(configuration, graph, seed, tmp_path / "fresh")
    assert hashes(found) == hashes(fresh)
    assert {path.name for path in tmp_path.iterdir()} == {"r", "fresh", ".r.lock", ".fresh.lock"}
    assert {path.name for path in folder.iterdir()} == {"recording.json"} | {e.file for e in found.events}


def test_a_recording_of_a_version_without_inputs_is_one_of_words(
    tmp_path: Path, caplog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = replace(SMALL, inputs="words")
    new = record(words, GRAPH, 0, tmp_path / "r")
    content = json.loads(json.loads((tmp_path / "r" / "recording.json").read_text())["content"])
    del content["configuration"]["inputs"], content["configuration"]["label_latency"], content["view"]["label_latency"]
    (tmp_path / "r" / "recording.json").write_bytes(dump_json(content))
    with monkeypatch.context() as patch:
        patch.setattr(module, "_train", None)  # no training is needed
        assert record(words, GRAPH, 0, tmp_path / "r") == new
    record(SMALL, GRAPH, 0, tmp_path / "r")
    assert "other settings (inputs is words there and auto here)" in caplog.text


def test_other_numbers_are_recorded_again(folder: Path, caplog: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before = module.NUMERICS_VERSION
    monkeypatch.setattr(module, "NUMERICS_VERSION", 99)
    assert record(SMALL, GRAPH, 0, folder).identity["numerics_version"] == 99
    assert f"numerics version is {before} there and 99 here" in caplog.text


def lose_a_file(folder: Path) -> None:
    next(folder.glob("*-decide.safetensors")).unlink()


def change_a_file(folder: Path) -> None:
    path = next(folder.glob("*-observe.safetensors"))
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def cut_the_manifest(folder: Path) -> None:
    path = folder / "recording.json"
    path.write_bytes(path.read_bytes()[:-30])


def change_the_manifest(folder: Path) -> None:
    path = folder / "recording.json"
    path.write_text(path.read_text().replace("observe", "look_bock"))


@pytest.mark.parametrize("damage", [lose_a_file, change_a_file, cut_the_manifest, change_the_manifest])
def test_a_damaged_recording_is_told_and_made_again(folder: Path, kept: Path, caplog: Any, damage: Any) -> None:
    damage(folder)
    with pytest.raises(InputError, match="records it again"):
        replay(open_recording(folder), GRAPH, PostHoc())
    again = record(SMALL, GRAPH, 0, folder)
    assert "The training is recorded again." in caplog.text
    assert hashes(again) == hashes(open_recording(kept))


@pytest.mark.parametrize("replaces", [False, True])
def test_an_interrupted_recording_is_never_taken_for_a_whole_one(tmp_path: Path, kept: Path, replaces: bool) -> None:
    before = record(replace(SMALL, steps=2), GRAPH, 0, tmp_path / "r") if replaces else None

    def stop(task: int, _tasks: int, step: int, _steps: int) -> None:
        if (task, step) == (2, 2):
            shutil.copytree(tmp_path / "r.new", tmp_path / "left")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        record(SMALL, GRAPH, 0, tmp_path / "r", on_progress=stop)
    assert not (tmp_path / "r.new").exists()
    if before is None:
        assert not (tmp_path / "r").exists()
    else:
        assert open_recording(tmp_path / "r") == before  # what was there stays
    # As a kill would have left it.
    assert len(list((tmp_path / "left").iterdir())) > 5
    with pytest.raises(InputError, match="this folder contains no recording"):
        open_recording(tmp_path / "left")
    (tmp_path / "left").rename(tmp_path / "r.new")
    assert hashes(record(SMALL, GRAPH, 0, tmp_path / "r")) == hashes(open_recording(kept))
    assert not (tmp_path / "r.new").exists()


def test_what_is_not_ours_is_not_removed(tmp_path: Path) -> None:
    folder = tmp_path / "r"
    folder.mkdir()
    (folder / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match="the folder contains other files"):
        record(SMALL, GRAPH, 0, folder)
    assert (folder / "thesis.tex").read_text() == "years of work"
    with pytest.raises(InputError, match="this is a file, not a folder"):
        record(SMALL, GRAPH, 0, folder / "thesis.tex")


def test_an_event_outside_of_the_folder_is_refused(folder: Path) -> None:
    path = folder / "recording.json"
    content = json.loads(json.loads(path.read_text())["content"])
    content["events"][0]["file"] = "../other.safetensors"
    path.write_bytes(module.dump_json(content))
    with pytest.raises(InputError, match=r"events\[0\]\.file"):
        open_recording(folder)


def test_events_of_another_kind_are_recorded_again(folder: Path, caplog: Any) -> None:
    path = folder / "recording.json"
    content = json.loads(json.loads(path.read_text())["content"])
    content["events"][0]["kind"] = "of_old"
    path.write_bytes(module.dump_json(content))
    with pytest.raises(InputError, match=r"of_old.*events\[0\]\.kind"):
        open_recording(folder)
    assert open_recording(record(SMALL, GRAPH, 0, folder).folder)
    assert "The training is recorded again." in caplog.text


def test_a_recording_is_replayed_on_its_own_graph_only(kept: Path) -> None:
    recording = open_recording(kept)
    with pytest.raises(InputError, match="the recording is of another graph"):
        replay(recording, OTHER, PostHoc())


def test_the_past_has_all_slices_that_were_looked_back_at(kept: Path) -> None:
    recording = open_recording(kept)
    seen: list[int] = []

    class Spy(PostHoc):
        def decide(self, outputs: Outputs, state: State) -> Decision:
            seen.append(len(set(Past.of(state).slices.tolist())))
            return super().decide(outputs, state)

    replay(recording, GRAPH, Spy())
    assert seen == [3, 4, 5, 6]


@pytest.mark.parametrize("holder", ["1", "2"])
def test_processes_of_one_command_wait_for_each_other_in_silence(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, holder: str
) -> None:
    pytest.importorskip("fcntl")
    lock, order = tmp_path / "lock", []

    def wait() -> None:
        with only_one(lock, "waiting", holder="1"):
            order.append("second")

    thread = threading.Thread(target=wait)
    with only_one(lock, "waiting", holder=holder):
        thread.start()
        thread.join(0.5)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]
    assert ("waiting" in caplog.text) == (holder != "1")
