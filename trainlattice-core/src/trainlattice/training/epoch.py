"""How far the training part of an epoch has come: position, means, time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from trainlattice.training.accumulators import WeightedMeans


class EpochProgress:
    """Everything that begins anew with each epoch. The clock runs between :meth:`start` and :meth:`stop`.

    :param windows: windows consumed; resuming in the middle continues with the next one.
    """

    def __init__(self) -> None:
        self.windows = 0
        self.means = WeightedMeans()
        self.samples = 0
        self.data_seconds = 0.0
        self._seconds = 0.0
        self._running_since: float | None = None

    @property
    def seconds(self) -> float:
        """Seconds of training in this epoch, those before an interruption included."""
        since = self._running_since
        return self._seconds if since is None else self._seconds + time.perf_counter() - since

    def start(self) -> None:
        self._running_since = time.perf_counter()

    def stop(self) -> None:
        self._seconds = self.seconds
        self._running_since = None

    @contextmanager
    def waiting_for_data(self) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.data_seconds += time.perf_counter() - began

    @contextmanager
    def paused(self) -> Iterator[None]:
        """A validation in the middle of an epoch is not training time."""
        self.stop()
        yield
        self.start()

    def count(self, samples: int) -> None:
        """After each window."""
        self.windows += 1
        self.samples += samples

    def rates(self) -> dict[str, float]:
        """Averages since the epoch began, waiting for data included."""
        seconds = self.seconds
        return {"steps_per_sec": self.windows / seconds, "samples_per_sec": self.samples / seconds}

    def summary(self) -> dict[str, float]:
        seconds = self.seconds
        return {
            "epoch_seconds": seconds,
            "data_seconds": self.data_seconds,
            "train_samples_per_sec": self.samples / seconds,
        }

    def state_dict(self) -> dict[str, Any]:
        return {
            "windows": self.windows,
            "means": self.means.state_dict(),
            "samples": self.samples,
            "data_seconds": self.data_seconds,
            "seconds": self.seconds,
        }

    def load_state_dict(self, state: dict[str, Any], device: torch.device) -> None:
        self.windows, self.samples = state["windows"], state["samples"]
        self.means.load_state_dict(state["means"], device)
        self.data_seconds, self._seconds = state["data_seconds"], state["seconds"]
