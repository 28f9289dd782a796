"""Unseen-class detectors: a loss to train with, a score (up = more unseen) and a decision for each vertex."""

from evergraph.detect.auto import AutoDetector
from evergraph.detect.base import Decision, Detector, FittedDetector, Outputs, Requirements
from evergraph.detect.check import check_detector
from evergraph.detect.doc import DOC, GDOC
from evergraph.detect.isomax import IsoMax
from evergraph.detect.post_hoc import PostHoc
from evergraph.detect.softmax import Softmax

__all__ = [
    "DOC",
    "GDOC",
    "AutoDetector",
    "Decision",
    "Detector",
    "FittedDetector",
    "IsoMax",
    "Outputs",
    "PostHoc",
    "Requirements",
    "Softmax",
    "check_detector",
]
