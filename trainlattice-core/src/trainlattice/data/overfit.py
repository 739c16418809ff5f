"""The same few batches in every epoch: whether a model can learn them by heart."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainlattice.data.source import LEFT_OUT, BatchSource


class FirstBatches:
    """The first batches of another source's first epoch, in the same order and with the same random numbers, in
    every epoch.

    :param count: how many; fewer if the source has fewer.
    """

    def __init__(self, source: BatchSource, count: int, *, batch_size: int) -> None:
        self.source = source
        self.count = count
        self.batch_size = batch_size

    @property
    def num_samples(self) -> int | None:
        size = self.source.num_samples
        return None if size is None else min(size, self.count * self.batch_size)

    @property
    def batches_per_epoch(self) -> int | None:
        batches = self.source.batches_per_epoch
        return None if batches is None else min(batches, self.count)

    def batches(self, epoch: int, start: int = 0) -> Iterator[Any]:
        left = self.count - start
        batches = self.source.batches(0, start)
        while left > 0 and (batch := next(batches, None)) is not None:
            left -= batch is not LEFT_OUT
            yield batch

    def state_dict(self) -> dict[str, Any]:
        """Nothing: an epoch begins at the first batch again, and is read from there."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        return None

    def sample_batch(self) -> Any:
        return self.source.sample_batch()
