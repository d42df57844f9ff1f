import pytest
import torch
from baseline_cases import batch_norm, built, randomized
from hyperbolic_cases import EDGES, NODES
from torch.nn import functional as F
from torch_geometric import nn as pyg_nn
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from hkconv.errors import InputError
from hkconv.models import ACMGCN, GAT, GCN, DirGNN, GraphSAGE

MODELS = [GCN, GAT, GraphSAGE, ACMGCN, DirGNN]


def literal_norm(norm, module, h):
    if norm == "batch":
        return batch_norm(module, h)
    if norm == "layer":
        centered = h - h.mean(1, keepdim=True)
        scale = (centered.square().mean(1, keepdim=True) + module.eps).sqrt()
        return module.weight * centered / scale + module.bias
    return h


@pytest.mark.parametrize("model", [GCN, GAT, GraphSAGE])
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("norm", ["batch", "layer", "none"])
@pytest.mark.parametrize("training", [True, False])
def test_layers_equal_their_equation(model, norm, residual, training, dtype, generator):
    network = randomized(built(model, num_layers=3, norm=norm, residual=residual).to(dtype), generator).train(training)
    act = F.elu if model is GAT else F.relu
    x = h = torch.randn(NODES, 3, generator=generator).to(dtype)
    # A GCN normalises the edges once for all of its layers.
    edges = gcn_norm(EDGES, None, NODES, dtype=dtype) if model is GCN else (EDGES,)
    for number, conv in enumerate(network.convs):
        out = conv(h, *edges)
        if residual:
            linear = network.residuals[number]
            out = out + h @ linear.weight.T + linear.bias
        h = out if number == 2 else act(literal_norm(norm, network.norms[number], out))
    torch.testing.assert_close(network(x, EDGES), h)


@pytest.mark.parametrize("model, options", [(GCN, {}), (GAT, {"act": "elu", "heads": 8})])
@pytest.mark.parametrize("num_layers", [1, 3])
def test_by_default_it_is_pygs_network_to_the_last_bit(model, options, num_layers, generator):
    x = torch.randn(NODES, 3, generator=generator)
    torch.manual_seed(0)
    ours = model(3, 16, 2, num_layers=num_layers, dropout=0.4)
    torch.manual_seed(0)
    theirs = getattr(pyg_nn, model.__name__)(3, 16, num_layers, 2, dropout=0.4, **options)
    assert {name.removeprefix("network."): value.tolist() for name, value in ours.state_dict().items()} == {
        name: value.tolist() for name, value in theirs.state_dict().items()
    }
    torch.manual_seed(1)
    found = ours(x, EDGES)
    torch.manual_seed(1)
    assert torch.equal(found, theirs(F.dropout(x, 0.4), EDGES))


@pytest.mark.parametrize("model", MODELS)
def test_options_leave_the_draws_of_the_convolutions(model):
    states = []
    for options in ({}, {"norm": "batch", "residual": True}):
        torch.manual_seed(0)
        states.append({k: v for k, v in built(model, **options).state_dict().items() if "convs" in k or ".own" in k})
    assert states[0] and states[0].keys() == states[1].keys()
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("task", ["node", "graph", "link"])
def test_every_part_learns_and_a_single_node_is_no_trouble(model, task, generator):
    network = built(model, task, norm="batch", residual=True, dropout=0.2)
    for nodes, edges in ((NODES, EDGES), (1, EDGES[:, :0])):
        network.zero_grad()
        out = network(torch.randn(nodes, 3, generator=generator), edges, pairs=torch.zeros(2, 3, dtype=torch.long))
        out.square().sum().backward()
        assert out.isfinite().all()
        assert all(parameter.grad.isfinite().all() for parameter in network.parameters())


def test_dropout_follows_the_activation(generator):
    """Of two layers the second sees what is left of the first."""
    model = built(GraphSAGE, residual=True, dropout=0.5)
    seen = []
    model.convs[1].register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    model(torch.randn(NODES, 3, generator=generator), EDGES)
    model.eval()(torch.zeros(NODES, 3), EDGES)
    assert (seen[0] >= 0).all() and (seen[0] == 0).any()


def test_an_unknown_norm_is_refused():
    with pytest.raises(InputError, match="norm must be none, batch or layer, got 'group'"):
        built(GCN, norm="group")
