import json

import pytest
from fuzzing import changed, damaged, fuzzed, input_errors_alone
from hypothesis import strategies as st

from hkconv.errors import InputError
from hkconv.language import corpus as corpora
from hkconv.language.corpus import Corpus, encode_corpus, read_info


def sentences(corpus, tokenizer):
    """All pairs of a corpus as text again."""
    for start, (source, target) in zip(corpus.starts, corpus.lengths):
        middle = start + source
        sides = corpus.ids[start:middle], corpus.ids[middle : middle + target]
        yield tuple(tokenizer.decode(side.tolist()) for side in sides)


def test_the_text_is_on_disk_pair_by_pair(corpus, text, tokenizer):
    assert list(sentences(corpus, tokenizer)) == list(text)
    assert len(corpus) == corpus.info.pairs == 300
    assert corpus.info.report is None


def test_small_pieces_make_the_same_corpus(corpus, text, tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr(corpora, "_CHUNK", 7)
    assert encode_corpus(text, tokenizer, 64, tmp_path / "pieces", "train") == corpus.info


def test_ids_are_mapped_and_not_held(corpus):
    import numpy as np

    assert isinstance(corpus.ids, np.memmap)
    assert not corpus.ids.flags.writeable


def test_pairs_that_are_too_long_are_left_out_whole_and_counted(text, tokenizer, tmp_path):
    lengths = [max(len(tokenizer.encode(side).ids) for side in pair) for pair in text]
    limit = sorted(lengths)[len(lengths) // 2]
    info = encode_corpus(text, tokenizer, limit, tmp_path / "short", "train")
    # The end of a sentence is a token too.
    lines = [number for number, length in enumerate(lengths, start=1) if length + 1 > limit]
    assert info.too_long == len(lines) > 5
    assert info.too_long_lines == lines[:5]
    kept = [pair for pair, length in zip(text, lengths) if length + 1 <= limit]
    assert list(sentences(Corpus(tmp_path / "short", "train"), tokenizer)) == kept
    named = ", ".join(map(str, lines[:5]))
    assert info.report == f"{len(lines)} of 300 pairs left out: longer than {limit} tokens (lines {named}, ...)"


def test_nothing_left(text, tokenizer, tmp_path):
    with pytest.raises(InputError, match=r"every pair of .* is longer than max_length = 2 tokens"):
        encode_corpus(text, tokenizer, 2, tmp_path / "none", "train")


def test_damaged_files(corpus, tmp_path):
    (tmp_path / "corpus" / "train.lengths").write_bytes(b"1234")
    with pytest.raises(InputError, match="is damaged"):
        Corpus(tmp_path / "corpus", "train")
    (tmp_path / "corpus" / "train.json").write_text("{}")
    with pytest.raises(InputError, match="does not describe one"):
        read_info(tmp_path / "corpus", "train")


@fuzzed(drawn=st.data())
def test_whatever_the_files_hold_only_input_errors_come_out(text, tokenizer, tmp_path, drawn):
    if not (tmp_path / "mine.json").exists():
        encode_corpus(text, tokenizer, 64, tmp_path, "mine")
    path = tmp_path / drawn.draw(st.sampled_from(["mine.json", "mine.json", "mine.ids", "mine.lengths"]))
    sound = path.read_bytes()
    kinds = damaged(sound)
    if path.suffix == ".json":
        kinds |= changed(json.loads(sound)).map(json.dumps).map(str.encode)
    try:
        path.write_bytes(drawn.draw(kinds))
        with input_errors_alone():
            list(sentences(Corpus(tmp_path, "mine"), tokenizer))
    finally:
        path.write_bytes(sound)
