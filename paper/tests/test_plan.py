"""The paper's grids: their rows and graphs, one trial of them, what is measured of many, and the choice of rates."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import matthews_corrcoef

from evergraph import EvolvingGraph
from evergraph.analysis.description import first_task
from evergraph.datasets import synthetic
from evergraph.detect import DOC, GDOC
from evergraph.errors import InputError
from evergraph.evaluation.configuration import Configuration
from evergraph.evaluation.results import TaskRow
from evergraph.evaluation.run import run
from evergraph.evaluation.trials import TrialResult, trial_key
from evergraph.evaluation.workers import _loaded, graph_of
from evergraph.graph.times import TimeAxis
from evergraph.nn import SGC, GraphSAGE
from evergraph_paper.as_published import unmapped_open_f1
from evergraph_paper.measured import Measured, collect, transfer
from evergraph_paper.plan import (
    ALPHAS,
    LABEL_RATES,
    LEVELS,
    MODELS,
    THRESHOLDS,
    LifelongTrial,
    Row,
    Subject,
    exp2,
    exp2a,
    exp3,
    exp4,
    exp4a,
    exp4b,
    exp4c,
    keep_subjects,
    kept_subjects,
    settings_of,
    subject,
)
from evergraph_paper.tune import RATES, WEIGHT_DECAYS, TunedRate, apply_rates, choose, read_rates, tune_rows
from evergraph_paper.tune import write_rates as write

EASY = Subject("dblp-easy", "print of easy", (1, 3, 6))
HARD = Subject("graphs/dblp-hard", "print of hard", (1, 3, 6))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    """A small graph in a folder; a fifth of its vertices have no label, and classes that come late are first by name."""
    path = tmp_path_factory.mktemp("graphs") / "tiny"
    made = {"classes": 4, "new_classes": 3, "growth": 1.3, "recency": 0.0, "label_rate": 0.8}
    graph = synthetic(vertices=400, times=12, **made, seed=1)
    replace(graph, class_names=graph.class_names[::-1]).save(path)
    return subject(str(path))


# --- rows ------------------------------------------------------------------------------------------------------------


def rows_of(result: Mapping[str, Any], seed: int) -> list[TaskRow]:
    """The rows that a result was made of."""
    names = [name for name in result if name != "rules"]
    return [
        TaskRow.from_dict(dict(zip(names, values, strict=True)) | {"seed": seed})
        for values in zip(*(result[name] for name in names), strict=True)
    ]


def test_each_experiment_has_the_rows_of_the_paper() -> None:
    sizes = {exp2: 48, exp2a: 6, exp3: 72, exp4: 16, exp4a: 1, exp4b: 24 + 16, exp4c: 24}
    for experiment, size in sizes.items():
        rows = experiment([EASY])
        assert len(set(rows)) == len(rows) == size, experiment
        assert len(experiment([EASY, HARD])) == 2 * size
    every = set(product(MODELS, LEVELS, ("cold", "warm")))
    assert {(row.model, row.level, row.restart) for row in exp2([EASY])} == every
    assert {row.label_rate for row in exp3([EASY])} == set(LABEL_RATES) == {n / 10 for n in range(1, 10)}
    assert Counter(row.detector for row in exp4c([EASY])) == {"none": 8, "doc": 8, "gdoc": 8}
    assert sum(row.hops == 1 for row in exp4b([EASY])) == 16


def rates(text: str) -> dict[tuple[int, str], float]:
    """By level and restart, from lines as the paper's scripts have them: cold/warm for each of the four histories."""
    cells = [cell.split("/") for cell in text.split()]
    return {
        (level, restart): float(value)
        for level, cell in zip((25, 50, 75, 100), cells, strict=True)
        for restart, value in zip(("cold", "warm"), cell, strict=True)
    }


