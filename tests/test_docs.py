"""What README and docs tell people to type is typed here."""

import contextlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def commands(page):
    for block in blocks(page, "sh"):
        for line in block.splitlines():
            if parts := shlex.split(line, comments=True):
                yield parts


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=lambda page: page.name)
def test_python_runs_and_prints_what_its_comments_say(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in blocks(page, "python"):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(block, page.name, "exec"), names)
        promised = re.findall(r"^print\(.*?\)\s+# (\{.*?\}|[^:\n]+)", block, re.MULTILINE)
        shown = printed.getvalue().splitlines()
        assert shown == promised


def test_commands_of_the_readme_run(tmp_path):
    """In a folder with nothing but the examples, as after a clone."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    ran = []
    for command in commands(ROOT / "README.md"):
        if command[0] == "make":
            # Run for real it would run these tests within themselves; that it is a target is checked without running it.
            subprocess.run([*command, "--dry-run"], cwd=ROOT, check=True, capture_output=True)
            continue
        if command == [".", ".venv/bin/activate"]:
            continue  # stands for the environment that these tests run in
        assert command[0] == "evergraph", command
        done = subprocess.run(
            command, cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
        ran.append(command[1])
    assert ran.count("inspect") == 3
    assert ran.count("import") == 1
    assert ran.count("run") == 1
    assert ran.count("reproduce") == 1


def test_the_reproduction_shows_the_results_that_are_there():
    """Else: python scripts/fill_page.py docs/reproduction.md"""
    script, page = ROOT / "scripts" / "fill_page.py", ROOT / "docs" / "reproduction.md"
    done = subprocess.run([sys.executable, str(script), str(page), "--check"], check=False)
    assert done.returncode == 0


def test_demo_writes_its_figures(tmp_path):
    path = Path(sys.executable).parent / "evergraph"
    done = subprocess.run([path, "demo", "--out", "demo"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "history size" in done.stdout
    assert len(list((tmp_path / "demo").glob("*.png"))) == 4


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_options_in_the_docs_exist(page):
    """Each option of a command that a page shows is known to that command."""
    for command in commands(page):
        if command[0] == "evergraph":
            words = command[1:3] if command[1] == "import" else command[1:2]
            shown = subprocess.run(
                [sys.executable, "-c", "from evergraph.cli import main; main()", *words, "--help"],
                capture_output=True,
                text=True,
                check=True,
            ).stdout
            for option in (part for part in command if part.startswith("--")):
                assert option in shown, command


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name}: {target}"
