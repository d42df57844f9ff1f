import torch
from translation_cases import SIZES, close, sentences, shifted

from hkconv.models.translation.tokens import PAD


def _load_attention(theirs, ours):
    """Torch keeps query, key and value in one matrix."""
    parts = (ours.query, ours.key, ours.value)
    theirs.in_proj_weight.copy_(torch.cat([part.weight for part in parts]))
    theirs.in_proj_bias.copy_(torch.cat([part.bias for part in parts]))
    theirs.out_proj.load_state_dict(ours.out.state_dict())


def _load_layer(theirs, ours, residuals):
    _load_attention(theirs.self_attn, ours.mixing)
    if hasattr(theirs, "multihead_attn"):
        _load_attention(theirs.multihead_attn, ours.memory_attention)
    theirs.linear1.load_state_dict(ours.feedforward[0].state_dict())
    theirs.linear2.load_state_dict(ours.feedforward[2].state_dict())
    for number, residual in enumerate(residuals, 1):
        getattr(theirs, f"norm{number}").load_state_dict(residual.norm.state_dict())


@torch.no_grad()
def test_equals_the_transformer_of_torch(dtype, small, generator):
    model = small("transformer", dtype)
    theirs = torch.nn.Transformer(
        SIZES["dim"],
        SIZES["num_heads"],
        SIZES["num_layers"],
        SIZES["num_layers"],
        SIZES["feedforward_dim"],
        batch_first=True,
        norm_first=True,
        dtype=dtype,
    ).eval()
    for layer, ours in zip(theirs.encoder.layers, model.encoder):
        _load_layer(layer, ours, (ours.around_mixing, ours.around_feedforward))
    for layer, ours in zip(theirs.decoder.layers, model.decoder):
        _load_layer(layer, ours, (ours.around_mixing, ours.around_memory, ours.around_feedforward))
    theirs.encoder.norm.load_state_dict(model.encoder_norm.state_dict())
    theirs.decoder.norm.load_state_dict(model.decoder_norm.state_dict())

    source, target = sentences(generator), shifted(sentences(generator, (6, 4, 2)))
    tokens, positions = model.embedding.tokens, model.embedding.positions
    embedded = [SIZES["dim"] ** 0.5 * (tokens[ids] + positions[: ids.size(1)]) for ids in (source, target)]
    future = torch.ones(target.size(1), target.size(1), dtype=torch.bool).triu(1)
    padding = source == PAD
    hidden = theirs(*embedded, tgt_mask=future, src_key_padding_mask=padding, memory_key_padding_mask=padding)
    torch.testing.assert_close(model(source, target), hidden @ tokens.T, **close(dtype))
