"""The command ``evergraph``."""

from __future__ import annotations

import io
import sys
from functools import cache, cached_property
from importlib.metadata import entry_points
from typing import Any, NoReturn

import typer

from evergraph import __version__
from evergraph.cli import compare, demo, imports, inspect, report, run
from evergraph.cli.common import echo
from evergraph.errors import EvergraphError, InputError
from evergraph.names import load_plugin

__all__ = ["app", "complete_app", "main"]

app = typer.Typer(
    name="evergraph",
    help="Lifelong learning on evolving graphs.",
    epilog="Example: evergraph inspect metamath. Each command shows its options and an example with --help.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help is easy to grep and twice as fast
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(imports.app, name="import")


class _Workspace(typer.core.TyperGroup):
    """The commands ``evergraph ws``, imported only if one of them is used."""

    def list_commands(self, ctx: Any) -> list[str]:
        return self._group.list_commands(ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return self._group.get_command(ctx, cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        return self._group.resolve_command(ctx, args)  # it suggests a similar command

    @cached_property
    def _group(self) -> typer.core.TyperGroup:
        from evergraph.cli.ws import app

        return typer.main.get_group(app)


app.add_typer(
    typer.Typer(
        cls=_Workspace,
        help="Keep a model up to date on a growing graph: add slices, predict, label, update.",
        short_help="Run the production loop: add slices, predict, label, update.",
        epilog="Example: evergraph ws init ws --vertices papers.csv --edges citations.csv --time year --label venue "
        "--text title. Then repeat ws add, ws predict, ws label and ws update; ws status shows what to do next.",
        rich_markup_mode=None,
        no_args_is_help=True,
    ),
    name="ws",
)
app.command("inspect", short_help="Describe a graph: size, history sizes, drift.", epilog=inspect.EXAMPLE)(
    inspect.inspect
)
app.command("run", short_help="Train and predict task by task, for some seeds.", epilog=run.EXAMPLE)(run.run)
app.command("compare", short_help="Compare detectors of unseen classes.", epilog=compare.EXAMPLE)(compare.compare)
app.command("report", short_help="Write a report of a run or a workspace (HTML).", epilog=report.EXAMPLE)(report.report)
app.command("demo", short_help="Take a tour on the embedded graph.", epilog=demo.EXAMPLE)(demo.demo)


def _add_plugins() -> None:
    """Add the commands of installed packages; warn about those that do not work."""
    for entry in entry_points(group="evergraph.commands"):
        before = list(app.registered_commands)
        names = {command.name for command in before}
        try:
            load_plugin(entry)(app)
            for command in app.registered_commands[len(before) :]:
                if command.name in names:
                    raise ValueError(f"there is a command {command.name!r} already")
        except Exception as error:  # a fault of another package must not break all commands
            app.registered_commands[:] = before
            package = entry.dist.name if entry.dist else entry.module
            echo(f"Warning: the commands of the package {package} cannot be used: {error}", err=True)


@cache
def complete_app() -> typer.Typer:
    """Return the application with the commands of installed packages, which may import this package themselves."""
    _add_plugins()
    return app


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"evergraph {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    """Lifelong learning on evolving graphs."""


def main() -> None:
    """Run the command; exit with 0 if it succeeded, 1 if it failed, 2 for bad input."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # do not fail on letters that the terminal lacks
    try:
        complete_app()()
    except InputError as error:
        _complain(error, 2)
    except EvergraphError as error:
        _complain(error, 1)
    except KeyboardInterrupt:  # before the command has started
        sys.exit(130)
    except MemoryError:
        _complain(
            "there is not enough memory for this graph. Choose a shorter history, or a machine with more memory.", 1
        )
    except OSError as error:
        _complain(f"{error.filename or 'the system'}: {error.strerror or error}.", 1)


def _complain(problem: object, code: int) -> NoReturn:
    typer.secho("Error: ", fg="red", bold=True, nl=False, err=True)
    echo(problem, err=True)
    sys.exit(code)
