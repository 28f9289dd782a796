"""Leave one family of graphs out: how well detectors find unseen classes on graphs that they have not seen.

python -m studies.unseen run GRAPHS      compare detectors on the graph folders of GRAPHS, leaving one family out
python -m studies.unseen show            write the tables and the figure of the results
python -m studies.unseen calibration GRAPHS  draw how well probabilities hold on graphs that were left out
python -m studies.unseen fit GRAPHS      write the prior that the package ships, fitted to all of these graphs

GRAPHS has one folder for each graph, as `evergraph import` writes them; metamath is added. Trainings are recorded in
FOLDER (``--out``) and used again.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import evergraph.detect
from evergraph.detect import Softmax
from evergraph.detect.discriminant import FILE, log_odds, probability_of
from evergraph.detect.prior import fit_prior, traced
from evergraph.evaluation.comparison import CompareState, candidates
from evergraph.evaluation.configuration import Configuration
from evergraph.evaluation.leave_one_out import leave_one_out, recorded_slices
from evergraph.presentation.style import figure, legend_below, save, series

FAMILIES = {
    **dict.fromkeys(("airflow-providers", "ansible-modules", "camel-components", "home-assistant-platforms"), "files"),
    **dict.fromkeys(("sage-files", "sympy-files"), "maths code"),
    **dict.fromkeys(("go-commits", "zephyr-commits"), "commits"),
    **dict.fromkeys(("galaxy-tools", "julia-packages", "macports"), "packages"),
    **dict.fromkeys(("mathlib4-imports", "metamath"), "formal"),
    **dict.fromkeys(("acl", "dblp-citation", "dblp-easy", "dblp-hard"), "papers"),
    "web-features": "web",
    "tate-artworks": "art",
    "iso-standards": "standards",
    "metasploit-modules": "security",
}
DETECTORS = "none,gdoc:0.5,gdoc:0.75,average,auto,auto:open-f1"
BETTER = "gdoc, better threshold"
RESULTS = Path(__file__).parent / "results" / "unseen"
FIGURES = Path(__file__).parents[1] / "docs" / "assets" / "unseen"
COLUMNS = {
    "mcc": "MCC",
    "oracle_mcc": "best threshold",
    "open_f1": "Open-F1",
    "auroc": "AUROC",
    "auroc_per_task": "in slices",
    "aupr": "AUPR",
    "flagged_with_unseen": "flagged, births",
    "flagged_without_unseen": "flagged, none",
    "task_auroc": "slice AUROC",
    "calibration_error": "ECE",
    "id_accuracy": "ID accuracy",
}
RARE = 0.02  # share of unseen vertices below which novelty is rare
OF_PROTOTYPE = set(FAMILIES) - {"tate-artworks", "dblp-hard", "acl"}
_DRAWS = 10_000


def graphs_in(folder: Path) -> list[str]:
    """The graph folders of a family, and metamath."""
    found = [str(path) for path in sorted(folder.iterdir()) if path.name in FAMILIES]
    return [*found, "metamath"]


def run(folder: Path, out: Path, inputs: str, seeds: Sequence[int]) -> None:
    """Compare the detectors and keep one line per graph, detector and seed."""
    graphs = graphs_in(folder)
    families = {name: FAMILIES[name] for name in (Path(path).name for path in graphs)}
    compared = leave_one_out(
        graphs,
        candidates(DETECTORS),
        Configuration(inputs=inputs),
        families,
        seeds,
        out=out,
        jobs=2,
        on_done=_tell,
    )
    rows = [
        {"graph": one.graph, "detector": one.detector, "seed": one.seed, **_finite(one.metrics)}
        for one in sorted(compared.outcomes, key=lambda one: (one.graph, one.detector, one.seed))
    ]
    RESULTS.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (RESULTS / f"{inputs}.jsonl").write_text(text, encoding="utf-8")


def _tell(state: CompareState) -> None:
    print(f"{state.done} of {state.total}; {state.doing}", flush=True)


def _finite(metrics: Mapping[str, float]) -> dict[str, float | None]:
    return {name: round(value, 5) if np.isfinite(value) else None for name, value in metrics.items()}


def fit(folder: Path, out: Path) -> None:
    """Fit the prior to seed 0 of all graphs and write it into the package."""
    known = recorded_slices(graphs_in(folder), FAMILIES, Configuration(detector=Softmax()), 0, out)
    prior = fit_prior([traced(graph) for graph in known])
    path = Path(evergraph.detect.__file__).with_name(FILE)
    path.write_bytes(prior.to_json() + b"\n")
    print(f"{path}: {prior}")


def calibration(folder: Path, out: Path) -> None:
    """Draw the share of unseen vertices by probability, for each graph with a prior that has not seen its family."""
    known = recorded_slices(graphs_in(folder), FAMILIES, Configuration(detector=Softmax()), 0, out)
    traces = [traced(graph) for graph in known]
    priors = {
        family: fit_prior([graph for graph in traces if graph.family != family]) for family in set(FAMILIES.values())
    }
    with figure(1, 1, width=5, height=4.0) as (picture, panels):
        axes = panels[0, 0]
        axes.plot([0, 1], [0, 1], color="0.6", linewidth=0.8)
        means = []
        for graph in traces:
            prior, task = priors[graph.family], graph.task
            probability = probability_of(log_odds(graph.scores(prior.unseen)[task], prior))
            means.append(_reliability(probability, graph.unseen[task]))
            axes.plot(*means[-1], color=series(0)["color"], alpha=0.25, linewidth=0.8)
        axes.plot(*np.nanmean(means, axis=0), label="mean of all graphs", **series(0))
        axes.set(xlabel="probability that the class is unseen", ylabel="share of unseen vertices")
        legend_below(picture)
    save(picture, FIGURES / "calibration", "python -m studies.unseen calibration; seed 0, one line for each graph")


def _reliability(probability: NDArray[np.float64], unseen: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Mean probability and share of unseen vertices in bins of equal width; NaN with fewer than 20 vertices."""
    place = np.minimum((probability * 10).astype(int), 9)
    count = np.bincount(place, minlength=10)
    enough = np.where(count >= 20, count, np.nan)
    return np.stack([np.bincount(place, values, minlength=10) / enough for values in (probability, unseen)])


