"""``evergraph serve``: a workspace over HTTP; ``evergraph serve-token``: who may use it."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from evergraph.cli.common import Json, Quiet, console, echo, option, print_json, set_up_logging
from evergraph.errors import InputError
from evergraph.presentation.text import command_line

__all__ = ["EXAMPLE", "serve", "tokens"]

EXAMPLE = (
    "Example: evergraph serve ws. It prints a link that signs you in once, within 15 minutes; after that, sign in with "
    "a token, or start it again."
)
_PACKAGES = ("fastapi", "httptools", "multipart", "prometheus_client", "starlette", "uvicorn", "uvloop")
Role = Literal["viewer", "reviewer", "admin"]  # a copy, because the module that defines it imports torch
Folder = Annotated[Path, typer.Argument(metavar="WS", help="Folder of the workspace.")]
_HOST = "Address to listen on. Any other than this machine's own needs a token, and TLS or --behind-proxy."
_NO_AUTH = "Let everyone on this machine in without signing in. Not with another --host."
_PROXY = "A reverse proxy provides HTTPS and passes the header Host on. Needs --allow-host."
_ALLOW = "A name by which clients address the service, with its port if that is not --port. May be repeated."
_RATE = "Requests per second that each user may send; four times as many at once."

tokens = typer.Typer(
    help="Create, list and revoke the tokens that sign users in to evergraph serve.",
    short_help="Create, list and revoke tokens for the service.",
    epilog="Example: evergraph serve-token create ws --name anna --role reviewer",
    rich_markup_mode=None,
    no_args_is_help=True,
)


def serve(
    ws: Folder,
    host: Annotated[str, option("host", "ADDRESS", _HOST)] = "127.0.0.1",
    port: Annotated[int, option("port", "PORT", "Port to listen on; 0 for a free one.", min=0, max=65535)] = 8765,
    no_auth: Annotated[bool, option("no-auth", None, _NO_AUTH)] = False,
    tls_cert: Annotated[Path | None, option("tls-cert", "FILE", "Certificate for HTTPS (PEM).")] = None,
    tls_key: Annotated[Path | None, option("tls-key", "FILE", "Private key of the certificate (PEM).")] = None,
    behind_proxy: Annotated[bool, option("behind-proxy", None, _PROXY)] = False,
    allow_host: Annotated[list[str] | None, option("allow-host", "NAME", _ALLOW)] = None,
    max_body: Annotated[int, option("max-body", "MB", "Largest request body, in megabytes.", min=1, max=4096)] = 64,
    max_rows: Annotated[int, option("max-rows", "N", "Most rows of a table in a request.", min=1)] = 1_000_000,
    rate: Annotated[float, option("rate", "N", _RATE, min=1)] = 50,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Serve a workspace over HTTP: an API for programs, and pages for reviewers in a browser.

    The commands of evergraph ws work on the workspace meanwhile. Ctrl-C stops the service. It logs who wrote what, and
    which requests were refused, on standard error; with --quiet only warnings.
    """
    set_up_logging(quiet)
    with _extra():
        from evergraph.service.options import Options
        from evergraph.service.server import serve as run
    _log_with_time()

    def show(url: str, link: str | None) -> None:
        if as_json:
            print_json({"workspace": str(ws), "url": url, "signin": link})
            return
        echo(f"Serving {ws} on {url}" + ("" if quiet else " (Ctrl-C stops it)"))
        if link is not None:
            echo(f"Sign in once with: {link}")

    run(
        ws,
        Options(
            host=host,
            port=port,
            no_auth=no_auth,
            tls_cert=tls_cert,
            tls_key=tls_key,
            behind_proxy=behind_proxy,
            allow_hosts=tuple(allow_host or ()),
            max_body=max_body << 20,
            max_rows=max_rows,
            rate=rate,
        ),
        show,
    )
    if not quiet and not as_json:
        echo("Stopped")


def _log_with_time() -> None:
    """Log with the time, also the warnings of the server."""
    log = logging.getLogger("evergraph")
    for handler in log.handlers:
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    logging.getLogger("uvicorn").handlers = list(log.handlers)


@contextlib.contextmanager
def _extra() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] not in _PACKAGES:
            raise
        fix = "install it with: pip install 'evergraph[serve]'"
        raise InputError(f"the service needs the package {error.name}, which is not installed", fix=fix) from error


# --- tokens -----------------------------------------------------------------------------------------------------------


@tokens.command(
    short_help="Create a token and print it, this once.",
    epilog="Example: evergraph serve-token create ws --name anna --role reviewer",
)
def create(
    ws: Folder,
    name: Annotated[str, option("name", "NAME", "Who uses the token; shown in the log and beside versions.")],
    role: Annotated[
        Role, option("role", None, "viewer: read; reviewer: also label, predict and update; admin: all.")
    ] = "viewer",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Create a token and print it. Only its hash is stored, so it cannot be shown again."""
    set_up_logging(quiet)
    with _extra():
        from evergraph.service.auth import create_token
    token = create_token(ws, name, role)
    if as_json:
        print_json({"workspace": str(ws), "name": name, "role": role, "token": token})
        return
    echo(token)
    if not quiet:
        echo(f"This is the token of {name} ({role}). Keep it: it is not shown again.", err=True)


@tokens.command("list", short_help="List the tokens.", epilog="Example: evergraph serve-token list ws")
def list_(ws: Folder, as_json: Json = False, quiet: Quiet = False) -> None:
    """List the tokens with their roles, and when they were created and revoked."""
    set_up_logging(quiet)
    with _extra():
        from evergraph.service.auth import list_tokens
    found: list[dict[str, Any]] = [
        {"name": row.name, "role": row.role, "created": row.made, "revoked": row.revoked} for row in list_tokens(ws)
    ]
    if as_json:
        print_json({"workspace": str(ws), "tokens": found})
    elif not quiet and not found:
        echo(f"There are none. Create one with: {command_line('serve-token', 'create', ws, '--name', 'me')}")
    elif not quiet:
        from rich.table import Table

        table = Table("name", "role", "created", "revoked", box=None, pad_edge=False)
        for row in found:
            table.add_row(*(str(value or "") for value in row.values()))
        console().print(table)


@tokens.command(short_help="Revoke a token.", epilog="Example: evergraph serve-token revoke ws anna")
def revoke(
    ws: Folder,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the token.")],
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Revoke a token. A running service refuses it at once, and signs its user out."""
    set_up_logging(quiet)
    with _extra():
        from evergraph.service.auth import revoke_token
    revoke_token(ws, name)
    if as_json:
        print_json({"workspace": str(ws), "revoked": name})
    elif not quiet:
        echo(f"Revoked the token of {name}")
