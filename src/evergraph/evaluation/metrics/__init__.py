"""How good a run was: classification, detection of unseen classes, forward transfer, intervals, divergences."""

from evergraph.evaluation.metrics.classification import accuracy, macro_f1, open_macro_f1
from evergraph.evaluation.metrics.detection import Confusion, aupr, auroc, fpr_at_95, oracle_mcc
from evergraph.evaluation.metrics.divergence import half_jeffreys, jensen_shannon, jensen_shannon_distance
from evergraph.evaluation.metrics.intervals import Interval, over_seeds, pooled
from evergraph.evaluation.metrics.scores import Summary, TaskScores, score_task, summarise
from evergraph.evaluation.metrics.transfer import forward_transfer

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
