"""Components whose every number can be computed by hand, registered by the decorators.

``line`` is ``y = w * x``; with every ``x = 1`` the loss is ``mean((w - y)^2)`` and its gradient
``2 (w - mean(y))``. ``points`` are the samples that the configuration lists. ``scripted`` yields validation
losses as written in :data:`SCRIPT` (with ``line`` and ``l1``), one for each validation.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from trainlattice import Options, register_dataset, register_model
from trainlattice.contracts.records import DatasetContract, ModelContract
from trainlattice.data import Splits, TensorData


class LineOptions(Options):
    w0: float = 0.0

    def contract(self) -> ModelContract:
        return ModelContract(input_dim=1, num_outputs=1)


@register_model("line", options=LineOptions)
class Line(nn.Module):
    """y = w * x"""

    def __init__(self, options: LineOptions) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor(options.w0))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.w


class PointsOptions(Options):
    x: tuple[float, ...]
    y: tuple[float, ...]
    val_x: tuple[float, ...] = ()
    val_y: tuple[float, ...] = ()

    def contract(self) -> DatasetContract:
        return DatasetContract((1,), "regression", 1)


def _column(values: tuple[float, ...]) -> Tensor:
    return torch.tensor(values).unsqueeze(1)


@register_dataset("points", options=PointsOptions)
def open_points(options: PointsOptions) -> Splits:
    """The samples that the configuration lists."""
    train = TensorData(_column(options.x), _column(options.y))
    val = TensorData(_column(options.val_x), _column(options.val_y)) if options.val_x else None
    return Splits(train, val, contract=options.contract())


SCRIPT: list[float] = []
"""Validation losses to come; set it before a run, and before each resume."""


class _Scripted:
    def __len__(self) -> int:
        return 1

    def fingerprint(self) -> str:
        return "scripted"  # else a sample would be fetched, and there is one for each validation

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        value = SCRIPT.pop(0)
        if not math.isfinite(value):  # as a target it would be refused
            return torch.tensor([value]), torch.zeros(1)
        return torch.zeros(1), torch.tensor([value])


@register_dataset("scripted")
def open_scripted() -> Splits:
    """Two samples without a gradient, and validation losses from SCRIPT."""
    train = TensorData(torch.zeros(2, 1), torch.zeros(2, 1))
    return Splits(train, _Scripted(), contract=DatasetContract((1,), "regression", 1))


def line(**sections: dict) -> dict:
    """A configuration of ``line`` with mean squared error and SGD at rate 0.1, without validation."""
    config = {
        "model": {"name": "line"},
        "dataset": {"name": "points", "x": [1.0], "y": [1.0], "batch_size": 1},
        "loss": {"name": "mse"},
        "optimizer": {"name": "sgd", "lr": 0.1},
        "trainer": {"log_every": 1},
    }
    for section, values in sections.items():
        config[section] = {**config.get(section, {}), **values}
    return config


def scripted(values: list[float], **trainer: object) -> dict:
    """A configuration whose validation losses are these values."""
    SCRIPT[:] = values
    return {
        "model": {"name": "line"},
        "dataset": {"name": "scripted"},
        "loss": {"name": "l1"},
        "optimizer": {"name": "sgd"},
        "trainer": {"epochs": len(values), **trainer},
    }
