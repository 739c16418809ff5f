"""Seeds for everything that draws random numbers."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

_MASK = (1 << 64) - 1


def seed_everything(seed: int) -> None:
    """Seeds Python, torch (all devices) and, if it is loaded, NumPy."""
    random.seed(seed)
    torch.manual_seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed % 2**32)


def seed_host(seed: int) -> None:
    """Seeds Python, torch on the CPU and, if it is loaded, NumPy; cheap enough for each sample."""
    random.seed(seed)
    torch.default_generator.manual_seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed % 2**32)


@dataclass(frozen=True)
class HostRng:
    """The generators of this process on the host: Python, torch and, if it is loaded, NumPy."""

    python: Any
    torch: torch.Tensor
    numpy: Any

    @classmethod
    def now(cls) -> HostRng:
        numpy = sys.modules["numpy"].random.get_state() if "numpy" in sys.modules else None
        return cls(random.getstate(), torch.get_rng_state(), numpy)

    def is_current(self) -> bool:
        """Whether nothing was drawn since."""
        now = HostRng.now()
        if self.python != now.python or not torch.equal(self.torch, now.torch):
            return False
        if self.numpy is None or now.numpy is None:
            return True
        return bool((self.numpy[1] == now.numpy[1]).all() and self.numpy[2:] == now.numpy[2:])

    def restore(self) -> None:
        random.setstate(self.python)
        torch.set_rng_state(self.torch)
        if self.numpy is not None:
            sys.modules["numpy"].random.set_state(self.numpy)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Inside, the generators of this process begin at a seed; afterwards they are as they were."""
    outside = HostRng.now()
    seed_host(seed)
    try:
        yield
    finally:
        outside.restore()


def mixed_seed(*parts: int) -> int:
    """One 63-bit seed from several numbers; neighbours give unrelated seeds.

    SplitMix64 (Steele, Lea, Flood 2014), once for each part.
    """
    state = 0
    for part in parts:
        state = (state ^ (part & _MASK)) + 0x9E3779B97F4A7C15 & _MASK
        mixed = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & _MASK
        mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & _MASK
        state = mixed ^ mixed >> 31
    return state >> 1
