import copy
import json
import os
import pickle
import resource
import shutil
import sys
from types import SimpleNamespace

import pytest
import torch

from hkconv.engine.checkpoint import CheckpointInfo, load_checkpoint, save_checkpoint
from hkconv.errors import InputError
from hkconv.models import HKN, MODELS, create
from hkconv.models.options import without_removed

EDGES = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]])


OPTIONS = {
    "views": {},
    "paper": {"form": "paper", "norm": "batch", "reach": 5.0},
}


@pytest.fixture(params=OPTIONS)
def model(request, dtype):
    options = {"num_layers": 1, "kernel_size": 3, "points": "random", **OPTIONS[request.param]}
    model = HKN(3, 4, num_classes=2, **options).to(dtype)
    model(torch.randn(5, 3, dtype=dtype), EDGES)  # moves the running estimates
    return model.eval()


def answers(model):
    x = torch.linspace(-1, 1, 15, dtype=next(model.parameters()).dtype).view(5, 3)
    return model(x, EDGES)


def test_the_name_is_the_registered_one():
    assert MODELS[HKN.registered_name] is HKN


def test_round_trip(model, tmp_path):
    model.save_pretrained(tmp_path / "deep" / "down")
    assert sorted(os.listdir(tmp_path / "deep" / "down")) == ["config.json", "model.safetensors"]
    loaded = HKN.from_pretrained(tmp_path / "deep" / "down")
    assert not loaded.training
    assert torch.equal(answers(loaded), answers(model))
    assert loaded.build_options == model.build_options


def test_the_files_are_those_of_a_run(model, tmp_path):
    model.save_pretrained(tmp_path / "saved")
    loaded, info = load_checkpoint(tmp_path / "saved", expected="hkn")
    assert torch.equal(answers(loaded), answers(model))
    assert info.config["hidden_dim"] == 4
    save_checkpoint(tmp_path / "run", model, CheckpointInfo("hkn", info.config, {"name": "tree"}, {"seed": 1}))
    assert torch.equal(answers(HKN.from_pretrained(tmp_path / "run")), answers(model))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_copy_knows_what_it_was_built_with(model, copied, tmp_path):
    copied(model).save_pretrained(tmp_path)
    assert torch.equal(answers(HKN.from_pretrained(tmp_path)), answers(model))


# What save_pretrained of 0.1.0 kept: the arguments that were given, and of those to be had then.
FIRST_OPTIONS = [
    {},
    {"root": False, "num_layers": 1, "norm": "batch"},
    {"attention": None, "directions": False, "hidden_act": "relu", "dropout": 0.3},
    {"norm": None, "hidden_act": None, "readout": "all", "learn_curvature": True},
]


@pytest.mark.parametrize("options", FIRST_OPTIONS)
def test_a_network_of_the_first_release_is_what_it_was(options, tmp_path):
    """Of version 1, without a form, and with 2 layers and no dropout where nothing else is said."""
    config = {"in_features": 3, "hidden_dim": 4, "num_classes": 2, **options}
    was = HKN(form="paper", **{"num_layers": 2, "dropout": 0.0, **without_removed(config)})
    was(torch.randn(5, 3), EDGES)
    was.eval().save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format_version": 1, "config": config}))
    for loaded in (HKN.from_pretrained(tmp_path), load_checkpoint(tmp_path, expected="hkn")[0]):
        assert torch.equal(answers(loaded), answers(was))
        assert loaded.dropout == was.dropout and len(loaded.convs) == len(was.convs)
    # And from then on of the version of now.
    loaded.save_pretrained(tmp_path / "again")
    assert json.loads((tmp_path / "again" / "config.json").read_text())["format_version"] == 2
    assert torch.equal(answers(HKN.from_pretrained(tmp_path / "again")), answers(was))


