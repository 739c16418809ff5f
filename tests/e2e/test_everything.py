"""Everything attached at once: three losses, five callbacks, two trackers, four metrics, post-processing."""

from __future__ import annotations

import csv
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

torch = pytest.importorskip("torch")

from support.runs import assert_identical, checkpoint, records, run_dirs, train, trained  # noqa: E402
from trainlattice import Callback, Options, Tracker, register_tracker  # noqa: E402
from trainlattice.diagnostics.errors import RunTerminated  # noqa: E402
from trainlattice.runs.chain import joined_records  # noqa: E402

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="ends runs by signals of POSIX"),
]
CONFIG = """
model: {name: mlp, input_dim: 8, hidden_dims: [16, 16], dropout: 0.3, num_classes: 3}
dataset: {name: synthetic, samples: 110, val_samples: 30, input_shape: [8], num_classes: 3, batch_size: 8}
loss:
  components:
    - {name: cross_entropy, label_smoothing: 0.1}
    - {name: focal, weight: {schedule: cosine, start: 0.0, end: 1.0, steps: 12}}
    - {name: nll, as: again, pred_key: post_processed/log, weight: 0.5}
postprocess:
  - {name: softmax, output: probabilities}
  - {name: running_stats, output: log, dim: 1}
optimizer:
  name: adamw
  lr: 0.01
  groups: [{params: bias, weight_decay: 0.0}, {params: rest}]
scheduler: {name: warmup_cosine, warmup_steps: 3}
metrics:
  - {name: accuracy, phases: [train, val]}
  - {name: f1, average: macro, phases: [train, val]}
  - {name: auroc, phases: [train, val]}
  - {name: confusion_matrix, phases: [train, val]}
callbacks:
  - {name: ema, decay: 0.9}
  - {name: freeze, params: ['layers.1.*'], until_step: 5}
  - {name: grad_norm, module_depth: 2}
  - lr_monitor
  - {name: throughput, window: 4}
  - trial_summary
trackers: [csv, kept]
trainer: {epochs: 3, accumulate: 2, log_every: 1, max_grad_norm: 1.0, monitor: val_f1, device: cpu}
checkpoint: {keep_best: 2, keep_last: 2}
"""
KEPT: list[Mapping[str, Any]] = []


@register_tracker("kept", options=Options)
class Kept(Tracker):
    """Records in the order in which they came."""

    def __init__(self, options: Options) -> None:
        pass

    def log(self, record: Mapping[str, Any]) -> None:
        KEPT.append(record)


class TermAt(Callback):
    """SIGTERM once so many steps were taken."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, trainer: Any) -> None:
        if trainer.state.global_step == self.step:
            os.kill(os.getpid(), signal.SIGTERM)


class Nothing(Callback):
    """In the place of the other one."""


def config() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(CONFIG)
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = train(config(), tmp_path_factory.mktemp("whole"), extra_callbacks=[Nothing()]).run_dir
    assert run is not None
    return run


@pytest.mark.parametrize("steps", [(2,), (4, 6), (9, 10, 18)])
def test_a_run_with_everything_attached_is_resumed_bit_identically_inside_an_epoch(
    tmp_path: Path, whole: Path, steps: tuple[int, ...]
) -> None:
    """Seven steps an epoch, the last one of a single micro-batch."""
    assert checkpoint(whole)["trainer"]["global_step"] == 21
    resume: Path | None = None
    for step in steps:
        with pytest.raises(RunTerminated):
            train(config(), tmp_path, resume=resume, extra_callbacks=[TermAt(step)])
        resume = next(run for run in run_dirs(tmp_path) if _ends_at(run) == step)
    end = train(config(), tmp_path, resume=resume, extra_callbacks=[Nothing()]).run_dir
    assert end is not None
    for name in ("last.pt", "best.pt"):
        left, right = checkpoint(whole, name), checkpoint(end, name)
        for held in (left, right):
            held["config"]["experiment"].pop("runs_dir")
        assert_identical(left, right)
    assert _measured(joined_records(end)) == _measured(records(whole))


def _ends_at(run: Path) -> int | None:
    last = run / "checkpoints" / "last.pt"
    return int(checkpoint(run)["trainer"]["global_step"]) if last.is_file() else None


def _measured(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    measured = [r for r in trained(found) if r["type"] != "event"]
    return [{k: v for k, v in r.items() if "_per_sec" not in k} for r in measured]


def test_both_trackers_have_every_record(tmp_path: Path) -> None:
    KEPT.clear()
    run = train(config(), tmp_path).run_dir
    assert run is not None
    assert list(KEPT) == records(run)
    with open(run / "csv" / "batch.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["loss"]) for row in rows] == [r["loss"] for r in records(run, "batch")]
