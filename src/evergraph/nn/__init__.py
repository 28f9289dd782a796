"""Models on graphs, and the compiled kernels and differentiable operations below them."""

from evergraph.nn.base import Batch, Draw, Labels, LayeredModel, Model, Readout, carry_over, count_parameters
from evergraph.nn.custom import Custom
from evergraph.nn.gat import GAT
from evergraph.nn.gcn import GCN, SGC
from evergraph.nn.isomax import IsoMaxOutputs
from evergraph.nn.mlp import MLP, MostFrequent
from evergraph.nn.ops import Matrix, MixedMatrix, Neighbours, Noise, SparseMatrix
from evergraph.nn.ridge import Ridge
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
    "Labels",
    "LayeredModel",
    "Matrix",
    "MixedMatrix",
    "Model",
    "MostFrequent",
    "Neighbours",
    "Noise",
    "Readout",
    "Ridge",
    "SparseMatrix",
    "carry_over",
    "count_parameters",
]
