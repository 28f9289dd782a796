from __future__ import annotations

import ast
import json
import shlex
import subprocess
import sys
from pathlib import Path

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
    "fastapi",
    "pydantic",
    "uvicorn",
    "optuna",
    "ray",
]


def loaded_by(statement: str) -> set[str]:
    """Return the modules that are loaded after a statement has run in a new interpreter."""
    code = f"{statement}\nimport json, sys\nsys.stdout.write(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return set(json.loads(done.stdout))


@pytest.mark.parametrize(
    ("statement", "forbidden"),
    [
        (
            "import evergraph; dir(evergraph)",
            [*HEAVY, "numpy", "scipy", "evergraph.graph", "evergraph.datasets", "evergraph.analysis"],
        ),
        (
            "import evergraph.graph; from evergraph import UNSEEN, ClassRegistry, EvolvingGraph, InputError, Window",
            HEAVY,
        ),
        ("from evergraph import Task, tasks, Decisions, evaluate, metrics", HEAVY),
        ("import evergraph.analysis.time_differences", ["torch"]),
        ("from evergraph import Client; Client('http://127.0.0.1:1')", HEAVY),
        ("import evergraph.presentation.style, evergraph.presentation.table", HEAVY),
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


def run_and_list(*arguments: object) -> str:
    """Return code that runs the command line without its output, and fails if the command does."""
    return (
        f"import contextlib, io, sys; sys.argv = {['evergraph', *map(str, arguments)]!r}\n"
        "from evergraph.cli import main\n"
        "try:\n    with contextlib.redirect_stdout(io.StringIO()):\n        main()\n"
        "except SystemExit as ended:\n    assert not ended.code, ended.code"
    )


def test_help_loads_nothing_heavy() -> None:
    assert loaded_by(run_and_list("--help")).isdisjoint(set(HEAVY) - {"typer", "rich"})


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a workspace ``ws``, a graph and tables, in which nothing has been decided."""
    folder = tmp_path_factory.mktemp("start")
    graph = evergraph.datasets.synthetic(vertices=60, times=4, classes=2, new_classes=0, seed=1)
    graph.save(folder / "graph")
    model, detector = evergraph.nn.MLP(hidden=2), evergraph.detect.DOC(0.5)
    evergraph.Workspace.create(folder / "ws", graph, model=model, detector=detector, history=2, steps=1)
    (folder / "v.csv").write_text("id,time,text\n900,4,w0001 w0002\n901,4,w0003\n")
    (folder / "e.csv").write_text("source,target\n900,0\n")
    (folder / "l.csv").write_text("id,label\n900,class 01\n")
    (folder / "all.csv").write_text("id,time,label,text\na,1,x,some words\nb,2,y,more words\n")
    return folder


def test_what_does_not_compute_with_a_model_does_not_load_torch(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(workspace)
    reading = {"torch", "numba", "pyarrow", "pandas", "matplotlib", "plotly", "sklearn", "ray", "optuna"}
    writing = reading - {"pyarrow", "pandas"}  # Arrow imports pandas if it is installed
    loaded = {}
    for arguments, forbidden in (
        ("ws status ws", reading),
        ("ws add ws --vertices v.csv --edges e.csv", writing),
        ("ws label ws --labels l.csv", writing),
        ("ws log ws", reading),
        ("ws scores ws", reading),
        ("ws verify ws", reading),
        ("ws tag ws first", reading),
        ("ws set ws", reading),
        ("ws set ws --keep 5", reading),
        ("ws classes list ws", reading),
        ("ws classes rename ws 'class 01' 'class 99'", writing),
        ("ws remove ws --ids 901", writing),
        ("ws review ws", {"torch", "matplotlib", "plotly"}),
        ("ws rollback ws first", reading),
        ("serve-token list ws", reading),
        ("import tables --vertices all.csv --edges e.csv --drop-dangling --out new", writing),
        ("import synthetic --out made", reading),
        ("inspect graph", {"torch", "pyarrow", "matplotlib", "plotly"}),
        ("inspect graph --verify", {"torch", "matplotlib", "plotly"}),
    ):
        found = loaded_by(run_and_list(*shlex.split(arguments))) & forbidden
        if found:
            loaded[arguments] = sorted(found)
    assert loaded == {}


def test_every_public_name_can_be_imported() -> None:
    for name in evergraph.__all__:
        assert getattr(evergraph, name) is not None
        assert name in dir(evergraph)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = evergraph.nothing


# --- the import rule -------------------------------------------------------------------------------------------------

# A package or module imports only itself and what is before it in this list. `learning.task` has its own place, because
# it needs only graph and analysis, and inputs need it.
ORDER = [
    *(
        "errors",
        "allocation",
        "compiled",
        "ray_connection",
        "names",
        "storage",
        "presentation",
        "graph",
        "datasets",
        "analysis",
        "learning.task",
    ),
    *("inputs", "nn", "detect", "learning", "evaluation", "workspace", "client", "report", "service", "cli"),
]
TOP = {"__init__", "__main__"}  # these may import everything


def place_of(name: str) -> int | None:
    """Return the position of a module like ``graph.window`` in the list."""
    words = name.split(".")
    found = [part for part in (".".join(words[:2]), words[0]) if part in ORDER]
    return ORDER.index(found[0]) if found else None


def imported_by(source: str, path: Path) -> set[str]:
    """Return the full names of all modules and names that a file imports, also inside functions."""
    package = list(path.relative_to(ROOT.parent).parent.parts)
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            found |= {module} | {f"{module}.{alias.name}" for alias in node.names}
    return found


def violations(source: str, path: Path) -> set[str]:
    """Return the imports of a file that are later in the list, or not part of the product."""
    own = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    wrong = set()
    for name in imported_by(source, path):
        package, _, rest = name.partition(".")
        if package in ("evergraph_paper", "evergraph_baselines"):
            wrong.add(package)
        elif package == "evergraph" and rest and own not in TOP:
            place, limit = place_of(rest), place_of(own)
            assert limit is not None
            if place is not None and place > limit and rest != "learning":  # that is where learning.task is
                wrong.add(ORDER[place])
            elif place is None and rest in evergraph.__all__:  # names of the top package may be from any module
                wrong.add(name)
    return wrong


def test_the_list_names_every_package_and_module() -> None:
    here = {path.stem for path in ROOT.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert here - TOP == {name.split(".")[0] for name in ORDER}


def test_imports_point_up_the_list_only() -> None:
    found = {
        str(path.relative_to(ROOT)): wrong
        for path in sorted(ROOT.rglob("*.py"))
        if (wrong := violations(path.read_text(encoding="utf-8"), path))
    }
    assert found == {}


def test_only_the_bridge_in_graph_imports_torch() -> None:
    for path in ROOT.joinpath("graph").rglob("*.py"):
        names = {name.split(".")[0] for name in imported_by(path.read_text(encoding="utf-8"), path)}
        assert path.name == "interop.py" or names.isdisjoint({"torch", "torch_geometric"}), path


@pytest.mark.parametrize(
    ("statement", "wrong"),
    [
        ("import evergraph.datasets.tables as t", {"datasets"}),
        ("from ..analysis import profile", {"analysis"}),
        ("from .. import cli", {"cli"}),
        ("from evergraph.learning.learner import LifelongLearner", {"learning"}),
        ("from evergraph.learning.task import Task", {"learning.task"}),
        ("from evergraph import load", {"evergraph.load"}),
        ("def f():\n    from evergraph.report import page", {"report"}),
        ("from evergraph_paper.plan import grid", {"evergraph_paper"}),
        ("import evergraph_baselines.scores", {"evergraph_baselines"}),
        ("from evergraph import errors\nfrom evergraph.storage import files\nfrom .window import Window", set()),
    ],
)
def test_the_rule_sees_every_kind_of_import(statement: str, wrong: set[str]) -> None:
    assert violations(statement, ROOT / "graph" / "no_such_file.py") == wrong