PLAIN = {
    "mlp": rates(".001/.001 .001/.001 .005/.001 .005/.001"),
    "sage": rates(".001/.001 .005/.005 .01/.005 .01/.005"),
    "gat": rates(".005/.001 .005/.005 .05/.01 .05/.05"),
    "sgc": rates(".005/.005 .01/.005 .01/.005 .05/.01"),
    "saint": rates(".005/.001 .005/.001 .005/.001 .01/.005"),
    "jknet": rates(".005/.001 .005/.001 .005/.001 .01/.005"),
}
DETECTION = {
    ("sage", "doc"): rates(".005/.001 .005/.005 .01/.005 .01/.01"),
    ("sage", "gdoc"): rates(".005/.0005 .005/.001 .01/.005 .01/.005"),
    ("sgc", "gdoc"): rates(".01/.005 .01/.005 .01/.005 .01/.01"),
    ("gat", "gdoc"): PLAIN["gat"],  # the paper's script for it trains another model
}
GAT_SCRIPT = rates(".005/.001 .005/.001 .01/.005 .01/.01")


@pytest.mark.parametrize("experiment", [exp2, exp3, exp4, exp4a, exp4b, exp4c])
def test_each_row_has_the_learning_rate_of_the_paper(experiment: Any) -> None:
    for row in experiment([EASY]):
        known = PLAIN[row.model] if row.detector == "none" else DETECTION[row.model, row.detector]
        known = known if row.lr is None else GAT_SCRIPT
        made = row.trial(seed=7).configuration
        assert made.lr == known[row.level, row.restart], row
        assert (made.weight_decay, made.steps, made.restart, row.trial(7).seed) == (0, 200, row.restart, 7)
        assert made.label_rate == row.label_rate
        assert made.history == {25: 1, 50: 3, 75: 6, 100: "full"}[row.level]
        if row.model == "sgc":
            assert made.model == SGC(hops=row.hops or 2)


def test_models_trained_once_have_rates_and_steps_of_their_own() -> None:
    once = {row.model: row.trial(0).configuration for row in exp2a([EASY]) if row.restart == "once"}
    on = {row.model: row.trial(0).configuration for row in exp2a([EASY]) if row.restart == "warm"}
    assert {model: (once[model].lr, on[model].lr) for model in once} == {
        "mlp": (0.001, 0.001),
        "sage": (0.001, 0.005),
        "gat": (0.005, 0.01),
    }
    assert {(one.steps, one.history) for one in once.values()} == {(400, 3)}
    assert {(one.steps, one.history) for one in on.values()} == {(200, 3)}


def test_only_graphsaint_is_trained_without_the_test_vertices() -> None:
    for row in [*exp2([EASY]), *exp2a([EASY]), *exp3([EASY]), *exp4b([EASY]), *exp4c([EASY])]:
        assert row.trial(0).configuration.mode == ("inductive" if row.model == "saint" else "transductive")


def test_the_rules_of_the_ablation_are_tried_at_its_place_only() -> None:
    shown = {"doc": {DOC(0.5), DOC(0.5, alpha=3.0), DOC(0.75)}, "gdoc": {GDOC(0.5), GDOC(0.5, alpha=3.0), GDOC(0.75)}}
    for row in [*exp2([EASY]), *exp3([EASY]), *exp4([EASY]), *exp4b([EASY]), *exp4c([EASY])]:
        rules = row.trial(0).rules
        if (row.model, row.level, row.restart, row.detector) == ("sage", 50, "warm", "gdoc"):
            assert set(rules) == {GDOC(*rule) for rule in product(THRESHOLDS, (*ALPHAS, None))}
            assert len(rules) == 35
        else:
            assert len(rules) == (0 if row.detector == "none" else 3)
        assert set(rules) >= shown.get(row.detector, set())
        assert row.detector == "none" or row.trial(0).configuration.detector in rules


def test_experiments_share_their_trials(tiny: Subject) -> None:
    def keys(rows: Iterable[Row]) -> set[str]:
        return {trial_key(row.trial(seed=1)) for row in rows}

    assert len(keys(exp2([tiny]))) == 48
    assert keys(row for row in exp4c([tiny]) if row.detector == "none") < keys(exp2([tiny]))
    assert keys(row for row in exp4c([tiny]) if row.detector != "none") == keys(exp4([tiny]))
    assert keys(exp4a([tiny])) < keys(exp4([tiny]))
    assert keys(row for row in exp4b([tiny]) if row.model == "sage") < keys(exp4([tiny]))
    assert len(keys(exp2a([tiny])) & keys(exp2([tiny]))) == 2  # of MLP and GraphSAGE, not of GAT
    assert len(keys(exp4b([tiny]))) == 36  # the script for GAT has the rates of SGC at two levels
    assert keys(tune_rows([tiny])) & keys(exp2([tiny])) == keys(Row(tiny, "sage", 50, how) for how in ("cold", "warm"))


