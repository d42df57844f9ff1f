"""Beam search against every translation there is, on a vocabulary small enough to write them all down."""

from itertools import product

import pytest
import torch

from hkconv.errors import InputError
from hkconv.language.beam import BeamSettings, beam_search
from hkconv.models.translation import create_translator
from hkconv.models.translation.tokens import BEGIN, END, PAD

VOCABULARY = 7
WORDS = (4, 5, 6)
LONGEST = 4


@pytest.fixture(params=range(3))
def model(request):
    torch.manual_seed(request.param)
    model = create_translator("transformer", VOCABULARY, 8, 2, 16, 1, dropout=0.0, max_length=16).double().eval()
    with torch.no_grad():
        # Small random weights make all tokens equally likely; these make up their minds.
        for parameter in model.parameters():
            parameter.mul_(2.5)
    return model


@pytest.fixture
def source():
    return torch.tensor([[4, 5, END, PAD, PAD], [6, 4, 5, 5, END], [5, END, PAD, PAD, PAD]])


def log_likelihood(model, sentence, tokens):
    logits = model(sentence[None], torch.tensor([[BEGIN, *tokens[:-1]]]))[0]
    log_p = logits.float().log_softmax(-1)
    return sum(log_p[place, token].item() for place, token in enumerate(tokens))


def penalised(score, length, alpha):
    return score / ((5 + length) / 6) ** alpha


def exhaustive(model, sentence, alpha):
    """The best of all translations of at most LONGEST tokens."""
    everything = [[*words, END] for length in range(LONGEST) for words in product(WORDS, repeat=length)]
    worth = [penalised(log_likelihood(model, sentence, tokens), len(tokens), alpha) for tokens in everything]
    best = max(range(len(worth)), key=worth.__getitem__)
    return everything[best], worth[best]


def greedy(model, sentence, longest):
    tokens = []
    while len(tokens) < longest - 1:
        logits = model(sentence[None], torch.tensor([[BEGIN, *tokens]]))[0, -1]
        tokens.append(max((*WORDS, END), key=lambda token: logits[token].item()))
        if tokens[-1] == END:
            return tokens
    return [*tokens, END]


def trimmed(row):
    row = row.tolist()
    end = row.index(END)
    assert set(row[end + 1 :]) <= {PAD}
    return row[: end + 1]


@torch.no_grad()
@pytest.mark.parametrize("alpha", [0.0, 0.6, 2.0])
def test_a_wide_beam_finds_the_best_of_all_translations(model, source, alpha):
    settings = BeamSettings(beam=128, length_penalty=alpha, ratio=0, extra=LONGEST)
    found = beam_search(model, source, 16, settings)
    for sentence, tokens, score in zip(source, found.tokens, found.score):
        best, worth = exhaustive(model, sentence[sentence != PAD], alpha)
        assert trimmed(tokens) == best
        assert score.item() == pytest.approx(worth, abs=1e-5)


@torch.no_grad()
def test_a_beam_of_one_is_greedy(model, source):
    for longest in (3, 12):
        found = beam_search(model, source, 16, BeamSettings(beam=1, ratio=0, extra=longest))
        for sentence, tokens in zip(source, found.tokens):
            assert trimmed(tokens) == greedy(model, sentence[sentence != PAD], longest)


@torch.no_grad()
@pytest.mark.parametrize("beam", [2, 5])
def test_scores_are_those_of_the_tokens_and_no_worse_than_greedy_without_penalty(model, source, beam):
    settings = BeamSettings(beam=beam, length_penalty=1.0)
    found = beam_search(model, source, 16, settings)
    for sentence, row, score in zip(source, found.tokens, found.score):
        tokens, words = trimmed(row), sentence[sentence != PAD]
        assert len(tokens) <= min(2 * len(words) + 10, 16)
        assert score.item() == pytest.approx(
            penalised(log_likelihood(model, words, tokens), len(tokens), 1.0), abs=1e-5
        )


@torch.no_grad()
def test_a_sentence_is_translated_alike_in_every_batch(model, source):
    settings = BeamSettings(beam=3)
    together = beam_search(model, source, 16, settings)
    for index, sentence in enumerate(source):
        alone = beam_search(model, sentence[None][:, sentence != PAD], 16, settings)
        assert trimmed(alone.tokens[0]) == trimmed(together.tokens[index])
        assert alone.score[0].item() == pytest.approx(together.score[index].item(), abs=1e-6)


def test_probabilities_that_are_not_finite_are_told_of(model, source):
    with torch.no_grad():
        next(model.decoder.parameters()).fill_(torch.nan)
    with pytest.raises(InputError, match="not finite"):
        beam_search(model, source, 16)


@pytest.mark.parametrize("options", [{"beam": 0}, {"length_penalty": -0.1}, {"length_penalty": float("nan")}])
def test_settings_that_make_no_sense(options):
    with pytest.raises(InputError, match=next(iter(options))):
        BeamSettings(**options)
