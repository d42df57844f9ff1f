"""Packages whose names are imported when first used, so that the command line shows its help without PyTorch."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any


def load_attribute(package: str, homes: Mapping[str, str], name: str) -> Any:
    """Return what a package exports by a name; with the package and its homes filled in, its ``__getattr__``.

    Args:
        package: its name, such as ``"hkconv.engine"``.
        homes: the module of each export, relative to the package.
        name: that is asked for.
    """
    if name not in homes:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    return getattr(import_module(f"{package}.{homes[name]}"), name)
