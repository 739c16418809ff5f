"""Targets of a classification: any integer width is taken, and what cannot be a class is explained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from trainlattice.data.container import container_of
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


def outside_classes(
    target: Tensor, classes: int, ignore_index: int | None = None, rows: Tensor | None = None
) -> str | None:
    """Row and value of the first target that is no class, or None.

    :param rows: which rows of the dataset these are; by default the first ones.
    """
    outside = (target < 0) | (target >= classes)
    if ignore_index is not None:
        outside &= target != ignore_index
    place = _first(outside)
    if place is None:
        return None
    return f"target {target[place].item()} in row {_row(place, rows)} is outside 0..{classes - 1}"


def not_finite(target: Tensor, rows: Tensor | None = None) -> str | None:
    """Row and value of the first target that is NaN or infinite, or None; ``rows`` as above."""
    if not target.is_floating_point():
        return None
    place = _first(~torch.isfinite(target))
    if place is None:
        return None
    return f"target {target[place].item()} in row {_row(place[:1], rows)} is not finite"


@dataclass(frozen=True)
class TargetCheck:
    """Looks at the targets of each batch where it is loaded, for data that cannot be looked at as a whole.

    :param split: for the message.
    :param classes: of a classification; None where they are not known or the task is another one.
    """

    split: str
    classifies: bool
    classes: int | None
    ignore_index: int | None

    def __call__(self, batch: Any, rows: Tensor | None) -> None:
        """
        :param rows: indices of the samples in the dataset, if it has any.
        :raises TargetError: for a target that no loss can take.
        """
        target = container_of(batch).get("target")
        if not isinstance(target, Tensor):
            return
        if not self.classifies:
            fault = not_finite(target, rows)
        elif self.classes is not None:
            fault = outside_classes(class_target(target), self.classes, self.ignore_index, rows)
        else:
            fault = None
        if fault is not None:
            raise TargetError(f"the {self.split} data: {fault}")


def _first(faults: Tensor) -> tuple[int, ...] | None:
    found = faults.nonzero()
    return tuple(found[0].tolist()) if len(found) else None


def _row(place: tuple[int, ...], rows: Tensor | None) -> int | list[int]:
    row = place[0] if rows is None else int(rows[place[0]])
    return row if len(place) == 1 else [row, *place[1:]]


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
