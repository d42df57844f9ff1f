import pytest
import torch

from hkconv.errors import InputError
from hkconv.models.baselines.heads import TaskHead


def test_node_head_changes_nothing(dtype, generator):
    head = TaskHead(8, 3, "node")
    z = torch.randn(5, head.in_features, generator=generator).to(dtype)
    assert head.in_features == 3
    assert torch.equal(head(z), z)


def test_graph_head_is_a_linear_classifier(dtype, generator):
    head = TaskHead(4, 2, "graph").to(dtype)
    z = torch.randn(5, head.in_features, generator=generator).to(dtype)
    torch.testing.assert_close(head(z), z @ head.linear.weight.T + head.linear.bias)


def test_link_head_is_the_inner_product(dtype, generator):
    head = TaskHead(4, None, "link")
    z = torch.randn(5, 4, generator=generator).to(dtype)
    pairs = torch.tensor([[0, 1], [4, 1]])
    torch.testing.assert_close(head(z, pairs=pairs), torch.stack([z[0] @ z[4], z[1] @ z[1]]))
    with pytest.raises(InputError, match="pairs must be given for a link task"):
        head(z)
