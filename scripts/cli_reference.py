"""Write docs/reference/cli.md from the commands: ``python scripts/cli_reference.py``.

With ``--check`` nothing is written; the exit code is 1 if the page is out of date.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from evergraph.cli import complete_app

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "cli.md"
EVERYWHERE = ("-h", "--help", "--json", "--quiet")  # options of every command, explained once
HEAD = """\
# Command line

<!-- Written by: python scripts/cli_reference.py -->

This page lists every command and option; `--help` shows the same text. Results go to standard output, progress and
notes to standard error. All commands use the same [exit codes](exit-codes.md).

Every command also has `--json` (print results as JSON, and no tables), `--quiet` (print neither progress nor tables)
and `--help`.

Three options have two meanings. Where tables are read, `--edges` names a file, and `--text` and `--time` name columns.
Elsewhere they select a kind of edge, a text representation or a period.

`evergraph --install-completion` sets up Tab completion of commands, options, their values and graphs for Bash, Zsh,
Fish and PowerShell.
"""


def page() -> str:
    """The whole page."""
    root = typer.main.get_command(complete_app())
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
        if record is not None and (parent is None or not record[0].startswith(EVERYWHERE)):
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
    names = command.list_commands(context) if hasattr(command, "list_commands") else []
    inner = {each: command.get_command(context, each) for each in names}
    if inner:
        yield "\n| command | |\n|---|---|\n"
        for each, found in inner.items():
            anchor = "-".join([*context.command_path.split(), each])
            yield f"| [`{each}`](#{anchor}) | {found.get_short_help_str(200)} |\n"
    for each, found in inner.items():
        yield from _section(found, context, each)


def _row(names: str, text: str) -> tuple[str, str, str]:
    """Row of a table: option, meaning, default."""
    meaning, _, extra = text.partition("  [")
    extra = re.sub(r"x>=(\S+)", r"from \1 up", extra.removesuffix("]").replace("default: ", "").replace("; ", ", "))
    if found := re.fullmatch(r"(.*?) ?Default: (.*)\.", meaning, re.DOTALL):
        ranges = [part for part in extra.split(", ") if part.startswith("from ") or "<" in part]
        meaning, extra = found[1], ", ".join([found[2], *ranges])
    names = re.sub(r" <(str|int|float|path|list\[\w+\])>", "", names)
    if found := re.fullmatch(r"(.*) <(.*\|.*)>", names):
        names = found[1]
        choices = ", ".join(f"`{choice}`" for choice in found[2].split("|"))
        return f"`{names}`", f"{_text(meaning)} One of: {choices}.", _text(extra)
    # Not in backticks, for a bar would end the cell.
    return f"<code>{names.replace('|', '&#124;')}</code>", _text(meaning), _text(extra)


def _example(epilog: str) -> str:
    """The epilog, with its example as a code block."""
    found = re.fullmatch(r"Example: (evergraph [^.]*(?:\.\S[^.]*)*?)(?:\. (.*))?", " ".join(epilog.split()))
    if found is None:
        return f"\n{_text(epilog)}\n"
    more = f"\n{_text(found[2])}\n" if found[2] else ""
    return f"\nExample:\n\n```sh\n{found[1]}\n```\n{more}"


def _text(text: str | None) -> str:
    return re.sub(r"[<|*_]", lambda letter: f"&#{ord(letter[0])};", text or "").strip()


def main() -> None:
    """Write the page or check it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    found = page()
    if not parser.parse_args().check:
        PAGE.write_text(found, encoding="utf-8")
    elif not PAGE.exists() or PAGE.read_text(encoding="utf-8") != found:
        sys.exit(f"{PAGE} is out of date. Run: python scripts/cli_reference.py")


if __name__ == "__main__":
    main()
