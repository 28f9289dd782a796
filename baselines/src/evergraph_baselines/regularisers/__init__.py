"""Regularisers of the literature: EWC, MAS and TWP (important weights), LwF (distillation) and GEM (projection)."""

from evergraph_baselines.regularisers.ewc import EWC
from evergraph_baselines.regularisers.gem import GEM
from evergraph_baselines.regularisers.lwf import LwF
from evergraph_baselines.regularisers.mas import MAS
from evergraph_baselines.regularisers.twp import TWP

__all__ = ["EWC", "GEM", "MAS", "TWP", "LwF"]
