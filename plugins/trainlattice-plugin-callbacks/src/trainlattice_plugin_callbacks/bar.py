"""The bar itself, drawn by rich; imported on a terminal only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from trainlattice.training.callbacks import Callback, PhaseName
from trainlattice.training.trainer import Trainer
from trainlattice_plugin_callbacks.options import ProgressOptions


class ProgressBar(Callback):
    """Steps of the epoch, time left, and the numbers of the last record.

    rich draws from a thread of its own: a step costs an addition.
    """

    def __init__(self, options: ProgressOptions) -> None:
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[numbers]}"),
            refresh_per_second=options.refresh_per_second,
            transient=True,
        )
        self.task = self.bar.add_task("", total=None, numbers="")

    def on_run_start(self, trainer: Trainer) -> None:
        """A run that is resumed inside an epoch is not told of its start again."""
        self.on_epoch_start(trainer)

    def on_epoch_start(self, trainer: Trainer) -> None:
        epoch, epochs = trainer.state.epoch + 1, trainer.settings.epochs
        description = f"epoch {epoch}/{epochs}" if epochs is not None else f"epoch {epoch}"
        self.bar.reset(
            self.task,
            total=trainer.steps_per_epoch,
            completed=trainer.progress.windows,
            description=description,
        )
        self.bar.start()

    def on_step_end(self, trainer: Trainer) -> None:
        self.bar.advance(self.task)

    def on_phase_start(self, trainer: Trainer, phase: PhaseName) -> None:
        if phase == "val":
            self.bar.update(self.task, description="validating")

    def log_metrics(self, trainer: Trainer, record: Mapping[str, Any]) -> None:
        if record["type"] == "batch":
            shown = ("loss", "accuracy", "lr")
            self.bar.update(
                self.task, numbers="  ".join(f"{k} {record[k]:.4g}" for k in shown if k in record)
            )

    def finalize(self, trainer: Trainer, error: BaseException | None) -> None:
        self.bar.stop()
