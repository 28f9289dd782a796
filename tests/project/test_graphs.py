"""The commands of the quick start run with their defaults on real graphs of many kinds."""

import pytest

from tests.scripts import script

sanity = pytest.importorskip("benchmarks.sanity", reason="the folder benchmarks is missing")

SMALL = (
    "airflow-providers",
    "ansible-modules",
    "galaxy-tools",
    "julia-packages",
    "metasploit-modules",
    "sage-files",
    "sympy-files",
)


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_quick_start_works_with_defaults(name, tmp_path):
    """Few steps keep the test short; ``scripts/try_graphs.py`` runs all graphs with the default number."""
    try_graphs = script("try_graphs")
    folders = try_graphs.graph_folders(sanity.DATA)
    if name not in folders:
        pytest.skip(f"{sanity.DATA} has no graph {name}: set EVERGRAPH_DATA")
    for command, arguments in try_graphs.quick_start(folders[name], tmp_path, steps=2):
        done = try_graphs.execute(arguments)
        assert done.code == 0, f"{command}: {done.printed}"
        assert "Traceback" not in done.printed
