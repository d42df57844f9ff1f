"""The paper's formulas as printed, its errata corrected: independent of the library, and good only near the origin."""

import torch
from torch import Tensor


def inner(x: Tensor, y: Tensor) -> Tensor:
    metric = torch.ones(x.size(-1), dtype=x.dtype)
    metric[0] = -1
    return torch.einsum("...i,i,...i->...", x, metric, y).unsqueeze(-1)


def dist(x: Tensor, y: Tensor, k: float) -> Tensor:
    return (-k) ** -0.5 * torch.acosh(k * inner(x, y)).squeeze(-1)


def exp(x: Tensor, v: Tensor, k: float) -> Tensor:
    phi = ((-k) * inner(v, v)).sqrt()
    return torch.cosh(phi) * x + torch.sinh(phi) / phi * v


def log(x: Tensor, u: Tensor, k: float) -> Tensor:
    psi = k * inner(x, u)
    w = u - psi * x
    return torch.acosh(psi) / (-k) ** 0.5 * w / inner(w, w).sqrt()


def transport(x: Tensor, y: Tensor, v: Tensor, k: float) -> Tensor:
    return v + inner(y, v) / (-1 / k - inner(x, y)) * (x + y)


def translate(x: Tensor, y: Tensor, u: Tensor, k: float) -> Tensor:
    return exp(y, transport(x, y, log(x, u, k), k), k)


def centroid(x: Tensor, weight: Tensor, k: float) -> Tensor:
    s = (weight.unsqueeze(-1) * x).sum(-2)
    return s / ((-k) ** 0.5 * inner(s, s).abs().sqrt())
