"""Kernel points once solved are kept, in memory and in the user's cache folder, so that no run waits twice.

A cache is never a reason to fail: a folder that cannot be read or written is passed over, and a file that is
corrupt, half-written or of something else is solved anew and replaced. Files are safetensors, which hold
nothing executable, and appear under their names only when complete, so processes may share the folder.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from hkconv.atomic import write_bytes
from hkconv.errors import InputError
from hkconv.geometry import lorentz

FORMAT = 1  # Raise it when a solver's results change, so that files of older versions are not used.


class Key(NamedTuple):
    """Arguments that a solution depends on."""

    method: str
    K: int
    dim: int
    curvature: float
    seed: int

    @property
    def name(self) -> str:
        """A file name that holds every field at full precision."""
        return f"v{FORMAT}_{self.method}_K{self.K}_dim{self.dim}_c{self.curvature!r}_seed{self.seed}.safetensors"


_solved: dict[Key, Tensor] = {}


def cached(key: Key, solve: Callable[[], Tensor]) -> Tensor:
    """The kernel points under ``key``, from memory, else from disk, else solved and kept. Always a fresh copy."""
    if key not in _solved:
        points = _read(key)
        if points is None:
            points = solve()
            _write(key, points)
        _solved[key] = points
    return _solved[key].clone()


def cache_folder() -> Path:
    """``$XDG_CACHE_HOME/hkconv/points``, or ``~/.cache/hkconv/points``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "hkconv" / "points"


def _read(key: Key) -> Tensor | None:
    """The points in the file of ``key``, or None where there is no file that holds them."""
    try:
        with safe_open(cache_folder() / key.name, framework="pt", device="cpu") as file:
            stored_key = (file.metadata() or {}).get("key")
            points = file.get_tensor("points").clone()
    except (OSError, RuntimeError, SafetensorError):
        return None
    return points if stored_key == key.name and _fits(points, key) else None


def _fits(points: Tensor, key: Key) -> bool:
    if points.shape != (key.K, key.dim + 1) or points.dtype != torch.float64 or not points.isfinite().all():
        return False
    return torch.allclose(points, lorentz.lift(points[:, 1:], key.curvature), rtol=1e-12, atol=0)


def _write(key: Key, points: Tensor) -> None:
    content = save({"points": points.contiguous()}, metadata={"key": key.name})
    # A home folder that cannot be found is a RuntimeError.
    with suppress(OSError, RuntimeError, InputError):
        folder = cache_folder()
        folder.mkdir(parents=True, exist_ok=True)
        write_bytes(folder / key.name, content)
