"""Batches, losses and metrics: for nodes, for graphs and for links."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import cast

import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.data import Batch, Data
from torch_geometric.utils import scatter

from hkconv.data import GraphDataset, LinkDataset, LinkSplit, NodeDataset, Split
from hkconv.data.dataset import link_keys, pair_keys
from hkconv.data.neighbor_sampling import InNeighbors, neighbor_loader
from hkconv.data.preparation import write_out
from hkconv.data.scaling import Scaling
from hkconv.data.splits import seeded_generator
from hkconv.engine.task import Score, Task
from hkconv.tasks.graph_batches import GraphBatch, PackedGraphs
from hkconv.tasks.layerwise import all_neighbor_logits, node_inputs, sampled_logits
from hkconv.tasks.metrics import average_precision, roc_auc
from hkconv.tasks.scoring import Scoring, make_scoring

Dataset = NodeDataset | GraphDataset | LinkDataset

# The order of batches and the negatives follow a stream of the seed that no split uses (see hkconv.data.trees).
BATCH_STREAM = 2**31 + 1
GROUPING_STREAM = 2**31 + 2

# Enough to keep a device busy, few enough for its memory. It does not change a result: graphs do not mix.
GRAPHS_AT_ONCE = 512

# The settings of a training that say what a batch is, by the names of :func:`make_task`.
BATCHING = ("batch_size", "groupings", "neighbors", "link_batch", "seed")


class SplitTask(Task):
    """One split of a dataset; ``chance`` names a rule that needs no model."""

    chance: str

    @abstractmethod
    def chance_score(self) -> float:
        """The test metric of the rule ``chance``."""

    @abstractmethod
    def unlearned_score(self) -> float:
        """The best validation metric to be had without learning: one answer for all members, and one more right."""


class ScoredTask(SplitTask):
    """Members with labels, nodes or graphs, and their scoring; ``labels`` has those of each part."""

    scoring: Scoring
    labels: dict[str, Tensor]

    @abstractmethod
    def answers(self, model: torch.nn.Module, part: str) -> tuple[Tensor, Tensor]:
        """Logits and labels of the members of a part, in its order, in evaluation mode."""

    def set_scoring(self, dataset: NodeDataset | GraphDataset, split: Split) -> None:
        """Score as the labels of the dataset call for."""
        self.scoring = make_scoring(dataset, split)
        self.metric, self.chance = self.scoring.metric, self.scoring.chance

    def measure(self, model: torch.nn.Module, part: str) -> Tensor:
        return self.scoring.measure(*self.answers(model, part))

    def chance_score(self) -> float:
        return self.scoring.chance_score(self.labels["train"], self.labels["test"])

    def unlearned_score(self) -> float:
        return self.scoring.unlearned_score(self.labels["val"])


class NodeTask(ScoredTask):
    """Labels of nodes: the whole graph is the batch, the loss is that of the nodes of a part."""

    def __init__(self, dataset: NodeDataset, split: Split, reference: Tensor):
        self.set_scoring(dataset, split)
        graph = moved(dataset.graph, reference, split.scaling)
        self.inputs = node_inputs(graph)
        self.parts = {name: members.to(reference.device) for name, members in split.parts.items()}
        self.labels = {name: graph.y[members] for name, members in self.parts.items()}
        self.has_test = split.test is not None

    def batches(self) -> Iterable[tuple[Tensor, ...]]:
        return [self.inputs]

    def loss(self, model: torch.nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        return self.scoring.loss(node_logits(model, batch)[self.parts["train"]], self.labels["train"])

    @torch.no_grad()
    def answers(self, model: torch.nn.Module, part: str) -> tuple[Tensor, Tensor]:
        return node_logits(model.eval(), self.inputs)[self.parts[part]], self.labels[part]


class SampledNodeTask(NodeTask):
    """Labels of nodes in shuffled mini-batches of training nodes, each with a sample of their neighbours.

    Scores are those of all neighbours. The graph stays on the host; a batch goes to the device of the model. Of several
    processes each samples the neighbours of its own nodes, and with our sampler as one process would.
    """

    is_divisible = True

    def __init__(
        self,
        dataset: NodeDataset,
        split: Split,
        reference: Tensor,
        num_neighbors: Sequence[int],
        batch_size: int,
        seed: int,
    ):
        self.set_scoring(dataset, split)
        self.device, self.batch_size = reference.device, batch_size
        self.graph = moved(dataset.graph, torch.empty(0, dtype=reference.dtype), split.scaling)
        self.neighbors = InNeighbors(self.graph.edge_index, self.graph.num_nodes)
        self.graph.in_degree = self.neighbors.degree()
        self.parts, self.has_test = split.parts, split.test is not None
        self.labels = {name: self.graph.y[members].to(self.device) for name, members in self.parts.items()}
        self.generator, self.sampling = seeded_generator(seed, BATCH_STREAM), torch.Generator()
        self.loader = neighbor_loader(
            self.graph, num_neighbors, split.train, neighbors=self.neighbors, generator=self.sampling
        )

    def batches(self) -> Iterator[Data | None]:  # type: ignore[override]  # its loss takes samples, not the whole graph
        order = torch.randperm(len(self.parts["train"]), generator=self.generator)
        return map(self._sample, order.split(self.batch_size))

    def _sample(self, members: Tensor) -> Data | None:
        # The same in all processes: what a node draws follows from the seed and the node, whose part it is in or not.
        self.sampling.manual_seed(int(torch.randint(2**62, (), generator=self.generator)))
        share = self.processes.share(members)
        return self.loader(share).to(self.device) if len(share) else None

    def weight(self, batch: Data) -> Tensor | int:
        return self.scoring.weight(batch.y[: batch.batch_size])

    def loss(self, model: torch.nn.Module, batch: Data) -> Tensor:
        return self.scoring.loss(sampled_logits(model, batch), batch.y[: batch.batch_size])

    def answers(self, model: torch.nn.Module, part: str) -> tuple[Tensor, Tensor]:
        return all_neighbor_logits(model, self.graph, self.neighbors, self.parts[part]), self.labels[part]


class GraphTask(ScoredTask):
    """Labels of graphs: mini-batches of graphs, the loss is that of the graphs of a batch.

    Every epoch divides the training graphs anew, or, with ``groupings``, takes one of so many divisions by lot: then
    the same batches come back, as the same objects.
    """

    generator: torch.Generator
    is_divisible = True

    def __init__(
        self,
        dataset: GraphDataset,
        split: Split,
        reference: Tensor,
        batch_size: int,
        seed: int,
        groupings: int | None = None,
    ):
        self.set_scoring(dataset, split)
        self.dtype, self.num_columns = reference.dtype, (dataset.num_columns, dataset.num_edge_columns)
        self.batch_size, self.groupings, self.has_test = batch_size, groupings, split.test is not None
        self.parts = {
            name: PackedGraphs([dataset.graphs[index] for index in members.tolist()], reference, split.scaling)
            for name, members in split.parts.items()
        }
        self.labels = {name: packed.labels for name, packed in self.parts.items()}
        self.generator = seeded_generator(seed, BATCH_STREAM)
        self.grouping_generator = seeded_generator(seed, GROUPING_STREAM)
        self.divisions: list[list[GraphBatch | None]] = []
        self.whole: dict[tuple[str, int], list[GraphBatch]] = {}

    def batches(self) -> Iterable[GraphBatch | None]:
        if self.groupings is None:
            return self._divide(self.generator)
        if not self.divisions:
            self.divisions = [list(self._divide(self.grouping_generator)) for _ in range(self.groupings)]
        division = self.divisions[int(torch.randint(self.groupings, (), generator=self.generator))]
        return [division[place] for place in torch.randperm(len(division), generator=self.generator).tolist()]

    def _divide(self, generator: torch.Generator) -> Iterator[GraphBatch | None]:
        packed = self.parts["train"]
        order = torch.randperm(len(packed), generator=generator)
        shares = map(self.processes.share, order.split(self.batch_size))
        return (packed.take(members) if len(members) else None for members in shares)

    def loss(self, model: torch.nn.Module, batch: GraphBatch) -> Tensor:
        return self.scoring.loss(self._logits(model, batch), batch.y)

    def weight(self, batch: GraphBatch) -> Tensor | int:
        return self.scoring.weight(batch.y)

    @torch.no_grad()
    def answers(self, model: torch.nn.Module, part: str) -> tuple[Tensor, Tensor]:
        packed = self.parts[part]
        share = self.processes.share(torch.arange(len(packed)))
        key = (part, len(share))
        if key not in self.whole:
            # Of fewer graphs than processes some have no share; they look at the first graph, which is not counted.
            looked_at = share if len(share) else torch.zeros(1, dtype=torch.int64)
            self.whole[key] = [packed.take(members) for members in looked_at.split(GRAPHS_AT_ONCE)]
        model.eval()
        logits = torch.cat([self._logits(model, batch) for batch in self.whole[key]])
        return self.processes.gather(logits[: len(share)]), packed.y

    def _logits(self, model: torch.nn.Module, batch: GraphBatch) -> Tensor:
        return graph_logits(model, batch, self.num_columns, self.dtype)


class LinkTask(SplitTask):
    """Link prediction: training links against as many pairs without one, drawn anew for every epoch.

    Messages pass over training links alone. Negatives to train on avoid training links and nothing else, for
    avoiding the hidden ones would give them away. They follow from the seed and the epoch, whatever a model draws and
    however many links are in a batch.

    All links are one batch, or with ``link_batch`` so many of them are, shuffled anew for every epoch, each with a
    negative of its own. The last batch is filled up with links of the first: a captured step needs the same shapes.
    """

    metric = "ROC-AUC"
    chance = "chance"
    generator: torch.Generator

    def __init__(
        self, dataset: LinkDataset, split: LinkSplit, reference: Tensor, seed: int, link_batch: int | None = None
    ):
        self.link_batch = link_batch
        self.graph = moved(dataset.graph, reference, split.scaling)
        self.num_nodes, self.has_test = self.graph.x.size(0), split.test is not None
        self.message_edges = split.message_edges.to(reference.device)
        self.train_links = split.train
        self.sent_links = split.train.to(reference.device)
        self.known = link_keys(split.train, self.num_nodes)
        held_out = {name: pairs.to(reference.device) for name, pairs in split.parts.items() if name != "train"}
        self.pairs: dict[str, tuple[Tensor, Tensor]] = {
            part: (held_out[part], held_out[f"{part}_negatives"]) for part in ("val", "test") if part in held_out
        }
        self.generator = seeded_generator(seed, BATCH_STREAM)

    def batches(self) -> Iterable[tuple[Tensor, Tensor]]:
        negatives = _sent(self._draw_negatives(), self.sent_links.device)
        count = negatives.size(1)
        if self.link_batch is None or self.link_batch >= count:
            return [(self.sent_links, negatives)]
        order = self._draw_order()
        order = torch.cat([order, order[: -count % self.link_batch]])
        members = _sent(order, self.sent_links.device).split(self.link_batch)
        return ((self.sent_links[:, chosen], negatives[:, chosen]) for chosen in members)

    def loss(self, model: torch.nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        return _link_loss(*self._logits(model, batch))

    @torch.no_grad()
    def measure(self, model: torch.nn.Module, part: str) -> Tensor:
        return _link_scores(*self._logits(model.eval(), self.pairs[part]))

    @torch.no_grad()
    def evaluate(self, model: torch.nn.Module, part: str) -> Score:
        logits = self._logits(model.eval(), self.pairs[part])
        links = torch.cat([torch.ones_like(logits[0]), torch.zeros_like(logits[1])])
        ap = average_precision(torch.cat(logits)[:, None], links[:, None])
        return Score(*torch.cat([_link_scores(*logits), ap]).tolist())

    def chance_score(self) -> float:
        return 0.5

    def unlearned_score(self) -> float:
        # A link above all pairs, where the others tie, wins half a comparison more with each of them.
        return 0.5 + 0.5 / min(pairs.size(1) for pairs in self.pairs["val"])

    def _logits(self, model: torch.nn.Module, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        logits = model(self.graph.x, self.message_edges, pairs=torch.cat(batch, dim=1))
        return logits.tensor_split([batch[0].size(1)])

    def _draw_negatives(self) -> Tensor:
        wanted = self.train_links.size(1)
        found = self.train_links.new_empty(2, 0)
        while found.size(1) < wanted:
            drawn = torch.randint(self.num_nodes, (2, 2 * wanted), generator=self.generator)
            usable = (drawn[0] != drawn[1]) & ~torch.isin(pair_keys(drawn, self.num_nodes), self.known)
            found = torch.cat([found, drawn[:, usable]], dim=1)
        return found[:, :wanted]

    def _draw_order(self) -> Tensor:
        # From a copy of the generator: the negatives of the next epoch are the same with and without batches.
        seed = int(torch.randint(2**62, (), generator=self.generator.clone_state()))
        return torch.randperm(self.train_links.size(1), generator=torch.Generator().manual_seed(seed))


def make_task(
    dataset: Dataset,
    split: Split | LinkSplit,
    reference: Tensor,
    *,
    batch_size: int = 32,
    groupings: int | None = None,
    neighbors: Sequence[int] | None = None,
    link_batch: int | None = None,
    seed: int = 0,
) -> SplitTask:
    """The task that a dataset is for.

    Args:
        dataset: graphs and labels.
        split: one of the dataset's.
        reference: a tensor with the device and the floating-point type that the features are brought to.
        batch_size: graphs in a batch of a graph task, or nodes in one of sampled neighbours; other tasks take all at
            once.
        groupings: of a graph task: divisions into batches that are drawn once; None for a new one every epoch.
        neighbors: of a node task: the most neighbours of a node that are sampled in each layer, from the last to the
            first, -1 for all; None trains on the whole graph.
        link_batch: links in a batch of a link task; None for all at once.
        seed: of the order of batches and of the negatives of a link task.

    Returns:
        The task.
    """
    # One of the dataset's splits is of the dataset's kind.
    if isinstance(dataset, LinkDataset):
        return LinkTask(dataset, cast(LinkSplit, split), reference, seed, link_batch)
    split = cast(Split, split)
    if isinstance(dataset, NodeDataset) and neighbors is not None:
        return SampledNodeTask(dataset, split, reference, neighbors, batch_size, seed)
    if isinstance(dataset, NodeDataset):
        return NodeTask(dataset, split, reference)
    return GraphTask(dataset, split, reference, batch_size, seed, groupings)


def edge_dim_of(dataset: Dataset) -> int | None:
    """Number of attributes of an edge that a model sees; None where there are none, as of links."""
    return None if isinstance(dataset, LinkDataset) else dataset.edge_dim


def node_logits(model: torch.nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
    """Logits of the nodes of a graph from what :func:`~hkconv.tasks.layerwise.node_inputs` gives."""
    if len(inputs) < 4:
        return model(*inputs)
    names = ("x", "edge_index", "edge_weight", "edge_attr")
    given = graph_inputs(model, Data(**dict(zip(names, inputs))), (None, None), inputs[0].dtype)
    x, edge_index = given.pop("x"), given.pop("edge_index")
    return model(x, edge_index, **given)


def graph_logits(
    model: torch.nn.Module, batch: GraphBatch, num_columns: tuple[int | None, int | None], dtype: torch.dtype
) -> Tensor:
    """Logits of the graphs of a batch, in (B, C); arguments as of :func:`graph_inputs`."""
    inputs = graph_inputs(model, batch, num_columns, dtype)
    # By position what hooks of modules look at.
    x, edge_index = inputs.pop("x"), inputs.pop("edge_index")
    return model(x, edge_index, **inputs, batch=batch.batch, batch_size=batch.num_graphs)


def graph_inputs(
    model: torch.nn.Module,
    batch: GraphBatch | Batch | Data,
    num_columns: tuple[int | None, int | None],
    dtype: torch.dtype,
) -> dict[str, Tensor]:
    """The inputs of a model for the nodes and edges of some graphs, by name.

    A model that does not read edges has the mean attributes of a node's incoming edges as further features of the node.

    Args:
        model: of a node or graph task.
        batch: the graphs.
        num_columns: how many columns there are where ``batch.x`` lists those of the ones, and the same of
            ``batch.edge_attr``.
        dtype: of the features and attributes.

    Returns:
        ``x`` and ``edge_index``, with ``edge_weight`` and ``edge_attr`` where there are such.
    """

    def written(rows: Tensor, columns: int | None) -> Tensor:
        return rows.to(dtype) if columns is None else write_out(rows, columns, dtype)

    inputs = {"x": written(batch.x, num_columns[0]), "edge_index": batch.edge_index}
    if batch.edge_weight is not None:
        inputs["edge_weight"] = batch.edge_weight
    if batch.edge_attr is not None:
        inputs["edge_attr"] = written(batch.edge_attr, num_columns[1])
        if not getattr(model, "reads_edges", False):
            mean = scatter(inputs.pop("edge_attr"), batch.edge_index[1], dim_size=len(batch.x), reduce="mean")
            inputs["x"] = torch.cat([inputs["x"], mean], dim=1)
    return inputs


def moved(graph: Data, reference: Tensor, scaling: Scaling | None = None) -> Data:
    """The graph on the reference's device, its features, scaled, and weights in the reference's type."""
    x = graph.x if scaling is None else scaling(graph.x)
    moved = Data(x=x.to(reference), edge_index=graph.edge_index.to(reference.device))
    if graph.edge_weight is not None:
        moved.edge_weight = graph.edge_weight.to(reference)
    if graph.edge_attr is not None:
        moved.edge_attr = graph.edge_attr.to(reference)
    if graph.y is not None:
        moved.y = graph.y.to(reference.device)
    return moved


def _sent(values: Tensor, device: torch.device) -> Tensor:
    """The values on the device. The host does not wait for a GPU: from pinned memory it copies on its own."""
    return values.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else values.to(device)


def _link_loss(positive: Tensor, negative: Tensor) -> Tensor:
    targets = torch.cat([torch.ones_like(positive), torch.zeros_like(negative)])
    return F.binary_cross_entropy_with_logits(torch.cat([positive, negative]), targets)


def _link_scores(positive: Tensor, negative: Tensor) -> Tensor:
    return torch.stack([roc_auc(positive, negative), _link_loss(positive, negative).double()])
