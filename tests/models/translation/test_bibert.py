import sys

import pytest
import torch
from translation_cases import SIZES, close, make_bert, sentences

from hkconv.errors import InputError
from hkconv.models.translation import create_translator


@torch.no_grad()
def test_encoder_is_the_one_in_the_folder(tmp_path, generator):
    transformers = pytest.importorskip("transformers")
    folder = make_bert(tmp_path, SIZES)
    model = create_translator("bibert", **SIZES, folder=folder).eval()
    source = sentences(generator)
    theirs = transformers.BertModel.from_pretrained(folder, local_files_only=True).eval()
    alone = theirs(source[1:2, :4]).last_hidden_state
    torch.testing.assert_close(model.encode(source).states[1:2, :4], alone, **close(torch.float32))


def test_decoder_may_have_another_width_and_depth_than_bert(tmp_path, generator):
    folder = make_bert(tmp_path, SIZES)
    model = create_translator("bibert", **{**SIZES, "dim": 12, "num_layers": 3}, folder=folder).eval()
    logits = model(sentences(generator), sentences(generator))
    assert logits.isfinite().all() and len(model.decoder) == 3


def test_errors_say_what_would_be_right(tmp_path, monkeypatch):
    folder = make_bert(tmp_path / "bert", SIZES)
    for wrong, message in (
        ({"folder": tmp_path / "nowhere"}, "nowhere must be a folder with a BERT model"),
        ({"vocabulary": 20}, "vocabulary must be that of .*bert, 13 tokens, got 20"),
        ({"max_length": 40}, "max_length must be at most 12, the positions of .*bert, got 40"),
    ):
        with pytest.raises(InputError, match=message):
            create_translator("bibert", **{**SIZES, "folder": folder, **wrong})
    (folder / "model.safetensors").unlink()
    with pytest.raises(InputError, match="the BERT model cannot be read"):
        create_translator("bibert", **SIZES, folder=folder)
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(InputError, match=r"pip install 'hkconv\[bibert\]'"):
        create_translator("bibert", **SIZES, folder=folder)
