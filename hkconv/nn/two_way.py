"""One convolution for each direction of the edges, for graphs in which it matters who points to whom."""

import torch
from torch import Tensor

from hkconv.geometry.curvature import Curvature
from hkconv.nn.centroid import mix
from hkconv.nn.hk_conv import HKConv
from hkconv.ops.neighbors import Neighbors, find_neighbors, flip


class TwoWayConv(torch.nn.Module):
    r"""The centroid of a convolution over the edges into a node and of another over those out of it, with a learned
    weight,

    .. math::
        x' = \mathrm{HCent}\big(\{\mathrm{HKConv}_{in}(x; E), \mathrm{HKConv}_{out}(x; E^T)\},
             \{1 - \sigma(\beta), \sigma(\beta)\}\big), \qquad E^T = \{(i, j) : (j, i) \in E\}.

    The root branch of :class:`~hkconv.nn.HKConv` joins a layer in the same way, and like that a centroid keeps what the
    parts have: equivariance, invariance to translations, and one scale for the result. It needs no further matrix,
    since each part has its own. Where all edges go both ways, both parts see the same neighbors; nothing is wrong
    then, but nothing is gained. A node with edges in one direction alone is drawn towards the origin, which is what a
    convolution over no neighbors gives. Each part draws its own dropout. Beyond the paper.

    Args:
        incoming: over the edges as they are given.
        outgoing: over the flipped edges, of the same dimensions and curvature.

    Shapes: as :class:`~hkconv.nn.HKConv`, for one set of points.
    """

    def __init__(self, incoming: HKConv, outgoing: HKConv):
        super().__init__()
        self.incoming, self.outgoing = incoming, outgoing
        self.outgoing_logit = torch.nn.Parameter(torch.zeros(()))

    @property
    def curvature(self) -> Curvature:
        """Of its points, as its parts have it."""
        return self.incoming.curvature

    def reset_parameters(self) -> None:
        self.incoming.reset_parameters()
        self.outgoing.reset_parameters()
        torch.nn.init.zeros_(self.outgoing_logit)

    def forward(self, x: Tensor, edge_index: Tensor | Neighbors, edge_weight: Tensor | None = None) -> Tensor:
        # Sorting once for both directions would be written into an exported program.
        if torch.compiler.is_exporting() and isinstance(edge_index, Tensor):
            into, out_of = (
                self.incoming(x, edge_index, edge_weight),
                self.outgoing(x, edge_index.flip(0), edge_weight),
            )
            return mix(into, out_of, self.outgoing_logit, self.curvature)
        found, weight = find_neighbors(edge_index, edge_weight, (x.size(0), x.size(0)))
        into, out_of = self.incoming(x, found, weight), self.outgoing(x, flip(found), weight)
        return mix(into, out_of, self.outgoing_logit, self.curvature)

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.incoming}, {self.outgoing})"
