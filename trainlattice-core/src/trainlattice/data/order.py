"""The order of samples: a pure function of (seed, epoch), never of the global random state.

From :data:`BLOCK` samples on it is a keyed permutation that is evaluated a block at a time: shuffling needs memory
for one block whatever the size of the data, and an epoch is entered at any position at no cost. It is a Feistel
network over ``[0, a * 2**k)``, the smallest such domain that holds all indices (``2**k`` about the square root); an
index that it maps outside is mapped again (cycle walking; Black and Rogaway, "Ciphers with arbitrary finite
domains", 2002).
"""

from __future__ import annotations

import torch
from torch import Tensor

from trainlattice.data.seeding import mixed_seed

ORDER_VERSION = 2
"""Kept in every checkpoint: a run is resumed only with the order that it began with."""

BLOCK = 4096
"""Indices that are computed at once; fewer samples are shuffled by ``torch.randperm``."""

_ROUNDS = 6
# Odd constants of SplitMix64 as signed 64-bit integers; multiplication wraps.
_MULTIPLIER_1 = 0x9E3779B97F4A7C15 - (1 << 64)
_MULTIPLIER_2 = 0xBF58476D1CE4E5B9 - (1 << 64)
_LOW_32 = (1 << 32) - 1


class EpochOrder:
    """A permutation of ``range(size)``; every epoch and every seed has another one.

    :param size: samples, less than 2**60.
    """

    def __init__(self, size: int, *, seed: int, epoch: int) -> None:
        self.size = size
        key = mixed_seed(seed, epoch)
        self._block = -1
        if size < BLOCK:
            self._block, self._held = 0, torch.randperm(size, generator=torch.Generator().manual_seed(key))
        else:
            self._permutation = _Feistel(size, key)

    def indices(self, start: int, stop: int) -> Tensor:
        """What stands at the positions from start to stop (exclusive, cut at the size), int64."""
        stop = min(stop, self.size)
        parts = []
        while start < stop:
            block, offset = divmod(start, BLOCK)
            end = min(stop, (block + 1) * BLOCK)
            parts.append(self._of(block)[offset : offset + end - start])
            start = end
        if len(parts) == 1:
            return parts[0]
        return torch.cat(parts) if parts else torch.empty(0, dtype=torch.int64)

    def _of(self, block: int) -> Tensor:
        if block != self._block:
            positions = torch.arange(block * BLOCK, min((block + 1) * BLOCK, self.size))
            self._block, self._held = block, self._permutation(positions)
        return self._held


def epoch_order(size: int, *, seed: int, epoch: int) -> Tensor:
    """The whole order of an epoch as int64 ``[size]``."""
    return EpochOrder(size, seed=seed, epoch=epoch).indices(0, size)


class _Feistel:
    def __init__(self, size: int, key: int) -> None:
        self.size = size
        self.bits = (size - 1).bit_length() // 2
        self.rows = -(-size >> self.bits)
        self.keys = [mixed_seed(key, number) for number in range(_ROUNDS)]

    def __call__(self, positions: Tensor) -> Tensor:
        found = self._once(positions)
        while len(outside := (found >= self.size).nonzero().squeeze(1)):
            found[outside] = self._once(found[outside])
        return found

    def _once(self, positions: Tensor) -> Tensor:
        """A permutation of ``[0, rows * 2**bits)``."""
        row, column = positions >> self.bits, positions & (1 << self.bits) - 1
        for even, odd in zip(self.keys[::2], self.keys[1::2], strict=True):
            column ^= _hashed(row, even) & (1 << self.bits) - 1
            # 32 random bits times rows, shifted: a number below rows without a division.
            row += (_hashed(column, odd) & _LOW_32) * self.rows >> 32
            row -= (row >= self.rows) * self.rows
        return row << self.bits | column


def _hashed(values: Tensor, key: int) -> Tensor:
    mixed = values ^ key
    mixed *= _MULTIPLIER_1
    mixed ^= mixed >> 29
    mixed *= _MULTIPLIER_2
    mixed >>= 32
    return mixed
