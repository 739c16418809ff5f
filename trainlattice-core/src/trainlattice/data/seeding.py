"""Seeds for everything that draws random numbers."""

from __future__ import annotations

import random
import sys

import torch

_MASK = (1 << 64) - 1


def seed_everything(seed: int) -> None:
    """Seeds Python, torch (all devices) and, if it is loaded, NumPy."""
    random.seed(seed)
    torch.manual_seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed % 2**32)


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
