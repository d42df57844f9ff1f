"""HKN in flat space: the same network with every hyperbolic operation replaced by its Euclidean counterpart."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.nn import BatchNorm, global_mean_pool

from hkconv.errors import InputError
from hkconv.geometry.centroid import effective_weight
from hkconv.geometry.lorentz import log0
from hkconv.models.readout import INITIAL_TEMPERATURE
from hkconv.models.tasks import check_network, known
from hkconv.nn.common import check_rate, full_precision, read_attributes, reset_modules
from hkconv.nn.hk_block import VIEWS
from hkconv.ops.edge_sums import neighbor_sum, square_distance
from hkconv.ops.fused import acting_weight
from hkconv.ops.neighbors import Neighbors, find_neighbors, unfold
from hkconv.ops.reference import in_pieces
from hkconv.ops.rows import view_gates
from hkconv.points import kernel_points

# As many kernel points as HKN has by itself.
KERNEL_SIZE = 4
# Where the radius of a link's logit starts, as in FermiDirac; its temperature starts at 1.
INITIAL_RADIUS = 2.0


class FlatBlock(torch.nn.Module):
    r"""The block of HKN, :class:`~hkconv.nn.HKBlock`, in Euclidean space :math:`\mathbb R^m \to \mathbb R^n`:

    .. math::
        d_i  &= \sum_j \bar w_j \sum_k \nu_{jk} \big(W_k (x_j - x_i) + b_k\big), \qquad
              \nu_{jk} = \frac{|x_j - x_i - p_k|}{\sum_{k'} |x_j - x_i - p_{k'}|} \\
        a_i  &= \sum_j \bar w_j (W_a x_j + b_a), \qquad s_i = W_s x_i + b_s \\
        g_i  &= \mathrm{softmax}_c\Big(3 \sum_{c'} \sigma(v_{c'} \cdot y_{ic'})\,(I + G)_{c'c}\Big),
              \qquad y_i = (d_i, a_i, s_i) \\
        x_i' &= \mathrm{relu}\Big(\mathrm{batchnorm}\Big(\sum_c g_{ic}\, y_{ic}\Big)\Big)

    over the neighbours :math:`j` of a node. Attributes of edges act as in HKBlock: :math:`x_j - x_i + W_e e_{ij}` takes
    the place of :math:`x_j - x_i`, and :math:`x_j + W_n e_{ij}` that of :math:`x_j` in :math:`a_i`; both maps start at
    zero. There are the weights :math:`\bar w_j = w_j / \sum_{j'} w_{j'}`, or equal ones where all
    weights vanish. The fixed :math:`p_k` are the kernel points of HKConv seen from the origin,
    :math:`\log_o \tilde x_k`: the same directions, and as long as the points are far. Differences take the place of
    :math:`\ominus`, means of centroids and linear maps of HLinear, whose gate has no counterpart. A node without
    neighbours has :math:`d_i = a_i = 0`. Self loops are not added.

    The maps are linear, so that they act on sums over neighbours and not on edges. All that is needed of the edges are
    :math:`\sum_j \bar w_j \nu_{jk} x_j` and :math:`\sum_j \bar w_j \nu_{jk}`; their sums over :math:`k` are the mean
    of the neighbours and, but for nodes without any, 1.

    As in HKBlock, weights start Glorot-uniform, biases, :math:`v` and :math:`G` at zero, and the scale of the
    normalisation at :math:`n^{-1/2}`.

    Args:
        in_dim: width :math:`m` of the input.
        out_dim: width :math:`n` of the output.
        kernel_size: number :math:`K` of kernel points.
        dropout: probability of dropping an entry of the input, drawn once a node.
        edge_dim: number of attributes of an edge, or None.

    Shapes:
        - **x**: ``(N, m)``; **edge_index**, **edge_weight**, **edge_attr**: as in :class:`~hkconv.nn.HKConv`
        - **output**: ``(N, n)``
    """

    points: Tensor

    def __init__(
        self,
        in_dim: int,
        out_dim: int,
        kernel_size: int = KERNEL_SIZE,
        *,
        dropout: float = 0.0,
        edge_dim: int | None = None,
    ):
        super().__init__()
        check_rate(dropout)
        self.in_dim, self.out_dim, self.kernel_size, self.dropout = in_dim, out_dim, kernel_size, dropout
        points = log0(kernel_points(kernel_size, in_dim))[:, 1:]
        self.register_buffer("points", points.to(torch.get_default_dtype()))
        self.weight = torch.nn.Parameter(torch.empty(kernel_size, out_dim, in_dim))
        self.bias = torch.nn.Parameter(torch.empty(kernel_size, out_dim))
        self.neighbors = torch.nn.Linear(in_dim, out_dim)
        self.node = torch.nn.Linear(in_dim, out_dim)
        self.gate_weight = torch.nn.Parameter(torch.empty(len(VIEWS), out_dim))
        self.gate_mix = torch.nn.Parameter(torch.empty(len(VIEWS), len(VIEWS)))
        self.norm = BatchNorm(out_dim, allow_single_element=True)
        # The maps of attributes for the differences and for the neighbours.
        self.edge_map = None if edge_dim is None else torch.nn.Parameter(torch.empty(2, in_dim, edge_dim))
        self.edge_dim = edge_dim
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all parameters anew; the views have equal weights again."""
        bound = math.sqrt(6 / (self.in_dim + self.out_dim))
        for weight in (self.weight, self.neighbors.weight, self.node.weight):
            torch.nn.init.uniform_(weight, -bound, bound)
        for zero in (self.bias, self.neighbors.bias, self.node.bias, self.gate_weight, self.gate_mix, self.edge_map):
            if zero is not None:
                torch.nn.init.zeros_(zero)
        self.norm.reset_parameters()
        torch.nn.init.constant_(self.norm.module.weight, self.out_dim**-0.5)

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor | Neighbors,
        edge_weight: Tensor | None = None,
        edge_attr: Tensor | None = None,
    ) -> Tensor:
        """Features of all nodes after the block, ``(N, out_dim)``."""
        with full_precision(x) as (x,):
            views = self.views(F.dropout(x, self.dropout, self.training), edge_index, edge_weight, edge_attr)
            mixed = (self.gates(views).unsqueeze(-1) * views).sum(1)
            return self.norm(mixed).relu()

    def views(
        self,
        x: Tensor,
        edge_index: Tensor | Neighbors,
        edge_weight: Tensor | None = None,
        edge_attr: Tensor | None = None,
    ) -> Tensor:
        """The three views :math:`y_i` of each node in the order of HKBlock's, ``(N, 3, out_dim)``."""
        found, weight = find_neighbors(edge_index, edge_weight, (x.size(0), x.size(0)))
        acting = None if weight is None else acting_weight(weight.to(x.dtype).index_select(0, found.order), found)
        edge_attr = read_attributes(edge_attr, self.edge_dim, found.source.numel(), found.order)
        edge_attr = None if edge_attr is None else edge_attr.to(x.dtype)
        of_edges = self._shares(x, found, edge_attr)
        of_edges = of_edges if acting is None else of_edges * acting
        mean, share = _means(x, of_edges, found)
        differences = mean - share.unsqueeze(-1) * x.unsqueeze(1)
        neighbor = mean.sum(1)
        if edge_attr is not None and self.edge_map is not None:
            attributes = _means(edge_attr, of_edges, unfold(found))[0]
            differences = differences + F.linear(attributes, self.edge_map[0])
            neighbor = neighbor + F.linear(attributes.sum(1), self.edge_map[1])
        by_kernel = torch.einsum("ikm,knm->in", differences, self.weight) + share @ self.bias
        # The shares of all kernel points are 1 together, and 0 without neighbours.
        neighbors = F.linear(neighbor, self.neighbors.weight) + share.sum(1, keepdim=True) * self.neighbors.bias
        return torch.stack([by_kernel, neighbors, self.node(x)], dim=1)

    def gates(self, views: Tensor) -> Tensor:
        """The weights :math:`g_i` of the views, which sum to 1, ``(N, 3, out_dim) -> (N, 3)``."""
        return view_gates(views, self.gate_weight, self.gate_mix)

    def _shares(self, x: Tensor, neighbors: Neighbors, edge_attr: Tensor | None) -> Tensor:
        r"""The :math:`\nu_{jk}` of all edges, sorted by target as ``edge_attr`` is, ``(K, E)``."""
        if edge_attr is None or self.edge_map is None:
            squares = [square_distance(x, x + point, neighbors) for point in self.points.unbind()]
        else:
            between = x.index_select(0, neighbors.source) - x.index_select(0, neighbors.target)
            moved = between + F.linear(edge_attr, self.edge_map[0])
            squares = [(moved - point).square().sum(-1) for point in self.points.unbind()]
        distance = _root(torch.stack(squares))
        # A neighbour can be at the place of every kernel point where there is but one.
        distance = effective_weight(distance, distance.detach().amax(0))
        return distance / distance.sum(0)

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.in_dim}, {self.out_dim}, kernel_size={self.kernel_size})"


