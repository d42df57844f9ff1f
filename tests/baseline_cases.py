"""What the tests of the Euclidean baselines share: how one is built and called, and how well it learns."""

import torch
from hyperbolic_cases import EDGES, NODES, learn
from torch.nn import functional as F
from torch_geometric.data import Batch

# Two graphs, between which no edge runs.
BATCH = torch.tensor([0, 0, 0, 1, 1])
PAIRS = torch.tensor([[0, 1, 4], [3, 1, 2]])


def built(model_class, task="node", num_nodes=NODES, num_layers=2, **changes):
    """A small model, with all that its class needs to know."""
    options = {"num_nodes": num_nodes} if getattr(model_class, "uses_num_nodes", False) else {}
    return model_class(3, 8, 2, num_layers=num_layers, task=task, **options, **changes)


def called(model, x, edge_index=EDGES, batch=BATCH, pairs=PAIRS):
    """The model's answer to its task."""
    return model(x, edge_index, batch=batch, batch_size=2, pairs=pairs)


def randomized(model, generator):
    """The model with parameters and running statistics away from their start, ready to be compared with equations."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator).to(parameter))
        for name, buffer in model.named_buffers():
            if "running" in name:
                buffer.copy_(0.5 + torch.rand(buffer.shape, generator=generator))
    return model.eval()


def adjacency(weight, edge_index=EDGES):
    """The dense matrix of weighted edges: row = target, column = source."""
    matrix = torch.zeros(NODES, NODES, dtype=weight.dtype)
    return matrix.index_put((edge_index[1], edge_index[0]), weight, accumulate=True)


def normalized_adjacency(weight):
    """D^-1/2 (A + I) D^-1/2 of ``EDGES``, dense."""
    looped = adjacency(weight) + torch.eye(NODES, dtype=weight.dtype)
    scale = looped.sum(1).rsqrt()
    return scale[:, None] * looped * scale


def batch_norm(norm, x):
    """Batch normalisation of PyG's module, written out."""
    norm = norm.module
    if norm.training:
        mean, variance = x.mean(0), (x - x.mean(0)).square().mean(0)
    else:
        mean, variance = norm.running_mean, norm.running_var
    return norm.weight * (x - mean) / (variance + norm.eps).sqrt() + norm.bias


def held_out_accuracy(model, logits, y, test, **training):
    """Accuracy on ``test`` after training on the rest."""
    learn(model, lambda m: F.cross_entropy(logits(m)[~test], y[~test]), **training)
    with torch.no_grad():
        right = logits(model.eval()).argmax(1) == y
    return right[test].float().mean()


def together(graphs):
    """Graphs as the inputs of a model: features, edges and, by name, the graph of each node."""
    batch = Batch.from_data_list(graphs)
    return (batch.x, batch.edge_index), {"batch": batch.batch, "batch_size": len(graphs)}
