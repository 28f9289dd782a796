"""How good a run was: classification, detection of unseen classes, forward transfer, intervals, divergences."""

from evergraph.metrics.classification import accuracy, macro_f1, open_macro_f1
from evergraph.metrics.detection import Confusion, aupr, auroc, fpr_at_95, oracle_mcc
from evergraph.metrics.divergence import half_jeffreys, jensen_shannon, jensen_shannon_distance
from evergraph.metrics.intervals import Interval, over_seeds, pooled
from evergraph.metrics.scores import Summary, TaskScores, score_task, summarise
from evergraph.metrics.transfer import forward_transfer

__all__ = [
    "Confusion",
    "Interval",
    "Summary",
    "TaskScores",
    "accuracy",
    "aupr",
    "auroc",
    "forward_transfer",
    "fpr_at_95",
    "half_jeffreys",
    "jensen_shannon",
    "jensen_shannon_distance",
    "macro_f1",
    "open_macro_f1",
    "oracle_mcc",
    "over_seeds",
    "pooled",
    "score_task",
    "summarise",
]
