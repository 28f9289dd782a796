"""``evergraph import`` and ``evergraph encode``: import a graph from files or generate one, and encode its texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from evergraph.cli import common
from evergraph.cli.common import (
    InterruptError,
    Json,
    Out,
    Quiet,
    Replace,
    Stopwatch,
    echo,
    echo_next,
    print_json,
    progress,
    set_up_logging,
    show_encoding,
)
from evergraph.errors import InputError
from evergraph.presentation.text import command_line

if TYPE_CHECKING:
    from evergraph.graph.evolving import EvolvingGraph
    from evergraph.inputs.encoders import Encoder

app = typer.Typer(
    help="Import a graph from tables, publication records or published data sets, or generate one.",
    short_help="Import a graph from files, or generate one.",
    epilog="Example: evergraph import tables --vertices papers.csv --edges citations.csv --time year --label venue "
    "--text title --out papers",
    rich_markup_mode=None,
    no_args_is_help=True,
)

ENCODE_EXAMPLE = "Example: evergraph encode papers --encoder static"
PerYear = Literal["class-year", "every-year", "median-year", "mean-year"]
_LARGE = 1_000_000  # vertices of a generated graph from which progress is shown without a terminal too
_MOST_EACH = 50_000  # edges for each vertex of a generated graph
_TABLE = ".csv, .tsv (also .gz) or .parquet."


@app.command(
    short_help="Two tables: vertices and edges.",
    epilog="Example: evergraph import tables --vertices papers.csv --edges citations.csv --time year --label venue "
    "--text title --out papers",
)
def tables(
    vertices: Annotated[Path, typer.Option(metavar="FILE", help=f"Vertices: {_TABLE}")],
    edges: Annotated[Path, typer.Option(metavar="FILE", help=f"Edges: {_TABLE}")],
    out: Out,
    id: common.IdColumn = "id",
    time: common.TimeColumn = "time",
    label: common.LabelColumn = "label",
    no_label: Annotated[bool, typer.Option("--no-label", help="The vertices have no labels.")] = False,
    text: common.TextColumn = None,
    numbers: common.NumberColumns = None,
    categories: common.CategoryColumns = None,
    source: common.SourceColumn = "source",
    target: common.TargetColumn = "target",
    edge_time: common.EdgeTimeColumn = None,
    every: common.Every = None,
    drop_dangling: common.DropDangling = False,
    encoder: common.EncoderOption = None,
    replace: Replace = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Import a graph from a table of vertices and a table of edges."""

    def read() -> EvolvingGraph:
        from evergraph.datasets.tables import read_tables

        return read_tables(
            vertices,
            edges,
            id=id,
            time=time,
            label="" if no_label else label,
            text=text,
            numbers=common.names_in(numbers),
            categories=common.names_in(categories),
            source=source,
            target=target,
            edge_time=edge_time,
            every=every,
            drop_dangling=drop_dangling,
        )

    _import(read, out, replace, as_json, quiet, encoder=encoder)


@app.command(
    short_help="Publication records as JSON lines.",
    epilog="Example: evergraph import records dblp.jsonl.gz --edges citations --min-class 45 --out dblp-hard",
)
def records(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="JSON lines, also .gz.")],
    out: Out,
    edges: Annotated[Literal["citations", "authors"], typer.Option(help="What joins two publications.")] = "citations",
    min_class: Annotated[int, typer.Option(min=1, metavar="N", help="Minimum publications per class per year.")] = 1,
    min_author: Annotated[int, typer.Option(min=1, metavar="N", help="Minimum publications per author per year.")] = 1,
    per_year: Annotated[
        PerYear, typer.Option(help="Meaning of 'per class per year', see `read_records`.")
    ] = "class-year",
    first_year: Annotated[int | None, typer.Option(metavar="YEAR", help="Leave out earlier publications.")] = None,
    last_year: Annotated[int | None, typer.Option(metavar="YEAR", help="Leave out later publications.")] = None,
    encoder: common.EncoderOption = None,
    replace: Replace = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Import publication records (id, title, authors, venue, year, references)."""

    def read() -> EvolvingGraph:
        from evergraph.datasets.records import read_records

        return read_records(
            file,
            edges,
            min_class=min_class,
            min_author=min_author,
            per_year=per_year,
            first_year=first_year,
            last_year=last_year,
        )

    _import(read, out, replace, as_json, quiet, encoder=encoder)


@app.command(
    short_help="Cora, Citeseer and PubMed from Planetoid's files.",
    epilog="Example: evergraph import planetoid planetoid/data --name citeseer --split A --out citeseer-a",
)
def planetoid(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder with the files ind.NAME.*.")],
    name: Annotated[Literal["cora", "citeseer", "pubmed"], typer.Option(help="Name of the graph.")],
    out: Out,
    split: Annotated[Literal["A", "B"], typer.Option(help="A: few labelled at time 0; B: many.")] = "A",
    replace: Replace = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Import Cora, Citeseer or PubMed from Planetoid's files, with the paper's splits as times 0 and 1."""

    def read() -> EvolvingGraph:
        from evergraph.datasets.planetoid import read_planetoid

        return read_planetoid(folder, name, split=split)

    _import(read, out, replace, as_json, quiet)


