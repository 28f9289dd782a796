"""Learn how to use Evergraph with PyTorch Geometric: your Data comes in, your model learns for life, a Data goes out.

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
    """Stands for your own: x, y, edge_index, and one thing more, the time of each vertex. Blue is new at time 3."""
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
    """Any module that takes (x, edge_index) and returns a vector for each vertex; the output layer is Evergraph's."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.first, self.second = GCNConv(inputs, 32), GCNConv(32, 16)

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index).relu(), edge_index).relu()


def main() -> None:
    graph = from_pyg(my_data(), class_names=COLOURS)
    print(graph)

    # Given as a class, not as an instance, a cold restart can draw it afresh. With text or other features that grow
    # write Custom(MyModel, project=64): then Evergraph's input layer, which grows, lies below it.
    learner = evergraph.LifelongLearner(Custom(MyModel), GDOC(0.5), steps=30, lr=0.02)
    for task in evergraph.tasks(graph, history=2, first=3):
        decisions = learner.adapt(task).predict(task)
        scores = evergraph.evaluate(task, decisions)
        print(f"time {task.time}: knows {', '.join(decisions.known)}; accuracy on these {scores.id_accuracy:.2f}")

    data = task.window.to_pyg()  # what the model saw last, for anything else that PyTorch Geometric can do
    print(f"Data with {data.num_nodes} vertices, {data.num_features} features, classes {data.class_names}")


if __name__ == "__main__":
    main()

# prints: EvolvingGraph(vertices=600, edges=
# prints: time 3: knows green, red; accuracy
# prints: time 4: knows green, red, blue; accuracy
# prints: Data with 300 vertices, 8 features, classes ['red', 'green', 'blue']
