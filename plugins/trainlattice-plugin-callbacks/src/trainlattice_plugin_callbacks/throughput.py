"""Steps, batches and samples a second, over the last steps."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from torch import Tensor

from trainlattice.data.container import Container
from trainlattice.training.callbacks import Callback, PhaseName, RecordName
from trainlattice.training.trainer import Trainer
from trainlattice_plugin_callbacks.options import ThroughputOptions


class _Point(NamedTuple):
    """After a step: seconds of training in this epoch, windows, batches and samples."""

    seconds: float
    windows: int
    batches: int
    samples: int


class Throughput(Callback):
    """Averages over the last ``window`` steps of the epoch, or those that there were since it or this process
    began. The clock is that of ``epoch_seconds``: waiting for data is in it, validations are not."""

    batch_phases = ("train",)

    def __init__(self, options: ThroughputOptions) -> None:
        self.points: deque[_Point] = deque(maxlen=options.window)
        self.batches = 0

    def on_run_start(self, trainer: Trainer) -> None:
        self._begin(trainer)

    def on_phase_start(self, trainer: Trainer, phase: PhaseName) -> None:
        if phase == "train":
            self._begin(trainer)

    def on_batch_start(self, trainer: Trainer, phase: PhaseName, container: Container) -> None:
        self.batches += 1

    def on_step_end(self, trainer: Trainer) -> None:
        self.points.append(self._point(trainer))

    def measure(self, trainer: Trainer, record: RecordName) -> Mapping[str, float | Tensor]:
        if record != "batch":
            return {}
        now, first = self._point(trainer), self.points[0]
        seconds = max(now.seconds - first.seconds, 1e-9)
        return {
            "throughput/steps_per_sec": (now.windows - first.windows) / seconds,
            "throughput/batches_per_sec": (now.batches - first.batches) / seconds,
            "throughput/samples_per_sec": (now.samples - first.samples) / seconds,
        }

    def _begin(self, trainer: Trainer) -> None:
        self.points.clear()
        self.points.append(self._point(trainer))

    def _point(self, trainer: Trainer) -> _Point:
        progress = trainer.progress
        return _Point(progress.seconds, progress.windows, self.batches, progress.samples)
