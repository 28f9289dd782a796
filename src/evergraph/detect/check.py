"""The conformance suite of detectors: `check_detector`."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from evergraph.detect.base import PAST, UNKNOWN, UNLABELLED, Decision, Detector, Outputs, Requirements, State
from evergraph.graph.adjacency import Adjacency
from evergraph.graph.evolving import EvolvingGraph, Window
from evergraph.inputs.slice_context import SliceContext
from evergraph.learning.task import Task

__all__ = ["check_detector"]

_CLASSES, _WIDTH = 5, 8
_TRAIN = torch.tensor([0] * 16 + [1] * 10 + [2] * 7 + [3] * 4 + [4] * 3)  # classes of unequal size
_NEW = torch.tensor([0, 1, 2, 3, 4] * 4 + [UNKNOWN] * 20)
_DOUBTFUL = _NEW.repeat(5)
_COUNTS = torch.bincount(_TRAIN, minlength=_CLASSES)
_ORDER = torch.tensor([3, 0, 4, 2, 1])
_NAMES = tuple(f"class {column}" for column in range(_CLASSES))
_OLDER = 3  # periods of the training vertices, before the slice
_NEAR = 1e-9


def check_detector(detector: Detector) -> None:
    """Check that a detector keeps the contract of `Detector`; call it in the tests of your own detector.

    It checks the loss (finite, lower for the right classes, weighted by vertex), also that of a required auxiliary
    model; the state (flat tensors; can be fitted again with more classes, or classes with one vertex or none); the
    score (float64, finite, higher for unseen vertices); the decision (agrees with the score); and that neither the
    order of classes, nor the order of vertices, nor earlier calls matter. Score, decision and order are checked twice:
    before and after the detector has observed a slice. The slices are part of a small graph in which each class has
    words and neighbours of its own.

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
    AssertionError: Upside(): unseen vertices must score higher on average than known ones
    """
    check = _Check(detector)
    check.settings()
    check.requirements()
    check.loss()
    check.weights()
    check.growth()
    for observed in (False, True):
        check.score_and_decision(observed)
        check.order(observed)


class _Check:
    """The checks of one detector. Lower-case helpers call its methods and check what they return."""

    def __init__(self, detector: Detector) -> None:
        self.detector = detector

    def require(self, kept: bool, rule: str) -> None:
        # Not an assert statement: python -O would drop it.
        if not kept:
            raise AssertionError(f"{self.detector!r}: {rule}")

    def settings(self) -> None:
        parameters = getattr(type(self.detector), "__dataclass_params__", None)
        frozen = parameters is not None and parameters.frozen
        self.require(frozen, "must be a frozen dataclass: what is fitted belongs in the state")
        twin = dataclasses.replace(self.detector)  # type: ignore[type-var]  # it is a dataclass
        self.require(twin == self.detector, "must equal a detector with the same settings")
        self.require(hash(twin) == hash(self.detector), "must have the hash of a detector with the same settings")
        self.require(repr(twin) == repr(self.detector), "must have the repr of a detector with the same settings")

    def requirements(self) -> None:
        needs = self.detector.requires
        self.require(isinstance(needs, Requirements), "requires must be Requirements")
        declared = needs.observe or type(self.detector).observe is Detector.observe
        self.require(declared, "observe is overridden, so requires.observe must be set")
        if needs.auxiliary is not None:
            self.require(isinstance(needs.auxiliary, Detector), "requires.auxiliary must be a detector or None")
            alone = needs.auxiliary.requires.auxiliary is None
            self.require(alone, "an auxiliary model must not require another one")
            other = _Check(needs.auxiliary)
            other.settings()
            other.loss()
            other.weights()

    def loss(self) -> None:
        right, loss = _outputs(_TRAIN, _CLASSES).logits, self.detector.loss
        low = self.call(loss, right, _TRAIN, _COUNTS)
        self.require(low.shape == (), "the loss must be a scalar")
        for shift in range(1, _CLASSES):
            wrong = right.roll(shift, dims=1)
            high = self.call(loss, wrong, _TRAIN, _COUNTS)
            self.require(bool(low.isfinite() and high.isfinite()), "the loss must be finite")
            self.require(bool(low < high), "the loss must be lower if the right classes have the largest logits")

        start = wrong.double().requires_grad_()
        value = loss(start, _TRAIN, _COUNTS)
        slope = self.gradient(value, start)
        step = start.detach() - 1e-3 * slope / slope.norm().clamp(min=1e-300)  # at any scale of the loss
        self.require(bool(loss(step, _TRAIN, _COUNTS) < value), "a short step against the gradient must lower the loss")

        for counts in ([40], [40, 0, 0], [39, 1, 0]):
            targets = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
            logits = _outputs(targets, len(counts)).logits.requires_grad_()
            value = loss(logits, targets, torch.tensor(counts))
            self.require(bool(value.isfinite()), f"the loss must be finite if the classes have {counts} vertices")
            self.gradient(value, logits)

    def gradient(self, loss: Tensor, logits: Tensor) -> Tensor:
        self.require(loss.requires_grad, "the loss must be differentiable with respect to the logits")
        (gradient,) = torch.autograd.grad(loss, logits, allow_unused=True)
        finite = gradient is not None and bool(gradient.isfinite().all())
        self.require(finite, "the gradient of the loss must be finite")
        return gradient

    def weights(self) -> None:
        logits, loss = _outputs(_TRAIN, _CLASSES, torch.float64).logits.roll(1, dims=1), self.detector.loss
        times = torch.arange(len(_TRAIN)) % 3
        weights, there = times.double(), times > 0
        value = self.call(loss, logits, _TRAIN, _COUNTS, weights)
        self.require(value.shape == () and bool(value.isfinite()), "the weighted loss must be a finite scalar")
        absent = loss(logits[there], _TRAIN[there], _COUNTS, weights[there])
        self.require(_near(value, absent), "the loss must ignore vertices of weight 0")
        twice = loss(logits, _TRAIN, _COUNTS, 2 * weights)
        self.require(_near(value, twice), "the loss must not change if all weights are doubled")
        copies = loss(logits.repeat_interleave(times, 0), _TRAIN.repeat_interleave(times), _COUNTS)
        self.require(_near(value, copies), "the loss must count a vertex of weight 2 as two vertices")

    def growth(self) -> None:
        """Classes appear and leave the window, before and after labels were observed."""
        known = _TRAIN[_TRAIN < 3]
        first = self.fit(_outputs(known, 3), known, {})
        # Two more classes, one of them with a single vertex and one with none; class 0 has left the window.
        later = torch.tensor([1] * 9 + [2] * 6 + [3])
        for before in (first, {}):
            self.decide(_slice(_NEW, _CLASSES), self.fit(_outputs(later, _CLASSES), later, before))
        seen = self.observe(_slice(_NEW, 3), _labels(_NEW, 3), first)
        self.decide(_slice(_NEW, 3), seen)
        past = {name: value for name, value in seen.items() if name.startswith(PAST)}
        for kept in (seen, past):  # a warm and a cold restart, with two more classes
            state: State = {**past, **self.fit(_outputs(_TRAIN, _CLASSES), _TRAIN, kept)}
            self.decide(_slice(_NEW, _CLASSES), state)
            state = self.observe(_slice(_NEW, _CLASSES), _labels(_NEW, _CLASSES), state)
            self.decide(_slice(_NEW, _CLASSES), state)
        for targets in (_NEW[_NEW >= 0], _NEW[_NEW < 0]):  # slices without and with unseen vertices only
            state = self.observe(_slice(targets, _CLASSES), targets, state)
            self.decide(_slice(_NEW, _CLASSES), state)

    def score_and_decision(self, observed: bool) -> None:
        state = self.fit(_outputs(_TRAIN, _CLASSES), _TRAIN, {})
        if observed:
            state = self.observe(_slice(_NEW, _CLASSES), _labels(_NEW, _CLASSES), state)
        outputs = _slice(_NEW, _CLASSES)
        score, _ = self.decide(outputs, state)
        upwards = bool(score[_NEW < 0].mean() > score[_NEW >= 0].mean())
        self.require(upwards, "unseen vertices must score higher on average than known ones")
        self.decide(_slice(_NEW[:0], _CLASSES), state)
        for low, high in ((-1e4, 1e4), (-1e4, -1e4), (1e4, 1e4)):
            extreme = torch.full_like(outputs.logits, low)
            extreme[:, 1] = high
            self.decide(dataclasses.replace(outputs, logits=extreme), state)
            if self.detector.requires.auxiliary is not None:
                self.decide(dataclasses.replace(outputs, auxiliary_logits=extreme), state)
        for given in (outputs, _doubtful(torch.float32)):
            score, flagged = self.decide(given, state)
            low_scores, high_scores = score[~flagged], score[flagged]
            agree = not len(low_scores) or not len(high_scores) or bool(low_scores.max() <= high_scores.min())
            self.require(agree, "a vertex that scores higher than a flagged one must be flagged, too")

    def order(self, observed: bool) -> None:
        train, new = _outputs(_TRAIN, _CLASSES, torch.float64), _doubtful(torch.float64, 0.1 if observed else 0.0)
        decided, labels = _slice(_NEW, _CLASSES, torch.float64), _labels(_NEW, _CLASSES)
        loss = self.detector.loss(train.logits, _TRAIN, _COUNTS)
        fitted = self.fit(train, _TRAIN, {})
        state = self.observe(decided, labels, fitted) if observed else fitted
        score, flagged = self.decide(new, state)
        again = self.decide(new, state)
        self.require(_near(score, again[0]) and flagged.equal(again[1]), "must decide the same in a second call")

        def alike(one: tuple[Tensor, Tensor], other: tuple[Tensor, Tensor], what: str) -> None:
            self.require(_near(one[0], other[0]), f"the score must not depend on the order of the {what}")
            self.require(one[1].equal(other[1]), f"the decision must not depend on the order of the {what}")

        alike((score.flip(0), flagged.flip(0)), self.decide(_flip(new, _DOUBTFUL), state), "vertices")
        if observed:
            moved = self.observe(_flip(decided, _NEW), labels.flip(0), fitted)
            alike((score, flagged), self.decide(new, moved), "vertices observed")

        renamed, column = _reorder(train), torch.argsort(_ORDER)
        other = self.detector.loss(renamed.logits, column[_TRAIN], _COUNTS[_ORDER])
        self.require(_near(loss, other), "the loss must not depend on the order of the classes")
        moved = self.fit(renamed, column[_TRAIN], {})
        if observed:
            moved = self.observe(_reorder(decided), torch.where(labels >= 0, column[labels], labels), moved)
        alike((score, flagged), self.decide(_reorder(new), moved), "classes")

    # --- calls, with checks of what they return ---

    def fit(self, outputs: Outputs, targets: Tensor, before: State) -> State:
        return self.flat(self.call(self.detector.fit, outputs, targets, before))

    def observe(self, outputs: Outputs, targets: Tensor, before: State) -> State:
        return self.flat(self.call(self.detector.observe, outputs, targets, before))

    def flat(self, state: State) -> State:
        flat = isinstance(state, Mapping) and all(
            isinstance(name, str) and isinstance(value, Tensor) and not value.requires_grad
            for name, value in state.items()
        )
        self.require(flat, "the state must be a flat dict of tensors by name, without gradients")
        return state

    def decide(self, outputs: Outputs, state: State) -> tuple[Tensor, Tensor]:
        decision = self.call(self.detector.decide, outputs, state)
        self.require(isinstance(decision, Decision), "decide must return a Decision of score and flagged")
        score, flagged = decision
        number = len(outputs)
        self.require(score.shape == (number,), f"the score of {number} vertices must have one number for each")
        self.require(score.dtype == torch.float64, "the score must be float64")
        self.require(bool(score.isfinite().all()), "the score must be finite")
        self.require(flagged.shape == (number,), f"the decision on {number} vertices must have one flag for each")
        self.require(flagged.dtype == torch.bool, "the decision must be bool")
        return score, flagged

    def call(self, method: Callable[..., Any], *arguments: Any) -> Any:
        if self.detector.requires.auxiliary is None:
            arguments = tuple(
                dataclasses.replace(given, auxiliary_logits=None) if isinstance(given, Outputs) else given
                for given in arguments
            )
        contexts = [given.context for given in arguments if isinstance(given, Outputs) and given.context is not None]
        shared: dict[int, Any] = {id(context.task.graph): context.task.graph for context in contexts}  # immutable
        given = copy.deepcopy(arguments, shared)  # so that a method that breaks the rule changes nothing here
        result = method(*given)
        self.require(_unchanged(given, arguments), f"{method.__name__} must not change what it is given")
        return result


# --- sample vertices -------------------------------------------------------------------------------------------------


def _outputs(targets: Tensor, classes: int, dtype: torch.dtype = torch.float32) -> Outputs:
    """Outputs of a good model for vertices of these classes."""
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(len(targets), classes, generator=generator, dtype=torch.float64) - 5
    hidden = torch.randn(len(targets), _WIDTH, generator=generator, dtype=torch.float64) / 4
    known = torch.nonzero(targets >= 0).squeeze(1)
    logits[known, targets[known]] += 10
    hidden[torch.arange(len(targets)), targets] += 3  # UNKNOWN is the last column, where no known class is
    auxiliary = logits / 2 + torch.randn(logits.shape, generator=generator, dtype=torch.float64) / 4
    return Outputs(logits.to(dtype), hidden.to(dtype), auxiliary_logits=auxiliary.to(dtype))


def _slice(targets: Tensor, classes: int, dtype: torch.dtype = torch.float32) -> Outputs:
    """Outputs for a whole slice, with context; classes from ``classes`` on are unseen, too."""
    outputs = _outputs(torch.where(targets < classes, targets, UNKNOWN), classes, dtype)
    return dataclasses.replace(outputs, context=_context(tuple(targets.tolist()), _NAMES[:classes]))


def _labels(targets: Tensor, classes: int) -> Tensor:
    """Targets of a slice when it is observed: some vertices have no label yet."""
    known = torch.where(targets < classes, targets, UNKNOWN)
    return torch.where(torch.arange(len(targets)) % 7 == 3, UNLABELLED, known)


@cache
def _context(targets: tuple[int, ...], classes: tuple[str, ...], flip: bool = False) -> SliceContext:
    """A slice of vertices of these classes, after the training vertices; ``flip`` reverses the rows of the slice."""
    columns, older, rng = np.array([*_TRAIN.tolist(), *targets]), len(_TRAIN), np.random.default_rng(1)
    texts, edges = [], []
    for row, column in enumerate(columns.tolist()):  # some vertices have no words, and some no neighbours
        number = int(rng.integers(0, 5))
        own, common = rng.choice(14, number, replace=False), rng.choice(6, number // 2, replace=False)
        texts.append(" ".join([*(f"{'abcdez'[column]}{word}" for word in own), *(f"any{word}" for word in common)]))
        same = np.flatnonzero(columns == column)
        first = same[same < older]
        near = [*rng.choice(first, min(1, len(first))), *rng.choice(same, int(rng.integers(0, 3)))]
        edges += [(row, int(other)) for other in near if rng.random() < 0.8]
    rows = np.arange(len(columns))
    times = np.where(rows < older, rows % _OLDER, _OLDER)
    rows[older:] = rows[older:][:: -1 if flip else 1].copy()
    names = [_NAMES[column] if column >= 0 else "an unseen class" for column in columns[rows].tolist()]
    vertices = {"id": rows, "time": times, "label": names, "text": [texts[row] for row in rows.tolist()]}
    return SliceContext(Task(EvolvingGraph.build(vertices, np.array(edges)), _OLDER, history=1), classes)


def _doubtful(dtype: torch.dtype, least: float = 0.0) -> Outputs:
    """Outputs of a model that is more and more certain, so that some vertices are near any threshold.

    If the least certainty is 0, all logits of the first vertex are 0, so that it has no predicted class. Detectors that
    have observed a slice may depend on the predicted class; then the least must be above 0.
    """
    clear = _slice(_DOUBTFUL, _CLASSES, dtype)
    sure = torch.linspace(least, 1, len(clear), dtype=dtype).unsqueeze(1)
    auxiliary = None if clear.auxiliary_logits is None else clear.auxiliary_logits * sure
    return dataclasses.replace(clear, logits=clear.logits * sure, auxiliary_logits=auxiliary)


def _flip(outputs: Outputs, targets: Tensor) -> Outputs:
    """Outputs for the vertices of a slice in reverse order, also in the graph."""
    context = _context(tuple(targets.tolist()), _NAMES[: outputs.logits.shape[1]], flip=True)
    return dataclasses.replace(outputs[torch.arange(len(outputs)).flip(0)], context=context)


def _reorder(outputs: Outputs) -> Outputs:
    """The same outputs with the classes in another order."""
    context = outputs.context
    if context is not None:
        context = dataclasses.replace(context, classes=tuple(context.classes[column] for column in _ORDER.tolist()))
    auxiliary = None if outputs.auxiliary_logits is None else outputs.auxiliary_logits[:, _ORDER]
    return dataclasses.replace(outputs, logits=outputs.logits[:, _ORDER], context=context, auxiliary_logits=auxiliary)


def _near(one: Tensor, other: Tensor) -> bool:
    return torch.allclose(one, other, rtol=_NEAR, atol=_NEAR)


def _unchanged(now: Any, before: Any) -> bool:
    if now is before:
        return True
    if isinstance(now, (Outputs, SliceContext, Task, Window, Adjacency)):
        # Cached properties that were computed for the copy only are computed for the original by getattr.
        return all(_unchanged(value, getattr(before, name)) for name, value in vars(now).items())
    if isinstance(now, Mapping):
        return now.keys() == before.keys() and all(_unchanged(now[key], before[key]) for key in now)
    if isinstance(now, Tensor):
        return np.array_equal(now.numpy(), before.numpy(), equal_nan=True)
    if isinstance(now, sparse.csr_array):
        return all(_unchanged(getattr(now, name), getattr(before, name)) for name in ("indptr", "indices", "data"))
    if isinstance(now, np.ndarray):
        return np.array_equal(now, before)
    if isinstance(now, tuple):
        return len(now) == len(before) and all(map(_unchanged, now, before))
    return bool(now == before)