# --- graphs ----------------------------------------------------------------------------------------------------------


def test_histories_come_from_the_time_differences_before_the_first_task(tiny: Subject) -> None:
    graph, _ = graph_of(tiny.path)
    past = graph.times < first_task(graph)
    links = (graph.adjacency.toarray() != 0)[past][:, past].astype(int)
    near = np.argwhere((links + links @ links > 0) & ~np.eye(len(links), dtype=bool))
    apart = graph.times[past][near[:, 0]] - graph.times[past][near[:, 1]]
    apart = apart[apart >= 0]  # seen from the later one; both see each other at the same time
    expected = [max(1, math.ceil(np.percentile(apart, level))) for level in (25, 50, 75)]
    assert list(tiny.sizes) == expected
    assert len(set(expected)) == 3
    assert [tiny.history(level) for level in LEVELS] == [*expected, "full"]


def test_a_graph_without_edges_suggests_no_histories(tmp_path: Path) -> None:
    EvolvingGraph.build({"id": ["a", "b"], "time": [1, 2]}).save(tmp_path / "bare")
    with pytest.raises(InputError, match="no edges before its first task"):
        subject(str(tmp_path / "bare"))


def test_a_graph_has_the_name_of_its_folder_from_inside_too(tiny: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tiny.path)
    _loaded.cache_clear()  # a dot means another folder elsewhere
    here = subject(".")
    _loaded.cache_clear()
    assert (here.name, here.fingerprint) == ("tiny", tiny.fingerprint)
    assert LifelongTrial(".", Configuration()).graph_name == "tiny"


def test_graphs_of_results_are_kept(tiny: Subject, tmp_path: Path) -> None:
    assert kept_subjects(tmp_path) == {}
    keep_subjects(tmp_path / "new", [tiny, EASY])
    assert kept_subjects(tmp_path / "new") == {"dblp-easy": EASY, "tiny": tiny}
    moved = replace(EASY, path="elsewhere/dblp-easy")
    keep_subjects(tmp_path / "new", [moved])
    assert kept_subjects(tmp_path / "new") == {"dblp-easy": moved, "tiny": tiny}
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == [".claims", "graphs.json"]


def test_another_graph_of_the_same_name_is_refused(tiny: Subject, tmp_path: Path) -> None:
    other = Subject("other/tiny", "another print", (1, 1, 1))
    with pytest.raises(InputError, match="two different graphs are named tiny"):
        keep_subjects(tmp_path / "new", [tiny, other])
    assert not (tmp_path / "new").exists()
    keep_subjects(tmp_path, [tiny])
    with pytest.raises(InputError, match=r"the results are of another graph named tiny.*Rename the folder"):
        keep_subjects(tmp_path, [EASY, other])
    assert kept_subjects(tmp_path) == {"tiny": tiny}


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        "7",
        '{"x": 1}',
        '{"x": {"path": "x", "fingerprint": "y"}}',
        '{"x": {"path": "x", "fingerprint": "y", "sizes": [1, 2]}}',
        '{"x": {"path": "x", "fingerprint": "y", "sizes": "123"}}',
        '{"x": {"path": "x", "fingerprint": "y", "sizes": [1, 2, 0]}}',
        '{"x": {"path": 1, "fingerprint": "y", "sizes": [1, 2, 3]}}',
    ],
)
def test_a_damaged_list_of_graphs_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "graphs.json").write_text(content)
    with pytest.raises(InputError, match=r"graphs.json: this is not a list of graphs"):
        kept_subjects(tmp_path)
    with pytest.raises(InputError):
        keep_subjects(tmp_path, [EASY])
    assert (tmp_path / "graphs.json").read_text() == content


# --- one trial -------------------------------------------------------------------------------------------------------

