"""Batches of a map-style dataset, in an order that depends on (seed, epoch) alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from trainlattice.data.fetching import BatchFetcher, Check, Place
from trainlattice.data.order import EpochOrder
from trainlattice.data.seeding import mixed_seed
from trainlattice.data.spare import spare
from trainlattice.data.splits import MapDataset
from trainlattice.data.workers import StartMethod, worker_batches


class MapSource:
    """The batches of one dataset, epoch by epoch.

    :param shuffle: whether each epoch has an order of its own; else it is 0, 1, 2, ...
    :param drop_last: leaves out a last batch that is not full.
    :param num_workers: loader processes; 0 loads in this process. The batches are the same.
    :param start_method: how loader processes begin; None is Python's default.
    :param check: see :class:`~trainlattice.data.fetching.BatchFetcher`.
    """

    def __init__(
        self,
        dataset: MapDataset,
        *,
        batch_size: int,
        shuffle: bool,
        seed: int,
        num_workers: int = 0,
        drop_last: bool = False,
        start_method: StartMethod | None = None,
        check: Check | None = None,
    ) -> None:
        self.dataset = dataset
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.seed = seed
        self.num_workers = num_workers
        self.drop_last = drop_last
        self.start_method = start_method
        self._fetch = BatchFetcher(dataset, seed=seed, check=check)

    @property
    def num_samples(self) -> int:
        """Samples per epoch."""
        return self.batches_per_epoch * self.batch_size if self.drop_last else len(self.dataset)

    @property
    def batches_per_epoch(self) -> int:
        """The ragged last one included unless it is dropped."""
        full, rest = divmod(len(self.dataset), self.batch_size)
        return full + (rest > 0 and not self.drop_last)

    def batches(self, epoch: int, start: int = 0) -> Iterator[Any]:
        """The batches of one epoch from the given one on. What lies before ``start`` is not loaded."""
        places = _Places(self, epoch, start)
        if self.num_workers == 0:
            return map(self._fetch, places)
        return worker_batches(
            self._fetch,
            places,
            num_workers=self.num_workers,
            seed=mixed_seed(self.seed, epoch, 1),
            start_method=self.start_method,
        )

    def state_dict(self) -> dict[str, Any]:
        """Nothing: where an epoch stands is a number."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        return None

    def sample_batch(self) -> Any:
        """The first two samples."""
        fetch = self._fetch
        if self.num_workers:
            fetch = BatchFetcher(spare(self.dataset), seed=self.seed, check=fetch.check)
        return fetch(Place(0, 0, torch.arange(min(2, len(self.dataset)))))


class _Places:
    """Which samples each batch of an epoch has, computed as they are asked for."""

    def __init__(self, source: MapSource, epoch: int, start: int) -> None:
        self.source, self.epoch, self.start = source, epoch, start

    def __iter__(self) -> Iterator[Place]:
        source, size = self.source, len(self.source.dataset)
        order = EpochOrder(size, seed=source.seed, epoch=self.epoch) if source.shuffle else None
        for number in range(self.start, source.batches_per_epoch):
            first = number * source.batch_size
            stop = min(first + source.batch_size, size)
            indices = torch.arange(first, stop) if order is None else order.indices(first, stop)
            # A list is cheaper to send to another process than a tensor.
            yield Place(self.epoch, first, indices if source.num_workers == 0 else indices.tolist())
