import pytest
import torch

import hkconv.data
from hkconv.data import GraphDataset, LinkDataset, NodeDataset, describe, load
from hkconv.data.catalog import CATALOG, Facts
from hkconv.data.dataset import link_keys, pair_keys
from hkconv.errors import InputError

# Nodes, edges (undirected, a self loop counts one), features, classes: as published, not as our catalog says.
NODE_TABLE = {
    "cornell": (183, 280, 1703, 5),
    "cornell-legacy": (183, 280, 1703, 5),
    "texas": (183, 295, 1703, 5),
    "wisconsin": (251, 466, 1703, 5),
    "chameleon": (2277, 31421, 2325, 5),
    "squirrel": (5201, 198493, 2089, 5),
    "chameleon-filtered": (890, 8854, 2325, 5),
    "squirrel-filtered": (2223, 46998, 2089, 5),
    "actor": (7600, 26752, 932, 5),
    "cora": (2708, 5278, 1433, 7),
    "citeseer": (3327, 4552, 3703, 6),
    "pubmed": (19717, 44324, 500, 3),
    "airport": (3188, 18631, 4, 4),
}
# Graphs, classes, mean nodes, mean edges, features.
GRAPH_TABLE = {
    "ptc": (344, 2, 25.56, 25.96, 19),
    "enzymes": (600, 6, 32.63, 62.14, 3 + 18),
    "enzymes-labels": (600, 6, 32.63, 62.14, 3),
    "proteins": (1113, 2, 39.06, 72.82, 3 + 1),
    "proteins-labels": (1113, 2, 39.06, 72.82, 3),
    "imdb-binary": (1000, 2, 19.77, 96.53, 136),
    "imdb-multi": (1500, 3, 13.00, 65.94, 89),
}
# Mean atoms and bonds as OGB gives them, and MoleculeNet's for the others; reading them whole takes too long here.
MOLECULE_TABLE = {
    "ogbg-molhiv": (41127, 25.5, 27.5),
    "ogbg-molpcba": (437929, 26.0, 28.1),
    "muv": (93087, 24.2, 26.3),
    "tox21": (7831, 18.6, 19.3),
}
EMBEDDED = ["tree", "disease"]


def undirected_edges(graph):
    return len(pair_keys(graph.edge_index, graph.num_nodes).unique())


def facts_of(dataset):
    graphs = dataset.graphs if isinstance(dataset, GraphDataset) else [dataset.graph]
    return Facts(
        graphs=len(graphs),
        nodes=sum(graph.num_nodes for graph in graphs),
        edges=sum(map(undirected_edges, graphs)),
        features=dataset.num_features,
        classes=len(torch.cat([graph.y for graph in graphs]).unique()),
    )


@pytest.mark.parametrize("name", NODE_TABLE)
def test_one_way_edges_are_known(load_real, name):
    assert load_real(name, direction="in").graph.is_directed() == CATALOG[name].one_way


@pytest.mark.parametrize("name", NODE_TABLE)
def test_node_datasets_are_the_published_ones(load_real, name):
    dataset = load_real(name)
    facts = facts_of(dataset)
    assert (facts.nodes, facts.edges, facts.features, facts.classes) == NODE_TABLE[name]
    assert facts == CATALOG[name].facts
    assert isinstance(dataset, NodeDataset) and len(dataset.splits) == 10
    assert dataset.num_classes == facts.classes and dataset.protocol == "clean"
    graph = dataset.graph
    assert (graph.x.dtype, graph.edge_index.dtype, graph.y.dtype) == (torch.float32, torch.int64, torch.int64)
    assert graph.is_undirected()


@pytest.mark.parametrize("name", GRAPH_TABLE)
def test_graph_datasets_are_the_published_ones(load_real, name):
    dataset = load_real(name)
    facts = facts_of(dataset)
    graphs, classes, mean_nodes, mean_edges, features = GRAPH_TABLE[name]
    assert (facts.graphs, facts.classes, facts.features) == (graphs, classes, features)
    assert facts.nodes / graphs == pytest.approx(mean_nodes, abs=0.006)
    assert facts.edges / graphs == pytest.approx(mean_edges, abs=0.006)
    assert facts == CATALOG[name].facts
    tested = torch.cat([split.test for split in dataset.splits])
    assert torch.equal(tested.sort().values, torch.arange(graphs))


@pytest.mark.parametrize("name", MOLECULE_TABLE)
def test_molecules_are_described_with_their_published_means(name):
    facts, (graphs, mean_nodes, mean_edges) = CATALOG[name].facts, MOLECULE_TABLE[name]
    assert (facts.graphs, facts.features, facts.classes) == (graphs, 174, 2)
    assert (facts.nodes / graphs, facts.edges / graphs) == pytest.approx((mean_nodes, mean_edges), abs=0.06)


@pytest.mark.parametrize("name", EMBEDDED)
def test_embedded_datasets_need_no_root(name, monkeypatch):
    monkeypatch.setenv("HKCONV_DATA", "no such folder")
    dataset = load(name, num_splits=3)
    assert facts_of(dataset) == CATALOG[name].facts
    assert len(dataset.splits) == 3


