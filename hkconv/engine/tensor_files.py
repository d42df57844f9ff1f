"""Tensors and plain data in one file, whole or absent, with nothing in it that could be run."""

import json
import math
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_safetensors
from torch import Tensor

from hkconv.engine.files import write_bytes
from hkconv.errors import InputError

FORMAT_VERSION = 1


def write_tensors(path: Path, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
    """Write tensors and plain data as one file, atomically.

    Args:
        path: the file.
        tensors: on any device.
        facts: what JSON can hold.
    """
    # Cloned, because the format refuses tensors that share memory, as tied weights do.
    copies = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()}
    write_bytes(path, to_safetensors(copies, {"facts": json.dumps({"format_version": FORMAT_VERSION, **facts})}))


def read_facts(path: Path) -> dict[str, Any]:
    """The plain data of :func:`write_tensors`."""
    return _read(path, with_tensors=False)[1]


def count_numbers(path: Path) -> int:
    """How many numbers the tensors of :func:`write_tensors` have; none of them is read."""
    try:
        with safe_open(path, framework="pt") as file:
            return sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118
    except (OSError, SafetensorError):
        raise InputError(f"checkpoint {path} is damaged: it is not a safetensors file") from None


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the plain data of :func:`write_tensors`."""
    return _read(path, with_tensors=True)


def by_part(tensors: dict[str, Tensor], parts: tuple[str, ...], path: Path) -> dict[str, dict[str, Tensor]]:
    """Tensors whose names are ``PART/NAME`` as a dictionary for each part, empty where there are none.

    Args:
        tensors: of a file.
        parts: those that the file may have.
        path: how an error calls the file.
    """
    found: dict[str, dict[str, Tensor]] = {part: {} for part in parts}
    for name, tensor in tensors.items():
        part, _, rest = name.partition("/")
        if part not in found:
            raise InputError(f"checkpoint {path} is damaged: it has no place for tensor {name!r}")
        found[part][rest] = tensor
    return found


def check_shapes(expected: dict[str, Tensor], found: dict[str, Tensor], path: Path) -> None:
    """Refuse weights of another model.

    Args:
        expected: the model's.
        found: those of a file.
        path: how an error calls the file.
    """
    for name in sorted(expected.keys() | found.keys()):
        shapes = [tuple(where[name].shape) if name in where else None for where in (found, expected)]
        if shapes[0] != shapes[1]:
            here, wanted = (shape or "nothing" for shape in shapes)
            raise InputError(f"checkpoint {path} does not fit the run: {name!r} is {here}, expected {wanted}")


def _read(path: Path, *, with_tensors: bool) -> tuple[dict[str, Tensor], dict[str, Any]]:
    try:
        with safe_open(path, framework="pt") as file:
            facts = json.loads((file.metadata() or {}).get("facts", "{}"))
            tensors = {name: file.get_tensor(name) for name in file.keys()} if with_tensors else {}  # noqa: SIM118
    except OSError as error:
        raise InputError(f"checkpoint {path} cannot be read ({error.strerror or 'no such file'})") from None
    except (SafetensorError, ValueError, RecursionError):
        raise InputError(f"checkpoint {path} is damaged: it is not a safetensors file") from None
    if not isinstance(facts, dict) or facts.get("format_version") != FORMAT_VERSION:
        found = facts.get("format_version") if isinstance(facts, dict) else None
        raise InputError(f"checkpoint {path} has format version {found!r}; this hkconv reads {FORMAT_VERSION}")
    return tensors, facts
