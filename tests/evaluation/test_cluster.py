"""Work on a real Ray cluster, and what happens when its workers die."""

import contextlib
import dataclasses
import logging
import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec

import numpy as np
import psutil
import pytest

from evergraph import EvergraphError, InputError, ray_connection
from evergraph.cli.common import engine_of, parse_resources
from evergraph.datasets import synthetic
from evergraph.detect import GDOC
from evergraph.evaluation import cluster
from evergraph.evaluation.comparison import candidates, compare
from evergraph.evaluation.configuration import Configuration
from evergraph.evaluation.run import run
from evergraph.evaluation.run_folder import read_run, write_from_worker
from evergraph.evaluation.trials import TrialStore, run_grid, trial_key
from evergraph.evaluation.workers import RayEngine, completed, given, report, start_workers, stopped
from evergraph.nn import MLP
from evergraph_paper.plan import LifelongTrial
from tests.evaluation.grid_trials import Toy, Wrong, marks, until

needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="the extra evergraph[ray] is not installed")
SMALL = Configuration(MLP(4), GDOC(0.5), history=1, steps=2)


# --- without Ray -----------------------------------------------------------------------------------------------------


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"Ray is not installed. Run: pip install 'evergraph\[ray\]'"):
        engine_of("ray", None, None, None)
    assert engine_of("local", None, None, None) is None


@pytest.mark.parametrize("text", ["", "cpu", "cpu=", "cpu=-1", "cpu=1GB", "memory=4PB", "=1", "a=1,,b=2", "cpu=1e3"])
def test_resources_that_are_none(text):
    with pytest.raises(InputError, match="--resources is"):
        parse_resources(text)


def test_resources():
    assert parse_resources("CPU=0.5, memory=1.5GB,gpu=1,slot=2") == {"cpu": 0.5, "memory": 1.5e9, "gpu": 1, "slot": 2}
    assert RayEngine(resources={"cpu": 2.5}).threads == 2
    assert RayEngine(resources={"cpu": 0}).threads == RayEngine().threads == 1


@pytest.mark.parametrize("options", [("10.0.0.5:6379", None), (None, "cpu=1")])
def test_options_of_ray_need_ray(options):
    with pytest.raises(InputError, match="is given without --engine ray"):
        engine_of("local", *options, None)


def test_ray_is_not_imported_without_need():
    code = "import evergraph.cli, evergraph.evaluation.run, evergraph.evaluation.trials, sys; sys.exit('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# --- with Ray --------------------------------------------------------------------------------------------------------

ON_RAY = RayEngine()


@needs_ray
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the warnings are Ray's own
class RayTests:
    """Tests that need a cluster."""


def columns(found):
    """Results without seconds."""
    return {
        key: {name: value for name, value in row.result.items() if "seconds" not in name} for key, row in found.items()
    }


