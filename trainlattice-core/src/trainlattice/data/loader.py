"""Batches of a map-style dataset, in an order that depends on (seed, epoch) alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, cast

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, default_collate

from trainlattice.data.order import epoch_order
from trainlattice.data.seeding import mixed_seed
from trainlattice.data.splits import MapDataset

StartMethod = Literal["fork", "spawn", "forkserver"]


class MapSource:
    """The batches of one dataset, epoch by epoch.

    :param shuffle: whether each epoch has an order of its own; else it is 0, 1, 2, ...
    :param drop_last: leaves out a last batch that is not full.
    :param num_workers: loader processes; 0 loads in this process. The batches are the same.
    :param start_method: how loader processes begin; None is Python's default.
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
    ) -> None:
        self.dataset = dataset
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.seed = seed
        self.num_workers = num_workers
        self.drop_last = drop_last
        self.start_method = start_method
        self._fetch = BatchFetcher(dataset)

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
        size = len(self.dataset)
        if self.shuffle:
            order = epoch_order(size, seed=self.seed, epoch=epoch)
        else:
            order = torch.arange(size)
        chunks = torch.split(order, self.batch_size)[start : self.batches_per_epoch] if size else ()
        if self.num_workers == 0:
            return map(self._fetch, chunks)
        return worker_batches(
            self._fetch,
            [chunk.tolist() for chunk in chunks],
            num_workers=self.num_workers,
            seed=mixed_seed(self.seed, epoch, 1),
            start_method=self.start_method,
        )

    def sample_batch(self) -> Any:
        """The first two samples."""
        return self._fetch(torch.arange(min(2, len(self.dataset))))


class BatchFetcher:
    """Indices to a batch: by the dataset's own ``fetch_batch``, else sample by sample and collated."""

    def __init__(self, dataset: MapDataset) -> None:
        self.dataset = dataset
        self._fetch_batch = getattr(dataset, "fetch_batch", None)

    def __len__(self) -> int:
        return len(self.dataset)

    def __call__(self, indices: Tensor) -> Any:
        try:
            if self._fetch_batch is not None:
                return self._fetch_batch(indices)
            return default_collate([self.dataset[i] for i in indices.tolist()])
        except StopIteration as error:  # it would end the epoch without a word
            raise RuntimeError(
                f"a {type(self.dataset).__name__} raised StopIteration for a sample"
            ) from error

    def __getitem__(self, indices: list[int]) -> Any:
        return self(torch.tensor(indices))


def worker_batches(
    fetch: Any,
    chunks: Sequence[list[int]] | None,
    *,
    num_workers: int,
    seed: int,
    start_method: StartMethod | None,
) -> Iterator[Any]:
    """Whole batches from loader processes, which are seeded from ``seed`` and start anew for each epoch.

    :param chunks: the indices of each batch; None if ``fetch`` is an iterable dataset of batches.
    """
    return iter(
        DataLoader(
            cast("Dataset[Any]", fetch),
            batch_size=None,  # what is fetched is a whole batch: the loader collates nothing
            sampler=chunks,
            num_workers=num_workers,
            generator=torch.Generator().manual_seed(seed),
            multiprocessing_context=start_method,
        )
    )
