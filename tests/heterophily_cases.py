"""What the tests of networks for heterophilous graphs share: a graph without symmetries, and what each must pass."""

import networkx
import torch
from torch.nn import functional as F

from hkconv.testing import assert_permutation_equivariant


def random_graph(generator, nodes=30, edges=45):
    """Undirected edges between random nodes, ``(2, E)``."""
    drawn = torch.randint(nodes, (2, edges), generator=generator)
    drawn = drawn[:, drawn[0] != drawn[1]]
    return torch.cat([drawn, drawn.flip(0)], dim=1).unique(dim=1)


def as_networkx(edge_index, nodes=30):
    """The same graph as a library for graphs knows it."""
    graph = networkx.empty_graph(nodes)
    graph.add_edges_from(edge_index.T.tolist())
    return graph


def noisy_labels(y, generator, share=0.65):
    """One feature, which is the sign of a node's class for about ``share`` of the nodes and the other for the rest."""
    right = torch.rand(y.numel(), generator=generator) < share
    return torch.where(right == (y == 1), 1.0, -1.0).unsqueeze(-1)


def fitted_accuracy(model, x, edge_index, y, train, steps=150, lr=0.02):
    """Accuracy of the model on the nodes it was not trained on."""
    optimizer = torch.optim.Adam(model.parameters(), lr=lr, weight_decay=1e-3)
    for _ in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(model(x, edge_index)[train], y[train]).backward()
        optimizer.step()
    with torch.no_grad():
        right = model.eval()(x, edge_index).argmax(1) == y
    return right[~train].float().mean().item()


def assert_equivariant(model, generator, dtype, nodes=30):
    """Permuting the nodes of a graph without symmetries permutes the answers."""
    x = torch.randn(nodes, 3, generator=generator).to(dtype)
    assert_permutation_equivariant(model.to(dtype).eval(), x, random_graph(generator, nodes))


def assert_gradient_reaches_all(model, x, edge_index, **tasks):
    """The answer is finite, and so are the gradients; no parameter is left without influence on the answer."""
    out = model(x, edge_index, **tasks)
    assert torch.isfinite(out).all()
    model.zero_grad()
    out.square().sum().backward()
    for name, parameter in model.named_parameters():
        assert torch.isfinite(parameter.grad).all() and parameter.grad.abs().sum() > 0, name
