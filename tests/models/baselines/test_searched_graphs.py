"""What Geom-GCN and WRGAT share: they search a graph for further neighbours, once, before anything is computed."""

import pytest
import torch
from baseline_cases import PAIRS
from heterophily_cases import assert_gradient_reaches_all, random_graph
from hyperbolic_cases import EDGES, NODES, link_losses

from hkconv.models.baselines import geom_gcn, wrgat

SEARCHES = {geom_gcn.GeomGCN: (geom_gcn, "isomap"), wrgat.WRGAT: (wrgat, "compare_degrees")}
of_each = pytest.mark.parametrize("system", SEARCHES)


@pytest.mark.parametrize("task", ["node", "link"])
@of_each
def test_gradients_reach_all_parameters(system, task, generator):
    assert task in system.tasks
    model = system(3, 16, 2, num_layers=3, task=task)
    assert_gradient_reaches_all(model, torch.randn(30, 3, generator=generator), random_graph(generator), pairs=PAIRS)


@of_each
def test_learns_links(system, generator):
    first, last = link_losses(system, generator)
    assert last < 0.7 * first


@of_each
def test_a_graph_is_searched_once(system, generator, monkeypatch):
    model = system(3, 6, 2, num_layers=1)
    x, edge_index = torch.randn(NODES, 3, generator=generator), EDGES.clone()
    with torch.inference_mode():
        expected = model(x, edge_index)
    monkeypatch.setattr(*SEARCHES[system], None)
    torch.testing.assert_close(model(x, edge_index), expected)
    model(x, edge_index).sum().backward()
