"""Models on graphs, and the compiled kernels and differentiable operations below them."""

import os
import sys

if "torch" not in sys.modules:
    # After an operation, torch's threads wait actively for the next one, which takes a core from the compiled kernels.
    # This setting makes them sleep. It has an effect only before torch is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")

from evergraph.nn.base import Batch, Draw, Model, carry_over, count_parameters
from evergraph.nn.custom import Custom
from evergraph.nn.gat import GAT
from evergraph.nn.gcn import GCN, SGC
from evergraph.nn.isomax import IsoMaxOutputs
from evergraph.nn.mlp import MLP, MostFrequent
from evergraph.nn.ops import Neighbours, Noise, SparseMatrix
from evergraph.nn.sage import GraphSAGE, JKNet
from evergraph.nn.saint import GraphSAINT

__all__ = [
    "GAT",
    "GCN",
    "MLP",
    "SGC",
    "Batch",
    "Custom",
    "Draw",
    "GraphSAGE",
    "GraphSAINT",
    "IsoMaxOutputs",
    "JKNet",
    "Model",
    "MostFrequent",
    "Neighbours",
    "Noise",
    "SparseMatrix",
    "carry_over",
    "count_parameters",
]
