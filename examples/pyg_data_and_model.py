"""Learn how to use Evergraph with PyTorch Geometric: your Data and your model in, a Data out.

Needs the extra: pip install 'evergraph[pyg]'. Run it with: python examples/pyg_data_and_model.py
"""

import torch
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

import evergraph
from evergraph.detect import GDOC
from evergraph.graph.interop import from_pyg
from evergraph.nn import Custom

COLOURS = ["red", "green", "blue"]


def my_data(vertices: int = 600, times: int = 6) -> Data:
    """An example of your data: x, y, edge_index, and the time of each vertex. Class blue first occurs at time 3."""
    draw = torch.Generator().manual_seed(0)
    time = torch.arange(vertices) * times // vertices
    y = torch.randint(0, 3, (vertices,), generator=draw)
    y[(time < 3) & (y == 2)] = 0
    x = torch.nn.functional.one_hot(y, 8) + torch.randn(vertices, 8, generator=draw)
    pairs = torch.randint(0, vertices, (2, 8 * vertices), generator=draw)
    alike = y[pairs[0]] == y[pairs[1]]
    near = (time[pairs[0]] - time[pairs[1]]).abs() <= 1
    return Data(x=x, y=y, edge_index=pairs[:, alike & near], time=time)


class MyModel(torch.nn.Module):
    """Any module that takes (x, edge_index) and returns one vector per vertex; Evergraph adds the output layer."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.first, self.second = GCNConv(inputs, 32), GCNConv(32, 16)

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index).relu(), edge_index).relu()


def main() -> None:
    graph = from_pyg(my_data(), class_names=COLOURS)
    print(graph)

    # Pass the class, not an instance, so that a cold restart can create new weights. For text or other features that
    # grow, write Custom(MyModel, project=64): this adds an input layer that grows.
    learner = evergraph.LifelongLearner(Custom(MyModel), GDOC(), steps=30, lr=0.02)
    for task in evergraph.tasks(graph, history=2, first=3):
        decisions = learner.adapt(task).predict(task)
        scores = evergraph.evaluate(task, decisions)
        print(
            f"time {task.time}: known classes {', '.join(decisions.known)}; accuracy on them {scores.id_accuracy:.2f}"
        )

    data = task.window.to_pyg()  # the last window, for use with PyTorch Geometric
    print(f"Data with {data.num_nodes} vertices, {data.num_features} features, classes {data.class_names}")


if __name__ == "__main__":
    main()

# prints: EvolvingGraph(vertices=600, edges=
# prints: time 3: known classes green, red; accuracy
# prints: time 4: known classes green, red, blue; accuracy
# prints: Data with 300 vertices, 8 features, classes ['red', 'green', 'blue']
