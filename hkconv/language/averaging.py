"""The average of several checkpoints, which translates better than the last one (Vaswani et al. 2017)."""

import geoopt
import torch
from torch import Tensor

from hkconv.errors import InputError
from hkconv.geometry import lorentz
from hkconv.geometry.manifold import Lorentz


@torch.no_grad()
def load_average(model: torch.nn.Module, checkpoints: list[dict[str, Tensor]]) -> None:
    r"""Give a model the average of some weights of its own.

    Numbers are averaged as they are. Points of a hyperboloid become their centroid, for the mean of points lies
    inside it; a learned curvature is averaged first. What counts in whole numbers is taken from the last checkpoint.

    Args:
        model: takes the average.
        checkpoints: state dictionaries of the model, the latest last.
    """
    if not checkpoints:
        raise InputError("there are no checkpoints to average")
    if len(checkpoints) == 1:
        # As it is, to the last bit.
        model.load_state_dict(checkpoints[0])
        return
    means = {name: _mean([weights[name] for weights in checkpoints]) for name in checkpoints[-1]}
    model.load_state_dict(means)
    for name, parameter in model.named_parameters():
        if isinstance(parameter, geoopt.ManifoldParameter) and isinstance(parameter.manifold, Lorentz):
            curvature = parameter.manifold.curvature
            stacked = torch.stack([weights[name] for weights in checkpoints]).to(parameter.device, torch.float64)
            # A learned curvature differs from one checkpoint to the next, and the points with it.
            points = lorentz.lift(stacked[..., 1:], curvature)
            parameter.copy_(lorentz.centroid(points, dim=0, curvature=curvature))


def _mean(tensors: list[Tensor]) -> Tensor:
    if not tensors[-1].is_floating_point():
        return tensors[-1]
    return torch.stack(tensors).mean(0, dtype=torch.float64).to(tensors[-1].dtype)
