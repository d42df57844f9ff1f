"""What a user sees first: networks without tuning, in a plain loop on real data."""

import pytest
import torch
from torch.nn import functional as F
from torch_geometric.nn import Sequential

import hkconv
from hkconv.data import load
from hkconv.models import HKN
from hkconv.nn import HDistance, HEmbedding, HKBlock


class Sharper(torch.nn.Module):
    """Distances to logits."""

    def forward(self, distance):
        return -10 * distance


def two_blocks():
    return Sequential(
        "x, edge_index",
        [
            (torch.nn.Dropout(0.5), "x -> x"),
            (HEmbedding(1433, 16), "x -> x"),
            (HKBlock(16, 16, kernel_size=4, dropout=0.5), "x, edge_index -> x"),
            (HKBlock(16, 16, kernel_size=4, dropout=0.5), "x, edge_index -> x"),
            (HDistance(16, 7), "x -> d"),
            (Sharper(), "d -> d"),
        ],
    )


@pytest.mark.nightly
@pytest.mark.parametrize("make", [lambda: HKN(1433, 16, 7), two_blocks], ids=["HKN", "two blocks"])
def test_a_plain_loop_on_cora_learns_it(make, real_data):
    """The promise is 84 %; single seeds have 83.3 to 86.1, so that the mean of three is held to it."""
    cora = load("cora", root=real_data)
    graph, split = cora.graph, cora.splits[0]
    scores = []
    for seed in range(3):
        torch.manual_seed(seed)
        model = make()
        optimizer = hkconv.RiemannianAdam(model.parameters(), lr=0.01)
        for _ in range(100):
            optimizer.zero_grad()
            logits = model(graph.x, graph.edge_index)
            F.cross_entropy(logits[split.train], graph.y[split.train]).backward()
            optimizer.step()
        with torch.no_grad():
            right = model.eval()(graph.x, graph.edge_index).argmax(1) == graph.y
        scores.append(right[split.test].double().mean().item())
    assert sum(scores) / 3 >= 0.84


def test_links_whose_nodes_have_no_other_link_are_found():
    """Leaves of a tree whose only link is hidden: a block for links counts the node itself among its neighbours."""
    tree = load("tree", task="link")
    split = tree.splits[0]
    x = tree.graph.x
    torch.manual_seed(0)
    model = HKN(tree.num_features, 16, task="link")
    optimizer = hkconv.RiemannianAdam(model.parameters(), lr=0.01)
    generator = torch.Generator().manual_seed(0)
    for _ in range(40):
        optimizer.zero_grad()
        drawn = torch.randint(x.size(0), split.train.shape, generator=generator)
        logits = model(x, split.message_edges, pairs=torch.cat([split.train, drawn], dim=1))
        is_link = torch.arange(logits.numel()) < split.train.size(1)
        F.binary_cross_entropy_with_logits(logits, is_link.float()).backward()
        optimizer.step()
    model.eval()
    degree = torch.bincount(split.message_edges[1], minlength=x.size(0))
    pairs = split.val[:, (degree[split.val] == 0).any(0)]
    assert pairs.size(1) >= 10
    with torch.no_grad():
        found = model(x, split.message_edges, pairs=pairs)
        others = model(x, split.message_edges, pairs=split.parts["val_negatives"])
    share = (found.unsqueeze(1) > others).double().mean()
    assert share > 0.8
