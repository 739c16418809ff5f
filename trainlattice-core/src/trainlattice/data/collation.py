"""Samples to a batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

from torch.utils.data import default_collate

Collate = Callable[[list[Any]], Any]


def collate_of(dataset: Any) -> Collate:
    """The dataset's own ``collate_fn(samples)`` if it has one, else :func:`collate`."""
    own: Collate | None = getattr(dataset, "collate_fn", None)
    return collate if own is None else own


def collate(samples: list[Any]) -> Any:
    """As :func:`torch.utils.data.default_collate`, and of dataclasses one whose fields are collated."""
    first = samples[0]
    if not is_dataclass(first) or isinstance(first, type):
        return default_collate(samples)
    batch = object.__new__(type(first))  # its __init__ may want what a single sample has
    for field in fields(first):
        object.__setattr__(batch, field.name, collate([getattr(sample, field.name) for sample in samples]))
    return batch
