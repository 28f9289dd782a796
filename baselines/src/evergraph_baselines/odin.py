"""`ODIN`: softmax at a high temperature, after a step that raises it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.detect import Outputs
from evergraph.detect.base import State, set_number
from evergraph.detect.scores import Score
from evergraph_baselines.vectors import fitted, output_map, vectors_of

__all__ = ["ODIN"]

_FLAT = 1e-9  # slopes below this share of the largest weight are rounding: no step


@dataclass(frozen=True)
class ODIN(Score):
    """-T · log(K · S): S is the largest of K softmax probabilities at the temperature T, after a step that raises it.

    A step in the direction of the gradient's sign raises S of known classes more than that of unseen ones. The source
    changes the input. A detector sees only what is below the output layer, so this one changes the hidden vector:
    h + ε · sd · sign(∂ log S / ∂h), where sd is the standard deviation of each entry on the training vertices. The map
    from h to the logits is estimated by least squares on the training vertices (`output_map`); what it does not explain
    of the logits stays as it is.

    The logarithm ranks the vertices of a slice like 1 - S, but does not depend on the number of classes.

    The state is ``weight`` of the map and ``sd``.

    Source: Liang, Li and Srikant, Enhancing the Reliability of Out-of-distribution Image Detection in Neural Networks,
    ICLR 2018.

    Parameters
    ----------
    temperature
        T, above 0; 1000 in the source.
    epsilon
        ε, from 0 up: length of the step for each entry. The source chooses it from 0 to .004.

    Examples
    --------
    >>> hidden = torch.tensor([[3.0, 0.0], [0.0, 3.0], [0.1, 0.0]])
    >>> outputs, score = Outputs(2 * hidden, hidden), ODIN(epsilon=0.1)
    >>> score.compute(outputs, score.fit(outputs, torch.tensor([0, 1, 0]), {}))
    tensor([-3.2752, -3.2752, -0.3805], dtype=torch.float64)
    """

    temperature: float = 1000.0
    epsilon: float = 0.0014

    def __post_init__(self) -> None:
        set_number(self, "temperature", above=True, hint=" (1000 is usual)")
        set_number(self, "epsilon", hint=" (0.0014 is usual)")

    def fit(self, outputs: Outputs, targets: Tensor, state: State) -> State:  # noqa: ARG002
        return {"weight": output_map(outputs), "sd": vectors_of(outputs).std(0, correction=0)}

    def compute(self, outputs: Outputs, state: State) -> Tensor:
        x = self.perturbed(outputs, state)
        # -T · log S, minus its value for equal logits.
        return self.temperature * (_log_sum(x / self.temperature) - math.log(x.shape[1]))

    def perturbed(self, outputs: Outputs, state: State) -> Tensor:
        """The logits after the step."""
        x, weight = outputs.logits.double(), fitted(state, "weight").to(outputs.logits.device)
        likeliest = (x == x.amax(1, keepdim=True)).double()  # several, if their logits are equal
        likeliest /= likeliest.sum(1, keepdim=True)
        slope = (likeliest - torch.softmax(x / self.temperature, 1)) @ weight.T  # times T
        slope[slope.abs() <= _FLAT * (weight.abs().amax() if weight.numel() else 0)] = 0
        return x + (self.epsilon * state["sd"].to(x) * slope.sign()) @ weight


def _log_sum(x: Tensor) -> Tensor:
    """Log of the sum of exponentials, relative to the largest entry: minus the log of the largest probability."""
    return torch.logsumexp(x - x.amax(1, keepdim=True), 1)
