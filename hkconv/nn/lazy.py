"""Layers that take the dimension of their input from the first points they see, as PyG's lazy layers do."""

from typing import Any, cast

import geoopt
import torch
from torch.nn.parameter import UninitializedParameter, is_lazy

from hkconv.errors import InputError
from hkconv.geometry.checks import check_tensor


class LazyInput(torch.nn.Module):
    """A layer with ``in_dim=-1`` until its first points, or the state that is loaded, say what it is.

    Run one batch before an optimizer that counts parameters, a compiler or a copy to other processes needs the layer.
    """

    in_dim: int
    #: The tensor of the layer's state with ``in_dim + 1`` columns.
    sized_by: str

    def wait_for_points(self) -> None:
        """Have the dimension set by the first input, if it is not known."""
        if self.in_dim == -1:
            self._hook = self.register_forward_pre_hook(_read_dim, with_kwargs=True)

    def zeros(self, *sizes: int, waiting: torch.nn.Parameter | None = None) -> torch.nn.Parameter:
        """A parameter of zeros, whose memory waits for ``in_dim``: a new one, or the one that has waited."""
        if self.in_dim == -1:
            return cast(torch.nn.Parameter, UninitializedParameter())
        if self.in_dim < 1:
            raise InputError(f"in_dim must be at least 1, got {self.in_dim}; -1 takes it from the first points")
        if not isinstance(waiting, UninitializedParameter):
            return torch.nn.Parameter(torch.zeros(sizes))
        waiting.materialize(sizes)
        torch.nn.init.zeros_(waiting)
        return waiting

    def set_in_dim(self, in_dim: int) -> None:
        """Set the dimension, once, here and in the layers inside; make the tensors that wait for it."""
        self.in_dim = in_dim
        self._hook.remove()
        del self._hook
        for layer in self.children():
            if isinstance(layer, LazyInput):
                layer.set_in_dim(in_dim)

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        # A tensor without a size cannot be detached.
        super()._save_to_state_dict(destination, prefix, keep_vars or self.in_dim == -1)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        sized = state_dict.get(prefix + self.sized_by)
        if self.in_dim == -1 and sized is not None and not is_lazy(sized):
            self.set_in_dim(sized.size(-1) - 1)
        super()._load_from_state_dict(state_dict, prefix, *args)


class LaterPoints(UninitializedParameter):
    """Points of a manifold whose number of coordinates is not known yet."""

    cls_to_become = geoopt.ManifoldParameter
    manifold: geoopt.Manifold


@torch.no_grad()
def _read_dim(layer: LazyInput, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    x = args[0] if args else kwargs["x"]
    x = x[0] if isinstance(x, tuple | list) else x
    check_tensor(x, "x")
    layer.set_in_dim(x.size(-1) - 1)
