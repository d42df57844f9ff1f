"""Which backend runs: the fused ones where they cover the input, the reference everywhere else."""

import importlib.util
from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor

from hkconv.errors import InputError

BACKENDS = ("auto", "reference", "cpu", "cuda")


def choose_backend(backend: str, x: Tensor, act: Callable[[Tensor], Tensor] | None) -> str:
    """The backend for points ``x`` and an activation inside HLinear; what was asked for, or an error that says why not.

    An activation on the relative feature takes its products from nodes to edges, which only the reference does.
    """
    if backend == "reference":
        return backend
    missing = _why_not(x, act)
    if backend == "auto":
        return "reference" if missing else x.device.type
    if x.device.type != backend:
        raise InputError(
            f"backend={backend!r} needs {backend} tensors, got {x.device.type}; backend='auto' takes either"
        )
    if missing:
        raise InputError(f"backend={backend!r} {missing}; backend='auto' takes the reference there")
    return backend


def _why_not(x: Tensor, act: Callable[[Tensor], Tensor] | None) -> str | None:
    if act is not None:
        return "does not cover act"
    if not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active():
        return "does not work inside torch.func"
    if x.device.type not in {"cpu", "cuda"}:
        return f"does not cover {x.device.type} tensors"
    if x.device.type == "cuda" and not _has_triton():
        return "needs Triton, which is not installed"
    return None


@lru_cache(maxsize=1)
def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None and torch.version.cuda is not None
