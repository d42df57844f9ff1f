"""From the points of a layer to the logits of a task."""

import math
from typing import Any

import torch
from torch import Tensor

from hkconv.errors import InputError
from hkconv.geometry.curvature import Curvature
from hkconv.models.tasks import known
from hkconv.nn import FermiDirac, HDistance, MassScaling
from hkconv.nn.centroid import pool_with_mass
from hkconv.nn.common import reset_modules

# Fresh points and centres lie within about one unit of each other. A tenth of that as temperature spreads the
# logits over about ten, as in a linear classifier; with 1 the first hundred epochs go into growing the distances.
INITIAL_TEMPERATURE = 0.1


class Readout(torch.nn.Module):
    r"""Head that reads a task's logits off points: by task

    - ``"node"``: :math:`-d(x, c_j)/T` to one learned centre :math:`c_j` a class, :math:`T` learned;
    - ``"graph"``: the same for the centroid of all nodes of a graph;
    - ``"link"``: the Fermi-Dirac logit :math:`(r - d^2(u, v))/t` of each pair.

    A network is the readout of its last layer, which it adds when its layers are built; :class:`LayerReadout` is one by
    itself.
    """

    def add_readout(
        self,
        task: str,
        dim: int,
        num_classes: int | None,
        *,
        mass: bool,
        curvature: Curvature,
        temperature: float = INITIAL_TEMPERATURE,
        link_temperature: float = 1.0,
    ) -> None:
        """Add what is learned.

        Args:
            task: ``"node"``, ``"graph"`` or ``"link"``.
            dim: dimension of the points.
            num_classes: number of classes; not used for links.
            mass: let the pooling of the graph task keep its mass.
            curvature: negative curvature of the points.
            temperature: where :math:`T` starts.
            link_temperature: where :math:`t` starts.
        """
        self.task, self.start_temperature = task, temperature
        self.pool_mass = MassScaling(dim) if mass and task == "graph" else None
        if task == "link":
            self.decoder = FermiDirac(temperature=link_temperature, curvature=curvature)
        else:
            self.distance = HDistance(dim, known(num_classes), curvature=curvature)
            self.log_temperature = torch.nn.Parameter(torch.tensor(math.log(temperature)))

    @property
    def read_curvature(self) -> Curvature:
        """The curvature of the points that it reads."""
        return (self.decoder if self.task == "link" else self.distance).curvature

    def reset_temperature(self) -> None:
        if self.task != "link":
            torch.nn.init.constant_(self.log_temperature, math.log(self.start_temperature))

    def read(self, points: Tensor, batch: Tensor | None, batch_size: int | None, pairs: Tensor | None) -> Tensor:
        """Points of nodes ``(N, dim+1)`` to logits."""
        if self.task == "link":
            return link_logits(self.decoder, points, pairs)
        if self.task == "graph":
            points = self._pool(points, batch, batch_size)
        return -self.distance(points) * (-self.log_temperature).exp()

    def _pool(self, points: Tensor, batch: Tensor | None, batch_size: int | None) -> Tensor:
        curvature = self.distance.curvature
        pooled, mass = pool_with_mass(points, batch, batch_size, curvature=curvature)
        return pooled if self.pool_mass is None else self.pool_mass(pooled, mass, curvature)


class LayerReadout(Readout):
    """A :class:`Readout` of a layer before the last. Arguments: as :meth:`Readout.add_readout`."""

    def __init__(self, *arguments: Any, **options: Any):
        super().__init__()
        self.add_readout(*arguments, **options)

    def reset_parameters(self) -> None:
        reset_modules(self.children())
        self.reset_temperature()


def link_logits(decoder: FermiDirac, points: Tensor, pairs: Tensor | None) -> Tensor:
    """The logits of pairs of nodes, ``(N, n+1), (2, P) -> (P,)``."""
    if pairs is None:
        raise InputError("pairs of shape (2, P) are needed for the link task")
    return decoder(points[pairs[0]], points[pairs[1]])
