"""How large a problem to measure is; importable without PyTorch, so that the command line stays quick."""

from dataclasses import dataclass

from hkconv.errors import InputError

TARGETS = ("uniform", "power-law")


@dataclass(frozen=True)
class Shape:
    """A graph of ``nodes`` and ``edges``, and a layer of ``kernels`` kernel points from ``dim`` to ``dim``."""

    nodes: int
    edges: int
    kernels: int
    dim: int

    def __str__(self) -> str:
        return f"{self.nodes},{self.edges},{self.kernels},{self.dim}"


# The first three are the sizes of Chameleon, Squirrel and Actor with edges in both directions.
SHAPES = (
    Shape(2277, 62000, 6, 16),
    Shape(5201, 396000, 4, 16),
    Shape(7600, 53000, 8, 16),
    Shape(5201, 396000, 8, 64),
    Shape(200000, 4000000, 8, 64),
)
QUICK_SHAPES = SHAPES[:1]

# E stays fixed, fifty times N, while K and n double: memory of size E x K x n could not hide in these.
_GROWTH = ((4, 16), (8, 16), (16, 16), (4, 32), (4, 64))
GROWTH_SHAPES = tuple(Shape(20000, 1000000, kernels, dim) for kernels, dim in _GROWTH)


def parse_shape(text: str) -> Shape:
    """A shape from ``"N,E,K,n"``.

    Args:
        text: four whole numbers of at least 1.

    Returns:
        The shape.
    """
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != 4 or not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise InputError(
            f"shape must be four whole numbers N,E,K,n of at least 1, such as 2277,62000,6,16, got {text!r}"
        )
    return Shape(*map(int, parts))


def check_targets(names: tuple[str, ...]) -> tuple[str, ...]:
    """The names, if every one is a known distribution of targets."""
    for name in names:
        if name not in TARGETS:
            raise InputError(f"targets must be {' or '.join(TARGETS)}, got {name!r}")
    return names
