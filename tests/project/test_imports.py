from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

import evergraph

ROOT = Path(evergraph.__file__).parent
HEAVY = [
    "torch",
    "torch_geometric",
    "numba",
    "matplotlib",
    "pyarrow",
    "networkx",
    "pandas",
    "plotly",
    "sklearn",
    "typer",
    "rich",
]


def loaded_by(statement: str) -> set[str]:
    """The modules that are loaded once a statement has run in an interpreter of its own."""
    code = f"{statement}\nimport json, sys\nsys.stdout.write(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return set(json.loads(done.stdout))


@pytest.mark.parametrize(
    ("statement", "forbidden"),
    [
        ("import evergraph", [*HEAVY, "numpy", "scipy", "evergraph.graph", "evergraph.datasets", "evergraph.analysis"]),
        ("import evergraph; dir(evergraph)", [*HEAVY, "numpy", "scipy"]),
        ("import evergraph.graph", HEAVY),
        ("from evergraph import UNSEEN, ClassRegistry, EvolvingGraph, InputError, Window", HEAVY),
        ("from evergraph import Task, tasks, Decisions, evaluate, metrics", HEAVY),
        ("import evergraph.analysis.tdiff", ["torch"]),
        ("import evergraph.presentation", HEAVY),
    ],
)
def test_importing_loads_no_more_than_is_needed(statement: str, forbidden: list[str]) -> None:
    assert loaded_by(statement).isdisjoint(forbidden)


def test_opening_a_graph_and_looking_through_a_window_needs_no_arrow(tmp_path: Path) -> None:
    vertices = {"id": ["a", "b"], "time": [1, 2], "label": ["x", None], "text": ["one word", "two words"]}
    evergraph.EvolvingGraph.build(vertices, [("a", "b")]).save(tmp_path / "graph")
    statement = (
        f"import evergraph; graph = evergraph.EvolvingGraph.open({str(tmp_path / 'graph')!r})\n"
        "window = graph.window(1, 2); window.inputs(); window.adjacency; list(window.ids), window.labels, graph.classes"
    )
    assert loaded_by(statement).isdisjoint(HEAVY)


def test_every_public_name_can_be_imported() -> None:
    for name in evergraph.__all__:
        assert getattr(evergraph, name) is not None
        assert name in dir(evergraph)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = evergraph.nothing


# --- who may know whom -----------------------------------------------------------------------------------------------


def imports_of(path: Path) -> set[str]:
    """The modules of this package that a file imports, at its head or inside a function."""
    package = list(path.relative_to(ROOT.parent).parent.parts)
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            found |= {module} | {f"{module}.{alias.name}" for alias in node.names}
    return {name for name in found if name.split(".")[0] == "evergraph"}


def rooms_of(path: Path) -> set[str]:
    """The rooms (folders and single files of the package) whose modules a file imports."""
    names = {name.split(".")[1] for name in imports_of(path) if "." in name}
    return {name for name in names if (ROOT / name).is_dir() or (ROOT / f"{name}.py").exists()}


def files_in(room: str) -> list[Path]:
    folder = ROOT / room
    return sorted(folder.rglob("*.py")) if folder.is_dir() else [ROOT / f"{room}.py"]


@pytest.mark.parametrize(
    ("room", "may_know"),
    [
        ("errors", set()),
        ("files", {"errors"}),
        ("sealed", set()),
        ("compiled", set()),
        ("classes", {"errors"}),
        ("graph", {"errors", "files", "classes"}),
        ("datasets", {"errors", "classes", "graph"}),
        ("presentation", {"errors"}),
        ("analysis", {"errors", "classes", "compiled", "graph", "presentation"}),
        ("metrics", {"errors", "classes"}),
        ("nn", {"errors", "compiled"}),
        ("detect", {"errors", "classes", "compiled", "graph", "task"}),
        ("explain", {"graph"}),
        ("groups", {"errors", "compiled", "graph", "detect"}),
        ("task", {"errors", "graph", "analysis"}),
        ("vocabulary", {"errors", "graph"}),
        ("decisions", {"errors", "classes", "graph", "metrics", "task"}),
        ("rates", {"nn", "detect"}),
        ("describe", {"errors", "nn", "detect"}),
        ("settings", {"errors"}),
        ("training", {"errors", "nn", "detect"}),
        ("hindsight", {"classes", "detect", "task", "learner"}),
        (
            "learner",
            {
                *("errors", "classes", "graph", "nn", "detect", "task", "hindsight", "vocabulary", "decisions"),
                *("rates", "settings", "training", "checkpoint"),
            },
        ),
        ("checkpoint", {"errors", "files", "sealed", "nn", "detect", "describe", "vocabulary", "learner"}),
        (
            "workspace",
            {
                *("errors", "files", "sealed", "classes", "graph", "datasets", "analysis", "metrics", "nn", "detect"),
                *("explain", "groups", "task", "training", "learner", "checkpoint"),
            },
        ),
        (
            "report",
            {"errors", "files", "classes", "presentation", "metrics", "nn", "detect", "experiments", "workspace"},
        ),
    ],
)
def test_rooms_know_only_the_rooms_below_them(room: str, may_know: set[str]) -> None:
    assert files_in(room)
    for path in files_in(room):
        # The names at the top of the package stand for modules of all rooms, so no room but the top may use them.
        assert rooms_of(path) <= {room} | may_know, path
        top = imports_of(path) & {f"evergraph.{name}" for name in evergraph.__all__ if not (ROOT / name).is_dir()}
        assert not top, path


def test_only_the_command_knows_the_command() -> None:
    for path in ROOT.rglob("*.py"):
        if path.relative_to(ROOT).parts[0] not in ("cli", "cli.py", "__main__.py"):
            assert "cli" not in rooms_of(path), path


def test_the_graph_knows_nothing_of_torch_but_in_its_bridge() -> None:
    for path in ROOT.joinpath("graph").rglob("*.py"):
        if path.name != "interop.py":
            assert "torch" not in path.read_text(encoding="utf-8").replace("to_pyg", "").split(), path


def test_the_rules_see_every_kind_of_import() -> None:
    path = ROOT / "graph" / "no_such_file.py"
    source = """
import evergraph.datasets.download as d
from ..analysis import profile
from .. import cli
def f():
    from evergraph import load
"""
    with mock.patch.object(Path, "read_text", return_value=source):
        assert {"datasets", "analysis", "cli"} <= rooms_of(path)
        assert "evergraph.load" in imports_of(path)