SMALL = Configuration(GraphSAGE(hidden=8), GDOC(0.5), history=3, steps=60, lr=0.05, label_rate=0.7)
RULES = (GDOC(0.5), GDOC(0.3, alpha=3.0), GDOC(0.75))


@pytest.fixture(scope="module")
def result(tiny: Subject) -> dict[str, Any]:
    return LifelongTrial(tiny.path, SMALL, 3, RULES).run()


def without_seconds(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if not name.startswith("seconds")}


def test_a_trial_has_the_figures_of_a_run(tiny: Subject, result: dict[str, Any]) -> None:
    ran = run(SMALL, graph_of(tiny.path)[0], seeds=[3]).rows[3]
    assert len(ran) > 3
    for name in without_seconds(ran[0].as_dict()):
        if name != "seed":
            assert result[name] == [row.as_dict()[name] for row in ran], name
    inverted = rows_of(result, 3)
    assert [without_seconds(row.as_dict()) for row in inverted] == [without_seconds(row.as_dict()) for row in ran]
    assert [row.seconds_adapt for row in inverted] == result["seconds_adapt"]
    json.dumps(result, allow_nan=False)


def test_each_rule_decides_as_a_run_that_was_trained_with_it(tiny: Subject, result: dict[str, Any]) -> None:
    for rule, found in zip(RULES, result["rules"], strict=True):
        ran = [row.as_dict() for row in run(replace(SMALL, detector=rule), graph_of(tiny.path)[0], seeds=[3]).rows[3]]
        assert set(found) < {*ran[0], "open_f1_published"}
        for name in set(found) - {"open_f1_published"}:
            assert found[name] == [row[name] for row in ran], (rule, name)
    rejected = {sum(found["tp"]) + sum(found["fp"]) for found in result["rules"]}
    assert len(rejected) == len(RULES)
    assert sum(result["tp"]) > 0 < sum(result["tn"])


def test_published_open_f1_takes_positions_among_classes_by_name(tiny: Subject, result: dict[str, Any]) -> None:
    graph, learner = graph_of(tiny.path)[0], SMALL.learner(3)
    by_name = tuple(sorted(graph.class_names))
    found: list[list[float]] = [[] for _ in RULES]
    for planned in SMALL.tasks(graph):
        task = replace(planned, seed=3)
        learner.adapt(task)
        labelled = [place for place, name in enumerate(task.truth) if name is not None]
        assert len(labelled) < len(task.truth)
        for rule, kept in zip(RULES, found, strict=True):
            made = learner.predict(task, rule)
            unseen = np.array([name not in learner.classes_ for name in task.truth[labelled]])
            kept.append(unmapped_open_f1(task.truth[labelled], made.classes[labelled], made.known, by_name, unseen))
    assert [columns["open_f1_published"] for columns in result["rules"]] == found
    assert found[0] != result["open_f1"]


def test_a_trial_comes_to_the_same_bits_again(tiny: Subject, result: dict[str, Any]) -> None:
    _loaded.cache_clear()
    again = LifelongTrial(tiny.path, SMALL, 3, RULES).run()
    assert json.dumps(without_seconds(again)) == json.dumps(without_seconds(result))


# --- what is measured of many ----------------------------------------------------------------------------------------


def finished(row: Row, seed: int, result: Mapping[str, Any], fingerprint: str = "") -> TrialResult:
    trial = row.trial(seed)
    described = {
        "kind": "lifelong",
        "fingerprint": fingerprint or row.graph.fingerprint,
        **settings_of(trial.configuration, trial.rules, TimeAxis()),
    }
    return TrialResult(f"{row} {seed} {fingerprint}", row.graph.name, described, seed, result, {"seconds": 60.0})


def accuracies(row: Row, by_seed: Mapping[int, Sequence[float | None]]) -> dict[str, TrialResult]:
    made = [
        finished(row, seed, {"time": list(range(2000, 2000 + len(values))), "accuracy": list(values), "rules": []})
        for seed, values in by_seed.items()
    ]
    return {one.key: one for one in made}


def only(measured: list[Measured]) -> Measured:
    (found,) = measured
    return found


