"""Where to draw the line between known and unseen: rules that any score can be decided by."""

from evergraph.detect.thresholds.back_test import BackTest
from evergraph.detect.thresholds.base import Threshold
from evergraph.detect.thresholds.budget import Budget
from evergraph.detect.thresholds.conformal import Conformal
from evergraph.detect.thresholds.fixed import Fixed
from evergraph.detect.thresholds.quantile import Quantile

__all__ = ["BackTest", "Budget", "Conformal", "Fixed", "Quantile", "Threshold"]
