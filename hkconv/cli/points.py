"""``hkconv points``: a set of kernel points, its energy and its shape."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hkconv.cli.recipe_options import one_of, ranged, ranged_argument
from hkconv.errors import InputError
from hkconv.options import CURVATURE, KERNELS, SEED, WIDTH

if TYPE_CHECKING:
    from torch import Tensor

FILE_TYPES = (".npy", ".safetensors")


def points(
    k: Annotated[int, ranged_argument(KERNELS, metavar="K", help="Number of points, at least 1.", show_default=False)],
    dim: Annotated[int, ranged_argument(WIDTH, metavar="DIM", help="Dimension of the space.", show_default=False)],
    curvature: Annotated[float, ranged(CURVATURE, help="Curvature, below 0.")] = -1.0,
    method: Annotated[str, one_of(("optimal", "gradient", "random"), help="How they are found.")] = "optimal",
    seed: Annotated[int, ranged(SEED, help="Seed of the starting points.")] = 0,
    out: Annotated[
        str | None, typer.Option(help="Save the points to FILE.npy or FILE.safetensors.", show_default=False)
    ] = None,
) -> None:
    """Compute K kernel points of dimension DIM.

    Prints their energy and radii.

    Example: hkconv points 8 3 --out points.npy
    """
    target = None if out is None else _check_target(Path(out))

    from hkconv.points import kernel_energy, kernel_points

    found = kernel_points(k, dim, curvature, method=method, seed=seed)
    typer.echo(f"energy            {kernel_energy(found, curvature):.6f}")
    for line in _shape_lines(found, curvature):
        typer.echo(line)
    if target is not None:
        _save(found, target)
        typer.echo(f"saved to          {target}")


def _check_target(path: Path) -> Path:
    if path.suffix not in FILE_TYPES:
        raise InputError(f"out must end in {' or '.join(FILE_TYPES)}, got {path}")
    if not path.parent.is_dir():
        raise InputError(f"out {path} cannot be written: folder {path.parent} does not exist")
    return path


def _shape_lines(found: "Tensor", curvature: float) -> list[str]:
    from hkconv.geometry import lorentz

    origin = lorentz.origin(found.size(1) - 1, curvature, dtype=found.dtype)
    radii = lorentz.dist(found, origin, curvature)
    lines = [f"radii             min {radii.min():.6f}  mean {radii.mean():.6f}  max {radii.max():.6f}"]
    if len(found) > 1:
        # Row by row: all differences at once would need K times the memory.
        nearest = min(lorentz.dist(found[:row], found[row], curvature).min() for row in range(1, len(found)))
        lines.append(f"nearest two       {nearest:.6f} apart")
    return lines


def _save(found: "Tensor", path: Path) -> None:
    import io

    import numpy as np
    from safetensors.torch import save

    from hkconv.engine.files import write_bytes

    if path.suffix == ".npy":
        buffer = io.BytesIO()
        np.save(buffer, found.numpy())
        content = buffer.getvalue()
    else:
        content = save({"points": found.contiguous()})
    write_bytes(path, content, "out")
