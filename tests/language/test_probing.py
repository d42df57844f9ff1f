from dataclasses import asdict

import numpy as np
import pytest
import torch
from tree_cases import random_trees, root_paths

from hkconv.errors import InputError
from hkconv.geometry import lorentz
from hkconv.language import probe_training
from hkconv.language.probe_data import TokenizedTrees
from hkconv.language.probing import CHAIN, probe_encoders
from hkconv.models.translation.tokens import END

DIM = 9
FIRST_ID = 10


def make_part(seed, count, first_word):
    """Sentences of words that occur nowhere else, so that an encoder can look a word up."""
    trees = random_trees(seed, np.random.default_rng(seed).integers(2, DIM + 1, size=count))
    ids, words = [], []
    for entry in trees:
        ids.append([*range(first_word, first_word + len(entry)), END])
        words.append([*range(len(entry)), -1])
        first_word += len(entry)
    return TokenizedTrees(trees, list(range(1, count + 1)), ids, words, 0, 0), first_word


@pytest.fixture(scope="module")
def parts():
    parts, word = {}, FIRST_ID
    for seed, (part, count) in enumerate({"train": 300, "dev": 40, "test": 50}.items()):
        parts[part], word = make_part(seed, count, word)
    return parts


@pytest.fixture
def short_training(monkeypatch):
    monkeypatch.setattr(probe_training, "EPOCHS", 4)


class Synthetic:
    """Layer 0 knows nothing; layer 1 has the tree: squared distances of its states are distances in the tree."""

    def __init__(self, parts, geometry, scale=1.0):
        vectors = [torch.zeros(FIRST_ID, DIM)]
        for part in parts.values():
            for entry in part.trees:
                rows = torch.zeros(len(entry), DIM)
                rows[:, : len(entry)] = torch.from_numpy(root_paths(entry))
                vectors.append(scale * rows)
        self.tree = torch.cat(vectors)
        self.noise = scale * torch.randn(self.tree.shape, generator=torch.Generator().manual_seed(7))
        self.geometry = geometry

    def encoder_layers(self, source):
        layers = [table[source] for table in (self.noise, self.tree)]
        if self.geometry == "lorentz":
            return [lorentz.exp0(torch.nn.functional.pad(states, (1, 0))) for states in layers]
        return layers


@pytest.mark.parametrize("geometry", ["euclidean", "lorentz"])
def test_the_layer_that_has_the_tree_is_found(parts, geometry):
    seen = []
    results = probe_encoders({"synthetic": Synthetic(parts, geometry)}, parts, report=seen.append)
    assert seen == results
    assert [(entry.encoder, entry.layer, entry.probe) for entry in results] == [
        (CHAIN, None, None),
        *(("synthetic", layer, kind) for layer in (0, 1) for kind in ("euclidean", "hyperbolic")),
    ]
    for entry in results[3:]:
        for scores in (entry.dev, entry.test):
            assert scores.uuas > 0.97 and scores.dspr > 0.85 and scores.root > 0.97 and scores.nspr > 0.85
    for entry in results[1:3]:
        for scores in (entry.dev, entry.test):
            assert scores.uuas < 0.6 and scores.dspr < 0.5 and scores.root < 0.7 and scores.nspr < 0.4


def test_the_scale_of_the_states_does_not_matter(parts, short_training):
    encoders = {name: Synthetic(parts, "euclidean", scale) for name, scale in (("small", 2**-10), ("large", 2**10))}
    _, *results = probe_encoders(encoders, parts, layers=[1])
    small, large = (
        [{**asdict(entry), "encoder": ""} for entry in results if entry.encoder == name] for name in encoders
    )
    assert small == large


def test_same_seed_same_results_and_layers_do_not_depend_on_each_other(parts, short_training):
    encoder = Synthetic(parts, "euclidean")
    both = probe_encoders({"a": encoder}, parts, seed=3)
    one = probe_encoders({"a": encoder}, parts, seed=3, layers=[1])
    assert one[1:] == both[3:]
    assert probe_encoders({"a": encoder}, parts, seed=4, layers=[1])[1:] != one[1:]


def test_predicted_edges_of_drawn_sentences(parts):
    drawn = [4, 0, 17]
    chain, *_, tree = probe_encoders({"a": Synthetic(parts, "euclidean")}, parts, layers=[1], drawn=drawn)
    trees = parts["test"].trees
    for place in drawn:
        words = np.flatnonzero(~trees[place].is_punctuation)
        assert chain.edges[place] == list(zip(words[1:], words[:-1]))
        gold = {frozenset((word, head)) for word, head in enumerate(trees[place].heads.tolist())}
        assert len(gold & {frozenset(edge) for edge in tree.edges[place]}) >= len(words) - 2
    assert sorted(tree.edges) == sorted(drawn)


@pytest.mark.parametrize("layers", [[2], [0, -1]])
def test_layers_that_are_not_there(parts, layers):
    with pytest.raises(InputError, match=f"layers must be 'all' or numbers from 0 to 1, which a has, got {layers[-1]}"):
        probe_encoders({"a": Synthetic(parts, "euclidean")}, parts, layers=layers)
