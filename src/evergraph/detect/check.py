"""The conformance suite of detectors: what every one must do, whoever wrote it."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor

from evergraph.detect.base import Detector, Outputs, State

__all__ = ["check_detector"]

_CLASSES, _WIDTH = 5, 8
_TRAIN = torch.tensor([0] * 16 + [1] * 10 + [2] * 7 + [3] * 4 + [4] * 3)  # classes are of unequal size, as ever
_NEW = torch.tensor([0, 1, 2, 3, 4] * 4 + [-1] * 20)  # -1: of a class that was never seen
_COUNTS = torch.bincount(_TRAIN, minlength=_CLASSES)
_ORDER = torch.tensor([3, 0, 4, 2, 1])
_NEAR = 1e-9

_Result = TypeVar("_Result")


def check_detector(detector: Detector) -> None:
    """Check that a detector keeps the contract of `Detector`; call it in the tests of your own detector.

    It looks at the loss (finite, downhill to the right classes, honours the vertices' weights), the state (flat
    tensors; can be fitted again when there are more classes, or classes with one vertex or none), the score (float64,
    finite, up = more unseen), the decision (agrees with the score), and at what must not matter: the order of classes
    and of vertices, and that it was called before.

    Raises
    ------
    AssertionError
        With the detector and the first rule that it breaks.

    Examples
    --------
    >>> from evergraph.detect import GDOC, Softmax
    >>> check_detector(GDOC(alpha=3.0))
    >>> class Upside(Softmax):
    ...     def score(self, outputs, state):
    ...         return -super().score(outputs, state)
    >>> check_detector(Upside())
    Traceback (most recent call last):
    AssertionError: Upside(): vertices that are like no class must score higher on average than clear ones
    """
    for check in (_check_value, _check_loss, _check_weights, _check_state, _check_score, _check_decision, _check_order):
        check(detector)


def _check_value(detector: Detector) -> None:
    parameters = getattr(type(detector), "__dataclass_params__", None)
    frozen = parameters is not None and parameters.frozen
    _require(detector, frozen, "must be a frozen dataclass: what is fitted belongs in the state")
    twin = dataclasses.replace(detector)  # type: ignore[type-var]  # a dataclass, as we know by now
    _require(detector, twin == detector, "must equal a detector with the same parameters")
    _require(detector, hash(twin) == hash(detector), "must hash as a detector with the same parameters does")
    _require(detector, repr(twin) == repr(detector), "must look (repr) as a detector with the same parameters does")


def _check_loss(detector: Detector) -> None:
    right = _say(_TRAIN, _CLASSES).logits
    low = _call(detector, detector.loss, right, _TRAIN, _COUNTS)
    _require(detector, low.shape == (), "the loss must be a scalar")
    for shift in range(1, _CLASSES):
        wrong = right.roll(shift, dims=1)
        high = _call(detector, detector.loss, wrong, _TRAIN, _COUNTS)
        _require(detector, bool(low.isfinite() and high.isfinite()), "the loss must be finite")
        _require(detector, bool(low < high), "the loss must be lower where the right classes have the high logits")

    start = wrong.double().requires_grad_()
    loss = detector.loss(start, _TRAIN, _COUNTS)
    slope = _gradient(detector, loss, start)
    # A short step downhill, whatever the scale of the loss.
    step = start.detach() - 1e-3 * slope / slope.norm().clamp(min=1e-300)
    lower = bool(detector.loss(step, _TRAIN, _COUNTS) < loss)
    _require(detector, lower, "a short step against the gradient must lower the loss")

    for counts in ([40], [40, 0, 0], [39, 1, 0]):
        targets = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
        logits = _say(targets, len(counts)).logits.requires_grad_()
        loss = detector.loss(logits, targets, torch.tensor(counts))
        _require(detector, bool(loss.isfinite()), f"the loss must be finite where the classes have {counts} vertices")
        _gradient(detector, loss, logits)


def _check_weights(detector: Detector) -> None:
    logits = _say(_TRAIN, _CLASSES, torch.float64).logits.roll(1, dims=1)
    times = torch.arange(len(_TRAIN)) % 3
    weights = times.double()
    loss = _call(detector, detector.loss, logits, _TRAIN, _COUNTS, weights)
    _require(detector, loss.shape == () and bool(loss.isfinite()), "the weighted loss must be a finite scalar")

    def same(other: Tensor) -> bool:
        return _near(loss, other)

    there = times > 0
    absent = detector.loss(logits[there], _TRAIN[there], _COUNTS, weights[there])
    _require(detector, same(absent), "the loss must take a vertex of weight 0 for absent")
    twice = detector.loss(logits, _TRAIN, _COUNTS, 2 * weights)
    _require(detector, same(twice), "the loss must not change when all weights are doubled")
    copies = detector.loss(logits.repeat_interleave(times, 0), _TRAIN.repeat_interleave(times), _COUNTS)
    _require(detector, same(copies), "the loss must take a vertex of weight 2 for two vertices")


def _check_state(detector: Detector) -> None:
    known = _TRAIN[_TRAIN < 3]
    first = _fit(detector, _say(known, 3), known, {})
    # Then there are two classes more, one of them with a single vertex and one with none, and class 0 has left.
    later = torch.tensor([1] * 9 + [2] * 6 + [3])
    for before in (first, {}):
        state = _fit(detector, _say(later, _CLASSES), later, before)
        _judge(detector, _say(_NEW, _CLASSES), state)


def _check_score(detector: Detector) -> None:
    state = _fit(detector, _say(_TRAIN, _CLASSES), _TRAIN, {})
    score, _ = _judge(detector, _say(_NEW, _CLASSES), state)
    upwards = bool(score[_NEW < 0].mean() > score[_NEW >= 0].mean())
    _require(detector, upwards, "vertices that are like no class must score higher on average than clear ones")
    _judge(detector, _say(_NEW[:0], _CLASSES), state)
    for low, high in ((-1e4, 1e4), (-1e4, -1e4), (1e4, 1e4)):
        outputs = _say(_NEW, _CLASSES)
        extreme = torch.full_like(outputs.logits, low)
        extreme[:, 1] = high
        _judge(detector, dataclasses.replace(outputs, logits=extreme), state)


def _check_decision(detector: Detector) -> None:
    state = _fit(detector, _say(_TRAIN, _CLASSES), _TRAIN, {})
    for outputs in (_say(_NEW, _CLASSES), _doubtful(torch.float32)):
        score, rejected = _judge(detector, outputs, state)
        taken, left = score[~rejected], score[rejected]
        agree = not len(taken) or not len(left) or bool(taken.max() <= left.min())
        _require(detector, agree, "whoever scores higher than a rejected vertex must be rejected too")


def _check_order(detector: Detector) -> None:
    train, new = _say(_TRAIN, _CLASSES, torch.float64), _doubtful(torch.float64)
    loss = detector.loss(train.logits, _TRAIN, _COUNTS)
    state = _fit(detector, train, _TRAIN, {})
    score, rejected = _judge(detector, new, state)

    again = _judge(detector, new, state)
    _require(detector, _near(score, again[0]) and rejected.equal(again[1]), "must judge alike when asked again")

    rows = torch.arange(len(new)).flip(0)
    moved = _judge(detector, _take(new, rows), state)
    _require(detector, _near(score[rows], moved[0]), "the score must not depend on the order of the vertices")
    _require(detector, rejected[rows].equal(moved[1]), "the decision must not depend on the order of the vertices")

    renamed, targets = _reorder(train), torch.argsort(_ORDER)[_TRAIN]
    other = detector.loss(renamed.logits, targets, _COUNTS[_ORDER])
    _require(detector, _near(loss, other), "the loss must not depend on the order of the classes")
    moved = _judge(detector, _reorder(new), _fit(detector, renamed, targets, {}))
    _require(detector, _near(score, moved[0]), "the score must not depend on the order of the classes")
    _require(detector, rejected.equal(moved[1]), "the decision must not depend on the order of the classes")


# --- vertices to try it on -------------------------------------------------------------------------------------------


def _say(targets: Tensor, classes: int, dtype: torch.dtype = torch.float32) -> Outputs:
    """What a good model says of vertices of these classes; of -1, that they are of no known class."""
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(len(targets), classes, generator=generator, dtype=torch.float64) - 5
    hidden = torch.randn(len(targets), _WIDTH, generator=generator, dtype=torch.float64) / 4
    known = torch.nonzero(targets >= 0).squeeze(1)
    logits[known, targets[known]] += 10
    hidden[torch.arange(len(targets)), targets] += 3  # -1 is the last column, where no known class is
    return Outputs(logits.to(dtype), hidden.to(dtype))


def _doubtful(dtype: torch.dtype) -> Outputs:
    """Vertices of which a model is more sure or less, so that some are near to any threshold."""
    clear = _say(_NEW.repeat(5), _CLASSES, dtype)
    sure = torch.linspace(0, 1, len(clear), dtype=dtype).unsqueeze(1)
    return dataclasses.replace(clear, logits=clear.logits * sure)


def _take(outputs: Outputs, rows: Tensor) -> Outputs:
    return Outputs(outputs.logits[rows], None if outputs.hidden is None else outputs.hidden[rows])


def _reorder(outputs: Outputs) -> Outputs:
    return dataclasses.replace(outputs, logits=outputs.logits[:, _ORDER])


# --- calls that look at what comes back ------------------------------------------------------------------------------


def _require(detector: Detector, kept: bool, rule: str) -> None:
    # Not an assert statement: python -O would drop it.
    if not kept:
        raise AssertionError(f"{detector!r}: {rule}")


def _call(detector: Detector, method: Callable[..., _Result], *arguments: Any) -> _Result:
    given = copy.deepcopy(arguments)  # so that a method which breaks the rule spoils nothing here
    result = method(*given)
    untouched = all(map(_unchanged, given, arguments))
    _require(detector, untouched, f"{method.__name__} must not change what it is given")
    return result


def _unchanged(now: Any, before: Any) -> bool:
    if isinstance(now, Outputs):
        return _unchanged(vars(now), vars(before))
    if isinstance(now, Mapping):
        return now.keys() == before.keys() and all(_unchanged(now[key], before[key]) for key in now)
    if isinstance(now, Tensor):
        return now.shape == before.shape and bool(((now == before) | (now.isnan() & before.isnan())).all())
    return now is None and before is None


def _fit(detector: Detector, outputs: Outputs, targets: Tensor, before: State) -> State:
    state = _call(detector, detector.fit, outputs, targets, before)
    flat = isinstance(state, Mapping) and all(isinstance(key, str) for key in state)
    flat = flat and all(isinstance(value, Tensor) and not value.requires_grad for value in state.values())
    _require(detector, flat, "the state must be a flat dict of tensors by name, without gradients")
    return state


def _judge(detector: Detector, outputs: Outputs, state: State) -> tuple[Tensor, Tensor]:
    score = _call(detector, detector.score, outputs, state)
    rejected = _call(detector, detector.reject, outputs, state)
    shape = (len(outputs),)
    _require(detector, score.shape == shape, f"the score of {shape[0]} vertices must have one number for each")
    _require(detector, score.dtype == torch.float64, "the score must be float64")
    _require(detector, bool(score.isfinite().all()), "the score must be finite")
    _require(detector, rejected.shape == shape, f"the decision on {shape[0]} vertices must have one for each")
    _require(detector, rejected.dtype == torch.bool, "the decision must be bool")
    return score, rejected


def _gradient(detector: Detector, loss: Tensor, logits: Tensor) -> Tensor:
    _require(detector, loss.requires_grad, "the loss must be a function of the logits that can be differentiated")
    (gradient,) = torch.autograd.grad(loss, logits, allow_unused=True)
    usable = gradient is not None and bool(gradient.isfinite().all())
    _require(detector, usable, "the gradient of the loss must be finite")
    return gradient


def _near(one: Tensor, other: Tensor) -> bool:
    return torch.allclose(one, other, rtol=_NEAR, atol=_NEAR)
