"""What README and docs tell people to type is typed here."""

import contextlib
import csv
import io
import os
import re
import shlex
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from evergraph import names as registry

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
GUIDES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs" / "tutorial").iterdir()),
    *sorted((ROOT / "docs" / "how-to").iterdir()),
]
"""Pages whose blocks a reader runs one after the other."""
SHARED = ("--json", "--quiet", "--history", "--seeds")  # options of several commands
FEW_STEPS = "3"
TABLES = ("time ", "group ")  # how the headers of tables begin that pages quote


def name_of(page):
    return page.relative_to(ROOT).as_posix()


def blocks(page, languages):
    """Language and text of each code block, in the order of the page."""
    return re.findall(rf"^```({languages})\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def commands_in(block):
    for line in block.splitlines():
        if parts := shlex.split(line, comments=True):
            yield parts


def commands(page):
    for _, block in blocks(page, "sh"):
        yield from commands_in(block)


def run_python(block, page, names):
    """Run a block; what it prints must be what the comments behind its calls of print say."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(block, page.name, "exec"), names)
    promised = re.findall(r"^ *print\(.*?\)\s+# (\{.*?\}|[^:\n]+)", block, re.MULTILINE)
    assert printed.getvalue().splitlines() == promised


def run_command(given, command):
    """Run a command of a page, with few training steps and at most two seeds; return what it prints."""
    match given:
        case ["make", *_]:
            # `make test` would run these tests within themselves: check only that the target exists.
            subprocess.run([*given, "--dry-run"], cwd=ROOT, check=True, capture_output=True)
        case [".", ".venv/bin/activate"]:
            pass  # the tests run in that environment
        case ["pip", "install", "--constraint", file, what]:
            assert (ROOT / file).is_file(), given
            assert what == "torch" or (ROOT / what / "pyproject.toml").is_file(), given
        case ["pip", "install", path]:
            assert (ROOT / path).is_dir(), given
        case ["python", path, *_]:
            assert (ROOT / path).is_file(), given  # examples have tests of their own
        case ["evergraph", "serve", *_]:
            pass  # it runs until it is stopped: see test_requests_of_a_guide_run
        case ["evergraph", *words]:
            if words[0] in ("run", "compare") or words[:2] == ["ws", "init"]:
                words = [*words, *(() if "--steps" in words else ("--steps", FEW_STEPS))]
            if words[0] == "reproduce" and "--seeds" in words:
                where = words.index("--seeds")
                words[where : where + 2] = ["--quick"]
            if "--seeds" in words:
                words[words.index("--seeds") + 1] = "0-1"
            code, printed, error = command(*words)
            assert code == 0, f"{given}: {error}"
            return printed
        case _:
            pytest.fail(f"{given}: say in run_command how to test it")
    return ""


@pytest.fixture(scope="session")
def demo_folder(tmp_path_factory):
    """The folder that `make demo` leaves behind, without its run: the same commands, with few training steps."""
    folder = tmp_path_factory.mktemp("demo") / "demo"
    folder.mkdir()
    path = Path(sys.executable).parent / "evergraph"
    subprocess.run([sys.executable, "-c", WRITE_SLICES], cwd=folder.parent, check=True)
    for words in (
        f"init demo/ws --vertices demo/past-vertices.csv --edges demo/past-edges.csv --every year --steps {FEW_STEPS}",
        "add demo/ws --vertices demo/2019-vertices.csv --edges demo/2019-edges.csv",
        "predict demo/ws",
        "label demo/ws --labels demo/2019-labels.csv",
        "update demo/ws --restart warm",
        "add demo/ws --vertices demo/2020-vertices.csv --edges demo/2020-edges.csv",
        "predict demo/ws",
    ):
        subprocess.run([path, "ws", *words.split()], cwd=folder.parent, check=True, capture_output=True)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("page", ["README.md", "docs/how-to/serve.md"])
def test_requests_of_a_guide_run(page, tmp_path, monkeypatch, demo_folder):
    """Blocks of bash and py use the service on the demo; those of bash are one script."""
    pytest.importorskip("fastapi", reason="the service needs the extra serve")
    from evergraph.service.auth import create_token
    from tests.service.serving import serving

    shutil.copytree(demo_folder, tmp_path / "demo")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    with serving(tmp_path / "demo" / "ws") as service:
        found = [
            (language, block.replace("http://127.0.0.1:8765", service.url))
            for language, block in blocks(ROOT / page, "bash|py")
        ]
        script = "".join(block for language, block in found if language == "bash").replace("curl ", "curl --fail ")
        subprocess.run(["bash", "-euo", "pipefail", "-c", script], check=True)
        monkeypatch.setenv("EVERGRAPH_TOKEN", create_token(Path("demo/ws"), "py", "admin"))
        for language, block in found:
            if language == "py":
                run_python(block, ROOT / page, {})


WRITE_SLICES = """
from pathlib import Path
from evergraph import datasets
from evergraph.cli import demo
demo._write_slices(datasets.load("metamath"), Path("demo"))
"""


def guide(page):
    """A parameter for a page; slow if its commands use the embedded graph or the demo."""
    used = re.search(r"\b(metamath|demo/)", " ".join(block for _, block in blocks(page, "sh|python")))
    return pytest.param(page, marks=[pytest.mark.slow] if used else [], id=name_of(page))


@pytest.mark.parametrize("page", [guide(page) for page in GUIDES])
def test_all_blocks_of_a_guide_run_in_their_order(page, tmp_path, monkeypatch, command, request):
    """In a folder with nothing but the examples and the paper's results, as after a clone; with those of the demo."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    shutil.copytree(ROOT / "paper" / "results", tmp_path / "paper" / "results")
    if " demo/" in page.read_text(encoding="utf-8"):
        shutil.copytree(request.getfixturevalue("demo_folder"), tmp_path / "demo")
    if "pip install ./examples/plugin" in page.read_text(encoding="utf-8"):
        monkeypatch.syspath_prepend(request.getfixturevalue("installed"))
        monkeypatch.setattr(registry, "_plugins", registry._plugins.__wrapped__)  # without what is cached
    if "--encoder static" in page.read_text(encoding="utf-8"):
        for package in ("tokenizers", "wordllama"):
            pytest.importorskip(package, reason="the page needs the extra text: pip install 'evergraph[text]'")
    monkeypatch.chdir(tmp_path)
    names, printed = {}, []
    for language, block in blocks(page, "sh|python|text"):
        if language == "python":
            run_python(block, page, names)
        elif language == "sh":
            for given in commands_in(block):
                printed += [line.split() for line in run_command(given, command).splitlines()]
        elif following := re.findall(r"^Next: (.*)", block, re.MULTILINE):  # some readers do as they are told
            for line in following:
                run_command(shlex.split(line), command)
        elif block.startswith(TABLES):
            assert block.splitlines()[0].split() in printed, "the header of a quoted table"


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if blocks(page, "python") and (page not in GUIDES or page.name == "README.md")],
    ids=name_of,
)
def test_python_runs_and_prints_what_its_comments_say(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    for _, block in blocks(page, "python"):
        run_python(block, page, names)


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120


def test_every_how_to_guide_ends_with_a_decision_and_the_next_step():
    for page in (ROOT / "docs" / "how-to").iterdir():
        headings = re.findall(r"^## (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
        assert headings[-1] == "Decision and next step", page.name


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

    from evergraph.cli import complete_app

    def found(command, parent, words):
        context = command.context_class(command, info_name=(words or ("evergraph",))[-1], parent=parent)
        yield words, command, context
        for name in command.list_commands(context) if hasattr(command, "list_commands") else ():
            yield from found(command.get_command(context, name), context, (*words, name))

    return list(found(typer.main.get_command(complete_app()), None, ()))


def option_records(command, context):
    """What help says of each option, by its name."""
    options = [each for each in command.get_params(context) if each.param_type_name == "option"]
    return {name: (each.get_help_record(context) or ("", ""))[1] for each in options for name in each.opts}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
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


@pytest.mark.parametrize("name", ["cli_reference", "http_reference"])
def test_the_reference_is_up_to_date(name):
    """Else: python scripts/cli_reference.py, or http_reference.py"""
    if name == "http_reference":
        pytest.importorskip("fastapi", reason="the service needs the extra serve")
    script = ROOT / "scripts" / f"{name}.py"
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


def quoted_from():
    """What guides quote: research pages, benchmarks, and the means over graphs that the default threshold is chosen by."""
    sources = [*(ROOT / "docs" / "research").glob("*.md"), ROOT / "benchmarks" / "RESULTS.md"]
    with (ROOT / "paper" / "results" / "thresholds" / "thresholds.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    means = []
    for detector in {row["detector"] for row in rows}:
        mcc, alarms, flagged = (
            statistics.mean(float(row[column]) for row in rows if row["detector"] == detector)
            for column in ("mcc", "false_alarm_rate", "flagged")
        )
        means.append(f"{mcc:.3f} {100 * alarms:.1f} {100 * flagged:.1f}")
    text = " ".join([*means, *(page.read_text(encoding="utf-8") for page in sources)])
    numbers = {float(number) for number in re.findall(r"(?<![\w.])\d*\.\d+", text)}
    return numbers | {round(100 * number, 1) for number in numbers}


@pytest.mark.parametrize("name", ["choose-history", "choose-detector", "late-labels"])
def test_figures_in_the_tables_of_a_guide_are_in_its_sources(name):
    text = (ROOT / "docs" / "how-to" / f"{name}.md").read_text(encoding="utf-8")
    cells = [cell.strip(" %") for line in text.splitlines() if line.startswith("|") for cell in line.split("|")[2:]]
    figures = {float(cell) for cell in cells if re.fullmatch(r"\d*\.\d+", cell)}
    assert len(figures) > 5
    assert figures <= quoted_from()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page):
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", page.read_text(encoding="utf-8")):
        other = page.parent / target if target else page
        assert other.exists(), f"{page.name}: {target}"
        if anchor and other.suffix == ".md" and other.name != "api.md":  # names of the API are no headings
            assert anchor in anchors(other), f"{page.name}: {target}#{anchor}"


def anchors(page):
    """The anchors of a page's headings, as mkdocs names them."""
    heads = re.findall(r"^#+ (.*)", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", head).strip().lower()) for head in heads}
