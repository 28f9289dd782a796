"""Learn how to choose how much of the past a model sees: from time differences, without looking at the future.

A long history costs time and memory, a short one accuracy; time differences tell where the gain flattens.
Run it with: python examples/choosing_a_history.py
"""

import evergraph
from evergraph.evaluation.configuration import Configuration
from evergraph.evaluation.run import run
from evergraph.learning.task import choose_history
from evergraph.nn import GraphSAGE

FIRST = 2019  # of two tasks, 2019 and 2020


def main() -> None:
    graph = evergraph.load("metamath")

    # Of all pairs of theorems at most two edges apart, how far apart in time are they? Two, for two layers see so far.
    past = graph.up_to(FIRST - 1)  # what a user knew before the first task
    differences = evergraph.tdiff(past, k=2)
    sizes = differences.history_sizes()
    print(f"{differences.pairs:,} pairs before {FIRST}")
    for share, years in sizes.items():
        print(f"    {share} % of them lie within {years} year{'s' if years > 1 else ''}")
    print(f"history='auto' takes {choose_history(graph, before=FIRST)}: half of the pairs")

    # Few steps and one seed, so that this takes seconds: a look at the trade-off and no result.
    print("history  vertices in sight  accuracy")
    for history in dict.fromkeys((1, sizes[50], sizes[75])):
        settings = Configuration(GraphSAGE(hidden=16), history=history, first=FIRST, steps=15, lr=0.02)
        result = run(settings, graph, seeds=[0])
        in_sight, accuracy = result.tasks()[-1]["window_vertices"], result.summary()["accuracy"]["mean"]
        print(f"{history:7}  {in_sight:17,}  {accuracy:8.3f}")


if __name__ == "__main__":
    main()

# prints: pairs before 2019
# prints: 100 % of them lie within 26 years
# prints: history='auto' takes
# prints: history  vertices in sight  accuracy