def test_figures_are_means_over_tasks_and_then_over_seeds() -> None:
    row = Row(EASY)
    found = only(collect([row], accuracies(row, {4: (0.5, None), 1: (0.1, 0.3)})))
    assert (found.seeds, found.times) == ((1, 4), [2000, 2001])
    assert found.per_seed("accuracy") == pytest.approx([0.2, 0.5])
    interval = found.interval("accuracy")
    assert (interval.mean, interval.n) == (pytest.approx(0.35), 2)
    assert interval.half == pytest.approx(12.7062 * 0.3 / 2, rel=1e-5)  # Student's t with one degree of freedom
    pooled = found.pooled("accuracy")
    assert (pooled.mean, pooled.half, pooled.n) == (pytest.approx(0.3), pytest.approx(1.96 * 0.2 / math.sqrt(3)), 3)
    nothing = only(collect([row], accuracies(row, {0: (None, None)})))
    assert math.isnan(nothing.interval("accuracy").mean)


def test_mcc_is_that_of_the_confusions_summed_over_tasks() -> None:
    row = Row(EASY, "sage", 25, "warm", "gdoc")

    def columns(seed: int) -> dict[str, Any]:
        counts = np.random.default_rng(seed).integers(1, 30, (4, 2)).tolist()
        f1 = {"open_f1": [0.2 + seed, None], "open_f1_published": [0.1, 0.3 + seed]}
        return dict(zip(("tp", "tn", "fp", "fn"), counts, strict=True)) | f1

    rules = {seed: [columns(seed), columns(seed + 10), columns(seed + 20)] for seed in (0, 1)}
    empty = {"time": [1, 2], "accuracy": [0.1, 0.2]}
    made = [finished(row, seed, empty | {"rules": each}) for seed, each in rules.items()]
    measured = only(collect([row], {one.key: one for one in made}))
    found = measured.rule(GDOC(0.5, alpha=3.0))
    assert found is not None
    for seed, each in rules.items():
        tp, tn, fp, fn = (sum(each[1][name]) for name in ("tp", "tn", "fp", "fn"))
        unseen = np.repeat([True, False, False, True], [tp, tn, fp, fn])
        rejected = np.repeat([True, False, True, False], [tp, tn, fp, fn])
        assert found.per_seed("mcc")[seed] == pytest.approx(matthews_corrcoef(unseen, rejected))
        assert found.per_seed("flagged")[seed] == pytest.approx(rejected.mean())
        assert found.per_seed("open_f1")[seed] == pytest.approx(0.2 + seed + 10)
        assert found.per_seed("open_f1_published")[seed] == pytest.approx((0.1 + 0.3 + seed + 10) / 2)
    assert measured.rule(GDOC(0.9)) is None
    assert measured.rule(DOC(0.5)) is None


def test_only_results_of_the_same_graph_and_settings_count() -> None:
    row = Row(EASY)
    results = accuracies(row, {0: (0.5,), 1: (0.6,), 2: (0.7,)})
    for other in (replace(row, restart="cold"), replace(row, lr=0.3), replace(row, steps=5), Row(HARD)):
        assert collect([other], results) == []
        results |= accuracies(other, {3: (0.9,)})
    foreign = finished(row, 3, {"time": [2000], "accuracy": [0.9]}, fingerprint="another graph of this name")
    static = replace(foreign, key="static", trial={"kind": "static"})
    results |= {one.key: one for one in (foreign, static)}
    assert only(collect([row, row], results)).seeds == (0, 1, 2)
    assert only(collect([row], results, seeds=(2, 0, 9))).seeds == (0, 2)
    assert collect([row], results, seeds=(9,)) == []
    same = replace(row, lr=row.trial(0).configuration.lr)  # written out, or by default
    assert only(collect([same], results)).seeds == (0, 1, 2)
    moved = replace(row, graph=replace(EASY, path="elsewhere/renamed"))
    assert only(collect([moved], results)).seeds == (0, 1, 2)


