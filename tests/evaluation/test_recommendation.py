"""Which detector a comparison recommends."""

import pytest

from evergraph.evaluation.comparison import METRICS, CandidateResult, Comparison, candidates
from evergraph.evaluation.configuration import Configuration
from evergraph.evaluation.recommendation import recommend

NOTHING = dict.fromkeys(METRICS, 0.0) | {"unseen": 0.1}


def compared(mcc, alarms=None, graphs=("g",), **more):
    """A comparison with these MCCs by detector, one for each seed."""
    seeds = tuple(range(len(next(iter(mcc.values())))))
    outcomes = [
        CandidateResult(
            graph,
            name,
            seed,
            NOTHING | {"mcc": values[seed], "false_alarm_rate": (alarms or {}).get(name, [0.1] * 9)[seed]} | more,
            ({"time": 1},),
        )
        for graph in graphs
        for name, values in mcc.items()
        for seed in seeds
    ]
    chosen = candidates(",".join(mcc))
    return Comparison({graph: graph for graph in graphs}, chosen, seeds, Configuration(), tuple(outcomes))


def test_the_best_one_if_it_is_better_beyond_the_spread():
    found = recommend(compared({"none": [0, 0, 0], "gdoc:0.75": [0.2, 0.21, 0.19], "auto": [0.4, 0.42, 0.38]}))
    assert found.detector == "auto"
    assert "auto has the best MCC, 0.400 ± 0.050 (false alarms: 10.0%)" in found.reason
    assert "The next best, gdoc:0.75 with 0.200 ± 0.025 (false alarms: 10.0%), is worse" in found.reason


@pytest.mark.parametrize("graphs", [("g",), ("g", "h")])
def test_the_default_if_the_difference_is_within_the_spread(graphs):
    mcc = {"average": [0.3, 0.1, 0.25], "gdoc:0.5": [0.2, 0.2, 0.2], "auto": [0.19, 0.2, 0.19]}
    found = recommend(compared(mcc, graphs=graphs))
    assert found.detector == "auto"
    assert "the default" in found.reason
    assert "within the spread of 3 seeds" in found.reason
    assert "expensive" not in found.reason


def test_a_simple_one_if_the_default_is_not_there_or_worse():
    mcc = {"average": [0.3, 0.2, 0.25], "gdoc:0.5": [0.24, 0.25, 0.25], "auto": [0.01, 0.02, 0.01]}
    found = recommend(compared(mcc))
    assert (found.detector, "without an auxiliary model" in found.reason) == ("gdoc:0.5", True)


def test_fewer_false_alarms_at_the_same_mcc_are_named():
    mcc = {"gdoc:0.5": [0.2, 0.15, 0.19], "auto": [0.19, 0.16, 0.18]}
    found = recommend(compared(mcc, {"gdoc:0.5": [0.1, 0.11, 0.1], "auto": [0.3, 0.31, 0.29]}))
    assert found.detector == "auto"
    assert "If false alarms are expensive, take gdoc:0.5: 10.3%." in found.reason


def test_one_seed_is_not_enough():
    found = recommend(compared({"gdoc:0.75": [0.1], "auto": [0.2]}))
    assert found.detector == "auto"
    assert "0.200 (false alarms: 10.0%). Next best: gdoc:0.75 with 0.100" in found.reason
    assert "One seed does not show the spread" in found.reason


def test_no_detector_where_none_helps():
    assert recommend(compared({"gdoc": [-0.1, -0.2], "auto": [-0.3, 0]})).detector == "none"
    assert "nothing to detect" in recommend(compared({"gdoc": [0, 0]}, unseen=0.0)).reason
    found = recommend(compared({"gdoc": [0.1, -0.05, 0.02]}))
    assert (found.detector, "The MCC of gdoc does not differ from chance" in found.reason) == ("gdoc", True)


def test_nothing_is_recommended_without_labels():
    unknown = float("nan")
    more = {"unseen": unknown, "false_alarm_rate": unknown}
    assert recommend(compared({"none": [0.0, 0.0], "gdoc": [0.0, 0.0]}, **more)) is None


def test_nothing_is_recommended_if_there_is_no_choice():
    assert recommend(compared({"none": [0.0, 0.0]})) is None
