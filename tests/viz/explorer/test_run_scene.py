import pytest
import torch
from own_files import write_friends, write_houses
from torch_geometric.data import Data

from hkconv.data import GraphDataset, LinkDataset, NodeDataset, Split, hierarchy
from hkconv.data.own.loading import load_own
from hkconv.data.splits import link_splits
from hkconv.engine.checkpoint import load_checkpoint, save_checkpoint
from hkconv.errors import InputError
from hkconv.geometry.curvature import curvature_value
from hkconv.geometry.lorentz import centroid, dist, lift
from hkconv.tasks import building
from hkconv.tasks.recipe import make_recipe
from hkconv.tasks.run import train_run
from hkconv.viz.explorer.run_scene import read_run_scene

RUN = "run"

both_forms = pytest.mark.parametrize("form", ["views", "paper"])


@pytest.fixture
def tree() -> NodeDataset:
    return hierarchy(depth=4, children=3, num_classes=3, num_features=4, step=0.5, noise=0.3, num_splits=2)


@pytest.fixture
def train(monkeypatch, tmp_path):
    """Train on a dataset for two epochs; gives the summary and the folder."""

    def run(dataset, **changes):
        monkeypatch.setattr(building, "load", lambda *_, **__: dataset)
        folder = tmp_path / RUN
        values = {"models": ("hkn",), "epochs": 2, "num_splits": len(dataset.splits), "device": "cpu"}
        sizes = {"hidden_dim": 5, "num_layers": 3}
        return train_run(make_recipe(**{**values, **sizes, **changes}, out=str(folder))), folder

    return run


def network(folder, result):
    return load_checkpoint(folder / result.cell.folder)[0]


@pytest.fixture
def directed(tree) -> NodeDataset:
    graph = Data(
        x=tree.graph.x, edge_index=tree.graph.edge_index[:, tree.graph.edge_index[0] < tree.graph.edge_index[1]]
    )
    graph.y = tree.graph.y
    return NodeDataset("tree", graph, tree.splits, 3, "test")


@both_forms
def test_the_best_network_layer_by_layer(tree, train, form):
    summary, folder = train(tree, models=("mlp", "hkn", "hybonet"), form=form)
    scene = read_run_scene(folder)
    best = max((result for result in summary.cells if result.model != "mlp"), key=lambda result: result.val_metric)
    model = network(folder, best)
    split = tree.splits[best.split]
    with torch.no_grad():
        points = model.layer_points(tree.graph.x, tree.graph.edge_index)
        logits = model(tree.graph.x, tree.graph.edge_index)
    assert [layer.name for layer in scene.layers] == ["embedding", "layer 1", "layer 2", "layer 3"]
    for layer, expected in zip(scene.layers, points):
        assert torch.allclose(layer.points, expected.double(), rtol=1e-5)
    assert scene.title == f"tree · {best.model}"
    assert scene.note.startswith(f"split {best.split}, seed 0, validation accuracy {100 * best.val_metric:.1f}\u00a0%")
    assert torch.equal(scene.predictions, logits.argmax(1))
    # The score that was stored is that of the nodes of the test part.
    right = (scene.predictions == scene.labels)[scene.parts == 2]
    assert right.double().mean() == pytest.approx(best.test_metric)
    assert (scene.parts == 2).nonzero().flatten().tolist() == split.test.sort().values.tolist()
    assert torch.equal(scene.edges, tree.graph.edge_index)


def shared_logits(model, layers):
    """What each layer that is read adds to the logits, from the distances that the page shows to its centres."""
    shares = []
    for layer, readout in zip(layers[-model.layers_read :], [*model.early_readouts, model]):
        distances = dist(layer.points[:, None], layer.centers, layer.curvature)
        # A distance grows with the radius of the hyperboloid that it is measured on.
        radii = (layer.curvature / curvature_value(readout.read_curvature)) ** 0.5
        shares.append(-distances * radii * (-readout.log_temperature.detach()).exp())
    return shares


LEARNED = {"learn_curvature": True, "curvature": -0.5}


@both_forms
@pytest.mark.parametrize(
    "options", [{}, LEARNED, {"readout": "all", "points": "random"}, {"readout": "last"}, {"readout": "all", **LEARNED}]
)
def test_centres_and_kernel_points_are_those_of_the_network(tree, train, form, options):
    summary, folder = train(tree, form=form, **options)
    scene = read_run_scene(folder)
    model = network(folder, max(summary.cells, key=lambda result: result.val_metric))
    *before, last = scene.layers
    curvatures = [curvature_value(module.curvature) for module in (model.embedding, *model.convs)]
    assert [layer.curvature for layer in scene.layers] == curvatures
    for layer, conv in zip(before, model.convs, strict=True):
        # Distances in units of the radius do not change from one hyperboloid to another.
        own = curvature_value(conv.curvature)
        points = conv.conv.points if form == "views" else conv.points
        kernel = lift(points.detach()[:, 1:].double(), own)
        expected = dist(kernel[:, None], kernel, own) * (-own) ** 0.5
        found = dist(layer.kernel[:, None], layer.kernel, layer.curvature) * (-layer.curvature) ** 0.5
        assert torch.allclose(found, expected, atol=1e-6)
    assert last.kernel is None
    reads_all = options.get("readout", "all" if form == "views" else "last") == "all"
    assert [layer.centers is not None for layer in scene.layers] == [reads_all] * len(before) + [True]
    assert scene.note.endswith("; answers are read off 4 layers together") == reads_all
    shares = shared_logits(model, scene.layers)
    with torch.no_grad():
        logits = model(tree.graph.x, tree.graph.edge_index)
    assert torch.allclose(sum(shares), logits.double(), rtol=1e-3, atol=1e-3)
    assert torch.equal(logits.argmax(1), scene.predictions)
    if not reads_all:
        assert torch.equal(shares[0].argmax(1), scene.predictions)


