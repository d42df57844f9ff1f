import pytest
import torch
from torch_geometric.data import Batch, Data

from hkconv.tasks.graph_batches import PackedGraphs


def made_graphs(seed=0):
    """Graphs of different sizes, among them one without edges and one of a single node."""
    generator = torch.Generator().manual_seed(seed)

    def graph(nodes, edges, label):
        return Data(
            x=torch.randn(nodes, 3, generator=generator),
            edge_index=torch.randint(nodes, (2, edges), generator=generator),
            y=torch.tensor([label]),
        )

    return [graph(4, 6, 0), graph(1, 0, 1), graph(3, 0, 2), graph(7, 20, 1), graph(2, 1, 0)]


@pytest.mark.parametrize("members", [[0, 1, 2, 3, 4], [3, 1], [2], [4, 4, 0], [1]])
def test_a_batch_is_what_pyg_makes_of_the_same_graphs(members, dtype):
    graphs = made_graphs()
    made = PackedGraphs(graphs, torch.empty(0, dtype=dtype)).take(torch.tensor(members))
    expected = Batch.from_data_list([graphs[member] for member in members])
    assert torch.equal(made.x, expected.x.to(dtype))
    assert torch.equal(made.edge_index, expected.edge_index)
    assert torch.equal(made.y, expected.y)
    assert torch.equal(made.batch, expected.batch)
    assert made.num_graphs == len(members)


def test_numbers_of_columns_keep_their_type():
    graphs = [Data(x=torch.tensor([[1, 2]], dtype=torch.uint8), edge_index=torch.zeros(2, 1).long(), y=torch.ones(1))]
    assert PackedGraphs(graphs, torch.empty(0)).take(torch.tensor([0])).x.dtype == torch.uint8


@pytest.mark.parametrize("members", [[0, 1, 2, 3, 4], [3, 1], [4, 4, 0]])
def test_weights_and_attributes_stay_with_their_edges(members, dtype):
    graphs = made_graphs()
    for graph in graphs:
        graph.edge_weight = torch.rand(graph.edge_index.size(1))
        graph.edge_attr = torch.rand(graph.edge_index.size(1), 2)
    made = PackedGraphs(graphs, torch.empty(0, dtype=dtype)).take(torch.tensor(members))
    expected = Batch.from_data_list([graphs[member] for member in members])
    assert torch.equal(made.edge_index, expected.edge_index)
    assert torch.equal(made.edge_weight, expected.edge_weight.to(dtype))
    assert torch.equal(made.edge_attr, expected.edge_attr.to(dtype))
