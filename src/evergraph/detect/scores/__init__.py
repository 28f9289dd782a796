"""Scores of how unseen a vertex's class is, computed after training."""

from evergraph.detect.scores.base import Score
from evergraph.detect.scores.combined import Average, Propagated, Relative
from evergraph.detect.scores.neighbours import KnownDistance, NewNeighbours, SliceDensity
from evergraph.detect.scores.outputs import MSP, AuxiliaryModel, Energy, Entropy, Mahalanobis, MaxLogit, Nearest
from evergraph.detect.scores.words import ClassLikelihood, ExcessWords, NewWords, WordGrowth

__all__ = [
    "MSP",
    "AuxiliaryModel",
    "Average",
    "ClassLikelihood",
    "Energy",
    "Entropy",
    "ExcessWords",
    "KnownDistance",
    "Mahalanobis",
    "MaxLogit",
    "Nearest",
    "NewNeighbours",
    "NewWords",
    "Propagated",
    "Relative",
    "Score",
    "SliceDensity",
    "WordGrowth",
]
