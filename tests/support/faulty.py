"""Components for runs that are killed, and a process that ends itself in the middle of a save.

Imported by the fork server and by tests, which both see the components by the decorators.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from trainlattice import Options, register_dataset, register_model
from trainlattice.checkpoint.seal import SealedWriter
from trainlattice.contracts.records import DatasetContract, ModelContract
from trainlattice.data import Splits, TensorData


class SmallOptions(Options):
    width: int = 16

    def contract(self) -> ModelContract:
        return ModelContract(input_dim=4, num_outputs=3)


@register_model("dropout_net", options=SmallOptions)
class DropoutNet(nn.Module):
    """Dropout and batch norm: random numbers and buffers."""

    def __init__(self, options: SmallOptions) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(4, options.width),
            nn.BatchNorm1d(options.width),
            nn.GELU(),
            nn.Dropout(0.2),
            nn.Linear(options.width, 3),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class SlowOptions(Options):
    samples: int = 40
    val_samples: int = 12
    delay: float = 0.0
    noisy: bool = False


class Augmented:
    """Samples with noise, each after a delay: time in which to be killed."""

    stochastic = True

    def __init__(self, data: TensorData, delay: float) -> None:
        self.data, self.delay = data, delay

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        time.sleep(self.delay)
        x, y = self.data[index]
        return x + 0.1 * torch.randn(4), y


@register_dataset("augmented", options=SlowOptions)
def open_augmented(options: SlowOptions) -> Splits:
    generator = torch.Generator().manual_seed(11)

    def data(size: int) -> TensorData:
        x = torch.randn(size, 4, generator=generator)
        return TensorData(x, x[:, :3].argmax(dim=1))

    train, val = data(options.samples), data(options.val_samples)
    contract = DatasetContract((4,), "classification", 3)
    if options.noisy:
        return Splits(Augmented(train, options.delay), Augmented(val, options.delay), contract=contract)
    return Splits(train, val, contract=contract)


CALLS = ("fsync", "replace", "link", "unlink", "rename")
"""Each is a function of os; ``write`` is a piece of a checkpoint file."""


def arm(*, number: int, calls: Sequence[str] = CALLS) -> None:
    """From now on the process kills itself at its number-th call of the operating system's functions that concern a
    checkpoint (each once before and once after it took effect)."""
    left = [number]

    def dying(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **more: Any) -> Any:
            _count(left)
            result = function(*arguments, **more)
            _count(left)
            return result

        return call

    for name in calls:
        if name == "write":
            SealedWriter.write = dying(SealedWriter.write)  # type: ignore[method-assign]
        else:
            setattr(os, name, dying(getattr(os, name)))


def _count(left: list[int]) -> None:
    left[0] -= 1
    if left[0] == 0:
        os.kill(os.getpid(), signal.SIGKILL)
