"""Models on graphs: kernels, operations behind autograd, and the models, one a file."""

import os
import sys

if "torch" not in sys.modules:
    # After each operation torch's threads go on spinning for many milliseconds, in wait for the next one, and take a
    # core from the compiled kernels. They are asked to sleep instead, which has to be said before torch is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")

from evergraph.nn.base import Batch, Draw, Model, Noise, carry_over, count_parameters
from evergraph.nn.custom import Custom
from evergraph.nn.gat import GAT
from evergraph.nn.gcn import GCN
from evergraph.nn.isomax import IsoMaxOutputs
from evergraph.nn.jknet import JKNet
from evergraph.nn.mlp import MLP, MostFrequent
from evergraph.nn.sage import GraphSAGE
from evergraph.nn.saint import GraphSAINT
from evergraph.nn.sgc import SGC
from evergraph.nn.sparse import Neighbours, SparseMatrix

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
