import math
from cmath import phase, rect

import pytest
import torch

from hkconv import models
from hkconv.errors import InputError
from hkconv.geometry import lorentz
from hkconv.tasks import distances as module
from hkconv.tasks.distances import average_distortion, hop_distances, link_distances, measure_distances, score_distances
from hkconv.tasks.recipe import make_recipe
from hkconv.tasks.run import train_run
from hkconv.tasks.tasks import make_task

STAR = torch.tensor([[0, 0, 0, 0], [1, 2, 3, 4]])
PATH = torch.tensor([[0, 1, 2], [1, 2, 3]])


def of_matrix(distance):
    return lambda sources: distance[sources]


def of_points(points):
    return of_matrix(torch.cdist(points, points))


def binary_tree(depth: int) -> torch.Tensor:
    child = torch.arange(1, 2 ** (depth + 1) - 1)
    return torch.stack([(child - 1) // 2, child])


def literal_scores(distance, hops):
    """Worst distortion and mean average precision, and the average distortion by trying every ratio as the scale."""
    count = len(hops)
    pairs = [(u, v) for u in range(count) for v in range(count) if u != v and math.isfinite(hops[u][v])]
    ratios = [distance[u][v] / hops[u][v] for u, v in pairs]
    average = min(sum(abs(ratio / other - 1) for ratio in ratios) / len(ratios) for other in ratios)
    precisions = []
    for u in range(count):
        neighbors = [v for v in range(count) if hops[u][v] == 1]
        found = []
        for v in neighbors:
            near = [w for w in range(count) if w != u and distance[u][w] <= distance[u][v]]
            found.append(sum(w in neighbors for w in near) / len(near))
        if found:
            precisions.append(sum(found) / len(found))
    return average, max(ratios) / min(ratios), sum(precisions) / len(precisions)


def test_a_path_laid_on_a_line_keeps_everything():
    found = score_distances(of_points(torch.tensor([[0.0], [3.0], [6.0], [9.0]])), PATH, 4)
    assert found.average_distortion == pytest.approx(0)
    assert found.worst_distortion == pytest.approx(1)
    assert found.mean_average_precision == 1
    assert (found.sources, found.num_nodes) == (4, 4)


def test_a_star_in_the_plane_has_its_leaves_too_near():
    """Leaves at the corners of a square: 8 ordered pairs at 1, 8 at sqrt(2) and 4 at 2 in place of 2."""
    corners = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]], dtype=torch.float64)
    found = score_distances(of_points(corners), STAR, 5)
    assert found.average_distortion == pytest.approx(8 / 20 * (1 - math.sqrt(0.5)))
    assert found.worst_distortion == pytest.approx(math.sqrt(2))
    # The center is the nearest of every leaf, and all leaves are its neighbors.
    assert found.mean_average_precision == 1


def test_scores_equal_the_double_loop(generator):
    # Two components, and a node of its own.
    edges = torch.cat([binary_tree(3), torch.tensor([[15, 16, 16], [16, 17, 16]])], dim=1)
    points = torch.randn(19, 3, dtype=torch.float64, generator=generator)
    links = edges[:, edges[0] != edges[1]]
    hops = hop_distances(links, 19, torch.arange(19))
    found = score_distances(of_points(points), edges, 19)
    expected = literal_scores(torch.cdist(points, points).tolist(), hops.tolist())
    assert (
        found.average_distortion,
        found.worst_distortion,
        found.mean_average_precision,
    ) == pytest.approx(expected, rel=1e-9)


def test_hops_are_counted_along_paths():
    hops = hop_distances(PATH, 5, torch.tensor([1, 4]))
    assert hops.tolist() == [[1, 0, 1, 2, math.inf], [math.inf] * 4 + [0]]


def test_the_best_scale_is_that_of_a_fine_search(generator):
    ratio = torch.rand(30, dtype=torch.float64, generator=generator) * 3
    scales = torch.linspace(0.01, 5, 10_000, dtype=torch.float64)
    tried = (scales[:, None] * ratio - 1).abs().mean(1)
    assert average_distortion(ratio) == pytest.approx(tried.min().item(), abs=1e-3)
    assert average_distortion(ratio) <= tried.min()
    assert average_distortion(100 * ratio) == pytest.approx(average_distortion(ratio))


def test_nodes_that_coincide_have_the_worst_scores():
    found = score_distances(of_matrix(torch.zeros(5, 5)), STAR, 5)
    assert (found.average_distortion, found.worst_distortion) == (1, math.inf)
    # All others tie: of a leaf one in four is its neighbor.
    assert found.mean_average_precision == pytest.approx((1 + 4 * 0.25) / 5)


