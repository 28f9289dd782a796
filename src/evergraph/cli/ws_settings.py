"""The commands ``evergraph ws set`` and ``evergraph ws tag``: settings and names of versions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from evergraph.cli import common
from evergraph.cli.common import Json, Quiet, console, echo, option, print_json
from evergraph.cli.ws import Folder, Wait, _change, _look, app
from evergraph.errors import InputError
from evergraph.presentation.text import command_line

if TYPE_CHECKING:
    from evergraph.cli.ws import Steps
    from evergraph.workspace import Outcome, Workspace

__all__ = ["app"]


@app.command(
    "set",
    short_help="Show or change the settings.",
    epilog="Example: evergraph ws set ws --history 3 --objective budget:50",
)
def change_settings(
    ws: Folder,
    settings: common.SettingsOption = None,
    history: Annotated[str | None, option("history", "auto|full|N", common.HISTORY_HELP)] = None,
    model: Annotated[str | None, option("model", "MODEL", common.MODEL_HELP)] = None,
    hidden: Annotated[int | None, option("hidden", "N", "Width of the model.", min=1)] = None,
    layers: Annotated[int | None, option("layers", "N", "Layers of the model.", min=1)] = None,
    dropout: Annotated[float | None, option("dropout", "X", "Dropout of the model.")] = None,
    hops: Annotated[int | None, option("hops", "N", "Propagation steps of the model (sgc).", min=1)] = None,
    detector: Annotated[str | None, option("detector", "DETECTOR", common.DETECTOR_HELP)] = None,
    threshold: Annotated[float | None, option("threshold", "X", "Threshold of doc or gdoc.")] = None,
    alpha: Annotated[float | None, option("alpha", "X", "Risk reduction of doc or gdoc.")] = None,
    objective: common.ObjectiveOption = None,
    steps: Annotated[int | None, option("steps", "N", "Training steps per update.", min=1)] = None,
    lr: Annotated[float | None, option("lr", "X", "Learning rate.")] = None,
    inputs: Annotated[str | None, option("inputs", "BLOCKS", common.INPUTS_HELP)] = None,
    memory: Annotated[
        str | None, option("memory", "NAME[:BUDGET]", common.POLICY_HELP.replace("Default: none", "none turns it off"))
    ] = None,
    keep: Annotated[int | None, option("keep", "N", "Versions kept for ws rollback.", min=2)] = None,
    wait: Wait = 0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Change settings of ws init; those that you leave out stay as they are. Without options, show them.

    A new model, new inputs, or a detector that needs another training take effect with the next ws update, which trains
    from new random weights. Until then ws predict uses the current ones. A new threshold, alpha or objective applies
    to the next ws predict.
    """
    given: dict[str, Any] = {
        "history": None if history is None else common.parse_history(history),
        "model": _part("model", model, hidden=hidden, layers=layers, dropout=dropout, hops=hops),
        "detector": _part("detector", detector, threshold=threshold, alpha=alpha, objective=objective),
        "steps": steps,
        "lr": lr,
        "inputs": inputs,
        "memory": memory,
        "keep": keep,
    }
    if settings is not None:
        from evergraph.evaluation.settings_file import workspace_settings

        common.set_up_logging(quiet)
        given = workspace_settings(settings.settings, given)
        settings.log_use(given)
    if any(value is not None for value in given.values()):
        _change(ws, "set", lambda workspace, _: workspace.set(**given), as_json, quiet, wait)
        return
    found, pending, read = _look(
        ws, quiet or as_json, lambda w: (w.settings(), list(w.state.settings.pending), w.status().inputs)
    )
    if as_json:
        print_json({"workspace": str(ws), "settings": found, "pending": pending, "inputs_read": list(read)})
    elif not quiet:
        from evergraph.cli import ws_output

        ws_output.show_settings(console(), found, pending, read)


def _part(kind: str, name: str | None, **settings: float | str | None) -> Any:
    """Return a model or detector with its settings, the settings alone if there is no name, or None."""
    if name is not None:
        from evergraph import names

        return (names.build_model if kind == "model" else names.build_detector)(name, **settings)
    return {key: value for key, value in settings.items() if value is not None} or None


@app.command(
    short_help="Name a version, so that it is kept.",
    epilog="Example: evergraph ws tag ws before-merge",
)
def tag(
    ws: Folder,
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="The name. Default: list all tags.")] = None,
    version: Annotated[
        str | None, option("version", "VERSION", "Number or tag of the version. Default: the current one.")
    ] = None,
    delete: Annotated[bool, option("delete", None, "Delete the tag.")] = False,
    wait: Wait = 0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Give a version a name for ws rollback; it is kept until you delete the name. Without a name, list the tags.

    A rollback does not change tags. A name has up to 64 letters, digits, dots, hyphens and underscores, and starts with
    a letter.
    """
    if name is not None:

        def do(workspace: Workspace, _: Steps) -> Outcome:
            return workspace.tag(name, version, delete=delete)

        _change(ws, "tag", do, as_json, quiet, wait)
        return
    if version is not None or delete:
        raise InputError(f"{'--delete' if delete else '--version'} is given without a name", fix="name the tag")
    entries = _look(ws, quiet or as_json, lambda w: [entry for entry in w.log() if entry.tags])
    tags = {tag: entry.version for entry in entries for tag in entry.tags}
    if as_json:
        print_json({"workspace": str(ws), "tags": tags})
    elif not quiet and tags:
        from evergraph.cli import ws_output

        ws_output.show_tags(console(), entries)
    elif not quiet:
        echo(f"There are no tags. Name the current version with: {command_line('ws', 'tag', ws, 'NAME')}")
