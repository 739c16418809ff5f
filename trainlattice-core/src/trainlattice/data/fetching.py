"""Indices to a batch, with randomness that depends on the position in the epoch alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from trainlattice.data.collation import collate_of
from trainlattice.data.seeding import HostRng, mixed_seed, seed_host
from trainlattice.data.splits import MapDataset

Check = Callable[[Any, "Tensor | None"], None]


class Place(NamedTuple):
    """One batch of an epoch.

    :param epoch: counted from 0.
    :param start: position of its first sample in the epoch.
    :param indices: int64 ``[B]``, or a list where it goes to a loader process.
    """

    epoch: int
    start: int
    indices: Tensor | list[int]


class BatchFetcher:
    """Fetches batches: by the dataset's own ``fetch_batch``, else sample by sample and collated, by its own
    ``collate_fn`` if it has one.

    A dataset that draws random numbers (augmentation) sees generators of Python, torch and NumPy that are seeded
    by (seed, epoch, position in the epoch): what it draws does not depend on loader processes or on where a run
    was interrupted, and the generators of this process stay as they were. With ``fetch_batch`` the position is
    that of the batch's first sample. Whether a dataset draws is what its attribute ``stochastic`` says; without
    one it is found out: a batch that drew is fetched again, seeded, and so are all later ones.

    :param check: is called with each batch and its indices, and raises for one that must not be used.
    """

    def __init__(self, dataset: MapDataset, *, seed: int, check: Check | None = None) -> None:
        self.dataset = dataset
        self.seed = seed
        self.check = check
        self.stochastic: bool | None = getattr(dataset, "stochastic", None)
        self._collate = collate_of(dataset)
        self._fetch_batch = getattr(dataset, "fetch_batch", None)

    def __call__(self, place: Place) -> Any:
        indices = torch.as_tensor(place.indices, dtype=torch.int64)
        batch = self._at(place, indices)
        if self.check is not None:
            self.check(batch, indices)
        return batch

    def _at(self, place: Place, indices: Tensor) -> Any:
        if self.stochastic is False:
            return self._fetch(indices)
        before = HostRng.now()
        if self.stochastic is None:
            batch = self._fetch(indices)
            if before.is_current():
                return batch
            self.stochastic = True
        try:
            return self._fetch(indices, place)
        finally:
            before.restore()

    __getitem__ = __call__  # as loader processes ask for it

    def __len__(self) -> int:
        return len(self.dataset)

    def _fetch(self, indices: Tensor, seeded: Place | None = None) -> Any:
        try:
            if self._fetch_batch is not None:
                if seeded is not None:
                    self._seed(seeded, 0)
                return self._fetch_batch(indices)
            samples = []
            for offset, index in enumerate(indices.tolist()):
                if seeded is not None:
                    self._seed(seeded, offset)
                samples.append(self.dataset[index])
        except StopIteration as error:  # it would end the epoch without a word
            raise RuntimeError(
                f"a {type(self.dataset).__name__} raised StopIteration for a sample"
            ) from error
        return self._collate(samples)

    def _seed(self, place: Place, offset: int) -> None:
        seed_host(mixed_seed(self.seed, place.epoch, place.start + offset))
