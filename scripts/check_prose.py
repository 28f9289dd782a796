"""Check wording and spelling of pages, docstrings, messages and comments: ``python scripts/check_prose.py [PATH ...]``.

Words to avoid are in ``prose_words.txt``. codespell checks the spelling; its table of British and American forms, read
backwards, makes British spelling the one dialect. Code, quotations (Markdown lines that start with ``>``), pages and
tables written by a script, and lines that contain ``prose: ok`` are skipped.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tempfile
import tokenize
from collections.abc import Iterator
from pathlib import Path

import codespell_lib

ROOT = Path(__file__).parents[1]
CHECKED = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "docs", "examples", "scripts", "benchmarks"]
CHECKED += ["src", "baselines/src", "paper/src", "paper/scripts", "paper/results/README.md"]
WORDS = Path(__file__).with_name("prose_words.txt")
BRITISH = Path(codespell_lib.__file__).parent / "data" / "dictionary_en-GB_to_en-US.txt"
# American forms that are British, too, in another sense or as another part of speech.
IGNORED = "coo,fpr,writable,license,program,programs,meter,meters,story,draft,check,practice,specialty,focused,ton,tons"
GENERATED = re.compile(r"^<!-- (?:table|figure):.*?^<!-- end -->$", re.MULTILINE | re.DOTALL)
NOT_PROSE = {
    ".md": r"^(```|~~~).*?^\1|`+[^`]*`+|<!--.*?-->|\]\([^)]*\)|https?://\S+|^ *>[^\n]*|^--8<--.*?$|<[a-z/][^>]*>",
    ".html": r"<(script|style)\b.*?</\1>|<[^>]*>|\{[{%#].*?[}%#]\}",
    ".py": r"`+[^`]*`+|^ *(>>>|\.\.\.) [^\n]*|https?://\S+",
}
Part = tuple[Path, int, str]  # a file, the number of its line, text from there on


def parts_of(path: Path) -> Iterator[Part]:
    """The prose of a file, with everything else blanked."""
    text = path.read_text(encoding="utf-8")
    if "<!-- Written by:" in text:
        return
    pieces = _python(path) if path.suffix == ".py" else [(1, GENERATED.sub(_blank, text))]
    for line, piece in pieces:
        yield path, line, re.sub(NOT_PROSE[path.suffix], _blank, piece, flags=re.MULTILINE | re.DOTALL)


def _blank(match: re.Match[str]) -> str:
    return "¤" + "\n" * match[0].count("\n")


def _python(path: Path) -> Iterator[tuple[int, str]]:
    """Docstrings, other strings of several words, and comments."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value.strip():
            yield node.lineno, node.value
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and (text := ast.get_docstring(node)):
            words = re.findall("[a-z]+", text.lower())
            if (words[0] == "see" and len(text.split()) < 4) or words == node.name.lower().strip("_").split("_"):
                yield node.lineno, "docstring-without-content"
    with tokenize.open(path) as file:
        for token in tokenize.generate_tokens(file.readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string


def rules() -> list[tuple[re.Pattern[str], str]]:
    """Each pattern of the word list, and what to write instead."""
    lines = [line for line in WORDS.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    pairs = [line.split(" -> ") for line in [*lines, "docstring-without-content -> delete it"]]
    return [(re.compile(rf"\b(?:{rule})\b".replace(" ", r"\s+"), re.IGNORECASE), advice) for rule, advice in pairs]


def wording(parts: list[Part]) -> Iterator[tuple[Path, int, str]]:
    """What the word list finds: file, line, message."""
    found = rules()
    for path, line, text in parts:
        for rule, advice in found:
            for match in rule.finditer(text):
                yield path, line + text.count("\n", 0, match.start()), f"{' '.join(match[0].split())!r}: {advice}"


def spelling(parts: list[Part]) -> Iterator[tuple[Path, int, str]]:
    """What codespell finds: file, line, message."""
    pairs = [line.split("->") for line in BRITISH.read_text(encoding="utf-8").split()]
    lines = [(path, line + more, row) for path, line, text in parts for more, row in enumerate(text.split("\n"))]
    with tempfile.TemporaryDirectory() as folder:
        table, prose = Path(folder) / "british.txt", Path(folder) / "prose.txt"
        table.write_text("".join(f"{us}->{gb}\n" for gb, us in pairs), encoding="utf-8")
        prose.write_text("\n".join(row for *_, row in lines), encoding="utf-8")
        call = [sys.executable, "-m", "codespell_lib", "-D", "-", "-D", str(table), "-L", IGNORED, str(prose)]
        done = subprocess.run(call, capture_output=True, text=True, check=False)
        if done.stderr or done.returncode not in (0, 65):
            sys.exit(done.stderr or done.stdout)
    for number, message in re.findall(r"^.*?:(\d+): (.*)$", done.stdout, re.MULTILINE):
        path, line, _ = lines[int(number) - 1]
        yield path, line, message


def main(paths: list[Path]) -> int:
    """Print each finding; return 1 if there is one."""
    files = [file for path in paths for file in (sorted(path.rglob("*")) if path.is_dir() else [path])]
    parts = [part for file in files if file.suffix in NOT_PROSE for part in parts_of(file)]
    findings = sorted(set(wording(parts)) | set(spelling(parts)))
    sources = {path: path.read_text(encoding="utf-8").splitlines() for path, *_ in findings}
    findings = [(path, line, text) for path, line, text in findings if "prose: ok" not in sources[path][line - 1]]
    for path, line, text in findings:
        print(f"{path}:{line}: {text}")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main([Path(each) for each in sys.argv[1:]] or [ROOT / each for each in CHECKED]))
