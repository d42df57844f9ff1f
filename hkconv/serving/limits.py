"""How much one request may ask for, and how many are answered at once."""

import math
from dataclasses import dataclass, fields

from hkconv.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a server takes on.

    Args:
        max_bytes: of a request's body.
        max_nodes: of all graphs of a request together; also how many ids one may ask for.
        max_edges: of all graphs of a request together.
        max_seconds: for a body to arrive, and then for its answer.
        max_requests: that are read, wait or are answered at a time.
    """

    max_bytes: int = 1 << 20
    max_nodes: int = 1000
    max_edges: int = 10_000
    max_seconds: float = 30.0
    max_requests: int = 256

    def __post_init__(self) -> None:
        for entry in fields(self):
            value = getattr(self, entry.name)
            if not (value > 0 and math.isfinite(value)):
                raise InputError(f"{entry.name} must be a positive number, got {value}")
