import math
import sys

import numpy as np
import pytest
import torch
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

from hkconv.data.treebanks import DependencyTree, read_treebank
from hkconv.errors import InputError
from hkconv.geometry import lorentz
from hkconv.language import probe_data
from hkconv.language.probe_data import StateCache, TextForm, find_text_form, tokenize_trees, word_vectors
from hkconv.models.translation.tokens import END, PAD, UNKNOWN


def make_tokenizer(*lines, vocabulary=60):
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    specials = ["<pad>", "<s>", "</s>", "<unk>"]
    tokenizer.train_from_iterator(
        lines, trainers.BpeTrainer(vocab_size=vocabulary, special_tokens=specials, show_progress=False)
    )
    return tokenizer


def sentence(*forms):
    heads = np.arange(-1, len(forms) - 1)
    return DependencyTree(forms, heads, np.zeros(len(forms), dtype=bool))


def test_subwords_know_their_word():
    tokenizer = make_tokenizer("the cat sat on the mat and the other cat sat too", vocabulary=40)
    found = tokenize_trees([sentence("the", "catmat", "sat", "zoo")], tokenizer, 50)
    (ids,), (words,) = found.ids, found.words
    assert ids[-1] == END and words[-1] == -1
    # Word by word, for every word begins with a space of its own.
    expected = [tokenizer.encode(word).ids for word in ("the", "catmat", "sat", "zoo")]
    assert ids[:-1] == [number for word in expected for number in word]
    assert words[:-1] == [place for place, word in enumerate(expected) for _ in word]
    assert len(expected[1]) > 1 and UNKNOWN in expected[3]


def test_sentences_that_cannot_be_read_are_counted_and_never_cut():
    tokenizer = make_tokenizer("a b c d e", vocabulary=20)
    tokenizer.normalizer = normalizers.Replace(Regex("[e]"), "")
    sentences = [sentence("a", "b"), sentence("a", "e", "b"), sentence("a", "b", "c", "d"), sentence("c")]
    found = tokenize_trees(sentences, tokenizer, max_length=4)
    assert [entry.forms for entry in found.trees] == [("a", "b"), ("c",)]
    assert found.numbers == [1, 4]
    assert (found.too_long, found.unreadable) == (1, 1)
    # Four letters and an end are five ids.
    assert len(tokenize_trees(sentences, tokenizer, max_length=5).trees) == 3
    with pytest.raises(InputError, match="no sentence of the treebank can be read by the encoder: 3 have 1 subwords"):
        tokenize_trees(sentences, tokenizer, max_length=1)


def test_the_summary_counts_unknown_subwords():
    tokenizer = make_tokenizer("ab ab ab", vocabulary=9)
    summary = tokenize_trees([sentence("ab", "abz"), sentence("ab")], tokenizer, 9).summary()
    assert summary == {
        "sentences": 2,
        "words": 3,
        "subwords": 4,
        "unknown_share": 0.25,
        "too_long": 0,
        "unreadable": 0,
    }


@pytest.mark.parametrize(
    "line, form, written",
    [
        ("Don't go to the Park & don't stay", TextForm(False, False), ["Do", "n't", "[", "&"]),
        ("don't go to the park", TextForm(False, True), ["do", "n't", "[", "&"]),
        ("don &apos;t go , it &apos;s i &apos;m &apos;t", TextForm(True, True), ["do", "n &apos;t", "&#91;", "&amp;"]),
        ("Don &apos;t go , It &apos;s &apos;t &apos;t", TextForm(True, False), ["Do", "n &apos;t", "&#91;", "&amp;"]),
    ],
)
def test_words_are_written_as_the_text_was(line, form, written):
    tokenizer = make_tokenizer(*[line] * 3, vocabulary=80)
    assert find_text_form(tokenizer) == form
    assert [probe_data._write(word, form) for word in ("Do", "n't", "[", "&")] == written
    found = tokenize_trees([sentence("Do", "n't")], tokenizer, 50)
    assert found.ids[0][:-1] == [number for word in written[:2] for number in tokenizer.encode(word).ids]


