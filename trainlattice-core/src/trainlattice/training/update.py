"""One optimizer with its schedule, scaler and clipping: how gradients become an update."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from trainlattice.training.strategy import Strategy


class Update:
    """The part of a step that one optimizer has."""

    def __init__(
        self,
        optimizer: Optimizer,
        strategy: Strategy,
        *,
        scheduler: LRScheduler | None = None,
        scaler: torch.amp.GradScaler | None = None,
        max_grad_norm: float | None = None,
    ) -> None:
        self.optimizer = optimizer
        self.scheduler = scheduler
        self.scaler = scaler
        self.max_grad_norm = max_grad_norm
        self.strategy = strategy
        self.applied_lr = self.next_lr

    @property
    def next_lr(self) -> float:
        """The rate that the next step would apply (first parameter group)."""
        lr: float = self.optimizer.param_groups[0]["lr"]
        return lr

    def zero_grad(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)

    def backward(self, loss: Tensor) -> None:
        self.strategy.backward(loss if self.scaler is None else self.scaler.scale(loss))

    def apply(self) -> bool:
        """Unscale, clip, step, then the schedule; whether the weights were updated.

        A window that the scaler skips for non-finite gradients changes nothing and advances no schedule.
        """
        applied = True
        self.applied_lr = self.next_lr
        if self.scaler is not None:
            self.scaler.unscale_(self.optimizer)
        if self.max_grad_norm is not None:
            self.strategy.clip(self._parameters(), self.max_grad_norm)
        if self.scaler is None:
            self.optimizer.step()
        else:
            before = self.scaler.get_scale()
            self.scaler.step(self.optimizer)
            self.scaler.update()
            applied = self.scaler.get_scale() >= before
        if applied and self.scheduler is not None:
            self.scheduler.step()
        return applied

    def _parameters(self) -> list[Tensor]:
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    def state_dict(self) -> dict[str, Any]:
        return {
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict() if self.scheduler is not None else None,
            "scaler": self.scaler.state_dict() if self.scaler is not None else None,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.optimizer.load_state_dict(state["optimizer"])
        for name in ("scheduler", "scaler"):
            held, saved = getattr(self, name), state[name]
            if (held is None) != (saved is None):
                had, has = ("no", "one") if saved is None else ("a", "none")
                raise KeyError(f"it was saved with {had} {name}, and this run has {has}")
            if held is not None:
                held.load_state_dict(saved)
