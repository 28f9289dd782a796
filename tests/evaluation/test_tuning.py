"""The search for settings: on the past only, resumable, shareable, never worse than the defaults."""

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evergraph import EvolvingGraph, InputError
from evergraph.datasets import synthetic
from evergraph.detect import GDOC
from evergraph.errors import EvergraphError
from evergraph.evaluation import tuning
from evergraph.evaluation.configuration import Configuration
from evergraph.evaluation.run import run
from evergraph.evaluation.tuning import Search, evaluate_later, tune
from evergraph.graph.arrays import fingerprint
from evergraph.graph.past import past_of
from evergraph.nn import SGC

pytestmark = pytest.mark.usefixtures("one_thread")

GRAPH = synthetic(vertices=240, times=8, classes=4, new_classes=2, words_per_vertex=8, seed=1)
BASE = Configuration(steps=2, first=3)
UNTIL = 4


def tuned(folder, graph=GRAPH, base=BASE, name="study.db", **more):
    return tune(base, graph, **({"storage": folder / name, "until": UNTIL, "trials": 7} | more))


def told(found):
    """Return what does not depend on the clock."""
    return [replace(trial, seconds=0.0) for trial in found.trials]


def numbers(path, *states):
    """Return the trials of the only study of a storage."""
    storage = f"sqlite:///{path}"
    (name,) = optuna.get_all_study_names(storage)
    return [
        one for one in optuna.load_study(study_name=name, storage=storage).trials if not states or one.state in states
    ]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return tuned(tmp_path_factory.mktemp("tuned"), trials=12)


# --- the past --------------------------------------------------------------------------------------------------------


def with_another_future(graph, seed):
    """Return a graph with other labels, features and edges after `UNTIL`; the vertices and their times stay."""
    rng = np.random.default_rng(seed)
    later = np.flatnonzero(graph.times > UNTIL)
    labels = graph.labels.copy()
    labels[later] = rng.permutation([*labels[later][:-1], f"class {seed}"])
    texts = [f"word{row % 17} w{row % 5}" for row in range(len(graph))]
    changed = list(texts)
    for row in later:
        changed[row] = f"new{rng.integers(9)} w{rng.integers(5)}"
    one, other, _ = graph.links.ends()
    times = np.maximum(graph.times[one], graph.times[other])
    old = times <= UNTIL
    new = [(int(rng.choice(later)), int(rng.integers(len(graph)))) for _ in range(60)]
    edges = [*zip(one[old].tolist(), other[old].tolist(), strict=True), *new]
    late = [(0, 1), (2, 7)]  # between old vertices, but known only later
    return [
        EvolvingGraph.build(
            {"id": list(range(len(graph))), "time": graph.times, "label": own, "text": words},
            {
                "source": [pair[0] for pair in chosen],
                "target": [pair[1] for pair in chosen],
                "time": [int(max(graph.times[a], graph.times[b])) for a, b in chosen[: len(chosen) - extra]]
                + [UNTIL + 1] * extra,
            },
        )
        for own, words, chosen, extra in (
            (graph.labels, texts, edges[: int(old.sum())], 0),
            (labels, changed, [*edges, *late], len(late)),
        )
    ]


@settings(max_examples=2)
@given(seed=st.integers(0, 1000))
def test_the_search_does_not_depend_on_the_future(tmp_path_factory, seed):
    one, other = with_another_future(GRAPH, seed)
    assert fingerprint(one) != fingerprint(other)
    assert fingerprint(past_of(one, UNTIL)) == fingerprint(past_of(other, UNTIL))
    folder = tmp_path_factory.mktemp("future")
    first, second = (tuned(folder, graph, trials=4, name=name) for graph, name in ((one, "1.db"), (other, "2.db")))
    assert first.search.name == second.search.name
    assert told(first) == told(second)
    assert first.configuration == second.configuration


def test_the_past_contains_nothing_of_the_future():
    past = past_of(GRAPH, UNTIL)
    assert past.last_time == UNTIL
    assert set(past.class_names) == {name for name in GRAPH.labels[GRAPH.times <= UNTIL] if name is not None}
    words = GRAPH.up_to(UNTIL).graph.features.words.rows(slice(0, len(past)))
    used = {words.columns[column] for column in np.unique(words.matrix.indices)}
    assert set(past.features.words.columns) == used
    assert past.n_edges == GRAPH.up_to(UNTIL).n_edges
    with pytest.raises(InputError, match="starts at"):
        past_of(GRAPH, -1)


