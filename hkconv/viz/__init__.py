"""Pictures: the explorer page for hyperbolic embeddings, and static figures.

Each function draws one figure and returns a matplotlib ``Figure``, which :func:`save_figure` writes.
"""

from hkconv.report.figures import kernel_scores_figure
from hkconv.report.style import save_figure
from hkconv.viz.class_figures import class_distances_figure, confusion_figure
from hkconv.viz.convolution import convolution_figure
from hkconv.viz.kernel_points import kernel_points_figure
from hkconv.viz.repulsion_gradient import repulsion_gradient_figure
from hkconv.viz.training_curves import training_curves_figure
from hkconv.viz.views import views_figure

__all__ = [
    "class_distances_figure",
    "confusion_figure",
    "convolution_figure",
    "kernel_points_figure",
    "kernel_scores_figure",
    "repulsion_gradient_figure",
    "save_figure",
    "training_curves_figure",
    "views_figure",
]
