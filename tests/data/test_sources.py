import contextlib
import json
import os
import pickle
import shutil
import stat
import zipfile

import numpy as np
import pytest
import scipy.sparse
import torch
from torch_geometric.data import Data, extract_zip

from hkconv.data.sources import Source, airport, hgcn_disease, planetoid, read_source, tu, webkb
from hkconv.errors import InputError

FOLDER = "family/raw"


def read_numbers(root):
    return [Data(x=torch.tensor(json.loads((root / FOLDER / "numbers.json").read_text())))]


def downloading(root):
    """What PyG's classes do: fetch what is missing, then read."""
    raw = root / FOLDER
    if not (raw / "numbers.json").exists():
        raw.mkdir(parents=True)
        (raw / "numbers.json").write_text("[1, 2]")
        (raw / "notes.txt").write_text("fetched")
    return read_numbers(root)


def offline(root):
    (root / FOLDER).mkdir(parents=True)
    (root / FOLDER / "numbers.json").write_text("[1,")
    raise ConnectionError("no network")


FILES = ("numbers.json", "notes.txt")


def test_a_download_brings_the_files_that_were_missing_and_keeps_the_others(tmp_path):
    (tmp_path / FOLDER).mkdir(parents=True)
    (tmp_path / FOLDER / "notes.txt").write_text("mine")
    (graph,) = read_source(Source(FOLDER, FILES, downloading, can_download=True), tmp_path, "numbers")
    assert graph.x.tolist() == [1, 2]
    assert (tmp_path / FOLDER / "notes.txt").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["family"]


def test_a_failed_download_names_what_was_looked_for_and_leaves_nothing(tmp_path):
    source = Source(FOLDER, FILES, offline, can_download=True)
    with pytest.raises(InputError) as caught:
        read_source(source, tmp_path, "numbers")
    message = str(caught.value)
    assert "dataset 'numbers' not found and the download failed with ConnectionError" in message
    assert f"looked in {str(tmp_path / FOLDER)!r} for numbers.json, notes.txt" in message
    assert "--data or HKCONV_DATA" in message and "\n" not in message
    assert list(tmp_path.iterdir()) == []


def test_a_source_without_download_is_not_tried(tmp_path):
    source = Source(FOLDER, FILES, lambda root: pytest.fail("read without files"))
    with pytest.raises(InputError, match="dataset 'numbers' not found and it has no download"):
        read_source(source, tmp_path, "numbers")


def test_long_lists_of_missing_files_are_cut(tmp_path):
    source = webkb("cornell", "webkb_legacy", can_download=False)
    with pytest.raises(InputError, match=r"cornell_split_0.6_0.2_1.npz and 8 more;"):
        read_source(source, tmp_path, "cornell-legacy")


def test_damaged_files_are_an_input_error_in_one_line(tmp_path):
    (tmp_path / FOLDER).mkdir(parents=True)
    (tmp_path / FOLDER / "numbers.json").write_text("[1,\n")
    with pytest.raises(InputError, match=r"could not be read \(JSONDecodeError: ") as caught:
        read_source(Source(FOLDER, ("numbers.json",), read_numbers), tmp_path, "numbers")
    assert "\n" not in str(caught.value)


def write_tu(root, name):
    """Two graphs in TU format, a path of three nodes and a pair."""
    raw = root / "tu" / name / "raw"
    raw.mkdir(parents=True)
    (raw / f"{name}_A.txt").write_text("1, 2\n2, 1\n2, 3\n3, 2\n4, 5\n5, 4\n")
    (raw / f"{name}_graph_indicator.txt").write_text("1\n1\n1\n2\n2\n")
    (raw / f"{name}_graph_labels.txt").write_text("1\n2\n")
    return raw


def test_graphs_without_features_get_their_degrees_one_hot(tmp_path):
    write_tu(tmp_path, "TINY")
    path, pair = read_source(tu("TINY"), tmp_path, "tiny")
    assert path.x.tolist() == [[0, 1, 0], [0, 0, 1], [0, 1, 0]]
    assert pair.x.tolist() == [[0, 1, 0], [0, 1, 0]]


def test_node_attributes_and_labels_are_features_as_asked_for(tmp_path):
    raw = write_tu(tmp_path, "TINY")
    (raw / "TINY_node_labels.txt").write_text("0\n1\n0\n1\n1\n")
    (raw / "TINY_node_attributes.txt").write_text("0.5\n1.5\n2.5\n3.5\n4.5\n")
    path, _ = read_source(tu("TINY", "node_labels", "node_attributes"), tmp_path, "tiny")
    assert path.x.tolist() == [[0.5, 1, 0], [1.5, 0, 1], [2.5, 1, 0]]
    path, _ = read_source(tu("TINY", "node_labels"), tmp_path, "tiny")
    assert path.x.tolist() == [[1, 0], [0, 1], [1, 0]]


