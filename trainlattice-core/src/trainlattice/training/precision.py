"""Number formats of forward passes."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

import torch

Precision = Literal["fp32", "bf16", "fp16"]
_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def autocast(precision: Precision, device: torch.device) -> AbstractContextManager[Any]:
    """A context for forward passes, entered once per micro-batch; does nothing for fp32."""
    if precision == "fp32":
        return nullcontext()
    return torch.autocast(device.type, dtype=_DTYPES[precision])


def grad_scaler(precision: Precision, device: torch.device) -> torch.amp.GradScaler | None:
    """fp16 gradients underflow without a scaler; the other formats need none."""
    return torch.amp.GradScaler(device.type) if precision == "fp16" else None
