"""Regularisers of the literature: EWC, MAS, TWP and ContinualGNN (important weights), LwF (distillation), GEM."""

from evergraph_baselines.regularisers.continual_gnn import ContinualGNN
from evergraph_baselines.regularisers.ewc import EWC
from evergraph_baselines.regularisers.gem import GEM
from evergraph_baselines.regularisers.lwf import LwF
from evergraph_baselines.regularisers.mas import MAS
from evergraph_baselines.regularisers.twp import TWP

__all__ = ["EWC", "GEM", "MAS", "TWP", "ContinualGNN", "LwF"]
