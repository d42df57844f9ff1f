import pytest
from toy_translation import make_pairs, toy_recipe

from hkconv.language import translate
from hkconv.language.beam import BeamSettings
from hkconv.language.runs import load_run
from hkconv.language.train import train_translator
from hkconv.language.translate import Translator


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    return load_run(
        train_translator(toy_recipe(folder, steps=200, validate_every=200, log_every=100, dim=16, warmup=100)).folder
    )


def test_order_and_batches_do_not_change_a_translation(run, monkeypatch):
    sentences = [source for source, _ in make_pairs(12, seed=7)]
    together = Translator(run)(sentences)
    assert len({*together}) > 3
    monkeypatch.setattr(translate, "BATCH_TOKENS", 200)
    assert Translator(run)(sentences[::-1]) == together[::-1]
    assert [Translator(run)([sentence])[0] for sentence in sentences] == together


def test_sentences_that_cannot_be_translated_keep_their_place(run):
    translator = Translator(run, BeamSettings(beam=2))
    long = " ".join(["dog"] * 100)
    sentences = ["one big dog.", "", long, "two cats."]
    counts = translator.token_counts(sentences)
    assert counts[1] == 0
    assert counts[2] > translator.limit
    found = translator(sentences)
    assert found[1] == found[2] == ""
    assert [found[0], found[3]] == translator([sentences[0], sentences[3]])


def test_the_longest_sentence_that_fits_is_translated(run):
    translator = Translator(run, BeamSettings(beam=2))
    # A letter that is not in the training text is one token, and the space before the first another.
    sentence = "Q" * (translator.limit - 1)
    assert translator.token_counts([sentence, f"{sentence}Q"]) == [translator.limit, translator.limit + 1]
    assert translator([sentence]) != [""]
