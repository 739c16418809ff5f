"""The built-in schedules, each a closed formula of the 0-based optimizer step s."""

from __future__ import annotations

import math

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from trainlattice.contracts.options import OptionError
from trainlattice_plugin_schedulers.options import StepDecayOptions, WarmupOptions


class _Warmup(LRScheduler):
    """``lr * (s + 1) / warmup`` while s < warmup; then a decay over ``(s - warmup) / (total - warmup)``,
    clamped to [0, 1]; ``min_lr`` from s >= total."""

    def __init__(self, options: WarmupOptions, optimizer: Optimizer, total_steps: int | None) -> None:
        self.warmup = options.warmup_steps
        total = options.total_steps or total_steps
        if total is None:
            raise OptionError(
                "total_steps",
                "the training data does not say how long an epoch is: give this option or trainer.max_steps",
            )
        self.total = total
        self.min_lr = options.min_lr
        if self.warmup >= self.total:
            raise OptionError(
                "warmup_steps",
                f"scheduler.warmup_steps ({self.warmup}) must be smaller than the {self.total} optimizer steps "
                "of this run",
            )
        for group in optimizer.param_groups:
            if self.min_lr > group["lr"]:
                raise OptionError("min_lr", f"min_lr ({self.min_lr}) is above optimizer.lr ({group['lr']})")
        super().__init__(optimizer)

    def get_lr(self) -> list[float]:
        return [self.rate(base, self.last_epoch) for base in self.base_lrs]

    def rate(self, base: float, step: int) -> float:
        if step < self.warmup:
            return base * (step + 1) / self.warmup
        if step >= self.total:
            return self.min_lr
        progress = (step - self.warmup) / (self.total - self.warmup)
        return self.min_lr + (base - self.min_lr) * self.decay(progress)

    def decay(self, progress: float) -> float:
        """Share of the rate that is left, from 1 at progress 0 to 0 at progress 1."""
        raise NotImplementedError


class WarmupCosine(_Warmup):
    """Half a cosine (Loshchilov and Hutter 2017, without restarts)."""

    def decay(self, progress: float) -> float:
        return 0.5 * (1.0 + math.cos(math.pi * progress))


class WarmupLinear(_Warmup):
    """A straight line."""

    def decay(self, progress: float) -> float:
        return 1.0 - progress


class StepDecay(LRScheduler):
    """``lr * gamma ** (s // step_size)``."""

    def __init__(self, options: StepDecayOptions, optimizer: Optimizer) -> None:
        self.step_size = options.step_size
        self.gamma = options.gamma
        super().__init__(optimizer)

    def get_lr(self) -> list[float]:
        return [base * self.gamma ** (self.last_epoch // self.step_size) for base in self.base_lrs]