def rings_and_paths() -> GraphDataset:
    graphs = []
    for index in range(30):
        ring = torch.stack([torch.arange(4 + index % 5), (torch.arange(4 + index % 5) + 1) % (4 + index % 5)])
        edges = ring if index % 2 else ring[:, :-1]
        degree = edges.flatten().bincount(minlength=ring.size(1)).float()[:, None]
        graphs.append(Data(x=degree, edge_index=torch.cat([edges, edges.flip(0)], 1), y=torch.tensor([index % 2])))
    split = Split(torch.arange(18), torch.arange(18, 24), torch.arange(24, 30))
    return GraphDataset("shapes", graphs, [split], 2, "test")


@both_forms
@pytest.mark.parametrize("options", [{}, {"mass": True}, {"mass": True, **LEARNED}])
def test_in_a_graph_task_a_point_is_a_graph(train, form, options):
    dataset = rings_and_paths()
    summary, folder = train(dataset, form=form, epochs=8, lr=0.05, **options)
    scene = read_run_scene(folder)
    model = network(folder, summary.cells[0])
    assert scene.num_nodes == 30
    assert scene.edges is None
    assert scene.labels.tolist() == [0, 1] * 15
    assert (scene.predictions == scene.labels)[24:].double().mean() == pytest.approx(summary.cells[0].test_metric)
    graph = dataset.graphs[7]
    with torch.no_grad():
        points = model.layer_points(graph.x, graph.edge_index)
        logits = model(graph.x, graph.edge_index)[0]
    # With mass every readout has a scaling of its own.
    shares = shared_logits(model, scene.layers)
    assert torch.allclose(sum(shares)[7], logits.double(), rtol=1e-3, atol=1e-3)
    assert torch.equal(sum(shares).argmax(1), scene.predictions)
    if "mass" not in options:
        assert torch.allclose(scene.layers[-1].points[7], centroid(points[-1].double()), rtol=1e-4)


def test_graphs_of_a_network_without_centres(train):
    _, folder = train(rings_and_paths(), models=("h2h-gcn",))
    assert all(layer.centers is None for layer in read_run_scene(folder).layers)


@both_forms
def test_in_a_link_task_edges_are_those_to_pass_messages_over(tree, train, form):
    graph = tree.graph
    links = LinkDataset("tree", graph, link_splits(graph.edge_index, graph.num_nodes, num_splits=1), "test")
    _, folder = train(links, task="link", form=form)
    scene = read_run_scene(folder)
    assert torch.equal(scene.edges, links.splits[0].message_edges)
    assert scene.predictions is scene.parts is None
    assert all(layer.centers is None for layer in scene.layers)


def test_runs_with_nothing_to_show(tree, train):
    _, folder = train(tree, models=("mlp", "gcn"))
    with pytest.raises(InputError, match="has no hyperbolic embeddings: it trained mlp, gcn; train one of hkn, hgcn"):
        read_run_scene(folder)
    for metrics in folder.rglob("metrics.json"):
        metrics.unlink()
    with pytest.raises(InputError, match="has no finished training; continue it"):
        read_run_scene(folder)
    with pytest.raises(InputError, match="run must be a folder that `hkconv train` made"):
        read_run_scene(folder / "nowhere")


def test_a_run_whose_data_changed(tree, train, monkeypatch):
    _, folder = train(tree)
    other = hierarchy(depth=3, children=3, num_classes=3, num_features=4, num_splits=2)
    monkeypatch.setattr(building, "load", lambda *_, **__: other)
    with pytest.raises(InputError, match="was trained on data with num_nodes"):
        read_run_scene(folder)


def test_a_network_that_diverged(tree, train):
    summary, folder = train(tree)
    best = max(summary.cells, key=lambda result: result.val_metric)
    cell = folder / best.cell.folder
    model, info = load_checkpoint(cell)
    with torch.no_grad():
        model.embedding.linear.weight.fill_(float("nan"))
    save_checkpoint(cell, model, info)
    with pytest.raises(InputError, match="points of layer 'embedding' contains NaN or Inf, first in row 0"):
        read_run_scene(folder)


@pytest.mark.parametrize("labels", ["target", "questions"])
def test_nodes_with_numbers_or_answers_have_names_and_no_classes(tmp_path, labels):
    houses, out = write_houses(tmp_path / "houses", labels), str(tmp_path / RUN)
    train_run(make_recipe(dataset=str(houses), models=("hkn",), epochs=2, num_splits=1, hidden_dim=4, out=out))
    scene = read_run_scene(tmp_path / RUN)
    assert scene.labels is None and scene.predictions is None and scene.names[3] == "house 3"
    assert all(layer.centers is None for layer in scene.layers) and scene.num_nodes == 90


def test_points_of_a_network_that_reads_edges_are_those_of_its_layers(tmp_path):
    friends, out = write_friends(tmp_path / "friends"), str(tmp_path / RUN)
    train_run(make_recipe(dataset=str(friends), models=("hkn",), epochs=2, num_splits=1, hidden_dim=4, out=out))
    model, _ = load_checkpoint(tmp_path / RUN / "hkn/split0-seed0")
    dataset = load_own(friends, num_splits=1)
    x = dataset.splits[0].scaling(dataset.graph.x)
    with torch.no_grad():
        points = model.layer_points(x, dataset.graph.edge_index, None, dataset.graph.edge_attr)
    for layer, expected in zip(read_run_scene(tmp_path / RUN).layers, points, strict=True):
        torch.testing.assert_close(layer.points.float(), expected, rtol=1e-4, atol=1e-4)
