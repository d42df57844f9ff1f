import pytest
import torch

from hkconv.benchmarking.graphs import HUB_SHARE, hub_share, make_edges, target_shares
from hkconv.benchmarking.shapes import TARGETS


@pytest.mark.parametrize("targets", TARGETS)
@pytest.mark.parametrize("nodes, edges", [(1, 1), (5, 1000), (3000, 20001)])
def test_exactly_the_edges_asked_for_and_the_same_for_a_seed(targets, nodes, edges):
    made = make_edges(nodes, edges, targets, seed=3)
    assert made.shape == (2, edges)
    assert made.dtype == torch.int64
    assert made.min() >= 0 and made.max() < nodes
    assert torch.equal(made, make_edges(nodes, edges, targets, seed=3))
    if nodes > 1:
        assert not torch.equal(made, make_edges(nodes, edges, targets, seed=4))


@pytest.mark.parametrize("nodes", [100, 2277, 200000])
def test_shares_are_zipf_with_bounded_hubs(nodes):
    share = target_shares(nodes)
    assert share.sum().item() == pytest.approx(1)
    assert share.max().item() == pytest.approx(HUB_SHARE)
    assert (share.diff() <= 1e-15).all()
    tail = torch.arange(nodes // 2, nodes)
    assert torch.allclose(share[tail] * (tail + 1), share[tail[0]] * (tail[0] + 1))


def test_the_largest_hub_has_its_share_and_uniform_targets_have_none():
    assert hub_share(make_edges(5000, 200000, "power-law")) == pytest.approx(HUB_SHARE, rel=0.1)
    assert hub_share(make_edges(5000, 200000, "uniform")) < 0.001


def test_hubs_do_not_lie_side_by_side():
    counts = make_edges(5000, 200000, "power-law")[1].bincount(minlength=5000)
    hubs = counts.topk(3).indices.sort().values
    assert (hubs.diff() > 1).all()
