from __future__ import annotations

import warnings
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import networkx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from evergraph import EvolvingGraph, InputError
from evergraph.graph.interop import from_networkx, from_pyg
from tests.strategies import Model, Tables, assert_equal, model_of, tables

build = EvolvingGraph.build
# PyTorch Geometric and networkx know no time of edges, and no words.
plain = tables(kinds=["none", "dense", "sparse"])


@pytest.fixture(scope="module")
def pyg() -> Any:
    """PyTorch and the data of PyTorch Geometric; they take long to import, so only for those who need them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what PyTorch Geometric says to itself meanwhile
        import torch
        from torch_geometric.data import Data
    return SimpleNamespace(torch=torch, tensor=torch.tensor, Data=Data)


def without_edge_times(given: Tables) -> Tables:
    edges = {name: column for name, column in given.edges.items() if name != "time"}
    return replace(given, edges=edges)


# --- scipy -----------------------------------------------------------------------------------------------------------


@given(tables(), st.integers(0, 8))
def test_the_scipy_adjacency_is_that_of_the_reference(given: Tables, last: int) -> None:
    window, model = given.build().up_to(last), Model.of(given).window(0, last)
    names = window.ids.tolist()
    expected = [[int(frozenset((one, other)) in model.edges) for other in names] for one in names]
    assert isinstance(window.adjacency, sparse.csr_array)
    assert window.adjacency.toarray().astype(int).tolist() == expected


@given(tables())
def test_adjacency_and_features_of_scipy_build_the_graph_again(given: Tables) -> None:
    graph = without_edge_times(given).build()
    coo = graph.adjacency.tocoo()
    names = np.array(graph.ids.tolist(), object)
    again = build(
        {"id": graph.ids.tolist(), "time": graph.times, "label": graph.labels},
        {"source": names[coo.row], "target": names[coo.col]},
    )
    assert model_of(again).edges == model_of(graph).edges
    assert (again.class_names, again.labels.tolist()) == (graph.class_names, graph.labels.tolist())


# --- PyTorch Geometric -----------------------------------------------------------------------------------------------


@given(plain)
def test_a_graph_comes_back_from_pytorch_geometric(pyg: Any, given: Tables) -> None:
    graph = without_edge_times(given).build()
    data = graph.to_pyg()
    assert data.validate()
    assert (data.num_nodes, data.num_edges) == (len(graph), 2 * graph.n_edges)
    assert data.is_undirected()
    assert not data.has_self_loops()
    assert (data.x is None) == (not graph.features)
    assert_equal(from_pyg(data), graph)


@given(tables(kinds=["text"]))
def test_text_goes_to_pytorch_geometric_as_the_inputs_of_a_window(pyg: Any, given: Tables) -> None:
    graph = given.build()
    window = graph.up_to(3)
    for options in ({}, {"text": "global"}, {"text": "counts"}, {"before": 2}, {"min_df": 2}):
        data = window.to_pyg(**options)
        assert data.x.layout == pyg.torch.sparse_coo
        assert data.x.to_dense().numpy().tolist() == window.inputs(**options).toarray().tolist()
    counts = from_pyg(graph.to_pyg(text="counts"))
    assert (counts.features.words.matrix != graph.features.words.matrix).nnz == 0


def test_a_window_goes_to_pytorch_geometric_with_all_class_names(pyg: Any) -> None:
    graph = build(
        {"id": ["007", "b", "c"], "time": [1, 2, 3], "label": ["x", None, "y"]},
        [("007", "b"), ("b", "c")],
        features=np.eye(3),
    )
    data = graph.window(2, 3).to_pyg()
    assert (data.ids, data.class_names) == (["b", "c"], ["x", "y"])
    assert (data.y.tolist(), data.time.tolist(), data.edge_index.tolist()) == ([-1, 1], [2, 3], [[0, 1], [1, 0]])
    assert data.x.tolist() == [[0, 1, 0], [0, 0, 1]]
    assert [data[name].dtype for name in ("y", "time", "edge_index", "x")] == [pyg.torch.int64] * 3 + [
        pyg.torch.float32
    ]
    data.x += 1  # a tensor of its own
    assert graph.features.numbers.values.tolist() == np.eye(3).tolist()
    again = from_pyg(data)
    assert (again.ids.tolist(), again.labels.tolist(), again.n_edges) == (["b", "c"], [None, "y"], 1)
    assert len(from_pyg(graph.window(3, 3).to_pyg())) == 1


def test_a_graph_opened_from_disk_goes_to_pytorch_geometric(pyg: Any, tmp_path: Any) -> None:
    for number, features in enumerate((np.eye(2), sparse.csr_array(np.eye(2)))):
        build({"id": [1, 2], "time": [1, 2]}, [(1, 2)], features=features).save(tmp_path / str(number))
        opened = EvolvingGraph.open(tmp_path / str(number))
        data = opened.to_pyg()
        assert_equal(from_pyg(data), opened)
        for tensor in (data.x, data.y, data.time, data.edge_index):
            tensor.mul_(2)  # in memory of its own: the map of the file cannot be written
        assert opened.times.tolist() == [1, 2]


def test_bare_data_of_pytorch_geometric_becomes_a_graph(pyg: Any) -> None:
    edges = pyg.tensor([[0, 1, 1, 1], [1, 0, 2, 1]])
    data = pyg.Data(edge_index=edges, year=pyg.tensor([2004, 2002, 2003]), y=pyg.tensor([[1], [-1], [0]]))
    graph = from_pyg(data, time="year")
    assert (graph.ids.tolist(), graph.times.tolist()) == ([1, 2, 0], [2002, 2003, 2004])
    assert (graph.labels.tolist(), graph.n_edges, graph.features.kinds) == ([None, "0", "1"], 2, ())
    named = from_pyg(data, time="year", class_names=["zero", "one"])
    assert named.labels.tolist() == [None, "zero", "one"]


@pytest.mark.parametrize("ids", [["b", "a"], ("b", "a"), np.array(["b", "a"]), "tensor", np.array([7, 5]), [7, 5]])
def test_ids_are_taken_from_data_in_every_dress(pyg: Any, ids: Any) -> None:
    ids = pyg.tensor([7, 5]) if isinstance(ids, str) else ids
    data = pyg.Data(edge_index=pyg.tensor([[0], [1]]), time=pyg.tensor([1, 1]), ids=ids, num_nodes=2)
    assert from_pyg(data).ids.tolist() == (["b", "a"] if isinstance(ids[0], str) else [7, 5])


def test_data_without_edges_or_with_a_sparse_tensor_of_features_is_read(pyg: Any) -> None:
    time = pyg.tensor([1, 2])
    assert from_pyg(pyg.Data(time=time, num_nodes=2)).n_edges == 0
    assert (
        from_pyg(pyg.Data(time=time, num_nodes=2, edge_index=pyg.torch.empty((2, 0), dtype=pyg.torch.long))).n_edges
        == 0
    )
    values = pyg.tensor([[0.0, 2.0], [0.0, 0.0]])
    for x in (values.to_sparse_coo(), values.clone().requires_grad_()):
        graph = from_pyg(pyg.Data(time=time, num_nodes=2, x=x))
        inputs = graph.up_to(2).inputs()
        assert (inputs.toarray() if sparse.issparse(inputs) else inputs).tolist() == values.tolist()


def test_data_that_lacks_something_is_refused(pyg: Any) -> None:
    edges = pyg.tensor([[0], [1]])
    with pytest.raises(InputError, match="the data has no attribute 'time'"):
        from_pyg(pyg.Data(edge_index=edges, num_nodes=2))
    with pytest.raises(InputError, match="y has class 3, but there are 2 class names"):
        from_pyg(
            pyg.Data(edge_index=edges, num_nodes=2, time=pyg.tensor([1, 2]), y=pyg.tensor([3, 0])), class_names="ab"
        )
    for wrong in ([[0], [2]], [[-1], [1]]):
        with pytest.raises(InputError, match=r"edge_index has vertices from -?\d to \d, but there are 2"):
            from_pyg(pyg.Data(edge_index=pyg.tensor(wrong), num_nodes=2, time=pyg.tensor([1, 2])))
    with pytest.raises(InputError, match="the vertices are not a table"):
        from_pyg(pyg.Data(edge_index=edges, ids=["a", "b"], time=pyg.tensor([1, 2, 3])))


# --- networkx --------------------------------------------------------------------------------------------------------


@given(tables(kinds=["none"]))
def test_a_graph_comes_back_from_networkx(given: Tables) -> None:
    graph = without_edge_times(given).build()
    there = graph.to_networkx()
    assert isinstance(there, networkx.Graph)
    assert list(there) == graph.ids.tolist()
    assert {frozenset(pair) for pair in there.edges} == set(model_of(graph).edges)
    assert dict(there.nodes(data="time")) == model_of(graph).times
    assert dict(there.nodes(data="label")) == model_of(graph).labels
    assert_equal(from_networkx(there), graph)


def test_a_window_goes_to_networkx() -> None:
    graph = build({"id": [1, 2, 3], "time": [1, 2, 3], "label": ["x", None, "y"]}, [(1, 2), (2, 3)])
    there = graph.window(2, 3).to_networkx()
    assert dict(there.nodes(data=True)) == {2: {"time": 2}, 3: {"time": 3, "label": "y"}}
    assert list(there.edges) == [(2, 3)]
    assert all(type(node) is int for node in there)


@pytest.mark.parametrize("kind", [networkx.Graph, networkx.DiGraph, networkx.MultiGraph])
def test_every_kind_of_networkx_graph_is_read_undirected(kind: Any) -> None:
    there = kind([("a", "b"), ("b", "a"), ("b", "c"), ("c", "c")])
    networkx.set_node_attributes(there, {"a": 3, "b": 1, "c": 2}, "year")
    networkx.set_node_attributes(there, {"a": "some words", "b": None}, "title")
    graph = from_networkx(there, time="year", text="title")
    assert (graph.ids.tolist(), graph.n_edges) == (["b", "c", "a"], 2)
    assert list(graph.features.words.columns) == ["some", "words"]


def test_text_of_networkx_nodes_is_read_like_time_and_label() -> None:
    there = networkx.path_graph(3)
    networkx.set_node_attributes(there, {0: 1, 1: 2, 2: 3}, "time")
    assert not from_networkx(there).features
    networkx.set_node_attributes(there, {1: "some words"}, "text")
    assert list(from_networkx(there).features.words.columns) == ["some", "words"]
    assert not from_networkx(there, text=None).features
    with pytest.raises(InputError, match="no node has an attribute 'title'"):
        from_networkx(there, text="title")


def test_numbers_and_categories_of_networkx_nodes() -> None:
    there = networkx.path_graph(3)
    networkx.set_node_attributes(there, {0: 1, 1: 2, 2: 3}, "time")
    networkx.set_node_attributes(there, {1: 7.5}, "pages")
    networkx.set_node_attributes(there, {0: "book", 2: "paper"}, "kind")
    features = from_networkx(there, numbers=["pages", "time"], categories=["kind"]).features
    assert np.array_equal(features.numbers.values, [[np.nan, 1], [7.5, 2], [np.nan, 3]], equal_nan=True)
    assert list(features.categories.columns) == ["kind=book", "kind=paper"]
    with pytest.raises(InputError, match="no node has an attribute 'price'"):
        from_networkx(there, numbers=["price"])
    networkx.set_node_attributes(there, 1, "label")
    with pytest.raises(InputError, match="'label' is the name of another column"):
        from_networkx(there, label="venue", numbers=["label"])


@pytest.mark.parametrize(
    ("nodes", "ids"),
    [
        ([("KDD", 1), ("KDD", 2)], ["('KDD', 1)", "('KDD', 2)"]),
        ([1, "b"], ["1", "b"]),
        ([np.int64(5), np.int64(4)], [5, 4]),
        ([1.5, 2.0], ["1.5", "2.0"]),
        ([True, 5], ["True", "5"]),
    ],
)
def test_nodes_that_are_no_ids_are_named_by_how_they_are_written(nodes: list[Any], ids: list[Any]) -> None:
    there = networkx.path_graph(nodes)
    networkx.set_node_attributes(there, 1, "time")
    graph = from_networkx(there)
    assert (graph.ids.tolist(), graph.n_edges) == (ids, 1)


def test_networkx_graphs_that_lack_something_are_refused() -> None:
    with pytest.raises(InputError, match="node 0 has no attribute 'time'"):
        from_networkx(networkx.path_graph(2))
    with pytest.raises(InputError, match="there are no vertices"):
        from_networkx(networkx.Graph())
    there = networkx.Graph([(1, "1")])
    networkx.set_node_attributes(there, 1, "time")
    with pytest.raises(InputError, match="id '1' occurs twice"):
        from_networkx(there)