def test_the_whole_catalog_is_tested():
    assert {*NODE_TABLE, *GRAPH_TABLE, *MOLECULE_TABLE, *EMBEDDED, "disease-nc", "disease-lp"} == set(CATALOG)


def test_the_root_is_left_as_it_was(load_real, real_data):
    for name in ("texas", "actor", "cora", "chameleon", "ptc"):
        load_real(name)
    for family in ("webkb", "actor", "planetoid", "wikipedia", "tu"):
        assert list((real_data / family).rglob("processed")) == []


@pytest.mark.parametrize("name", ["texas", "cora", "actor"])
def test_geom_gcn_splits_have_their_published_sizes(load_real, name):
    dataset = load_real(name)
    for split in dataset.splits:
        covered = sum(len(part) for part in split.parts.values())
        shares = [len(part) / covered for part in split.parts.values()]
        assert shares == pytest.approx([0.48, 0.32, 0.20], abs=0.02)
        assert covered == (2485 if name == "cora" else dataset.graph.num_nodes)


def test_the_legacy_cornell_is_texas_in_disguise(load_real):
    current, legacy, texas = (load_real(name).graph for name in ("cornell", "cornell-legacy", "texas"))
    assert torch.equal(legacy.x, texas.x) and torch.equal(legacy.y, texas.y)
    assert current.y.bincount().tolist() == [38, 16, 30, 82, 17]
    assert legacy.y.bincount().tolist() == [33, 1, 18, 101, 30]
    assert not torch.equal(legacy.edge_index, texas.edge_index)


def num_twins_in_training(dataset):
    """Test nodes with the same neighbours and label as a training node."""
    graph, split = dataset.graph, dataset.splits[0]
    neighbors = [[] for _ in range(graph.num_nodes)]
    for source, target in graph.edge_index.t().tolist():
        neighbors[source].append(target)
    keys = [(tuple(sorted(found)), label) for found, label in zip(neighbors, graph.y.tolist())]
    training = {keys[node] for node in split.train.tolist()}
    return sum(keys[node] in training for node in split.test.tolist())


def test_the_filtered_graphs_have_fewer_twins(load_real):
    assert num_twins_in_training(load_real("chameleon")) > 200
    assert num_twins_in_training(load_real("chameleon-filtered")) < 10


def test_directed_edges_are_kept_on_request(load_real):
    directed = load_real("texas", direction="in").graph
    assert directed.edge_index.size(1) == 325 and not directed.is_undirected()
    both = load_real("texas").graph
    assert undirected_edges(directed) == undirected_edges(both)
    turned = load_real("texas", direction="out").graph
    assert torch.equal(turned.edge_index, directed.edge_index.flip(0))
    loops = [int((graph.edge_index[0] == graph.edge_index[1]).sum()) for graph in (directed, both)]
    assert loops[0] == loops[1] > 0


def test_files_that_list_edges_once_are_undirected_all_the_same(load_real):
    assert load_real("chameleon-filtered", direction="in").graph.is_undirected()


def test_normalised_rows_sum_to_one(load_real):
    plain, normalised = load_real("citeseer").graph.x, load_real("citeseer", normalize_features=True).graph.x
    empty = plain.sum(dim=1) == 0
    assert empty.any() and not normalised[empty].any()
    torch.testing.assert_close(normalised[~empty].sum(dim=1), torch.ones(int((~empty).sum())))
    assert torch.equal(normalised.argmax(dim=1), plain.argmax(dim=1))


def test_logarithms_of_features_keep_their_sign():
    plain, logs = load("tree").graph.x, load("tree", log_features=True).graph.x
    assert (plain < 0).any() and (plain > 0).any()
    torch.testing.assert_close(torch.where(plain < 0, -(1 - plain).log(), (1 + plain).log()), logs)


def test_negative_features_cannot_be_normalised():
    with pytest.raises(InputError, match=r"needs features of zero or more, but dataset 'tree' has negative"):
        load("tree", normalize_features=True)


def test_airport_splits_are_stratified_and_follow_the_seed(load_real):
    dataset, other = load_real("airport"), load_real("airport", seed=1)
    split = dataset.splits[0]
    assert [len(part) for part in split.parts.values()] == pytest.approx([2232, 478, 478], abs=2)
    shares = [dataset.graph.y[part].bincount() / len(part) for part in split.parts.values()]
    torch.testing.assert_close(shares[0], shares[2], atol=0.01, rtol=0)
    assert not torch.equal(split.test, other.splits[0].test)
    assert torch.equal(split.test, load_real("airport", num_splits=1).splits[0].test)


def test_folds_do_not_depend_on_how_many_are_asked_for(load_real):
    few, all_folds = load_real("ptc", num_splits=2).splits, load_real("ptc").splits
    assert len(few) == 2
    for first, second in zip(few, all_folds):
        assert torch.equal(first.train, second.train) and torch.equal(first.test, second.test)


