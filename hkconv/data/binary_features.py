"""Features that are one in a few of many columns: kept as the numbers of those columns, written out for a batch.

The nine categorical features of a million atoms take 9 MB as column numbers and 730 MB as 174 one-hot columns.
"""

import torch
from torch import Tensor


def write_out(columns: Tensor, num_columns: int, dtype: torch.dtype) -> Tensor:
    """The matrix whose rows are one in the listed columns and zero elsewhere.

    Args:
        columns: (N, C) whole numbers in [0, num_columns), the columns of each row's ones.
        num_columns: how many columns there are.
        dtype: type of the result.

    Returns:
        (N, num_columns) zeros and ones.
    """
    zeros = torch.zeros(len(columns), num_columns, dtype=dtype, device=columns.device)
    return zeros.scatter_(1, columns.long(), 1)
