"""Batches of an iterable dataset: data with an order of its own, perhaps without a length."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

from torch.utils.data import IterableDataset, get_worker_info
from torch.utils.data._utils import worker as worker_module

from trainlattice.data.collation import collate_of
from trainlattice.data.container import BatchError
from trainlattice.data.fetching import Check
from trainlattice.data.seeding import mixed_seed, seeded
from trainlattice.data.source import LEFT_OUT
from trainlattice.data.spare import spare
from trainlattice.data.workers import StartMethod, worker_batches

logger = logging.getLogger(__name__)


class StreamSource:
    """The batches of an iterable dataset.

    A dataset with ``set_epoch(epoch)`` is told the epoch, to shuffle by it. With workers, each yields every
    W-th batch of the one global sequence, so that the batches do not depend on their number; each worker runs
    through the whole stream for that. Random numbers that the stream draws begin at a seed of their own with each
    batch.

    A dataset with ``state_dict`` and ``load_state_dict`` is continued where it stood after the last batch that was
    consumed (what workers read ahead does not count), and each epoch begins in the state that it had at first; any
    other is read from the beginning, and what was consumed is left out.
    """

    def __init__(
        self,
        dataset: Iterable[Any],
        *,
        batch_size: int,
        seed: int,
        num_workers: int = 0,
        drop_last: bool = False,
        start_method: StartMethod | None = None,
        check: Check | None = None,
    ) -> None:
        self.dataset = dataset
        self.batch_size = batch_size
        self.seed = seed
        self.num_workers = num_workers
        self.drop_last = drop_last
        self.start_method = start_method
        self.check = check
        self._remembers = hasattr(dataset, "state_dict") and hasattr(dataset, "load_state_dict")
        self._initial = copy.deepcopy(dataset.state_dict()) if self._remembers else None  # type: ignore[attr-defined]
        self._state: dict[str, Any] | None = None

    @property
    def num_samples(self) -> int | None:
        """The dataset's length, if it has one."""
        size: int | None = len(self.dataset) if hasattr(self.dataset, "__len__") else None  # type: ignore[arg-type]
        if size is not None and self.drop_last:
            size -= size % self.batch_size
        return size

    @property
    def batches_per_epoch(self) -> int | None:
        size = self.num_samples
        return None if size is None else -(-size // self.batch_size)

    def batches(self, epoch: int, start: int = 0) -> Iterator[Any]:
        """The batches of one epoch; what lies before ``start`` is left out, a ``LEFT_OUT`` for each."""
        held = self._state
        continues = held is not None and held["place"] == [epoch, start]
        stream = _Batches(
            self.dataset,
            self.batch_size,
            self.drop_last,
            epoch,
            mixed_seed(self.seed, epoch),
            check=self.check,
            first=start if continues else 0,
            state=held["dataset"] if held is not None and continues else self._initial,
            tells_state=self._remembers,
        )
        if self.num_workers == 0:
            batches: Iterator[Any] = iter(stream)
        else:
            batches = worker_batches(
                stream,
                None,
                num_workers=self.num_workers,
                seed=mixed_seed(self.seed, epoch, 1),
                start_method=self.start_method,
            )
        if not continues:
            if start:
                logger.warning(
                    "the stream %s has no state_dict: it is read again from its beginning, and %d batches are left "
                    "out; what follows is exact if it yields the same once more",
                    type(self.dataset).__name__,
                    start,
                )
            yield from (LEFT_OUT for _ in islice(batches, start))
        yield from self._consumed(batches, epoch, start) if self._remembers else batches

    def _consumed(self, batches: Iterator[Any], epoch: int, start: int) -> Iterator[Any]:
        for number, (batch, state) in enumerate(batches, start=start + 1):
            self._state = {"place": [epoch, number], "dataset": state}
            yield batch

    def state_dict(self) -> dict[str, Any]:
        return {"stream": self._state} if self._state is not None else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._state = state.get("stream")

    def sample_batch(self) -> Any:
        """The first two samples of a fresh pass. Raises BatchError if there is none."""
        samples = list(islice(iter(spare(self.dataset) if self.num_workers else self.dataset), 2))
        if not samples:
            raise BatchError("the dataset yields no sample")
        return collate_of(self.dataset)(samples)


class _Batches(IterableDataset[Any]):
    """The one sequence of batches of an epoch, of which a loader process yields every W-th.

    Whoever reads the stream reads it whole, with random numbers of its own that begin at the same seed: in every
    process it is the same stream.
    """

    def __init__(
        self,
        dataset: Iterable[Any],
        batch_size: int,
        drop_last: bool,
        epoch: int,
        seed: int,
        *,
        check: Check | None,
        first: int,
        state: Any,
        tells_state: bool,
    ) -> None:
        self.dataset, self.batch_size, self.drop_last = dataset, batch_size, drop_last
        self.epoch, self.seed, self.check = epoch, seed, check
        self.first, self.state, self.tells_state = first, state, tells_state

    def __iter__(self) -> Iterator[Any]:
        begins = self.first == 0
        if self.state is not None and begins:
            self.dataset.load_state_dict(copy.deepcopy(self.state))  # type: ignore[attr-defined]
        if hasattr(self.dataset, "set_epoch"):
            self.dataset.set_epoch(self.epoch)
        if self.state is not None and not begins:  # it knows its epoch
            self.dataset.load_state_dict(copy.deepcopy(self.state))  # type: ignore[attr-defined]
        worker = get_worker_info()
        index, count = (worker.id, worker.num_workers) if worker is not None else (0, 1)
        chunks, collate = self._chunks(), collate_of(self.dataset)
        number = self.first
        while True:
            with seeded(mixed_seed(self.seed, number)), _unaware_of_workers():
                chunk = next(chunks, None)
            if chunk is None or (len(chunk) < self.batch_size and self.drop_last):
                return
            if (number - self.first) % count == index:
                batch = collate(chunk)
                if self.check is not None:
                    self.check(batch, None)
                yield (batch, self.dataset.state_dict()) if self.tells_state else batch  # type: ignore[attr-defined]
            number += 1

    def _chunks(self) -> Iterator[list[Any]]:
        samples = iter(self.dataset)
        while chunk := list(islice(samples, self.batch_size)):
            yield chunk


@contextmanager
def _unaware_of_workers() -> Iterator[None]:
    """A dataset that shares itself out by ``get_worker_info`` would be shared out twice: samples would be lost."""
    held = worker_module._worker_info
    worker_module._worker_info = None
    try:
        yield
    finally:
        worker_module._worker_info = held
