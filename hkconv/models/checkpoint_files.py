"""A trained network on disk: weights as safetensors, everything else as JSON, and nothing in it that could be run."""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load as parse_safetensors
from safetensors.torch import save as to_safetensors
from torch import Tensor

from hkconv import __version__
from hkconv.errors import InputError
from hkconv.models.allocations import BoundedAllocations
from hkconv.models.options import without_removed
from hkconv.opening import read_bytes, read_text

Network = TypeVar("Network", bound=torch.nn.Module)

FORMAT_VERSION = 2
# Bytes that a network may take besides its weights while it is built.
SLACK = 64 << 20
# HKN of version 1, which is that of hkconv 0.1.0, had the paper's form alone, and other defaults.
FIRST_HKN = {"form": "paper", "dropout": 0.0}
WEIGHTS_FILE = "model.safetensors"
CONFIG_FILE = "config.json"
DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in (torch.float32, torch.float64)}
# What a configuration says of a network, and of which type.
ENTRIES = {"model": str, "config": dict, "dataset": dict, "training": dict, "dtype": str, "weights_sha256": str}


def pack(model: torch.nn.Module, about: dict[str, Any]) -> tuple[bytes, dict[str, Any]]:
    """Contents of ``model.safetensors`` and ``config.json``.

    Args:
        model: the network.
        about: its name (``model``), the arguments of its constructor (``config``), and of ``dataset`` and ``training``
            what is to be remembered.

    Returns:
        The bytes of the one file, and the entries of the other.
    """
    weights = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in model.state_dict().items()}
    content = to_safetensors(weights)
    return content, {
        "format_version": FORMAT_VERSION,
        "hkconv_version": __version__,
        "dtype": str(next(model.parameters()).dtype).removeprefix("torch."),
        # Ties the two files together: half of a replaced checkpoint does not load.
        "weights_sha256": hashlib.sha256(content).hexdigest(),
        **about,
    }


def read_config(folder: Path) -> dict[str, Any]:
    """The entries of ``config.json``, each of the type it must have; its values are not yet believed.

    Args:
        folder: holds ``model.safetensors`` and ``config.json``.
    """
    path = folder / CONFIG_FILE
    try:
        config = json.loads(read_text(path))
    except OSError as error:
        raise InputError(f"the checkpoint's configuration cannot be read: {path} ({error.strerror})") from None
    except (ValueError, RecursionError):
        raise InputError(f"the checkpoint's configuration is damaged: {path} is not valid JSON") from None
    if not isinstance(config, dict):
        raise InputError(f"the checkpoint's configuration is damaged: {path} must hold a JSON object")
    found = config.get("format_version")
    if found not in (1, FORMAT_VERSION):
        raise InputError(f"checkpoint {folder} has format version {found!r}; this hkconv reads 1 and {FORMAT_VERSION}")
    for key, expected in ENTRIES.items():
        if not isinstance(config.get(key), expected):
            raise InputError(f"checkpoint {folder} is damaged: {key!r} in {CONFIG_FILE} must be a {expected.__name__}")
    if config["dtype"] not in DTYPES:
        raise InputError(f"checkpoint {folder} has dtype {config['dtype']!r}; accepted: {', '.join(DTYPES)}")
    if config["model"] == "hkn":
        given = {**(FIRST_HKN if found == 1 else {}), **config["config"]}
        try:
            config["config"] = without_removed(given)
        except InputError as error:
            raise InputError(f"checkpoint {folder}: {error}") from None
    return config


def restore(folder: Path, config: dict[str, Any], build: Callable[..., Network]) -> Network:
    """The network of a checkpoint. Nothing from the files is executed.

    Args:
        folder: holds ``model.safetensors`` and ``config.json``.
        config: of :func:`read_config`.
        build: makes the network from its arguments.

    Returns:
        The network with its weights, in evaluation mode on the CPU.
    """
    weights = _read_weights(folder, config)
    count = sum(tensor.numel() for tensor in weights.values())
    check_sizes(config["config"], count, folder)
    with bounded_by(count):
        model = _built(folder, config, build)
    model = model.to(DTYPES[config["dtype"]])
    _check_fit(model.state_dict(), weights, folder)
    model.load_state_dict(weights)
    return model.eval()


def check_sizes(sizes: Mapping[str, Any], count: int, path: Path) -> None:
    """Refuse a description of a model that its weights cannot be of, before the model asks for memory.

    Args:
        sizes: arguments of the model's constructor. None of its widths can be more than there are weights.
        count: of the weights.
        path: how an error calls the checkpoint.
    """
    for key, value in sizes.items():
        if type(value) is int and value > count:
            raise InputError(f"checkpoint {path} does not fit its configuration: {key} is {value}, weights are {count}")


def bounded_by(count: int) -> BoundedAllocations:
    """Block in which a network of so many weights can be built, and none that is much larger."""
    # They are made once and drawn once or twice; kernel points and tables of positions are no weights.
    return BoundedAllocations(16 * count + SLACK, f"the configuration asks for a larger model than of {count} weights")


def _read_weights(folder: Path, config: dict[str, Any]) -> dict[str, Tensor]:
    path = folder / WEIGHTS_FILE
    try:
        content = read_bytes(path)
        weights = parse_safetensors(content)
    except OSError as error:
        raise InputError(f"the checkpoint's weights cannot be read: {path} ({error.strerror})") from None
    except (SafetensorError, ValueError):
        raise InputError(f"the checkpoint's weights are damaged: {path} is not a safetensors file") from None
    if hashlib.sha256(content).hexdigest() != config["weights_sha256"]:
        raise InputError(f"the checkpoint's weights are damaged: {path} is not the file that {CONFIG_FILE} describes")
    return weights


def _built(folder: Path, config: dict[str, Any], build: Callable[..., Network]) -> Network:
    try:
        return build(**config["config"])
    except InputError as error:
        raise InputError(f"checkpoint {folder}: {error}") from None
    # Arguments of the wrong name, type or size: a configuration of another model or of another version.
    except (TypeError, ValueError, RuntimeError, MemoryError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"checkpoint {folder} does not describe a model {config['model']!r}: {reason}") from None


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
