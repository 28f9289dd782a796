"""Detectors of unseen classes. `evergraph.detect.base` is the contract; start there to write your own."""

from evergraph.detect.auto import AutoDetector
from evergraph.detect.base import Decision, Detector, FittedDetector, Outputs, Requirements
from evergraph.detect.check import check_detector
from evergraph.detect.doc import DOC, GDOC
from evergraph.detect.softmax import IsoMax, PostHoc, Softmax

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
