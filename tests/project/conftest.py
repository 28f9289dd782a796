"""Fixtures that several test files of the project use."""

import tomllib
from pathlib import Path

import pytest

PLUGIN = Path(__file__).parents[2] / "examples" / "plugin"


@pytest.fixture(scope="session")
def installed(tmp_path_factory):
    """A folder for PYTHONPATH in which the package looks installed."""
    folder = tmp_path_factory.mktemp("site")
    project = tomllib.loads((PLUGIN / "pyproject.toml").read_text())["project"]
    info = folder / f"evergraph_example-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    lines = []
    for group, entries in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {place}" for name, place in entries.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    (folder / "evergraph_example").symlink_to(PLUGIN / "src" / "evergraph_example")
    return folder
