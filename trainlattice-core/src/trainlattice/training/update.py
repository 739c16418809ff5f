"""One optimizer with its schedule, scaler and clipping: how gradients become an update."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from trainlattice.diagnostics.errors import NonFiniteError
from trainlattice.training.nonfinite import FiniteGuard
from trainlattice.training.strategy import Strategy

SMALLEST_SCALE = 2.0**-24
Outcome = Literal["applied", "skipped by the scaler", "skipped as not finite", "nothing counts"]


class Update:
    """The part of a step that one optimizer has.

    :param guard: watches losses and gradients; None watches nothing. A scaler finds infinities by itself.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        strategy: Strategy,
        *,
        scheduler: LRScheduler | None = None,
        scaler: torch.amp.GradScaler | None = None,
        max_grad_norm: float | None = None,
        guard: FiniteGuard | None = None,
    ) -> None:
        self.optimizer = optimizer
        self.scheduler = scheduler
        self.scaler = scaler
        self.max_grad_norm = max_grad_norm
        self.strategy = strategy
        self.guard = guard if scaler is None and guard is not None and guard.watches else None
        self.grad_norm: Tensor | None = None
        self.observe_gradients: Callable[[], None] | None = None
        """Called when the gradients of a window are complete and unscaled, before they are clipped."""
        self.applied_lr = self.next_lr
        self.parameters = [p for group in optimizer.param_groups for p in group["params"]]
        self._defers = (
            self.guard is not None
            and self.guard.policy == "stop"
            and getattr(optimizer, "_step_supports_amp_scaling", False)
        )
        if self._defers and self.guard is not None:
            # torch's fused optimizers leave weights and state alone where found_inf is set.
            optimizer.grad_scale = None  # type: ignore[attr-defined]
            optimizer.found_inf = self.guard.flag  # type: ignore[attr-defined]

    @property
    def next_lr(self) -> float:
        """The rate that the next step would apply (first parameter group)."""
        lr: float = self.optimizer.param_groups[0]["lr"]
        return lr

    @property
    def implementation(self) -> str | None:
        """``fused``, ``foreach`` or ``loop`` where the optimizer says which; kept in checkpoints, since the
        last bits differ."""
        group = self.optimizer.param_groups[0]
        if "foreach" not in group and "fused" not in group:
            return None
        if group.get("fused"):
            return "fused"
        if group.get("foreach") is None:
            return None
        return "foreach" if group["foreach"] else "loop"

    def begin_window(self) -> None:
        """One in which it may have no part: what the last one measured is not of this one."""
        self.grad_norm, self.applied_lr = None, self.next_lr

    def zero_grad(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)

    def backward(self, loss: Tensor) -> None:
        self.strategy.backward(loss if self.scaler is None else self.scaler.scale(loss))

    def apply(self, losses: Sequence[Tensor]) -> Outcome:
        """Unscale, let observers look, clip, look for what is not finite, step, then the schedule.

        A step that is skipped changes nothing and advances no schedule.

        :param losses: of the micro-batches of the window.
        """
        self.applied_lr = self.next_lr
        if self.scaler is not None:
            self.scaler.unscale_(self.optimizer)
        if self.observe_gradients is not None:
            self.observe_gradients()
        if self.max_grad_norm is not None:
            self.grad_norm = self.strategy.clip(self.parameters, self.max_grad_norm)
        if self.guard is not None:
            gradients = [p.grad for p in self.parameters if p.grad is not None]
            self.guard.inspect(losses, gradients, self.grad_norm)
            if not self._defers and self.guard.refuses_now():
                return "skipped as not finite"
        if self.scaler is None:
            self.optimizer.step()
        elif not self._scaled_step(self.scaler):
            return "skipped by the scaler"
        if self.scheduler is not None:
            self.scheduler.step()
        return "applied"

    def _scaled_step(self, scaler: torch.amp.GradScaler) -> bool:
        """One step and one update of the scale for each window; whether the step was taken."""
        before = scaler.get_scale()
        scaler.step(self.optimizer)
        scaler.update()
        after = scaler.get_scale()
        if after < SMALLEST_SCALE:
            raise NonFiniteError(
                "the gradients stayed non-finite however small the gradient scale of fp16 became: the loss or the "
                "data is not finite; bf16 has the range of fp32"
            )
        return after >= before

    def state_dict(self) -> dict[str, Any]:
        return {
            "implementation": self.implementation,
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
