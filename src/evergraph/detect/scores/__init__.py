"""Scores of how unseen a vertex's class is, with any trained model: training knows nothing of them."""

from evergraph.detect.scores.base import Score
from evergraph.detect.scores.bursting import Bursting
from evergraph.detect.scores.crowding import Crowding
from evergraph.detect.scores.energy import Energy
from evergraph.detect.scores.entropy import Entropy
from evergraph.detect.scores.mahalanobis import Mahalanobis
from evergraph.detect.scores.max_logit import MaxLogit
from evergraph.detect.scores.misfit import Misfit
from evergraph.detect.scores.msp import MSP
from evergraph.detect.scores.nearest import Nearest
from evergraph.detect.scores.new_neighbours import NewNeighbours
from evergraph.detect.scores.new_words import NewWords
from evergraph.detect.scores.relative import Relative
from evergraph.detect.scores.remote import Remote
from evergraph.detect.scores.sentinel import Sentinel
from evergraph.detect.scores.smoothed import Smoothed
from evergraph.detect.scores.surplus import Surplus
from evergraph.detect.scores.together import Together

__all__ = [
    "MSP",
    "Bursting",
    "Crowding",
    "Energy",
    "Entropy",
    "Mahalanobis",
    "MaxLogit",
    "Misfit",
    "Nearest",
    "NewNeighbours",
    "NewWords",
    "Relative",
    "Remote",
    "Score",
    "Sentinel",
    "Smoothed",
    "Surplus",
    "Together",
]
