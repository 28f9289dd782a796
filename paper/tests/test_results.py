"""The committed results: what the code plans today still finds them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evergraph.evaluation.trials import TrialStore, trial_key
from evergraph.graph.times import TimeAxis
from evergraph_paper.plan import exp2, exp2a, exp3, exp4, exp4b, kept_subjects, settings_of
from evergraph_paper.static import STATIC_GRAPHS, STATIC_MODELS, StaticTrial
from evergraph_paper.tune import tune_rows

RESULTS = Path(__file__).parents[1] / "results"


class Described:
    """A trial by its description alone: for a key no graph has to be there."""

    def __init__(self, description: dict, seed: int) -> None:
        self.description, self.seed = description, seed

    def described(self) -> dict:
        return self.description


@pytest.fixture(scope="module")
def planned() -> set[str]:
    """Keys of all trials that the grids plan on the graphs that have results, with ten seeds."""
    graphs = list(kept_subjects(RESULTS).values())
    rows = {row for plan in (exp2, exp2a, exp3, exp4, exp4b, tune_rows) for row in plan(graphs)}
    descriptions = [
        {"kind": "lifelong", "fingerprint": row.graph.fingerprint}
        | settings_of((trial := row.trial(seed=0)).configuration, trial.rules, TimeAxis())
        for row in rows
    ]
    descriptions += [
        StaticTrial(graph, Path(), split, model, before).described()
        for graph in STATIC_GRAPHS
        for split in ("A", "B")
        for model in STATIC_MODELS
        for before in (0, 200)
    ]
    return {trial_key(Described(one, seed)) for one in descriptions for seed in range(10)}


def test_all_committed_trials_are_found_by_the_keys_of_the_plan(planned: set[str]) -> None:
    shelf = TrialStore(RESULTS)
    found = shelf.read()
    assert shelf.problems == []
    assert len(found) > 900
    lost = [f"{key}: {json.dumps(one.trial)}" for key, one in found.items() if key not in planned]
    assert lost == []
