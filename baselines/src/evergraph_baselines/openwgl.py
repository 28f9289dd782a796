"""`OpenWGL`: certainty of the mean prediction for noisy hidden vectors, with a threshold between known and unseen."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.detect import Decision, Outputs, Requirements, Softmax
from evergraph.detect.base import PAST, UNKNOWN, State, set_number
from evergraph.detect.cross_entropy import cross_entropy, shares_of
from evergraph_baselines.vectors import blocks, fitted, output_map, vectors_of

__all__ = ["OpenWGL"]

_MEANS, _COUNTS = f"{PAST}means", f"{PAST}counts"
_ENTRIES = 1 << 22  # of a block of noisy logits


@dataclass(frozen=True)
class OpenWGL(Softmax):
    """Flags a vertex if the mean probability of its likeliest class over noisy versions of it is below a threshold.

    What is taken from the source:

    * the class uncertainty loss: to cross-entropy, ``weight`` times the mean of Σ p log p / K over uncertain vertices
      is added, those whose largest probability is between 1 / K and .5. It raises their entropy;
    * the decision: the probabilities are means over ``samples`` noisy hidden vectors;
    * the threshold in the middle between the mean certainty of known and that of unseen vertices. The authors' code
      takes both from validation vertices; here they are those of past slices, all slices together.

    What differs: the source computes the uncertainty loss on unlabelled vertices and trains a variational encoder that
    reconstructs the edges. A detector's loss gets neither. So the loss here reads the labelled vertices, and the noise
    is not learnt: it is normal, with the standard deviation within classes that each entry of the hidden vectors has on
    the training vertices, and changes the logits by the map from hidden vectors to logits (`output_map`). The same
    noise is used for all vertices. The score is 1 minus the certainty. Until unseen vertices were observed, none is
    flagged.

    The state is ``shifts``, what each noise adds to the logits, and ``past.means`` and ``past.counts``, certainty and
    number of known and of unseen vertices.

    Source: Wu, Pan and Zhu, OpenWGL: Open-World Graph Learning, ICDM 2020, and the authors' code.

    Parameters
    ----------
    weight
        Weight of the uncertainty loss, from 0 up; 1 in the source.
    samples
        Number of noisy versions, from 1 up; 100 in the source.

    Examples
    --------
    >>> outputs = Outputs(torch.tensor([[4.0, 0.0], [5.0, 0.0], [0.0, 4.0], [0.0, 5.0], [0.6, 0.5]]))
    >>> targets = torch.tensor([0, 0, 1, 1, UNKNOWN])
    >>> detector = OpenWGL()
    >>> state = detector.fit(outputs[:4], targets[:4], {})
    >>> detector.decide(outputs, detector.observe(outputs, targets, state)).flagged
    tensor([False, False, False, False,  True])
    """

    weight: float = 1.0
    samples: int = 100

    def __post_init__(self) -> None:
        set_number(self, "weight")
        set_number(self, "samples", 1, whole=True)

    @property
    def requires(self) -> Requirements:
        return Requirements(observe=True, replay=3)

    def loss(self, logits: Tensor, targets: Tensor, counts: Tensor, weights: Tensor | None = None) -> Tensor:  # noqa: ARG002
        shares = shares_of(logits, weights)
        found = cross_entropy(logits, targets, shares)
        classes = logits.shape[1]
        logs = torch.log_softmax(logits, 1)
        best = logs.detach().amax(1).exp()
        uncertain = shares * ((best > 1 / classes) & (best < 0.5))
        if self.weight == 0 or not uncertain.any():
            return found
        return found + self.weight * (uncertain @ (logs.exp() * logs).sum(1)) / (classes * uncertain.sum())

    def fit(self, outputs: Outputs, targets: Tensor, state: State) -> State:  # noqa: ARG002
        vectors, classes = vectors_of(outputs), outputs.logits.shape[1]
        counts = torch.bincount(targets, minlength=classes).clamp(min=1).unsqueeze(1)
        means = vectors.new_zeros(classes, vectors.shape[1]).index_add_(0, targets, vectors) / counts
        sd = (vectors - means[targets]).square().mean(0).sqrt()
        generator = torch.Generator().manual_seed(0)
        noise = torch.randn(self.samples, len(sd), generator=generator, dtype=torch.float64).to(sd.device)
        return {"shifts": (noise * sd) @ output_map(outputs)}

    def certainty(self, outputs: Outputs, state: State) -> Tensor:
        """Mean probability of each vertex's likeliest class over the noisy versions."""
        x, shifts = outputs.logits.double(), fitted(state, "shifts").to(outputs.logits.device)
        rows = max(_ENTRIES // shifts.numel(), 1)
        return torch.cat([torch.softmax(part.unsqueeze(1) + shifts, 2).mean(1).amax(1) for part in blocks(x, rows)])

    def observe(self, outputs: Outputs, targets: Tensor, state: State) -> State:
        certainty = self.certainty(outputs, state)
        groups = (targets >= 0, targets == UNKNOWN)
        sums = torch.stack([certainty[group].sum() for group in groups])
        new = torch.stack([group.sum() for group in groups]).double()
        before = state.get(_COUNTS, torch.zeros_like(new)).to(new)
        means = state.get(_MEANS, torch.zeros_like(new)).to(new)
        counts = before + new
        return {**state, _MEANS: (means * before + sums) / counts.clamp(min=1), _COUNTS: counts}

    def decide(self, outputs: Outputs, state: State) -> Decision:
        certainty = self.certainty(outputs, state)
        seen = _COUNTS in state and bool((state[_COUNTS] > 0).all())
        threshold = float(state[_MEANS].mean()) if seen else 0.0
        return Decision(1 - certainty, certainty < threshold)
