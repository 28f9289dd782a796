"""The paper's tables and figures from hand-made results, and the command that reproduces them."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from paper.tests.test_claims import as_the_paper_says, made, static_results
from paper.tests.test_plan import accuracies
from rich.console import Console

from evergraph.datasets import synthetic
from evergraph.evaluation.trials import TrialResult
from evergraph.presentation.table import Cell, Section, Table, to_csv, to_latex, to_markdown, to_rich
from evergraph_paper import exp1, figures, tables
from evergraph_paper.cli import ExperimentName
from evergraph_paper.exp1 import StaticRow
from evergraph_paper.measured import collect
from evergraph_paper.plan import LifelongTrial, Row, Subject, exp2, exp2a, exp3
from evergraph_paper.reproduction import EXPERIMENTS, Extent, Reproduction, show
from evergraph_paper.tables import Results
from evergraph_paper.tune import TunedRate, write_rates

EASY = Subject("dblp-easy", "print of easy", (1, 3, 6))
HARD = Subject("dblp-hard", "print of hard", (1, 3, 6))
OTHER = Subject("other", "print of other", (1, 1, 2))

Command = Callable[..., tuple[int, str, str]]


def results_of(found: dict[str, TrialResult], rows: Sequence[Row]) -> Results:
    return {one.row: one for one in collect(rows, found)}


def lines_of(table: Table, section: int = 0) -> dict[str, dict[str, Cell]]:
    """The cells of one section by the name of their row and column."""
    places = [place for place, row in enumerate(table.rows) if isinstance(row, Section)] or [-1]
    stop = places[section + 1] if section + 1 < len(places) else len(table.rows)
    names = [column.full_name for column in table.columns]
    rows: Any = table.rows[places[section] + 1 : stop]
    return {str(row[0].value): dict(zip(names, row, strict=True)) for row in rows}


# --- tables ----------------------------------------------------------------------------------------------------------


def test_bold_are_the_best_and_those_whose_interval_reaches_into_its_interval() -> None:
    # Over three seeds that are d apart, the interval is 2.48 d to each side.
    told = {
        ("sage", "warm"): (0.60, 0.01),  # the best: from .575
        ("gat", "warm"): (0.57, 0.01),  # up to .595
        ("sgc", "cold"): (0.56, 0.001),  # up to .562
        ("mlp", "cold"): (0.50, 0.05),  # up to .624
        ("mlp", "warm"): (0.30, 0.01),
    }
    found: dict[str, TrialResult] = {}
    for (model, restart), (mean, apart) in told.items():
        row = Row(EASY, model, 25, restart)  # type: ignore[arg-type]
        found |= accuracies(row, {seed: (mean + apart * (seed - 1),) * 2 for seed in range(3)})
    table = tables.exp2_table(EASY, results_of(found, exp2([EASY])))
    lines = lines_of(table)
    bold = {(name, column) for name, line in lines.items() for column, cell in line.items() if cell.bold}
    ours = {(name, column) for name, column in bold if not column.startswith("paper")}
    assert ours == {("GraphSAGE", "accuracy warm"), ("GAT", "accuracy warm"), ("MLP", "accuracy cold")}
    assert lines["GraphSAGE"]["accuracy warm"].text == "60.0 ± 2.5"


def test_what_is_missing_is_a_dash() -> None:
    warm, cold = Row(EASY, "sage", 25, "warm"), Row(EASY, "mlp", 25, "cold")
    found = accuracies(warm, {0: (0.5, 0.7)}) | accuracies(cold, {0: (None, None)})
    lines = lines_of(tables.exp2_table(EASY, results_of(found, exp2([EASY]))))
    assert list(lines) == ["GraphSAGE", "MLP"]
    ours = ("accuracy cold", "accuracy warm", "transfer")
    assert [lines["GraphSAGE"][name].text for name in ours] == ["-", "60.0", "-"]
    assert [lines["MLP"][name].text for name in ours] == ["-", "-", "-"]
    assert lines["GraphSAGE"]["paper cold"].text == "60.4 ± 0.5"


def test_the_papers_numbers_stand_beside_ours() -> None:
    for graph, known in ((EASY, True), (OTHER, False)):
        rows = exp2([graph])
        table = tables.exp2_table(graph, results_of(made(rows), rows))
        line = lines_of(table)["GraphSAGE"]
        assert ("paper cold" in line) == known
        if known:
            assert [line[f"paper {name}"].text for name in ("cold", "warm", "transfer")] == [
                "60.4 ± 0.5",
                "65.1 ± 0.4",
                "+5.2",
            ]
    for name, with_paper in {"exp4": {EASY, HARD}, "exp4b": {HARD}, "exp4c": {HARD}}.items():
        for graph in (EASY, HARD, OTHER):
            rows = [row for row in EXPERIMENTS[name].rows([graph], Extent()) if row.level == 25]
            (table,) = EXPERIMENTS[name].tables([graph], Extent(), results_of(made(rows, seeds=1), rows)).values()
            assert any("paper" in column.group for column in table.columns) == (graph in with_paper)
    gdoc = [Row(HARD, "sage", 25, "warm", "gdoc")]
    line = lines_of(tables.exp4_table(HARD, results_of(made(gdoc), gdoc)))["gDOC, τ .75"]
    assert (line["MCC warm"].text[:5], line["paper's MCC warm"].text, line["MCC cold"].text) == ("0.100", "0.09", "-")
    acl = Subject("graphs/acl", "print of acl", (2, 4, 9))  # of which the paper has nothing, but a graph like it
    assert {column.group for column in tables.exp2_table(acl, {}).columns} == {"", "accuracy", "paper's pharmabio"}
    other_history = replace(EASY, sizes=(1, 3, 5))
    some = [Row(other_history, "sage", level) for level in (25, 75, 100)]
    results = results_of(made(some), some)
    sections = [row.name for row in tables.exp2_table(other_history, results).rows if isinstance(row, Section)]
    assert sections == ["c = 1 (25 %)", "c = 5 (75 %; paper 6)", "c = full (100 %)"]  # none without rows
    assert tables.exp2_table(other_history, {}).rows == ()


def test_trained_once_leaves_out_tasks_without_a_figure() -> None:
    row = exp2a([EASY])[0]
    found = accuracies(row, {0: (0.2, None, 0.4, 0.6, 0.6, 0.9)})
    (line,) = lines_of(tables.exp2a_table(EASY, exp2a([EASY]), results_of(found, [row]))).values()
    assert [line[name].text for name in ("all tasks", "first third", "last third")] == ["54.0", "20.0", "75.0"]


def test_label_rates_are_compared_over_shared_seeds_also_where_two_levels_have_one_history() -> None:
    warm, cold = (Row(OTHER, "sage", 25, restart, label_rate=0.1) for restart in ("warm", "cold"))  # type: ignore[arg-type]
    found = accuracies(warm, {0: (0.5,), 1: (0.9,)}) | accuracies(cold, {0: (0.4,), 2: (0.1,)})
    rows = exp3([OTHER])
    line = lines_of(tables.exp3_table(OTHER, (0.1,), results_of(found, rows)))["0.1"]
    assert line["c = 1 (25 %) gain"].text == "+10.0"
    assert line["c = 1 (50 %) gain"].text == line["c = 1 (50 %) cold"].text == "-"
    apart = {key: one for key, one in found.items() if one.seed}
    assert lines_of(tables.exp3_table(OTHER, (0.1,), results_of(apart, rows)))["0.1"]["c = 1 (25 %) gain"].text == "-"


def test_the_note_says_where_a_table_is_from() -> None:
    extent, other = Extent(seeds=(0, 1, 2, 5)), replace(OTHER, sizes=(1, 2, 3))
    found = made(exp2([EASY, other]), seeds=3)
    kept = {
        key: one for key, one in found.items() if one.trial["configuration"]["model"]["name"] != "gat" or one.seed < 2
    }
    shown = show("exp2", [EASY, HARD, other], extent, kept)
    assert set(shown.tables) == {"exp2-dblp-easy", "exp2-other"}
    first, second = shown.note.splitlines()
    assert first == "evergraph reproduce exp2 dblp-easy other --seeds 0-2 (fewer in some rows: gat 0-1)"
    assert second.startswith(
        "Data: dblp-easy print of, other print of. 272 trials, 0.08 hours of computing in all; Eve"
    )
    first, second = shown.tables["exp2-other"].note.splitlines()
    assert first == "evergraph reproduce exp2 other --seeds 0-2 (fewer in some rows: gat 0-1)"
    assert second.startswith("Data: other print of. 136 trials, 0.04 hours of computing in all; Eve")
    one = show(
        "exp4a", [EASY], replace(extent, models=("sage",)), made([Row(EASY, "sage", 50, "warm", "gdoc")], seeds=1)
    )
    assert "--seeds 0 --models sage\n" in one.tables["exp4a-dblp-easy"].note
    assert "1 trial," in one.tables["exp4a-dblp-easy"].note
    # Two rows with the same settings are one trial.
    shared = [row for row in EXPERIMENTS["exp4b"].rows([EASY], extent) if row.hops == 1 and row.level == 75]
    assert len(shared) == 4
    same = {
        f"{one.trial} {one.seed}": replace(one, key=f"{one.trial} {one.seed}") for one in made(shared, seeds=1).values()
    }
    assert " 2 trials," in show("exp4b", [EASY], extent, same).tables["exp4b-dblp-easy"].note


@pytest.fixture(scope="module")
def everything() -> dict[str, tuple[Extent, dict[str, TrialResult]]]:
    """Of each experiment all results of two graphs."""
    extent = Extent(seeds=(0, 1), label_rates=(0.1, 0.9))
    return {name: (extent, made(one.rows([EASY, OTHER], extent))) for name, one in EXPERIMENTS.items()}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_all_tables_can_be_shown_in_all_ways(name: str, everything: Any) -> None:
    extent, found = everything[name]
    shown = EXPERIMENTS[name].tables(
        [EASY, OTHER], extent, results_of(found, EXPERIMENTS[name].rows([EASY, OTHER], extent))
    )
    assert set(shown) == {f"{name}-dblp-easy", f"{name}-other"}
    for table in shown.values():
        rows = [row for row in table.rows if not isinstance(row, Section)]
        assert rows
        assert not any(cell.value == 0 for row in rows for cell in row[1:3])
        assert to_markdown(table).count("\n|") == len(table.rows) + 2
        assert to_latex(table).count(r"\\") >= len(table.rows) + 1
        assert len(to_csv(table).splitlines()) == len(rows) + 1
        to = io.StringIO()
        Console(file=to, width=80).print(to_rich(table))
        assert max(map(len, to.getvalue().splitlines())) <= 80


# --- figures ---------------------------------------------------------------------------------------------------------


def drawn(picture: Any) -> int:
    """The number of lines in a figure that can be saved."""
    file = io.BytesIO()
    picture.savefig(file, format="svg")
    assert ET.fromstring(file.getvalue()).tag.endswith("svg")
    return sum(len(panel.lines) for panel in picture.axes)


@pytest.mark.parametrize("name", ["exp2", "exp2a", "exp3", "exp4", "exp4a"])
def test_figures_show_what_is_there(name: str, everything: Any) -> None:
    extent, found = everything[name]
    graphs = [EASY, OTHER, HARD]  # the last has no results
    rows = EXPERIMENTS[name].rows(graphs, extent)
    whole = EXPERIMENTS[name].figures(graphs, extent, results_of(found, rows))
    lines = {"exp2": 24, "exp2a": 12, "exp3": 16, "exp4": 8, "exp4a": 10}
    assert sum(map(drawn, whole.values())) == lines[name]
    part = {row: one for row, one in results_of(found, rows).items() if row.graph == EASY and row.level == 50}
    some = EXPERIMENTS[name].figures([EASY], extent, part)
    assert 0 < sum(map(drawn, some.values())) < lines[name]
    nothing = EXPERIMENTS[name].figures([HARD], extent, {})
    assert sum(map(drawn, nothing.values())) == 0


def test_panels_are_so_few_in_a_row_that_ticks_can_be_read() -> None:
    graphs = [replace(OTHER, path=f"graph {number}") for number in range(5)]
    picture = figures.exp4a_figure(graphs, {})
    shown = [panel for panel in picture.axes if panel.get_visible()]
    assert [panel.get_title() for panel in shown] == [graph.name for graph in graphs]
    assert len({panel.get_subplotspec().rowspan.start for panel in shown}) == 2
    assert [bool(panel.get_ylabel()) for panel in shown] == [True, False, False, True, False]


# --- experiment 1 ----------------------------------------------------------------------------------------------------


def shelved(results: Sequence[tuple[Any, dict[str, Any]]]) -> dict[str, TrialResult]:
    """As they come from the store, in another order."""
    found = {}
    for trial, result in reversed(results):
        described = json.loads(json.dumps(trial.described()))
        found[str(trial)] = TrialResult(str(trial), trial.graph, described, trial.seed, result, {"seconds": 1.0})
    return found


def test_trials_of_experiment_1_are_found_again() -> None:
    results = static_results(as_the_paper_says, epochs=3, graphs=["cora", "pubmed"], models=["gcn", "gcn-64", "gat"])
    assert exp1.static_results(shelved(results) | made([Row(EASY)])) == results
    assert {trial.seed for trial, _ in exp1.static_results(shelved(results), seeds=[1])} == {1}
    assert exp1.static_results({}) == []


def test_experiment_1_in_tables() -> None:
    results = static_results(as_the_paper_says, epochs=35)
    line = lines_of(exp1.accuracy_table(results))["GCN"]
    assert (line["runs"].text, line["epochs, without 0"].text) == ("3", "15.0 ± 0.5")
    assert line["epochs, pre-trained 10"].text == line["epochs, pre-trained 35"].text == "75.0 ± 0.1"
    table = exp1.divergence_table(results)
    sections = [row.name for row in table.rows if isinstance(row, Section)]
    assert sections[0].startswith("0 epochs of pre-training; paper: 0.0666 to 0.1013")
    assert [*lines_of(table, 0)] == [*lines_of(table, 1)] == ["GCN", "MLP"]
    # While the grid runs, some trials of A have none of B beside them.
    partial = [
        (trial, result) for trial, result in results if trial.split == "A" or (trial.model, trial.seed) == ("gcn", 0)
    ]
    assert [*lines_of(exp1.divergence_table(partial))] == ["GCN"]
    assert exp1.divergence_table([pair for pair in results if pair[0].split == "A"]).rows == ()
    counts = StaticRow("cora", "A", 7, 1433, 2708, 5278, 3.9, 640, 300, 2068, 4978, 1000, 0.236)
    lines = exp1.splits_table([counts])
    assert lines_of(lines, 0)["cora"]["train edges"].text == "300"
    assert lines_of(lines, 1)["cora"]["vertices"].text == "2,708"


def test_experiment_1_in_figures() -> None:
    results = static_results(as_the_paper_says, epochs=12, graphs=["cora", "pubmed"])
    figures = exp1.exp1_figures(results)
    assert set(figures) == {"exp1-A", "exp1-B"}
    assert drawn(figures["exp1-A"]) == 2 * 2 * 2  # graphs, with and without pre-training, models
    some = [pair for pair in results if pair[0].split == "B" and pair[0].seed == 0 and pair[0].graph == "cora"]
    assert drawn(exp1.exp1_figures(some)["exp1-B"]) == 4
    assert exp1.exp1_figures([]) == {}


def test_experiment_1_runs_and_shows(shared_data: Callable[[str], Path], tmp_path: Path, command: Command) -> None:
    arguments = ("reproduce", "exp1", "--quick", "--models", "mlp", "--results", tmp_path)
    code, out, err = command(*arguments, "--planetoid", shared_data("planetoid"))
    assert (code, "4 of 4 done" in err) == (0, True), err
    assert "--seeds 0 --models mlp --quick" in out
    code, shown, _ = command(*arguments, "--show")
    assert (code, "Experiment 1: accuracy" in shown) == (0, True)


# --- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("graphs") / "tiny"
    synthetic(vertices=150, times=6, classes=4, new_classes=2, seed=1).save(path)
    return path


@pytest.fixture(scope="module")
def ran(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of a quick look at experiment 4a."""
    results = tmp_path_factory.mktemp("ran")
    Reproduction(results / "quick", [str(tiny)], quick=True).run("exp4a")
    return results