def _means(rows: Tensor, share: Tensor, neighbors: Neighbors) -> tuple[Tensor, Tensor]:
    r"""For each kernel point :math:`\sum_j \bar w_j \nu_{jk} x_j`, ``(N, K, d)``, and the same sum of ones ``(N, K)``.

    Args:
        rows: the :math:`x_j` of the sources, ``(S, d)``.
        share: the :math:`w_j \nu_{jk}` of all edges, sorted by target, ``(K, E)``.
        neighbors: the edges.
    """
    # A column of ones collects the sums of the shares.
    rows = F.pad(rows, (0, 1), value=1.0)
    sums = torch.stack([neighbor_sum(rows, of_point, neighbors) for of_point in share.unbind()], dim=1)
    total = sums[..., -1:].sum(1, keepdim=True)
    sums = sums / torch.where(total > 0, total, 1)
    return sums[..., :-1], sums[..., -1]


class FlatReadout(torch.nn.Module):
    r"""Head that reads a task's logits off the features of a layer: by task

    - ``"node"``: :math:`-|x - c_j|/T` to one learned centre :math:`c_j` a class, :math:`T` learned;
    - ``"graph"``: the same for the mean of all nodes of a graph;
    - ``"link"``: :math:`(r - |u - v|^2)/t` of each pair, :math:`r` and :math:`t` learned, from 2 and 1 on.

    Args:
        task: ``"node"``, ``"graph"`` or ``"link"``.
        dim: width of the features.
        num_classes: number of classes; not used for links.
        temperature: where :math:`T` starts.

    Shapes: as :class:`~hkconv.models.HKN`, with features ``(N, dim)``.
    """

    def __init__(self, task: str, dim: int, num_classes: int | None, temperature: float):
        super().__init__()
        self.task, self.start_temperature = task, 1.0 if task == "link" else temperature
        if task == "link":
            self.radius = torch.nn.Parameter(torch.empty(()))
        else:
            self.centers = torch.nn.Parameter(torch.empty(known(num_classes), dim))
        self.log_temperature = torch.nn.Parameter(torch.empty(()))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Centres in random directions at a distance of about 1 from the origin."""
        if self.task == "link":
            torch.nn.init.constant_(self.radius, INITIAL_RADIUS)
        else:
            torch.nn.init.normal_(self.centers, std=self.centers.size(1) ** -0.5)
        torch.nn.init.constant_(self.log_temperature, math.log(self.start_temperature))

    def forward(self, x: Tensor, batch: Tensor | None, batch_size: int | None, pairs: Tensor | None) -> Tensor:
        with full_precision(x) as (x,):
            if self.task == "link":
                return self._closeness(x, pairs) * (-self.log_temperature).exp()
            if self.task == "graph":
                x = global_mean_pool(x, batch, batch_size)
            return -self._distances(x) * (-self.log_temperature).exp()

    def _closeness(self, x: Tensor, pairs: Tensor | None) -> Tensor:
        if pairs is None:
            raise InputError("pairs of shape (2, P) are needed for the link task")
        return self.radius - (x[pairs[0]] - x[pairs[1]]).square().sum(-1)

    def _distances(self, x: Tensor) -> Tensor:
        # Every row meets every centre, feature by feature.
        return in_pieces(
            lambda part: _root((part.unsqueeze(-2) - self.centers).square().sum(-1)),
            (x,),
            x.numel() * self.centers.size(0),
        )

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.task})"


class FlatHKN(torch.nn.Module):
    r"""HKN in flat space, the control that says what hyperbolic space adds to :class:`~hkconv.models.HKN`:

    .. math::
        x^{(0)} = W x + b, \qquad x^{(l)} = \mathrm{FlatBlock}^{(l)}(x^{(l-1)}), \qquad
        \text{logits} = \sum_{l=0}^L \frac{-|x^{(l)} - c_j^{(l)}|}{T_l}

    with learned centres :math:`c_j^{(l)}` and temperatures :math:`T_l`, which start at so much that the sum starts as a
    mean; for graphs of the mean of all nodes, and for links :math:`\sum_l (r_l - |u^{(l)} - v^{(l)}|^2)/t_l`. That is
    HKN with ``form="views"``, without :math:`\exp_o` after the embedding, of :class:`FlatBlock` instead of
    :class:`~hkconv.nn.HKBlock`, with the Euclidean distance instead of the hyperbolic one. Kernel points, starting
    values and the places of dropout are the same. What has no counterpart are the gate and the length of HLinear and
    the time coordinates, so that it has fewer parameters of the same width; and HKN's centres, being points of a
    manifold, are spared the weight decay that acts on these.

    Arguments: as :class:`~hkconv.models.baselines.baseline.Baseline`, and ``edge_dim``, as :class:`FlatBlock`; shapes:
    as :class:`~hkconv.models.HKN`.
    """

    reads_edges = True

    def __init__(
        self,
        in_features: int,
        hidden_dim: int,
        num_classes: int | None,
        *,
        num_layers: int,
        dropout: float = 0.0,
        task: str = "node",
        edge_dim: int | None = None,
    ):
        super().__init__()
        check_network(self, task, num_classes, num_layers, hidden_dim, dropout)
        self.task, self.dropout = task, dropout
        self.embedding = torch.nn.Linear(in_features, hidden_dim)
        self.convs = torch.nn.ModuleList(
            FlatBlock(hidden_dim, hidden_dim, dropout=dropout, edge_dim=edge_dim) for _ in range(num_layers)
        )
        temperature = INITIAL_TEMPERATURE * (num_layers + 1)
        self.readouts = torch.nn.ModuleList(
            FlatReadout(task, hidden_dim, num_classes, temperature) for _ in range(num_layers + 1)
        )

    def reset_parameters(self) -> None:
        """Draw all weights anew."""
        reset_modules([self.embedding, *self.convs, *self.readouts])

    def layer_features(
        self,
        x: Tensor,
        edge_index: Tensor | Neighbors,
        edge_weight: Tensor | None = None,
        edge_attr: Tensor | None = None,
    ) -> list[Tensor]:
        """The features of all nodes after the embedding and after each block, ``(N, hidden_dim)`` each."""
        # Sorted once for all blocks, also in a compiled graph, where nothing is remembered.
        found, weight = find_neighbors(edge_index, edge_weight, (x.size(0), x.size(0)))
        layers = [self.embedding(F.dropout(x, self.dropout, self.training))]
        for conv in self.convs:
            layers.append(conv(layers[-1], found, weight, edge_attr))
        return layers

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor | Neighbors,
        edge_weight: Tensor | None = None,
        *,
        batch: Tensor | None = None,
        batch_size: int | None = None,
        pairs: Tensor | None = None,
        edge_attr: Tensor | None = None,
    ) -> Tensor:
        """Logits of the task, in and out as :class:`hkconv.models.HKN`."""
        layers = self.layer_features(x, edge_index, edge_weight, edge_attr)
        read = [readout(layer, batch, batch_size, pairs) for readout, layer in zip(self.readouts, layers)]
        return sum(read[1:], start=read[0])

    def __repr__(self) -> str:
        layers = ", ".join(repr(conv) for conv in self.convs)
        return f"{self.__class__.__name__}({self.task}, {self.embedding}, {layers})"


def _root(square: Tensor) -> Tensor:
    """The root with gradient 0 at 0, and below what a float can be divided by."""
    is_far = square > torch.finfo(square.dtype).tiny
    return torch.where(is_far, torch.where(is_far, square, 1).sqrt(), 0)
