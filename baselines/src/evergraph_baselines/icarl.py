"""`ICaRL`: the nearest mean of the classes, in the vectors of a network that is trained as usual."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from evergraph.errors import InputError
from evergraph.nn import Draw, GraphSAGE, Labels, Matrix, Model, Neighbours, Noise, Readout
from evergraph.nn.base import Parameters
from evergraph.nn.ops import mean_beside

__all__ = ["ICaRL"]

_MEANS = "means"
_BLOCK = 16_384  # vertices that are added at a time


@dataclass(frozen=True)
class ICaRL(GraphSAGE):
    """GraphSAGE that predicts the class with the nearest mean of the training vertices' vectors.

    Training is that of `GraphSAGE`, with an output layer. After it, the mean of each class is computed from the vectors
    that the output layer reads: of the vertex, and beside it the mean of its neighbours. Vectors and means are scaled
    to length 1, so the nearest mean is the one with the largest product, which is the logit.

    A class without a labelled vertex in the window and the memory keeps its last mean, although the vectors may have
    changed since.

    Source: Rebuffi et al., iCaRL: Incremental Classifier and Representation Learning, CVPR 2017. The whole system also
    has a memory and distillation: ``window:1+memory:class-mean:10%+regulariser:lwf+model:icarl``. There, the memory
    keeps vertices whose mean is near that of the class, the loss has a sigmoid for each class, and the mean of a class
    is that of its kept vertices only.

    Parameters
    ----------
    hidden, layers, dropout
        As in `GraphSAGE`; there are at least two layers.

    Examples
    --------
    >>> ICaRL(hidden=16)
    ICaRL(hidden=16, layers=2, dropout=0.5)
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.layers == 1:
            raise InputError("layers is 1, but icarl needs a hidden layer", fix="set layers to at least 2")

    def parameters(self, inputs: int, outputs: int, draw: Draw) -> Parameters:
        return super().parameters(inputs, outputs, draw) | {_MEANS: draw.zeros(outputs, 2 * self.hidden)}

    def trained(self, name: str) -> bool:
        return name != _MEANS

    @property
    def predictor(self) -> Model:
        return _NearestMean(self.hidden, self.layers, self.dropout)

    def finish(self, p: Parameters, labels: Labels) -> Parameters:
        """Return the parameters with the mean of each class that has a labelled vertex."""
        sums = torch.zeros_like(p[_MEANS], dtype=torch.float64)
        targets = torch.from_numpy(labels.targets).to(sums.device)
        for start in range(0, len(targets), _BLOCK):
            places = np.arange(start, min(start + _BLOCK, len(targets)))
            sums.index_add_(0, targets[places], labels.vectors(places).double())
        there = labels.counts > 0
        return p | {_MEANS: torch.where(there[:, None], normalize(sums).to(p[_MEANS].dtype), p[_MEANS])}


class _NearestMean(GraphSAGE):
    """The predictor: its hidden vectors have length 1, its logits are their products with the means."""

    def output_layer(self, p: Parameters, h: Matrix, graph: Neighbours, rows: int, noise: Noise | None) -> Readout:  # noqa: ARG002
        assert isinstance(h, Tensor)  # noqa: S101  # there is at least one hidden layer
        vectors = normalize(mean_beside(graph, h, rows))
        return Readout(vectors, p[_MEANS].T, None, vectors)
