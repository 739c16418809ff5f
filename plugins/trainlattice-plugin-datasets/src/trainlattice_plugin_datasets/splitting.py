"""Splits samples into training and validation, by a seed."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def split(
    count: int, val_fraction: float, seed: int, labels: Sequence[int] | Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Indices of training and validation samples, each ascending (int64).

    :param labels: class of each sample: then each class gives its share of validation samples.
    :raises ValueError: if either side would be empty.
    """
    generator = torch.Generator().manual_seed(seed)
    groups: list[Tensor]
    if labels is None:
        groups = [torch.arange(count)]
    else:
        classes = torch.as_tensor(labels)
        groups = [(classes == c).nonzero().flatten() for c in classes.unique(sorted=True)]
    train, val = [], []
    for group in groups:
        shuffled = group[torch.randperm(len(group), generator=generator)]
        held_out = math.floor(len(group) * val_fraction + 0.5)
        val.append(shuffled[:held_out])
        train.append(shuffled[held_out:])
    train_indices, val_indices = (torch.cat(parts).sort().values for parts in (train, val))
    if not len(train_indices) or not len(val_indices):
        raise ValueError(
            f"{count} samples with val_fraction {val_fraction} leave {len(train_indices)} for training and "
            f"{len(val_indices)} for validation"
        )
    return train_indices, val_indices
