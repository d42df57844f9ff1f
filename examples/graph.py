"""Graph classification with HKN in mini-batches: by which rule did a tree grow?

Every tree has 20 to 40 nodes. A new node joins one of the latest five (chains), anybody (uniform), or mostly those who
have many children already (hubs). A node knows its degree and nothing else.

Run: python examples/graph.py
"""

import argparse

import torch
import torch.nn.functional as F
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.utils import degree, to_undirected

import hkconv
from hkconv.models import HKN

RULES = ("chains", "uniform", "hubs")

parser = argparse.ArgumentParser()
parser.add_argument("--graphs", type=int, default=600)
parser.add_argument("--hidden-dim", type=int, default=16)
parser.add_argument("--kernel-size", type=int, default=4)
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--lr", type=float, default=0.01)
parser.add_argument("--epochs", type=int, default=20)
args = parser.parse_args()

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def grow(rule: str) -> Data:
    size = int(torch.randint(20, 41, ()))
    attraction, parents = torch.ones(size), []
    for node in range(1, size):
        candidates = attraction[:node].clone()
        if rule == "chains":
            candidates[: max(0, node - 5)] = 0
        parents.append(int(candidates.multinomial(1)))
        if rule == "hubs":
            attraction[parents[-1]] += 1
    edge_index = to_undirected(torch.tensor([parents, range(1, size)]), num_nodes=size)
    x = degree(edge_index[0], size).log().unsqueeze(-1)
    return Data(x=x, edge_index=edge_index, y=torch.tensor([RULES.index(rule)]))


graphs = [grow(RULES[index % 3]) for index in range(args.graphs)]
cut = len(graphs) * 3 // 4
train_loader = DataLoader(graphs[:cut], args.batch_size, shuffle=True)
test_loader = DataLoader(graphs[cut:], args.batch_size)

# No dropout: it would hide from a node all that it knows. A norm of each node by itself: the running means of a norm
# over batches can be far from what training saw.
options = {"num_layers": 2, "dropout": 0.0, "norm": "layer"}
model = HKN(1, args.hidden_dim, len(RULES), kernel_size=args.kernel_size, task="graph", **options).to(device)
optimizer = hkconv.RiemannianAdam(model.parameters(), lr=args.lr)


def train() -> float:
    model.train()
    total = 0.0
    for data in train_loader:
        data = data.to(device)
        optimizer.zero_grad()
        logits = model(data.x, data.edge_index, batch=data.batch, batch_size=data.num_graphs)
        loss = F.cross_entropy(logits, data.y)
        loss.backward()
        optimizer.step()
        total += loss.item() * data.num_graphs
    return total / len(train_loader.dataset)


@torch.no_grad()
def test() -> float:
    model.eval()
    correct = 0
    for data in test_loader:
        data = data.to(device)
        logits = model(data.x, data.edge_index, batch=data.batch, batch_size=data.num_graphs)
        correct += int((logits.argmax(dim=-1) == data.y).sum())
    return correct / len(test_loader.dataset)


for epoch in range(1, args.epochs + 1):
    loss = train()
    if epoch % 5 == 0:
        print(f"epoch {epoch:3d}  loss {loss:.3f}")

final_test = test()
print(f"test accuracy {final_test:.3f} (guessing: {1 / len(RULES):.3f})")
