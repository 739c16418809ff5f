"""What shapes of predictions and targets go together."""

from __future__ import annotations

from torch import Tensor


def require_same_shape(pred: Tensor, target: Tensor) -> None:
    """Broadcasting would compare every prediction with every target, without a word."""
    if pred.shape != target.shape:
        raise ValueError(
            f"predictions have the shape {list(pred.shape)} and targets {list(target.shape)}: they must be equal"
        )


def lacks_channel(pred: Tensor, target: Tensor) -> bool:
    """Whether predictions are ``[N, 1, ...]`` and targets ``[N, ...]``."""
    return pred.dim() > 1 and pred.shape[1] == 1 and target.shape == pred.shape[:1] + pred.shape[2:]
