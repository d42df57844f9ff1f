"""Point clouds in the hyperbolic plane: which shape were the points scattered around?

A cloud lies around a line, three rays from one point, or a circle, turned at random and moved away from the origin. It
has no edges and no features: neighbours are the nearest by hyperbolic distance, and HKConv sees where they lie.

Run: python examples/point_cloud.py
"""

import argparse
import math

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader

import hkconv
from hkconv.geometry import lorentz
from hkconv.nn import HDistance, HKBlock, HKConv, global_centroid_pool, knn_graph

SHAPES = ("line", "rays", "circle")

parser = argparse.ArgumentParser()
parser.add_argument("--clouds", type=int, default=300)
parser.add_argument("--points", type=int, default=48)
parser.add_argument("--neighbours", type=int, default=8)
parser.add_argument("--hidden-dim", type=int, default=16)
parser.add_argument("--kernel-size", type=int, default=5)
parser.add_argument("--lr", type=float, default=0.02)
parser.add_argument("--epochs", type=int, default=40)
args = parser.parse_args()

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def polar(radius: Tensor, angle: Tensor) -> Tensor:
    """Points of the plane at a distance from the origin, in a direction."""
    return lorentz.lift(torch.stack([angle.cos(), angle.sin()], dim=-1) * radius.sinh().unsqueeze(-1))


def scatter(shape: str) -> Data:
    radius, angle = 2 * torch.rand(args.points), 2 * math.pi * torch.rand(args.points)
    if shape == "circle":
        radius = torch.ones(args.points)
    else:
        rays = SHAPES.index(shape) + 2
        angle = torch.randint(rays, (args.points,)) * 2 * math.pi / rays
    on_shape = polar(radius, angle + 2 * math.pi * torch.rand(()))
    noise = lorentz.lift(0.05 * torch.randn(args.points, 2))
    centre = polar(torch.rand(1), 2 * math.pi * torch.rand(1))
    # `oplus` carries the origin to its second argument and everything around it along.
    pos = lorentz.oplus(lorentz.oplus(noise, on_shape), centre)
    return Data(pos=pos, edge_index=knn_graph(pos, args.neighbours), y=torch.tensor([SHAPES.index(shape)]))


class CloudNet(torch.nn.Module):
    def __init__(self, dim: int, kernel_size: int):
        super().__init__()
        # Differences alone: where a cloud lies says nothing about its shape.
        self.first = HKConv(2, dim, kernel_size)
        self.second = HKBlock(dim, dim, kernel_size, norm="layer")
        self.centres = HDistance(dim, len(SHAPES))

    def forward(self, pos: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        x = self.second(self.first(pos, edge_index), edge_index)
        # Fresh centres lie about one unit apart: logits ten times that are of the usual size.
        return -10 * self.centres(global_centroid_pool(x, batch))


clouds = [scatter(SHAPES[index % 3]) for index in range(args.clouds)]
cut = len(clouds) * 3 // 4
train_loader = DataLoader(clouds[:cut], batch_size=32, shuffle=True)
test_loader = DataLoader(clouds[cut:], batch_size=32)

model = CloudNet(args.hidden_dim, args.kernel_size).to(device)
optimizer = hkconv.RiemannianAdam(model.parameters(), lr=args.lr)

for epoch in range(1, args.epochs + 1):
    model.train()
    total = 0.0
    for data in train_loader:
        data = data.to(device)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(data.pos, data.edge_index, data.batch), data.y)
        loss.backward()
        optimizer.step()
        total += loss.item() * data.num_graphs
    if epoch % 5 == 0:
        print(f"epoch {epoch:3d}  loss {total / cut:.3f}")

model.eval()
with torch.no_grad():
    correct = sum(
        int((model(data.pos, data.edge_index, data.batch).argmax(dim=-1) == data.y).sum())
        for data in (data.to(device) for data in test_loader)
    )
final_test = correct / len(test_loader.dataset)
print(f"test accuracy {final_test:.3f} (guessing: {1 / len(SHAPES):.3f})")