def test_tasks_of_the_past_give_the_results_that_they_give_on_the_whole_graph():
    whole, past = (run(BASE, graph).rows[0] for graph in (GRAPH, past_of(GRAPH, UNTIL)))
    assert [row.scores for row in past] == [row.scores for row in whole[: len(past)]]


def test_workers_get_a_graph_without_the_later_periods(tmp_path, monkeypatch):
    seen = []
    measure = tuning.measure
    monkeypatch.setattr(tuning, "measure", lambda *args: seen.append(tuning.given()[0].last_time) or measure(*args))
    tuned(tmp_path, trials=2)
    assert seen == [UNTIL, UNTIL]


def test_tasks_are_split_in_the_middle():
    assert Search.of(BASE, GRAPH).until == 4  # of 3, 4, 5, 6 and 7
    assert Search.of(BASE, GRAPH, until=99).until == 7
    with pytest.raises(InputError, match="first task is 3"):
        Search.of(BASE, GRAPH, until=2)
    with pytest.raises(InputError, match="one task"):
        Search.of(replace(BASE, first=7), GRAPH)
    with pytest.raises(InputError, match="no metric"):
        Search.of(BASE, GRAPH, metric="f1")


# --- trials ----------------------------------------------------------------------------------------------------------


def test_the_first_trial_has_the_defaults(found):
    first, search = found.trials[0], found.search
    assert first.parameters == search.start
    assert search.configuration(first.parameters) is search.base
    plain = run(BASE, past_of(GRAPH, UNTIL))
    assert first.value == plain.summary()["accuracy"]["mean"] == found.default_value
    assert found.value >= found.default_value


def test_what_is_searched():
    assert set(Search.of(BASE, GRAPH).space) == {"lr", "history", "restart", "inputs", "hidden"}
    assert "hidden" not in Search.of(replace(BASE, model=SGC()), GRAPH).space
    assert "objective" in Search.of(BASE, GRAPH, metric="mcc").space
    search = Search.of(replace(BASE, detector=GDOC(0.95)), GRAPH, metric="open-f1")
    assert search.space["threshold"].high == 0.95
    tried = search.configuration(search.start | {"threshold": 0.4567, "lr": 0.012345, "hidden": 64})
    assert (tried.detector.threshold, tried.lr, tried.model.hidden) == (0.46, 0.012, 64)


def test_one_job_gives_the_same_trials_again(tmp_path, found):
    again = tuned(tmp_path, trials=12)
    assert told(again) == told(found)
    assert again.configuration == found.configuration
    assert again.importances == found.importances
    other = tuned(tmp_path, trials=12, seed=1)
    assert told(other) != told(found)


def test_a_hopeless_trial_is_stopped(tmp_path, monkeypatch):
    """All trials but the first ones are bad from the first task on."""
    bad = []

    def value(rows, seed, metric):
        return 0.1 if len(bad) else 0.9

    done = []

    def measure(item, configuration, threads):
        if len(done) == 5:
            bad.append(True)
        done.append(configuration)
        return original(item, configuration, threads)

    original = tuning.measure
    monkeypatch.setattr(tuning, "_value", value)
    monkeypatch.setattr(tuning, "measure", measure)
    result = tuned(tmp_path, until=6, trials=7)
    assert [trial.outcome for trial in result.trials] == ["done"] * 5 + ["pruned"] * 2
    assert [trial.tasks for trial in result.trials] == [4] * 5 + [2] * 2


def test_equal_settings_are_computed_once(tmp_path, monkeypatch):
    computed = []
    measure = tuning.measure
    monkeypatch.setattr(tuning, "measure", lambda *args: computed.append(args[1]) or measure(*args))
    tuned(tmp_path, trials=3)
    (study,) = optuna.get_all_study_names(f"sqlite:///{tmp_path / 'study.db'}")
    opened = optuna.load_study(study_name=study, storage=f"sqlite:///{tmp_path / 'study.db'}")
    opened.enqueue_trial(opened.trials[1].params)
    result = tuned(tmp_path, trials=4)
    assert [trial.outcome for trial in result.trials] == ["done", "done", "done", "reused"]
    assert result.trials[3].value == result.trials[1].value
    assert len(computed) == 3


def test_a_trial_that_fails_counts_and_the_others_go_on(tmp_path, monkeypatch):
    run_task, calls = tuning.run_task, []

    def failing(*args):
        calls.append(1)
        if len(calls) == 4:  # of the second trial
            raise EvergraphError("too large")
        return run_task(*args)

    monkeypatch.setattr(tuning, "run_task", failing)
    result = tuned(tmp_path, trials=4)
    assert [trial.outcome for trial in result.trials] == ["done", "failed", "done", "done"]


