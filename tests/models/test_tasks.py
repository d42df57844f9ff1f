import pytest
import torch

from hkconv.errors import InputError
from hkconv.models.hyperbolic_network import HyperbolicNetwork
from hkconv.models.tasks import check_supported


class Whole(torch.nn.Module):
    pass


class Partial(torch.nn.Module):
    tasks = ("node", "link")


class Hyperbolic(HyperbolicNetwork):
    tasks = ("graph",)

    def __init__(self, task):
        super().__init__(3, 2, 2, lambda _: torch.nn.Identity(), num_layers=1, task=task, dropout=0.0)


def test_a_model_says_which_tasks_it_answers():
    check_supported(Whole(), "graph")
    check_supported(Partial(), "link")
    with pytest.raises(InputError, match="task must be node or link for Partial, got 'graph'"):
        check_supported(Partial(), "graph")


def test_hyperbolic_networks_are_asked_too():
    assert Hyperbolic("graph").task == "graph"
    with pytest.raises(InputError, match="task must be graph for Hyperbolic, got 'node'"):
        Hyperbolic("node")
