"""The results table: what is aggregated over tasks and seeds, and how."""

import json
import subprocess
import sys

import numpy as np
import pytest

from evergraph import UNSEEN, InputError
from evergraph.evaluation.metrics import Confusion, over_seeds
from evergraph.evaluation.results import Results, aggregate
from tests.evaluation.test_metrics import EMPTY, a_task


def a_run():
    calm = a_task(  # no vertex is unseen
        truth=["KDD"] * 6, argmax=["KDD"] * 6, decided=["KDD"] * 6, unseen=[False] * 6, never_before=[False] * 6
    )
    bold = a_task(decided=["KDD", "ICML", "ICML", "ICML", UNSEEN, UNSEEN])
    return {7: [a_task(), calm, EMPTY], 3: [bold, calm, EMPTY]}


def test_a_summary_has_means_over_tasks_and_then_over_seeds():
    found = aggregate(a_run())
    assert found["accuracy"]["per_seed"] == pytest.approx([(0.5 + 1) / 2] * 2)  # the empty task is left out
    assert found["rejected"]["per_seed"] == pytest.approx([1 / 6, 1 / 6])
    assert found["auroc"]["per_seed"] == pytest.approx([7 / 8, 7 / 8])  # of one task only
    first, second = (1 / 2 + 1 + 1 / 2) / 3, (2 / 3 + 4 / 5 + 1) / 3
    expected = over_seeds([(first + 1) / 2, (second + 1) / 2])
    assert found["open_f1"]["per_seed"] == pytest.approx([(first + 1) / 2, (second + 1) / 2])
    assert (found["open_f1"]["mean"], found["open_f1"]["ci95"]) == pytest.approx((expected.mean, expected.half))


def test_mcc_of_a_run_is_of_summed_counts_and_not_a_mean():
    found = aggregate(a_run())
    each = Confusion(tp=1, tn=3, fp=1, fn=1).mcc
    assert found["mcc_per_task"]["per_seed"] == pytest.approx([(each + 0 + 0) / 3, (1 + 0 + 0) / 3])
    assert found["mcc"]["per_seed"] == pytest.approx([Confusion(tp=1, tn=9, fp=1, fn=1).mcc, 1.0])
    assert found["mcc"]["per_seed"][0] == pytest.approx(0.4)
    assert found["mcc_never_before"]["per_seed"][0] == pytest.approx(Confusion(tp=1, tn=10, fp=1).mcc)
    expected = Confusion(tp=1, tn=4, fp=1).mcc / 3
    assert found["mcc_per_task_never_before"]["per_seed"][0] == pytest.approx(expected)


def test_seeds_are_not_summed_into_one_mcc():
    """The authors' table script sums them: here it would give 16/√(2·4·8·10) = 0.63."""
    right = a_task(decided=["KDD", "KDD", "ICML", "ICML", UNSEEN, UNSEEN])
    timid = a_task(decided=["KDD", "KDD", "ICML", "ICML", "KDD", "KDD"])
    assert aggregate({0: [right], 1: [timid]})["mcc"]["mean"] == pytest.approx((1 + 0) / 2)


def test_the_interval_of_the_paper_is_given_for_the_accuracy_only():
    found = aggregate(a_run())
    values = np.array([0.5, 1, 0.5, 1])
    assert found["accuracy"]["pooled_ci95"] == pytest.approx(1.96 * values.std(ddof=1) / 2)
    assert found["accuracy"]["ci95"] == pytest.approx(0, abs=1e-12)
    assert [name for name, summary in found.items() if "pooled_ci95" in summary] == ["accuracy"]


@pytest.mark.parametrize(
    "run", [a_run(), {0: [a_task()]}, {0: [EMPTY]}, {0: [EMPTY], 1: [EMPTY]}, {0: [], 1: []}, {0: []}, {}]
)
def test_a_summary_has_the_same_names_always_and_is_fit_for_json(run):
    found = aggregate(run)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found.keys() == aggregate(a_run()).keys()
    assert {len(summary["per_seed"]) for summary in found.values()} == {len(run)}


def test_a_summary_of_one_seed_has_no_interval():
    found = aggregate({0: [a_task(), a_task()]})
    assert {summary["ci95"] for summary in found.values()} == {None}
    assert found["accuracy"]["mean"] == 0.5


def test_a_summary_of_nothing_has_no_means():
    assert aggregate({0: [EMPTY]})["accuracy"] == {
        "mean": None,
        "ci95": None,
        "per_seed": [None],
        "pooled_ci95": None,
    }


def test_a_summary_refuses_seeds_with_different_tasks():
    with pytest.raises(InputError, match="2 of seed 0, 1 of seed 5"):
        aggregate({0: [a_task(), EMPTY], 5: [a_task()]})


def test_a_table_gives_columns_by_seed_and_task_also_derived_ones():
    found = Results.of(a_run())
    assert (found.seeds, found.shape) == ((7, 3), (2, 3))
    accuracy = found.by_task("accuracy")
    assert accuracy[:, :2].tolist() == [[0.5, 1.0], [0.5, 1.0]]
    assert np.isnan(accuracy[:, 2]).all()
    assert found.by_task("unseen").tolist() == [[2, 0, 0], [2, 0, 0]]
    assert found.by_task("mcc")[1].tolist() == [1.0, 0.0, 0.0]
    assert found.per_seed("flagged").tolist() == [2 / 12, 2 / 12]
    assert found.per_seed("unseen_share").tolist() == [2 / 12, 2 / 12]
    assert found.per_seed("false_alarm_rate").tolist() == [1 / 10, 0.0]
    assert found.pooled("accuracy").n == 4
    assert found.interval("mcc") == over_seeds(found.per_seed("mcc"))


def test_a_table_of_columns_is_that_of_rows():
    rows = {seed: [task.as_dict() for task in tasks] for seed, tasks in a_run().items()}
    columns = {seed: {name: [row[name] for row in found] for name in found[0]} for seed, found in rows.items()}
    assert Results(columns) == Results.of(rows) == Results.of(a_run())


def test_totals_take_the_place_of_means_over_tasks():
    found = Results.of(a_run(), totals={7: {"auroc": 0.25}, 3: {"auroc": 0.75}})
    assert found.aggregate(["auroc", "open_f1"]).keys() == {"auroc", "open_f1"}
    assert found.interval("auroc").mean == 0.5


def test_records_are_tidy():
    found = Results.of({0: [{"time": 2001, "tp": 1, "tn": 1, "fp": 0, "fn": 0}]}, about={"graph": "g"}).records()
    assert found == [
        {"graph": "g", "seed": 0, "time": 2001, "tp": 1, "tn": 1, "fp": 0, "fn": 0, "unseen": 1, "mcc": 1.0}
    ]


@pytest.mark.parametrize("module", ["metrics", "results", "trials"])
def test_reading_results_needs_no_torch(module):
    code = f"import evergraph.evaluation.{module}, sys; assert not {{'torch', 'pandas', 'pyarrow'}} & {{*sys.modules}}"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