# --- tables ----------------------------------------------------------------------------------------------------------


def means(inputs: str) -> dict[tuple[str, str], dict[str, float]]:
    """Mean over seeds of each metric, by graph and detector; gDOC with the better threshold of each run is added."""
    rows: dict[tuple[str, str], dict[int, dict[str, Any]]] = {}
    for line in (RESULTS / f"{inputs}.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        rows.setdefault((row["graph"], row["detector"]), {})[row["seed"]] = row
    for graph in {graph for graph, _ in rows}:
        low, high = (rows[graph, f"gdoc:{threshold}"] for threshold in (0.5, 0.75))
        rows[graph, BETTER] = {seed: max(low[seed], high[seed], key=lambda row: row["mcc"]) for seed in low}
    return {key: {name: _mean(found.values(), name) for name in _names(found)} for key, found in rows.items()}


def _names(found: Mapping[int, Mapping[str, Any]]) -> list[str]:
    first = next(iter(found.values()))
    return [name for name in first if name not in ("graph", "detector", "seed")]


def _mean(rows: Any, name: str) -> float:
    values = [row[name] for row in rows if row[name] is not None]
    return float(np.mean(values)) if values else float("nan")


def ratio(found: Mapping[tuple[str, str], Mapping[str, float]], graphs: Sequence[str], other: str) -> str:
    """Mean MCC of auto divided by that of another detector, with a 90 % bootstrap interval over graphs."""
    own, base = (np.array([found[graph, name]["mcc"] for graph in graphs]) for name in ("auto", other))
    draws = np.random.default_rng(0).integers(0, len(graphs), (_DRAWS, len(graphs)))
    low, high = np.quantile(own[draws].mean(1) / base[draws].mean(1), [0.05, 0.95])
    return f"{own.mean() / base.mean():.2f} ({low:.2f} to {high:.2f})"


def below(inputs: str, other: str = "gdoc:0.75") -> dict[str, float]:
    """Graphs on which auto has a lower MCC than another detector with every seed, with the mean difference."""
    rows = [json.loads(line) for line in (RESULTS / f"{inputs}.jsonl").read_text(encoding="utf-8").splitlines()]
    mcc = {(row["graph"], row["detector"], row["seed"]): row["mcc"] for row in rows}
    found: dict[str, list[float]] = {}
    for graph, detector, seed in mcc:
        if detector == "auto":
            found.setdefault(graph, []).append(mcc[graph, "auto", seed] - mcc[graph, other, seed])
    return {graph: float(np.mean(gaps)) for graph, gaps in sorted(found.items()) if max(gaps) < 0}


def show() -> None:
    """Write a Markdown table per graph and one of means for each file of results, and draw MCC by graph."""
    for path in sorted(RESULTS.glob("*.jsonl")):
        found = means(path.stem)
        graphs = sorted({graph for graph, _ in found})
        parts = [_summary(found, graphs), _by_graph(found, graphs)]
        (RESULTS / f"{path.stem}.md").write_text("\n".join(parts), encoding="utf-8")
        print(parts[0])
        lower = ", ".join(f"{graph} ({gap:+.3f})" for graph, gap in below(path.stem).items())
        print(f"MCC below gdoc:0.75 with every seed: {lower or 'no graph'}\n")
    _draw(means("auto"))


def _groups(found: Mapping[tuple[str, str], Mapping[str, float]], graphs: Sequence[str]) -> dict[str, list[str]]:
    share = {graph: found[graph, "none"]["unseen"] for graph in graphs}
    return {
        "all graphs": list(graphs),
        "without macports": [graph for graph in graphs if graph != "macports"],
        "the 18 graphs of the prototype": [graph for graph in graphs if graph in OF_PROTOTYPE],
        "at least 2 % unseen": [graph for graph in graphs if share[graph] >= RARE],
        "less than 2 % unseen": [graph for graph in graphs if share[graph] < RARE],
    }


def _summary(found: Mapping[tuple[str, str], Mapping[str, float]], graphs: Sequence[str]) -> str:
    names = ["none", "gdoc:0.5", "gdoc:0.75", BETTER, "average", "auto", "auto:open-f1"]
    lines = ["| detector | " + " | ".join(COLUMNS.values()) + " |", "|---" * (len(COLUMNS) + 1) + "|"]
    for name in names:
        cells = [_over([found[graph, name][column] for graph in graphs]) for column in COLUMNS]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    heads = ("graphs", "number", "MCC of auto", f"times {BETTER}", "times average")
    lines += ["", "| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for group, chosen in _groups(found, graphs).items():
        mcc = np.mean([found[graph, "auto"]["mcc"] for graph in chosen])
        cells = [ratio(found, chosen, other) for other in (BETTER, "average")]
        lines.append(f"| {group} | {len(chosen)} | {mcc:.3f} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _over(values: Sequence[float]) -> str:
    there = [value for value in values if np.isfinite(value)]
    return f"{np.mean(there):.3f}" if there else ""


def _by_graph(found: Mapping[tuple[str, str], Mapping[str, float]], graphs: Sequence[str]) -> str:
    heads = ["unseen", "gdoc:0.5", "gdoc:0.75", "average", "auto", "auto, best threshold", "AUROC", "AUROC in slices"]
    heads += ["flagged", "Open-F1: none", "gdoc, better", "auto:open-f1", "calibration error"]
    lines = ["| graph | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|"]
    for graph in graphs:
        own = found[graph, "auto"]
        values = [own["unseen"], *(found[graph, name]["mcc"] for name in ("gdoc:0.5", "gdoc:0.75", "average"))]
        values += [own[name] for name in ("mcc", "oracle_mcc", "auroc", "auroc_per_task", "flagged")]
        better = max(found[graph, f"gdoc:{threshold}"]["open_f1"] for threshold in (0.5, 0.75))
        values += [found[graph, "none"]["open_f1"], better, found[graph, "auto:open-f1"]["open_f1"]]
        values += [own["calibration_error"]]
        lines.append(f"| {graph} | " + " | ".join(f"{value:.3f}" for value in values) + " |")
    return "\n".join(lines) + "\n"


def _draw(found: Mapping[tuple[str, str], Mapping[str, float]]) -> None:
    graphs = sorted({graph for graph, _ in found}, key=lambda graph: found[graph, "auto"]["mcc"])
    with figure(1, 1, width=5, height=4.6) as (picture, panels):
        axes = panels[0, 0]
        for index, name in enumerate(("auto", "average", BETTER)):
            style = series(index) | {"linestyle": "", "marker": "os^"[index]}
            axes.plot([found[graph, name]["mcc"] for graph in graphs], range(len(graphs)), label=name, **style)
        axes.set_yticks(range(len(graphs)), graphs)
        axes.set_xlabel("MCC on graphs of a family that was left out")
        legend_below(picture)
    save(picture, FIGURES / "leave_one_out", "python -m studies.unseen show; mean of seeds 0 to 2")


def main() -> None:
    """Run a command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("run", "show", "calibration", "fit"))
    parser.add_argument("graphs", nargs="?", type=Path, default=Path("graphs"))
    parser.add_argument("--out", type=Path, default=Path("compared"))
    parser.add_argument("--inputs", default="auto")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    given = parser.parse_args()
    if given.command == "run":
        run(given.graphs, given.out, given.inputs, given.seeds)
    elif given.command == "calibration":
        calibration(given.graphs, given.out)
    elif given.command == "fit":
        fit(given.graphs, given.out)
    else:
        show()


if __name__ == "__main__":
    main()