def sarkar(edges: torch.Tensor, length: float) -> torch.Tensor:
    """Points of a tree in the disk (Sarkar 2011), around each node its neighbors in even directions, as far each."""
    places, radius = {0: 0j}, math.tanh(length / 2)
    for node in edges[0].unique().tolist():
        here = places[node]
        parents, children = (edges[1 - row, edges[row] == node].tolist() for row in (1, 0))
        # Seen from the node, which is carried to the center.
        back = [phase((places[one] - here) / (1 - here.conjugate() * places[one])) for one in parents]
        turn = 2 * math.pi / len(parents + children)
        for number, child in enumerate(children, start=1):
            there = rect(radius, (back or [0.0])[0] + number * turn)
            places[child] = (there + here) / (1 + here.conjugate() * there)
    return torch.tensor([[places[node].real, places[node].imag] for node in sorted(places)], dtype=torch.float64)


def test_a_regular_tree_fits_in_the_hyperbolic_plane_and_not_in_the_euclidean(dtype):
    edges = binary_tree(4)
    disk = sarkar(edges, length=3.0)
    points = lorentz.from_poincare(disk).to(dtype)
    hyperbolic = score_distances(of_matrix(lorentz.dist(points[:, None], points)), edges, 31)
    euclidean = score_distances(of_points(disk), edges, 31)
    assert hyperbolic.mean_average_precision == 1 > euclidean.mean_average_precision
    # Where two edges meet at 120 degrees, a way is shorter than both by -2 log sin 60 degrees, and has fewer turns than
    # edges.
    assert 1 < hyperbolic.worst_distortion < 3 / (3 + 2 * math.log(math.sin(math.pi / 3)))
    assert hyperbolic.average_distortion < 0.05 < 0.5 < euclidean.average_distortion


def test_of_a_large_graph_sources_are_sampled(monkeypatch, generator):
    points = torch.randn(31, 2, generator=generator)
    monkeypatch.setattr(module, "MOST_PAIRS", 310)
    found = score_distances(of_points(points), binary_tree(4), 31, seed=1)
    assert (found.sources, found.num_nodes) == (10, 31)
    assert found == score_distances(of_points(points), binary_tree(4), 31, seed=1)
    assert found != score_distances(of_points(points), binary_tree(4), 31, seed=2)


def test_how_many_are_looked_at_at_once_changes_nothing(monkeypatch, generator):
    points = torch.randn(31, 2, dtype=torch.float64, generator=generator)
    whole = score_distances(of_points(points), binary_tree(4), 31)
    monkeypatch.setattr(module, "PAIRS_AT_ONCE", 70)
    assert score_distances(of_points(points), binary_tree(4), 31) == whole


def test_a_graph_without_links_has_no_distances():
    with pytest.raises(InputError, match="at least one edge between different nodes"):
        score_distances(of_matrix(torch.zeros(2, 2)), torch.tensor([[0], [0]]), 2)


def distances_of(name, links, **options):
    model = models.create(name, in_features=4, hidden_dim=3, num_classes=None, num_layers=2, task="link", **options)
    task = make_task(links, links.splits[0], next(model.parameters()))
    found = link_distances(model, task)(torch.tensor([2, 5]))
    return model.eval(), task.graph.x.double(), task.message_edges, found


def test_distances_of_inner_products_are_euclidean(links):
    model, x, edges, found = distances_of("gcn", links)
    z = model.encode(x, edges, None).detach()
    torch.testing.assert_close(found, torch.cdist(z[[2, 5]], z), rtol=0, atol=1e-7)


def test_distances_of_points_are_hyperbolic(links):
    model, x, edges, found = distances_of("hkn", links, form="paper")
    points = model.encode(x, edges).detach()
    expected = lorentz.dist(points[[2, 5], None], points)
    torch.testing.assert_close(found / found[0, 3], expected / expected[0, 3], rtol=1e-6, atol=1e-6)


def test_distances_of_several_layers_are_those_of_the_product_of_their_spaces(links):
    model, x, edges, found = distances_of("hkn", links, form="views")
    readouts = [*model.early_readouts, model]
    squares = [
        lorentz.dist(points[[2, 5], None], points).square() / readout.decoder.log_temperature.exp()
        for points, readout in zip(model.layer_points(x, edges), readouts)
    ]
    expected = sum(squares).sqrt().detach()
    torch.testing.assert_close(found / found[0, 3], expected / expected[0, 3], rtol=1e-6, atol=1e-6)


def test_every_network_of_a_run_on_links_is_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MOST_PAIRS", 20 * 971)
    small = {"epochs": 1, "num_splits": 2, "hidden_dim": 4, "out": str(tmp_path / "run")}
    train_run(make_recipe(dataset="tree", task="link", models=("mlp", "gcn"), **small))
    found = measure_distances(tmp_path / "run")
    assert [(cell.model, cell.split) for cell, _ in found] == [("mlp", 0), ("mlp", 1), ("gcn", 0), ("gcn", 1)]
    assert all(0 < scores.mean_average_precision < 1 and scores.sources == 20 for _, scores in found)


def test_a_run_on_nodes_is_refused(tmp_path):
    train_run(make_recipe(models=("mlp",), epochs=1, num_splits=1, hidden_dim=4, out=str(tmp_path / "run")))
    with pytest.raises(InputError, match=r"distances are of runs with --task link, and run .* has the node task"):
        measure_distances(tmp_path / "run")
