"""Checks of accuracy and detection on real data. Takes about half an hour: ``make sanity``.

The runs are those of ``docs/research/sanity.md`` and are stored, so that they run only once.
"""

from __future__ import annotations

from typing import Any

import pytest

sanity = pytest.importorskip("benchmarks.sanity", reason="the folder benchmarks is missing")

pytestmark = [
    pytest.mark.sanity,
    pytest.mark.skipif(
        not (sanity.DATA / "dblp-hard").is_dir(), reason=f"{sanity.DATA} does not exist: set EVERGRAPH_DATA"
    ),
]


def found(name: str, what: str) -> dict[str, Any]:
    return {key: value["mean"] for key, value in sanity.result(name, what, [0]).summary().items()}


@pytest.mark.parametrize("name", sanity.GRAPHS)
def test_a_graph_model_beats_an_mlp_and_that_the_most_frequent_class(name: str) -> None:
    accuracy = [
        found(name, what)["accuracy"]
        for what in ("most frequent class, history 3", "MLP, history 3, warm", "GraphSAGE, history 3, warm")
    ]
    assert accuracy == sorted(accuracy)
    assert accuracy[1] - accuracy[0] > 0.05
    assert accuracy[2] - accuracy[1] > 0.02


@pytest.mark.parametrize("name", sanity.GRAPHS)
def test_with_a_short_history_a_warm_restart_beats_a_cold_one(name: str) -> None:
    warm, cold = (found(name, f"GraphSAGE, history 1, {how}")["accuracy"] for how in ("warm", "cold"))
    assert warm > cold + 0.01


@pytest.mark.parametrize("name", sanity.GRAPHS)
@pytest.mark.parametrize("detector", ["DOC .5", "gDOC .75"])
def test_detectors_reject_some_and_not_all(name: str, detector: str) -> None:
    assert 0.001 < found(name, f"GraphSAGE + {detector}, history 3, warm")["rejected"] < 0.9


def test_the_expected_level_on_dblp_hard() -> None:
    assert found("dblp-hard", "GraphSAGE, history 6, warm")["accuracy"] == pytest.approx(0.52, abs=0.03)
    assert found("dblp-hard", "GraphSAGE + gDOC .75, history 6, warm")["open_f1"] == pytest.approx(0.40, abs=0.04)
