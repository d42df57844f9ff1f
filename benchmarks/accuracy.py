"""Float32 error against radius: this package beside the textbook formulas. Prints the table of docs/numerics.md.

Run: python benchmarks/accuracy.py
"""

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


def textbook_ominus(u: Tensor, x: Tensor) -> Tensor:
    """exp_o(PT_{x -> o}(log_x u)), each as written in the paper."""
    psi = -lorentz.inner(x, u).unsqueeze(-1)
    v = u - psi * x
    v = torch.acosh(psi.clamp(min=1)) * v / lorentz.inner(v, v).clamp(min=1e-15).sqrt().unsqueeze(-1)
    o = lorentz.origin(x.size(-1) - 1, dtype=x.dtype)
    w = v + (lorentz.inner(o, v) / (1 - lorentz.inner(x, o))).unsqueeze(-1) * (x + o)
    phi = lorentz.inner(w, w).clamp(min=1e-15).sqrt().unsqueeze(-1)
    return torch.cosh(phi) * o + torch.sinh(phi) / phi * w


def textbook_centroid(x: Tensor) -> Tensor:
    s = x.sum(-2)
    return s / (-lorentz.inner(s, s)).abs().sqrt().unsqueeze(-1)


def errors(radius: float) -> list[float]:
    """Largest errors at a radius: d, ⊖ and centroid, each ours and by the textbook."""
    generator = torch.Generator().manual_seed(0)
    centre = at_radius(radius, generator, PAIRS)
    (x, exact_x), (u, exact_u) = rounded(centre), rounded(around(centre, 0.5, generator))
    d, z = lorentz.dist(exact_x, exact_u), lorentz.ominus(exact_u, exact_x)
    row = [((f(x, u) - d).abs() / d).max().item() for f in (lorentz.dist, textbook_dist)]
    size = z[:, 1:].norm(dim=-1)
    row += [
        ((f(u, x) - z)[:, 1:].norm(dim=-1) / size).nan_to_num(torch.inf).max().item()
        for f in (lorentz.ominus, textbook_ominus)
    ]
    groups = around(centre[:100].repeat_interleave(CLUSTER, 0), 0.5, generator).unflatten(0, (100, CLUSTER))
    cluster, exact_cluster = rounded(groups)
    mean = lorentz.centroid(exact_cluster)
    for f in (lorentz.centroid, textbook_centroid):
        row.append(lorentz.dist(lorentz.lift(f(cluster)[:, 1:].double()), mean).nan_to_num(torch.inf).max().item())
    return row


def main() -> None:
    print("| radius | d: hkconv | textbook | ⊖: hkconv | textbook | centroid: hkconv | textbook |")
    print("|---|---|---|---|---|---|---|")
    for radius in RADII:
        print(f"| {radius:g} | " + " | ".join(f"{error:.0e}" for error in errors(radius)) + " |")


if __name__ == "__main__":
    main()
