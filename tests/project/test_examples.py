"""Every example runs, prints what its last lines say, and leaves no files behind."""

import ast
import logging
import re
import runpy
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples"
EXAMPLES = sorted(FOLDER.glob("*.py"))
LONG = {"choosing_a_history", "comparing_restarts", "label_rates", "production_loop", "pyg_data_and_model"}


def promised(path):
    """Return the parts of lines that an example says it prints, in order."""
    return re.findall(r"^# prints: (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)


def test_there_are_examples():
    assert len(EXAMPLES) >= 7


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_first_lines_say_what_one_learns(path):
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    assert text.startswith("Learn "), text
    assert f"python examples/{path.name}" in text
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 70


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=[pytest.mark.slow] if path.stem in LONG else [], id=path.stem) for path in EXAMPLES],
)
def test_example_runs(path, tmp_path, monkeypatch, capsys, caplog):
    if "torch_geometric" in path.read_text(encoding="utf-8"):
        pytest.importorskip("torch_geometric")
    before = {each.name for each in FOLDER.iterdir()}
    monkeypatch.chdir(tmp_path)
    caplog.set_level(logging.WARNING, logger="evergraph")  # another test may have set logging up for notes
    runpy.run_path(str(path), run_name="__main__")
    rest, errors = capsys.readouterr()
    assert errors == ""
    assert promised(path), "an example ends with lines like '# prints: …'"
    for part in promised(path):
        assert part in rest, f"{part!r} is not in:\n{rest}"
        rest = rest.split(part, 1)[1]
    assert not list(tmp_path.iterdir()), "an example writes into temporary folders only"
    assert {each.name for each in FOLDER.iterdir()} == before
