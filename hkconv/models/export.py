"""A trained HKN as a program that needs neither hkconv nor Python: by ``torch.export``, or as ONNX.

The program is made of PyTorch's own operators alone, by way of the reference backend. It takes any number of nodes,
edges and graphs.
"""

import copy
import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import geoopt
import torch
from torch import Tensor

from hkconv.errors import InputError
from hkconv.models.hkn import HKN
from hkconv.nn.hk_conv import KernelConv

# Sizes that differ from each other, or the program would believe that they never do.
NODES, EDGES, GRAPHS, PAIRS = 11, 13, 3, 5


def export_torch(model: HKN, *, weighted: bool = False) -> bytes:
    """A trained network as what ``torch.export.load`` reads.

    Its inputs are ``x`` ``(N, in_features)`` and ``edge_index`` ``(2, E)``; ``graph_sizes`` ``(B,)`` for a graph task:
    how many nodes each graph has, which stand one graph behind the other; ``pairs`` ``(2, P)`` for a link task;
    ``edge_attr`` ``(E, edge_dim)`` of a graph task if the network has ``edge_dim``; ``edge_weight`` ``(E,)`` if it is
    wanted. It returns the logits.

    Args:
        model: the network, of any task.
        weighted: take ``edge_weight`` too.

    Returns:
        The content of a file ``.pt2``.
    """
    program, inputs, shapes = _prepared(model, weighted)
    with _quiet():
        exported = torch.export.export(program, tuple(inputs.values()), dynamic_shapes=shapes)
    for node in exported.graph.nodes:  # where the code lay on this machine is nobody's business
        node.meta.pop("stack_trace", None)
    file = io.BytesIO()
    torch.export.save(exported, file)
    return file.getvalue()


def export_onnx(model: HKN, *, weighted: bool = False) -> bytes:
    """A trained network as an ONNX model, with the inputs of :func:`export_torch` and the output ``logits``.

    The extra ``onnx`` is needed. A graph must have an edge: where there is none, onnxruntime's sum over an empty tensor
    has the wrong shape.

    Args:
        model: the network, of any task.
        weighted: take ``edge_weight`` too.

    Returns:
        The content of a file ``.onnx``.
    """
    try:
        import onnxscript  # noqa: F401 - torch asks for it half-way through
    except ImportError:
        raise InputError("ONNX needs the extra onnx: pip install 'hkconv[onnx]'") from None
    program, inputs, shapes = _prepared(model, weighted)
    with _quiet():
        exported: Any = torch.onnx.export(
            program,
            tuple(inputs.values()),
            dynamo=True,
            dynamic_shapes=shapes,
            input_names=list(inputs),
            output_names=["logits"],
            verbose=False,
        )
    return exported.model_proto.SerializeToString()


class _Program(torch.nn.Module):
    """A network with nothing but tensors for its arguments, in an order of their own for each task."""

    def __init__(self, model: HKN):
        super().__init__()
        self.model = model


class _NodeProgram(_Program):
    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        return self.model(x, edge_index, edge_weight)


class _GraphProgram(_Program):
    def forward(self, x: Tensor, edge_index: Tensor, graph_sizes: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        batch = _graph_of_each_node(graph_sizes, x.size(0))
        return self.model(x, edge_index, edge_weight, batch=batch, batch_size=graph_sizes.size(0))


class _AttributedGraphProgram(_Program):
    def forward(
        self, x: Tensor, edge_index: Tensor, graph_sizes: Tensor, edge_attr: Tensor, edge_weight: Tensor | None = None
    ) -> Tensor:
        batch = _graph_of_each_node(graph_sizes, x.size(0))
        options = {"batch": batch, "batch_size": graph_sizes.size(0), "edge_attr": edge_attr}
        return self.model(x, edge_index, edge_weight, **options)


class _LinkProgram(_Program):
    def forward(self, x: Tensor, edge_index: Tensor, pairs: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        return self.model(x, edge_index, edge_weight, pairs=pairs)


_PROGRAMS = {"node": _NodeProgram, "graph": _GraphProgram, "link": _LinkProgram}


def _graph_of_each_node(sizes: Tensor, num_nodes: int) -> Tensor:
    """As ``repeat_interleave``, which ONNX does not have: how many graphs have ended before each node."""
    ends = sizes.cumsum(0)
    ended = sizes.new_zeros(num_nodes + 1).index_add(0, ends, torch.ones_like(ends))
    return ended.cumsum(0)[:num_nodes]


def _prepared(model: HKN, weighted: bool) -> tuple[_Program, dict[str, Tensor], dict[str, Any]]:
    """The program, inputs to trace it with, and which of their sizes are free."""
    if model.build_options.get("structure", False):
        raise InputError("a network with structure belongs to the nodes of one graph and cannot be exported")
    if model.edge_dim is not None and model.task != "graph":
        raise InputError(f"a network with edge_dim can be exported for the graph task, not for the {model.task} task")
    kind = _PROGRAMS[model.task] if model.edge_dim is None else _AttributedGraphProgram
    program = kind(_portable(model)).eval()
    weight = next(model.parameters())
    # Each with the axis whose size is free, and what that counts.
    inputs = {
        "x": (torch.zeros(NODES, model.embedding.in_features, dtype=weight.dtype), 0, "nodes"),
        "edge_index": (torch.arange(2 * EDGES).view(2, EDGES) % NODES, 1, "edges"),
    }
    if model.task == "graph":
        inputs["graph_sizes"] = torch.tensor([NODES - GRAPHS + 1] + [1] * (GRAPHS - 1)), 0, "graphs"
    if model.task == "link":
        inputs["pairs"] = torch.arange(2 * PAIRS).view(2, PAIRS), 1, "pairs"
    if model.edge_dim is not None:
        inputs["edge_attr"] = torch.zeros(EDGES, model.edge_dim, dtype=weight.dtype), 0, "edges"
    if weighted:
        inputs["edge_weight"] = torch.ones(EDGES, dtype=weight.dtype), 0, "edges"
    # An exported program has no upper bound of its own, and sizes of 0 and 1 are as good as others.
    free = {name: {axis: torch.export.Dim(counted, min=0)} for name, (_, axis, counted) in inputs.items()}
    return program, {name: tensor for name, (tensor, *_) in inputs.items()}, free


def _portable(model: HKN) -> HKN:
    """A copy on the CPU that computes with PyTorch's own operators and holds plain tensors."""
    twin = copy.deepcopy(model).cpu().eval().requires_grad_(False)
    for module in twin.modules():
        if isinstance(module, KernelConv):
            module.backend = "reference"
        for name, parameter in list(module.named_parameters(recurse=False)):
            if isinstance(parameter, geoopt.ManifoldParameter):
                plain = torch.nn.Parameter(parameter.detach().as_subclass(Tensor).clone(), requires_grad=False)
                setattr(module, name, plain)
    return twin


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what the exporters say of themselves."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnx_ir", "onnxscript")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels):
            logger.setLevel(level)
