"""Node classification in mini-batches with Lightning Fabric: devices, precision, processes, and no LightningModule.

Run: pip install lightning, then python examples/fabric.py, on several GPUs with --devices 4
"""

import argparse

import torch
import torch.nn.functional as F
from lightning.fabric import Fabric

import hkconv
from hkconv.data import load
from hkconv.data.neighbor_sampling import neighbor_loader
from hkconv.models import HKN

parser = argparse.ArgumentParser()
parser.add_argument("--accelerator", default="auto")
parser.add_argument("--devices", default="1")
parser.add_argument("--hidden-dim", type=int, default=16)
parser.add_argument("--kernel-size", type=int, default=4)
parser.add_argument("--lr", type=float, default=0.02)
parser.add_argument("--epochs", type=int, default=20)
args = parser.parse_args()

fabric = Fabric(accelerator=args.accelerator, devices=args.devices)
fabric.launch()
fabric.seed_everything(0, verbose=False)
dataset = load("tree", task="node")
graph, split = dataset.graph, dataset.splits[0]
model = HKN(dataset.num_features, args.hidden_dim, dataset.num_classes, num_layers=2, kernel_size=args.kernel_size)
optimizer = hkconv.RiemannianAdam(model.parameters(), lr=args.lr, weight_decay=5e-3)
model, optimizer = fabric.setup(model, optimizer)
# Every process has its share of the nodes; PyG's loaders bring their own batches, so Fabric only moves these.
mine = split.train[fabric.global_rank :: fabric.world_size]
loader = fabric.setup_dataloaders(
    neighbor_loader(graph, (10, 5), mine, batch_size=128, shuffle=True), use_distributed_sampler=False
)

for epoch in range(1, args.epochs + 1):
    model.train()
    for batch in loader:
        optimizer.zero_grad()
        logits = model(batch.x, batch.edge_index)[: batch.batch_size]
        loss = F.cross_entropy(logits, batch.y[: batch.batch_size])
        fabric.backward(loss)
        optimizer.step()
    if epoch % 5 == 0:
        fabric.print(f"epoch {epoch:3d}  loss {loss.item():.3f}")

with torch.no_grad():
    model.eval()
    whole = fabric.to_device(graph)
    correct = (model(whole.x, whole.edge_index).argmax(dim=-1) == whole.y).cpu()
final_test = correct[split.test].float().mean().item()
chance = dataset.graph.y[split.test.to(graph.y.device)].bincount().max().item() / len(split.test)
fabric.print(f"test accuracy {final_test:.3f} (largest class: {chance:.3f})")
