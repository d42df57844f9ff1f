import pickle

import numpy as np
import pytest
import torch

from hkconv.data import OverlappingSplit, Split, load
from hkconv.data.catalog import BINARY_SPLIT_NODES, CATALOG, CITATION_NODES, GRAPHS
from hkconv.data.protocols import binary_split, published_splits
from hkconv.errors import InputError


def literal_split(labels, val_fraction, test_fraction, seed):
    """The released division in plain lists and NumPy's global generator."""
    np.random.seed(seed)
    positive = np.array([index for index, label in enumerate(labels) if label != 0])
    negative = np.array([index for index, label in enumerate(labels) if 1.0 - label != 0])
    np.random.shuffle(positive)
    np.random.shuffle(negative)
    shorter = min(len(positive), len(negative))
    first, second = round(val_fraction * shorter), round(test_fraction * shorter)
    val = [*positive[:first], *negative[:first]]
    test = [*positive[first : first + second], *negative[first : first + second]]
    train = [*positive[first + second :], *negative[first + second :]]
    return train, val, test


@pytest.mark.parametrize("num_classes", [2, 3, 5])
@pytest.mark.parametrize("fractions", [(0.15, 0.15), (0.1, 0.0)])
def test_binary_split_is_the_literal_one(num_classes, fractions, generator):
    y = torch.randint(num_classes, (137,), generator=generator)
    for seed in (0, 1234):
        found = binary_split(y, *fractions, seed)
        assert [part.tolist() for part in found] == [list(part) for part in literal_split(y.tolist(), *fractions, seed)]


def test_two_classes_are_divided_without_overlap(generator):
    y = torch.randint(2, (100,), generator=generator)
    members = torch.cat(binary_split(y, 0.15, 0.15, 3))
    assert torch.equal(members.sort().values, torch.arange(100))


def test_of_five_classes_three_are_in_two_parts_or_twice_in_one():
    y = torch.arange(5).repeat(40)
    times = torch.cat(binary_split(y, 0.15, 0.15, 3)).bincount(minlength=200)
    assert torch.equal(times, 1 + (y >= 2).long())


# Measured with the released code: the share of the unique members of a part that are training members, seed 1234.
MEASURED = {
    "cornell-legacy": ("test in train", 62),
    "texas": ("test in train", 62),
    "actor": ("test in train", 62),
    "wisconsin": ("test in train", 60),
    "enzymes": ("val in train", 66),
    "imdb-multi": ("val in train", 46),
}


@pytest.mark.parametrize("name", MEASURED)
def test_published_overlap_is_the_measured_one(load_real, name):
    dataset = load_real(name, protocol="published", num_splits=2)
    overlap, measured = MEASURED[name]
    assert dataset.protocol == "published"
    assert round(100 * dataset.splits[0].overlap[overlap]) == measured


def test_texas_in_numbers(load_real):
    split = load_real("texas", protocol="published").splits[0]
    assert [len(part) for part in split.parts.values()] == [244, 44, 44]
    test, train = set(split.test.tolist()), set(split.train.tolist())
    assert (len(test), len(test & train)) == (42, 26)


def test_published_splits_have_their_own_seeds(load_real):
    dataset = load_real("texas", protocol="published", num_splits=12)
    for index in (0, 5, 11):
        train, _, test = literal_split(dataset.labels.tolist(), 0.15, 0.15, 1234 + index)
        assert dataset.splits[index].train.tolist() == train and dataset.splits[index].test.tolist() == test


def test_only_the_splits_differ(load_real):
    clean, published = (load_real("texas", protocol=protocol) for protocol in ("clean", "published"))
    assert torch.equal(clean.graph.x, published.graph.x) and torch.equal(
        clean.graph.edge_index, published.graph.edge_index
    )
    assert not any(isinstance(split, OverlappingSplit) for split in clean.splits)
    assert all(isinstance(split, OverlappingSplit) for split in published.splits)


@pytest.mark.parametrize("name", ["ptc", "enzymes", "imdb-multi"])
def test_graphs_are_tested_on_the_validation_set(load_real, name):
    dataset = load_real(name, protocol="published")
    for split in dataset.splits:
        assert torch.equal(split.test, split.val) and split.overlap["test in val"] == 1
        overlaps = dataset.num_classes > 2
        assert (split.overlap["val in train"] > 0) == overlaps
        if not overlaps:
            assert torch.equal(torch.cat([split.train, split.val]).sort().values, torch.arange(len(dataset.graphs)))
            assert len(split.val) == 2 * round(0.1 * int(dataset.labels.bincount().min()))


def test_graph_classes_count_in_the_order_of_the_file():
    y = torch.tensor([3, 3, 1, 1, 0, 2] * 30)
    (split,) = published_splits("enzymes", y, 1)
    renumbered = [{3: 0, 1: 1, 0: 2, 2: 3}[label] for label in y.tolist()]
    assert split.train.tolist() == literal_split(renumbered, 0.1, 0.0, 1234)[0]


@pytest.mark.parametrize("name", CITATION_NODES)
def test_citation_graphs_have_the_planetoid_split_with_more_validation(load_real, real_data, name):
    folder = next((real_data / "planetoid").glob(f"*/geom-gcn/raw/ind.{name}.test.index")).parent
    tested = sorted(map(int, (folder / f"ind.{name}.test.index").read_text().split()))
    with open(folder / f"ind.{name}.y", "rb") as file:
        num_train = len(pickle.load(file, encoding="latin1"))
    for split in load_real(name, protocol="published", num_splits=2).splits:
        assert isinstance(split, Split) and not isinstance(split, OverlappingSplit)
        assert split.test.tolist() == tested
        assert split.train.tolist() == list(range(num_train))
        assert split.val.tolist() == list(range(num_train, num_train + 1000))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("tree", {"protocol": "fair"}, "protocol must be 'clean' or 'published', got 'fair'"),
        ("tree", {"protocol": "own"}, "protocol must be 'clean' or 'published', got 'own'"),
        ("tree", {}, "'published' does not cover the node task of dataset 'tree', only .* use 'clean'"),
        ("chameleon-filtered", {}, "does not cover the node task of dataset 'chameleon-filtered'"),
        ("texas", {"task": "link"}, "does not cover the link task of dataset 'texas'"),
        ("texas", {"split_file": "mine.json"}, "split_file takes the place of the splits of protocol 'published'"),
    ],
)
def test_what_has_no_published_split_is_refused(name, options, message):
    with pytest.raises(InputError, match=message) as caught:
        load(name, **{"protocol": "published", **options})
    assert "\n" not in str(caught.value)


def test_no_published_splits_are_too_few(load_real):
    with pytest.raises(InputError, match="num_splits of dataset 'texas' must be at least 1, got 0"):
        load_real("texas", protocol="published", num_splits=0)


def test_the_named_datasets_exist():
    assert {*BINARY_SPLIT_NODES, *CITATION_NODES, *GRAPHS} <= set(CATALOG)
