"""One trial of the paper's first experiment: train a model, add vertices to its graph, and continue training.

The three citation graphs are static, so growth is simulated: at first there are only some vertices, all labelled, with
the edges among them. Then the other vertices are added without labels.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from evergraph.allocation import kept_memory
from evergraph.datasets.planetoid import planetoid_test, read_planetoid
from evergraph.detect import Softmax
from evergraph.errors import InputError
from evergraph.graph.evolving import EvolvingGraph
from evergraph.learning.training import OnStep, train
from evergraph.names import described
from evergraph.nn import GAT, GCN, MLP, Batch, Draw, GraphSAGE, Model, Neighbours, SparseMatrix
from evergraph.nn.adam import Adam
from evergraph.nn.base import Parameters

Which = Literal["A", "B"]
"""A trains on few vertices and adds many; B trains on many and adds few."""

STATIC_GRAPHS = ("cora", "citeseer", "pubmed")


@dataclass(frozen=True, eq=False)
class Split:
    """A graph with masks of its train vertices, present from the start with labels, and of its test vertices."""

    graph: EvolvingGraph
    train: NDArray[np.bool_]
    test: NDArray[np.bool_]

    @property
    def train_vertices(self) -> int:
        """Number of vertices that are present from the start; on Citeseer a few of them have no label."""
        return int(self.train.sum())

    @property
    def train_edges(self) -> int:
        """Number of edges between train vertices."""
        return self.graph.up_to(0).n_edges

    @property
    def unseen_vertices(self) -> int:
        """Number of vertices that are added later."""
        return len(self.graph) - self.train_vertices

    @property
    def unseen_edges(self) -> int:
        """Number of edges that are added with them."""
        return self.graph.n_edges - self.train_edges

    @property
    def test_vertices(self) -> int:
        """Number of vertices for the accuracy."""
        return int(self.test.sum())

    @cached_property
    def at_first(self) -> Batch:
        """Input of pre-training: the train vertices and the edges among them."""
        n, links = self.train_vertices, self.graph.up_to(0).links
        x, graph = SparseMatrix.of(self._features[:n]), Neighbours.of(links.indptr, links.indices)
        return Batch(x, graph, n, self._classes[:n])

    @cached_property
    def in_the_end(self) -> Batch:
        """Input of the inference epochs: all vertices and edges, and the labels of the train vertices."""
        n, links = self.train_vertices, self.graph.links
        x, graph = SparseMatrix.of(self._features), Neighbours.of(links.indptr, links.indices)
        return Batch(x, graph, n, self._classes[:n])

    @cached_property
    def to_decide(self) -> Batch:
        """As `in_the_end`, but with outputs for all vertices."""
        seen = self.in_the_end
        return Batch(seen.x, seen.graph, len(self.graph), torch.full((len(self.graph),), -1))

    def accuracy(self, logits: Tensor) -> float:
        """Accuracy on the test vertices."""
        rows = torch.from_numpy(np.flatnonzero(self.test))
        return float((logits[rows].argmax(1) == self._classes[rows]).double().mean())

    @cached_property
    def _features(self) -> sparse.csr_array:
        """Word counts of each vertex, divided by their sum."""
        features = self.graph.features.words
        if features is None:
            raise InputError("the graph has no sparse features", fix="read it from Planetoid's files")
        matrix = features.matrix
        sums = matrix.sum(axis=1)
        data = matrix.data / np.repeat(np.where(sums == 0, 1, sums), np.diff(matrix.indptr))
        return sparse.csr_array((data.astype(np.float32), matrix.indices, matrix.indptr), shape=matrix.shape)

    @cached_property
    def _classes(self) -> Tensor:
        """Column of each vertex's class in the order of names, the same in both splits; -1 without a label."""
        names = self.graph.class_names
        columns = np.empty(len(names) + 1, np.int64)
        columns[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
        columns[-1] = -1
        return torch.from_numpy(columns[self.graph.codes])


@lru_cache(maxsize=2 * len(STATIC_GRAPHS))
def split(folder: Path, name: str, which: Which) -> Split:
    """Return one of the three graphs in split A or B; each process reads it once.

    In split A the train vertices are Planetoid's training and validation vertices, and the test vertices its 1000 test
    vertices. In split B the train vertices of A are the test vertices, and all others are train vertices.

    Cora has Planetoid's split, 140 + 500; the paper uses 140 + 300 in the order of other files (A21). Citeseer has 15
    vertices without a label. In split B they are train vertices that the loss ignores.
    """
    graph = read_planetoid(folder, name, split=which)
    test = np.zeros(len(graph), bool)
    test[graph.find(planetoid_test(folder, name, which).tolist())] = True
    return Split(graph, graph.times == 0, test)


@dataclass(frozen=True)
class Recipe:
    """A model with its learning rate and weight decay."""

    model: Model
    lr: float
    weight_decay: float = 5e-4


_RECIPES = {
    "gcn": Recipe(GCN(hidden=16), lr=0.005),
    "gcn-64": Recipe(GCN(hidden=64), lr=0.005),
    "gat": Recipe(GAT(), lr=0.005),
    "sage": Recipe(GraphSAGE(hidden=64), lr=0.01),
    "mlp": Recipe(MLP(hidden=64), lr=0.005),
}
_OTHERS = {("gat", "pubmed"): Recipe(GAT(out_heads=8), lr=0.01, weight_decay=1e-3)}

STATIC_MODELS = tuple(_RECIPES)


def recipe(model: str, graph: str) -> Recipe:
    """Return the settings of a model on a graph, from the paper's text.

    The authors' code uses a GraphSAGE of 16 units instead of 64 (A21). The dropout of GAT, 0.6 for features and
    attention, is not in the text. Our models may differ from theirs in details; see each model.

    Examples
    --------
    >>> recipe("gat", "pubmed")
    Recipe(model=GAT(hidden=8, heads=8, out_heads=8, layers=2, dropout=0.6, slope=0.2), lr=0.01, weight_decay=0.001)
    """
    if model not in _RECIPES:
        raise InputError(f"experiment 1 has no model {model!r}", fix=f"choose one of {', '.join(STATIC_MODELS)}")
    return _OTHERS.get((model, graph), _RECIPES[model])


class _GlorotDraw(Draw):
    """Initialises linear layers like the paper: Glorot weights and zero biases."""

    def linear(self, inputs: int, outputs: int) -> tuple[Tensor, Tensor]:
        return self.glorot(inputs, outputs), torch.zeros(outputs)


@dataclass(frozen=True)
class StaticTrial:
    """One model on one split of one graph with one seed.

    Parameters
    ----------
    folder
        Folder of the Planetoid files; ignored when trials are compared.
    pretraining, epochs
        Training epochs before and after the unseen vertices are added. The paper compares 200 epochs before with 0.
    seed
        Seed of all randomness. Trials that differ only in ``pretraining`` start from the same weights.

    Examples
    --------
    >>> trial = StaticTrial("cora", Path("planetoid"), "B", "gcn-64", pretraining=200, seed=3)
    >>> trial == StaticTrial("cora", Path("elsewhere"), "B", "gcn-64", pretraining=200, seed=3)
    True
    >>> trial.described()["model"]
    {'name': 'gcn', 'hidden': 64, 'layers': 2, 'dropout': 0.5}
    """

    graph: str
    folder: Path = field(compare=False)
    split: Which
    model: str
    pretraining: int
    epochs: int = 35
    seed: int = 0

    def __post_init__(self) -> None:
        for name, value, known in (("graph", self.graph, STATIC_GRAPHS), ("split", self.split, get_args(Which))):
            if value not in known:
                raise InputError(f"experiment 1 has no {name} {value!r}", fix=f"choose one of {', '.join(known)}")
        recipe(self.model, self.graph)
        for name in ("pretraining", "epochs", "seed"):
            number = getattr(self, name)
            if isinstance(number, bool) or not isinstance(number, int) or number < 0:
                raise InputError(f"{name} is {number!r}", fix="pass a whole number of at least 0")

    @property
    def graph_name(self) -> str:
        """Name of the graph."""
        return self.graph

    def described(self) -> dict[str, Any]:
        """Return everything that identifies the trial except the seed, for JSON."""
        chosen = recipe(self.model, self.graph)
        return {
            "kind": "static",
            "graph": self.graph,
            "split": self.split,
            "model": described(chosen.model),
            "lr": chosen.lr,
            "weight_decay": chosen.weight_decay,
            "pretraining": self.pretraining,
            "epochs": self.epochs,
        }

    def run(self, on_step: OnStep | None = None) -> dict[str, Any]:
        """Train, add the unseen vertices, and continue training.

        The result has the ``accuracy`` on the test vertices in the whole graph, without dropout, before the first and
        after each inference epoch.
        """
        data, model = split(self.folder, self.graph, self.split), recipe(self.model, self.graph).model
        weights = self.pretrained(on_step)

        def accuracy() -> float:
            with torch.no_grad():
                return data.accuracy(model.forward(weights, data.to_decide, None)[0])

        def after_epoch(epoch: int, loss: float) -> None:
            found.append(accuracy())
            if on_step is not None:
                on_step(self.pretraining + epoch, loss)

        with _one_thread(), kept_memory():
            found = [accuracy()]
            self._train(weights, data.in_the_end, self.epochs, 1, after_epoch)
        return {
            "accuracy": found,
            "train_vertices": data.train_vertices,
            "train_edges": data.train_edges,
            "unseen_edges": data.unseen_edges,
            "test_vertices": data.test_vertices,
        }

    def pretrained(self, on_step: OnStep | None = None) -> Parameters:
        """Return the parameters before the unseen vertices are added, independent of these vertices."""
        data = split(self.folder, self.graph, self.split)
        inputs, outputs = data.at_first.x.shape[1], len(data.graph.class_names)
        weights = recipe(self.model, self.graph).model.parameters(inputs, outputs, _GlorotDraw(self.seed))
        with _one_thread(), kept_memory():
            self._train(weights, data.at_first, self.pretraining, 0, on_step)
        return weights

    def _train(self, weights: Parameters, batch: Batch, epochs: int, part: int, on_step: OnStep | None) -> None:
        """Train in place with a new optimiser."""
        chosen = recipe(self.model, self.graph)
        optimiser = Adam(list(weights.values()), chosen.lr, weight_decay=chosen.weight_decay)
        counts = torch.bincount(batch.targets[batch.labelled])
        seed = self.seed, part
        train(
            chosen.model,
            Softmax(),
            weights,
            batch,
            counts,
            optimiser=optimiser,
            steps=epochs,
            seed=seed,
            on_step=on_step,
        )


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Use one thread, so that sums have the same order on every machine; such small graphs gain little from more."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


_SPLITS: tuple[Which, ...] = ("A", "B")


def grid(
    folder: str | Path,
    seeds: Iterable[int],
    graphs: Sequence[str] = STATIC_GRAPHS,
    models: Sequence[str] = STATIC_MODELS,
    splits: Sequence[Which] = _SPLITS,
    pretraining: Sequence[int] = (0, 200),
    epochs: int = 35,
) -> list[StaticTrial]:
    """Return all trials of the experiment.

    Examples
    --------
    >>> trials = grid("planetoid", seeds=range(10))
    >>> len(trials), trials[0].graph, trials[0].model, trials[-1].seed
    (600, 'cora', 'gcn', 9)
    """
    seeds = tuple(seeds)
    return [
        StaticTrial(graph, Path(folder), which, model, before, epochs, seed)
        for graph in graphs
        for which in splits
        for model in models
        for before in pretraining
        for seed in seeds
    ]


@dataclass(frozen=True)
class StaticRow:
    """Sizes of one graph in one split; edges are undirected and without self-loops."""

    graph: str
    split: str
    classes: int
    features: int
    vertices: int
    edges: int
    average_degree: float
    train_vertices: int
    train_edges: int
    unseen_vertices: int
    unseen_edges: int
    test_vertices: int
    label_rate: float


def static_table(
    folder: str | Path, graphs: Sequence[str] = STATIC_GRAPHS, splits: Sequence[Which] = _SPLITS
) -> list[StaticRow]:
    """Return the rows of the paper's table of static graphs, counted in the Planetoid files."""
    return [_row(Path(folder), graph, which) for graph in graphs for which in splits]


def _row(folder: Path, name: str, which: Which) -> StaticRow:
    data = split(folder, name, which)
    graph = data.graph
    return StaticRow(
        graph=name,
        split=which,
        classes=len(graph.class_names),
        features=0 if graph.features.words is None else graph.features.words.width,
        vertices=len(graph),
        edges=graph.n_edges,
        average_degree=2 * graph.n_edges / len(graph),
        train_vertices=data.train_vertices,
        train_edges=data.train_edges,
        unseen_vertices=data.unseen_vertices,
        unseen_edges=data.unseen_edges,
        test_vertices=data.test_vertices,
        label_rate=data.train_vertices / len(graph),
    )
