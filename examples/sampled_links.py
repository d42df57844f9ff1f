"""Link prediction in mini-batches with plain PyG: which leaves of a hierarchy are linked? The more, the nearer their
common ancestor.

Pairs of nodes come with a sample of the neighbours of their ends: from PyG's LinkNeighborLoader where pyg-lib or
torch-sparse is installed, elsewhere from hkconv's sampler in PyG's LinkLoader.

Run: python examples/sampled_links.py
"""

import argparse

import torch
import torch.nn.functional as F
from torch_geometric.data import Data
from torch_geometric.transforms import RandomLinkSplit
from torch_geometric.utils import to_undirected

import hkconv
from hkconv.data.neighbor_sampling import link_neighbor_loader
from hkconv.nn import FermiDirac, HEmbedding, HKBlock

parser = argparse.ArgumentParser()
parser.add_argument("--leaves", type=int, default=512, help="a power of two")
parser.add_argument("--dim", type=int, default=16)
parser.add_argument("--kernel-size", type=int, default=4)
parser.add_argument("--lr", type=float, default=0.01)
parser.add_argument("--epochs", type=int, default=20)
args = parser.parse_args()

torch.manual_seed(0)
leaf = torch.arange(args.leaves)
first, second = torch.combinations(leaf).T
steps_up = (first ^ second).double().log2().floor()
linked = torch.rand(len(first)) < 2 * 0.25**steps_up
edge_index = to_undirected(torch.stack([first, second])[:, linked])
graph = Data(x=torch.eye(args.leaves), edge_index=edge_index)
split = RandomLinkSplit(num_val=0.0, num_test=0.1, is_undirected=True, add_negative_train_samples=False)
train_graph, _, test_graph = split(graph)


class LinkModel(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = HEmbedding(-1, args.dim)
        self.first, self.second = (HKBlock(args.dim, args.dim, args.kernel_size, norm="layer") for _ in range(2))
        self.decode = FermiDirac()

    def forward(self, x, edge_index, pairs):
        x = self.embed(x)
        x = self.second(self.first(x, edge_index), edge_index)
        return self.decode(x[pairs[0]], x[pairs[1]])


model = LinkModel()
model(train_graph.x, train_graph.edge_index, train_graph.edge_label_index)  # the embedding counts the features
optimizer = hkconv.RiemannianAdam(model.parameters(), lr=args.lr)
loader = link_neighbor_loader(
    Data(x=train_graph.x, edge_index=train_graph.edge_index),
    (10, 5),
    train_graph.edge_label_index,
    batch_size=128,
    shuffle=True,
    neg_sampling="binary",
)

for epoch in range(1, args.epochs + 1):
    model.train()
    for batch in loader:
        optimizer.zero_grad()
        logits = model(batch.x, batch.edge_index, batch.edge_label_index)
        loss = F.binary_cross_entropy_with_logits(logits, batch.edge_label)
        loss.backward()
        optimizer.step()
    if epoch % 5 == 0:
        print(f"epoch {epoch:3d}  loss {loss.item():.3f}")

with torch.no_grad():
    score = model.eval()(test_graph.x, test_graph.edge_index, test_graph.edge_label_index)
linked, others = score[test_graph.edge_label == 1], score[test_graph.edge_label == 0]
final_test = (linked[:, None] > others).float().mean().item()
print(f"test accuracy {final_test:.3f} (of telling a link from another pair; guessing: 0.500)")
