# %% [markdown]
# # Trees: distances, a picture, and the explorer
#
# Why hyperbolic space at all? This notebook draws a tree in the hyperbolic plane, measures how well distances in the
# drawing agree with those in the tree, then asks the same of networks that learned to find links. It ends with a page
# for your browser, and takes half a minute on a CPU. As a script: `python examples/tree_distances.py`.
#
# The picture needs matplotlib: `pip install 'hkconv[viz]'`.

# %%
import math
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import networkx as nx
import torch
from torch import Tensor

from hkconv.geometry import lorentz
from hkconv.tasks import make_recipe, train_run
from hkconv.tasks.distances import DistanceFidelity, measure_distances, score_distances
from hkconv.viz.disk import draw_disk, draw_geodesic, in_disk
from hkconv.viz.explorer.page import write_page
from hkconv.viz.explorer.run_scene import read_run_scene

folder = Path(tempfile.mkdtemp())  # or any folder of yours

# %% [markdown]
# ## A tree in the plane
#
# Put the root at the origin. Every node has its neighbours around it, at equal angles and at the same distance, the
# *length* of an edge. With `oplus` we draw them around the origin, where that is easy, and carry them to the node:
# `oplus(u, x)` moves the origin to $x$ and everything around it along. `ominus` goes back.

# %%
tree = nx.balanced_tree(r=3, h=4)


def draw_tree(length: float) -> Tensor:
    """A point of the hyperbolic plane for each node; time first."""
    points, parents = {0: lorentz.lift(torch.zeros(2, dtype=torch.float64))}, {}
    for node, children in nx.bfs_successors(tree, 0):
        first = torch.tensor(0.0, dtype=torch.float64)
        if node in parents:  # the parent has the first direction
            _, *seen = lorentz.ominus(points[parents[node]], points[node])
            first = torch.atan2(seen[1], seen[0])
        for number, child in enumerate(children, start=len(children) < tree.degree[node]):
            angle = first + 2 * math.pi * number / tree.degree[node]
            around_origin = lorentz.lift(math.sinh(length) * torch.stack([angle.cos(), angle.sin()]))
            points[child], parents[child] = lorentz.oplus(around_origin, points[node]), node
    return torch.stack([points[node] for node in tree])


figure, axes = plt.subplots(1, 2, figsize=(9, 4.5))
for each, length in zip(axes, (0.5, 2)):
    points = draw_tree(length)
    draw_disk(each)
    each.set_title(f"edges of length {length}")
    for one, other in tree.edges:
        draw_geodesic(each, points[one], points[other], color="0.7", linewidth=0.8)
    each.scatter(*in_disk(points).T, s=8, zorder=3)
figure.savefig(folder / "disk.png")

# %% [markdown]
# This is the Poincaré disk: geodesics are arcs, and towards the edge everything looks smaller than it is. With short
# edges the branches run into each other, as they do on paper; with longer ones they spread out.
#
# ## Measured
#
# Let $d_G(u, v)$ be the number of edges between two nodes, $d(u, v)$ their distance in the drawing, and
#
# $$ \rho_{uv} = d(u, v) / d_G(u, v). $$
#
# * The *average distortion* is the mean of $|s \rho_{uv} - 1|$ with the best scale $s$: 0 at best.
# * The *worst distortion* is $\max \rho / \min \rho$: 1 at best.
# * *mAP* ranks for each node all others from near to far, and is the mean average precision of its neighbours: 1 at
#   best.

# %%
edges = torch.tensor(list(tree.edges)).T


def describe(name: str, found: DistanceFidelity) -> str:
    average, worst, precision = found.average_distortion, found.worst_distortion, found.mean_average_precision
    return f"{name:12}average distortion {average:.3f}, worst {worst:8.3g}, mAP {precision:.3f}"


def measure_drawing(length: float) -> DistanceFidelity:
    points = draw_tree(length)
    return score_distances(lambda nodes: lorentz.dist(points[nodes][:, None], points), edges, len(tree))


drawn = {length: measure_drawing(length) for length in (0.01, 0.5, 1, 2, 4)}
for length, found in drawn.items():
    print(describe(f"length {length}", found))

# %% [markdown]
# A tiny piece of the hyperbolic plane is flat, so that the first row is what this drawing comes to in the Euclidean
# plane. The longer the edges, the nearer is the drawing to the tree itself: all distances agree up to one scale.
#
# ## What networks learn
#
# The embedded dataset `tree` is a random hierarchy with features. A tenth of its links is hidden to test on, and HKN
# and a GCN learn to find links from the others. `measure_distances` then compares the distances between what a
# network makes of the nodes with those in the whole graph. The commands are
# `hkconv train tree --task link --models hkn,gcn` and `hkconv distances RUN`.

# %%
recipe = make_recipe(
    dataset="tree", task="link", models=("hkn", "gcn"), num_splits=1, epochs=100, out=str(folder / "run")
)
summary = train_run(recipe)
for model in summary.models:
    print(f"{model.model:4} test ROC-AUC {model.test.mean:.3f}, average precision {model.test_ap.mean:.3f}")
learned = {training.model: found for training, found in measure_distances(folder / "run")}
for name, found in learned.items():
    print(describe(name, found))

# %% [markdown]
# Hidden links count too, so that nothing here is perfect. Read the rows together: finding links, ranking neighbours
# and keeping distances are three different things, and a network may be ahead in one and behind in another. A worst
# distortion of `inf` says that two nodes lie at the same place.
#
# ## Walk through it
#
# One HTML file that needs no network shows every layer of the HKN in the Poincaré disk. Drag the plane, click nodes,
# look at the kernel points. The command is `hkconv explore RUN`.

# %%
page = folder / "explorer.html"
write_page(read_run_scene(folder / "run"), page)
print(f"open {page} in a browser")
