"""Layers that several models have."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from torch import nn


def hidden_layers(widths: Sequence[int], dropout: float) -> list[nn.Module]:
    """Linear -> GELU -> Dropout from each width to the next."""
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(widths):
        layers += [nn.Linear(before, after), nn.GELU(), nn.Dropout(dropout)]
    return layers
