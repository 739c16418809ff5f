"""What happens when a loss or a gradient is NaN or infinite: stop, skip or continue."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from trainlattice.diagnostics.errors import NonFiniteError
from trainlattice.training.state import TrainerState

Policy = Literal["stop", "skip", "continue"]


class FiniteGuard:
    """Watches losses and gradients on the device.

    With ``stop`` the flag, once raised, stays: a fused optimizer takes it as ``found_inf`` and leaves the
    weights alone from that step on, until the host looks (at a log, an epoch's end, before a checkpoint). So
    the optimizer never sees a bad gradient, and no step waits for the device. ``skip`` decides each step on
    the host. ``continue`` watches nothing.

    :param budget: how many updates ``skip`` may leave out.
    """

    def __init__(self, policy: Policy, device: torch.device, *, budget: int = 0) -> None:
        self.policy = policy
        self.budget = budget
        self.flag = torch.zeros((), device=device)
        self._one = torch.ones((), device=device)
        self._clean_steps = torch.zeros((), dtype=torch.int64, device=device)
        self.begin(TrainerState())

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

    def refuses_now(self) -> bool:
        """Whether this update must not be made; reads the device. Used where the optimizer cannot tell. With
        ``skip`` the next update is judged by itself."""
        refuses = bool(self.flag.item())
        if refuses and self.policy == "skip":
            self.flag.zero_()
        return refuses

    def count_step(self) -> None:
        """After each step in which an update was made."""
        if self.policy == "stop":
            self._clean_steps += self.flag == 0

    def require_budget(self) -> None:
        """Raises NonFiniteError if more updates were left out than the budget allows."""
        skipped = self._state.nonfinite_updates
        if self.policy == "skip" and skipped > self.budget:
            raise NonFiniteError(
                f"{skipped} updates had a loss or gradient that is not finite, the last after step "
                f"{self._state.global_step}: "
                f"more than trainer.nonfinite_budget ({self.budget}) allows"
            )

    def begin(self, state: TrainerState) -> None:
        """From now on steps are counted from where the state stands."""
        self._state, self._first_step = state, state.global_step

    def require_clean(self) -> None:
        """Looks at the flag, which waits for the device.

        :raises NonFiniteError: if it is up; the state then stands at the last step before the first bad one.
        """
        if self.policy != "stop" or not self.flag.item():
            return
        clean = self._state.global_step = self._first_step + int(self._clean_steps.item())
        raise NonFiniteError(
            f"the loss or a gradient of step {clean + 1} is not finite; no optimizer has "
            "seen it, and the last checkpoint is untouched; cleaner data or, in a new run, a smaller optimizer.lr "
            "or trainer.max_grad_norm may help; resumed with trainer.nonfinite=skip the run leaves such steps out"
        )


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
