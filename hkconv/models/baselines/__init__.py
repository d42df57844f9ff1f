"""The networks HKN is measured against, one file a published system; :data:`hkconv.models.MODELS` names them."""

from typing import Any

from hkconv.models import MODELS


def __getattr__(name: str) -> Any:
    if not MODELS.homes.get(name, "").startswith("baselines."):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return MODELS.load(name)
