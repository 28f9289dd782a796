"""Tab in a shell: what is offered, and that installing it works."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from evergraph.cli.common import graphs_like
from evergraph.datasets import synthetic
from evergraph.names import DATASETS

needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")


def bash(script, **environment):
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        env={**os.environ, "PATH": path, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_graphs_are_offered_by_name_and_by_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert graphs_like("") == list(DATASETS)
    graph = synthetic(vertices=60, times=4, classes=2, new_classes=0, dying_classes=0)
    graph.save("mine")
    graph.save("graphs/other")
    Path("music").mkdir()
    assert graphs_like("") == [*DATASETS, "mine"]
    assert graphs_like("m") == ["metamath", "mine"]
    assert graphs_like("graphs/") == graphs_like("graphs/o") == ["graphs/other"]
    assert graphs_like(f"{tmp_path}/mi") == [f"{tmp_path}/mine"]
    assert graphs_like("mu") == graphs_like("nowhere/") == []  # then the shell offers files


@needs_bash
def test_installed_completion_completes(tmp_path):
    said = bash("evergraph --install-completion; true", HOME=str(tmp_path))
    assert "evergraph.sh" in said
    script = next(tmp_path.rglob("evergraph.sh"))
    assert str(script) in (tmp_path / ".bashrc").read_text()

    def offered(*words):
        line = " ".join(f"'{word}'" for word in words)
        call = f"source '{script}'; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _evergraph_completion evergraph"
        return bash(f'{call}; printf "%s\\n" "${{COMPREPLY[@]}}"', HOME=str(tmp_path)).split()

    assert offered("evergraph", "ins") == ["inspect"]
    assert offered("evergraph", "run", "meta") == ["metamath"]
    assert {"sage", "mlp"} <= set(offered("evergraph", "run", "metamath", "--model", ""))
    assert offered("evergraph", "import", "tables", "--edge-t") == ["--edge-time"]


def test_completing_loads_nothing_heavy():
    """A person waits for it with a finger on the key."""
    script = (
        "import sys; sys.argv = ['evergraph']\n"
        "try:\n    import evergraph.cli; evergraph.cli.main()\n"
        "finally:\n    heavy = {'torch', 'numba', 'matplotlib', 'pyarrow', 'numpy'} & set(sys.modules)\n"
        "    assert not heavy, heavy\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "_EVERGRAPH_COMPLETE": "complete_bash", "COMP_WORDS": "evergraph run ", "COMP_CWORD": "2"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == list(DATASETS)
    assert "AssertionError" not in done.stderr
