"""What the tests of the translation systems share: small models of each, sentences, and a task learned in seconds."""

import pytest
import torch
from torch.nn import functional as F

import hkconv
from hkconv.models.translation.tokens import BEGIN, END, PAD, UNKNOWN

FIRST_WORD = UNKNOWN + 1
VOCABULARY = 13
SIZES = {"vocabulary": VOCABULARY, "dim": 8, "num_heads": 2, "feedforward_dim": 16, "num_layers": 2, "max_length": 12}


def shaken(model):
    """The model in evaluation, with parameters away from their start, zeros above all; points stay where they are."""
    with torch.no_grad():
        for parameter in model.parameters():
            if not hasattr(parameter, "manifold"):
                parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


def make_bert(folder, sizes):
    """Write a tiny random BERT of the sizes of a system into a folder."""
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=sizes["vocabulary"],
        hidden_size=sizes["dim"],
        num_hidden_layers=sizes["num_layers"],
        num_attention_heads=sizes["num_heads"],
        intermediate_size=sizes["feedforward_dim"],
        max_position_embeddings=sizes["max_length"],
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        # Fresh states as large as trained ones: the usual 0.02 makes a fresh BERT forget where words stand.
        initializer_range=0.3,
    )
    transformers.BertModel(config).save_pretrained(folder)
    return folder


def sentences(generator, lengths=(5, 3, 4)):
    """Random words, closed by END and padded."""
    rows = [torch.randint(FIRST_WORD, VOCABULARY, (length,), generator=generator) for length in lengths]
    rows = [F.pad(row, (0, 1), value=END) for row in rows]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)


def shifted(target):
    """What the decoder is given to predict ``target``."""
    return F.pad(target[:, :-1], (1, 0), value=BEGIN)


def close(dtype):
    tolerance = 1e-5 if dtype == torch.float32 else 1e-10
    return {"rtol": tolerance, "atol": tolerance}


def decoded_stepwise(model, target, memory):
    """The logits of incremental decoding, one position at a time."""
    state = model.start(memory)
    return torch.cat([model.decode(token, memory, state) for token in target.split(1, dim=1)], dim=1)


def train_to_reverse(model, generator, steps, lr, batch=32, lengths=(2, 4)):
    """Train a model to write words backwards, with a learning rate that falls to 0; returns the losses."""
    optimizer = hkconv.RiemannianAdam(model.parameters(), lr=lr)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=steps)
    losses = []
    for _ in range(steps):
        source, target = reverse_task(generator, batch, lengths)
        logits = model(source, shifted(target))
        loss = F.cross_entropy(logits.transpose(1, 2), target, ignore_index=PAD)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return losses


def reverse_task(generator, batch, lengths):
    """Sentences of random words, and the same words backwards."""
    counts = torch.randint(lengths[0], lengths[1] + 1, (batch,), generator=generator).tolist()
    source = sentences(generator, counts)
    rows = [F.pad(row[:count].flip(0), (0, 1), value=END) for row, count in zip(source, counts)]
    return source, torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)


@torch.no_grad()
def written(model, source, length):
    """The tokens that greedy incremental decoding writes, ``(B, length)``."""
    memory = model.encode(source)
    state = model.start(memory)
    tokens = [torch.full((source.size(0), 1), BEGIN)]
    for _ in range(length):
        tokens.append(model.decode(tokens[-1], memory, state).argmax(-1))
    return torch.cat(tokens[1:], dim=1)
