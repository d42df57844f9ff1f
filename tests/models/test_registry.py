"""The one list of models: what it names can be imported, and naming costs nothing."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import hkconv.models
from hkconv.errors import InputError
from hkconv.models import MODELS, baselines, translation
from hkconv.models.baselines.baseline import Baseline
from hkconv.models.baselines.convolutional import Convolutional
from hkconv.models.registry import Registry
from hkconv.models.translation import TRANSLATION_MODELS
from hkconv.models.translation.seq2seq import Seq2Seq

FOLDER = Path(hkconv.models.__file__).parent


@pytest.mark.parametrize(
    "registry, kind", [(MODELS, torch.nn.Module), (TRANSLATION_MODELS, Seq2Seq)], ids=["models", "translation"]
)
def test_every_name_is_of_a_class_of_its_own(registry, kind):
    assert len(registry) == len(set(registry.values()))
    assert all(issubclass(found, kind) for found in registry.values())


def test_every_file_of_a_baseline_is_named():
    named = {MODELS[name].__module__ for name in MODELS}
    for path in (FOLDER / "baselines").glob("[!_]*.py"):
        module = f"hkconv.models.baselines.{path.stem}"
        __import__(module)
        own = [found for found in vars(sys.modules[module]).values() if getattr(found, "__module__", "") == module]
        networks = [found for found in own if isinstance(found, type) and issubclass(found, Baseline)]
        assert not networks or module in named or networks in ([Baseline], [Convolutional]), path.name


@pytest.mark.parametrize("room", [hkconv.models, translation])
def test_public_names_are_there(room):
    assert set(dir(room)) == set(room.__all__)
    assert all(hasattr(room, name) for name in room.__all__)
    with pytest.raises(AttributeError, match=f"module '{room.__name__}' has no attribute 'GNC'"):
        _ = room.GNC


def test_baselines_are_found_in_their_folder_too():
    assert baselines.GCN is hkconv.models.GCN is MODELS["gcn"]
    with pytest.raises(AttributeError, match=r"module 'hkconv\.models\.baselines' has no attribute 'HKN'"):
        _ = baselines.HKN


def test_names_alone_load_no_torch():
    code = "import sys, hkconv.tasks.recipe, hkconv.language.recipe; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_unknown_name_is_told_the_nearest():
    registry = Registry("shape", "collections", {"dict": "abc:Mapping", "list": "abc:Sequence"})
    assert "dict" in registry and list(registry) == ["dict", "list"]
    with pytest.raises(InputError, match="unknown shape 'dikt'; did you mean 'dict'"):
        registry.find("dikt")
    with pytest.raises(InputError, match="unknown shape 'tree'; accepted: dict, list"):
        registry.find("tree")