@app.command(
    short_help="The paper's data sets, from a folder or from Zenodo.",
    epilog="Example: evergraph import published dblp-easy --out dblp-easy",
)
def published(
    name: Annotated[
        str, typer.Argument(metavar="NAME|FOLDER", help="dblp-easy, dblp-hard, pharmabio, or a folder of that format.")
    ],
    out: Out,
    cache: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Folder for downloads.")] = None,
    replace: Replace = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Import a graph in the format of the paper's authors, from a folder or by name from Zenodo (a download)."""

    def read() -> EvolvingGraph:
        from evergraph.datasets.published import load_published

        return load_published(name, cache=cache, quiet=quiet)

    # No spinner, because a download shows its own progress.
    _import(read, out, replace, as_json, quiet, spinner=False)


@app.command(
    short_help="A generated graph, to try things out at any size.",
    epilog="Example: evergraph import synthetic --vertices 10_000_000 --edges 50_000_000 --out large",
)
def synthetic(
    out: Out,
    vertices: Annotated[int, typer.Option(metavar="N", help="Number of vertices.")] = 3000,
    edges: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Number of edges, about. Default: three for each vertex.")
    ] = None,
    times: Annotated[int, typer.Option(metavar="N", help="Number of periods.")] = 12,
    classes: Annotated[int, typer.Option(metavar="N", help="Classes that exist from the start.")] = 16,
    new_classes: Annotated[int, typer.Option(metavar="N", help="Classes that are born later.")] = 4,
    homophily: Annotated[
        float, typer.Option(metavar="X", help="Probability that both ends of an edge have the same class.")
    ] = 0.4,
    words: Annotated[int, typer.Option(metavar="N", help="Size of the vocabulary.")] = 2000,
    text_noise: Annotated[
        float, typer.Option(metavar="X", help="Share of the words of a text that are independent of its class.")
    ] = 0.8,
    drift: Annotated[
        float, typer.Option(metavar="X", help="How fast words and sizes of classes change, from 0 to 1.")
    ] = 0.1,
    label_rate: Annotated[float, typer.Option(metavar="X", help="Share of the vertices with a label.")] = 1.0,
    seed: Annotated[int, typer.Option(metavar="N", help="Seed; equal options give equal graphs.")] = 0,
    replace: Replace = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Generate a graph with known classes, of which some are born later or end; its words and classes drift.

    A graph of 10 million vertices and 50 million edges takes about 4 GB of memory.
    """
    from evergraph.datasets.synthetic import Synthetic
    from evergraph.graph.disk import check_destination

    set_up_logging(quiet)
    watch = Stopwatch()
    check_destination(out, replace=replace)
    if edges is not None and edges > (most := _MOST_EACH * max(vertices, 1)):
        raise InputError(f"--edges is {edges:,}", fix=f"give at most {most:,}, {_MOST_EACH:,} for each vertex")
    parameters = Synthetic(
        vertices=vertices,
        times=times,
        classes=classes,
        new_classes=new_classes,
        homophily=homophily,
        degree=6.0 if edges is None else 2 * edges / max(vertices, 1),
        words=words,
        text_noise=text_noise,
        drift=drift,
        label_rate=label_rate,
        seed=seed,
    )
    with progress("Generating", quiet or as_json, remaining=True, lines=vertices >= _LARGE) as update:

        def on_progress(what: str, done: int, total: int) -> None:
            if update is not None:
                completed = done + (total if what == "words" else 0)
                description = f"Drew {what} of {done:,} of {total:,} vertices"
                update(description=description, completed=completed, total=2 * total)

        graph = parameters.generate(on_progress).graph
        graph.save(out, replace=replace)
    _show(graph, out, watch, as_json, quiet)


def _import(
    read: Callable[[], EvolvingGraph],
    out: Path,
    replace: bool,
    as_json: bool,
    quiet: bool,
    *,
    spinner: bool = True,
    encoder: str | None = None,
) -> None:
    from evergraph.graph.disk import check_destination

    set_up_logging(quiet)
    watch = Stopwatch()
    check_destination(out, replace=replace)
    loaded = _load(encoder)  # before the graph is read, which may take long
    with _encoding("Importing", loaded, quiet or as_json or not spinner) as update:
        graph = _save(read(), out, replace, loaded, update)
    _show(graph, out, watch, as_json, quiet)


def _show(graph: EvolvingGraph, out: Path, watch: Stopwatch, as_json: bool, quiet: bool) -> None:
    """Print the size of a new graph and the next command."""
    counts = {"vertices": len(graph), "edges": graph.n_edges, "classes": len(graph.class_names)}
    if as_json:
        first, last = graph.axis.value(graph.first_time), graph.axis.value(graph.last_time)
        found = {"graph": str(out), **counts, "first_time": first, "last_time": last, "seconds": watch.seconds()}
        print_json(found)
    elif not quiet:
        echo(
            f"{out}: {', '.join(f'{count:,} {name}' for name, count in counts.items())}, "
            f"{graph.axis.label(graph.first_time)} to {graph.axis.label(graph.last_time)}, in {watch.seconds()} s."
        )
        echo_next(command_line("inspect", out))


def encode(
    graph: Annotated[Path, typer.Argument(metavar="GRAPH", help="A graph folder.", autocompletion=common.graphs_like)],
    encoder: Annotated[str, common.ENCODER],
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Give each vertex of a graph a vector of its text; vectors that it has are replaced.

    After an interruption, the same command continues.
    """
    from evergraph.graph.disk import open_graph
    from evergraph.inputs.encoders import load_encoder

    set_up_logging(quiet)
    watch = Stopwatch()
    common.refuse_workspaces(str(graph))
    loaded = load_encoder(encoder)
    with _encoding("Encoding", loaded, quiet or as_json) as update:
        count = len(_save(open_graph(graph), graph, True, loaded, update))
    found = {"vertices": count, "columns": loaded.width, "encoder": loaded.identity}
    if as_json:
        print_json({"graph": str(graph), **found, "seconds": watch.seconds()})
    elif not quiet:
        columns = f"{count:,} vectors of {loaded.width} columns by {loaded.identity}"
        echo(f"{graph}: {columns}, in {watch.seconds()} s.")
        echo_next(command_line("inspect", graph))


def _load(encoder: str | None) -> Encoder | None:
    if encoder is None:
        return None
    from evergraph.inputs.encoders import load_encoder

    return load_encoder(encoder)


@contextmanager
def _encoding(what: str, encoder: Encoder | None, quiet: bool) -> Iterator[Callable[..., None] | None]:
    """Show progress; on Ctrl-C say that encoded texts are kept."""
    encodes = encoder is not None
    try:
        with progress(what, quiet, remaining=encodes, lines=encodes) as update:
            yield update
    except KeyboardInterrupt:
        if not encodes:
            raise
        kept = "Interrupted. The texts encoded so far are kept"
        raise InterruptError(kept, fix="run the same command again to continue") from None


def _save(
    graph: EvolvingGraph, out: Path, replace: bool, encoder: Encoder | None, update: Callable[..., None] | None
) -> EvolvingGraph:
    """Save a graph, with vectors if there is an encoder; return what is saved."""
    if encoder is None:
        graph.save(out, replace=replace)
        return graph
    from evergraph.inputs.encoding import encoded_graph

    with encoded_graph(graph, encoder, out, show_encoding(update)) as found:
        found.save(out, replace=replace)
    return found
