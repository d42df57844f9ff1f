"""Functions of rows whose values on the way are too many to keep: computed piece by piece, and again for gradients."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

# More numbers than this in one tensor on the way, and rows are taken in pieces: 128 MB in float32.
NUMBERS_AT_ONCE = 1 << 25


def in_pieces(
    function: Callable[..., Tensor], rows: tuple[Tensor, ...], numbers: int, *, is_random: bool = False
) -> Tensor:
    """``function(*rows)``, which treats each row by itself and makes tensors of ``numbers`` numbers on the way.

    What else the function needs it must have by itself; gradients reach that too. If it draws random numbers, it must
    draw the same when it is computed again.
    """
    # How many pieces there are would be written into an exported program, which is for any number of rows.
    if torch.compiler.is_exporting() or torch._C._are_functorch_transforms_active():
        return function(*rows)
    pieces = -(-numbers // NUMBERS_AT_ONCE)
    if pieces <= 1:
        return function(*rows)
    parts = zip(*(row.chunk(pieces) for row in rows))
    return torch.cat([checkpoint(function, *part, use_reentrant=False, preserve_rng_state=is_random) for part in parts])
