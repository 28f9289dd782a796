"""Learn how to bring your own two tables in, look at the graph, and let a model decide the newest vertices.

Beside this file stand papers.csv (id, year, venue, title) and citations.csv (source, target): put yours in their place.
Run it with: python examples/own_csv.py
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import evergraph
from evergraph.datasets import read_tables
from evergraph.detect import GDOC
from evergraph.nn import GraphSAGE

HERE = Path(__file__).parent
# Columns are named where yours are called otherwise; an empty venue is a paper without a label.
COLUMNS = {"time": "year", "label": "venue", "text": "title"}


def main() -> None:
    graph = read_tables(HERE / "papers.csv", HERE / "citations.csv", **COLUMNS)
    print(graph)

    with TemporaryDirectory() as folder:
        graph.save(Path(folder) / "papers")  # what 'evergraph import tables' does
        graph = evergraph.load(Path(folder) / "papers")  # 'evergraph inspect', 'evergraph run' and you open it so
        found = evergraph.describe(graph)
        print(f"{len(found.classes)} venues, {found.label_rate:.0%} of the papers have one; new: {found.new_classes}")

        # Ten papers teach nobody much. What to look at: WSDM is new in 2004, so only in 2005 can it be decided.
        learner = evergraph.LifelongLearner(GraphSAGE(hidden=8), GDOC(0.5), steps=100, lr=0.01)
        for task in evergraph.tasks(graph, history=2, first=2004):
            decisions = learner.adapt(task).predict(task)
            print(f"{task.time}: knows {', '.join(decisions.known)}")
            for name, said, true in zip(decisions.ids, decisions.classes, task.truth, strict=True):
                print(f"    {name} is of {true}, decided: {said}")

        # What cannot be read is refused with one sentence that says where and what to do.
        (Path(folder) / "bad.csv").write_text("id,year,venue,title\np1,soon,KDD,Mining graphs\n", encoding="utf-8")
        try:
            read_tables(Path(folder) / "bad.csv", HERE / "citations.csv", **COLUMNS)
        except evergraph.InputError as error:
            print(f"refused: row {error.row}, {error.problem}; {error.fix}")


if __name__ == "__main__":
    main()

# prints: EvolvingGraph(vertices=10, edges=11, classes=3, times=2001..2005, features=words)
# prints: 3 venues, 90% of the papers have one; new: ['WSDM']
# prints: 2004: knows ICML, KDD
# prints: 2005: knows ICML, KDD, WSDM
# prints: refused: row 1, 'soon' is not a time