@pytest.mark.usefixtures("ray")
class TestGrids(RayTests):
    def test_trials_come_to_the_same_numbers_and_get_the_graph_from_the_cluster(self, tmp_path):
        synthetic(vertices=120, times=4, classes=3, new_classes=1, seed=1).save(tmp_path / "g")
        trials = [LifelongTrial(str(tmp_path / "g"), SMALL, seed=seed, rules=(GDOC(0.9),)) for seed in range(3)]
        local = run_grid(trials, tmp_path / "local", threads=1)
        (tmp_path / "g").rename(tmp_path / "elsewhere")  # workers cannot read the files
        states = []
        found = run_grid(trials, tmp_path / "ray", engine=ON_RAY, on_done=lambda s: states.append(s.left))
        assert columns(found) == columns(local)
        assert {row.made["threads"] for row in found.values()} == {1}
        assert states == [3, 2, 1, 0]
        assert list((tmp_path / "ray" / ".claims").iterdir()) == []

    def test_a_worker_that_is_killed_costs_no_trial(self, tmp_path):
        (tmp_path / "marks").mkdir()
        trials = [Toy(number, marks=str(tmp_path / "marks"), seconds=3 if number else 0.1) for number in range(4)]
        killed = []

        def kill(state):
            if state.ran == 1:
                done = {row.trial["number"] for row in TrialStore(tmp_path / "r").read().values()}
                number, pid = until(lambda: [mark for mark in marks(tmp_path / "marks") if mark[0] not in done])[0]
                os.kill(pid, signal.SIGKILL)
                killed.append((number, pid))

        found = run_grid(trials, tmp_path / "r", engine=ON_RAY, on_done=kill)
        assert sorted(row.trial["number"] for row in found.values()) == [0, 1, 2, 3]
        begun = sorted(number for number, _ in marks(tmp_path / "marks"))
        assert begun == sorted([0, 1, 2, 3, killed[0][0]])
        store = TrialStore(tmp_path / "r")
        store.read()
        assert store.problems == []

    def test_errors_are_those_of_the_work(self, tmp_path):
        states = []
        found = run_grid([Toy(-1), Toy(0)], tmp_path / "r", engine=ON_RAY, on_done=states.append)
        assert list(found) == [trial_key(Toy(0))]
        assert states[-1].errors == ["toys, blöck, seed 0: the number is -1. Count from 0 up."]
        with pytest.raises(ZeroDivisionError, match="a fault of the program") as raised:
            run_grid([Wrong(3)], tmp_path / "r", engine=ON_RAY)
        assert type(raised.value) is ZeroDivisionError

    def test_work_that_always_dies_is_an_error_with_a_fix(self):
        with (
            pytest.raises(EvergraphError, match=r"the work was lost on the Ray cluster.*Run the same command again"),
            start_workers(RayEngine(retries=0), 1, items=1) as workers,
        ):
            workers.submit(_die).result()

    def test_resources_limit_what_runs_at_a_time(self):
        with start_workers(RayEngine(resources={"cpu": 2}, jobs=4), 1, items=4) as workers:
            spans = [found for _, found in completed(range(4), lambda _: workers.submit(_span), workers)]
        assert all(one[1] <= two[0] + 0.05 for one, two in zip(sorted(spans), sorted(spans)[1:], strict=False))

    def test_resources_that_no_node_has_are_named(self, caplog):
        with start_workers(RayEngine(resources={"slot": 1, "memory": 1e18}), 1, items=1):
            pass
        assert caplog.text.count("No node of the Ray cluster has CPU=1, slot=1, memory=1e+18. Waiting for one") == 1

    def test_work_is_ended_after_an_error_although_the_cluster_stays(self, ray, tmp_path):
        def interrupt():
            if (tmp_path / "a").exists():
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt), start_workers(RayEngine(jobs=2), 1, items=2) as workers:
            list(completed([tmp_path / "a"], lambda path: workers.submit(_write_on, path), workers, interrupt))
        until(lambda: ray.available_resources().get("CPU") == 2, 60)
        size = (tmp_path / "a").stat().st_size
        time.sleep(0.5)
        assert (tmp_path / "a").stat().st_size == size

    def test_a_seed_whose_worker_dies_continues_after_its_last_task(self, tmp_path):
        graph = synthetic(vertices=150, times=6, classes=3, new_classes=1, seed=2)
        slow = dataclasses.replace(SMALL, steps=300)
        killed = []

        def kill(*_):
            lines = tmp_path / "ray" / "results.jsonl"
            if not killed and lines.exists() and lines.read_bytes().count(b"\n") >= 1:
                killed.extend(one for one in psutil.process_iter(["cmdline"]) if _is_busy(one))
                for one in killed:
                    one.kill()

        found = run(slow, graph, [0], out=tmp_path / "ray", engine=ON_RAY, on_progress=kill)
        assert killed
        assert numbers(found) == numbers(run(slow, graph, [0]))
        assert len(read_run(tmp_path / "ray").rows[0]) == len(found.rows[0])


def _is_busy(process):
    return (process.info["cmdline"] or [""])[0].startswith("ray::_call")


def _write_on(path):
    """Write until the end of time; the main process is interrupted as soon as it has begun."""
    end = time.monotonic() + 60
    with path.open("a") as file:
        while time.monotonic() < end:
            file.write("x")
            file.flush()
            time.sleep(0.01)


def _die():
    os.kill(os.getpid(), signal.SIGKILL)


def _span():
    start = time.time()
    time.sleep(0.3)
    return start, time.time()


def _talk(item):
    logging.getLogger("evergraph.test").warning("item %d of %s", item, given()["name"])
    for column in range(3):
        report(item, column, 10 * item + column)
    while not stopped(item):
        time.sleep(0.02)
    return item


class TestChannel(RayTests):
    @pytest.mark.parametrize("engine", [None, ON_RAY])
    def test_work_reports_logs_and_stops(self, request, caplog, engine):
        if engine is not None:
            request.getfixturevalue("ray")

        def meanwhile():
            for item in range(2):
                if workers.numbers[item, 2] == 10 * item + 2:
                    workers.stop(item)

        with start_workers(engine, 2, items=2, columns=3, shared={"name": "x"}) as workers:
            done = completed(range(2), lambda item: workers.submit(_talk, item), workers, meanwhile)
            assert sorted(done) == [(0, 0), (1, 1)]
        np.testing.assert_array_equal(workers.numbers, [[0, 1, 2], [10, 11, 12]])
        assert sorted(record.getMessage() for record in caplog.records) == ["item 0 of x", "item 1 of x"]


def numbers(result):
    return {seed: [_without_seconds(row.as_dict()) for row in rows] for seed, rows in result.rows.items()}


def _without_seconds(row):
    return {name: value for name, value in row.items() if "seconds" not in name}


