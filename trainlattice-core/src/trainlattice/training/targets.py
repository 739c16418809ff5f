"""Targets of a classification: any integer width is taken, and what cannot be a class is explained."""

from __future__ import annotations

import torch
from torch import Tensor

from trainlattice.diagnostics.errors import TrainLatticeError


class TargetError(TrainLatticeError):
    """A target that the loss cannot take."""

    exit_code = 2


def class_target(target: Tensor) -> Tensor:
    """Class indices as int64.

    :raises TargetError: for floating-point targets: 1.0 may be a class or a measurement.
    """
    if target.is_floating_point() or target.is_complex():
        raise TargetError(
            f"the target is {_name(target.dtype)}, and a classification takes class indices: give integers, or "
            "name a regression loss"
        )
    return target.to(torch.int64)


def explain_target(pred: Tensor, target: Tensor, ignore_index: int | None) -> str | None:
    """Why a classification loss refused this target: shapes, or the first class that does not exist. None if the
    target is not at fault."""
    expected = [*pred.shape[:1], *pred.shape[2:]]
    if list(target.shape) != expected:
        return f"the target has the shape {list(target.shape)}, and logits {list(pred.shape)} need {expected}"
    if target.is_meta or target.dtype != torch.int64:
        return None
    return outside_classes(target, pred.shape[1], ignore_index)


def outside_classes(target: Tensor, classes: int, ignore_index: int | None = None) -> str | None:
    """Row and value of the first target that is no class, or None."""
    outside = (target < 0) | (target >= classes)
    if ignore_index is not None:
        outside &= target != ignore_index
    rows = outside.nonzero()
    if not len(rows):
        return None
    place = tuple(rows[0].tolist())
    row = place[0] if len(place) == 1 else list(place)
    return f"target {target[place].item()} in row {row} is outside 0..{classes - 1}"


def not_finite(target: Tensor) -> str | None:
    """Row and value of the first target that is NaN or infinite, or None."""
    if not target.is_floating_point():
        return None
    rows = (~torch.isfinite(target)).nonzero()
    if not len(rows):
        return None
    place = tuple(rows[0].tolist())
    return f"target {target[place].item()} in row {place[0]} is not finite"


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
