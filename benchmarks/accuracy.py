"""Float32 error against radius: this package beside the textbook formulas. Prints the table of docs/mathematics.md.

Run: python benchmarks/accuracy.py
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from hkconv.geometry import lorentz

RADII = (0.01, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0)
PAIRS = 2000
CLUSTER = 50
DIM = 8


def at_radius(radius: float, generator: torch.Generator, count: int) -> Tensor:
    """Random points at a distance from the origin, in float64."""
    direction = F.normalize(torch.randn(count, DIM, generator=generator, dtype=torch.float64), dim=-1)
    return lorentz.exp0(F.pad(radius * direction, (1, 0)))


def around(x: Tensor, spread: float, generator: torch.Generator) -> Tensor:
    """A point near each of ``x``, at a distance of about ``spread``."""
    step = torch.randn(x.size(0), DIM, generator=generator, dtype=torch.float64) * spread / DIM**0.5
    return lorentz.oplus(lorentz.lift(step), x)


def rounded(x: Tensor) -> tuple[Tensor, Tensor]:
    """The nearest float32 points, and the same points exactly, in float64."""
    single = lorentz.lift(x[..., 1:].float())
    return single, lorentz.lift(single[..., 1:].double())


def textbook_dist(x: Tensor, u: Tensor) -> Tensor:
    return torch.acosh((-lorentz.inner(x, u)).clamp(min=1))


def length(v: Tensor) -> Tensor:
    return lorentz.inner(v, v).clamp(min=1e-15).sqrt().unsqueeze(-1)


def textbook_log(x: Tensor, u: Tensor) -> Tensor:
    psi = -lorentz.inner(x, u).unsqueeze(-1)
    v = u - psi * x
    return torch.acosh(psi.clamp(min=1)) * v / length(v)


def textbook_exp(x: Tensor, v: Tensor) -> Tensor:
    phi = length(v)
    return torch.cosh(phi) * x + torch.sinh(phi) / phi * v


def textbook_transport(x: Tensor, y: Tensor, v: Tensor) -> Tensor:
    return v + (lorentz.inner(y, v) / (1 - lorentz.inner(x, y))).unsqueeze(-1) * (x + y)


def textbook_translate(x: Tensor, y: Tensor, u: Tensor) -> Tensor:
    """exp_y(PT_{x -> y}(log_x u)), each as written in the paper."""
    return textbook_exp(y, textbook_transport(x, y, textbook_log(x, u)))


def textbook_ominus(u: Tensor, x: Tensor) -> Tensor:
    return textbook_translate(x, lorentz.origin(x.size(-1) - 1, dtype=x.dtype), u)


def textbook_centroid(x: Tensor) -> Tensor:
    s = x.sum(-2)
    return s / (-lorentz.inner(s, s)).abs().sqrt().unsqueeze(-1)


def largest(error: Tensor) -> float:
    return error.nan_to_num(torch.inf).max().item()


def astray(found: Tensor, exact: Tensor) -> float:
    """The largest hyperbolic distance of points to where they should be."""
    return largest(lorentz.dist(lorentz.lift(found[..., 1:].double()), exact))


def tangent_errors(x: Tensor, v: Tensor, exact: Tensor) -> float:
    """The largest error of tangent vectors at ``x``, relative to their lengths, both measured at the origin."""

    def carried(w: Tensor) -> Tensor:
        return (w[:, 1:] - w[:, :1] / (1 + x[:, :1]) * x[:, 1:]).norm(dim=-1)

    return largest(carried(v.double() - exact) / carried(exact))


def errors(radius: float) -> dict[str, tuple[float, float]]:
    """Largest errors at a radius by operation, each ours and by the textbook."""
    generator = torch.Generator().manual_seed(0)
    centre = at_radius(radius, generator, PAIRS)
    (x, exact_x), (u, exact_u) = rounded(centre), rounded(around(centre, 0.5, generator))
    groups = around(centre[:100].repeat_interleave(CLUSTER, 0), 0.5, generator).unflatten(0, (100, CLUSTER))
    cluster, exact_cluster = rounded(groups)
    y, exact_y = rounded(at_radius(radius, generator, PAIRS))
    d, v = lorentz.dist(exact_x, exact_u), lorentz.log(exact_x, exact_u)
    z, moved = lorentz.ominus(exact_u, exact_x), lorentz.translate(exact_x, exact_y, exact_u)
    mean, size = lorentz.centroid(exact_cluster), z[:, 1:].norm(dim=-1)
    w = lorentz.log(exact_x, around(exact_x, 0.5, generator)).float()
    carried = lorentz.transport(exact_x, exact_u, w.double())
    return {
        "d": tuple(largest((f(x, u) - d).abs() / d) for f in (lorentz.dist, textbook_dist)),
        "log": tuple(tangent_errors(exact_x, f(x, u), v) for f in (lorentz.log, textbook_log)),
        "exp(log)": (
            astray(lorentz.exp(x, lorentz.log(x, u)), exact_u),
            astray(textbook_exp(x, textbook_log(x, u)), exact_u),
        ),
        "PT": tuple(tangent_errors(exact_u, f(x, u, w), carried) for f in (lorentz.transport, textbook_transport)),
        "⊖": tuple(largest((f(u, x) - z)[:, 1:].norm(dim=-1) / size) for f in (lorentz.ominus, textbook_ominus)),
        "T": tuple(astray(f(x, y, u), moved) for f in (lorentz.translate, textbook_translate)),
        "HCent": tuple(astray(f(cluster), mean) for f in (lorentz.centroid, textbook_centroid)),
    }


def table(radii: Sequence[float] = RADII) -> str:
    """The errors as Markdown; in a cell ours, then the textbook's."""
    rows = [(radius, errors(radius)) for radius in radii]
    header = ["radius", *rows[0][1]]
    lines = [header, ["---"] * len(header)]
    lines += [[f"{radius:g}", *(f"{ours:.0e} / {theirs:.0e}" for ours, theirs in row.values())] for radius, row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    print(table())
