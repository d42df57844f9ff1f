"""Every system by its name, also the one that needs a folder to be built from."""

import pytest
import torch
from translation_cases import SIZES, make_bert, shaken

from hkconv.models.translation import create_translator


@pytest.fixture
def built(tmp_path):
    """``built(name, **sizes)``: a fresh system; ``hkn form=views`` is HKN in that form."""

    def build(name, **sizes):
        name, *options = name.split()
        own = dict(option.split("=") for option in options)
        if name == "bibert":
            own["folder"] = make_bert(tmp_path / "bert", sizes)
        return create_translator(name, **sizes, **own)

    return build


@pytest.fixture
def small(built):
    """``small(name, dtype, **changes)``: a small system in evaluation, away from its start."""

    def build(name, dtype=torch.float32, **changes):
        return shaken(built(name, **{**SIZES, **changes}).to(dtype))

    return build
