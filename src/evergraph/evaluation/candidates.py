"""Detectors of unseen classes by the names that a comparison calls them."""

from __future__ import annotations

from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import ClassVar

from evergraph.detect import Detector, PostHoc, Softmax
from evergraph.detect.auto import SIGNALS, AutoDetector, average_signals
from evergraph.detect.scores import Average, Propagated
from evergraph.detect.thresholds import BackTest
from evergraph.errors import InputError
from evergraph.names import COMPARED_DETECTORS, build_detector, split_detectors

__all__ = ["PARTS", "Candidate", "candidate", "candidates"]

PARTS = (*SIGNALS, "counts", "propagation", "levels", "alignment", "back-test", "limit", "replay")
"""What ``auto-without-…`` can leave out: a signal; the higher weight of the auxiliary model; propagation over similar
vertices; levels that outlast a slice, or their alignment; the threshold that served best so far (instead, one in five
known vertices lies above it); the limit to a slice's flagged share; or the replay before the first task."""

_WITHOUT = "auto-without-"


@dataclass(frozen=True)
class Candidate:
    """A detector that takes part in a comparison.

    Parameters
    ----------
    name
        What it is called.
    detector
        Who decides.
    trained_with
        The detector whose loss it must be trained with; candidates that share it share a training.

    Examples
    --------
    >>> candidate("gdoc:0.5")
    Candidate(name='gdoc:0.5', detector=GDOC(threshold=0.5, alpha=None), trained_with=GDOC(threshold=0.75, alpha=None))
    >>> candidate("relative-energy/budget:50").detector.threshold
    Budget(most=50)
    """

    name: str
    detector: Detector
    trained_with: Detector = field(default_factory=Softmax)

    @property
    def settings(self) -> str:
        """What the detector is made of, in words."""
        return repr(getattr(self.detector, "made_of", self.detector))


def candidates(names: str = COMPARED_DETECTORS) -> tuple[Candidate, ...]:
    """Those that a list of names calls, each once.

    Examples
    --------
    >>> [one.name for one in candidates("none, energy,none")]
    ['none', 'energy']
    """
    found = tuple(candidate(name) for name in split_detectors(names))
    if not found:
        raise InputError("there is no detector to compare", fix=f"name some, as {COMPARED_DETECTORS}")
    return found


def candidate(name: str) -> Candidate:
    """The candidate of a name.

    ``auto-without-`` and one of its `PARTS`, or what `build_detector` reads: ``none``, ``gdoc:0.5``,
    ``relative-energy/budget:50``.

    Examples
    --------
    >>> candidate("msp/conformal:much")
    Traceback (most recent call last):
    evergraph.errors.InputError: 'much' in 'conformal:much' is not a number. Write a number, as in gdoc:0.5.
    """
    if name.startswith(_WITHOUT):
        return Candidate(name, _without(name.removeprefix(_WITHOUT)))
    detector = build_detector(name)
    trained_alike = isinstance(detector, PostHoc | AutoDetector)
    return Candidate(name, detector, Softmax() if trained_alike else type(detector)())


class _WithoutReplay(PostHoc):
    """Nothing is replayed before the first task."""

    replay: ClassVar[int] = 0


def _without(part: str) -> Detector:
    """What `AutoDetector` is made of, but for one part."""
    if part not in PARTS:
        near = get_close_matches(part, PARTS, n=1)
        told = f", but {near[0]!r}" if near else ""
        raise InputError(f"there is no part {part!r} of auto{told}", fix=f"choose from {', '.join(PARTS)}")
    whole = AutoDetector().made_of
    signals = Average(average_signals().scores) if part == "counts" else average_signals(part)
    score = signals if part == "propagation" else Propagated(signals)
    threshold = {
        "levels": BackTest(level=1),
        "alignment": BackTest(level=0),
        "back-test": BackTest(weight=1e12),
        "limit": BackTest(most=1),
    }.get(part, whole.threshold)
    return (_WithoutReplay if part == "replay" else PostHoc)(score, threshold)
