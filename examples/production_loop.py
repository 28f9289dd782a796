"""Learn how a workspace keeps graph, models, decisions and labels together while a graph lives on.

A slice arrives, is decided, gets its labels late, and the model is kept current; a class that was never seen before
becomes one that the model knows. The same as commands: evergraph ws --help.
Run it with: python examples/production_loop.py
"""

import tempfile
from pathlib import Path

from evergraph import EvolvingGraph, Workspace, datasets
from evergraph.datasets.export import to_tables
from evergraph.detect import GDOC


def main() -> None:
    # A graph whose years we pretend to live through: up to 2017 is the past, then a slice comes each year.
    graph = datasets.load("metamath")
    past = EvolvingGraph.build(*to_tables(graph, last=2017))

    with tempfile.TemporaryDirectory() as folder:
        workspace = Workspace.create(Path(folder) / "ws", past, detector=GDOC(0.5), history=2, steps=100)
        print(workspace.log()[0].what)

        for year in (2018, 2019):
            workspace.add(*to_tables(graph, year, year, labels=False))  # a slice arrives, without labels
            decided = workspace.predict()  # a table: id, class or "unseen", score, why
            unseen = decided.column("class").to_pylist().count("unseen")
            print(f"{year}: {decided.num_rows:,} vertices decided, {unseen:,} of them unseen")
            for row in workspace.review(most=2):  # what a person should look at
                print(f"  {row.id}: perhaps {row.best} ({row.probability:.2f}); words: {', '.join(row.words[:5])}")

            truth = to_tables(graph, year, year)[0]  # months later the labels come
            print(f"  {workspace.label(truth.column('id').to_pylist(), truth.column('label').to_pylist()).what}")
            print(f"  {workspace.update('warm').what}")

        for scores in workspace.scores():  # how the model that was deployed really did, kept for ever
            print(f"{scores.time}: accuracy {scores.accuracy:.2f}, {scores.unseen:.1%} were truly unseen")


if __name__ == "__main__":
    main()

# prints: 22,546 vertices up to 2017
# prints: 2018: 1,323 vertices decided
# prints: 1,323 decisions scored
# prints: model 3, warm
# prints: 2019: accuracy