def test_disease_lp_is_for_links_unless_nodes_are_asked_for(load_real):
    links, nodes = load_real("disease-lp"), load_real("disease-lp", task="node")
    assert isinstance(links, LinkDataset) and facts_of(links) == CATALOG["disease-lp"].facts
    assert nodes.graph.y.bincount().tolist() == [1605, 1060]
    assert len(nodes.splits[0].train) == pytest.approx(0.3 * 2665, abs=2)


def test_disease_nc_names_the_file_that_is_missing(load_real, real_data):
    if (real_data / "hgcn/disease_nc/disease_nc.feats.npz").exists():
        pytest.skip("the features of disease_nc are here")
    with pytest.raises(InputError, match=r"'disease-nc' not found.*disease_nc' for disease_nc.feats.npz;"):
        load_real("disease-nc")


def assert_links_are_hidden(dataset):
    num_nodes = dataset.graph.num_nodes
    links = link_keys(dataset.graph.edge_index, num_nodes)
    for split in dataset.splits:
        hidden = pair_keys(torch.cat([split.val, split.test], dim=1), num_nodes)
        messages = pair_keys(split.message_edges, num_nodes)
        assert torch.isin(hidden, links).all() and not torch.isin(hidden, messages).any()
        assert len(hidden) + len(messages.unique()) == len(links)


def test_the_tree_can_be_used_for_links():
    dataset = load("tree", task="link", num_splits=2)
    assert isinstance(dataset, LinkDataset)
    assert_links_are_hidden(dataset)


def test_a_directed_graph_with_loops_can_be_used_for_links_beyond_its_ten_splits(load_real):
    dataset = load_real("texas", task="link", num_splits=12)
    assert len(dataset.splits) == 12
    assert_links_are_hidden(dataset)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("tree", {"task": "graph"}, "task of dataset 'tree' must be 'node' or 'link', got 'graph'"),
        ("ptc", {"task": "node"}, "task of dataset 'ptc' must be 'graph', got 'node'"),
        ("tree", {"task": "regression"}, "must be 'node' or 'link', got 'regression'"),
        (
            "tree",
            {"task": "link", "direction": "in"},
            "direction must be 'both' for the link task, which uses every link",
        ),
        ("tree", {"direction": "up"}, "direction must be 'in' or 'out' or 'both', got 'up'"),
        ("tree", {"num_splits": 0}, "num_splits of dataset 'tree' must be at least 1, got 0"),
        ("tree", {"task": "link", "num_splits": 0}, "num_splits of link prediction must be at least 1, got 0"),
        ("tree", {"seed": -1}, "seed must be zero or larger"),
        ("texas", {"root": "no such folder"}, "data root 'no such folder' is not a folder"),
        ("texsa", {}, "unknown dataset 'texsa': did you mean texas"),
        ("zzz", {}, "unknown dataset 'zzz': `hkconv datasets` lists them"),
    ],
)
def test_bad_requests_are_refused(name, options, message):
    with pytest.raises(InputError, match=message):
        load(name, **options)


def test_there_are_only_ten_geom_gcn_splits_and_folds(load_real):
    for name in ("texas", "ptc"):
        with pytest.raises(InputError, match=f"num_splits of dataset '{name}' must be from 1 to 10, got 11"):
            load_real(name, num_splits=11)


def test_names_are_forgiving():
    assert load("Tree").name == "tree"
    with pytest.raises(InputError, match=r"'imdb-binary' must be 'graph'"):
        load("IMDB_Binary", task="node")


def test_a_missing_dataset_without_download_names_folder_and_files(tmp_path):
    with pytest.raises(InputError) as caught:
        load("ptc", root=tmp_path)
    message = str(caught.value)
    assert str(tmp_path / "tu" / "PTC" / "raw") in message and "PTC_A.txt" in message
    assert "--data or HKCONV_DATA" in message and "\n" not in message


def test_the_environment_names_the_root(real_data, monkeypatch):
    monkeypatch.setenv("HKCONV_DATA", str(real_data))
    assert load("texas", num_splits=1).graph.num_nodes == 183


def test_describe_says_where_each_would_load_from(tmp_path):
    (tmp_path / "hgcn" / "airport").mkdir(parents=True)
    (tmp_path / "hgcn" / "airport" / "airport.npz").touch()
    infos = {info.name: info for info in describe(tmp_path)}
    assert list(infos) == list(CATALOG)
    assert infos["tree"].location == "embedded"
    assert infos["airport"].location == str(tmp_path / "hgcn/airport")
    assert infos["ogbg-molpcba"].location == f"absent: {tmp_path / 'molecules'}"
    assert infos["texas"].location == f"download to {tmp_path / 'webkb/texas/raw'}"
    assert infos["cornell-legacy"].location == f"absent: {tmp_path / 'webkb_legacy/cornell/raw'}"
    assert (infos["ptc"].task, infos["disease-lp"].task, infos["cora"].task) == ("graph", "link", "node")
    assert infos["cora"].classes == 7


def test_the_room_exports_what_others_use():
    assert all(hasattr(hkconv.data, name) for name in hkconv.data.__all__)
