"""Compares the weights of two checkpoints, bit by bit."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trainlattice.checkpoint.store import load


@dataclass(frozen=True)
class TensorDifference:
    """A tensor that is not the same in two checkpoints.

    :param largest: absolute difference; None where shapes or types differ, one side has none, or a value is
        not finite.
    :param note: how it differs, where that is not in a number.
    """

    path: str
    largest: float | None
    note: str = ""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def weight_differences(a: Path, b: Path) -> tuple[int, list[TensorDifference]]:
    """How many tensors the models, and a loss that learns, have, and those that differ in any bit.

    :raises CheckpointError: if a checkpoint is damaged.
    """
    left, right = dict(_weights(a)), dict(_weights(b))
    names = list(dict.fromkeys((*left, *right)))
    found = [(name, _difference(left.get(name), right.get(name))) for name in names]
    return len(names), [TensorDifference(name, *differs) for name, differs in found if differs is not None]


def _weights(path: Path) -> Iterator[tuple[str, Tensor]]:
    for name, state in load(path).states.items():
        if name.startswith("model/") or name == "loss":
            for key, value in state.items() if isinstance(state, Mapping) else ():
                if isinstance(value, Tensor):
                    yield f"{name}/{key}", value


def _difference(a: Tensor | None, b: Tensor | None) -> tuple[float | None, str] | None:
    """None if they are the same in type, shape and every bit."""
    if a is None or b is None:
        return None, f"only in {'a' if b is None else 'b'}"
    if a.dtype != b.dtype or a.shape != b.shape:
        return None, f"{_described(a)} in a, {_described(b)} in b"
    if torch.equal(_bits(a), _bits(b)):
        return None
    wide = torch.complex128 if a.is_complex() else torch.float64
    largest = (a.to(wide) - b.to(wide)).abs().max().item()
    if math.isfinite(largest):
        return largest, "in the sign of zero" if largest == 0 else ""
    return None, "in values that are not finite"


def _bits(tensor: Tensor) -> Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def _described(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"
