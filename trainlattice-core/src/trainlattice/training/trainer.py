"""The Trainer: epochs, windows, validation, stopping, checkpoints. What a window does is the mode's."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import torch

from trainlattice.contracts.settings import TrainerSettings
from trainlattice.data.container import Container, container_of
from trainlattice.data.loader import MapSource
from trainlattice.diagnostics.errors import NonFiniteLossError, TrainLatticeError
from trainlattice.training.accumulators import WeightedMeans
from trainlattice.training.callbacks import CallbackList
from trainlattice.training.checkpointing import Checkpointer
from trainlattice.training.mode import Mode, Parts
from trainlattice.training.precision import autocast
from trainlattice.training.state import TrainerState
from trainlattice.training.step import Stepper
from trainlattice.training.stopping import direction_of, exhausted, judge
from trainlattice.training.strategy import Strategy
from trainlattice.training.validation import evaluate

logger = logging.getLogger(__name__)


class RecordSink(Protocol):
    """Where metric records go."""

    def write(self, record: Mapping[str, Any]) -> None: ...

    def flush(self) -> None:
        """Every record written so far is on disk when this returns."""
        ...


@dataclass(frozen=True)
class Services:
    """What surrounds the computation of a run.

    :param records: takes the metric records.
    :param callbacks: observe.
    :param checkpointer: None for a run that saves nothing.
    :param run_dir: the run directory, for callbacks that write files.
    """

    records: RecordSink
    callbacks: CallbackList
    checkpointer: Checkpointer | None = None
    run_dir: Path | None = None


class Trainer:
    """Trains for ``settings.epochs`` epochs, from wherever ``state`` stands.

    :param train: the training batches.
    :param val: the validation batches, or None.
    """

    def __init__(
        self,
        settings: TrainerSettings,
        mode: Mode,
        parts: Parts,
        strategy: Strategy,
        services: Services,
        train: MapSource,
        val: MapSource | None = None,
    ) -> None:
        self.settings = settings
        self.mode = mode
        self.parts = parts
        self.strategy = strategy
        self.services = services
        self.train = train
        self.val = val
        self.callbacks = services.callbacks
        self.state = TrainerState()
        self.steps_per_epoch = math.ceil(len(train) / settings.accumulate)
        self._autocast = autocast(settings.precision, strategy.device)
        self._stepper = Stepper(mode, parts.updates, self._autocast)
        self._stop_requested: str | None = None

    @property
    def run_dir(self) -> Path | None:
        return self.services.run_dir

    @property
    def total_steps(self) -> int:
        """Optimizer steps of the whole run."""
        return self.steps_per_epoch * self.settings.epochs

    def request_stop(self, reason: str) -> None:
        """Ends the run at the end of this epoch, after its checkpoint; the reason is recorded."""
        self._stop_requested = self._stop_requested or reason

    def fit(self) -> TrainerState:
        """Trains to the end or to a stop. Whatever ends it, callbacks are told and, after an exception,
        ``emergency.pt`` holds the state for diagnosis."""
        error: BaseException | None = None
        try:
            for call in self.callbacks.on_run_start:
                call(self)
            while self.state.epoch < self.settings.epochs and self.state.stop_reason is None:
                self._epoch()
        except BaseException as raised:
            error = raised
            if isinstance(raised, Exception):
                self._save_emergency()
            raise
        finally:
            self.callbacks.finalize(self, error)
        return self.state

    # --- one epoch -------------------------------------------------------------------------------

    def _epoch(self) -> None:
        for call in self.callbacks.on_epoch_start:
            call(self)
        metrics = self._train_epoch()
        self.state.epoch += 1
        improved = False
        if self.val is not None and self.state.epoch % self.settings.validate_every == 0:
            metrics |= self._validate()
            improved = self._judge(metrics)
        self._record("epoch", metrics)
        for call in self.callbacks.on_epoch_end:
            call(self, metrics)
        self.state.stop_reason = self._stop_requested
        self._save(["last.pt", "best.pt"] if improved else ["last.pt"])

    def _train_epoch(self) -> dict[str, float]:
        means = WeightedMeans()
        clock = _EpochClock()
        self._phase_boundary("train", "start")
        for model in self.parts.models.values():
            if not model.training:  # else submodules that its author froze in eval mode stay so
                model.train()
        for window in self._windows(clock):
            weights = [self.mode.weight(container) for container in window]
            applied = self._stepper.run(window, weights)
            self.state.global_step += applied
            self.state.skipped_steps += not applied
            clock.count(sum(weights))
            logs = applied and self.state.global_step % self.settings.log_every == 0
            step_means = WeightedMeans()
            for container, weight in zip(window, weights, strict=True):
                measured = self.mode.measure(container)
                means.add(measured, weight)
                if logs:
                    step_means.add(measured, weight)
                for call in self.callbacks.on_batch_end:
                    call(self, "train", container)
            if logs:
                self._record("batch", step_means.compute() | clock.rates(), lr=self._applied_lr())
            for call in self.callbacks.on_step_end:
                call(self)
        self._phase_boundary("train", "end")
        metrics = {f"train_{name}": value for name, value in means.compute().items()}
        self._require_finite(metrics)
        return metrics | clock.summary() | self._memory() | {"lr": self._next_lr()}

    def _windows(self, clock: _EpochClock) -> Iterator[list[Container]]:
        """Micro-batches on the device, ``accumulate`` at a time; the last window may have fewer."""
        batches = self.train.batches(self.state.epoch)
        while True:
            with clock.waiting():
                window = [
                    container_of(batch, self.strategy.device)
                    for batch in islice(batches, self.settings.accumulate)
                ]
            if not window:
                return
            for container in window:
                container["epoch"] = self.state.epoch
            yield window

    def _validate(self) -> dict[str, float]:
        assert self.val is not None
        self._phase_boundary("val", "start")

        def on_batch(container: Container) -> None:
            for call in self.callbacks.on_batch_end:
                call(self, "val", container)

        means = evaluate(
            self.mode,
            list(self.parts.models.values()),
            self.val,
            self.strategy.device,
            self._autocast,
            on_batch,
        )
        self._phase_boundary("val", "end")
        return {f"val_{name}": value for name, value in means.items()}

    def _judge(self, metrics: Mapping[str, float]) -> bool:
        """Compares the monitored metric with the best so far; decides about early stopping."""
        monitor, stopping = self.settings.monitor, self.settings.early_stopping
        if monitor not in metrics:
            produced = ", ".join(name for name in metrics if name.startswith("val_"))
            raise TrainLatticeError(f"trainer.monitor is {monitor!r}, and validation produced {produced}")
        improved = judge(metrics[monitor], self.state, direction_of(monitor), stopping)
        if exhausted(self.state, stopping):
            stale = self.state.stale_validations
            self.request_stop(f"early stopping: {monitor} did not improve in {stale} validations")
        return improved

    def _phase_boundary(self, phase: str, edge: str) -> None:
        for call in self.callbacks.on_phase_start if edge == "start" else self.callbacks.on_phase_end:
            call(self, phase)

    # --- records and checkpoints -----------------------------------------------------------------

    def _record(self, kind: str, metrics: Mapping[str, float], **more: float) -> None:
        epoch = self.state.epoch if kind == "epoch" else self.state.epoch + 1
        record = {"type": kind, "epoch": epoch, "step": self.state.global_step, **metrics, **more}
        self.services.records.write(record)
        for call in self.callbacks.log_metrics:
            call(self, record)
        if kind == "batch":
            self._require_finite(metrics)

    def _require_finite(self, metrics: Mapping[str, float]) -> None:
        """Only finite losses go into a checkpoint; looked at where the host has the number anyway."""
        for name in ("loss", "train_loss"):
            if not math.isfinite(metrics.get(name, 0.0)):
                raise NonFiniteLossError(
                    f"the training loss became {metrics[name]} by step {self.state.global_step}; a smaller "
                    "optimizer.lr, trainer.max_grad_norm or cleaner data may help"
                )

    def _save(self, names: list[str]) -> None:
        self.services.records.flush()
        if self.services.checkpointer is None:
            return
        for path in self.services.checkpointer.save(self, names):
            for call in self.callbacks.on_checkpoint:
                call(self, path)

    def _save_emergency(self) -> None:
        """Diagnostic only."""
        if self.services.checkpointer is None:
            return
        try:
            self.services.checkpointer.save(self, ["emergency.pt"], kind="emergency")
        except Exception as failure:  # whatever it is, it must not hide the error that is being raised
            logger.warning("emergency.pt was not written: %s", failure)

    def _applied_lr(self) -> float:
        return next(iter(self.parts.updates.values())).applied_lr

    def _next_lr(self) -> float:
        return next(iter(self.parts.updates.values())).next_lr

    def _memory(self) -> dict[str, float]:
        if self.strategy.device.type != "cuda":
            return {}
        return {"max_memory_mb": torch.cuda.max_memory_allocated(self.strategy.device) / 2**20}


class _EpochClock:
    """Seconds and samples of one epoch's training part."""

    def __init__(self) -> None:
        self.started = time.perf_counter()
        self.data_seconds = 0.0
        self.steps = 0
        self.samples = 0

    def waiting(self) -> _Waiting:
        return _Waiting(self)

    def count(self, samples: int) -> None:
        self.steps += 1
        self.samples += samples

    def rates(self) -> dict[str, float]:
        """Averages since the epoch began, data waits included."""
        seconds = time.perf_counter() - self.started
        return {"steps_per_sec": self.steps / seconds, "samples_per_sec": self.samples / seconds}

    def summary(self) -> dict[str, float]:
        seconds = time.perf_counter() - self.started
        return {
            "epoch_seconds": seconds,
            "data_seconds": self.data_seconds,
            "train_samples_per_sec": self.samples / seconds,
        }


class _Waiting:
    def __init__(self, clock: _EpochClock) -> None:
        self.clock = clock

    def __enter__(self) -> None:
        self.began = time.perf_counter()

    def __exit__(self, *exc: object) -> None:
        self.clock.data_seconds += time.perf_counter() - self.began
