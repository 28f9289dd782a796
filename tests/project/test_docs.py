"""What README and docs tell people to type is typed here."""

import contextlib
import io
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
SHARED = ("--json", "--quiet", "--history", "--seeds")  # options of several commands


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


@pytest.mark.slow
def test_commands_of_the_readme_run(tmp_path, monkeypatch, command):
    """In a folder with nothing but the examples, as after a clone."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    ran = []
    for given in commands(ROOT / "README.md"):
        if given[0] == "make":
            # Run for real it would run these tests within themselves; that it is a target is checked without running it.
            subprocess.run([*given, "--dry-run"], cwd=ROOT, check=True, capture_output=True)
            continue
        if given == [".", ".venv/bin/activate"]:
            continue  # stands for the environment that these tests run in
        assert given[0] == "evergraph", given
        code, _, error = command(*given[1:])
        assert code == 0, f"{given}: {error}"
        ran.append(given[1])
    assert ran.count("inspect") == 3
    assert ran.count("import") == 1
    assert ran.count("run") == 1
    assert ran.count("reproduce") == 1


@pytest.mark.parametrize("page", ["reproduction.md", "unseen-classes.md"])
def test_pages_show_the_results_that_are_there(page):
    """Else: python paper/scripts/fill_page.py"""
    script, page = ROOT / "paper" / "scripts" / "fill_page.py", ROOT / "docs" / "research" / page
    done = subprocess.run([sys.executable, str(script), str(page), "--check"], check=False)
    assert done.returncode == 0


@pytest.mark.slow
def test_demo_goes_from_the_first_look_to_the_loop(tmp_path):
    path = Path(sys.executable).parent / "evergraph"
    done = subprocess.run([path, "demo", "--out", "demo"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "How much history?" in done.stdout
    assert (tmp_path / "demo" / "report.html").stat().st_size > 10_000
    assert (tmp_path / "demo" / "ws").is_dir()


def command_tree():
    """All commands and groups by their words, as ("import", "tables"), with their contexts."""
    import typer

    from evergraph.cli import app

    def found(command, parent, words):
        context = command.context_class(command, info_name=(words or ("evergraph",))[-1], parent=parent)
        yield words, command, context
        for name, inner in getattr(command, "commands", {}).items():
            yield from found(inner, context, (*words, name))

    return list(found(typer.main.get_command(app), None, ()))


def option_records(command, context):
    """What help says of each option, by its name."""
    options = [each for each in command.get_params(context) if each.param_type_name == "option"]
    return {name: (each.get_help_record(context) or ("", ""))[1] for each in options for name in each.opts}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_options_in_the_docs_exist(page):
    """Each command that a page shows is there, and knows each option that the page gives it."""
    tree = {words: option_records(command, context) for words, command, context in command_tree()}
    for command in commands(page):
        if command[0] == "evergraph":
            words = max((words for words in tree if tuple(command[1 : 1 + len(words)]) == words), key=len)
            assert words or command[1].startswith("-"), command
            for option in (part.split("=")[0] for part in command if part.startswith("--")):
                assert option in tree[words] or option == "--help", command


def test_every_command_says_how_it_is_used():
    """Each command has an example in its help; those that are no groups print, so they have --json and --quiet."""
    for words, command, context in command_tree():
        told = f"{command.help}\n\n{command.epilog}"
        assert re.search(r"^Example: evergraph", told, re.MULTILINE), words
        if words and not hasattr(command, "commands"):
            assert {"--json", "--quiet"} <= option_records(command, context).keys(), words


def test_shared_options_say_the_same_everywhere():
    for option in SHARED:
        found = {option_records(command, context).get(option) for _, command, context in command_tree()} - {None}
        texts = {re.sub(r" *(Default: .*|\[default: .*\])$", "", text) for text in found}
        assert len(texts) == 1, (option, texts)


def test_the_reference_of_the_command_line_is_up_to_date():
    """Else: python scripts/cli_reference.py"""
    script = ROOT / "scripts" / "cli_reference.py"
    done = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_concepts_show_the_pictures_that_are_drawn(tmp_path):
    subprocess.run([sys.executable, str(ROOT / "scripts" / "draw_concepts.py"), str(tmp_path)], check=True)
    drawn = {path.name for path in tmp_path.iterdir()}
    shown = re.findall(
        r"assets/concepts/([\w.]+)", (ROOT / "docs" / "explanation" / "concepts.md").read_text(encoding="utf-8")
    )
    assert len(drawn) == 5
    assert drawn == set(shown) == {path.name for path in (ROOT / "docs" / "assets" / "concepts").iterdir()}


def test_numbers_of_the_faq_are_on_the_pages_that_it_names():
    """Decimals such as .515 or 1.05; settings, such as a threshold of .75, are on these pages too."""
    pages = [ROOT / "docs" / "research" / name for name in ("reproduction.md", "sanity.md", "errata.md")]
    sources = "".join(page.read_text(encoding="utf-8") for page in (*pages, ROOT / "benchmarks" / "RESULTS.md"))
    text = (ROOT / "docs" / "faq.md").read_text(encoding="utf-8")
    numbers = set(re.findall(r"(?<![\w.])\d*\.\d+", text))
    assert len(numbers) > 10
    missing = {number for number in numbers if not re.search(rf"(?<!\d)0?{re.escape(number)}(?!\d)", sources)}
    assert missing <= {"1.6"}, missing  # GB, of 1,581 MB


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name}: {target}"
