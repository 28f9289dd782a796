"""Conversion to and from PyTorch Geometric and networkx. For numpy and scipy see `EvolvingGraph.build`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from evergraph.errors import EvergraphError, InputError
from evergraph.graph.evolving import EvolvingGraph, Window

if TYPE_CHECKING:
    import networkx
    from torch_geometric.data import Data

__all__ = ["from_networkx", "from_pyg", "to_networkx", "to_pyg"]


def to_pyg(window: Window, **inputs: Any) -> Data:
    """Convert a window to a PyTorch Geometric ``Data``.

    It has ``x`` (words, categories and numbers side by side, see `Window.inputs`: dense, or a sparse COO tensor; NaN is
    a missing number; absent without features), ``edge_index`` (each edge in both directions), ``y`` (-1 for no label),
    ``time``, ``class_names`` and ``ids``. Keyword arguments are those of `Window.inputs`.
    """
    try:
        import torch
        from torch_geometric.data import Data
    except ImportError as error:
        raise EvergraphError(
            f"PyTorch Geometric is not installed ({error})", fix="run: pip install 'evergraph[pyg]'"
        ) from error
    coo = window.adjacency.tocoo()
    data = Data(
        edge_index=torch.from_numpy(np.stack([coo.row, coo.col]).astype(np.int64)),
        y=torch.from_numpy(window.codes.astype(np.int64)),
        time=torch.from_numpy(np.array(window.times)),
        num_nodes=len(window),
        class_names=list(window.graph.class_names),
        ids=list(window.ids),
    )
    if window.graph.features:
        matrix: Any = window.inputs(**inputs)
        if sparse.issparse(matrix):
            entries = matrix.tocoo()
            places = torch.from_numpy(np.stack([entries.row, entries.col]).astype(np.int64))
            values = torch.from_numpy(np.array(entries.data))  # a copy, because the graph's memory is read-only
            data.x = torch.sparse_coo_tensor(places, values, entries.shape, check_invariants=False)
        else:
            data.x = torch.from_numpy(np.array(matrix))
    return data


def from_pyg(data: Data, *, time: str = "time", class_names: Sequence[str] | None = None) -> EvolvingGraph:
    """Convert a PyTorch Geometric ``Data`` with ``edge_index``, a tensor of times, and optionally ``x`` and ``y``.

    Parameters
    ----------
    data
        A dense ``x`` becomes numbers (NaN is a missing one), a sparse ``x`` sparse features. A negative ``y`` is no
        label. Without ``ids``, vertices are numbered.
    time
        Name of the attribute with the times.
    class_names
        Names of the classes 0, 1, …; by default ``data.class_names``, else the numbers as strings.
    """
    import torch

    if getattr(data, time, None) is None:
        raise InputError(f"the data has no attribute {time!r}", fix="name the attribute that holds the vertices' times")
    times, own = np.asarray(getattr(data, time)), getattr(data, "ids", None)
    # Lists as objects, because numpy's strings lose a NUL at the end.
    kind = object if isinstance(own, (list, tuple)) else None
    ids = np.arange(len(times)) if own is None else np.asarray(own, dtype=kind)
    vertices: dict[str, Any] = {"id": ids, "time": times}
    if data.y is not None:
        codes = np.asarray(data.y).reshape(-1)
        numbers = [str(code) for code in range(int(codes.max(initial=-1)) + 1)]
        names = class_names or getattr(data, "class_names", None) or numbers
        if codes.max(initial=-1) >= len(names):
            raise InputError(
                f"y has class {codes.max()}, but there are {len(names)} class names", fix="give one name for each class"
            )
        vertices["label"] = [names[code] if code >= 0 else None for code in codes.tolist()]
    features = data.x
    if features is not None and features.layout is not torch.strided:
        coo = features.to_sparse_coo().coalesce()
        features = sparse.coo_array((coo.values().numpy(), coo.indices().numpy()), shape=tuple(coo.shape))
    elif features is not None:
        features = features.detach().cpu().numpy()
    edges = None
    if data.edge_index is not None:
        pairs = np.asarray(data.edge_index)
        if pairs.size and not 0 <= pairs.min() <= pairs.max() < len(ids):
            raise InputError(
                f"edge_index has vertices from {pairs.min()} to {pairs.max()}, but there are {len(ids)}",
                fix="number the vertices from 0 and give each a time",
            )
        edges = {"source": ids[pairs[0]], "target": ids[pairs[1]]}
    return EvolvingGraph.build(vertices, edges, features=features)


def to_networkx(window: Window) -> networkx.Graph:
    """Convert a window to a networkx ``Graph``: nodes are the ids, with ``time`` and, if known, ``label``."""
    try:
        import networkx
    except ImportError as error:
        raise EvergraphError(
            f"networkx is not installed ({error})", fix="run: pip install 'evergraph[networkx]'"
        ) from error

    graph = networkx.Graph()
    ids = window.ids.tolist()
    for name, time, label in zip(ids, window.times.tolist(), window.labels.tolist(), strict=True):
        graph.add_node(name, time=time, **({"label": label} if label is not None else {}))
    source, target, _ = window.links.ends()
    graph.add_edges_from((ids[u], ids[v]) for u, v in zip(source.tolist(), target.tolist(), strict=True))
    return graph


def from_networkx(
    graph: networkx.Graph,
    *,
    time: str = "time",
    label: str = "label",
    text: str | None = "text",
    numbers: Sequence[str] = (),
    categories: Sequence[str] = (),
) -> EvolvingGraph:
    """Convert a networkx graph whose nodes have a time and optionally a label, a text, numbers and categories.

    Unless all nodes are strings or all are whole numbers, ids are the ``str`` of the nodes. ``text=None`` leaves the
    texts out. ``numbers`` and ``categories`` name attributes, as for `EvolvingGraph.build`; a node without one has a
    missing value.
    """
    for node, have in graph.nodes.items():
        if have.get(time) is None:
            raise InputError(
                f"node {node!r} has no attribute {time!r}", fix="give every node a time, or name the attribute"
            )
    nodes = list(graph)
    if not all(isinstance(node, str) for node in nodes) and not all(
        isinstance(node, (int, np.integer)) and not isinstance(node, bool) for node in nodes
    ):
        nodes = [str(node) for node in nodes]
    ids, attributes = dict(zip(graph, nodes, strict=True)), list(graph.nodes.values())
    vertices = {
        "id": nodes,
        "time": [have[time] for have in attributes],
        "label": [have.get(label) for have in attributes],
    }
    if text is not None and any(text in have for have in attributes):
        vertices["text"] = [have.get(text) for have in attributes]
    wanted = [*([text] if text not in (None, "text") else []), *numbers, *categories]
    for name in wanted:
        if attributes and not any(name in have for have in attributes):
            raise InputError(f"no node has an attribute {name!r}", fix="name the attribute that holds it")
    for name in (*numbers, *categories):
        if name in vertices and name not in (time, label, text):
            raise InputError(f"{name!r} is the name of another column of the graph", fix="rename the attribute")
        vertices[name] = [have.get(name) for have in attributes]
    pairs = [(ids[u], ids[v]) for u, v in graph.edges()]
    edges = {"source": [u for u, _ in pairs], "target": [v for _, v in pairs]} if pairs else None
    return EvolvingGraph.build(vertices, edges, numbers=numbers, categories=categories)
