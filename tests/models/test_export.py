import functools
import io
import os
import subprocess
import sys

import pytest
import torch

from hkconv.errors import InputError
from hkconv.models import HKN, export
from hkconv.models.export import export_onnx, export_torch
from hkconv.nn.hk_conv import KernelConv

# One layer each, for exporting takes seconds a layer.
EVERYTHING = {
    "form": "paper",
    **dict.fromkeys(("mass", "learn_curvature"), True),
    "points": "trainable",
    "act": "relu",
    "reach": 5.0,
    "norm": "batch",
    "hidden_act": "relu",
    "readout": "all",
}
VIEWS = {"mass": True, "points": "trainable", "learn_curvature": True}
# Nodes, edges, graphs and pairs: more than it was traced with, one of each, and graphs without nodes and edges.
SIZES = [(50, 200, 7, 9), (1, 1, 1, 1), (4, 0, 6, 3)]


def make_model(task="node", **options):
    model = HKN(5, 4, 3, num_layers=1, kernel_size=3, task=task, **options)
    with torch.no_grad():
        for parameter in model.parameters():
            if not hasattr(parameter, "manifold"):
                parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


def make_inputs(model, sizes, weighted):
    nodes, edges, graphs, pairs = sizes
    inputs = {"x": torch.randn(nodes, 5), "edge_index": torch.randint(nodes, (2, edges))}
    if model.task == "graph":
        inputs["graph_sizes"] = torch.randint(graphs, (nodes,)).bincount(minlength=graphs)
    if model.task == "link":
        inputs["pairs"] = torch.randint(nodes, (2, pairs))
    if model.edge_dim is not None:
        inputs["edge_attr"] = torch.randn(edges, model.edge_dim)
    if weighted:
        inputs["edge_weight"] = torch.rand(edges)
    return inputs


@torch.no_grad()
def answer(model, x, edge_index, graph_sizes=None, pairs=None, edge_weight=None, edge_attr=None):
    if graph_sizes is None:
        return model(x, edge_index, edge_weight, pairs=pairs)
    batch = torch.arange(len(graph_sizes)).repeat_interleave(graph_sizes)
    return model(x, edge_index, edge_weight, batch=batch, batch_size=len(graph_sizes), edge_attr=edge_attr)


CASES = {
    "node": ("node", EVERYTHING, True),
    "graph": ("graph", {"form": "paper", "mass": True}, False),
    "link": ("link", {"form": "paper", "act": "relu"}, False),
    "views": ("node", VIEWS, True),
    "views of graphs": ("graph", {}, False),
    "attributes of edges": ("graph", {"edge_dim": 2}, True),
    "views of links": ("link", {"norm": "layer", "readout": "last"}, False),
}


@functools.cache
def exported(case):
    """The network of a case, whether its edges have weights, and the program, made once."""
    task, options, weighted = CASES[case]
    model = make_model(task, **options)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    content = export_torch(model, weighted=weighted)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert {conv.backend for conv in model.modules() if isinstance(conv, KernelConv)} == {"auto"}
    return model, weighted, content


@pytest.mark.parametrize("case", CASES)
def test_a_loaded_program_answers_as_the_model_for_any_size(case):
    model, weighted, content = exported(case)
    program = torch.export.load(io.BytesIO(content))
    called = {node.target.name() for node in program.graph.nodes if isinstance(node.target, torch._ops.OpOverload)}
    assert {name.split("::")[0] for name in called} == {"aten"}
    for sizes in SIZES:
        inputs = make_inputs(model, sizes, weighted)
        found = program.module()(*inputs.values())
        torch.testing.assert_close(found, answer(model, **inputs), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", ["graph", "views of graphs"])
def test_a_program_runs_where_there_is_no_hkconv(case, tmp_path):
    model, weighted, content = exported(case)
    (tmp_path / "model.pt2").write_bytes(content)
    inputs = make_inputs(model, SIZES[0], weighted)
    torch.save([answer(model, **inputs), *inputs.values()], tmp_path / "case.pt")
    code = """
import sys, torch
expected, *inputs = torch.load("case.pt")
torch.testing.assert_close(torch.export.load("model.pt2").module()(*inputs), expected, rtol=1e-4, atol=1e-5)
assert not {"hkconv", "geoopt", "torch_geometric"} & set(sys.modules)
"""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path, env=environment)


@pytest.mark.parametrize("options", [{"edge_dim": 2}, {"form": "paper"}], ids=["views", "paper"])
def test_onnx_answers_as_the_model_for_any_size(options):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    model = make_model("graph", **options)
    session = onnxruntime.InferenceSession(export_onnx(model, weighted=True))
    assert [value.name for value in session.get_outputs()] == ["logits"]
    for sizes in SIZES[:2]:
        inputs = make_inputs(model, sizes, weighted=True)
        (found,) = session.run(None, {name: value.numpy() for name, value in inputs.items()})
        torch.testing.assert_close(torch.from_numpy(found), answer(model, **inputs), rtol=1e-4, atol=1e-5)


def test_a_network_of_one_graph_is_refused():
    with pytest.raises(InputError, match="structure belongs to the nodes of one graph and cannot be exported"):
        export_torch(HKN(5, 4, 3, structure=True, num_nodes=9))


def test_attributes_of_edges_are_exported_for_graphs_alone():
    with pytest.raises(InputError, match="with edge_dim can be exported for the graph task, not for the node task"):
        export_torch(HKN(5, 4, 2, edge_dim=2))


def test_onnx_needs_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(InputError, match=r"ONNX needs the extra onnx: pip install 'hkconv\[onnx\]'"):
        export_onnx(make_model())


def test_the_graph_of_each_node():
    sizes = torch.tensor([0, 3, 1, 0, 2, 0])
    expected = torch.arange(6).repeat_interleave(sizes)
    assert torch.equal(export._graph_of_each_node(sizes, 6), expected)
