"""Outputs and gradients of the layers against stored ones, so that a change of form does not change results.

Stored are those in double precision; single precision is held to the same numbers, for its last bits depend on the
processor.

``python tests/ops/test_stored_results.py`` records them anew, which a change of arithmetic needs and nothing else.
"""

import json
from base64 import b64decode, b64encode
from pathlib import Path

import numpy as np
import pytest
import torch

from hkconv.geometry.curvature import curvature_value
from hkconv.geometry.lorentz import lift
from hkconv.nn import HKAttention, HKBlock, HKConv
from hkconv.ops import cpu
from hkconv.ops.centroid import neighbor_centroid
from hkconv.ops.neighbors import neighbors

STORED = Path(__file__).with_name("stored_results.json")
SOURCES, TARGETS, EDGES, K, M, N = 7, 5, 13, 3, 3, 2
TOLERANCE = {torch.float32: 3e-6, torch.float64: 1e-12}


def numbers(*shape, seed):
    """Numbers between -1 and 1 that depend on no generator."""
    count = int(np.prod(shape))
    return torch.from_numpy(((np.arange(1, count + 1) * 7919 + seed * 104729) % 2003 / 1001.5 - 1).reshape(shape))


def edge_index(targets):
    e = torch.arange(EDGES)
    return torch.stack([(e * e + 2 * e) % SOURCES, (3 * e + e // 4) % (targets - 1)])  # the last one has no neighbor


def set_parameters(module, dtype):
    module.to(dtype)
    with torch.no_grad():
        for seed, (name, parameter) in enumerate(module.named_parameters()):
            value = 0.6 * numbers(*parameter.shape, seed=seed + 1).to(dtype)
            parameter.copy_(-0.8 + 0.1 * value if name.endswith("curvature") else value)
    return module


def with_gradients(module, out, inputs):
    leaves = {**inputs, **dict(module.named_parameters())}
    found = torch.autograd.grad((out * numbers(*out.shape, seed=99).to(out)).sum(), list(leaves.values()))
    return {"out": out.detach(), **dict(zip(leaves, found))}


def run_layer(layer, dtype, *, bipartite=False, weighted=False):
    layer = set_parameters(layer, dtype)
    space = {"x": numbers(SOURCES, M, seed=50).to(dtype).requires_grad_()}
    curvature = curvature_value(layer.curvature)
    x = lift(space["x"], curvature)
    targets = SOURCES
    if bipartite:
        targets = TARGETS
        space["x_target"] = numbers(TARGETS, M, seed=51).to(dtype).requires_grad_()
        x = x, lift(space["x_target"], curvature)
    if weighted:
        space["edge_weight"] = numbers(EDGES, seed=52).abs().to(dtype).requires_grad_()
    return with_gradients(layer, layer(x, edge_index(targets), space.get("edge_weight")), space)


def conv(backend, **options):
    points = lift(1.2 * numbers(K, M, seed=70)).float()
    return HKConv(M, N, K, points=points, backend=backend, **options)


def block(backend, **options):
    return HKBlock(M, N, K, points=lift(1.2 * numbers(K, M, seed=70)).float(), backend=backend, **options)


def trainable(backend):
    return HKConv(M, N, K, points="trainable", curvature=torch.nn.Parameter(torch.tensor(-0.8)), backend=backend)


def run_threads(dtype):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cpu, "WORTH_A_THREAD", 1 << 4)
        patch.setattr(torch, "get_num_threads", lambda: 2)
        return run_layer(conv("cpu", mass=True), dtype, weighted=True)


def run_attention(dtype, backend, **options):
    layer = HKAttention(4, 2, kernel_size=K, backend=backend, **options)
    set_parameters(layer, dtype)
    if layer.linear is not None:
        layer.points.copy_(lift(1.2 * numbers(K, 2, seed=70).to(dtype)))
    space = {"x": numbers(2, 4, 4, seed=60).to(dtype).requires_grad_()}
    padding = torch.zeros(2, 4, dtype=torch.bool)
    padding[1, 3] = True
    return with_gradients(layer, layer(lift(space["x"]), key_padding_mask=padding, causal=True), space)


def run_centroid(dtype):
    space = {"x": (3 * numbers(SOURCES, M, seed=80)).to(dtype).requires_grad_()}
    space["weight"] = numbers(EDGES, seed=52).abs().to(dtype).requires_grad_()
    out = neighbor_centroid(lift(space["x"]), neighbors(edge_index(SOURCES), SOURCES), space["weight"])
    return with_gradients(torch.nn.Identity(), out, space)


BY_BACKEND = {
    "conv": lambda dtype, backend: run_layer(conv(backend), dtype),
    "conv-weighted-mass": lambda dtype, backend: run_layer(conv(backend, mass=True), dtype, weighted=True),
    "conv-bipartite": lambda dtype, backend: run_layer(conv(backend), dtype, bipartite=True, weighted=True),
    "conv-attention": lambda dtype, backend: run_layer(conv(backend, attention="distance"), dtype),
    "conv-direct": lambda dtype, backend: run_layer(conv(backend, relative=False), dtype, weighted=True),
    "conv-trainable-curved": lambda dtype, backend: run_layer(trainable(backend), dtype),
    "block": lambda dtype, backend: run_layer(block(backend), dtype),
    "block-bipartite": lambda dtype, backend: run_layer(
        block(backend, norm="batch", mass=True), dtype, bipartite=True, weighted=True
    ),
    "attention-kernel": run_attention,
    "attention-centroid": lambda dtype, backend: run_attention(dtype, backend, aggregation="centroid"),
}
CASES = {
    f"{name}-{backend}": (lambda dtype, run=run, backend=backend: run(dtype, backend))
    for name, run in BY_BACKEND.items()
    for backend in ("cpu", "reference")
} | {"conv-two-threads": run_threads, "neighbor-centroid": run_centroid}


def to_text(value):
    return b64encode(value.detach().contiguous().numpy().tobytes()).decode()


def from_text(text, like):
    return torch.from_numpy(np.frombuffer(b64decode(text)).copy()).view(like.shape)


def record():
    results = {
        case: {name: to_text(value) for name, value in run(torch.float64).items()} for case, run in CASES.items()
    }
    lines = [f"{json.dumps(case)}: {json.dumps(values)}" for case, values in results.items()]
    STORED.write_text("{\n" + ",\n".join(lines) + "\n}\n")


@pytest.fixture(scope="module")
def stored():
    return json.loads(STORED.read_text())


@pytest.mark.parametrize("case", CASES)
def test_outputs_and_gradients_are_what_they_were(case, dtype, stored):
    results = CASES[case](dtype)
    expected = {name: from_text(text, results[name]) for name, text in stored[case].items()}
    assert results.keys() == expected.keys()
    largest = max(value.norm() for value in expected.values())
    for name, wanted in expected.items():
        scale = max(wanted.norm(), 0.1 * largest)  # small gradients are differences of larger ones
        assert (results[name].double() - wanted).norm() <= TOLERANCE[dtype] * scale, name


if __name__ == "__main__":
    record()
