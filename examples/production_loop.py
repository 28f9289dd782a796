"""Learn how a workspace keeps graph, models, decisions and labels together while a graph grows.

Each year a slice arrives, is predicted and gets its labels later; then the model is updated, and unseen classes become
known ones. The same as commands: evergraph ws --help.
Run it with: python examples/production_loop.py
"""

import tempfile
from pathlib import Path

from evergraph import EvolvingGraph, Workspace, datasets
from evergraph.datasets.tables import to_tables


def main() -> None:
    # The years up to 2017 are the past; then one slice arrives each year.
    graph = datasets.load("metamath")
    past = EvolvingGraph.build(*to_tables(graph, last=2017))

    with tempfile.TemporaryDirectory() as folder:
        workspace = Workspace.create(Path(folder) / "ws", past, history=2, steps=100)
        print(workspace.log()[0].what)

        for year in (2018, 2019):
            workspace.add(*to_tables(graph, year, year, labels=False))  # a slice arrives, without labels
            decided = workspace.predict()  # a table: id, class or "unseen", score, reasons
            unseen = decided.column("class").to_pylist().count("unseen")
            print(f"{year}: {decided.num_rows:,} vertices predicted, {unseen:,} of them flagged as unseen")
            for row in workspace.review(most=2):  # what a person should review
                print(f"  {row.id}: perhaps {row.best} ({row.probability:.2f}); words: {', '.join(row.words[:5])}")

            truth = to_tables(graph, year, year)[0]  # the labels arrive later
            print(f"  {workspace.label(truth.column('id').to_pylist(), truth.column('label').to_pylist()).what}")
            print(f"  {workspace.update('warm').what}")

        for scores in workspace.scores():  # how good the decisions were at the time
            print(f"{scores.time}: accuracy {scores.accuracy:.2f}, {scores.unseen:.1%} were truly unseen")


if __name__ == "__main__":
    main()

# prints: 22,546 vertices up to 2017
# prints: 2018: 1,323 vertices predicted
# prints: 1,323 decisions scored
# prints: model 3, warm
# prints: 2019: accuracy
