"""`TWP`: topology-aware weight preserving."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812  # the name that everyone gives it

from evergraph.detect.base import set_number
from evergraph.learning.regularise import Lesson, gradients
from evergraph.nn import GAT, Batch
from evergraph.nn.base import Parameters
from evergraph.nn.ops import Neighbours, linear
from evergraph_baselines.regularisers.importance import WeightImportance

__all__ = ["TWP"]

_MOST_BATCHES = 20
_SLOPE = 0.2  # of the leaky rectifier of scores of edges, as in the authors' program


@dataclass(frozen=True)
class TWP(WeightImportance):
    """Topology-aware weight preserving: weights are important for the loss, or for the weights of the edges.

    The importance of a weight is loss · (gradient of the loss)² + topology · (gradient of ‖e‖)², where e are the
    weights of all edges, a softmax over the neighbours of each vertex. The penalty is the sum over past tasks of
    importance · (weight - weight after the task)².

    Source: Liu, Yang and Wang, Overcoming Catastrophic Forgetting in Graph Neural Networks, AAAI 2021, and the authors'
    program, from which the benchmark CGLB (Zhang et al., NeurIPS 2022) took its own; ``train.py`` of both has these
    defaults.

    * The weights of the edges are the attention of the first layer of a `GAT`. Of other models they are computed from
      the hidden vectors h: the softmax of the leaky rectified h_j · tanh(h_i), as the programs do for GCN and GIN.
    * The paper has the size of the gradients, the programs square them, and the defaults belong to squares. The
      programs do not reset the gradient of the loss before they compute the one of the edges; here they are separate.
    * The paper's third term, β times the size of the new importance, is left out: the programs compute it from detached
      gradients, so that it has no effect.

    Parameters
    ----------
    loss, topology
        Factors of the two parts of the importance, λ_l and λ_t in the paper.

    Examples
    --------
    >>> TWP(topology=0)
    TWP(loss=10000.0, topology=0.0)
    """

    loss: float = 10_000.0
    topology: float = 10_000.0

    def __post_init__(self) -> None:
        set_number(self, "loss")
        set_number(self, "topology")

    @property
    def factor(self) -> float:
        return 1.0

    def importance(self, lesson: Lesson) -> Parameters:
        """Return the importance for loss and topology; the mean over mini-batches."""
        leaves = lesson.leaves()
        found = {name: torch.zeros_like(value) for name, value in lesson.trained.items()}
        parts = 0
        for part in lesson.parts(_MOST_BATCHES):
            size = edge_weights(lesson, part, leaves).norm()
            for factor, value in ((self.loss, lesson.loss(part, leaves)), (self.topology, size)):
                for name, gradient in gradients(value, leaves).items():
                    found[name].addcmul_(gradient, gradient, value=factor)
            parts += 1
        return {name: value / parts for name, value in found.items()}


def edge_weights(lesson: Lesson, part: Batch, weights: Parameters) -> Tensor:
    """Return the weight of each edge of a batch, and of each head if it is the attention of a `GAT`."""
    model, graph = lesson.model.predictor, part.graph
    if isinstance(model, GAT):
        projection = weights["0.weight"]
        z = linear(part.x, projection.flatten(1)).view(len(graph), *projection.shape[1:])
        left, right = ((z * weights[f"0.{end}"]).sum(2) for end in ("left", "right"))
        centres, near = _ends(graph, len(graph))
        return softmax_over_neighbours(F.leaky_relu(left[near] + right[centres], model.slope), centres, len(graph))
    hidden = lesson.readout(part, weights=weights).hidden
    centres, near = _ends(graph, len(hidden))
    scores = F.leaky_relu((hidden[near] * hidden[centres].tanh()).sum(1), _SLOPE)
    return softmax_over_neighbours(scores, centres, len(hidden))


def _ends(graph: Neighbours, rows: int) -> tuple[Tensor, Tensor]:
    """Return both ends of the edges among the first vertices, with each vertex as its own neighbour."""
    pointers = graph.indptr.long()
    centres = torch.repeat_interleave(torch.arange(len(graph), device=pointers.device), pointers.diff())
    near = graph.indices.long()
    inside = (centres < rows) & (near < rows)
    return centres[inside], near[inside]


def softmax_over_neighbours(scores: Tensor, centres: Tensor, rows: int) -> Tensor:
    """Return the softmax of the scores of edges over the edges of each centre.

    Examples
    --------
    >>> softmax_over_neighbours(torch.tensor([0.0, 0.0, 5.0]), torch.tensor([0, 0, 1]), 2)
    tensor([0.5000, 0.5000, 1.0000])
    """
    index = centres.view(-1, *[1] * (scores.dim() - 1)).expand_as(scores)
    tops = scores.new_full((rows, *scores.shape[1:]), -torch.inf).scatter_reduce(0, index, scores.detach(), "amax")
    powers = (scores - tops[centres]).exp()
    sums = torch.zeros_like(tops).index_add(0, centres, powers)
    return powers / sums[centres]
