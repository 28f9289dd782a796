"""The prose check finds what it should, and skips code and quotations."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "check_prose.py"


def check(path, text):
    path.write_text(text, encoding="utf-8")
    done = subprocess.run([sys.executable, SCRIPT, path], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.returncode == bool(done.stdout)
    return [line.removeprefix(f"{path}:") for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("One line.\nThe model tells strangers\napart.\n", ["2: 'strangers'", "2: 'tells'"]),
        ("299 vertices held\nto be of another class.\n", ["1: 'held to be'"]),
        ("The class remembers it.\n", ["1: 'class remembers'"]),
        ("The color is normalized.\n", ["1: color ==> colour", "1: normalized ==> normalised"]),
        ("Teh model is trained.\n", ["1: Teh ==> The"]),
        ("The colour of a vertex.\n`whom`\n```sh\nwhom color\n```\n> Whom the bell tolls.\n", []),
        ("Whom? <!-- prose: ok: the paper's word -->\n", []),
        ("<!-- table: a/b -->\n| whom |\n<!-- end -->\n", []),
    ],
)
def test_pages(text, found, tmp_path):
    lines = check(tmp_path / "page.md", text)
    assert [line.startswith(start) for line, start in zip(lines, found, strict=True)] == [True] * len(found), lines


def test_python(tmp_path):
    text = '''
        """Return the color."""
        COLOR = "behavior"
        # Whom this serves.
        def run_all(behavior):
            """Run all."""
            raise ValueError(f"{behavior} is thus wrong")  # the name of an argument may be American
        def other():
            """See `run_all`."""
            return "thus and so"  # prose: ok
    '''
    lines = check(tmp_path / "module.py", "\n".join(line[8:] for line in text.splitlines()[1:]) + "\n")
    starts = ["1: color ==>", "3: 'Whom'", "4: 'docstring-", "6: 'thus'", "7: 'docstring-"]
    assert [line.startswith(start) for line, start in zip(lines, starts, strict=True)] == [True] * len(starts), lines
