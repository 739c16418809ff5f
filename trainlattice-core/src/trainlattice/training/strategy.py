"""What stands between the step and torch. Today one device; DDP and FSDP implement the same."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import torch
from torch import Tensor, nn


class Strategy(Protocol):
    """Where a model lives and how its gradients come together."""

    device: torch.device

    def prepare(self, model: nn.Module) -> nn.Module:
        """The model on its device(s). Called before the optimizer is built."""
        ...

    def backward(self, loss: Tensor) -> None: ...

    def clip(self, parameters: Iterable[Tensor], max_norm: float) -> Tensor:
        """Scales gradients down to a total norm; the norm before that."""
        ...

    def no_sync(self, model: nn.Module) -> AbstractContextManager[Any]:
        """Around every micro-batch of a window but the last."""
        ...

    def reduce(self, value: Tensor) -> Tensor:
        """The sum of a value over all ranks."""
        ...

    def gather_state(self, model: nn.Module) -> dict[str, Any]:
        """The state of the plain module, without prefixes of wrappers."""
        ...


class SingleDevice:
    """One process, one device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def prepare(self, model: nn.Module) -> nn.Module:
        return model.to(self.device)

    def backward(self, loss: Tensor) -> None:
        loss.backward()  # type: ignore[no-untyped-call]

    def clip(self, parameters: Iterable[Tensor], max_norm: float) -> Tensor:
        return nn.utils.clip_grad_norm_(parameters, max_norm)

    def no_sync(self, model: nn.Module) -> AbstractContextManager[Any]:
        return nullcontext()

    def reduce(self, value: Tensor) -> Tensor:
        return value

    def gather_state(self, model: nn.Module) -> dict[str, Any]:
        return model.state_dict()
