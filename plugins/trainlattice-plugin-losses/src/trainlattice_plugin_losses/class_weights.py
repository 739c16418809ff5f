"""Weights of classes: no part of a loss's state, since its options hold them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from trainlattice.contracts.options import OptionError
from trainlattice.contracts.records import DatasetContract


def weights_tensor(weights: Sequence[float] | None) -> Tensor | None:
    """``[C]`` float32 on the host."""
    return None if weights is None else torch.tensor(weights, dtype=torch.float32, device="cpu")


def require_a_weight_for_each(weights: Sequence[float] | None, data: DatasetContract | None) -> None:
    """
    :raises OptionError: if the dataset has another number of classes.
    """
    if weights is None or data is None or data.num_outputs is None or data.task == "regression":
        return
    if len(weights) != data.num_outputs:
        raise OptionError(
            "class_weights",
            f"there are {len(weights)} weights, and the dataset has {data.num_outputs} classes",
        )


def weights_for(pred: Tensor, weights: Tensor, option: str = "class_weights") -> Tensor:
    """``[C]`` on the device and in the format of predictions ``[N, C, ...]``; copies nothing if it is there.

    :raises ValueError: if predictions have another number of classes.
    """
    if pred.dim() < 2 or pred.shape[1] != len(weights):
        raise ValueError(
            f"{option} has {len(weights)} weights, one for each class, and predictions have the shape "
            f"{list(pred.shape)}: dimension 1 is that of classes"
        )
    return weights.to(pred.device, pred.dtype)


def terms_that_count(target: Tensor, ignore_index: int, weights: Tensor | None) -> Tensor:
    """How many targets are not ignored, or the sum of their classes' weights; a scalar on the target's device.

    :param target: class indices ``[N, ...]``, int64.
    """
    kept = target != ignore_index
    if weights is None:
        return kept.sum()
    # A class that does not exist is not this function's to explain: the loss refuses it.
    classes = target.where(kept, 0).clamp(0, len(weights) - 1)
    return weights[classes].masked_fill(~kept, 0.0).sum()
