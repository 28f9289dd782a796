"""Detectors of unseen classes by the names that a comparison calls them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import ClassVar

from evergraph.detect import DOC, GDOC, Detector, Softmax
from evergraph.detect.auto import SIGNALS, AutoDetector, together
from evergraph.detect.post_hoc import PostHoc
from evergraph.detect.scores import OF_GRAPH, OF_OUTPUTS, SCORES, Relative, Score, Smoothed, Together
from evergraph.detect.thresholds import THRESHOLDS, BackTest, Budget, Fixed, Threshold
from evergraph.errors import InputError

__all__ = ["PARTS", "USUAL", "Contestant", "contestant", "contestants"]

USUAL = "none,gdoc:0.5,gdoc:0.75,energy,relative-energy,auto"
"""Whom to compare unless said otherwise."""

PARTS = (*SIGNALS, "counts", "smoothing", "levels", "alignment", "back-test", "limit", "rehearsals")
"""What ``auto-without-…`` can do without: a signal; the sentinel's counting more than the others; smoothing over kin;
levels that outlast a slice, or their alignment; the line that served best so far (instead, one in five known vertices
lies above it); the limit to a slice's rejected share; or the rehearsals before the first task."""

_WITHOUT = "auto-without-"
_RELATIVE = "relative-"
_TRAINED: dict[str, type[DOC]] = {"doc": DOC, "gdoc": GDOC}  # with a loss of their own


@dataclass(frozen=True)
class Contestant:
    """A detector that takes part in a comparison.

    Parameters
    ----------
    name
        What it is called.
    detector
        Who decides.
    trained_with
        The detector whose loss it must be trained with; contestants that share it share a training.

    Examples
    --------
    >>> contestant("gdoc:0.5")
    Contestant(name='gdoc:0.5', detector=GDOC(threshold=0.5, alpha=None), trained_with=GDOC(threshold=0.75, alpha=None))
    >>> contestant("relative-energy/budget:50").detector.threshold
    Budget(most=50)
    """

    name: str
    detector: Detector
    trained_with: Detector = field(default_factory=Softmax)


def contestants(names: str = USUAL) -> tuple[Contestant, ...]:
    """Those that a list of names calls, each once.

    Examples
    --------
    >>> [one.name for one in contestants("none, energy,none")]
    ['none', 'energy']
    """
    found = tuple(contestant(name) for name in dict.fromkeys(part.strip() for part in names.split(",")) if name)
    if not found:
        raise InputError("there is no detector to compare", fix=f"name some, as {USUAL}")
    return found


def contestant(name: str) -> Contestant:
    """The contestant of a name.

    ``none``; ``auto``, or ``auto-without-`` one of its `PARTS`; ``doc`` and ``gdoc``, whose threshold may follow as
    ``gdoc:0.5``; or a score of `evergraph.detect.scores`, which ``relative-`` may precede, and a threshold follow, as
    ``energy/quantile``. The thresholds ``fixed`` and ``budget`` take a number, as ``msp/fixed:0.5``. A score alone is
    decided by the back-test.

    Examples
    --------
    >>> contestant("msp/quantile:1")
    Traceback (most recent call last):
    evergraph.errors.InputError: 'msp/quantile:1' has a number, which quantile does not take. To fix it: leave :1 out.
    """
    if name == "none":
        return Contestant(name, Softmax())
    if name == "auto":
        return Contestant(name, AutoDetector())
    if name.startswith(_WITHOUT):
        return Contestant(name, _without(name.removeprefix(_WITHOUT)))
    kind, colon, value = name.partition(":")
    if kind in _TRAINED:
        trained = _TRAINED[kind]
        return Contestant(name, trained(_number(name, value)) if colon else trained(), trained())
    by, slash, rule = name.partition("/")
    return Contestant(name, PostHoc(_score(name, by), _threshold(name, rule) if slash else BackTest()))


class _Unrehearsed(PostHoc):
    """Nothing was looked back at before the first task."""

    rehearsals: ClassVar[int] = 0


def _without(part: str) -> Detector:
    """What `AutoDetector` is made of, but for one part."""
    if part not in PARTS:
        raise _unknown(f"part {part!r} of auto", part, list(PARTS), list(PARTS))
    whole = AutoDetector().made_of
    signals = Together(together().scores) if part == "counts" else together(part)
    score = signals if part == "smoothing" else Smoothed(signals)
    threshold = {
        "levels": BackTest(level=1),
        "alignment": BackTest(level=0),
        "back-test": BackTest(weight=1e12),
        "limit": BackTest(most=1),
    }.get(part, whole.threshold)
    return (_Unrehearsed if part == "rehearsals" else PostHoc)(score, threshold)


def _score(name: str, by: str) -> Score:
    plain = by.removeprefix(_RELATIVE)
    if plain not in SCORES:
        known = ["none", "auto", f"{_WITHOUT}PART", *_TRAINED, *SCORES]
        raise _unknown(f"detector {name!r}", by, [*known, *(_RELATIVE + score for score in OF_OUTPUTS)], known)
    score = SCORES[plain]()
    if not by.startswith(_RELATIVE):
        return score
    if plain in OF_GRAPH:
        raise InputError(
            f"{name!r} would be {plain} itself, which looks at the graph and not at the model", fix=f"write {plain}"
        )
    return Relative(score)


def _threshold(name: str, rule: str) -> Threshold:
    kind, colon, value = rule.partition(":")
    if kind not in THRESHOLDS:
        raise _unknown(f"threshold {kind!r} of {name!r}", kind, list(THRESHOLDS), list(THRESHOLDS))
    if not colon:
        return THRESHOLDS[kind]()
    number = _number(name, value)
    if kind == "fixed":
        return Fixed(number)
    if kind != "budget":
        raise InputError(f"{name!r} has a number, which {kind} does not take", fix=f"leave :{value} out")
    if not number.is_integer():
        raise InputError(f"the budget of {name!r} is {value}", fix="give a whole number, as budget:100")
    return Budget(int(number))


def _number(name: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise InputError(f"{text!r} in {name!r} is no number", fix="write one, as gdoc:0.5 or energy/budget:100")
    return number


def _unknown(what: str, given: str, meant: list[str], known: list[str]) -> InputError:
    near = get_close_matches(given, meant, n=1)
    told = f", but {near[0]!r}" if near else ""
    fix = f"choose from {', '.join(known)}"
    if "none" in known:
        fix += f"; {', '.join(OF_OUTPUTS)} also as {_RELATIVE}energy, and all scores with /{', /'.join(THRESHOLDS)}"
    return InputError(f"there is no {what}{told}", fix=fix)
