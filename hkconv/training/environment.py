"""Which software made a result: it is written beside every one."""

import platform
from importlib.metadata import version

import hkconv

PACKAGES = ("torch", "torch-geometric", "geoopt", "numpy")


def versions() -> dict[str, str]:
    """The version of Python, of this library and of every package that a result depends on."""
    packages = {name: version(name) for name in PACKAGES}
    return {"python": platform.python_version(), "hkconv": hkconv.__version__, **packages}
