"""`L2AC`: compares a vertex with the nearest training vertices of each class by a learnt matcher."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.detect import Decision, Outputs, Requirements, Softmax
from evergraph.detect.base import State, set_number
from evergraph_baselines.vectors import blocks, fitted, nearest, newton, present, sample, vectors_of

__all__ = ["L2AC"]

_ANCHORS = 500  # training vertices that pairs are made of
_RIDGE = 1e-3  # of the matcher's weights
_ROWS = 512  # vertices that are compared together


@dataclass(frozen=True)
class L2AC(Softmax):
    """Flags a vertex if it matches no class with a probability of at least .5.

    The ranker retrieves, for each known class, the nearest training vertices. The meta-classifier gives each of them a
    probability of having the class of the vertex; their mean is the probability of the class. The score is .5 minus
    the largest. Vectors are those below the output layer, divided by their standard deviations.

    The meta-classifier is a logistic regression on the entries of |a - b| and a + b of a pair. It is fitted to pairs of
    training vertices: each with its nearest ones of its own class, and of the most similar other class. It does not
    depend on the classes. With a single class there are no pairs of different classes, and no vertex is flagged.

    In the source, it is a neural network, and a recurrent network combines the nearest vertices. It is trained on other
    classes than those that it is used for, once for all tasks. Here it is fitted again for each task, because the
    vectors change, and to the known classes, because there are no others.

    The state is ``vectors`` and ``targets`` of at most 2,000 training vertices, ``sd``, and the matcher's ``weight``.

    Source: Xu, Liu, Shu and Yu, Open-world Learning and Application to Product Classification, WWW 2019.

    Parameters
    ----------
    nearest
        Number of training vertices per class, from 1 up.

    Examples
    --------
    >>> hidden = torch.tensor([[0.0, 3.0], [0.2, 3.1], [0.1, 3.3], [3.0, 0.0], [3.2, 0.1], [3.1, 0.3], [9.0, 9.0]])
    >>> outputs, detector = Outputs(torch.zeros(7, 2), hidden), L2AC(nearest=2)
    >>> state = detector.fit(outputs[:6], torch.tensor([0, 0, 0, 1, 1, 1]), {})
    >>> detector.decide(outputs, state).flagged
    tensor([False, False, False, False, False, False,  True])
    """

    nearest: int = 5

    def __post_init__(self) -> None:
        set_number(self, "nearest", 1, whole=True)

    @property
    def requires(self) -> Requirements:
        return Requirements()

    def fit(self, outputs: Outputs, targets: Tensor, state: State) -> State:  # noqa: ARG002
        vectors = vectors_of(outputs)
        sd = vectors.std(0, correction=0)
        sd = torch.where(sd > 0, sd, 1)
        rows = sample(vectors, targets)
        kept, of = vectors[rows] / sd, targets[rows]
        anchors = sample(vectors[rows], of, _ANCHORS)
        return {"vectors": kept, "targets": of, "sd": sd, "weight": self._matcher(kept, of, anchors)}

    def decide(self, outputs: Outputs, state: State) -> Decision:
        kept, of, sd, weight = (fitted(state, name) for name in ("vectors", "targets", "sd", "weight"))
        device = outputs.logits.device
        kept, of, weight = kept.to(device), of.to(device), weight.to(device)
        best = []
        for part in blocks(vectors_of(outputs) / sd.to(device), _ROWS):
            found = []
            for column in present(of):
                members = kept[of == column]
                near = nearest(part, members, self.nearest)[1]
                found.append(torch.sigmoid(_pairs(part, members[near]) @ weight).mean(1))
            best.append(torch.stack(found).amax(0))
        score = 0.5 - torch.cat(best)
        return Decision(score, score > 0)

    def _matcher(self, vectors: Tensor, targets: Tensor, anchors: Tensor) -> Tensor:
        """Weights of the logistic regression; if there is only one kind of pairs, all pairs match."""
        apart = torch.cdist(vectors[anchors], vectors, compute_mode="donot_use_mm_for_euclid_dist")
        apart[torch.arange(len(anchors)), anchors] = torch.inf
        same = targets[anchors].unsqueeze(1) == targets
        rival = targets[torch.where(same, torch.inf, apart).argmin(1)].unsqueeze(1)  # class of the nearest other vertex
        pairs, labels, parts = [], [], []
        for label, there in ((1.0, same), (0.0, ~same & (rival == targets))):
            there = there & apart.isfinite()
            near = torch.topk(torch.where(there, apart, torch.inf), min(self.nearest, len(vectors)), 1, largest=False)
            row, place = torch.nonzero(near.values.isfinite(), as_tuple=True)
            found = _pairs(vectors[anchors[row]], vectors[near.indices[row, place]].unsqueeze(1)).squeeze(1)
            pairs.append(found)
            labels.append(found.new_full((len(found),), label))
            parts.append(found.new_full((len(found),), 0.5 / max(len(found), 1)))
        x, y, share = torch.cat(pairs), torch.cat(labels), torch.cat(parts)
        start = vectors.new_zeros(2 * vectors.shape[1] + 1)
        if not 0 < y.mean() < 1:
            start[-1] = 1
            return start
        ridge = _RIDGE * torch.ones_like(start)
        ridge[-1] = 0

        def objective(weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            logit = x @ weight
            p = torch.sigmoid(logit)
            value = share @ (torch.nn.functional.softplus(logit) - y * logit) + (ridge * weight.square()).sum() / 2
            curved = (x * (share * p * (1 - p)).unsqueeze(1)).T @ x
            return value, x.T @ (share * (p - y)) + ridge * weight, curved + torch.diag(ridge)

        return newton(objective, start)


def _pairs(one: Tensor, others: Tensor) -> Tensor:
    """What the matcher reads of each vector and each of its others: the entries of |a - b| and a + b, and 1."""
    a = one.unsqueeze(1).expand_as(others)
    return torch.cat([(a - others).abs(), a + others, torch.ones_like(others[..., :1])], -1)
