"""The loss of a translator: cross entropy with a part of the target spread over the vocabulary."""

import torch
from torch import Tensor

from hkconv.models.translation.tokens import PAD


def summed_loss(logits: Tensor, target: Tensor, smoothing: float = 0.0) -> Tensor:
    r"""The summed loss of the tokens to be predicted (Szegedy et al. 2016).

    .. math::
        -\sum_i \left[(1 - \epsilon) \log p_i(y_i) + \frac{\epsilon}{V} \sum_{v=1}^V \log p_i(v)\right]

    over all positions :math:`i` that are not padding. It is computed in float32 or better whatever the logits are.

    Args:
        logits: of all tokens, ``(B, T, V)``.
        target: the tokens :math:`y`, ``(B, T)``.
        smoothing: :math:`\epsilon`.
    """
    if logits.dtype in (torch.bfloat16, torch.float16):
        logits = logits.float()
    return torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), target.flatten(), ignore_index=PAD, label_smoothing=smoothing, reduction="sum"
    )
