"""Experiments: the protocol of a run, and its results on disk."""

from evergraph.experiments.configuration import Configuration, build_detector, build_model
from evergraph.experiments.fingerprint import fingerprint
from evergraph.experiments.row import TaskRow
from evergraph.experiments.run import NUMERICS_VERSION, OnProgress, RunResult, run

__all__ = [
    "NUMERICS_VERSION",
    "Configuration",
    "OnProgress",
    "RunResult",
    "TaskRow",
    "build_detector",
    "build_model",
    "fingerprint",
    "run",
]
