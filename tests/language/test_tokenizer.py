import json

import pytest

from hkconv.data.parallel_text import find_parallel_text
from hkconv.errors import InputError
from hkconv.language.tokenizer import learn_tokenizer, load_tokenizer, save_tokenizer
from hkconv.models.translation.tokens import BEGIN, END, PAD, UNKNOWN


@pytest.fixture(scope="module")
def multi30k(real_data):
    return find_parallel_text(real_data / "mt" / "multi30k" / "valid", "en", "de")


@pytest.fixture(scope="module")
def tokenizer(multi30k):
    return learn_tokenizer(multi30k, 800)


def test_every_sentence_comes_back(multi30k, tokenizer):
    for pair in multi30k:
        for sentence in pair:
            assert tokenizer.decode(tokenizer.encode(sentence).ids) == sentence


def test_the_vocabulary_is_characters_merges_and_specials(multi30k, tokenizer):
    characters = {character for pair in multi30k for sentence in pair for character in sentence}
    assert len(json.loads(tokenizer.to_str())["model"]["merges"]) == 800
    assert tokenizer.get_vocab_size() == 4 + len(characters) + 800
    names = {"<pad>": PAD, "<s>": BEGIN, "</s>": END, "<unk>": UNKNOWN}
    assert {name: tokenizer.token_to_id(name) for name in names} == names


def test_learning_twice_gives_the_same(multi30k, tokenizer):
    assert learn_tokenizer(multi30k, 800).to_str() == tokenizer.to_str()


def test_words_and_punctuation_are_apart_and_entities_whole(tokenizer):
    cut = [piece for piece, _ in tokenizer.pre_tokenizer.pre_tokenize_str("Don't stop, it &apos;s 5 o&apos;clock .")]
    assert cut == ["▁Don", "'", "t", "▁stop", ",", "▁it", "▁&apos;s", "▁5", "▁o", "&apos;clock", "▁."]


def test_names_of_special_tokens_in_a_sentence_are_text(tokenizer, tmp_path):
    save_tokenizer(tokenizer, tmp_path / "tokenizer.json")
    for found in (tokenizer, load_tokenizer(tmp_path / "tokenizer.json")):
        ids = found.encode("a <pad> and </s> here").ids
        assert not {PAD, BEGIN, END} & set(ids)


def test_a_saved_tokenizer_encodes_alike(multi30k, tokenizer, tmp_path):
    save_tokenizer(tokenizer, tmp_path / "tokenizer.json")
    loaded = load_tokenizer(tmp_path / "tokenizer.json")
    source, target = next(iter(multi30k))
    assert loaded.encode(source).ids == tokenizer.encode(source).ids
    assert loaded.encode(target + "☃").ids[-1] == UNKNOWN


def test_files_that_are_no_tokenizer_of_ours(tmp_path):
    path = tmp_path / "tokenizer.json"
    with pytest.raises(InputError, match="cannot be read"):
        load_tokenizer(path)
    path.write_text("{}")
    with pytest.raises(InputError, match="is damaged"):
        load_tokenizer(path)
    from tokenizers import Tokenizer, models

    path.write_text(Tokenizer(models.BPE({"a": 0}, [])).to_str())
    with pytest.raises(InputError, match="must give '<pad>' the id 0"):
        load_tokenizer(path)