def test_what_cannot_be_saved(tmp_path):
    learned = HKN(3, 4, 2, curvature=torch.nn.Parameter(torch.tensor(-1.0)))
    with pytest.raises(InputError, match="can be saved if curvature is a plain value, got a Parameter"):
        learned.save_pretrained(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written to"):
        HKN(3, 4, 2).save_pretrained(tmp_path / "file")


def test_what_cannot_be_loaded(tmp_path):
    config = {"in_features": 3, "hidden_dim": 4, "num_classes": 2, "num_layers": 1}
    save_checkpoint(tmp_path, create("mlp", **config), CheckpointInfo("mlp", config))
    with pytest.raises(InputError, match="is of model 'mlp', expected 'hkn'"):
        HKN.from_pretrained(tmp_path)
    with pytest.raises(InputError, match="must be a folder or a repository owner/name, got 'nowhere'"):
        HKN.from_pretrained("nowhere")
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format_version": 3}))
    with pytest.raises(InputError, match="has format version 3; this hkconv reads 1 and 2"):
        HKN.from_pretrained(tmp_path)
    path.write_text(json.dumps([1]))
    with pytest.raises(InputError, match="must hold a JSON object"):
        HKN.from_pretrained(tmp_path)


def rewritten(folder, **options):
    """Change what the configuration of a saved network says of its options."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, "config": {**config["config"], **options}}))
    return folder


@pytest.mark.parametrize("name", ["Module", "Bilinear", "__class__", "softmax", ""])
def test_only_a_function_of_numbers_is_an_activation(name, tmp_path):
    HKN(3, 4, 2).save_pretrained(tmp_path)
    with pytest.raises(InputError, match=f"an activation must be one of relu, .*, got {name!r}") as caught:
        HKN.from_pretrained(rewritten(tmp_path, hidden_act=name))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "sizes", [{"hidden_dim": 2000, "kernel_size": 900}, {"num_classes": 2000, "num_layers": 2000, "hidden_dim": 2000}]
)
def test_a_small_file_cannot_ask_for_a_large_network(sizes, tmp_path):
    """Each size is below the number of weights, their product is gigabytes."""
    HKN(100, 8, 2).save_pretrained(tmp_path)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(InputError, match=r"asks for a larger model than of [0-9]+ weights"):
        HKN.from_pretrained(rewritten(tmp_path, **sizes))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kilobytes


def test_kernel_points_are_few(tmp_path):
    """Their solver takes the square of their number in memory."""
    HKN(300, 300, 2).save_pretrained(tmp_path)
    with pytest.raises(InputError, match="kernel_size must be a whole number of at least 1 and at most 1000, got 8000"):
        HKN.from_pretrained(rewritten(tmp_path, hidden_dim=2, kernel_size=8000))


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(name, tmp_path):
    HKN(3, 4, 2).save_pretrained(tmp_path)
    (tmp_path / name).unlink()
    os.mkfifo(tmp_path / name)
    with pytest.raises(InputError, match=rf"{name} \(not a regular file\)"):
        HKN.from_pretrained(tmp_path)


class FakeHub(SimpleNamespace):
    """A hub with one repository, in a folder."""

    errors = SimpleNamespace(HTTPError=type("HTTPError", (Exception,), {}))

    def create_repo(self, repository, private, exist_ok):
        self.made = (repository, private, exist_ok)

    def upload_folder(self, repo_id, folder_path):
        assert repo_id == "someone/hkn"
        shutil.copytree(folder_path, self.folder)

    def snapshot_download(self, repository, revision, allow_patterns):
        if repository != "someone/hkn":
            raise self.errors.HTTPError("404: no such repository\nmore of it")
        assert sorted(allow_patterns) == ["config.json", "model.safetensors"]
        self.revision = revision
        return str(self.folder)


def test_a_repository_of_the_hub(model, tmp_path, monkeypatch):
    hub = FakeHub(folder=tmp_path / "repository")
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    monkeypatch.setitem(sys.modules, "huggingface_hub.errors", hub.errors)
    model.push_to_hub("someone/hkn", private=True)
    assert hub.made == ("someone/hkn", True, True)
    assert torch.equal(answers(HKN.from_pretrained("someone/hkn", revision="v1")), answers(model))
    assert hub.revision == "v1"
    with pytest.raises(InputError, match=r"'someone/else' cannot be reached on the hub: 404: no such repository$"):
        HKN.from_pretrained("someone/else")


def test_without_the_extra_the_hub_is_out_of_reach(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(InputError, match=r"extra hub is needed: pip install 'hkconv\[hub\]'"):
        HKN.from_pretrained("someone/hkn")
