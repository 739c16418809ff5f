"""Batches of a map-style dataset, in an order that depends on (seed, epoch) alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, default_collate

from trainlattice.data.order import epoch_order
from trainlattice.data.seeding import mixed_seed
from trainlattice.data.splits import MapDataset


class MapSource:
    """The batches of one dataset, epoch by epoch.

    :param shuffle: whether each epoch has an order of its own; else it is 0, 1, 2, ...
    :param drop_last: leaves out a last batch that is not full.
    :param num_workers: loader processes; 0 loads in this process. The batches are the same.
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
    ) -> None:
        self.dataset = dataset
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.seed = seed
        self.num_workers = num_workers
        self.drop_last = drop_last
        self.fetch = BatchFetcher(dataset)

    def __len__(self) -> int:
        """Batches per epoch, the ragged last one included unless it is dropped."""
        full, rest = divmod(len(self.dataset), self.batch_size)
        return full + (rest > 0 and not self.drop_last)

    def batches(self, epoch: int, start: int = 0) -> Iterator[Any]:
        """The batches of one epoch from the given one on; touches no global random state of this process.

        What lies before ``start`` is not loaded.
        """
        size = len(self.dataset)
        if self.shuffle:
            order = epoch_order(size, seed=self.seed, epoch=epoch)
        else:
            order = torch.arange(size)
        chunks = torch.split(order, self.batch_size)[start : len(self)] if size else ()
        if self.num_workers == 0:
            return map(self.fetch, chunks)
        return iter(
            DataLoader(
                cast("Dataset[Any]", self.fetch),
                batch_size=None,  # the fetcher makes whole batches: the loader collates nothing
                sampler=[chunk.tolist() for chunk in chunks],
                num_workers=self.num_workers,
                generator=torch.Generator().manual_seed(mixed_seed(self.seed, epoch, 1)),
            )
        )


class BatchFetcher:
    """Indices to a batch: by the dataset's own ``fetch_batch``, else sample by sample and collated."""

    def __init__(self, dataset: MapDataset) -> None:
        self.dataset = dataset
        self._fetch_batch = getattr(dataset, "fetch_batch", None)

    def __len__(self) -> int:
        return len(self.dataset)

    def __call__(self, indices: Tensor) -> Any:
        if self._fetch_batch is not None:
            return self._fetch_batch(indices)
        return default_collate([self.dataset[i] for i in indices.tolist()])

    def __getitem__(self, indices: list[int]) -> Any:
        return self(torch.tensor(indices))
