"""Write the reference of the command line from the commands themselves.

Usage: ``python scripts/cli_reference.py docs/cli.md``. With ``--check`` nothing is written, and the exit code is 1 if
the page is not what would be written.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from evergraph.cli import app

HEAD = """\
# Command line

<!-- Written by: python scripts/cli_reference.py docs/cli.md -->

Every command has `--help`, which says what this page says. Those that print have `--json`, for machines, and `--quiet`.
What was asked for goes to standard output; progress and notes go to standard error. Exit codes: 0 done, 1 failed, 2 bad
input, 130 stopped by Ctrl-C. What several commands have in common has one name. Three words serve twice: where tables
are read, `--edges` names a file and `--text` and `--time` name columns; elsewhere they choose.

`evergraph --install-completion` makes Tab complete commands, options, their choices and graphs, in Bash, Zsh, Fish and
PowerShell ([more](how-to.md#shell-completion)).
"""


def page() -> str:
    """The whole page."""
    root = typer.main.get_command(app)
    return HEAD + "".join(_section(root, None, "evergraph"))


def _section(command: Any, parent: Any, name: str) -> Iterator[str]:
    context = command.context_class(command, info_name=name, parent=parent, **command.context_settings)
    level = "##" if parent is None or parent.parent is None else "###"
    yield f"\n{level} {context.command_path}\n"
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    about, _, example = (command.help or "").partition("\n\nExample: ")
    yield f"\n{_text(about)}\n\n```text\n{usage}\n```\n"
    parts: dict[str, list[tuple[str, str]]] = {"argument": [], "option": []}
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and (parent is None or "--help" not in record[0]):  # else it would stand everywhere
            parts[parameter.param_type_name].append(record)
    for kind, records in parts.items():
        if records:
            rows = [_row(*record) for record in records]
            columns = 3 if any(row[2] for row in rows) else 2
            yield "\n"
            for row in ((kind, "meaning", "default, range"), ("---",) * 3, *rows):
                yield f"| {' | '.join(row[:columns])} |\n"
    if command.epilog or example:
        yield _example(command.epilog or f"Example: {example}")
    inner = getattr(command, "commands", {})
    if inner:
        yield "\n| command | |\n|---|---|\n"
        for each, found in inner.items():
            anchor = "-".join([*context.command_path.split(), each])
            yield f"| [`{each}`](#{anchor}) | {found.get_short_help_str(200)} |\n"
    for each, found in inner.items():
        yield from _section(found, context, each)


def _row(names: str, text: str) -> tuple[str, str, str]:
    """A row of a table: an option, what it does, and what it is unless given."""
    meaning, _, extra = text.partition("  [")
    extra = re.sub(r"x>=(\S+)", r"from \1 up", extra.removesuffix("]").replace("default: ", "").replace("; ", ", "))
    if found := re.fullmatch(r"(.*?) ?Default: (.*)\.", meaning, re.DOTALL):
        meaning, extra = found[1], ", ".join([found[2], *([extra] if extra else [])])
    names = re.sub(r" <(str|list\[str\])>", "", names)
    if found := re.fullmatch(r"(.*) <(.*\|.*)>", names):
        names = found[1]
        choices = ", ".join(f"`{choice}`" for choice in found[2].split("|"))
        return f"`{names}`", f"{_text(meaning)} One of: {choices}.", _text(extra)
    # Not in backticks, for a bar would end the cell.
    return f"<code>{names.replace('|', '&#124;')}</code>", _text(meaning), _text(extra)


def _example(epilog: str) -> str:
    """The epilog; an example as something to copy."""
    found = re.fullmatch(r"Example: (evergraph [^.]*(?:\.\S[^.]*)*?)(?:\. (.*))?", " ".join(epilog.split()))
    if found is None:
        return f"\n{_text(epilog)}\n"
    more = f"\n{_text(found[2])}\n" if found[2] else ""
    return f"\nExample:\n\n```sh\n{found[1]}\n```\n{more}"


def _text(text: str | None) -> str:
    return re.sub(r"[<|*_]", lambda letter: f"&#{ord(letter[0])};", text or "").strip()


def main(path: Path, check: bool) -> None:
    """Write the page, or say whether it would change."""
    found = page()
    if check:
        if not path.exists() or path.read_text(encoding="utf-8") != found:
            sys.exit(f"{path} is out of date: python scripts/cli_reference.py {path}")
        return
    path.write_text(found, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), "--check" in sys.argv[2:])
