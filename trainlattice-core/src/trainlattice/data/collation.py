"""Samples to a batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

from torch.utils.data._utils import collate as torchs

Collate = Callable[[list[Any]], Any]


def collate_of(dataset: Any) -> Collate:
    """The dataset's own ``collate_fn(samples)`` if it has one, else :func:`collate`."""
    own: Collate | None = getattr(dataset, "collate_fn", None)
    return collate if own is None else own


def collate(samples: list[Any]) -> Any:
    """As :func:`torch.utils.data.default_collate`; of dataclasses, at any depth, one whose fields are collated."""
    return torchs.collate(samples, collate_fn_map=_BY_TYPE)


class _OfInstances(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return is_dataclass(instance) and not isinstance(instance, type)


class _Dataclass(metaclass=_OfInstances):
    """What every instance of a dataclass is an instance of: torch looks up by type."""


def _collate_dataclass(samples: list[Any], *, collate_fn_map: Any = None) -> Any:
    batch = object.__new__(type(samples[0]))  # its __init__ may want what a single sample has
    for field in fields(samples[0]):
        held = [getattr(sample, field.name) for sample in samples]
        object.__setattr__(batch, field.name, torchs.collate(held, collate_fn_map=collate_fn_map))
    return batch


_BY_TYPE = {**torchs.default_collate_fn_map, _Dataclass: _collate_dataclass}
