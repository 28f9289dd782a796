from __future__ import annotations

import json

import pytest

from evergraph import names
from evergraph.detect import DOC, GDOC, AutoDetector, Detector, PostHoc, Softmax
from evergraph.detect.auto import SIGNALS
from evergraph.detect.scores import Energy, Relative, Smoothed, Together
from evergraph.detect.thresholds import BackTest, Budget
from evergraph.errors import InputError
from evergraph.names import described, rebuilt

SCORES = {name: names.load("score", name) for name in names.SCORES}
THRESHOLDS = {name: names.load("threshold", name) for name in names.THRESHOLDS}

DETECTORS: list[Detector] = [
    Softmax(),
    DOC(0.3),
    GDOC(0.6, alpha=2.0),
    AutoDetector(most=0.2),
    PostHoc(Relative(Energy(2.0), weight=3), Budget(7)),
    PostHoc(Smoothed(Together(tuple(SIGNALS.values())), weight=0.5, rounds=2), BackTest(0.2, 30, 0.4)),
    *(PostHoc(kind()) for kind in SCORES.values()),
    *(PostHoc(Energy(), kind()) for kind in THRESHOLDS.values()),
]


@pytest.mark.parametrize("detector", DETECTORS, ids=repr)
def test_what_a_file_holds_comes_back_as_it_was(detector: Detector) -> None:
    written = json.dumps(described(detector))
    assert rebuilt(json.loads(written), "detector") == detector


def test_scores_of_ones_own_are_told_apart_but_not_rebuilt() -> None:
    class Mine(Energy):
        """Another score."""

    with pytest.raises(InputError, match="Mine"):
        rebuilt(described(PostHoc(Mine())), "detector")
