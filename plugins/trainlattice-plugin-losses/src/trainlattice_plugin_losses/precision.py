"""Number formats in which losses are computed."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor


def at_least_float32(pred: Tensor) -> Tensor:
    """Predictions of half precision as float32: what autocast does for torch's own losses."""
    return pred.float() if pred.dtype in (torch.float16, torch.bfloat16) else pred


def without_autocast(device: torch.device) -> AbstractContextManager[Any]:
    """Inside, convolutions and products keep the format of their input. The meta device has no autocast."""
    return nullcontext() if device.type == "meta" else torch.autocast(device.type, enabled=False)
