"""What tests of translation share: one thread, since sums depend on how they are divided, and a small corpus."""

import pytest
import torch
from toy_translation import make_pairs, write_pairs

from hkconv.data.parallel_text import find_parallel_text
from hkconv.language.corpus import Corpus, encode_corpus
from hkconv.language.tokenizer import learn_tokenizer


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def text(tmp_path):
    return find_parallel_text(write_pairs(tmp_path / "text", make_pairs(300, longest=12)), "en", "de")


@pytest.fixture
def tokenizer(text):
    return learn_tokenizer(text, 40)


@pytest.fixture
def corpus(text, tokenizer, tmp_path) -> Corpus:
    encode_corpus(text, tokenizer, 64, tmp_path / "corpus", "train")
    return Corpus(tmp_path / "corpus", "train")
