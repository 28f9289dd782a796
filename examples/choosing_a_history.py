"""Learn how to choose a history from time differences, using the past only.

A long history costs time and memory, a short one costs accuracy.
Run it with: python examples/choosing_a_history.py
"""

import evergraph
from evergraph.evaluation.configuration import Configuration
from evergraph.evaluation.run import run
from evergraph.learning.task import choose_history
from evergraph.nn import GraphSAGE

FIRST = 2019  # first of two tasks: 2019 and 2020


def main() -> None:
    graph = evergraph.load("metamath")

    # How far apart in time are theorems that are at most two edges apart? Two edges, because the model has two layers.
    past = graph.up_to(FIRST - 1)  # what was known before the first task
    differences = evergraph.tdiff(past, k=2)
    sizes = differences.history_sizes()
    print(f"{differences.pairs:,} pairs before {FIRST}")
    for share, years in sizes.items():
        print(f"    {share} % of them are within {years} year{'s' if years > 1 else ''}")
    print(f"history='auto' is {choose_history(graph, before=FIRST)}: it covers half of the pairs")

    # Few steps and one seed, so that this takes seconds. For a real comparison use the defaults and several seeds.
    print("history  vertices in window  accuracy")
    for history in dict.fromkeys((1, sizes[50], sizes[75])):
        settings = Configuration(GraphSAGE(hidden=16), history=history, first=FIRST, steps=15, lr=0.02)
        result = run(settings, graph, seeds=[0])
        in_window, accuracy = result.tasks()[-1]["window_vertices"], result.summary()["accuracy"]["mean"]
        print(f"{history:7}  {in_window:18,}  {accuracy:8.3f}")


if __name__ == "__main__":
    main()

# prints: pairs before 2019
# prints: 100 % of them are within 26 years
# prints: history='auto' is
# prints: history  vertices in window  accuracy
