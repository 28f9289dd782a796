"""`OutlierExposure` and `Objectosphere`: confidence learnt from vertices that were unseen when they were decided."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812  # the name that everyone gives it

from evergraph.detect import Outputs, Requirements
from evergraph.detect.base import PAST, UNKNOWN, State, set_number
from evergraph.detect.scores import MSP, Score
from evergraph_baselines.vectors import SAMPLE, fitted, newton, spread, vectors_of

__all__ = ["Exposed", "Gained", "Objectosphere", "OutlierExposure"]

_FAR = 4.0  # standard deviations; features beyond it are clipped
_MOST = 4.0  # largest logarithm of a gain
_RIDGE = 1e-2  # of the weights of the gain
_NAMES = ("features", "logits", "lengths", "unseen")


@dataclass(frozen=True, eq=False)
class Exposed:
    """Vertices of past slices as the model decided them: at most 1,000 of known classes and 1,000 unseen ones.

    Parameters
    ----------
    features
        Standardised features of each vertex, one row per vertex.
    logits
        In descending order, but the first is that of the true class of a vertex of a known class. NaN fills up the rows
        of slices with fewer classes. So neither the order of the classes nor their number matters.
    lengths
        Length of the hidden vector, relative to the training vertices.
    unseen
        Whether the class was unseen.
    """

    features: Tensor
    logits: Tensor
    lengths: Tensor
    unseen: Tensor

    @classmethod
    def of(cls, state: State) -> Exposed | None:
        """The vertices in a state; None if there are none."""
        names = [f"{PAST}exposed_{name}" for name in _NAMES]
        return cls(*(state[name] for name in names)) if names[0] in state else None

    def as_state(self) -> dict[str, Tensor]:
        """The vertices as part of a state, which survives cold restarts."""
        return {f"{PAST}exposed_{name}": getattr(self, name) for name in _NAMES}

    def grown(self, before: Exposed | None) -> Exposed:
        """These vertices and earlier ones, without some if there are too many."""
        parts = {name: getattr(self, name) for name in _NAMES}
        if before is not None:
            wide = max(self.logits.shape[1], before.logits.shape[1])
            for name, new in parts.items():
                both = [getattr(before, name).to(new), new]
                if name == "logits":
                    both = [F.pad(one, (0, wide - one.shape[1]), value=torch.nan) for one in both]
                parts[name] = torch.cat(both)
        rows = [torch.nonzero(parts["unseen"] == value).flatten() for value in (False, True)]
        kept = torch.cat([part[spread(parts["logits"][part], SAMPLE // 2)] for part in rows]).sort().values
        return Exposed(**{name: value[kept] for name, value in parts.items()})


class Gained(Score):
    """Base class of scores with a gain of the logits, g = exp(w · z + b), that unseen vertices of past slices train.

    Training with outliers, as the sources do, is not possible here. A detector's loss gets labelled vertices of known
    classes only. And when the labels of an unseen class arrive, the class becomes known, so that training would have to
    learn its vertices and to be uncertain about them. Therefore the loss of the source trains only the gain, on the
    vertices of past slices as the model decided them, before it knew their classes.

    z are four numbers that have the same meaning for any model and any number of classes: the largest logit, its
    distance from the second largest, the standard deviation of the logits, and the length of the hidden vector, each in
    standard deviations from its mean on the training vertices. Without unseen vertices in the past, the gain is 1.

    The state is ``mean`` and ``sd`` of the features, ``length``, the mean length, ``gain`` (w and b), and the parts of
    `Exposed` under names that start with ``past.exposed``.
    """

    @property
    def requires(self) -> Requirements:
        return Requirements(observe=True)

    @abstractmethod
    def loss(self, gains: Tensor, past: Exposed) -> Tensor:
        """The source's loss of vertices of past slices, given the gain of each."""

    def fit(self, outputs: Outputs, targets: Tensor, state: State) -> State:  # noqa: ARG002
        features = _features(outputs)
        sd, length = features.std(0, correction=0), features[:, -1].mean()
        found = {"mean": features.mean(0), "sd": torch.where(sd > 0, sd, 1), "gain": self._gain(Exposed.of(state))}
        found["length"] = torch.where(length > 0, length, 1)
        return {name: value.to(outputs.logits.device) for name, value in found.items()}

    def observe(self, outputs: Outputs, targets: Tensor, state: State) -> State:
        rows = torch.nonzero((targets >= 0) | (targets == UNKNOWN)).flatten()
        if not len(rows):
            return {}
        x, of = outputs.logits.double()[rows], targets[rows]
        first = torch.where(of >= 0, of, x.argmax(1)).unsqueeze(1)
        others = x.scatter(1, first, -torch.inf).sort(1, descending=True).values[:, :-1]
        logits = torch.cat([x.gather(1, first), others], 1)
        part = outputs[rows]
        new = Exposed(_standardised(part, state), logits, lengths(part, state), of == UNKNOWN)
        return new.grown(Exposed.of(state)).as_state()

    def gains(self, outputs: Outputs, state: State) -> Tensor:
        """The gain of each vertex."""
        return _gains(_standardised(outputs, state), fitted(state, "gain").to(outputs.logits.device))

    def probability(self, outputs: Outputs, state: State) -> Tensor:
        """1 minus the largest probability after the gain."""
        return MSP().compute(Outputs(outputs.logits.double() * self.gains(outputs, state).unsqueeze(1)), {})

    def _gain(self, past: Exposed | None) -> Tensor:
        start = torch.zeros(5, dtype=torch.float64)
        if past is None or past.unseen.all() or not past.unseen.any():
            return start
        here = Exposed(*(getattr(past, name).cpu() for name in _NAMES))

        def objective(gain: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            gain = gain.detach().requires_grad_()
            value = self.loss(_gains(here.features, gain), here) + _RIDGE * gain.square().sum()
            (slope,) = torch.autograd.grad(value, gain, create_graph=True)
            curvature = [torch.autograd.grad(entry, gain, retain_graph=True)[0] for entry in slope]
            return value.detach(), slope.detach(), torch.stack(curvature)

        return newton(objective, start)


@dataclass(frozen=True)
class OutlierExposure(Gained):
    """1 minus the largest probability, after a gain of the logits that unseen vertices of past slices train (`Gained`).

    The loss is that of the source: cross-entropy for vertices of known classes, plus ``weight`` times the
    cross-entropy between the probabilities of unseen vertices and the uniform distribution.

    Source: Hendrycks, Mazeika and Dietterich, Deep Anomaly Detection with Outlier Exposure, ICLR 2019.

    Parameters
    ----------
    weight
        Weight of the unseen vertices, above 0; .5 in the source.

    Examples
    --------
    >>> outputs = Outputs(torch.tensor([[4.0, 0.0], [0.0, 3.0], [5.0, 0.0], [1.5, 0.5], [0.2, 1.0]]))
    >>> score, known = OutlierExposure(), torch.tensor([0, 1, 0])
    >>> state = score.fit(outputs[:3], known, {})
    >>> past = score.observe(outputs, torch.tensor([0, 1, 0, UNKNOWN, UNKNOWN]), state)
    >>> score.gains(outputs, state), score.gains(outputs, score.fit(outputs[:3], known, past)) > 1
    (tensor([1., 1., 1., 1., 1.], dtype=torch.float64), tensor([ True,  True,  True, False, False]))
    """

    weight: float = 0.5

    def __post_init__(self) -> None:
        set_number(self, "weight", above=True, hint=" (0.5 is usual)")

    def loss(self, gains: Tensor, past: Exposed) -> Tensor:
        own, uniform = _cross_entropies(gains, past.logits)
        return own[~past.unseen].mean() + self.weight * uniform[past.unseen].mean()

    def compute(self, outputs: Outputs, state: State) -> Tensor:
        return self.probability(outputs, state)


@dataclass(frozen=True)
class Objectosphere(Gained):
    """Minus the largest probability times the length of the hidden vector, both after a gain (`Gained`).

    The loss is that of the source: cross-entropy for vertices of known classes and with the uniform distribution for
    unseen ones (entropic open-set loss), plus ``weight`` times ‖F‖² for unseen vertices and max(0, ξ - ‖F‖)² for the
    others. ‖F‖ is the gain times the length of the hidden vector, relative to the mean length of the training vertices,
    so that ξ has a meaning for any model.

    Source: Dhamija, Günther and Boult, Reducing Network Agnostophobia, NeurIPS 2018.

    Parameters
    ----------
    weight
        Weight of the lengths, above 0.
    least
        ξ, above 0: length that vertices of known classes should have at least.

    Examples
    --------
    >>> outputs, score = Outputs(torch.tensor([[4.0, 0.0], [0.0, 4.0], [1.0, 0.5]])), Objectosphere()
    >>> score.compute(outputs, score.fit(outputs[:2], torch.tensor([0, 1]), {}))
    tensor([-0.9820, -0.9820, -0.1740], dtype=torch.float64)
    """

    weight: float = 0.1
    least: float = 1.0

    def __post_init__(self) -> None:
        set_number(self, "weight", above=True, hint=" (0.1 is usual)")
        set_number(self, "least", above=True, hint=" (1 is usual)")

    def loss(self, gains: Tensor, past: Exposed) -> Tensor:
        own, uniform = _cross_entropies(gains, past.logits)
        length = gains * past.lengths
        known = own + self.weight * (self.least - length).clamp(min=0).square()
        unseen = uniform + self.weight * length.square()
        return known[~past.unseen].mean() + unseen[past.unseen].mean()

    def compute(self, outputs: Outputs, state: State) -> Tensor:
        length = self.gains(outputs, state) * lengths(outputs, state)
        return (self.probability(outputs, state) - 1) * length


def lengths(outputs: Outputs, state: State) -> Tensor:
    """Length of each hidden vector, relative to the mean of the training vertices."""
    return vectors_of(outputs).norm(dim=1) / fitted(state, "length").to(outputs.logits.device)


def _features(outputs: Outputs) -> Tensor:
    x = outputs.logits.double()
    two = torch.topk(x, min(2, x.shape[1]), dim=1).values
    sd = (x - x.mean(1, keepdim=True)).square().mean(1).sqrt()
    parts = (two[:, 0], two[:, 0] - two[:, -1], sd, vectors_of(outputs).norm(dim=1))
    return torch.stack(parts, 1)


def _standardised(outputs: Outputs, state: State) -> Tensor:
    mean, sd = (fitted(state, name).to(outputs.logits.device) for name in ("mean", "sd"))
    return ((_features(outputs) - mean) / sd).clamp(-_FAR, _FAR)


def _gains(features: Tensor, gain: Tensor) -> Tensor:
    # Smooth everywhere, so that Newton's method converges, and never 0 or infinite.
    return torch.exp(_MOST * torch.tanh((features @ gain[:-1] + gain[-1]) / _MOST))


def _cross_entropies(gains: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
    """Cross-entropy of each vertex with the class of the first column, and with the uniform distribution."""
    there = ~logits.isnan()
    scaled = torch.where(there, gains.unsqueeze(1) * logits.nan_to_num(), -torch.inf)
    logs = torch.where(there, logits.nan_to_num() * gains.unsqueeze(1) - torch.logsumexp(scaled, 1, keepdim=True), 0)
    return -logs[:, 0], -logs.sum(1) / there.sum(1)
