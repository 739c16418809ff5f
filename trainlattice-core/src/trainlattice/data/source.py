"""What a run takes its batches from, whatever kind of dataset lies behind it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

LEFT_OUT = object()
"""In place of a batch that was read only to be left out, so that whoever waits can look up meanwhile."""


class BatchSource(Protocol):
    """Batches, epoch by epoch; a pure function of the seed, the epoch and the data.

    :param num_samples: samples per epoch, or None for a stream that does not say.
    """

    @property
    def num_samples(self) -> int | None: ...

    @property
    def batches_per_epoch(self) -> int | None:
        """None for a stream that does not say how long it is."""
        ...

    def batches(self, epoch: int, start: int = 0) -> Iterator[Any]:
        """The batches of an epoch from the given one on; touches no global random state of this process. A source
        that cannot begin in the middle yields ``LEFT_OUT`` for each batch before it."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """What it takes, beside the epoch and the number of the batch, to go on after the last batch that was taken
        from the iterator; tensors and plain containers."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Before ``batches`` is asked to begin at that place."""
        ...

    def sample_batch(self) -> Any:
        """A batch of at most two samples, to look at."""
        ...