@pytest.fixture
def results(ran: Path, tmp_path: Path) -> Path:
    """The same, to be changed."""
    return Path(shutil.copytree(ran, tmp_path / "results"))


def files_in(folder: Path) -> set[str]:
    found = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    return {name for name in found if not name.startswith(".claims/")}


def test_a_quick_look_writes_and_prints_and_runs_nothing_twice(
    tiny: Path, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    arguments = ("reproduce", "exp4a", tiny, "--quick", "--results", tmp_path)
    code, out, err = command(*arguments)
    assert (code, "exp4a: 1 of 1 done" in err) == (0, True), err
    names = {f"exp4a/exp4a{rest}" for rest in ("-tiny.md", "-tiny.tex", "-tiny.csv", ".svg", ".png")}
    assert files_in(tmp_path / "quick") == {*names, "graphs.json", "trials/tiny.jsonl"}
    assert "Experiment 4a, tiny: MCC of gDOC" in out
    assert "evergraph reproduce exp4a tiny --seeds 0 --quick" in out
    *table, written, last = out.splitlines()
    assert (written.startswith("Written to "), last) == (True, "")
    assert max(map(len, table)) <= 80
    before = {name: (tmp_path / "quick" / name).read_bytes() for name in names}

    monkeypatch.setattr(LifelongTrial, "run", None)
    code, again, err = command(*arguments)
    assert (code, again) == (0, out)
    assert "1 of 1 done (1 before)" in err
    assert {name: (tmp_path / "quick" / name).read_bytes() for name in names} == before
    assert command(*arguments, "--quiet") == (0, "", "")
    code, shown, err = command("reproduce", "exp4a", "--show", "--results", tmp_path / "quick")
    assert (code, shown, err) == (0, "exp4a has no results yet.\n", "")  # those of a look are no results


def test_what_is_there_is_shown_without_the_graph(
    results: Path, tiny: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = json.loads((results / "quick" / "graphs.json").read_text())
    kept["tiny"]["path"] = "no/such/tiny"
    (results / "quick" / "graphs.json").write_text(json.dumps(kept))
    arguments = ("reproduce", "exp4a", "tiny", "--quick", "--show", "--results", results)
    code, out, err = command(*arguments)
    assert (code, err) == (0, "")
    assert "Experiment 4a, tiny" in out


def test_json_names_the_files(results: Path, tiny: Path, command: Command) -> None:
    code, out, _ = command("reproduce", "exp4a", tiny, "--quick", "--results", results, "--json")
    (found,) = json.loads(out)
    assert (code, found["experiment"]) == (0, "exp4a")
    assert all(Path(path).is_file() for path in found["files"])
    code, out, _ = command("reproduce", "exp2", "--show", "--results", results, "--json")
    assert (code, json.loads(out)) == (0, [{"experiment": "exp2", "files": []}])


def test_claims_are_judged_by_what_is_there(results: Path, command: Command) -> None:
    code, out, err = command("reproduce", "claims", "--quick", "--results", results, "--json")
    claims = json.loads(out)
    assert (code, err) == (0, "")
    assert [claim["claim"] for claim in claims] == [f"C{number}" for number in range(1, 20)]
    assert json.loads((results / "quick" / "claims" / "claims.json").read_text()) == claims
    code, out, _ = command("reproduce", "claims", "--quick", "--results", results)
    assert (code, "C19" in out) == (0, True)


def test_chosen_rates_are_run_with(tiny: Path, tmp_path: Path, command: Command) -> None:
    write_rates(tmp_path / "rates.json", [TunedRate("mlp", 50, "warm", 0.3, 0.0005, 0.6)])
    arguments = ("reproduce", "exp2", tiny, "--quick", "--models", " mlp,mlp ", "--results", tmp_path / "results")
    code, out, err = command(*arguments, "--rates", tmp_path / "rates.json")
    assert (code, "--seeds 0 --models mlp --quick --rates FILE" in " ".join(out.split())) == (0, True), err
    lines = (tmp_path / "results" / "quick" / "trials" / "tiny.jsonl").read_text().splitlines()
    settings = [json.loads(line)["trial"]["configuration"] for line in lines]
    assert sum((one["lr"], one["weight_decay"], one["restart"]) == (0.3, 0.0005, "warm") for one in settings) == 1
    table = (tmp_path / "results" / "quick" / "exp2" / "exp2-tiny.csv").read_text()
    assert len(table.splitlines()) == 5
    assert ",," not in table.splitlines()[2]


def test_rates_are_chosen_once_all_have_run(tiny: Path, tmp_path: Path, command: Command, monkeypatch: Any) -> None:
    monkeypatch.setattr("evergraph_paper.tune.RATES", (0.05, 0.001))
    arguments = ("reproduce", "tune", tiny, "--quick", "--results", tmp_path)
    assert command(*arguments)[0] == 0
    path = tmp_path / "quick" / "tune" / "rates.json"
    assert {choice["restart"] for choice in json.loads(path.read_text())} == {"cold", "warm"}
    path.unlink()
    monkeypatch.setattr("evergraph_paper.tune.RATES", (0.05, 0.001, 0.5))
    code, out, _ = command(*arguments, "--show")
    assert (code, "Choosing the learning rate" in out) == (0, True)
    assert not path.exists()


def test_a_broken_line_is_told_and_left_out(results: Path, tiny: Path, command: Command) -> None:
    arguments = ("reproduce", "exp4a", tiny, "--quick", "--results", results)
    with (results / "quick" / "trials" / "tiny.jsonl").open("a") as file:
        file.write('{"key": "broken"\n')
    for more in ((), ("--show",)):
        code, out, err = command(*arguments, *more)
        assert (code, "Experiment 4a, tiny" in out) == (0, True)
        assert err.count("tiny.jsonl, line 2: ") == 1


@pytest.mark.parametrize("what", [*EXPERIMENTS, "exp1", "datasets"])
def test_nothing_to_show_is_no_error(what: str, tmp_path: Path, command: Command) -> None:
    code, out, err = command("reproduce", what, "--show", "--results", tmp_path / "none")
    assert (code, out, err) == (0, f"{what} has no results yet.\n", "")
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("exp9",), "exp9"),
        (
            ("exp2", "GRAPH", "--models", "sage,nonsense"),
            "exp2 has no model 'nonsense'. Choose from gat, sage",
        ),
        (("exp3", "GRAPH", "--models", "gat"), "exp3 has no model 'gat'"),
        (("all", "GRAPH", "--models", "sage,mlp"), "exp3 has no model 'mlp'"),
        (("exp2", "GRAPH", "--models", ""), "exp2 has no model ''"),
        (("exp2", "GRAPH", "--seeds", "one"), "--seeds is 'one'"),
        (("exp2", "no-such-graph"), "no-such-graph"),
        (("exp2",), "there are no results yet"),
        (("exp2", "GRAPH", "--quick", "--full"), "--quick and --full were given"),
        (("exp2", "GRAPH", "--full", "--seeds", "0-2"), "--full and --seeds were given"),
        (("exp2", "GRAPH", "--jobs", "0"), "--jobs"),
        (("exp2", "GRAPH", "--rates", "no-such-file"), "no-such-file: the file cannot be read"),
        (("exp1",), "--planetoid FOLDER"),
        (("exp1", "--planetoid", "no-such-folder"), "no-such-folder: this folder does not exist"),
        (("exp1", "--show", "--models", "sgc"), "experiment 1 has no model 'sgc'"),
    ],
)
def test_bad_input_is_told_in_a_sentence_and_nothing_is_written(
    arguments: tuple[str, ...], said: str, tiny: Path, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = command("reproduce", *(str(tiny) if part == "GRAPH" else part for part in arguments))
    assert (code, out) == (2, "")
    assert said in " ".join(err.split())
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("more", [(), ("--quick",), ("--show",)])
def test_results_cannot_be_kept_in_a_file(more: tuple[str, ...], tiny: Path, tmp_path: Path, command: Command) -> None:
    (tmp_path / "file").write_text("mine")
    code, _, err = command("reproduce", "exp2", tiny, "--results", tmp_path / "file", *more)
    assert (code, (tmp_path / "file").read_text()) == (2, "mine")
    assert "file: this is a file, not a folder" in err


def test_a_graph_that_changed_is_not_gone_on_with(tiny: Path, tmp_path: Path, command: Command) -> None:
    results = tmp_path / "results"
    results.mkdir()
    kept = {"tiny": {"path": str(tiny), "fingerprint": "what it was", "sizes": [1, 1, 1]}}
    (results / "graphs.json").write_text(json.dumps(kept))
    code, _, err = command("reproduce", "exp4a", "--results", results)
    assert (code, "the results are of another graph named tiny" in err) == (2, True)
    assert files_in(results) == {"graphs.json"}


def test_damaged_facts_are_refused(tmp_path: Path, command: Command) -> None:
    (tmp_path / "datasets").mkdir()
    for content in ("{", "[1]", '[{"vertices": 3}]', "7"):
        (tmp_path / "datasets" / "datasets.json").write_text(content)
        code, _, err = command("reproduce", "claims", "--results", tmp_path)
        assert (code, "datasets.json: this is not a list of graphs" in err) == (2, True)


def test_the_command_knows_all_experiments() -> None:
    assert {*get_args(ExperimentName)} == {*EXPERIMENTS, "exp1", "datasets", "claims", "all"}


def test_help_does_not_wait_for_torch() -> None:
    code = (
        "import sys; sys.argv = ['evergraph', 'reproduce', '--help']\n"
        "from evergraph.cli import main\n"
        "try: main()\n"
        "except SystemExit as leaving: assert not leaving.code\n"
        "heavy = {'torch', 'numba', 'scipy', 'matplotlib', 'pyarrow'} & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--planetoid" in done.stdout
