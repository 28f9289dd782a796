"""The files around the code are correct: targets exist, versions agree, templates can be read."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import evergraph
from tests.scripts import script

ROOT = Path(__file__).parents[2]
TARGETS = set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def read_yaml(path: str) -> dict:
    return yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))


def test_make_has_the_usual_targets():
    assert {"demo", "test", "test-all", "lint", "bench", "docs", "clean"} <= TARGETS


@pytest.mark.parametrize(
    "path",
    [
        *(".ci/run", ".github/workflows/ci.yml", ".pre-commit-config.yaml", ".github/pull_request_template.md"),
        *("CONTRIBUTING.md", "README.md"),
    ],
)
def test_make_targets_that_are_named_exist(path):
    named = re.findall(r"\bmake ([a-z][\w-]*)", (ROOT / path).read_text(encoding="utf-8"))
    assert named
    assert set(named) <= TARGETS


def test_the_workflow_runs_what_ci_runs_on_every_supported_python():
    (job,) = read_yaml(".github/workflows/ci.yml")["jobs"].values()
    runs = [step["run"] for step in job["steps"] if "run" in step]
    assert {"make lint", "make test-all"} <= set(runs)
    assert {"make lint", "make test-all"} <= set(re.findall(r"make [a-z-]+", (ROOT / ".ci" / "run").read_text()))
    classified = {line.rsplit(" ", 1)[1] for line in PROJECT["classifiers"] if re.match(r".*Python :: 3\.\d+$", line)}
    assert set(job["strategy"]["matrix"]["python"]) == classified
    assert PROJECT["requires-python"] == f">={min(classified)}"


def test_pre_commit_calls_make_only():
    (repo,) = read_yaml(".pre-commit-config.yaml")["repos"]
    assert repo["repo"] == "local"
    for hook in repo["hooks"]:
        assert {"id", "name", "entry", "language"} <= hook.keys()
        assert (hook["entry"].split()[0], hook["language"], hook["pass_filenames"]) == ("make", "system", False)


def test_issue_templates_have_what_github_needs():
    templates = [path for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml"]
    assert len(templates) == 2
    for path in templates:
        form = read_yaml(str(path.relative_to(ROOT)))
        assert {"name", "description", "body"} <= form.keys()
        for field in form["body"]:
            assert field["type"] in {"markdown", "textarea", "input", "dropdown", "checkboxes"}
            assert field["attributes"]["label"]


def test_the_size_of_the_code_is_measured():
    rows = {name: cells for name, *cells in script("metrics").sizes(ROOT)}
    assert {"nn", "graph", "product", "tests"} <= rows.keys()
    assert int(rows["product"][1].replace(",", "")) > 10_000


def test_the_citation_is_complete_and_of_this_version():
    citation = read_yaml("CITATION.cff")
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()
    assert (citation["version"], citation["license"]) == (evergraph.__version__, PROJECT["license"])
    paper = citation["preferred-citation"]
    assert {"type", "title", "authors", "journal", "volume", "year"} <= paper.keys()
    assert paper["authors"][0]["family-names"] == "Galke"
    assert re.fullmatch(r"10\.\d{4,}/\S+", paper["doi"])
    assert " ".join(paper["title"].split()) in " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())


@pytest.mark.parametrize(("ci", "code", "told"), [("true", 1, "1 failed"), ("", 0, "1 skipped")])
def test_browser_tests_may_not_be_skipped_in_ci(ci, code, told, tmp_path):
    shutil.copy(ROOT / "conftest.py", tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = browser\n")
    (tmp_path / "test_page.py").write_text(
        "import pytest\n@pytest.mark.browser\ndef test_page():\n    pytest.skip('no browser')\n"
    )
    call = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(call, cwd=tmp_path, env={**os.environ, "CI": ci}, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout
    assert told in done.stdout


def test_the_architecture_page_is_short_and_names_files_that_exist():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert len(page.splitlines()) <= 150
    named = re.findall(r"`((?:\w+/)*\w+\.py|\w+/)`", page)
    assert len(named) > 20
    missing = [path for path in named if not any((root / path).exists() for root in (ROOT, ROOT / "src" / "evergraph"))]
    assert missing == []