def test_a_metric_that_is_undefined_is_refused(tmp_path):
    graph = EvolvingGraph.build({"id": range(40), "time": np.arange(40) // 10, "label": ["x", "y"] * 20}, [[0, 1]])
    with pytest.raises(InputError, match="undefined"):
        tune(Configuration(steps=1, first=1), graph, storage=tmp_path / "s.db", metric="mcc", trials=2)


def test_several_jobs_finish_all_trials(tmp_path):
    result = tuned(tmp_path, trials=5, jobs=2)
    assert len(result.trials) == 5
    assert result.default_value is not None


@pytest.mark.slow
def test_ray_finishes_all_trials(tmp_path, found):
    """In a process of its own, because Ray leaves threads and files behind."""
    pytest.importorskip("ray", reason="the extra evergraph[ray] is not installed")
    code = SCRIPT.replace("trials=int(sys.argv[2])", "trials=4, engine=RayEngine('local', jobs=2)")
    code = "from evergraph.evaluation.workers import RayEngine" + code
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, timeout=300)
    check_all_once(tmp_path / "study.db", 4)
    values = {json.dumps(one.parameters, sort_keys=True): one.value for one in found.trials}
    (first, *_) = tuned(tmp_path, trials=4).trials
    assert first.value == values[json.dumps(first.parameters, sort_keys=True)]


# --- storage ---------------------------------------------------------------------------------------------------------


def test_a_finished_search_is_continued_with_more_trials(tmp_path, found, caplog):
    tuned(tmp_path, trials=4)
    with caplog.at_level("INFO", "evergraph"):
        more = tuned(tmp_path, trials=12)
    assert "4 finished trials" in caplog.text
    assert told(more) == told(found)


def test_another_search_in_the_same_storage_is_another_study(tmp_path, caplog):
    tuned(tmp_path, trials=1)
    with caplog.at_level("INFO", "evergraph"):
        other = tuned(tmp_path, trials=1, base=replace(BASE, steps=3))
    assert "1 other search," in caplog.text
    assert len(other.trials) == 1
    assert len(optuna.get_all_study_names(f"sqlite:///{tmp_path / 'study.db'}")) == 2


def test_a_storage_that_cannot_be_opened(tmp_path):
    (tmp_path / "text.db").write_text("this is not a database" * 100)
    for storage in (tmp_path / "text.db", "nosuchdatabase://host/name"):
        with pytest.raises(InputError, match="storage cannot be opened"):
            tuned(tmp_path, storage=storage)


SCRIPT = """
import logging, sys
from pathlib import Path
from tests.evaluation.test_tuning import tuned
if __name__ == "__main__":
    tuned(Path(sys.argv[1]), trials=int(sys.argv[2]))
"""


def start(folder, trials):
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(folder), str(trials)], env=os.environ | {"OMP_NUM_THREADS": "1"}
    )


def wait_for(folder, trials, process):
    """Wait until some trials are finished and another one is running."""
    end = time.monotonic() + 120
    while time.monotonic() < end:
        assert process.poll() is None
        states = []
        if (folder / "study.db").exists():
            # Not with Optuna, which would create missing tables at the same time as the other process.
            with (
                contextlib.closing(sqlite3.connect(folder / "study.db")) as records,
                contextlib.suppress(sqlite3.OperationalError),  # not complete yet
            ):
                states = [state for (state,) in records.execute("SELECT state FROM trials")]
        if states.count("COMPLETE") >= trials and "RUNNING" in states:
            return
        time.sleep(0.02)
    raise TimeoutError


def check_all_once(path, trials):
    """Exactly so many trials are finished, and none of them has the parameters of another."""
    finished = numbers(path, optuna.trial.TrialState.COMPLETE, optuna.trial.TrialState.PRUNED)
    assert len(finished) == trials
    assert not numbers(path, optuna.trial.TrialState.RUNNING, optuna.trial.TrialState.WAITING)
    computed = [json.dumps(one.params, sort_keys=True) for one in finished if "same_as" not in one.user_attrs]
    assert len(computed) == len(set(computed))


def test_a_killed_search_gives_the_trials_of_one_that_was_not_killed(tmp_path, found):
    process = start(tmp_path, 12)
    try:
        wait_for(tmp_path, 2, process)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    again = tuned(tmp_path, trials=12)
    check_all_once(tmp_path / "study.db", 12)
    assert [(one.parameters, one.value) for one in again.trials] == [
        (one.parameters, one.value) for one in found.trials
    ]


