"""The graph multiset transformer of Baek et al. (2021): graph convolution, then attention as pooling."""

import torch
import torch_geometric.nn as pyg_nn
from torch import Tensor

from hkconv.errors import InputError
from hkconv.models.baselines.baseline import Baseline, BaselineSizes
from hkconv.models.baselines.normalized_edges import normalized_edges


class GMT(Baseline):
    r""":math:`L` graph convolutions, whose outputs side by side are pooled by attention to :math:`k` vectors, which
    attend to each other and are pooled to one,

    .. math::
        H^{(l)} &= \operatorname{relu}(\hat D^{-1/2} \hat A \hat D^{-1/2} H^{(l-1)} W^{(l)} + b^{(l)}), \qquad
        H = [H^{(1)}, \dots, H^{(L)}], \quad \hat A = A + I, \\
        z &= \operatorname{Pool}_1(\operatorname{Att}(P, P)), \qquad P = \operatorname{Pool}_k(H), \qquad
        \operatorname{Pool}_k(Y) = \operatorname{Att}(S_k, \operatorname{relu}(Y V + c)), \\
        \operatorname{Att}(Q, Y) &= \operatorname{layernorm}(U + \operatorname{relu}(U W + b)), \qquad
        U = \operatorname{layernorm}(Q + \operatorname{Multihead}(Q, Y, Y)),

    with :math:`k` learned vectors :math:`S_k`; then a linear classifier of :math:`z`. Dropout acts on the features and
    on :math:`z`. In the paper the first pooling makes its keys and values by graph convolution of :math:`H`, and its
    :math:`k` is a quarter of the mean number of nodes; here, as in PyG, keys and values are linear maps of :math:`H`,
    which has seen the edges, and :math:`k` is given.

    It pools, and so has the graph task alone. Arguments: as :class:`~hkconv.models.baselines.baseline.Baseline`, and

    Args:
        heads: heads of all attention; must divide ``num_layers * hidden_dim``, the width of :math:`H`.
        num_seeds: the number :math:`k`.
    """

    tasks = ("graph",)

    def build(self, sizes: BaselineSizes, *, heads: int = 1, num_seeds: int = 8) -> torch.nn.Module:
        width = sizes.out_features
        if heads < 1 or width % heads:
            raise InputError(
                f"heads must be at least 1 and divide num_layers * hidden_dim, got {heads} heads for {width}"
            )
        if num_seeds < 1:
            raise InputError(f"num_seeds must be at least 1, got {num_seeds}")
        convs = [pyg_nn.GCNConv(before, sizes.hidden_dim, normalize=False) for before in sizes.widths[:-1]]
        pool = pyg_nn.GraphMultisetTransformer(width, num_seeds, heads=heads, layer_norm=True)
        return torch.nn.ModuleDict({"convs": torch.nn.ModuleList(convs), "pool": pool})

    def encode(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None) -> Tensor:
        edges = normalized_edges(edge_index, edge_weight, x.size(0), x.dtype)
        layers = [x]
        for conv in self.network["convs"]:
            layers.append(conv(layers[-1], *edges).relu())
        return torch.cat(layers[1:], dim=-1)

    def pooled_features(self, in_features: int, hidden_dim: int, num_layers: int) -> int:
        return num_layers * hidden_dim

    def pool(self, z: Tensor, batch: Tensor | None, batch_size: int | None) -> Tensor:
        if batch is None:
            batch = torch.zeros(z.size(0), dtype=torch.long, device=z.device)
        # PyG's attention takes the nodes graph by graph.
        batch, order = batch.sort(stable=True)
        return self.dropout(self.network["pool"](z.index_select(0, order), batch, dim_size=batch_size))
