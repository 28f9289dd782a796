"""The example package of plug-ins works by name, on the command line and in a workspace."""

import json
import os
import subprocess
import sys

from pyarrow.csv import write_csv

from evergraph.datasets import synthetic
from evergraph.datasets.tables import to_tables

# Runs several commands in one process; each prints JSON.
MANY = """
import json, sys
from evergraph.cli import main
for words in json.load(sys.stdin):
    sys.argv = ["evergraph", *words, "--json"]
    try:
        main()
    except SystemExit as end:
        if end.code:
            raise
    print("\\0")
"""


def evergraph(folder, *commands, code=MANY):
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps([[str(word) for word in command] for command in commands]),
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(part) for part in done.stdout.split("\0") if part.strip()]


def test_a_model_and_a_detector_of_another_package_work_by_name(installed, tmp_path):
    graph = synthetic(vertices=300, times=6, classes=3, new_classes=2, seed=1)
    graph.save(tmp_path / "graph")
    files: dict[str, list[object]] = {"past": [], "new": []}
    for name, first, last in (("past", None, 4), ("new", 5, 5)):
        for kind, table in zip(("vertices", "edges"), to_tables(graph, first, last), strict=True):
            write_csv(table, tmp_path / f"{name}-{kind}.csv")
            files[name] += [f"--{kind}", tmp_path / f"{name}-{kind}.csv"]
    ws, named, quick = tmp_path / "ws", ("--model", "logistic", "--detector", "margin:0.3"), ("--steps", 2)
    detectors = ("--detectors", "none,margin:least=0.1,margin", "--model", "logistic", "--jobs", 1)
    run, compared, *_, status = evergraph(
        installed,
        ("run", tmp_path / "graph", *named, *quick, "--history", 1, "--out", tmp_path / "run"),
        ("compare", tmp_path / "graph", *detectors, *quick, "--out", tmp_path / "compared"),
        ("ws", "init", ws, *files["past"], *named, *quick),
        ("ws", "add", ws, *files["new"]),
        ("ws", "update", ws, "--restart", "warm"),
        ("ws", "status", ws),
    )
    assert run["configuration"]["model"] == {"name": "logistic"}
    assert run["configuration"]["detector"] == {"name": "margin", "least": 0.3}
    assert {"none", "margin:least=0.1", "margin"} <= set(json.dumps(compared).replace('"', " ").split())
    assert status["model"] == 2
    code = f"""
import json
from evergraph import Workspace
learner = Workspace({str(ws)!r}).learner()
print(json.dumps([str(learner.model), str(learner.detector)]))
"""
    assert evergraph(installed, code=code) == [["Logistic()", "Margin(least=0.3)"]]
