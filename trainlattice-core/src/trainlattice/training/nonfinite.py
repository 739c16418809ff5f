"""What happens when a loss or a gradient is NaN or infinite: stop, skip or continue."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from trainlattice.diagnostics.errors import NonFiniteError

Policy = Literal["stop", "skip", "continue"]


class FiniteGuard:
    """Watches losses and gradients on the device.

    With ``stop`` the flag, once raised, stays: a fused optimizer takes it as ``found_inf`` and leaves the
    weights alone from that step on, until the host looks (at a log, an epoch's end, before a checkpoint). So
    the optimizer never sees a bad gradient, and no step waits for the device. ``skip`` decides each step on
    the host. ``continue`` watches nothing.
    """

    def __init__(self, policy: Policy, device: torch.device, *, budget: int) -> None:
        self.policy = policy
        self.budget = budget
        self.skipped = 0
        self.flag = torch.zeros((), device=device)
        self._one = torch.ones((), device=device)
        self._clean_steps = torch.zeros((), dtype=torch.int64, device=device)

    @property
    def watches(self) -> bool:
        return self.policy != "continue"

    def inspect(self, losses: Sequence[Tensor], gradients: Sequence[Tensor], norm: Tensor | None) -> None:
        """Raises the flag if any value is not finite. ``norm`` is the total gradient norm where it is known."""
        if norm is not None:
            values = [norm.detach().float(), *(loss.detach().float() for loss in losses)]
        else:
            dense = [g.coalesce().values() if g.is_sparse else g for g in gradients]
            values = [*dense, *(loss.detach() for loss in losses)]
        for group in _by_type(values):
            # The scaler's kernel: one pass over all tensors, which are multiplied by one.
            torch._amp_foreach_non_finite_check_and_unscale_(group, self.flag, self._one)

    def count_step(self) -> None:
        """After each step that was not refused."""
        if self.policy == "stop":
            self._clean_steps += self.flag == 0

    def refuses_now(self) -> bool:
        """Whether this step must not be taken; reads the device. Used where the optimizer cannot tell."""
        return bool(self.flag.item())

    def count_refusal(self) -> None:
        """After an update that was not made. With ``skip`` the next one is judged by itself."""
        self.skipped += 1
        if self.policy == "skip":
            self.flag.zero_()

    def require_budget(self, step: int) -> None:
        """Raises NonFiniteError if more updates were skipped than the budget allows."""
        if self.policy == "skip" and self.skipped > self.budget:
            raise NonFiniteError(
                f"{self.skipped} steps had a loss or gradient that is not finite, the last after step {step}: "
                f"more than trainer.nonfinite_budget ({self.budget}) allows"
            )

    def clean_steps(self) -> int | None:
        """With ``stop``: None if all is well, else the number of steps that this process took before the first
        bad one. Reads the device."""
        if self.policy == "stop" and self.flag.item():
            return int(self._clean_steps.item())
        return None


def all_finite(state: Any) -> bool:
    """Whether every floating-point tensor in nested containers is finite."""
    if isinstance(state, Tensor):
        return not state.is_floating_point() or bool(torch.isfinite(state).all())
    if isinstance(state, dict):
        return all(all_finite(value) for value in state.values())
    if isinstance(state, (list, tuple)):
        return all(all_finite(value) for value in state)
    return True


def _by_type(values: Iterable[Tensor]) -> list[list[Tensor]]:
    """The kernel takes tensors of one type and device at a time."""
    groups: dict[tuple[torch.dtype, torch.device], list[Tensor]] = {}
    for value in values:
        groups.setdefault((value.dtype, value.device), []).append(value)
    return list(groups.values())
