"""The paper's printed numbers: Galke et al. 2023, Neural Networks 164, 156-176."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from evergraph.learning.task import History

__all__ = ["COUNTERPART", "exp2_printed", "exp4_printed", "exp4b_printed", "exp4c_printed", "printed"]

COUNTERPART = {"dblp-easy": "dblp-easy", "dblp-hard": "dblp-hard", "acl": "pharmabio"}
"""For some of our graphs, the corresponding graph of the paper."""
_HISTORIES = {
    "dblp-easy": {25: 1, 50: 3, 75: 6, 100: "full"},
    "dblp-hard": {25: 1, 50: 3, 75: 6, 100: "full"},
    "pharmabio": {25: 1, 50: 4, 75: 8, 100: "full"},
}
_MODELS = {"sage": "GraphSAGE-Mean", "gat": "GAT", "sgc": "SGC", "saint": "GraphSAINT", "jknet": "JKNet", "mlp": "MLP"}
_GDOC_MODELS = {"sage": "GS+gDOC", "sgc": "SGC+gDOC", "gat": "GAT+gDOC"}
_TRADE_OFF = {
    "gdoc": "GraphSAGE+gDOC(tau=0.75)",
    "doc": "GraphSAGE+DOC(tau=0.5,alpha=3.0)",
    "none": "GraphSAGE",
}


@cache
def printed() -> dict[str, Any]:
    """Return all tables by name."""
    found: dict[str, Any] = json.loads((Path(__file__).parent / "paper.json").read_text(encoding="utf-8"))
    return found


def history_of(graph: str, level: int) -> History | None:
    """Return the paper's history for a percentage of the time differences of a graph or its counterpart."""
    found: Any = _HISTORIES.get(COUNTERPART.get(graph, ""), {}).get(level)
    return found


def exp2_printed(graph: str, model: str, level: int) -> dict[str, Any] | None:
    """Return the row of experiment 2 for one of our graphs, in percent; None if the paper has none.

    Examples
    --------
    >>> exp2_printed("dblp-easy", "sage", 25)["fwt"]
    5.2
    >>> exp2_printed("metamath", "sage", 25) is None
    True
    """
    wanted = {"dataset": COUNTERPART.get(graph), "model": _MODELS.get(model)}
    return _find("table_results_exp2", wanted | {"c": history_of(graph, level)})


def exp4_printed(graph: str, level: int, method: str, tau: float, alpha: float | None) -> dict[str, Any] | None:
    """Return the row of experiment 4; ``method`` is doc or gdoc."""
    name = {"doc": "DOC", "gdoc": "gDOC"}[method]
    table = f"table_ood_{graph.replace('-', '_')}"
    return _find(table, {"c": history_of(graph, level), "method": name, "tau": tau, "alpha": alpha})


def exp4b_printed(graph: str, level: int, model: str) -> dict[str, Any] | None:
    """Return the row of experiment 4b."""
    table = f"table_base_model_comparison_{graph.replace('-', '_')}"
    return _find(table, {"c": history_of(graph, level), "model": _GDOC_MODELS.get(model)})


def exp4c_printed(graph: str, level: int, detector: str) -> dict[str, Any] | None:
    """Return the row of experiment 4c."""
    wanted = {"c": history_of(graph, level), "method": _TRADE_OFF[detector]}
    return _find(f"table_tradeoff_{graph.replace('-', '_')}", wanted)


def _find(table: str, wanted: dict[str, Any]) -> dict[str, Any] | None:
    rows = printed().get(table, {}).get("rows", [])
    return next((row for row in rows if all(row.get(name) == value for name, value in wanted.items())), None)
