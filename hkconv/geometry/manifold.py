"""The Lorentz model as a geoopt manifold, so that geoopt's parameters, optimizers and samplers accept it."""

import warnings
from typing import Any, TypeAlias
from weakref import WeakSet

import geoopt
import torch
from geoopt.optim.mixin import OptimMixin
from geoopt.utils import size2shape
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_pre_hook

from hkconv.geometry import lorentz
from hkconv.geometry.curvature import curvature_radius, curvature_value
from hkconv.geometry.hyperboloid import dot, safe_norm
from hkconv.geometry.maps import to_origin

# A shape as geoopt takes it, in numbers or at once; and whether something holds and, if not, why.
Size: TypeAlias = int | tuple[int, ...]
Finding: TypeAlias = tuple[bool, str | None]


class Lorentz(geoopt.Manifold):
    r"""The hyperboloid :math:`\{x : \langle x, x\rangle = 1/k,\ x_t > 0\}` of curvature :math:`k < 0`.

    A thin class: every formula lives in :mod:`hkconv.geometry.lorentz`. geoopt ships a manifold of the
    same name whose distance returns -17.3 for a point with itself at radius 10 in float32.

    Args:
        curvature: the curvature, or its initial value.
        learnable: learn it, as ``-exp(log_curvature)``, so that no step can make it non-negative.
    """

    name = "Lorentz"
    ndim = 1
    reversible = True

    def __init__(self, curvature: float = -1.0, learnable: bool = False):
        super().__init__()
        curvature_radius(curvature)
        self.log_curvature = None
        if learnable:
            self.log_curvature = torch.nn.Parameter(torch.tensor(-float(curvature)).log())
        self._fixed_curvature = float(curvature)

    @property
    def curvature(self) -> float | Tensor:
        """The curvature: a float, or a 0-d tensor with gradient if it is learned."""
        return self._fixed_curvature if self.log_curvature is None else -self.log_curvature.exp()

    def dist(self, x: Tensor, y: Tensor, *, keepdim: bool = False) -> Tensor:
        d = lorentz.dist(x, y, self.curvature)
        return d.unsqueeze(-1) if keepdim else d

    def inner(self, x: Tensor, u: Tensor, v: Tensor | None = None, *, keepdim: bool = False) -> Tensor:
        """Of tangent vectors at ``x``, taken at the origin: in float32 the plain form has no digit from radius 9 on."""
        at_origin = to_origin(x, u, self.curvature)
        product = dot(at_origin, at_origin if v is None else to_origin(x, v, self.curvature))
        return product if keepdim else product.squeeze(-1)

    def norm(self, x: Tensor, u: Tensor, *, keepdim: bool = False) -> Tensor:
        """Length of a tangent vector."""
        length = safe_norm(to_origin(x, u, self.curvature))
        return length if keepdim else length.squeeze(-1)

    def projx(self, x: Tensor) -> Tensor:
        """The point with the same spatial coordinates."""
        return lorentz.lift(x[..., 1:], self.curvature)

    def proju(self, x: Tensor, u: Tensor) -> Tensor:
        r"""Orthogonal projection to the tangent space, :math:`u + \langle x, u\rangle x / R^2`."""
        R2 = curvature_radius(self.curvature) ** 2
        return u + lorentz.inner(x, u, self.curvature).unsqueeze(-1) / R2 * x

    def egrad2rgrad(self, x: Tensor, u: Tensor) -> Tensor:
        """Riemannian gradient: raise the index (negate time), then project."""
        return self.proju(x, torch.cat([-u[..., :1], u[..., 1:]], dim=-1))

    def expmap(self, x: Tensor, u: Tensor) -> Tensor:
        return lorentz.exp(x, u, self.curvature)

    def retr(self, x: Tensor, u: Tensor) -> Tensor:
        """The exponential map: geoopt samples only where the transported step undoes the retraction."""
        return self.expmap(x, u)

    def logmap(self, x: Tensor, y: Tensor) -> Tensor:
        return lorentz.log(x, y, self.curvature)

    def transp(self, x: Tensor, y: Tensor, v: Tensor) -> Tensor:
        return lorentz.transport(x, y, v, self.curvature)

    def random_normal(
        self,
        *size: Size,
        std: float = 1.0,
        dtype: torch.dtype | None = None,
        device: torch.device | None = None,
    ) -> geoopt.ManifoldTensor:
        r"""Points :math:`\exp_o(v)` with :math:`v \sim N(0, \mathrm{std}^2)` of shape ``size``, time included."""
        shape = size2shape(*size)
        noise = torch.randn(*shape[:-1], shape[-1] - 1, dtype=dtype, device=device) * std
        points = lorentz.exp0(torch.nn.functional.pad(noise, (1, 0)), self.curvature)
        return geoopt.ManifoldTensor(points, manifold=self)

    random = random_normal

    def origin(
        self,
        *size: Size,
        dtype: torch.dtype | None = None,
        device: torch.device | None = None,
        seed: int | None = None,
    ) -> geoopt.ManifoldTensor:
        """The origin, repeated to shape ``size``. ``seed`` is part of geoopt's signature and unused."""
        shape = size2shape(*size)
        point = lorentz.origin(shape[-1] - 1, self.curvature, dtype=dtype, device=device)
        return geoopt.ManifoldTensor(point.expand(shape).clone(), manifold=self)

    def _check_point_on_manifold(self, x: Tensor, *, atol: float = 1e-5, rtol: float = 1e-5) -> Finding:
        ok = torch.allclose(self.projx(x)[..., 0], x[..., 0], atol=atol, rtol=rtol)
        return ok, None if ok else "the time coordinate is not sqrt(R² + |x_s|²)"

    def _check_vector_on_tangent(self, x: Tensor, u: Tensor, *, atol: float = 1e-5, rtol: float = 1e-5) -> Finding:
        scale = (x * u).abs().sum(-1)
        ok = bool((lorentz.inner(x, u, self.curvature).abs() <= atol + rtol * scale).all())
        return ok, None if ok else "the Lorentz inner product with the point is not zero"

    def extra_repr(self) -> str:
        return f"curvature={curvature_value(self.curvature):g}, learnable={self.log_curvature is not None}"


_watched: WeakSet[torch.optim.Optimizer] = WeakSet()


def _warn_of_euclidean_steps(optimizer: torch.optim.Optimizer, *given: Any) -> None:
    """Warn at the first step of an optimizer that treats points of a hyperboloid as Euclidean vectors."""
    if torch.compiler.is_compiling() or optimizer in _watched:
        return
    _watched.add(optimizer)
    if isinstance(optimizer, OptimMixin) or getattr(optimizer, "moves_points", False):
        return
    parameters = (parameter for group in optimizer.param_groups for parameter in group["params"])
    if any(isinstance(getattr(parameter, "manifold", None), Lorentz) for parameter in parameters):
        message = (
            f"{type(optimizer).__name__} treats points as Euclidean vectors, so its steps leave the manifold; use "
            "hkconv.RiemannianAdam or RiemannianSGD: they move points along it and all other parameters as torch does"
        )
        warnings.warn(message, stacklevel=4)


register_optimizer_step_pre_hook(_warn_of_euclidean_steps)
