"""Compares two checkpoints part by part, bit by bit, and names the first difference."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trainlattice.checkpoint.store import load

WEIGHTS = ("weights", "loss")
"""The parts that hold weights and buffers."""
_PARTS = {"model": "weights", "other": "other components"}
_OF_UPDATE = {"scheduler": "scheduler", "scaler": "scaler"}
_TIMES = (("progress", "seconds"), ("progress", "data_seconds"))
_LONGEST = 60
Place = tuple[Any, ...]


@dataclass(frozen=True)
class PartIdentity:
    """How one part of two checkpoints compares.

    :param file: the checkpoint's name.
    :param name: ``weights``, ``optimizer``, ``rng`` and so on.
    :param tensors: how many were compared.
    :param values: numbers and texts beside them.
    :param differing: how many of both differ, or stand on one side only.
    :param first: the first that does, with its path; empty if none.
    """

    file: str
    name: str
    tensors: int = 0
    values: int = 0
    differing: int = 0
    first: str = ""

    @property
    def same(self) -> bool:
        return self.differing == 0

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "same": self.same}


def compare_checkpoints(a: Path, b: Path, *, only: tuple[str, ...] | None = None) -> list[PartIdentity]:
    """What two runs of one configuration share: states, progress without times, the Trainer's state, random states,
    version of the order, and the length of the schedule.

    A file that only one of them has is a difference; where both lack it there is nothing to compare.

    :param only: names of parts, if not all.
    :raises CheckpointError: if one is damaged.
    """
    present = a.is_file(), b.is_file()
    if not all(present):
        missing = a if present[1] else b
        return [PartIdentity(a.name, "file", differing=1, first=f"{missing} does not exist")] * any(present)
    left, right = (dict(_leaves(_shared(path))) for path in (a, b))
    places: dict[str, list[Place]] = {}
    for place in dict.fromkeys((*left, *right)):
        places.setdefault(_part(place), []).append(place)
    parts = [
        _compared(a.name, name, found, left, right)
        for name, found in places.items()
        if only is None or name in only
    ]
    return [part for part in parts if part.tensors or part.values or not part.same]


def _shared(path: Path) -> dict[str, Any]:
    held = load(path)
    return {
        **held.states,
        "trainer": held.trainer,
        "rng": held.rng,
        "header": {"kind": held.kind, "order": held.order, "budget": held.budget},
    }


def _leaves(value: Any, place: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Everything that holds nothing else; an empty container is one too."""
    if place in _TIMES:
        return
    below = value.items() if isinstance(value, Mapping) else enumerate(value) if _is_list(value) else ()
    if not below:
        yield place, value
    for key, item in below:
        yield from _leaves(item, (*place, key))


def _is_empty(value: Any) -> bool:
    return isinstance(value, (Mapping, list, tuple)) and not value


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and bool(value)


def _part(place: Place) -> str:
    """``model/model`` is the weights; ``update/optimizer`` holds an optimizer, a scheduler and a scaler."""
    head = str(place[0])
    kind = head.partition("/")[0]
    if kind == "update":
        return _OF_UPDATE.get(str(place[1]) if len(place) > 1 else "", "optimizer")
    return _PARTS.get(kind, head)


def _compared(
    file: str, name: str, places: list[Place], left: Mapping[Place, Any], right: Mapping[Place, Any]
) -> PartIdentity:
    held = [left.get(place, right.get(place)) for place in places]
    tensors = sum(isinstance(value, Tensor) for value in held)
    values = sum(value is not None and not _is_empty(value) for value in held) - tensors
    differing, first = 0, ""
    for place in places:
        found = _difference(place, left, right)
        if found is not None:
            differing += 1
            first = first or f"{'/'.join(map(str, place))}: {found}"
    return PartIdentity(file, name, tensors, values, differing, first)


def _difference(place: Place, left: Mapping[Place, Any], right: Mapping[Place, Any]) -> str | None:
    """None for what is the same in type and every bit."""
    if place not in left or place not in right:
        return f"only in the {'first' if place in left else 'second'}"
    a, b = left[place], right[place]
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return _of_tensors(a, b)
    if type(a) is not type(b) or (_bits(a) != _bits(b) if isinstance(a, float) else a != b):
        return f"{_text(a)} | {_text(b)}"
    return None


def _of_tensors(a: Tensor, b: Tensor) -> str | None:
    if a.dtype != b.dtype or a.shape != b.shape:
        return f"{a.dtype} {list(a.shape)} | {b.dtype} {list(b.shape)}"
    bits = [tensor.contiguous().reshape(-1).view(torch.uint8) for tensor in (a, b)]
    if torch.equal(*bits):
        return None
    count = int((bits[0] != bits[1]).reshape(a.numel(), -1).any(dim=1).sum())
    wide = torch.complex128 if a.is_complex() else torch.float64
    largest = (a.to(wide) - b.to(wide)).abs().max().item()
    by = f", by up to {largest:.3g}" if math.isfinite(largest) else ""
    return f"{count} of {a.numel()} elements differ{by}"


def _bits(value: float) -> bytes:
    """NaN is the same as NaN, and zero is not the same as minus zero."""
    return struct.pack("<d", value)


def _text(value: Any) -> str:
    text = f"a tensor {list(value.shape)}" if isinstance(value, Tensor) else repr(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
