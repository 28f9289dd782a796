"""Scores of how unseen a vertex's class is, from the outputs of any trained model: training knows nothing of them."""

from evergraph.detect.scores.base import Score
from evergraph.detect.scores.energy import Energy
from evergraph.detect.scores.entropy import Entropy
from evergraph.detect.scores.mahalanobis import Mahalanobis
from evergraph.detect.scores.max_logit import MaxLogit
from evergraph.detect.scores.msp import MSP
from evergraph.detect.scores.nearest import Nearest
from evergraph.detect.scores.relative import Relative

__all__ = ["MSP", "SCORES", "Energy", "Entropy", "Mahalanobis", "MaxLogit", "Nearest", "Relative", "Score"]

SCORES: dict[str, type[Score]] = {
    "msp": MSP,
    "max_logit": MaxLogit,
    "energy": Energy,
    "entropy": Entropy,
    "mahalanobis": Mahalanobis,
    "nearest": Nearest,
}
"""The scores that stand alone, by name; `Relative` makes another one of each."""
