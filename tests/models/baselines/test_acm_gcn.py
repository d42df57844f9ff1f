import pytest
import torch
from baseline_cases import built, held_out_accuracy, normalized_adjacency, randomized
from hyperbolic_cases import EDGES, NODES

from hkconv.models import ACMGCN, GCN


def literal_layer(conv, h, smooth, plain):
    low, high, own = conv.channels.weight.split(conv.gate_weight.size(1))
    channels = [smooth @ h @ low.T, (torch.eye(NODES, dtype=h.dtype) - smooth) @ h @ high.T, h @ own.T]
    if not plain:
        channels = [channel.relu() for channel in channels]
    scores = torch.stack([torch.sigmoid(c @ v) for c, v in zip(channels, conv.gate_weight)], dim=1)
    share = torch.softmax(3 * scores @ (torch.eye(3, dtype=h.dtype) + conv.gate_mix), dim=1)
    return sum(share[:, [number]] * channel for number, channel in enumerate(channels))


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("num_layers", [1, 3])
def test_equals_its_equations(weighted, num_layers, dtype, generator):
    model = randomized(built(ACMGCN, num_layers=num_layers, dropout=0.5).to(dtype), generator)
    x = h = torch.randn(NODES, 3, generator=generator).to(dtype)
    weight = torch.rand(EDGES.size(1), generator=generator).to(dtype) if weighted else None
    smooth = normalized_adjacency(torch.ones(EDGES.size(1), dtype=dtype) if weight is None else weight)
    for number, conv in enumerate(model.convs, start=1):
        h = literal_layer(conv, h, smooth, plain=number == num_layers)
    torch.testing.assert_close(model(x, EDGES, weight), h)


def test_channels_start_at_equal_weights(generator):
    model = built(ACMGCN, num_layers=1)
    x = torch.randn(NODES, 3, generator=generator)
    smooth = normalized_adjacency(torch.ones(EDGES.size(1)))
    low, high, own = model.convs[0].channels.weight.split(2)
    expected = (smooth @ x @ low.T + (x - smooth @ x) @ high.T + x @ own.T) / 3
    torch.testing.assert_close(model(x, EDGES), expected)


def test_learns_what_a_smoothing_network_does_not(generator):
    """The label is whether a node is above the mean of itself and its neighbours."""
    x = torch.randn(300, 2, generator=generator)
    edge_index = torch.randint(300, (2, 1500), generator=generator)
    smooth = torch.eye(300).index_put((edge_index[1], edge_index[0]), torch.ones(1500), accumulate=True)
    mean = smooth @ x[:, 0] / smooth.sum(1)
    y = (x[:, 0] > mean).long()
    test = torch.arange(300) % 2 == 0
    accuracy = {
        model: held_out_accuracy(model(2, 16, 2, num_layers=2), lambda m: m(x, edge_index), y, test, lr=0.05)
        for model in (ACMGCN, GCN)
    }
    assert accuracy[GCN] < 0.65 < 0.85 < accuracy[ACMGCN]
