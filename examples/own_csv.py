"""Learn how to import your own two tables, describe the graph, and predict the newest vertices.

It uses papers.csv (id, year, venue, title) and citations.csv (source, target) in this folder: replace them with yours.
Run it with: python examples/own_csv.py
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import evergraph
from evergraph.datasets import read_tables
from evergraph.detect import GDOC
from evergraph.nn import GraphSAGE

HERE = Path(__file__).parent
# Names of your columns where they differ from the defaults. A paper with an empty venue has no label.
COLUMNS = {"time": "year", "label": "venue", "text": "title"}


def main() -> None:
    graph = read_tables(HERE / "papers.csv", HERE / "citations.csv", **COLUMNS)
    print(graph)

    with TemporaryDirectory() as folder:
        graph.save(Path(folder) / "papers")  # as 'evergraph import tables' does
        graph = evergraph.load(Path(folder) / "papers")  # 'evergraph inspect' and 'evergraph run' open it, too
        found = evergraph.describe(graph)
        print(f"{len(found.classes)} venues, {found.label_rate:.0%} of the papers have one; new: {found.new_classes}")

        # Ten papers are too few to learn much. WSDM first occurs in 2004, so it can be predicted from 2005 on.
        learner = evergraph.LifelongLearner(GraphSAGE(hidden=8), GDOC(), steps=100, lr=0.01)
        for task in evergraph.tasks(graph, history=2, first=2004):
            decisions = learner.adapt(task).predict(task)
            print(f"{task.time}: known classes {', '.join(decisions.known)}")
            for name, said, true in zip(decisions.ids, decisions.classes, task.truth, strict=True):
                print(f"    {name}: true class {true}, predicted {said}")

        # Wrong input raises an error that names the row and the fix.
        (Path(folder) / "bad.csv").write_text("id,year,venue,title\np1,soon,KDD,Mining graphs\n", encoding="utf-8")
        try:
            read_tables(Path(folder) / "bad.csv", HERE / "citations.csv", **COLUMNS)
        except evergraph.InputError as error:
            print(f"error: row {error.row}, {error.problem}; {error.fix}")


if __name__ == "__main__":
    main()

# prints: EvolvingGraph(vertices=10, edges=11, classes=3, times=2001..2005, features=words)
# prints: 3 venues, 90% of the papers have one; new: ['WSDM']
# prints: 2004: known classes ICML, KDD
# prints: 2005: known classes ICML, KDD, WSDM
# prints: error: row 1, 'soon' is not a time