def test_changed_raw_files_are_read_anew(tmp_path):
    raw = write_tu(tmp_path, "TINY")
    assert len(read_source(tu("TINY"), tmp_path, "tiny")) == 2
    (raw / "TINY_A.txt").write_text("1, 2\n2, 1\n2, 3\n3, 2\n4, 5\n5, 4\n6, 7\n7, 6\n")
    (raw / "TINY_graph_indicator.txt").write_text("1\n1\n1\n2\n2\n3\n3\n")
    (raw / "TINY_graph_labels.txt").write_text("1\n2\n2\n")
    assert len(read_source(tu("TINY"), tmp_path, "tiny")) == 3


def test_array_files_are_never_unpickled(tmp_path):
    folder = tmp_path / "hgcn" / "airport"
    folder.mkdir(parents=True)
    pickled = np.array([{}], dtype=object)
    np.savez(folder / "airport.npz", edges=pickled, node_features=pickled, node_labels=pickled)
    with pytest.raises(InputError, match=r"could not be read \(ValueError: Object arrays cannot be loaded"):
        read_source(airport(), tmp_path, "airport")


def write_disease(root, edges, labels):
    folder = root / "hgcn" / "disease_nc"
    folder.mkdir(parents=True)
    (folder / "disease_nc.edges.csv").write_text("".join(f"{one},{other}\n" for one, other in edges))
    scipy.sparse.save_npz(folder / "disease_nc.feats.npz", scipy.sparse.csr_matrix(np.eye(len(labels))[::-1]))
    np.save(folder / "disease_nc.labels.npy", labels)


@pytest.mark.parametrize("edges", [[(0, 1)], [(0, 1), (2, 0), (2, 3)]], ids=["one edge", "a path"])
def test_edges_of_a_disease_lead_both_ways_between_nodes_with_their_features_and_labels(tmp_path, edges):
    nodes = len(edges) + 1
    write_disease(tmp_path, edges, np.arange(nodes) % 2)
    (graph,) = read_source(hgcn_disease("disease_nc"), tmp_path, "disease-nc")
    assert sorted(map(tuple, graph.edge_index.t().tolist())) == sorted([*edges, *(pair[::-1] for pair in edges)])
    assert graph.x.tolist() == np.eye(nodes)[::-1].tolist() and graph.x.dtype == torch.float32
    assert graph.y.tolist() == [0, 1, 0, 1][:nodes]


def test_labels_of_a_disease_are_never_unpickled(tmp_path):
    write_disease(tmp_path, [(0, 1)], np.array([{}, {}], dtype=object))
    with pytest.raises(InputError, match=r"could not be read \(ValueError: Object arrays cannot be loaded"):
        read_source(hgcn_disease("disease_nc"), tmp_path, "disease-nc")


class Bomb:
    """Touches a file when it is unpickled."""

    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return os.system, (f"touch {self.target}",)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_planetoid_files_run_nothing(real_data, tmp_path, protocol):
    """PyG unpickles them; a file that asks for more than arrays is refused before."""
    raw = tmp_path / "planetoid" / "Cora" / "geom-gcn" / "raw"
    shutil.copytree(real_data / "planetoid" / "Cora" / "geom-gcn" / "raw", raw)
    assert read_source(planetoid("Cora"), tmp_path, "cora")[0].num_nodes == 2708
    (raw / "ind.cora.ally").chmod(0o644)
    (raw / "ind.cora.ally").write_bytes(pickle.dumps(Bomb(tmp_path / "exploded"), protocol))
    with pytest.raises(InputError, match=r"ind\.cora\.ally is refused: it asks for (\w+\.system|STACK_GLOBAL)"):
        read_source(planetoid("Cora"), tmp_path, "cora")
    assert not (tmp_path / "exploded").exists()


def test_a_downloaded_archive_writes_nowhere_but_in_its_folder(tmp_path):
    """Members that lead out, upwards, from the root or by a link, end up in the private folder and are thrown away."""
    outside = tmp_path / "outside"
    outside.mkdir()

    def unpacking(root):
        raw = root / FOLDER
        if raw.exists():
            return read_numbers(root)
        raw.mkdir(parents=True)
        with zipfile.ZipFile(root / "data.zip", "w") as archive:
            archive.writestr("numbers.json", "[1, 2]")
            archive.writestr("../../../outside/up.txt", "evil")
            archive.writestr(f"{outside}/root.txt", "evil")
            link = zipfile.ZipInfo("link")
            link.external_attr = (stat.S_IFLNK | 0o777) << 16
            archive.writestr(link, str(outside))
            archive.writestr("link/linked.txt", "evil")
        # What PyG's classes do with what they fetched. The file that stands for the link is in the way of the last.
        with contextlib.suppress(OSError):
            extract_zip(str(root / "data.zip"), str(raw), log=False)
        return read_numbers(root)

    root = tmp_path / "data"
    (graph,) = read_source(Source(FOLDER, ("numbers.json",), unpacking, can_download=True), root, "numbers")
    assert graph.x.tolist() == [1, 2]
    assert list(outside.iterdir()) == []
    assert [path for path in sorted(root.rglob("*")) if path.is_file()] == [root / FOLDER / "numbers.json"]
