from functools import partial

import pytest
import torch
from baseline_cases import adjacency, normalized_adjacency
from heterophily_cases import (
    assert_gradient_reaches_all,
    fitted_accuracy,
    noisy_labels,
    random_graph,
)
from hyperbolic_cases import EDGES, NODES, close, link_losses, randomized

from hkconv.errors import InputError
from hkconv.models.baselines.glognn import GloGNN, GloGNNPlusPlus
from hkconv.models.baselines.normalized_edges import normalized_edges
from hkconv.ops.neighbors import neighbors_with_loops

MODELS = pytest.mark.parametrize("model_class", [GloGNN, GloGNNPlusPlus])


def literal_layer(network, h, h0, normalized):
    """The closed form of the paper with all its N x N matrices."""
    gamma, beta1, beta2 = network.gamma, network.beta1, network.beta2
    sigma = torch.ones(h.size(1)) if network.importance is None else network.importance.detach()
    sigma2 = torch.diag(sigma.double()) @ torch.diag(sigma.double())
    hops = sum(c.double() * torch.linalg.matrix_power(normalized, k + 1) for k, c in enumerate(network.hop_weight))
    left = (1 - gamma) * h @ sigma2 @ h.T + beta2 * hops - gamma * (1 - gamma) * h0 @ sigma2 @ h.T
    right = (1 - gamma) ** 2 * h @ sigma2 @ h.T + (beta1 + beta2) * torch.eye(h.size(0), dtype=torch.float64)
    return left @ torch.linalg.inv(right), sigma2, hops


def literal_network(network, x, weight):
    p = {name: value.detach().double() for name, value in network.named_parameters()}
    hidden = (x.double() @ p["of_features.lins.0.weight"].T + p["of_features.lins.0.bias"]).relu()
    of_features = hidden @ p["of_features.lins.1.weight"].T + p["of_features.lins.1.bias"]
    hidden = (adjacency(weight.double()) @ p["of_rows.weight"] + p["of_rows.bias"]).relu()
    of_rows = hidden @ p["of_structure.2.weight"].T + p["of_structure.2.bias"]
    h0 = h = (1 - network.alpha) * of_features + network.alpha * of_rows
    normalized = normalized_adjacency(weight.double())
    for _ in range(network.num_layers):
        z, _, _ = literal_layer(network, h, h0, normalized)
        h = (1 - network.gamma) * z @ h + network.gamma * h0
    return h.detach()


@MODELS
@pytest.mark.parametrize("gamma, beta1, beta2", [(0.2, 1.0, 1.0), (0.0, 0.0, 0.5), (0.7, 10.0, 0.0)])
def test_equals_the_dense_closed_form(model_class, gamma, beta1, beta2, dtype, generator):
    options = {"alpha": 0.3, "gamma": gamma, "beta1": beta1, "beta2": beta2, "hops": 3}
    model = model_class(3, 6, 4, num_nodes=NODES, num_layers=2, dropout=0.5, **options).to(dtype)
    model = randomized(model, generator)
    x = torch.randn(NODES, 3, generator=generator).to(dtype)
    weight = torch.rand(EDGES.size(1), generator=generator).to(dtype)
    expected = literal_network(model.network, x, weight)
    torch.testing.assert_close(model(x, EDGES, weight).double(), expected, **close(dtype))
    expected = literal_network(model.network, x, torch.ones_like(weight))
    torch.testing.assert_close(model(x, EDGES).double(), expected, **close(dtype))


@MODELS
def test_the_closed_form_is_the_minimum(model_class, generator):
    network = randomized(model_class(3, 6, 4, num_nodes=NODES, num_layers=1).double(), generator).network
    h, h0 = torch.randn(2, NODES, 4, generator=generator, dtype=torch.float64)
    z, sigma2, hops = literal_layer(
        network, h, h0, normalized_adjacency(torch.ones(EDGES.size(1), dtype=torch.float64))
    )
    z = z.detach().requires_grad_()
    gap = h - (1 - network.gamma) * z @ h - network.gamma * h0
    loss = (gap @ sigma2 * gap).sum() + network.beta1 * z.square().sum() + network.beta2 * (z - hops).square().sum()
    loss.backward()
    assert z.grad.abs().max() < 1e-10


