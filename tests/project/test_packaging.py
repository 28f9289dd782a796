"""The wheel works in a clean environment."""

import json
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def call(*command, cwd):
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.packaging
def test_wheel_in_a_clean_environment(tmp_path):
    call(sys.executable, "-m", "build", "--wheel", "--outdir", tmp_path, ROOT, cwd=tmp_path)
    (wheel,) = tmp_path.glob("evergraph-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert "evergraph/datasets/metamath.npz" in names
    assert "evergraph/py.typed" in names
    assert not [name for name in names if name.startswith(("tests", "benchmarks"))]
    assert wheel.stat().st_size < 4_000_000
    venv.create(tmp_path / "clean", with_pip=True)
    python = tmp_path / "clean" / "bin" / "python"
    pip = (python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet")
    # torch first and exactly as pinned, as in the Makefile.
    call(*pip, "--constraint", ROOT / "constraints.txt", "torch", cwd=tmp_path)
    call(*pip, "--constraint", ROOT / "constraints.txt", wheel, cwd=tmp_path)
    evergraph = tmp_path / "clean" / "bin" / "evergraph"
    found = json.loads(call(evergraph, "inspect", "metamath", "--json", cwd=tmp_path))
    assert found["vertices"] == 25_729
    assert found["history"]["50"] >= 1
    ran = json.loads(call(evergraph, "run", "metamath", "--history", 1, "--steps", 1, "--json", cwd=tmp_path))
    assert len(ran["tasks"]) == 14
