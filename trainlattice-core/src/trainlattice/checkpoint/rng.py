"""Random states of Python, torch, CUDA and NumPy, as plain containers that load without pickle."""

from __future__ import annotations

import importlib.util
import logging
import random
import sys
from typing import Any

import torch

logger = logging.getLogger(__name__)


def capture_rng() -> dict[str, Any]:
    """The state of every generator that this process has used or may use."""
    version, numbers, gauss = random.getstate()
    state: dict[str, Any] = {
        "python": {"version": version, "numbers": list(numbers), "gauss": gauss},
        "torch": torch.get_rng_state(),
    }
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        state["cuda"] = torch.cuda.get_rng_state_all()
    if "numpy" in sys.modules:
        name, keys, position, has_gauss, cached = sys.modules["numpy"].random.get_state(legacy=True)
        state["numpy"] = {
            "name": name,
            "keys": [int(key) for key in keys],
            "position": int(position),
            "has_gauss": int(has_gauss),
            "cached": float(cached),
        }
    return state


def restore_rng(state: dict[str, Any]) -> None:
    """Puts back what :func:`capture_rng` took; a generator that this process lacks is passed over."""
    python = state["python"]
    random.setstate((python["version"], tuple(python["numbers"]), python["gauss"]))
    torch.set_rng_state(state["torch"])
    if "cuda" in state:
        if torch.cuda.is_available() and len(state["cuda"]) == torch.cuda.device_count():
            torch.cuda.set_rng_state_all(state["cuda"])
        else:
            logger.warning(
                "the run used %d CUDA devices, and this process has %d: what it draws there is not continued",
                len(state["cuda"]),
                torch.cuda.device_count(),
            )
    if "numpy" in state and importlib.util.find_spec("numpy") is not None:
        import numpy

        saved = state["numpy"]
        numpy.random.set_state(
            (
                saved["name"],
                numpy.array(saved["keys"], dtype=numpy.uint32),
                saved["position"],
                saved["has_gauss"],
                saved["cached"],
            )
        )