def test_float32_is_right_for_many_nodes_and_large_answers(generator):
    """The largest eigenvalue of the Gram matrix is 10^9 times beta1 + beta2."""
    nodes = 5000
    model = GloGNN(3, 8, 4, num_nodes=nodes, num_layers=1, gamma=0.0, beta1=0.0, beta2=1e-2)
    h = 100 * torch.randn(nodes, 4, generator=generator) @ torch.diag(torch.tensor([1, 1, 1, 1e-3]))
    edge_index = random_graph(generator, nodes, 20000)
    edges, _ = neighbors_with_loops(edge_index, None, nodes, torch.float32)
    weight = normalized_edges(edge_index, None, nodes, torch.float64)[1][edges.order]
    found, exact = (
        model.network.to(dtype).aggregate(h.to(dtype), h.to(dtype), weight.to(dtype), edges)
        for dtype in (torch.float32, torch.float64)
    )
    torch.testing.assert_close(found.double() / h, exact / h, rtol=1e-4, atol=1e-4)


@MODELS
def test_learns_classes_that_avoid_each_other(model_class, generator):
    """Most links join nodes of different classes, and the feature is right for two nodes in three."""
    nodes = 120
    y = torch.arange(nodes) % 2
    ends = torch.randint(nodes, (2, 900), generator=generator)
    linked = (y[ends[0]] != y[ends[1]]) | (torch.rand(900, generator=generator) < 0.1)
    edge_index = torch.cat([ends[:, linked], ends[:, linked].flip(0)], dim=1)
    train = torch.rand(nodes, generator=generator) < 0.5
    model = model_class(1, 16, 2, num_nodes=nodes, num_layers=2)
    assert fitted_accuracy(model, noisy_labels(y, generator), edge_index, y, train) > 0.9


@MODELS
def test_renumbered_nodes_with_renumbered_rows_give_renumbered_answers(model_class, dtype, generator):
    model = randomized(model_class(3, 6, 4, num_nodes=NODES, num_layers=2).to(dtype), generator)
    x, order = torch.randn(NODES, 3, generator=generator).to(dtype), torch.tensor([2, 0, 3, 1, 4])
    expected = model(x, EDGES)[order]
    with torch.no_grad():
        model.network.of_rows.weight.copy_(model.network.of_rows.weight[order])
    torch.testing.assert_close(model(x[order], order.argsort()[EDGES]), expected, **close(dtype))


@MODELS
@pytest.mark.parametrize("task", GloGNN.tasks)
def test_gradients_reach_all_parameters(model_class, task, generator):
    model = model_class(3, 16, 2, num_nodes=NODES, num_layers=2, task=task)
    assert_gradient_reaches_all(model, torch.randn(NODES, 3, generator=generator), EDGES, pairs=EDGES)


@MODELS
def test_learns_links(model_class, generator):
    first, last = link_losses(partial(model_class, num_nodes=40), generator)
    assert last < 0.7 * first


@MODELS
def test_after_a_reset_all_powers_count_the_same(model_class, generator):
    model = randomized(model_class(3, 6, 2, num_nodes=NODES, num_layers=2), generator)
    model.reset_parameters()
    assert model.network.hop_weight.tolist() == [0.5, 0.5]


def test_columns_of_equal_importance_are_glognn(generator):
    plain, weighted = (c(3, 6, 2, num_nodes=NODES, num_layers=2) for c in (GloGNN, GloGNNPlusPlus))
    weighted.load_state_dict(plain.state_dict(), strict=False)
    x = torch.randn(NODES, 3, generator=generator)
    torch.testing.assert_close(plain(x, EDGES), weighted(x, EDGES))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_nodes": 0}, "num_nodes must be at least 1, got 0"),
        ({"hops": 0}, "hops must be at least 1, got 0"),
        ({"alpha": 1.5}, r"alpha must lie in \[0, 1\], got 1.5"),
        ({"gamma": 1.0}, r"gamma must lie in \[0, 1\), got 1.0"),
        ({"beta1": 0, "beta2": 0}, "beta1 and beta2 must be non-negative and not both 0, got 0 and 0"),
        ({"beta1": -1.0}, "beta1 and beta2 must be non-negative"),
    ],
)
def test_what_cannot_be_built(options, message):
    with pytest.raises(InputError, match=message):
        GloGNN(3, 6, 2, **{"num_nodes": NODES, "num_layers": 1, **options})


def test_wrong_number_of_nodes():
    model = GloGNN(3, 6, 2, num_nodes=NODES, num_layers=1)
    with pytest.raises(InputError, match="x must have a row for each of the 5 nodes, got 4 rows"):
        model(torch.zeros(4, 3), EDGES)
