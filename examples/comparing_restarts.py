"""Learn how to compare restarts over several seeds, with intervals, in runs that can be stopped and continued.

Warm restarts continue from the previous weights, cold ones start from new random weights. Which is better?
Run it with: python examples/comparing_restarts.py
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import evergraph
from evergraph.evaluation.configuration import Configuration
from evergraph.evaluation.metrics import forward_transfer, over_seeds
from evergraph.evaluation.run import Run, run
from evergraph.nn import GraphSAGE

SEEDS = range(3)


def main() -> None:
    graph = evergraph.datasets.synthetic(vertices=1200, times=8, classes=5, new_classes=2, seed=2)
    found: dict[str, Run] = {}
    with TemporaryDirectory() as folder:
        for restart in ("warm", "cold", "hybrid", "once"):
            settings = Configuration(GraphSAGE(hidden=16), history=1, restart=restart, first=4, steps=15, lr=0.01)
            found[restart] = run(settings, graph, SEEDS, out=Path(folder) / restart)
            accuracy = found[restart].summary()["accuracy"]
            print(f"{restart:6}  accuracy {accuracy['mean']:.3f} ± {accuracy['ci95']:.3f}")

        # Run again with one more seed: finished seeds are read from the folder, only the new one is computed.
        again = run(settings, graph, range(4), out=Path(folder) / restart)
        print("seeds 0 to 2 as before:", all(again.rows[seed] == found[restart].rows[seed] for seed in SEEDS))

    # Forward transfer: mean gain in accuracy of warm over cold from the second task on, per seed.
    accuracy = {way: [[row.scores.accuracy for row in rows] for rows in found[way].rows.values()] for way in found}
    gain = over_seeds([forward_transfer([accuracy["warm"][seed]], [accuracy["cold"][seed]]) for seed in SEEDS])
    print(f"forward transfer {gain.mean:+.3f} ± {gain.half:.3f}")


if __name__ == "__main__":
    main()

# prints: warm    accuracy
# prints: once    accuracy
# prints: seeds 0 to 2 as before: True
# prints: forward transfer
