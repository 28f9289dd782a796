"""The models by the names that the command line and saved files use."""

from __future__ import annotations

import torch

from evergraph.errors import InputError
from evergraph.nn.base import Model
from evergraph.nn.custom import Custom
from evergraph.nn.frequent import MostFrequent
from evergraph.nn.gat import GAT
from evergraph.nn.gcn import GCN
from evergraph.nn.jknet import JKNet
from evergraph.nn.mlp import MLP
from evergraph.nn.sage import GraphSAGE
from evergraph.nn.saint import GraphSAINT
from evergraph.nn.sgc import SGC

__all__ = ["MODELS", "as_model"]

MODELS: dict[str, type[Model]] = {
    "sage": GraphSAGE,
    "gat": GAT,
    "gcn": GCN,
    "sgc": SGC,
    "jknet": JKNet,
    "saint": GraphSAINT,
    "mlp": MLP,
    "most-frequent": MostFrequent,
}


def as_model(model: Model | torch.nn.Module | None) -> Model:
    """A model as it is, a user's module with our head on top, or the default.

    Examples
    --------
    >>> as_model(None)
    GraphSAGE(hidden=32, layers=2, dropout=0.5)
    """
    if model is None:
        return GraphSAGE()
    if isinstance(model, torch.nn.Module):
        return Custom(model)
    if not isinstance(model, Model):
        raise InputError(f"{model!r} is no model", fix="give one of evergraph.nn or a torch.nn.Module")
    return model
