"""The conformance suite of detectors: what every one must do, whoever wrote it."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from evergraph.detect.base import PAST, UNKNOWN, UNLABELLED, Decision, Detector, Outputs, Requirements, State
from evergraph.graph.adjacency import Adjacency
from evergraph.graph.evolving import EvolvingGraph
from evergraph.graph.ids import take
from evergraph.graph.window import Window
from evergraph.inputs.slice_context import SliceContext
from evergraph.learning.task import Task

__all__ = ["check_detector"]

_CLASSES, _WIDTH = 5, 8
_TRAIN = torch.tensor([0] * 16 + [1] * 10 + [2] * 7 + [3] * 4 + [4] * 3)  # classes are of unequal size, as ever
_NEW = torch.tensor([0, 1, 2, 3, 4] * 4 + [-1] * 20)  # -1: of a class that was never seen
_COUNTS = torch.bincount(_TRAIN, minlength=_CLASSES)
_ORDER = torch.tensor([3, 0, 4, 2, 1])
_NAMES = tuple(f"class {column}" for column in range(_CLASSES))
_OLDER = 3  # times of the training vertices; the slice comes after them
_NEAR = 1e-9

_Result = TypeVar("_Result")


def check_detector(detector: Detector) -> None:
    """Check that a detector keeps the contract of `Detector`; call it in the tests of your own detector.

    It looks at the loss (finite, downhill to the right classes, honours the vertices' weights), also that of
    the auxiliary model, whose logits it is given if it requires one; the state (flat tensors; can be fitted again when
    there are more classes, or classes with one vertex or none), the score (float64, finite, up = more unseen), the
    decision (agrees with the score), and at what must not matter: the order of classes and of vertices, and that it was
    called before. All of it is asked again once the detector has observed. Slices stand in a small graph, in which
    each class has words and neighbours of its own, the unseen one too.

    Raises
    ------
    AssertionError
        With the detector and the first rule that it breaks.

    Examples
    --------
    >>> from evergraph.detect import GDOC, Softmax
    >>> check_detector(GDOC(alpha=3.0))
    >>> class Upside(Softmax):
    ...     def decide(self, outputs, state):
    ...         score, flagged = super().decide(outputs, state)
    ...         return Decision(-score, flagged)
    >>> check_detector(Upside())
    Traceback (most recent call last):
    AssertionError: Upside(): vertices that are like no class must score higher on average than clear ones
    """
    _check_value(detector)
    _check_requirements(detector)
    _check_loss(detector)
    _check_weights(detector)
    _check_state(detector)
    _check_hindcontext(detector)
    for observed in (False, True):
        _check_score(detector, observed)
        _check_decision(detector, observed)
        _check_order(detector, observed)


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


def _check_requirements(detector: Detector) -> None:
    needs = detector.requires
    _require(detector, isinstance(needs, Requirements), "requires must be Requirements")
    declared = needs.observe or type(detector).observe is Detector.observe
    _require(detector, declared, "observe is overridden, so requires.observe must be set")
    other = needs.auxiliary
    if other is not None:
        _require(detector, isinstance(other, Detector), "requires.auxiliary must be a detector, or None")
        _require(detector, other.requires.auxiliary is None, "an auxiliary model must not require another one")
        _check_value(other)
        _check_loss(other)
        _check_weights(other)


def _check_state(detector: Detector) -> None:
    known = _TRAIN[_TRAIN < 3]
    first = _fit(detector, _say(known, 3), known, {})
    # Then there are two classes more, one of them with a single vertex and one with none, and class 0 has left.
    later = torch.tensor([1] * 9 + [2] * 6 + [3])
    for before in (first, {}):
        state = _fit(detector, _say(later, _CLASSES), later, before)
        _judge(detector, _show(_NEW, _CLASSES), state)


def _check_hindcontext(detector: Detector) -> None:
    known = _TRAIN[_TRAIN < 3]
    first = _fit(detector, _say(known, 3), known, {})
    before = _observe(detector, _show(_NEW, 3), _came(_NEW, 3), first)
    _judge(detector, _show(_NEW, 3), before)
    past = {name: value for name, value in before.items() if name.startswith(PAST)}
    for kept in (before, past):  # a warm restart and a cold one, with two classes more
        state: State = {**past, **_fit(detector, _say(_TRAIN, _CLASSES), _TRAIN, kept)}
        _judge(detector, _show(_NEW, _CLASSES), state)
        state = _observe(detector, _show(_NEW, _CLASSES), _came(_NEW, _CLASSES), state)
        _judge(detector, _show(_NEW, _CLASSES), state)
    for targets in (_NEW[_NEW >= 0], _NEW[_NEW < 0]):  # nothing was unseen, then all was
        state = _observe(detector, _show(targets, _CLASSES), targets, state)
        _judge(detector, _show(_NEW, _CLASSES), state)


def _check_score(detector: Detector, observed: bool) -> None:
    state = _lived(detector, observed)
    score, _ = _judge(detector, _show(_NEW, _CLASSES), state)
    upwards = bool(score[_NEW < 0].mean() > score[_NEW >= 0].mean())
    _require(detector, upwards, "vertices that are like no class must score higher on average than clear ones")
    _judge(detector, _show(_NEW[:0], _CLASSES), state)
    for low, high in ((-1e4, 1e4), (-1e4, -1e4), (1e4, 1e4)):
        outputs = _show(_NEW, _CLASSES)
        extreme = torch.full_like(outputs.logits, low)
        extreme[:, 1] = high
        _judge(detector, dataclasses.replace(outputs, logits=extreme), state)
        if detector.requires.auxiliary is not None:
            _judge(detector, dataclasses.replace(outputs, auxiliary_logits=extreme), state)


def _check_decision(detector: Detector, observed: bool) -> None:
    state = _lived(detector, observed)
    for outputs in (_show(_NEW, _CLASSES), _doubtful(torch.float32)):
        score, flagged = _judge(detector, outputs, state)
        taken, left = score[~flagged], score[flagged]
        agree = not len(taken) or not len(left) or bool(taken.max() <= left.min())
        _require(detector, agree, "a vertex that scores higher than a flagged one must be flagged, too")


def _check_order(detector: Detector, observed: bool) -> None:
    train, new = _say(_TRAIN, _CLASSES, torch.float64), _doubtful(torch.float64, 0.1 if observed else 0.0)
    decided, came = _show(_NEW, _CLASSES, torch.float64), _came(_NEW, _CLASSES)
    loss = detector.loss(train.logits, _TRAIN, _COUNTS)
    fitted = _fit(detector, train, _TRAIN, {})
    state = _observe(detector, decided, came, fitted) if observed else fitted
    score, flagged = _judge(detector, new, state)

    again = _judge(detector, new, state)
    _require(detector, _near(score, again[0]) and flagged.equal(again[1]), "must judge alike when asked again")

    def alike(one: tuple[Tensor, Tensor], other: tuple[Tensor, Tensor], what: str) -> None:
        _require(detector, _near(one[0], other[0]), f"the score must not depend on the order of the {what}")
        _require(detector, one[1].equal(other[1]), f"the decision must not depend on the order of the {what}")

    rows = torch.arange(len(new)).flip(0)
    alike((score[rows], flagged[rows]), _judge(detector, _take(new, rows), state), "vertices")
    if observed:
        rows = torch.arange(len(decided)).flip(0)
        moved = _observe(detector, _take(decided, rows), came[rows], fitted)
        alike((score, flagged), _judge(detector, new, moved), "vertices observed")

    renamed, column = _reorder(train), torch.argsort(_ORDER)
    other = detector.loss(renamed.logits, column[_TRAIN], _COUNTS[_ORDER])
    _require(detector, _near(loss, other), "the loss must not depend on the order of the classes")
    moved = _fit(detector, renamed, column[_TRAIN], {})
    if observed:
        targets = torch.where(came >= 0, column[came], came)
        moved = _observe(detector, _reorder(decided), targets, moved)
    alike((score, flagged), _judge(detector, _reorder(new), moved), "classes")


# --- vertices to try it on -------------------------------------------------------------------------------------------


def _say(targets: Tensor, classes: int, dtype: torch.dtype = torch.float32) -> Outputs:
    """What a good model says of vertices of these classes; of -1, that they are of no known class."""
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(len(targets), classes, generator=generator, dtype=torch.float64) - 5
    hidden = torch.randn(len(targets), _WIDTH, generator=generator, dtype=torch.float64) / 4
    known = torch.nonzero(targets >= 0).squeeze(1)
    logits[known, targets[known]] += 10
    hidden[torch.arange(len(targets)), targets] += 3  # -1 is the last column, where no known class is
    auxiliary = logits / 2 + torch.randn(logits.shape, generator=generator, dtype=torch.float64) / 4
    return Outputs(logits.to(dtype), hidden.to(dtype), auxiliary_logits=auxiliary.to(dtype))


def _show(targets: Tensor, classes: int, dtype: torch.dtype = torch.float32) -> Outputs:
    """The same of a whole slice, and the graph to look at; classes from ``classes`` on are not known either."""
    outputs = _say(torch.where(targets < classes, targets, UNKNOWN), classes, dtype)
    return dataclasses.replace(outputs, context=_context(tuple(targets.tolist()), _NAMES[:classes]))


@cache
def _context(targets: tuple[int, ...], classes: tuple[str, ...]) -> SliceContext:
    """A slice of vertices of these classes, after the training vertices: to look at, not to touch."""
    columns = np.array([*_TRAIN.tolist(), *targets])
    older = np.arange(len(columns)) < len(_TRAIN)
    times = np.where(older, np.arange(len(columns)) % _OLDER, _OLDER)
    rng = np.random.default_rng(1)
    texts = [" ".join(_words(rng, column)) for column in columns.tolist()]
    edges = [(row, other) for row in range(len(columns)) for other in _neighbours(rng, row, columns, older)]
    names = [_NAMES[column] if column >= 0 else "a class that was never seen" for column in columns.tolist()]
    vertices = {"id": np.arange(len(columns)), "time": times, "label": names, "text": texts}
    return SliceContext(Task(EvolvingGraph.build(vertices, np.array(edges)), _OLDER, history=1), classes)


def _words(rng: np.random.Generator, column: int) -> list[str]:
    """Words of the class and words of everybody; some vertices have none, and some have the same."""
    own = [f"{'new' if column < 0 else 'abcde'[column]}{number}" for number in range(14)]
    everybody = [f"any{number}" for number in range(6)]
    number = int(rng.integers(0, 5))
    return [*rng.choice(own, number, replace=False), *rng.choice(everybody, number // 2, replace=False)]


def _neighbours(rng: np.random.Generator, row: int, columns: NDArray[np.int64], older: NDArray[np.bool_]) -> list[int]:
    """Vertices of its class: one of the training vertices, if there are, and up to two whenever they came."""
    alike = columns == columns[row]
    first, any_of = np.flatnonzero(alike & older), np.flatnonzero(alike)
    found = [*rng.choice(first, min(1, len(first))), *rng.choice(any_of, int(rng.integers(0, 3)))]
    return [int(other) for other in found if rng.random() < 0.8]  # so that some have none


def _came(targets: Tensor, classes: int) -> Tensor:
    """What is known of a slice when it is observed: the labels of some vertices have not come."""
    known = torch.where(targets < classes, targets, UNKNOWN)
    return torch.where(torch.arange(len(targets)) % 7 == 3, UNLABELLED, known)


def _doubtful(dtype: torch.dtype, least: float = 0.0) -> Outputs:
    """Vertices of which a model is more sure or less, so that some are near to any threshold.

    Of the first it says nothing, if the least is 0. What was decided of the past may go by predicted classes, and of
    that one any may be predicted.
    """
    clear = _show(_NEW.repeat(5), _CLASSES, dtype)
    sure = torch.linspace(least, 1, len(clear), dtype=dtype).unsqueeze(1)
    auxiliary = None if clear.auxiliary_logits is None else clear.auxiliary_logits * sure
    return dataclasses.replace(clear, logits=clear.logits * sure, auxiliary_logits=auxiliary)


def _take(outputs: Outputs, rows: Tensor) -> Outputs:
    """The same vertices in another order; in the graph, too."""
    context = outputs.context
    if context is not None:
        graph = context.task.graph
        order = np.append(np.arange(context.start), context.start + rows.numpy())
        place = np.argsort(order)
        source, target, _ = graph.links.ends()
        features = None if graph.features is None else graph.features.take(order)
        ends = (place[source], place[target], None)
        parts = (take(graph.ids, order), graph.times[order], graph.codes[order], graph.class_names, features, ends)
        moved = EvolvingGraph.assemble(*parts, graph.axis, graph.about)
        context = dataclasses.replace(context, task=dataclasses.replace(context.task, graph=moved))
    return dataclasses.replace(outputs[rows], context=context)


def _reorder(outputs: Outputs) -> Outputs:
    """The same of classes in another order."""
    context = outputs.context
    if context is not None:
        context = dataclasses.replace(context, classes=tuple(context.classes[column] for column in _ORDER.tolist()))
    auxiliary = None if outputs.auxiliary_logits is None else outputs.auxiliary_logits[:, _ORDER]
    return dataclasses.replace(outputs, logits=outputs.logits[:, _ORDER], context=context, auxiliary_logits=auxiliary)


# --- calls that look at what comes back ------------------------------------------------------------------------------


def _require(detector: Detector, kept: bool, rule: str) -> None:
    # Not an assert statement: python -O would drop it.
    if not kept:
        raise AssertionError(f"{detector!r}: {rule}")


def _call(detector: Detector, method: Callable[..., _Result], *arguments: Any) -> _Result:
    seen = [given.context for given in arguments if isinstance(given, Outputs) and given.context is not None]
    shared: dict[int, Any] = {id(context.task.graph): context.task.graph for context in seen}  # which cannot be changed
    if detector.requires.auxiliary is None:
        arguments = tuple(
            dataclasses.replace(given, auxiliary_logits=None) if isinstance(given, Outputs) else given
            for given in arguments
        )
    given = copy.deepcopy(arguments, shared)  # so that a method which breaks the rule spoils nothing here
    result = method(*given)
    untouched = all(map(_unchanged, given, arguments))
    _require(detector, untouched, f"{method.__name__} must not change what it is given")
    return result


def _unchanged(now: Any, before: Any) -> bool:
    if now is before:
        return True
    if isinstance(now, (Outputs, SliceContext, Task, Window, Adjacency)):
        # What is worked out when it is asked for, and kept, is worked out for the original, too.
        return all(_unchanged(value, getattr(before, name)) for name, value in vars(now).items())
    if isinstance(now, Mapping):
        return now.keys() == before.keys() and all(_unchanged(now[key], before[key]) for key in now)
    if isinstance(now, Tensor):
        return now.shape == before.shape and bool(((now == before) | (now.isnan() & before.isnan())).all())
    if isinstance(now, sparse.csr_array):
        return all(_unchanged(getattr(now, name), getattr(before, name)) for name in ("indptr", "indices", "data"))
    if isinstance(now, np.ndarray):
        return np.array_equal(now, before)
    if isinstance(now, tuple):
        return len(now) == len(before) and all(map(_unchanged, now, before))
    return bool(now == before)


def _fit(detector: Detector, outputs: Outputs, targets: Tensor, before: State) -> State:
    return _flat(detector, _call(detector, detector.fit, outputs, targets, before))


def _observe(detector: Detector, outputs: Outputs, targets: Tensor, before: State) -> State:
    return _flat(detector, _call(detector, detector.observe, outputs, targets, before))


def _lived(detector: Detector, observed: bool) -> State:
    """The state to judge with: after training, and perhaps after a slice was observed."""
    state = _fit(detector, _say(_TRAIN, _CLASSES), _TRAIN, {})
    if observed:
        state = _observe(detector, _show(_NEW, _CLASSES), _came(_NEW, _CLASSES), state)
    return state


def _flat(detector: Detector, state: State) -> State:
    flat = isinstance(state, Mapping) and all(isinstance(key, str) for key in state)
    flat = flat and all(isinstance(value, Tensor) and not value.requires_grad for value in state.values())
    _require(detector, flat, "the state must be a flat dict of tensors by name, without gradients")
    return state


def _judge(detector: Detector, outputs: Outputs, state: State) -> tuple[Tensor, Tensor]:
    decision = _call(detector, detector.decide, outputs, state)
    _require(detector, isinstance(decision, Decision), "decide must return a Decision of score and flagged")
    score, flagged = decision
    shape = (len(outputs),)
    _require(detector, score.shape == shape, f"the score of {shape[0]} vertices must have one number for each")
    _require(detector, score.dtype == torch.float64, "the score must be float64")
    _require(detector, bool(score.isfinite().all()), "the score must be finite")
    _require(detector, flagged.shape == shape, f"the decision on {shape[0]} vertices must have one for each")
    _require(detector, flagged.dtype == torch.bool, "the decision must be bool")
    return score, flagged


def _gradient(detector: Detector, loss: Tensor, logits: Tensor) -> Tensor:
    _require(detector, loss.requires_grad, "the loss must be a function of the logits that can be differentiated")
    (gradient,) = torch.autograd.grad(loss, logits, allow_unused=True)
    usable = gradient is not None and bool(gradient.isfinite().all())
    _require(detector, usable, "the gradient of the loss must be finite")
    return gradient


def _near(one: Tensor, other: Tensor) -> bool:
    return torch.allclose(one, other, rtol=_NEAR, atol=_NEAR)
