"""HKConv and HKBlock as layers of PyG's GraphGym: ``import hkconv.nn.graphgym``, then ``gnn.layer_type: hkblock``.

GraphGym puts Euclidean batch normalization, dropout and activation behind each layer, and adds layers up. So a layer
has features on both sides: they are tangent vectors at the origin, of which it makes points and of points them again.
"""

from typing import Any

import torch
from torch.nn import functional as F
from torch_geometric.data import Data
from torch_geometric.graphgym.config import cfg
from torch_geometric.graphgym.models.layer import LayerConfig
from torch_geometric.graphgym.register import register_config, register_layer

from hkconv.geometry.lorentz import exp0, log0
from hkconv.nn.hk_block import HKBlock
from hkconv.nn.hk_conv import HKConv

DEFAULTS = {"kernel_size": 4, "curvature": -1.0}


def add_config(config: Any) -> None:
    """Add ``hkconv.kernel_size`` and ``hkconv.curvature`` to a configuration of GraphGym."""
    config.hkconv = type(config)(DEFAULTS)


class _Between(torch.nn.Module):
    """A layer of points between features of nodes, :math:`x_i \\mapsto \\log_o(\\mathrm{Layer}(\\exp_o(x))_i)`."""

    kind: type[HKConv] | type[HKBlock]

    def __init__(self, layer_config: LayerConfig, **kwargs: Any):
        super().__init__()
        settings = DEFAULTS if cfg is None else dict(cfg.hkconv)
        options: dict[str, Any] = {**settings, **kwargs}
        self.model: HKConv | HKBlock = self.kind(layer_config.dim_in, layer_config.dim_out, **options)

    def forward(self, batch: Data) -> Data:
        """Return the batch with new features."""
        curvature = self.model.curvature
        points = self.model(exp0(F.pad(batch.x, (1, 0)), curvature), batch.edge_index)
        batch.x = log0(points, curvature)[:, 1:]
        return batch


@register_layer("hkconv")
class HKConvLayer(_Between):
    """HKConv by the name ``hkconv``."""

    kind = HKConv


@register_layer("hkblock")
class HKBlockLayer(_Between):
    """HKBlock by the name ``hkblock``."""

    kind = HKBlock


register_config("hkconv", add_config)
if cfg is not None:
    add_config(cfg)