def test_a_command_that_died_before_it_signed_its_trial_does_not_delay_it(tmp_path, found):
    tuned(tmp_path, trials=2)
    (name,) = optuna.get_all_study_names(f"sqlite:///{tmp_path / 'study.db'}")
    optuna.load_study(study_name=name, storage=f"sqlite:///{tmp_path / 'study.db'}").ask()  # and nothing more
    again = tuned(tmp_path, trials=4)
    assert [one.parameters for one in again.trials] == [one.parameters for one in found.trials[:4]]


def test_interrupts_do_not_count_against_a_trial(tmp_path, monkeypatch):
    original = tuning.run_task

    def interrupt(*_args, **_more):
        raise KeyboardInterrupt

    for _ in range(4):
        monkeypatch.setattr(tuning, "run_task", interrupt)
        with pytest.raises(KeyboardInterrupt):
            tuned(tmp_path, trials=2)
    monkeypatch.setattr(tuning, "run_task", original)
    again = tuned(tmp_path, trials=2)
    assert [one.outcome for one in again.trials] == ["done", "done"]
    assert again.default_value is not None


def test_a_trial_that_another_command_gave_up_is_no_error(tmp_path, monkeypatch, caplog):
    original, taken = tuning.measure, []

    def measure(*args):
        (name,) = optuna.get_all_study_names(f"sqlite:///{tmp_path / 'study.db'}")
        study = optuna.load_study(study_name=name, storage=f"sqlite:///{tmp_path / 'study.db'}")
        running = [one for one in study.trials if one.state == optuna.trial.TrialState.RUNNING]
        if not taken:
            taken.append(study.tell(running[0].number, state=optuna.trial.TrialState.FAIL))
        return original(*args)

    monkeypatch.setattr(tuning, "measure", measure)
    assert len(tuned(tmp_path, trials=3).best) > 0
    assert "is not counted: another command took this one for dead" in caplog.text


def test_two_commands_share_the_trials(tmp_path):
    processes = [start(tmp_path, 10) for _ in range(2)]
    assert [process.wait(180) for process in processes] == [0, 0]
    check_all_once(tmp_path / "study.db", 10)
    owners = {one.user_attrs["owner"] for one in numbers(tmp_path / "study.db")}
    assert len(owners) <= 2


def test_settings_that_kill_their_command_are_given_up(tmp_path):
    tuned(tmp_path, trials=1)
    storage = f"sqlite:///{tmp_path / 'study.db'}"
    (name,) = optuna.get_all_study_names(storage)
    study = optuna.load_study(study_name=name, storage=storage)
    params = study.trials[0].params | {"lr": 0.02}
    study.enqueue_trial(params, user_attrs={"died": 3})
    result = tuned(tmp_path, trials=2)
    assert [trial.outcome for trial in result.trials] == ["done", "failed"]


def test_the_trial_of_a_command_elsewhere_is_left_to_it_until_it_gives_no_sign_of_life(tmp_path, monkeypatch):
    tuned(tmp_path, trials=1)
    storage = f"sqlite:///{tmp_path / 'study.db'}"
    (name,) = optuna.get_all_study_names(storage)
    study = optuna.load_study(study_name=name, storage=storage)
    elsewhere = study.ask(Search.of(BASE, GRAPH, until=UNTIL).space)
    elsewhere.set_user_attr("owner", "another-host 1")
    monkeypatch.setattr(tuning, "_GRACE", 0.3)
    monkeypatch.setattr(tuning, "_POLL", 0.05)
    result = tuned(tmp_path, trials=3)
    assert len(result.trials) == 3
    assert elsewhere.params in [one.params for one in numbers(tmp_path / "study.db", optuna.trial.TrialState.COMPLETE)]
    assert study.trials[elsewhere.number].state.name == "FAIL"


# --- later tasks -----------------------------------------------------------------------------------------------------


def test_later_tasks_are_those_that_the_search_has_not_seen(found):
    later = evaluate_later(found, GRAPH, (0, 1))
    assert later.times == (5, 6, 7)
    usual = run(BASE, GRAPH, (0, 1))
    expected = [np.mean([row.scores.accuracy for row in usual.rows[seed][2:]]) for seed in (0, 1)]
    assert later.defaults["accuracy"]["per_seed"] == pytest.approx(expected)
    assert evaluate_later(found, past_of(GRAPH, UNTIL)) is None
