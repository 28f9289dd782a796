"""`CBSSVM` and `OneClassSVM`: support vector machines around each class, and around all training vertices."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evergraph.detect import Decision, Outputs, Requirements, Softmax
from evergraph.detect.base import State, set_number
from evergraph_baselines.vectors import fitted, newton, sample, vectors_of

__all__ = ["CBSSVM", "OneClassSVM"]

_TINY = 1e-12
_VECTORS = 500  # that a one-class machine is fitted to
_GAP = 1e-11  # violation of the optimality conditions at which it is fitted
_PAIRS = 200_000  # at most


@dataclass(frozen=True)
class CBSSVM(Softmax):
    """Flags a vertex if the support vector machine of no class accepts it, given its similarities to the centre.

    Each class has a centre, the mean of the vectors of its training vertices below the output layer. A vertex is
    described by its similarities to the centre: the cosine, the correlation, exp(-d² / 2 s²) and 1 / (1 + d / s), where
    d is the distance and s is the root of its mean square in the class. For each class, a linear support vector machine
    with squared hinge loss separates the training vertices of the class, described by its own centre, from all others.
    Both sides count alike. The score is minus the largest decision value. With a single class nothing is flagged.

    In the source, the vectors are word frequencies, with five similarities. Because similarity is bounded, the region
    that a class claims is bounded, too.

    The state is ``centres``, ``scales`` and ``weights``, one row per class; a class without training vertices has NaN.

    Source: Fei and Liu, Breaking the Closed World Assumption in Text Classification, NAACL 2016 (cbsSVM in Shu, Xu and
    Liu, DOC: Deep Open Classification of Text Documents, EMNLP 2017).

    Parameters
    ----------
    cost
        C, above 0: weight of the losses against the norm of the weights.

    Examples
    --------
    >>> hidden = torch.tensor([[0.0, 3.0], [0.2, 3.1], [0.1, 3.3], [3.0, 0.0], [3.2, 0.1], [3.1, 0.3], [9.0, 9.0]])
    >>> outputs, detector = Outputs(torch.zeros(7, 2), hidden), CBSSVM()
    >>> state = detector.fit(outputs[:6], torch.tensor([0, 0, 0, 1, 1, 1]), {})
    >>> detector.decide(outputs, state).flagged
    tensor([False, False, False, False, False, False,  True])
    """

    cost: float = 1.0

    def __post_init__(self) -> None:
        set_number(self, "cost", above=True, hint=" (1 is usual)")

    @property
    def requires(self) -> Requirements:
        return Requirements()

    def fit(self, outputs: Outputs, targets: Tensor, state: State) -> State:  # noqa: ARG002
        vectors = vectors_of(outputs)
        rows = sample(vectors, targets)
        x, of, classes = vectors[rows], targets[rows], outputs.logits.shape[1]
        counts = torch.bincount(of, minlength=classes).unsqueeze(1)
        centres = x.new_zeros(classes, x.shape[1]).index_add_(0, of, x) / counts  # NaN without vertices
        squares = (x - centres[of]).square().sum(1)
        usual = squares.mean().clamp(min=_TINY)
        within = x.new_zeros(classes).index_add_(0, of, squares) / counts.squeeze(1)
        scales = torch.where(within > _TINY * usual, within, usual).sqrt()
        weights = torch.full((classes, 5), torch.nan, dtype=x.dtype, device=x.device)
        for column in torch.nonzero(counts.squeeze(1)).flatten().tolist():
            inside = of == column
            weights[column] = self._separate(similarities(x, centres[column], scales[column]), inside)
        return {"centres": centres, "scales": scales, "weights": weights}

    def decide(self, outputs: Outputs, state: State) -> Decision:
        x = vectors_of(outputs)
        parts = zip(*(fitted(state, name).to(x) for name in ("centres", "scales", "weights")), strict=True)
        values = [similarities(x, *part) @ weight for *part, weight in parts if weight.isfinite().all()]
        score = -torch.stack(values).amax(0)
        return Decision(score, score > 0)

    def _separate(self, x: Tensor, inside: Tensor) -> Tensor:
        """Weights of a machine, with the intercept: minimise |w|² / 2 + C · Σ of weighted squared losses."""
        sign = torch.where(inside, 1.0, -1.0).double()
        sizes = torch.where(inside, inside.sum(), (~inside).sum())
        each = self.cost * len(x) / (2 * sizes)

        def objective(weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            short = (1 - sign * (x @ weight)).clamp(min=0)
            active = x * (each * (short > 0)).unsqueeze(1)
            value = weight.square().sum() / 2 + (each * short.square()).sum()
            curved = torch.eye(len(weight), dtype=x.dtype, device=x.device) + 2 * active.T @ x
            return value, weight - 2 * x.T @ (each * sign * short), curved

        return newton(objective, x.new_zeros(x.shape[1]))


def similarities(x: Tensor, centre: Tensor, scale: Tensor) -> Tensor:
    """Similarities of vectors to the centre of a class, and 1 for the intercept."""
    distance = (x - centre).norm(dim=1) / scale
    around = (x - x.mean(1, keepdim=True), centre - centre.mean())
    parts = (_cosines(x, centre), _cosines(*around), torch.exp(-distance.square() / 2), 1 / (1 + distance))
    return torch.stack([*parts, torch.ones_like(distance)], 1)


def _cosines(x: Tensor, centre: Tensor) -> Tensor:
    return (x @ centre) / (x.norm(dim=1) * centre.norm()).clamp(min=_TINY)


@dataclass(frozen=True)
class OneClassSVM(Softmax):
    """Flags a vertex outside the region that contains most training vertices.

    A one-class support vector machine with the kernel exp(-gamma · d²), on the vectors below the output layer. gamma is
    1 / (number of entries · variance of all entries). The score is ρ minus the decision function, a sum over support
    vectors. Classes are not used, except that each has about the same share of the training vertices it is fitted to.

    The state is ``vectors`` and ``weights``, the support vectors, ``rho`` and ``gamma``.

    Source: Schölkopf, Platt, Shawe-Taylor, Smola and Williamson, Estimating the Support of a High-Dimensional
    Distribution, Neural Computation 2001.

    Parameters
    ----------
    nu
        Largest share of the training vertices outside the region, above 0 and up to 1.

    Examples
    --------
    >>> hidden = torch.tensor([[0.0, 3.0], [0.2, 3.1], [0.1, 3.3], [3.0, 0.0], [3.2, 0.1], [3.1, 0.3], [9.0, 9.0]])
    >>> outputs, detector = Outputs(torch.zeros(7, 2), hidden), OneClassSVM(nu=0.2)
    >>> state = detector.fit(outputs[:6], torch.tensor([0, 0, 0, 1, 1, 1]), {})
    >>> detector.decide(outputs, state).score.argmax()
    tensor(6)
    """

    nu: float = 0.1

    def __post_init__(self) -> None:
        set_number(self, "nu", 0, 1, above=True)

    @property
    def requires(self) -> Requirements:
        return Requirements()

    def fit(self, outputs: Outputs, targets: Tensor, state: State) -> State:  # noqa: ARG002
        vectors = vectors_of(outputs)
        x = vectors[sample(vectors, targets, _VECTORS)]
        variance = x.var(correction=0)
        gamma = 1 / (x.shape[1] * torch.where(variance > 0, variance, 1))
        weights, rho = solve_one_class(_kernel(x, x, gamma).cpu().numpy(), self.nu)
        used = torch.from_numpy(weights > 0).to(x.device)
        kept = torch.from_numpy(weights).to(x)[used]
        return {"vectors": x[used], "weights": kept, "rho": x.new_tensor(rho), "gamma": gamma}

    def decide(self, outputs: Outputs, state: State) -> Decision:
        x = vectors_of(outputs)
        vectors, weights, rho, gamma = (fitted(state, name).to(x) for name in ("vectors", "weights", "rho", "gamma"))
        score = rho - _kernel(x, vectors, gamma) @ weights
        return Decision(score, score > 0)


def _kernel(one: Tensor, other: Tensor, gamma: Tensor) -> Tensor:
    return torch.exp(-gamma * torch.cdist(one, other, compute_mode="donot_use_mm_for_euclid_dist").square())


def solve_one_class(kernel: NDArray[np.float64], nu: float) -> tuple[NDArray[np.float64], float]:
    """Minimise α K α / 2 with Σ α = ν n and 0 ≤ α ≤ 1, two entries at a time (sequential minimal optimisation).

    Returns α and ρ, the value of K α on the boundary.
    """
    number = len(kernel)
    alpha = np.full(number, nu)
    value, own = kernel @ alpha, kernel.diagonal()
    for _ in range(_PAIRS):
        up = np.where(alpha < 1, value, np.inf)  # these may grow, those may shrink
        excess = np.where(alpha > 0, value, -np.inf)
        low = int(up.argmin())
        excess = excess - up[low]
        if excess.max() <= _GAP * number * nu:
            break
        curvature = np.maximum(own[low] + own - 2 * kernel[low], _TINY)
        high = int((np.maximum(excess, 0) ** 2 / curvature).argmax())  # the largest decrease
        step = min(excess[high] / curvature[high], 1 - alpha[low], alpha[high])
        alpha[low] += step
        alpha[high] -= step
        value += step * (kernel[low] - kernel[high])
    free = (alpha > 0) & (alpha < 1)
    if free.any():
        return alpha, float(value[free].mean())
    return alpha, float((value[alpha >= 1].max() + value[alpha <= 0].min()) / 2) if nu < 1 else float(value.max())
