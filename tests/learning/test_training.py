from __future__ import annotations

import numpy as np
import pytest
import torch

from evergraph.detect import Softmax
from evergraph.learning.training import train
from evergraph.nn import MLP, Batch, Neighbours
from evergraph.nn.adam import Adam
from evergraph.nn.base import Draw


@pytest.mark.parametrize("weights", [None, [1.0, 2.0, 5.0, 0.5]])
def test_labelled_vertices_count_by_the_weights_of_their_batch(weights: list[float] | None) -> None:
    model, x, targets = MLP(layers=1, dropout=0.0), torch.eye(4)[:, :3], torch.tensor([0, 1, -1, 1])
    nobody = Neighbours.of(np.zeros(5, np.int32), np.zeros(0, np.int32))
    batch = Batch(x, nobody, 4, targets, weights=None if weights is None else torch.tensor(weights))
    p = model.parameters(3, 2, Draw(0))
    chosen = targets >= 0
    each = torch.nn.functional.cross_entropy(
        model.forward(p, batch, None)[0][chosen], targets[chosen], reduction="none"
    )
    count = torch.ones(3) if weights is None else torch.tensor(weights)[chosen]
    (loss,) = train(
        model, Softmax(), p, batch, torch.tensor([1, 2]), optimiser=Adam([*p.values()], 0.1), steps=1, seed=(0, 0)
    )
    assert loss == pytest.approx(float((each * count).sum() / count.sum()), rel=1e-6)
    assert not any(value.requires_grad for value in p.values())
