"""A trained model on disk: weights as safetensors, everything else as JSON, and nothing in it that could be run."""

import hashlib
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as parse_safetensors
from safetensors.torch import save as to_safetensors
from torch import Tensor

from hkconv import __version__, models
from hkconv.errors import InputError
from hkconv.training.files import make_folder, read_json, write_bytes, write_json
from hkconv.training.tensor_files import check_sizes

FORMAT_VERSION = 1
WEIGHTS_FILE = "model.safetensors"
CONFIG_FILE = "config.json"
DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in (torch.float32, torch.float64)}


@dataclass(frozen=True)
class CheckpointInfo:
    """What ``config.json`` holds beside the weights.

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
    weights = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in model.state_dict().items()}
    content = to_safetensors(weights)
    config = {
        "format_version": FORMAT_VERSION,
        "hkconv_version": __version__,
        "dtype": str(next(model.parameters()).dtype).removeprefix("torch."),
        # Ties the two files together: half of a replaced checkpoint does not load.
        "weights_sha256": hashlib.sha256(content).hexdigest(),
        **asdict(info),
    }
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
    config = read_json(folder / CONFIG_FILE, "the checkpoint's configuration")
    _check_version(config, folder)
    info, dtype = _parse_config(config, folder)
    if expected is not None and info.model != expected:
        raise InputError(f"checkpoint {folder} is of model {info.model!r}, expected {expected!r}")
    weights = _read_weights(folder, config)
    check_sizes(info.config, sum(tensor.numel() for tensor in weights.values()), folder)
    model = _build(info, folder).to(dtype)
    _check_fit(model.state_dict(), weights, folder)
    model.load_state_dict(weights)
    return model.eval(), info


def _check_version(config: dict[str, Any], folder: Path) -> None:
    found = config.get("format_version")
    if found != FORMAT_VERSION:
        raise InputError(f"checkpoint {folder} has format version {found!r}; this hkconv reads {FORMAT_VERSION}")


def _parse_config(config: dict[str, Any], folder: Path) -> tuple[CheckpointInfo, torch.dtype]:
    types = {"model": str, "config": dict, "dataset": dict, "training": dict, "dtype": str, "weights_sha256": str}
    for key, expected in types.items():
        if not isinstance(config.get(key), expected):
            raise InputError(f"checkpoint {folder} is damaged: {key!r} in {CONFIG_FILE} must be a {expected.__name__}")
    if config["dtype"] not in DTYPES:
        raise InputError(f"checkpoint {folder} has dtype {config['dtype']!r}; accepted: {', '.join(DTYPES)}")
    info = CheckpointInfo(config["model"], config["config"], config["dataset"], config["training"])
    return info, DTYPES[config["dtype"]]


def _read_weights(folder: Path, config: dict[str, Any]) -> dict[str, Tensor]:
    path = folder / WEIGHTS_FILE
    try:
        content = path.read_bytes()
        weights = parse_safetensors(content)
    except OSError as error:
        raise InputError(f"the checkpoint's weights cannot be read: {path} ({error.strerror})") from None
    except (SafetensorError, ValueError):
        raise InputError(f"the checkpoint's weights are damaged: {path} is not a safetensors file") from None
    if hashlib.sha256(content).hexdigest() != config["weights_sha256"]:
        raise InputError(f"the checkpoint's weights are damaged: {path} is not the file that {CONFIG_FILE} describes")
    return weights


def _build(info: CheckpointInfo, folder: Path) -> torch.nn.Module:
    try:
        return models.create(info.model, **info.config)
    except InputError as error:
        raise InputError(f"checkpoint {folder}: {error}") from None
    # Arguments of the wrong name, type or size: a configuration of another model or of another version.
    except (TypeError, ValueError, RuntimeError, MemoryError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"checkpoint {folder} does not describe a model {info.model!r}: {reason}") from None


def _check_fit(expected: dict[str, Tensor], found: dict[str, Tensor], folder: Path) -> None:
    for name in [*expected, *found]:
        if name not in found:
            raise InputError(f"checkpoint {folder} does not fit its configuration: tensor {name!r} is missing")
        if name not in expected:
            raise InputError(f"checkpoint {folder} does not fit its configuration: tensor {name!r} is unknown")
        if expected[name].shape != found[name].shape:
            raise InputError(
                f"checkpoint {folder} does not fit its configuration: tensor {name!r} has shape "
                f"{tuple(found[name].shape)}, expected {tuple(expected[name].shape)}"
            )
