"""`ECSMiner`: vertices outside all clusters of training vertices that are closer to each other than to the clusters."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.detect import Decision, Outputs, Requirements, Softmax
from evergraph.detect.base import State, set_number
from evergraph_baselines.vectors import blocks, fitted, nearest, present, sample, vectors_of

__all__ = ["ECSMiner", "cohesion"]

_ROUNDS = 20  # of k-means
_ROUNDING = 1e-9  # relative distance beyond the radius that may be rounding
_OUTLIERS = 4000  # of a slice that are compared with each other


@dataclass(frozen=True)
class ECSMiner(Softmax):
    """Flags outliers of a slice that are cohesive among themselves and separated from the known classes.

    The training vertices of each class are clustered by k-means; a cluster has a centre and a radius, the distance of
    its farthest vertex. Vertices of the slice outside all clusters are outliers. For each, the q-neighbourhood
    silhouette coefficient is (b - a) / max(a, b), where a is the mean distance to the q nearest other outliers, and b
    that to the q nearest training vertices of a known class, for the class where it is smallest. If more than q
    outliers have a coefficient above 0, these are flagged.

    The score of an outlier is its coefficient. That of all others is at most -1: distance over radius of the cluster
    that they are deepest in, minus 2. Vectors are those below the output layer.

    In the source, an ensemble of such models of past chunks of a stream must agree, decisions can wait for more
    outliers, and training vertices are not kept: distances to them are those to the centres of their clusters, as here.
    Here there is one model per task, and a slice is decided as a whole.

    The state is ``centres``, ``radii``, ``sizes`` and ``classes`` of the clusters.

    Source: Masud, Gao, Khan, Han and Thuraisingham, Classification and Novel Class Detection in Concept-Drifting Data
    Streams under Time Constraints, IEEE TKDE 2011.

    Parameters
    ----------
    clusters
        Number of clusters of all classes together, from 1 up; 50 in the source. Each class has at least one.
    neighbours
        q, from 1 up; 50 in the source, for chunks of 2,000.

    Examples
    --------
    >>> known = torch.tensor([[0.0, 3.0], [0.2, 3.1], [0.1, 3.3], [3.0, 0.0], [3.2, 0.1], [3.1, 0.3]])
    >>> new = torch.tensor([[0.1, 3.1], [9.0, 9.0], [9.1, 9.0], [9.0, 9.1], [-9.0, 0.0]])
    >>> detector = ECSMiner(clusters=2, neighbours=2)
    >>> state = detector.fit(Outputs(torch.zeros(6, 2), known), torch.tensor([0, 0, 0, 1, 1, 1]), {})
    >>> detector.decide(Outputs(torch.zeros(5, 2), new), state).flagged
    tensor([False,  True,  True,  True, False])
    """

    clusters: int = 50
    neighbours: int = 10

    def __post_init__(self) -> None:
        set_number(self, "clusters", 1, whole=True)
        set_number(self, "neighbours", 1, whole=True)

    @property
    def requires(self) -> Requirements:
        return Requirements()

    def fit(self, outputs: Outputs, targets: Tensor, state: State) -> State:  # noqa: ARG002
        vectors = vectors_of(outputs)
        rows = sample(vectors, targets)
        x, of = vectors[rows], targets[rows]
        centres, radii, sizes, classes = [], [], [], []
        for column in present(of):
            own = x[of == column]
            found = k_means(own, max(round(self.clusters * len(own) / len(x)), 1))
            distance, cluster = nearest(own, found, 1)
            cluster = cluster.squeeze(1)
            centres.append(found)
            radii.append(x.new_zeros(len(found)).scatter_reduce(0, cluster, distance.squeeze(1), "amax"))
            sizes.append(torch.bincount(cluster, minlength=len(found)))
            classes.append(torch.full_like(sizes[-1], column))
        radius, size = torch.cat(radii), torch.cat(sizes)
        wide = radius > 0
        usual = radius[wide].mean() if wide.any() else x.std(correction=0).clamp(min=1e-9)
        return {
            "centres": torch.cat(centres),
            "radii": torch.where(wide, radius, usual),  # a cluster of one vertex is as wide as others
            "sizes": size,
            "classes": torch.cat(classes),
        }

    def decide(self, outputs: Outputs, state: State) -> Decision:
        x = vectors_of(outputs)
        centres, radii, sizes, classes = (
            fitted(state, name).to(x.device) for name in ("centres", "radii", "sizes", "classes")
        )
        apart = torch.cdist(x, centres, compute_mode="donot_use_mm_for_euclid_dist")
        depth = (apart / radii).amin(1)
        outside = torch.nonzero(depth > 1 + _ROUNDING).flatten()
        score = depth.clamp(max=1) - 2
        score[outside] = -1.0
        known = [
            _mean_to(apart[outside][:, classes == column], sizes[classes == column], self.neighbours)
            for column in present(classes)
        ]
        if len(outside) > 1:
            score[outside] = cohesion(x[outside], torch.stack(known).amin(0), self.neighbours)
        flagged = score > 0
        return Decision(score, flagged if flagged.sum() > self.neighbours else torch.zeros_like(flagged))


def cohesion(outliers: Tensor, known: Tensor, neighbours: int) -> Tensor:
    """q-neighbourhood silhouette coefficient of outliers, given the mean distance of each to its nearest class."""
    parts: list[Tensor] = []
    for part in blocks(outliers, _OUTLIERS):
        apart = torch.cdist(part, outliers, compute_mode="donot_use_mm_for_euclid_dist")
        rows = torch.arange(len(apart), device=apart.device)
        apart[rows, rows + len(parts) * _OUTLIERS] = torch.inf
        parts.append(torch.topk(apart, min(neighbours, len(outliers) - 1), dim=1, largest=False).values.mean(1))
    among = torch.cat(parts)
    return (known - among) / torch.maximum(known, among).clamp(min=1e-300)


def k_means(x: Tensor, number: int) -> Tensor:
    """Centres of clusters. The first start is the vector nearest to the mean, each other one is the farthest from them.

    Fewer than ``number`` if there are fewer different vectors.

    Examples
    --------
    >>> k_means(torch.tensor([[0.0], [1.0], [9.0], [11.0]]), 2).flatten()
    tensor([10.0000,  0.5000])
    """
    start = [nearest(x.mean(0, keepdim=True), x, 1)[1].flatten()[0]]
    least = (x - x[start[0]]).norm(dim=1)
    while len(start) < number and bool(least.amax() > 0):
        start.append(least.argmax())
        least = torch.minimum(least, (x - x[start[-1]]).norm(dim=1))
    centres = x[torch.stack(start)]
    for _ in range(_ROUNDS):
        cluster = nearest(x, centres, 1)[1].squeeze(1)
        counts = torch.bincount(cluster, minlength=len(centres)).unsqueeze(1)
        moved = torch.zeros_like(centres).index_add_(0, cluster, x) / counts.clamp(min=1)
        moved = torch.where(counts > 0, moved, centres)
        if torch.equal(moved, centres):
            break
        centres = moved
    return centres


def _mean_to(apart: Tensor, sizes: Tensor, neighbours: int) -> Tensor:
    """Mean distance to the nearest vertices of a class, each as far away as the centre of its cluster."""
    order = apart.argsort(1)
    counts = sizes[order]
    before = counts.cumsum(1) - counts
    used = torch.minimum(counts, (neighbours - before).clamp(min=0)).double()
    return (apart.gather(1, order) * used).sum(1) / used.sum(1)
