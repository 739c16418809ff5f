"""``trial_summary.json``: how a run ended, in one file for whoever starts many."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from typing import Any

import torch

from trainlattice.checkpoint.durable import write_durably
from trainlattice.runs.records import finite
from trainlattice.training.callbacks import Callback
from trainlattice.training.failures import Ending
from trainlattice.training.trainer import Trainer
from trainlattice_plugin_callbacks.files import run_directory
from trainlattice_plugin_callbacks.options import TrialSummaryOptions

FILE = "trial_summary.json"
SCHEMA = 1


class TrialSummary(Callback):
    """Written when training ends, whatever ends it. A number that is not finite is null."""

    def __init__(self, options: TrialSummaryOptions) -> None:
        self.began: float | None = None
        self.samples = 0
        self.last: dict[str, Mapping[str, Any]] = {}

    def on_run_start(self, trainer: Trainer) -> None:
        self.began, self.samples = time.perf_counter(), trainer.state.samples

    def log_metrics(self, trainer: Trainer, record: Mapping[str, Any]) -> None:
        if record["type"] != "event":
            self.last[record["type"]] = record

    def finalize(self, trainer: Trainer, error: BaseException | None) -> None:
        seconds = time.perf_counter() - self.began if self.began is not None else None
        text = json.dumps(self._summary(trainer, error, seconds), indent=2, allow_nan=False)
        write_durably(run_directory(trainer) / FILE, text + "\n")

    def _summary(
        self, trainer: Trainer, error: BaseException | None, seconds: float | None
    ) -> dict[str, Any]:
        ending, state = Ending.of(error), trainer.state
        told = ending.error
        parameters = [p for model in trainer.parts.models.values() for p in model.parameters()]
        samples = state.samples - self.samples
        return {
            "schema": SCHEMA,
            "status": ending.status,
            "exit_code": ending.exit_code,
            "reason": str(told) if told is not None else state.stop_reason,
            "error": {"type": type(told).__name__, "message": str(told)}
            if ending.status == "failed"
            else None,
            "epochs": state.epoch,
            "steps": state.global_step,
            "samples": state.samples,
            "skipped_steps": state.skipped_steps,
            "best": {
                "monitor": trainer.settings.monitor,
                "value": state.best_metric,
                "epoch": state.best_epoch,
                "step": state.best_step,
            },
            "last": {
                kind: {name: finite(value) for name, value in record.items() if name != "type"}
                for kind, record in self.last.items()
            },
            "seconds": seconds,
            "samples_per_sec": samples / seconds if seconds else None,
            "peak_memory_mb": _peak_memory(trainer.strategy.device),
            "parameters": sum(p.numel() for p in parameters),
            "trained_parameters": sum(p.numel() for p in parameters if p.requires_grad),
        }


def _peak_memory(device: torch.device) -> dict[str, float | None]:
    """MiB: of the process since it began, and what torch had allocated on a CUDA device."""
    on_device = torch.cuda.max_memory_allocated(device) / 2**20 if device.type == "cuda" else None
    return {"host": _peak_of_process(), "device": on_device}


def _peak_of_process() -> float | None:
    if sys.platform == "win32":
        return None
    import resource  # there is none on Windows

    unit = 1 if sys.platform == "darwin" else 1024  # bytes there, KiB elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20
