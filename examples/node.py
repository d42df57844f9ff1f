# %% [markdown]
# # Classify nodes: hkconv in a PyG loop
#
# A random hierarchy of 971 members, such as the staff of a company, has eight branches below its head. Every member
# is known by 16 noisy numbers and by the links to those above and below. **To which branch does each member belong?**
#
# The graph is a PyG `Data`, the layers are called like PyG's, and the loop is the one that you know. It runs in half
# a minute on a CPU. As a script: `python examples/node.py`.

# %%
import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import GCN

import hkconv
from hkconv.data import load
from hkconv.models import HKN
from hkconv.nn import HDistance, HEmbedding, HKBlock

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
dataset = load("tree", task="node")
graph, split = dataset.graph.to(device), dataset.splits[0]
print(graph)
print({part: len(members) for part, members in split.parts.items()})

# %% [markdown]
# `load("texas", root=FOLDER)` takes real data instead of the tree; `docs/data.md` says how the folder is laid out.
#
# ## Points instead of vectors
#
# Features become points of hyperbolic space, where there is room for trees: the circumference of a circle grows
# exponentially with its radius. A point of dimension $n$ is a row of $n + 1$ numbers, time first.
#
# The convolution of the paper, `HKConv`, compares the differences $x_i \ominus x$ to the neighbours of a node $x$
# with $K$ fixed kernel points $\tilde x_k$, much as an image filter has one weight for each place around a pixel:
#
# $$
# x_{ik} = \mathrm{HLinear}_k(x_i \ominus x), \qquad
# x_i' = \mathrm{HCent}\big(\{x_{ik}\}_k, \{d(x_i \ominus x, \tilde x_k)\}_k\big), \qquad
# x' = \mathrm{HCent}(\{x_i'\}_i).
# $$
#
# HLinear is a linear map between hyperbolic spaces, HCent a weighted centroid. `HKBlock` is made of this convolution,
# the neighbours themselves and the node itself, and every node weighs the three.


# %%
class Net(torch.nn.Module):
    def __init__(self, in_features: int, dim: int, num_classes: int):
        super().__init__()
        self.embed = HEmbedding(in_features, dim)
        self.first = HKBlock(dim, dim, kernel_size=4, dropout=0.2)
        self.second = HKBlock(dim, dim, kernel_size=4, dropout=0.2)
        self.centers = HDistance(dim, num_classes)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.embed(x)
        x = self.second(self.first(x, edge_index), edge_index)
        # Near a class centre is likely. Fresh centres lie about one unit away: ten times that makes logits.
        return -10 * self.centers(x)


# %% [markdown]
# `hkconv.models.HKN` is such a network ready-made; it learns the factor 10 and reads the classes off every layer.
# PyG's `GCN` of the same width stands beside the two.
#
# ## Train
#
# Class centres are points. `RiemannianAdam` moves them along the hyperboloid and treats every other parameter as Adam
# does, so that the same loop trains the GCN.

# %%
sizes = (dataset.num_features, 16)
models = {
    "HKBlock": Net(*sizes, dataset.num_classes),
    "HKN": HKN(*sizes, dataset.num_classes, dropout=0.2),
    "GCN": GCN(*sizes, num_layers=2, out_channels=dataset.num_classes, dropout=0.2),
}


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> float:
    model.train()
    optimizer.zero_grad()
    logits = model(graph.x, graph.edge_index)
    loss = F.cross_entropy(logits[split.train], graph.y[split.train])
    loss.backward()
    optimizer.step()
    return loss.item()


@torch.no_grad()
def test(model: torch.nn.Module) -> dict[str, float]:
    model.eval()
    correct = model(graph.x, graph.edge_index).argmax(dim=-1) == graph.y
    return {part: correct[members].float().mean().item() for part, members in split.parts.items()}


final_test = {}
for name, model in models.items():
    model.to(device)
    optimizer = hkconv.RiemannianAdam(model.parameters(), lr=0.02, weight_decay=5e-3)
    best_val = 0.0
    for epoch in range(1, 101):
        loss = train(model, optimizer)
        accuracy = test(model)
        if accuracy["val"] > best_val:  # the validation part chooses the epoch, never the test part
            best_val, final_test[name] = accuracy["val"], accuracy["test"]
        if epoch % 50 == 0:
            print(
                f"{name:8}epoch {epoch:3d}  loss {loss:.3f}  train {accuracy['train']:.3f}  val {accuracy['val']:.3f}"
            )

# %% [markdown]
# ## Compare
#
# One split and one seed do not rank models that are close. `hkconv train tree` trains on several splits and prints
# means with deviations.

# %%
chance = graph.y[split.test].bincount().max().item() / len(split.test)
for name, accuracy in final_test.items():
    print(f"{name:8}test accuracy {accuracy:.3f} (largest class: {chance:.3f})")