@pytest.mark.usefixtures("ray")
class TestCommands(RayTests):
    def test_a_run_comes_to_the_same_numbers_and_files(self, tmp_path):
        graph = synthetic(vertices=150, times=5, classes=3, new_classes=1, seed=2)
        calls = []
        local = run(SMALL, graph, [0, 1], out=tmp_path / "local")
        found = run(
            SMALL, graph, [0, 1], out=tmp_path / "ray", engine=ON_RAY, on_progress=lambda *call: calls.append(call)
        )
        assert numbers(found) == numbers(local)
        assert {index for index, *rest in calls if rest[0] == rest[1] - 1 and rest[2] == rest[3]} == {0, 1}
        for path in (tmp_path / "local" / "decisions").rglob("*.parquet"):
            assert path.read_bytes() == (tmp_path / "ray" / path.relative_to(tmp_path / "local")).read_bytes()
        assert numbers(run(SMALL, graph, [0, 1], engine=ON_RAY)) == numbers(local)

    def test_a_comparison_comes_to_the_same_numbers(self, tmp_path, monkeypatch):
        synthetic(vertices=150, times=5, classes=3, new_classes=1, seed=2).save(tmp_path / "g")
        monkeypatch.chdir(tmp_path)
        chosen = candidates("none,gdoc:0.5")
        local, found = (
            compare(["g"], chosen, SMALL, [0], out=out, engine=engine) for out, engine in (("a", None), ("b", ON_RAY))
        )
        assert found.errors == ()
        for one in chosen:
            there, here = (dict(each.of("g", one.name)[0].metrics) for each in (local, found))
            for name in ("seconds_training", "seconds_detector"):
                del there[name], here[name]
            np.testing.assert_equal(here, there)
        assert sorted(path.name for path in (tmp_path / "a").iterdir()) == sorted(
            path.name for path in (tmp_path / "b").iterdir()
        )


def test_a_folder_that_a_machine_does_not_see_is_named(tmp_path):
    with (
        pytest.raises(InputError, match=r"does not see this folder of a run.*that all machines share"),
        write_from_worker(tmp_path / "none", "token"),
    ):
        pass


def test_a_worker_of_a_run_that_has_ended_writes_nothing(tmp_path):
    (tmp_path / ".processes").write_text("another")
    with (
        pytest.raises(EvergraphError, match="the run has ended"),
        write_from_worker(tmp_path, "token"),
    ):
        pass


class TestClusters(RayTests):
    def test_usage_statistics_are_off_unless_turned_on(self):
        code = (
            "from evergraph.ray_connection import import_ray; import_ray();"
            "from ray._common.usage import usage_lib; print(usage_lib.usage_stats_enabled())"
        )
        for given_, expected in ((None, "False"), ("1", "True")):
            env = {name: value for name, value in os.environ.items() if name != "RAY_USAGE_STATS_ENABLED"}
            env |= {} if given_ is None else {"RAY_USAGE_STATS_ENABLED": given_}
            found = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
            assert found.stdout.strip() == expected

    def test_a_cluster_that_is_started_sends_no_statistics(self, ray):
        from ray._common.usage import usage_lib

        assert not usage_lib.usage_stats_enabled()
        assert ray.get(ray.remote(_usage).remote()) == ("0", False)

    def test_only_who_knows_the_token_can_use_a_cluster_that_is_started(self, ray):
        code = (
            f"import ray; ray.init(address={ray.get_runtime_context().gcs_address!r}, log_to_driver=False); "
            "print('inside', ray.cluster_resources()['CPU'] > 0)"
        )
        none = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}
        for more, inside in (
            ({}, False),
            ({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64}, False),
            (None, True),
        ):
            env = dict(os.environ) if more is None else none | more
            found = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
            assert ("inside True" in found.stdout) == (found.returncode == 0) == inside

    @pytest.mark.usefixtures("ray")
    def test_nodes_with_another_version_are_refused(self, monkeypatch):
        monkeypatch.setattr(cluster, "__version__", "0.0.1")
        with (
            pytest.raises(EvergraphError, match=r"the command runs Evergraph 0.0.1.*Install the same version"),
            start_workers(ON_RAY, 1, items=1) as workers,
        ):
            workers.submit(_span).result()

    def test_another_cluster_is_not_trusted_silently(self, monkeypatch, caplog):
        ray = ray_connection.import_ray()
        started = []

        def init(**settings):
            started.append(settings)
            return dataclasses.make_dataclass("Context", ["dashboard_url"])("127.0.0.1:8265")

        monkeypatch.setattr(ray, "init", init)
        monkeypatch.setattr(ray, "shutdown", lambda: None)
        monkeypatch.setattr(ray, "is_initialized", lambda: False)
        caplog.set_level("INFO")
        for address in ("10.0.0.5:6379", None):
            with ray_connection.connected(address):
                pass
        assert [settings["address"] for settings in started] == ["10.0.0.5:6379", "local"]
        assert caplog.text.count("A Ray cluster runs any code that anyone who can reach it sends") == 1
        assert "Ray's dashboard: http://127.0.0.1:8265 (token: " in caplog.text


def _usage():
    from ray._common.usage import usage_lib

    return os.environ.get("RAY_USAGE_STATS_ENABLED"), usage_lib.usage_stats_enabled()


@needs_ray
def test_an_address_without_a_cluster_is_an_error(monkeypatch):
    ray = ray_connection.import_ray()

    def init(**_):
        raise ConnectionError("ray client connection timeout\nmore")

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with (
        pytest.raises(EvergraphError, match=r"there is no Ray cluster at 10.0.0.5:1 \(ray client connection timeout\)"),
        contextlib.ExitStack() as held,
    ):
        held.enter_context(ray_connection.connected("10.0.0.5:1"))
