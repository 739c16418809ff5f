"""The Trainer: epochs, windows, validation, stopping, checkpoints. What a window does is the mode's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import Any

import torch
from torch import Tensor, nn

from trainlattice.contracts.settings import CheckpointSettings, TrainerSettings
from trainlattice.data.container import BatchError, Container, container_of
from trainlattice.data.source import LEFT_OUT, BatchSource
from trainlattice.diagnostics.errors import (
    CheckpointWriteError,
    Interruption,
    NonFiniteError,
    TrainLatticeError,
    WallTimeReached,
)
from trainlattice.training.accumulators import WeightedMeans
from trainlattice.training.callbacks import PHASES, CallbackList, Measured, PhaseName
from trainlattice.training.checkpointing import Boundary, Checkpointer
from trainlattice.training.epoch import EpochProgress
from trainlattice.training.length import is_complete, is_over, limit, steps_per_epoch, total_steps
from trainlattice.training.metrics import PhaseMetrics
from trainlattice.training.mode import Mode, Parts, Window, parameter_dtype
from trainlattice.training.nonfinite import FiniteGuard
from trainlattice.training.precision import autocast
from trainlattice.training.recorder import Recorder, RecordSink, taken
from trainlattice.training.saving import Ended, Saver
from trainlattice.training.signals import Signals, is_of_loader
from trainlattice.training.state import TrainerState
from trainlattice.training.step import Stepper, StepResult
from trainlattice.training.stopping import direction_of, exhausted, judge
from trainlattice.training.strategy import Strategy
from trainlattice.training.telling import FirstError
from trainlattice.training.tracking import Tracking
from trainlattice.training.update import Update
from trainlattice.training.validation import Surroundings, evaluate, keeping_rng


@dataclass(frozen=True)
class Services:
    """What surrounds the computation of a run.

    :param records: takes the metric records.
    :param callbacks: observe.
    :param checkpointer: None for a run that saves nothing.
    :param saving: when checkpoints are written and which are kept.
    :param run_dir: the run directory, for callbacks that write files.
    :param metrics: by phase.
    :param guard: watches for what is not finite, together with the updates of the run; None watches nothing.
    :param trackers: asked between two steps whether they have failed.
    """

    records: RecordSink
    callbacks: CallbackList
    checkpointer: Checkpointer | None = None
    saving: CheckpointSettings = field(default_factory=CheckpointSettings)
    run_dir: Path | None = None
    metrics: Mapping[PhaseName, PhaseMetrics] = field(default_factory=dict)
    guard: FiniteGuard | None = None
    trackers: Tracking | None = None


class Trainer:
    """Trains until ``settings.epochs``, ``max_steps`` or ``max_samples``, from wherever ``state`` stands.

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
        train: BatchSource,
        val: BatchSource | None = None,
    ) -> None:
        self.settings = settings
        self.mode = mode
        self.parts = parts
        self.strategy = strategy
        self.services = services
        self.train = train
        self.val = val
        self.callbacks = services.callbacks
        self.metrics: dict[PhaseName, PhaseMetrics] = {
            phase: services.metrics.get(phase, PhaseMetrics()) for phase in PHASES
        }
        self.direction = direction_of(
            settings.monitor, settings.monitor_mode, _natural_direction(settings.monitor, self.metrics["val"])
        )
        self.state = TrainerState()
        self.progress = EpochProgress()
        self.steps_per_epoch = steps_per_epoch(train, settings.accumulate)
        self._dtype = parameter_dtype(parts)
        self._autocast = autocast(settings.precision, strategy.device)
        self._stepper = Stepper.of(
            settings,
            mode,
            parts,
            strategy.device,
            keeps_containers=bool(self.callbacks.on_batch_end["train"]),
            metrics=self.metrics["train"],
        )
        if self.callbacks.on_gradients:
            for role, update in parts.updates.items():
                update.observe_gradients = partial(self._tell_of_gradients, role)
        self._guard = services.guard or FiniteGuard("continue", strategy.device)
        self.recorder = Recorder(self, services.records, self.callbacks.log_metrics)
        self._saver = Saver(self, services.checkpointer, services.saving)
        self._trackers = services.trackers
        self._signals = Signals()
        self._deadline: float | None = None
        self._leaving: Interruption | None = None
        self._surroundings = Surroundings(
            lambda: [call(self.parts.models) for call in self.callbacks.evaluating]
        )
        self.boundary: Boundary | None = None
        """The state between two steps, while what follows them is under way."""
        self._training_modes: list[tuple[nn.Module, bool]] = []
        self._in_step = False
        self._ended: Ended | None = None
        self._schedules = any(update.scheduler is not None for update in parts.updates.values())
        self._stops_here = False
        self._exhausted = False
        self._epoch_number = 0

    @property
    def run_dir(self) -> Path | None:
        return self.services.run_dir

    @property
    def epoch_number(self) -> int:
        """The epoch under way, or the last one, counted from 1."""
        return max(self._epoch_number, self.state.epoch)

    @property
    def epoch_is_over(self) -> bool:
        """At ``on_phase_end`` of training: whether it ends the epoch, or the run ends inside of it."""
        return self._exhausted

    @property
    def total_steps(self) -> int | None:
        """Optimizer steps of the whole run; None if the length of an epoch is not known."""
        return total_steps(self.settings, self.train)

    @property
    def is_complete(self) -> bool:
        """Whether every epoch or step that the settings ask for has been taken."""
        return is_complete(self.settings, self.state)

    @property
    def next_lr(self) -> float:
        """Of the first optimizer, for the step that comes next."""
        return self._first_update().next_lr

    def request_stop(self, reason: str) -> None:
        """Ends the run at the end of this epoch, after its checkpoint; the reason is recorded."""
        self.state.stop_requested = self.state.stop_requested or str(reason)

    def leave(self, interruption: Interruption) -> None:
        """Ends the run between two steps, or after a batch of a validation: saves ``last.pt`` and raises this.
        A run that is complete by then ends as it would."""
        self._leaving = self._leaving or interruption

    def require_finite(self) -> None:
        """Raises NonFiniteError if a loss or gradient was not; waits for the device."""
        self._guard.require_clean()

    def fit(self) -> TrainerState:
        """Trains to the end or to a stop. Whatever ends it, callbacks are told and, after an exception,
        ``emergency.pt`` holds the state for diagnosis.

        :raises Interruption: after SIGINT, SIGTERM, ``max_wall_time_sec`` or ``leave``, when the state is in
            ``last.pt``.
        """
        with self._signals.taken():
            return self._fit()

    def _fit(self) -> TrainerState:
        error: BaseException | None = None
        self._require_training_mode()
        self._training_modes = _modes(self.parts)
        allowed = self.settings.max_wall_time_sec
        self._deadline = monotonic() + allowed if allowed is not None else None
        self._guard.begin(self.state)
        self._saver.begin()
        self._epoch_number = self.state.epoch
        try:
            # What they draw is theirs, also in a run that is resumed and has the random states of its checkpoint.
            with keeping_rng():
                for call in self.callbacks.on_run_start:
                    call(self)
            self.recorder.observed = True
            self._saver.require_storable()
            self._stop_if_asked()
            while not is_over(self.settings, self.state, self.progress.windows):
                self._epoch()
                if is_over(self.settings, self.state, self.progress.windows):
                    break
                self._heed_signals()
                self._stop_if_asked()
            self._saver.finish()
        except Interruption as raised:
            error = raised
            raise
        except (Exception, SystemExit) as raised:  # a component that ends the program has failed too
            error = raised
            if self._signals.explains(raised):
                # It may have come at any point, also in the middle of a step: then what was saved before stands.
                if not self._in_step:
                    self._save_and_leave()
                error = self._signals.interruption()
                raise error from raised
            if not isinstance(raised, CheckpointWriteError):  # it would not be written either
                self._saver.emergency()
            if not self._in_step:
                self._saver.rescue(raised, self._ended)
            raise
        except BaseException as raised:
            error = raised
            raise
        finally:
            self.recorder.observed = False
            self.callbacks.finalize(self, error)
        return self.state

    # --- one epoch -------------------------------------------------------------------------------

    def _epoch(self) -> None:
        self._epoch_number = self.state.epoch + 1
        for call in self.callbacks.on_epoch_start if not self.progress.windows else ():
            call(self)
        metrics = self._train_epoch()
        if not self._exhausted:
            self._stop_inside_epoch(metrics)
            return
        value, improved = None, False
        if self.val is not None and self._epoch_number % self.settings.validate_every == 0:
            value, improved = self._validate_once()
            metrics |= self.state.validation
        self.state.epoch += 1
        self.boundary = None
        self.progress = EpochProgress()
        self._ended = Ended(value, improved, self.state.epoch)
        self.recorder.write_measured("epoch", metrics)
        told = FirstError()
        told.call(self.callbacks.on_epoch_end, self, metrics)
        told.raise_it()
        if self.state.stop_requested is not None:
            self._stop(self.state.stop_requested)
        self._save_ended()

    def _stop_inside_epoch(self, metrics: dict[str, float]) -> None:
        """After a limit, or an early stop between two epochs' ends. The checkpoint holds the position."""
        value, improved = None, False
        if self.val is not None:
            value, improved = self._validate_once(at="stop")
            metrics |= self.state.validation
        self.boundary = None
        self._ended = Ended(value, improved, None)
        self.recorder.write_measured("epoch", {"partial": True, **metrics})
        reached = limit(self.settings, self.state)
        self._stop(reached or self.state.stop_requested or "asked to stop inside an epoch")
        self._save_ended()

    def _save_ended(self) -> None:
        assert self._ended is not None
        self._saver.after_epoch(self._ended, ends=self.is_complete or self.state.stop_reason is not None)
        self._ended = None

    def _stop_if_asked(self) -> None:
        """Between two epochs: by on_checkpoint, or before the run was interrupted and resumed."""
        if self.state.stop_requested is not None and not self.progress.windows:
            self._stop(self.state.stop_requested)
            self._saver.after_epoch(Ended(None, False, None), ends=True)

    def _stop(self, reason: str) -> None:
        self.state.stop_reason, self.state.stop_requested = reason, None
        self.event("stop", reason=reason)

    def _train_epoch(self) -> dict[str, float]:
        """The rest of an epoch; where it was resumed, its start has been told of."""
        if not self.progress.windows:
            self.metrics["train"].reset()
            self._phase_boundary("train", "start")
        self._require_training_mode()
        self._training_modes = _modes(self.parts)
        self.progress.start()
        self._exhausted = False
        # A run that was saved in the middle of an epoch may have left before what follows its last step.
        if not (self.progress.windows and self._between_steps()):
            for window in self._windows():
                self._require_training_mode()
                for container in window if self.callbacks.on_batch_start["train"] else ():
                    for call in self.callbacks.on_batch_start["train"]:
                        call(self, "train", container)
                self._in_step = True
                self._after_step(window, self._stepper.run(window))
                if self._between_steps():
                    break
                if self.is_complete:  # what its length says is the last window ends the epoch
                    self._exhausted = True
                    break
        self.progress.stop()
        if not self.progress.windows:
            raise BatchError(f"the training data yields no batch in epoch {self._epoch_number}")
        self._guard.require_clean()
        self.boundary = Boundary.here(self)
        self._phase_boundary("train", "end")
        found = {**self.progress.means.compute(), **self.metrics["train"].compute()}
        metrics = {f"train_{name}": value for name, value in found.items()}
        return metrics | self.progress.summary() | self._memory() | {"lr": self.next_lr}

    def _require_training_mode(self) -> None:
        """Somebody may have left a model in eval mode. Submodules that its author froze in it stay so."""
        if all(model.training for model in self.parts.models.values()):
            return
        for model in self.parts.models.values():
            if not model.training:
                model.train()
        for module, training in self._training_modes:
            module.training = training

    def _between_steps(self) -> bool:
        """Validates, saves and heeds signals where it is time; whether the epoch is left here."""
        if self._validates_at_step():
            self._validate_inside_epoch()
        self._saver.poll()
        if self._trackers is not None:
            self._trackers.check()
        last = self._is_last_window()
        if not last and self._saver.is_due():
            self._saver.last()
        self._heed_signals()
        return (self.is_complete or self._stops_here) and not last

    def _save_and_leave(self) -> None:
        for attempt in (1, 2):
            try:
                self._saver.at_once(self._ended)
                return
            except RuntimeError as error:
                # torch tells of the end of a loader process wherever that news finds us, also here.
                if attempt == 2 or not is_of_loader(error):
                    raise

    def _heed_signals(self) -> None:
        """Also the end of the time that this process has, and a wish to leave. The state can be resumed."""
        if self._deadline is not None and monotonic() >= self._deadline:
            self.leave(
                WallTimeReached(
                    f"trainer.max_wall_time_sec: {self.settings.max_wall_time_sec:g} s are over after step "
                    f"{self.state.global_step}"
                )
            )
        if self._signals.stopping is None and self._leaving is None and not self._signals.save:
            return
        with self._surroundings.outside():
            self._save_and_obey()

    def _save_and_obey(self) -> None:
        if self._signals.stopping is not None or self._leaving is not None:
            self._saver.last(again=False)
            self._saver.finish()
            self._signals.check()
            assert self._leaving is not None
            raise self._leaving
        self._signals.save = False
        self._saver.last()

    def _is_last_window(self) -> bool:
        """A run that ends with an epoch completes it, with its record and validation."""
        return self.progress.windows == self.steps_per_epoch

    def _windows(self) -> Iterator[list[Container]]:
        """Micro-batches as the loader makes them, ``accumulate`` at a time; the last window may have fewer."""
        start = self.progress.windows * self.settings.accumulate
        batches = self._batches(start)
        epoch = self.state.epoch
        while True:
            with self.progress.waiting_for_data():
                window = [container_of(batch) for batch in islice(batches, self.settings.accumulate)]
            if not window:
                self._exhausted = True
                return
            for container in window:
                container["phase"] = "train"
                container["epoch"], container["step"] = epoch, self.state.global_step
            yield window

    def _batches(self, start: int) -> Iterator[Any]:
        """Signals are heeded also while a stream is read up to where the run was interrupted."""
        for batch in self.train.batches(self.state.epoch, start):
            if batch is LEFT_OUT:
                self._heed_signals()
            else:
                yield batch

    def _after_step(self, window: Window, result: StepResult) -> None:
        """Counts the step, and logs it where it is due. It counts if any phase was applied."""
        applied, state = result.applied, self.state
        skipped = result.skipped
        self.progress.count(result.samples)
        state.samples += result.samples
        state.global_step += applied
        state.skipped_steps += not applied
        state.nonfinite_updates += skipped.count("skipped as not finite")
        if applied:
            self._guard.count_step()
        logs = applied and self._logs(state.global_step)
        step_means = WeightedMeans()
        for measured, weight in zip(result.measured, result.weights, strict=True):
            if not skipped:
                self.progress.means.add(measured, weight)
            if logs or skipped:
                step_means.add(measured, weight)
        records, failure = [], None
        if logs:
            record, failure = self._log_step(step_means)
            records.append(record)
        for reason in skipped:
            details = {"event": "skipped_step", "reason": reason, **step_means.compute()}
            records.append(self.recorder.put("event", details))
        told = FirstError(failure)
        for container in window if self.callbacks.on_batch_end["train"] else ():
            told.call(self.callbacks.on_batch_end["train"], self, "train", container)
        for record in records:
            told.call((self.recorder.tell,), record)
        if applied and self.callbacks.on_lr_update and self._schedules:
            rates = {role: update.next_lr for role, update in self.parts.updates.items()}
            told.call(self.callbacks.on_lr_update, self, rates)
        told.call(self.callbacks.on_step_end, self)
        self._in_step = False  # counted, recorded and told: what fails from here on costs nothing
        told.raise_it()
        if "skipped as not finite" in skipped:
            self._guard.require_clean()
            self._guard.require_budget()

    def _logs(self, step: int) -> bool:
        return step % self.settings.log_every == 0

    def _tell_of_gradients(self, role: str) -> None:
        """Whether the step under way is logged is known before it is taken, unless it is skipped."""
        logs = self._logs(self.state.global_step + 1)
        for call in self.callbacks.on_gradients if logs else self.callbacks.on_gradients_of_every_step:
            call(self, role)

    def _log_step(self, means: WeightedMeans) -> tuple[dict[str, Any], Exception | None]:
        """One transfer from the device holds every number of the record, those of callbacks too, and whether all is
        finite.

        :returns: the record, and what a callback raised instead of measuring.
        """
        update = self._first_update()
        if update.grad_norm is not None:
            means.add({"grad_norm": update.grad_norm}, 1.0)
        rates, measured = {"lr": update.applied_lr, **self.progress.rates()}, Measured()
        if self.callbacks.measure:
            measured = self.callbacks.measured(self, "batch", taken((*means.names, *rates)))
            tensors = {n: value for n, value in measured.values.items() if isinstance(value, Tensor)}
            means.add({n: value.to(self.strategy.device) for n, value in tensors.items()}, 1.0)
        means.add({"__flag__": self._guard.flag}, 1.0)
        metrics = means.compute()
        if metrics.pop("__flag__") > 0:  # this step was not taken
            counted = self.state.global_step
            try:
                self._guard.require_clean()
            except NonFiniteError:
                if self.state.global_step == counted - 1:  # it was this step: what it measured is of interest
                    self.event("skipped_step", reason="skipped as not finite", **metrics)
                raise
        ours = {name: value for name, value in metrics.items() if name not in measured.values}
        theirs = {name: metrics.get(name, value) for name, value in measured.values.items()}
        rates |= self.progress.rates()  # the device has caught up now
        return self.recorder.put("batch", {**ours, **rates, **theirs}), measured.error

    # --- validation ------------------------------------------------------------------------------

    def _validates_at_step(self) -> bool:
        every = self.settings.validate_every_steps
        return (
            every is not None
            and self.val is not None
            and self.state.global_step % every == 0
            and self.state.global_step > 0
        )

    def _validate_inside_epoch(self) -> None:
        with self.progress.paused():
            self.boundary = Boundary.here(self)
            value, improved = self._validate_once(at="step")
            self.boundary = None
            if value is not None:
                self._saver.best(value, improved=improved)
        stopping = self.settings.early_stopping
        self._stops_here = exhausted(self.state, stopping)

    def _validate_once(self, at: str = "epoch") -> tuple[float | None, bool]:
        """Validates unless this very step has been; the monitored metric if it did, and whether it is the best so
        far."""
        if self.state.validated_at == self.state.global_step:
            return None, False
        assert self.val is not None
        self._guard.require_clean()
        self._phase_boundary("val", "start")
        means = self.evaluate(self.val, "val")
        self._phase_boundary("val", "end")
        metrics = {f"val_{name}": value for name, value in means.items()}
        self.recorder.write_measured("validation", {"at": at, **metrics})
        self.state.validated_at, self.state.validation = self.state.global_step, metrics
        improved = self._judge(metrics)
        return metrics[self.settings.monitor], improved

    def evaluate(self, source: BatchSource, phase: PhaseName) -> dict[str, float]:
        """Means of the mode's metrics over a source; modules and training's random states are left as they were."""

        def on_batch(container: Container) -> None:
            for call in self.callbacks.on_batch_end[phase]:
                call(self, phase, container)
            self._heed_signals()

        def before_batch(container: Container) -> None:
            for call in self.callbacks.on_batch_start[phase]:
                call(self, phase, container)

        with keeping_rng(), self._surroundings.inside():
            return evaluate(
                self.mode,
                self.parts.modules(),
                source,
                self.strategy.device,
                self._dtype,
                self._autocast,
                self.metrics[phase],
                before_batch if self.callbacks.on_batch_start[phase] else None,
                on_batch,
                phase=phase,
                epoch=self.state.epoch,
                step=self.state.global_step,
            )

    def _judge(self, metrics: Mapping[str, float]) -> bool:
        """Compares the monitored metric with the best so far; decides about early stopping."""
        monitor, stopping = self.settings.monitor, self.settings.early_stopping
        if monitor not in metrics:
            found = ", ".join(metrics) or "no metric at all: nothing in the validation data counts"
            raise TrainLatticeError(
                f"trainer.monitor is {monitor!r}, and a validation of this run gives {found}"
            )
        if not isinstance(metrics[monitor], (int, float)):
            raise TrainLatticeError(f"trainer.monitor is {monitor!r}, which is no single number")
        improved = judge(metrics[monitor], self.state, self.direction, stopping, self._epoch_number)
        if exhausted(self.state, stopping):
            stale = self.state.stale_validations
            self.request_stop(
                f"early stopping: {monitor} did not improve in {stale} validation{'s' * (stale > 1)}"
            )
        return improved

    def _phase_boundary(self, phase: PhaseName, edge: str) -> None:
        for call in self.callbacks.on_phase_start if edge == "start" else self.callbacks.on_phase_end:
            call(self, phase)

    # --- records and checkpoints -----------------------------------------------------------------

    def event(self, event: str, **details: Any) -> None:
        """Writes a record of type ``event``."""
        self.recorder.event(event, **details)

    def _first_update(self) -> Update:
        return next(iter(self.parts.updates.values()))

    def _memory(self) -> dict[str, float]:
        if self.strategy.device.type != "cuda":
            return {}
        return {"max_memory_mb": torch.cuda.max_memory_allocated(self.strategy.device) / 2**20}


def _modes(parts: Parts) -> list[tuple[nn.Module, bool]]:
    return [(module, module.training) for model in parts.models.values() for module in model.modules()]


def _natural_direction(monitor: str, metrics: PhaseMetrics) -> bool | None:
    """What a metric says of its own values; None if it says nothing, or the monitored value is none of a metric.
    One of several values is recorded as ``<name>_<key>``: of names that begin alike the longest counts."""
    wanted = monitor.removeprefix("val_")
    owners = [m for m in metrics.metrics if wanted == m.name or wanted.startswith(f"{m.name}_")]
    if not owners or wanted == monitor:
        return None
    better: bool | None = getattr(
        max(owners, key=lambda named: len(named.name)).metric, "higher_is_better", None
    )
    return better
