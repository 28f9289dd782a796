"""What a process of ours inherits and how it ends: the settings of threads that libraries start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from evergraph.datasets import synthetic
from evergraph.evaluation.run_folder import write_decisions
from evergraph.learning.learner import LifelongLearner
from evergraph.learning.task import Task
from evergraph.nn import MLP

# --- OpenMP's threads sleep between operations ------------------------------------------------------------------------

# The first import of torch prints the setting and ends the process, which also makes the test fast.
_RECORD = """
import os, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            sys.__stdout__.write(os.environ.get("OMP_WAIT_POLICY", "unset"))
            sys.__stdout__.flush()
            os._exit(0)
sys.meta_path.insert(0, Finder())
"""
_COMMAND = "import sys; sys.argv = ['evergraph', *{!r}]; from evergraph.cli import main; main()"


def _policy(statement: str, **environment: str) -> str:
    """Return OMP_WAIT_POLICY at the moment when a statement in a new interpreter first imports torch."""
    inherited = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    call = [sys.executable, "-c", _RECORD + statement]
    return subprocess.run(
        call, env=inherited | environment, capture_output=True, text=True, timeout=60, check=False
    ).stdout


@pytest.mark.parametrize(
    "statement",
    [
        "import evergraph.learning.learner",
        "import evergraph.detect",
        "import evergraph.nn",
        "import evergraph.workspace.predict",
        "import evergraph.evaluation.replay",
        "from evergraph import LifelongLearner",
        _COMMAND.format(["run", "metamath"]),
        _COMMAND.format(["compare", "metamath"]),
        _COMMAND.format(["ws", "init", "never", "--graph", "metamath"]),
        "import benchmarks.measure; import torch",
    ],
)
def test_torch_is_loaded_with_threads_that_sleep(
    statement: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([*sys.path, str(Path(__file__).parents[2])]))
    assert _policy(statement) == "passive"


def test_the_users_own_setting_is_kept() -> None:
    assert _policy("import evergraph.nn", OMP_WAIT_POLICY="active") == "active"


# --- no thread aborts the process at its end --------------------------------------------------------------------------

# Arrow's threads get a core only when the main thread sleeps, so they do what remains after the result is known. Then
# the main thread works, with the interpreter's lock, until they are waiting for the lock if they need it; and ends.
_LATE_THREADS = """
import contextlib, os, sys
from pyarrow import csv
core = min(os.sched_getaffinity(0))
os.sched_setaffinity(0, {core})
def threads(policy):
    for thread in map(int, os.listdir("/proc/self/task")):
        if thread != os.getpid():
            with contextlib.suppress(ProcessLookupError):  # the thread has ended meanwhile
                os.sched_setscheduler(thread, policy, os.sched_param(0))
do()
csv.read_csv(warm)
do()
threads(os.SCHED_IDLE)
sys.setswitchinterval(1)
do()
threads(os.SCHED_OTHER)
for thread in os.listdir("/proc/self/task"):
    with contextlib.suppress(ProcessLookupError):
        os.sched_setaffinity(int(thread), range(os.cpu_count()))
number = 0
while number < 1_500_000:
    number += 1
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's priorities of threads")
@pytest.mark.parametrize("reader", ["table.csv", "table.csv.gz", "table.parquet", "decisions"])
def test_no_thread_of_arrow_aborts_the_process_at_its_end(reader: str, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.csv as pa_csv
    import pyarrow.parquet as pq

    warm = tmp_path / "warm.csv"
    pa_csv.write_csv(pa.table({"id": range(100)}), warm)
    path = tmp_path / reader
    if reader == "decisions":
        task = Task(synthetic(vertices=200, times=4, new_classes=1, seed=1), time=3, history=2)
        path.write_bytes(write_decisions(task, LifelongLearner(MLP(hidden=4), steps=2).adapt(task).predict(task)))
        do = "from evergraph.evaluation.run_folder import read_decisions\n"
        do += f"def do(): read_decisions(open({str(path)!r}, 'rb').read())"
    else:
        table = pa.table({"id": range(1000), "label": ["class"] * 1000})
        with pa.output_stream(path) as file:  # compresses by the name
            (pq.write_table if path.suffix == ".parquet" else pa_csv.write_csv)(table, file)
        do = "from evergraph.datasets.files import open_table\n"
        do += f"def do(): open_table({str(path)!r}).read(['id', 'label'])"
    code = f"warm = {str(warm)!r}\n{do}\n{_LATE_THREADS}"
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stderr) == (0, "")
