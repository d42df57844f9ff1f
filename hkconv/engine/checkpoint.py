"""A trained model of a run on disk, with what it was trained on and how."""

from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from hkconv import models
from hkconv.engine.files import make_folder, write_bytes, write_json
from hkconv.errors import InputError
from hkconv.models.checkpoint_files import CONFIG_FILE, WEIGHTS_FILE, pack, read_config, restore


@dataclass(frozen=True)
class CheckpointInfo:
    """Contents of ``config.json`` beside the weights.

    Args:
        model: name of the model, as :func:`hkconv.models.create` knows it.
        config: arguments of the model's constructor.
        dataset: what it was trained on: name, task, source, protocol and so on.
        training: how it was trained: settings, seed, split and so on.
    """

    model: str
    config: dict[str, Any]
    dataset: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)


def save_checkpoint(folder: Path | str, model: torch.nn.Module, info: CheckpointInfo) -> None:
    """Write ``model.safetensors`` and ``config.json`` into a folder, each atomically.

    Args:
        folder: made if it is not there; an older checkpoint in it is replaced.
        model: the model that ``info`` describes.
        info: how to build it again, and where it comes from.
    """
    folder = make_folder(Path(folder), "the checkpoint's folder")
    content, config = pack(model, asdict(info))
    write_bytes(folder / WEIGHTS_FILE, content)
    write_json(folder / CONFIG_FILE, config)


def load_checkpoint(folder: Path | str, *, expected: str | None = None) -> tuple[torch.nn.Module, CheckpointInfo]:
    """Build the model of a checkpoint. Nothing from the files is executed.

    Args:
        folder: holds ``model.safetensors`` and ``config.json``.
        expected: the only model name that is accepted.

    Returns:
        The model, in evaluation mode on the CPU, and what is known of it.
    """
    folder = Path(folder)
    config = read_config(folder)
    info = CheckpointInfo(config["model"], config["config"], config["dataset"], config["training"])
    if expected is not None and info.model != expected:
        raise InputError(f"checkpoint {folder} is of model {info.model!r}, expected {expected!r}")
    return restore(folder, config, partial(models.create, info.model)), info
