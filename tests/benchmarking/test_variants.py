import pytest
import torch

from hkconv.benchmarking import variants
from hkconv.benchmarking.shapes import SHAPES, Shape
from hkconv.benchmarking.variants import (
    VARIANTS,
    Step,
    check_variants,
    make_problem,
    peak_bytes,
    skip_reason,
)
from hkconv.errors import InputError

CPU = torch.device("cpu")
SMALL = Shape(30, 200, 3, 4)


@pytest.mark.parametrize("name", ["reference", "fused", "hybonet", "gcn", "gat"])
def test_every_variant_gives_all_gradients(name):
    step = Step(name, make_problem(SMALL, "power-law", 0, CPU))
    gradients = step.train()
    assert step.forward().shape == step.x.shape
    assert len(gradients) == 1 + len(list(step.layer.parameters()))
    assert all(gradient.isfinite().all() for gradient in gradients)


def test_forms_of_the_convolution_have_the_same_weights():
    problem = make_problem(SMALL, "uniform", 0, CPU)
    torch.testing.assert_close(
        Step("fused", problem).forward(), Step("reference", problem).forward(), rtol=1e-4, atol=1e-5
    )


def test_the_problem_follows_from_its_arguments():
    first, second = (make_problem(SMALL, "uniform", 5, CPU) for _ in range(2))
    assert torch.equal(first.points, second.points)
    assert torch.equal(first.edge_index, second.edge_index)


@pytest.mark.parametrize("name", ["reference", "compiled"])
def test_what_does_not_fit_is_skipped_with_its_size(name):
    shape = SHAPES[-1]
    assert skip_reason(name, shape, CPU, available=10**13) is None
    reason = skip_reason(name, shape, CPU, available=20 * 10**9)
    assert reason == f"would need about {peak_bytes(name, shape) / 1e9:.0f} GB of memory, 20 GB are free"
    assert skip_reason(name, shape, torch.device("cuda"), available=1) is None


def test_a_missing_backend_is_named(monkeypatch):
    monkeypatch.setattr(variants, "BACKENDS", ("auto", "reference"))
    assert skip_reason("fused", SMALL, torch.device("cuda")) == "no fused backend for cuda in this version"


def test_names_are_checked():
    assert check_variants(VARIANTS) == VARIANTS
    for names in [("fast",), (), ("gcn", "gcn")]:
        with pytest.raises(InputError, match="variants must be different names from reference, compiled"):
            check_variants(names)