def test_forward_transfer_leaves_out_the_first_task() -> None:
    warm, cold = Row(EASY), Row(EASY, restart="cold")
    results = accuracies(warm, {0: (0.9, 0.6, 0.8), 1: (0.9, 0.8, 0.9)})
    results |= accuracies(cold, {0: (0.1, 0.5, 0.6), 1: (0.1, 0.5, 0.8)})
    both = collect([warm, cold], results)
    found = transfer(*both)
    each = [(0.1 + 0.2) / 2, (0.3 + 0.1) / 2]
    assert found.mean == pytest.approx(sum(each) / 2)
    assert found.half == pytest.approx(12.7062 * (each[1] - each[0]) / 2, rel=1e-5)
    apart = [only(collect([warm], results, seeds=(1,))), only(collect([cold], results, seeds=(0,)))]
    found = transfer(*apart)
    assert found.mean == pytest.approx((0.3 + 0.3) / 2)
    assert (math.isnan(found.half), found.n) == (True, 0)


# --- choosing learning rates -----------------------------------------------------------------------------------------


def test_the_best_rate_is_chosen_and_transferred() -> None:
    rows = tune_rows([EASY])
    assert len(rows) == len(set(rows)) == 2 * len(RATES) * len(WEIGHT_DECAYS)
    assert {(row.model, row.level) for row in rows} == {("sage", 50)}
    results: dict[str, TrialResult] = {}
    for row in rows:
        best = (row.restart, row.lr) in (("cold", 0.05), ("warm", 0.001), ("warm", 0.01))
        undefined = row.lr == RATES[0]  # which comes first, and is never the best
        results |= accuracies(row, {0: (None if undefined else 0.6 if best else 0.5,)})
    choices = choose(collect(rows, results))
    assert choices == [
        TunedRate("sage", 50, "cold", 0.05, 0.0, 0.6),
        TunedRate("sage", 50, "warm", 0.001, 0.0, 0.6),  # of equals the smaller
    ]
    grid = [*exp2([EASY, HARD]), *exp2a([EASY]), *exp4([EASY])]
    applied = apply_rates(grid, [replace(choices[0], weight_decay=0.0005), choices[1]])
    changed = [
        (new.graph.name, new.restart, new.lr, new.weight_decay)
        for old, new in zip(grid, applied, strict=True)
        if old != new
    ]
    assert changed == [
        (graph, *rest)
        for graph in ("dblp-easy", "dblp-hard")
        for rest in (("cold", 0.05, 0.0005), ("warm", 0.001, 0.0))
    ]


def test_with_several_graphs_the_best_on_average_is_chosen() -> None:
    told = {(EASY, 0.01): 0.9, (HARD, 0.01): 0.2, (EASY, 0.05): 0.8, (HARD, 0.05): 0.4, (EASY, 0.1): 0.95}
    results: dict[str, TrialResult] = {}
    for (graph, lr), accuracy in told.items():
        results |= accuracies(Row(graph, lr=lr), {0: (accuracy,)})
    (choice,) = choose(collect(tune_rows([EASY, HARD]), results))
    assert (choice.lr, choice.accuracy) == (0.05, pytest.approx(0.6))


def test_rates_are_kept_in_a_file(tmp_path: Path) -> None:
    choices = [TunedRate("sage", 50, "cold", 0.05, 0.0, 0.6), TunedRate("mlp", 100, "warm", 0.1, 0.0005, 0.7)]
    write(tmp_path / "new" / "rates.json", choices)
    assert read_rates(tmp_path / "new" / "rates.json") == choices
    assert len(list((tmp_path / "new").iterdir())) == 1
    with pytest.raises(InputError, match="cannot be read"):
        read_rates(tmp_path / "nothing")


@pytest.mark.parametrize("change", [{"lr": "0.1"}, {"lr": 0}, {"lr": None}, {"level": 30}, {"model": 1}, {"more": 1}])
def test_damaged_rates_are_refused(change: dict[str, Any], tmp_path: Path) -> None:
    good = vars(TunedRate("sage", 50, "cold", 0.05, 0.0, 0.6))
    path = tmp_path / "rates.json"
    for content in (json.dumps([good | change]), "{", "[]", "{}", "[1]", "7"):
        path.write_text(content)
        with pytest.raises(InputError, match=r"rates.json: the file contains no learning rates"):
            read_rates(path)
