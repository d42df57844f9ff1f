from pathlib import Path

import pytest

from hkconv.errors import InputError
from hkconv.models.checkpoint_files import check_sizes


def test_a_description_larger_than_its_weights_is_refused_before_it_is_built():
    check_sizes({"hidden_dim": 6, "root": True, "act": None, "reach": 7.5}, 6, Path("file"))
    with pytest.raises(InputError, match="hidden_dim is 7, weights are 6"):
        check_sizes({"hidden_dim": 7}, 6, Path("file"))
