"""Sources of graphs: tables, publication records, published data sets, the embedded graph and synthetic graphs."""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evergraph.datasets.metamath import metamath
from evergraph.datasets.synthetic import Synthetic, synthetic
from evergraph.datasets.tables import read_tables, to_tables
from evergraph.errors import InputError
from evergraph.graph.disk import open_checked
from evergraph.graph.evolving import EvolvingGraph
from evergraph.names import DATASETS, load_dataset

if TYPE_CHECKING:
    from evergraph.datasets.planetoid import read_planetoid
    from evergraph.datasets.published import load_published
    from evergraph.datasets.records import read_records

__all__ = [
    "Synthetic",
    "load",
    "load_published",
    "metamath",
    "read_planetoid",
    "read_records",
    "read_tables",
    "synthetic",
    "to_tables",
]


_HOME = {"load_published": "published", "read_planetoid": "planetoid", "read_records": "records"}


def __getattr__(name: str) -> Any:
    """Import what few commands need on first use."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def load(graph: str | Path) -> EvolvingGraph:
    """Open a graph: a folder that was saved or imported, or a graph that has a name.

    A folder takes precedence over a name; ``./metamath`` is always a folder. Unlike `EvolvingGraph.open`, this checks
    the arrays of a folder once.

    Examples
    --------
    >>> load("metamath").n_edges
    461874
    """
    if Path(graph).exists():
        return open_checked(Path(graph))
    if str(graph) in DATASETS:
        return load_dataset(str(graph))
    raise InputError(
        "there is no such graph",
        file=graph,
        fix=f"give a folder made by 'evergraph import', or {' or '.join(DATASETS)}",
    )
