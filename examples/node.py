"""Node classification with HKN: to which branch of a random hierarchy does each member belong?

Run: python examples/node.py
Or on real data, laid out as docs/data.md says: python examples/node.py --dataset texas --data FOLDER
"""

import argparse

import torch
import torch.nn.functional as F

import hkconv
from hkconv.data import load
from hkconv.models import HKN

parser = argparse.ArgumentParser()
parser.add_argument("--dataset", default="tree")
parser.add_argument("--data", default=None, help="folder of the datasets; tree and disease need none")
parser.add_argument("--hidden-dim", type=int, default=16)
parser.add_argument("--kernel-size", type=int, default=4)
parser.add_argument("--lr", type=float, default=0.02)
parser.add_argument("--epochs", type=int, default=100)
args = parser.parse_args()

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
dataset = load(args.dataset, root=args.data, task="node")
graph, split = dataset.graph.to(device), dataset.splits[0]

sizes = {"num_layers": 2, "kernel_size": args.kernel_size}
model = HKN(dataset.num_features, args.hidden_dim, dataset.num_classes, dropout=0.2, **sizes).to(device)
# Class centres are points: plain Adam would push them off the hyperboloid.
optimizer = hkconv.RiemannianAdam(model.parameters(), lr=args.lr, weight_decay=5e-3)


def train() -> float:
    model.train()
    optimizer.zero_grad()
    logits = model(graph.x, graph.edge_index)
    loss = F.cross_entropy(logits[split.train], graph.y[split.train])
    loss.backward()
    optimizer.step()
    return loss.item()


@torch.no_grad()
def test() -> dict[str, float]:
    model.eval()
    correct = model(graph.x, graph.edge_index).argmax(dim=-1) == graph.y
    return {part: correct[members].float().mean().item() for part, members in split.parts.items()}


best_val = final_test = 0.0
for epoch in range(1, args.epochs + 1):
    loss = train()
    accuracy = test()
    if accuracy["val"] > best_val:
        best_val, final_test = accuracy["val"], accuracy["test"]
    if epoch % 20 == 0:
        print(f"epoch {epoch:3d}  loss {loss:.3f}  train {accuracy['train']:.3f}  val {accuracy['val']:.3f}")

chance = graph.y[split.test].bincount().max().item() / len(split.test)
print(f"test accuracy {final_test:.3f} (largest class: {chance:.3f})")
