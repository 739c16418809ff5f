"""Values normalised by a mean and a deviation: given ones, or those of training."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from trainlattice_plugin_postprocess.options import MeanStdOptions, RunningOptions


class MeanStd(nn.Module):
    """``(value - mean) / std``, or ``value * std + mean`` with ``inverse``."""

    def __init__(self, options: MeanStdOptions) -> None:
        super().__init__()
        self.dim, self.inverse = options.dim, options.inverse
        # Of the configuration, not of the training: a checkpoint need not hold them.
        self.register_buffer("mean", torch.tensor(options.mean), persistent=False)
        self.register_buffer("std", torch.tensor(options.std), persistent=False)

    def forward(self, value: Tensor) -> Tensor:
        mean, std = (_beside(held, value, self.dim) for held in (self.mean, self.std))
        return value * std + mean if self.inverse else (value - mean) / std


class RunningStats(nn.Module):
    """Normalises by mean and variance of all values that training has seen so far, this batch included; a
    validation changes nothing.

    Mean and sum of squares are put together as Chan, Golub and LeVeque (1979) do, in float64. The variance is that
    of the whole (divided by the count). No gradient goes through the statistics.
    """

    count: Tensor
    mean: Tensor
    squares: Tensor

    def __init__(self, options: RunningOptions) -> None:
        super().__init__()
        self.dim, self.eps = options.dim, options.eps
        for name in ("count", "mean", "squares"):
            self.register_buffer(name, torch.zeros((), dtype=torch.float64))

    def forward(self, value: Tensor) -> Tensor:
        if self.training:
            self._take_in(value.detach())
        mean = self.mean
        variance = torch.where(self.count > 0, self.squares / self.count.clamp(min=1), torch.ones_like(mean))
        scale = (variance + self.eps).rsqrt()
        dim = self.dim if self.dim is not None else 0
        return (value - _beside(mean, value, dim)) * _beside(scale, value, dim)

    def _take_in(self, value: Tensor) -> None:
        rows = value.reshape(1, -1) if self.dim is None else value.movedim(self.dim, 0).flatten(1)
        rows = rows.to(torch.float64)
        count, mean = rows.shape[1], rows.mean(1)
        squares = (rows - mean[:, None]).square().sum(1)
        if self.dim is None:
            mean, squares = mean[0], squares[0]
        total = self.count + count
        change = mean - self.mean
        self.squares = self.squares + squares + change.square() * self.count * count / total
        self.mean = self.mean + change * count / total
        self.count = total

    def _load_from_state_dict(self, state_dict, prefix, *arguments):  # type: ignore[no-untyped-def]
        for name in ("count", "mean", "squares"):  # they got their shape from the first batch
            held = state_dict.get(prefix + name)
            if held is not None:
                setattr(self, name, torch.zeros_like(held, device=getattr(self, name).device))
        super()._load_from_state_dict(state_dict, prefix, *arguments)


def _beside(held: Tensor, value: Tensor, dim: int) -> Tensor:
    """In the type of the values, a number for each channel along its dimension."""
    held = held.to(value.dtype)
    if held.dim() == 0:
        return held
    shape = [1] * value.dim()
    shape[dim] = len(held)
    return held.reshape(shape)
