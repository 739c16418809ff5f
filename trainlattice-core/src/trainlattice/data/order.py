"""The order of samples: a pure function of (seed, epoch), never of the global random state."""

from __future__ import annotations

import torch
from torch import Tensor

from trainlattice.data.seeding import mixed_seed

ORDER_VERSION = 1
"""Kept in every checkpoint: a run is resumed only with the order that it began with."""


def epoch_order(size: int, *, seed: int, epoch: int) -> Tensor:
    """A permutation of ``range(size)`` as int64 ``[size]``; every epoch has another one."""
    generator = torch.Generator().manual_seed(mixed_seed(seed, epoch))
    return torch.randperm(size, generator=generator)
