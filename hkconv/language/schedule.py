"""The learning rate of the Transformer (Vaswani et al. 2017), which HyboNet and the paper train with too."""


def noam(step: int, dim: int, warmup: int, factor: float = 1.0) -> float:
    r"""The learning rate of a step: it rises linearly for ``warmup`` steps, then falls as the square root.

    .. math::
        \eta(t) = f \, d^{-1/2} \min\left(t^{-1/2},\; t \, w^{-3/2}\right)

    Args:
        step: :math:`t`, from 1.
        dim: :math:`d`, dimension of the model.
        warmup: :math:`w`, steps until the highest rate.
        factor: :math:`f`.
    """
    return factor * dim**-0.5 * min(step**-0.5, step * warmup**-1.5)
