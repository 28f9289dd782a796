"""What the detectors of the literature share: samples of vectors, the map below the logits, and Newton's method."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from evergraph.detect import Outputs
from evergraph.detect.base import State
from evergraph.errors import InputError

__all__ = ["SAMPLE", "blocks", "fitted", "nearest", "newton", "output_map", "present", "sample", "spread", "vectors_of"]

SAMPLE = 2000
"""Most training vectors that a detector keeps in its state."""
_STEPS, _HALVINGS = 100, 40  # of Newton's method
_CONVERGED = 1e-12  # expected decrease, relative to the value, from which on one more full step is precise


def vectors_of(outputs: Outputs) -> Tensor:
    """The vectors below the output layer, or the logits of a model that has none, as float64."""
    return (outputs.logits if outputs.hidden is None else outputs.hidden).double()


def fitted(state: State, name: str) -> Tensor:
    """A value that `Detector.fit` put into the state."""
    if name not in state:
        raise InputError(f"the state has no {name!r}", fix="pass the state that the detector's fit returned")
    return state[name]


def present(targets: Tensor) -> list[int]:
    """Columns of the classes that have a vertex."""
    return torch.nonzero(torch.bincount(targets)).flatten().tolist()


def blocks(vectors: Tensor, rows: int) -> Iterator[Tensor]:
    """Yield some vectors after the other, so that what is computed from them fits into memory; one block if none."""
    for start in range(0, max(len(vectors), 1), rows):
        yield vectors[start : start + rows]


# --- samples ---------------------------------------------------------------------------------------------------------


def spread(vectors: Tensor, most: int) -> Tensor:
    """Rows of at most ``most`` vectors: every n-th in a pseudo-random order that depends on their entries only.

    So the choice depends neither on the order of the vectors nor on that of their entries, and a vector that occurs
    often is chosen in proportion. Pass vectors as the model gives them: what is computed from many of them, such as
    standardised ones, depends on their order by rounding.

    Examples
    --------
    >>> vectors = torch.arange(10.0).unsqueeze(1)
    >>> one, other = spread(vectors, 4), spread(vectors.flip(0), 4)
    >>> torch.equal(vectors[one], vectors.flip(0)[other].flip(0)), len(spread(vectors, 20))
    (True, 10)
    """
    if len(vectors) <= most:
        return torch.arange(len(vectors), device=vectors.device)
    entries = np.sort(vectors.double().cpu().numpy() + 0.0, axis=1)  # + 0.0: minus zero is zero
    hashes = np.array([zlib.crc32(row.tobytes()) for row in entries])
    order = np.argsort(hashes, kind="stable")
    return torch.from_numpy(np.sort(order[np.arange(most) * len(order) // most])).to(vectors.device)


def sample(vectors: Tensor, targets: Tensor, most: int = SAMPLE) -> Tensor:
    """Rows of at most ``most`` vectors, of each class at most the same number, and at least one.

    Examples
    --------
    >>> targets = torch.tensor([0] * 90 + [1] * 10)
    >>> torch.bincount(targets[sample(torch.rand(100, 3), targets, 50)])
    tensor([40, 10])
    """
    counts = torch.bincount(targets)
    sizes = torch.sort(counts[counts > 0]).values.tolist()
    left, limit = most, 1
    for number, size in enumerate(sizes):  # the smallest first: what they leave is for the larger ones
        limit = max(left // (len(sizes) - number), 1)
        if size > limit:
            break
        left -= size
    chosen = []
    for column in present(targets):
        rows = torch.nonzero(targets == column).flatten()
        chosen.append(rows[spread(vectors[rows], limit)])
    return torch.cat(chosen) if chosen else targets.new_empty(0)


# --- distances and maps ----------------------------------------------------------------------------------------------


def nearest(vectors: Tensor, others: Tensor, number: int, *, itself: bool = False) -> tuple[Tensor, Tensor]:
    """Distances and rows of the nearest of other vectors, the nearest first.

    ``itself``: both are the same vectors, and the nearest other one of each is wanted.
    """
    apart = torch.cdist(vectors, others, compute_mode="donot_use_mm_for_euclid_dist")
    if itself:
        apart.fill_diagonal_(torch.inf)
    found = torch.topk(apart, min(number, max(apart.shape[1] - itself, 0)), dim=1, largest=False)
    return found.values, found.indices


def output_map(outputs: Outputs) -> Tensor:
    """Weights of the linear map from the vectors to the logits, by least squares: an estimate of the output layer.

    It is exact for a linear output layer without neighbours. Where a vertex's logits also depend on its neighbours, it
    includes how far these are like the vertex.
    """
    vectors, logits = vectors_of(outputs), outputs.logits.double()
    here, there = (part - part.mean(0) for part in (vectors, logits))
    found = torch.linalg.lstsq(here.cpu(), there.cpu(), driver="gelsd").solution
    return found.to(logits.device)


# --- optimisation ----------------------------------------------------------------------------------------------------


def newton(objective: Callable[[Tensor], tuple[Tensor, Tensor, Tensor]], start: Tensor) -> Tensor:
    """Minimise a function by Newton's method with halved steps: deterministic, and precise to rounding.

    Parameters
    ----------
    objective
        Returns value, gradient and Hessian at a point.
    start
        The first point.

    Examples
    --------
    >>> matrix, vector = torch.tensor([[2.0, 1.0], [1.0, 3.0]]), torch.tensor([1.0, 2.0])
    >>> newton(lambda x: (x @ matrix @ x / 2 - vector @ x, matrix @ x - vector, matrix), torch.zeros(2))
    tensor([0.2000, 0.6000])
    """
    point = start
    value, slope, curvature = objective(point)
    for _ in range(_STEPS):
        # Where the function is not convex, negative curvatures count as positive, so that every step goes down.
        sizes, directions = torch.linalg.eigh(curvature)
        sizes = sizes.abs().clamp(min=max(1e-10 * float(sizes.abs().amax()), 1e-300))
        step = directions @ ((directions.T @ slope) / sizes)
        if slope @ step <= _CONVERGED * (1 + value.abs()):
            return point - step
        for halving in range(_HALVINGS):
            found = objective(point - step / 2**halving)
            if found[0] < value:
                break
        else:
            break
        point = point - step / 2**halving
        value, slope, curvature = found
    return point