def test_moses_is_asked_for_only_where_it_is_needed(monkeypatch):
    monkeypatch.setitem(sys.modules, "sacremoses", None)
    probe_data._moses.cache_clear()
    assert probe_data._write("Yes", TextForm(False, True)) == "yes"
    with pytest.raises(InputError, match="tokenised by Moses: pip install"):
        probe_data._write("never written before", TextForm(True, True))


def test_means_of_vectors(dtype, generator):
    states = torch.randn(2, 4, 3, dtype=dtype, generator=generator)
    words = torch.tensor([[0, 1, 1, -1], [2, 2, 2, -1]])
    expected = torch.stack([states[0, 0], (states[0, 1] + states[0, 2]) / 2, states[1, :3].mean(0)])
    torch.testing.assert_close(word_vectors(states, words, 3, "euclidean"), expected)


def test_means_of_points(dtype, generator):
    tangent = torch.nn.functional.pad(torch.randn(2, 4, 3, dtype=dtype, generator=generator), (1, 0))
    states = lorentz.exp0(tangent)
    words = torch.tensor([[0, 1, 1, -1], [2, 2, 2, -1]])
    found = word_vectors(states, words, 3, "lorentz")
    torch.testing.assert_close(found[0], tangent[0, 0, 1:])
    for word, points in ((1, states[0, 1:3]), (2, states[1, :3])):
        # The centroid: the sum, scaled back to the hyperboloid; its logarithm: as long as it is far from the origin.
        total = points.double().sum(0)
        centre = total / math.sqrt(total[0] ** 2 - (total[1:] ** 2).sum())
        expected = math.acosh(centre[0]) * centre[1:] / centre[1:].norm()
        torch.testing.assert_close(found[word].double(), expected, rtol=1e-5, atol=1e-6)


class Shifted:
    """States that say which id they are of, at which place, and in which layer."""

    geometry = "euclidean"

    def encoder_layers(self, source):
        assert ((source == PAD).cumsum(1)[:, -1] == (source == PAD).sum(1)).all()
        places = torch.arange(source.size(1)).expand_as(source)
        return [torch.stack([source + 1000 * layer, places], -1).float() for layer in range(3)]


def test_states_are_cached_by_layer_in_the_order_of_the_words(tmp_path, monkeypatch):
    monkeypatch.setattr(probe_data, "BATCH_TOKENS", 12)
    tokenizer = make_tokenizer("the cat sat on the mat", vocabulary=18)
    sentences = [sentence(*forms.split()) for forms in ("the mat sat on", "cat", "on the cat", "mat sat", "the " * 9)]
    found = tokenize_trees(sentences, tokenizer, 50)
    cache = StateCache(tmp_path)
    assert cache.fill(Shifted(), "dev", found) == 3
    for layer in range(3):
        expected = []
        for entry, ids, words in zip(found.trees, found.ids, found.words):
            for word in range(len(entry)):
                places = [place for place, other in enumerate(words) if other == word]
                expected.append([np.mean([ids[place] + 1000 * layer for place in places]), np.mean(places)])
        np.testing.assert_allclose(cache.load("dev", layer).numpy(), np.array(expected), rtol=1e-6)


def test_states_that_are_not_finite_are_refused(tmp_path):
    class Broken:
        geometry = "euclidean"

        def encoder_layers(self, source):
            return [torch.ones(*source.shape, 2), torch.full((*source.shape, 2), torch.nan)]

    tokenizer = make_tokenizer("a b", vocabulary=10)
    found = tokenize_trees([sentence("a")], tokenizer, 9)
    with pytest.raises(InputError, match="layer 1 of the encoder gives NaN or Inf"):
        StateCache(tmp_path).fill(Broken(), "dev", found)


def test_a_real_treebank_in_subwords(real_data):
    trees = read_treebank(real_data / "ud/en_ewt/en_ewt-ud-dev.conllu.gz")
    lines = [" ".join(entry.forms) for entry in trees[:400]]
    found = tokenize_trees(trees, make_tokenizer(*lines, vocabulary=800), 250)
    assert len(found.trees) + found.too_long == len(trees) and found.unreadable == 0
    for entry, words in zip(found.trees, found.words):
        assert sorted(set(words[:-1])) == list(range(len(entry)))
        assert words[:-1] == sorted(words[:-1])
