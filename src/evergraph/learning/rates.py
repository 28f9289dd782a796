"""Default learning rates: those of the paper, which were tuned on DBLP-easy."""

from __future__ import annotations

from evergraph.detect import DOC, GDOC, Detector
from evergraph.nn import GAT, MLP, SGC, GraphSAGE, GraphSAINT, JKNet, Model

__all__ = ["default_rate"]

_OTHER = 0.005

# (cold, warm) by the share of time differences that the history covers: 25, 50, 75 and 100 percent.
_Row = tuple[tuple[float, float], tuple[float, float], tuple[float, float], tuple[float, float]]
_CROSS_ENTROPY: dict[type[Model], _Row] = {
    MLP: ((0.001, 0.001), (0.001, 0.001), (0.005, 0.001), (0.005, 0.001)),
    GraphSAGE: ((0.001, 0.001), (0.005, 0.005), (0.01, 0.005), (0.01, 0.005)),
    GAT: ((0.005, 0.001), (0.005, 0.005), (0.05, 0.01), (0.05, 0.05)),
    SGC: ((0.005, 0.005), (0.01, 0.005), (0.01, 0.005), (0.05, 0.01)),
    GraphSAINT: ((0.005, 0.001), (0.005, 0.001), (0.005, 0.001), (0.01, 0.005)),
    JKNet: ((0.005, 0.001), (0.005, 0.001), (0.005, 0.001), (0.01, 0.005)),
}
# The paper's rates for GAT with gDOC are left out: there is strong evidence that they belong to another model.
_DETECTION: dict[tuple[type[Model], type[Detector]], _Row] = {
    (GraphSAGE, DOC): ((0.005, 0.001), (0.005, 0.005), (0.01, 0.005), (0.01, 0.01)),
    (GraphSAGE, GDOC): ((0.005, 0.0005), (0.005, 0.001), (0.01, 0.005), (0.01, 0.005)),
    (SGC, GDOC): ((0.01, 0.005), (0.01, 0.005), (0.01, 0.005), (0.01, 0.01)),
}


def default_rate(model: Model, detector: Detector, *, warm: bool, level: int) -> float:
    """The paper's learning rate for a model, a detector, a restart and the share of time differences covered.

    Where the paper has none with this detector it is that without; where it does not have the model, .005. A model that
    is trained once takes the rate of warm restarts (for GraphSAGE the paper has a lower one there, .001).

    Examples
    --------
    >>> default_rate(GraphSAGE(), GDOC(), warm=True, level=25)
    0.0005
    """
    row = _DETECTION.get((type(model), type(detector))) or _CROSS_ENTROPY.get(type(model))
    return _OTHER if row is None else row[level // 25 - 1][warm]
