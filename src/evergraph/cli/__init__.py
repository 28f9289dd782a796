"""The command ``evergraph``."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from functools import cache, cached_property
from importlib.metadata import entry_points
from typing import Any, NoReturn

import typer

from evergraph import __version__
from evergraph.cli import compare, demo, imports, inspect, report, run, serve, tune
from evergraph.cli.common import InterruptError, echo, print_json
from evergraph.errors import EvergraphError, InputError, os_error
from evergraph.names import load_plugin

__all__ = ["app", "complete_app", "main"]


class _ReaderGoneError(EvergraphError):
    """The program that reads the output has closed it, as ``head`` does."""

    exit_code = 141  # as of a process that SIGPIPE ended


class _Root(typer.core.TyperGroup):
    """All commands; what typer would handle in its own way is left to `main`."""

    def make_context(self, *args: Any, **named: Any) -> Any:
        with _own_errors():
            return super().make_context(*args, **named)

    def invoke(self, ctx: Any) -> Any:
        with _own_errors():
            return super().invoke(ctx)


@contextlib.contextmanager
def _own_errors() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        raise InterruptError("Interrupted") from None
    except BrokenPipeError as error:
        raise _ReaderGoneError("the reader of the output is gone") from error


app = typer.Typer(
    name="evergraph",
    cls=_Root,
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
        from evergraph.cli.ws_settings import app

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
app.command("encode", short_help="Encode the texts of a graph.", epilog=imports.ENCODE_EXAMPLE)(imports.encode)
app.command("inspect", short_help="Describe a graph: size, history sizes, drift.", epilog=inspect.EXAMPLE)(
    inspect.inspect
)
app.command("run", short_help="Train and predict task by task, for some seeds.", epilog=run.EXAMPLE)(run.run)
app.command("compare", short_help="Compare detectors of unseen classes.", epilog=compare.EXAMPLE)(compare.compare)
app.command("tune", short_help="Search for better settings on the past of a graph.", epilog=tune.EXAMPLE)(tune.tune)
app.command("report", short_help="Write a report of a run or a workspace (HTML).", epilog=report.EXAMPLE)(report.report)
app.command("serve", short_help="Serve a workspace: HTTP API and review page.", epilog=serve.EXAMPLE)(serve.serve)
app.add_typer(serve.tokens, name="serve-token")
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


# click's base class of wrong usage, whose module depends on the version of typer
_WrongUsage: type[Any] = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")


def main() -> None:
    """Run the command and exit with the code of its error; 0 if it succeeded."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # do not fail on letters that the terminal lacks
    error: EvergraphError
    try:
        code = complete_app()(standalone_mode=False)
        sys.stdout.flush()
        sys.exit(code if isinstance(code, int) else 0)
    except _WrongUsage as wrong:
        error = InputError(wrong.format_message().rstrip("."))
        if not _wants_json():
            shown = io.StringIO()
            wrong.show(shown)
            echo(shown.getvalue().rstrip(), err=True)
            sys.exit(wrong.exit_code)
    except EvergraphError as raised:
        error = raised
    except (MemoryError, RuntimeError) as raised:
        if isinstance(raised, RuntimeError) and "can't allocate memory" not in str(raised):  # torch's
            raise
        error = EvergraphError(
            "there is not enough memory for this graph", fix="choose a shorter history, or a machine with more memory"
        )
    except (KeyboardInterrupt, typer.Abort):  # before the command has started
        error = InterruptError("Interrupted")
    except BrokenPipeError:
        error = _ReaderGoneError("the reader of the output is gone")
    except OSError as raised:
        error = os_error(raised)
    _complain(error)


def _wants_json() -> bool:
    return "--json" in sys.argv[1 : sys.argv.index("--") if "--" in sys.argv else None]


def _complain(error: EvergraphError) -> NoReturn:
    """Print an error, as JSON if the command was to print JSON, and exit with its code."""
    told = isinstance(error, _ReaderGoneError)
    with contextlib.suppress(OSError):
        if _wants_json() and not told:
            print_json({"error": error.as_dict()})
            told = True
    with contextlib.suppress(OSError):
        if not told and not isinstance(error, InterruptError):
            typer.secho("Error: ", fg="red", bold=True, nl=False, err=True)
        if not told:
            echo(error, err=True)
    try:
        sys.stdout.flush()
    except OSError:  # at its end, Python would try once more to write this, and complain
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(error.exit_code)
