"""Computes the metrics of a checkpoint. Reads a run, writes nothing. The configuration is checked before torch
is imported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainlattice.checkpoint.names import BEST, LAST
from trainlattice.config.resolve import Resolution, resolve_file
from trainlattice.config.snapshot import read_only
from trainlattice.diagnostics.errors import CheckpointError, UsageError
from trainlattice.runs.child import WITHOUT_TRACKERS
from trainlattice.runs.directory import RunDirectory
from trainlattice.runs.experiment import run_of
from trainlattice.runs.records import finite


@dataclass(frozen=True)
class Evaluation:
    """Metrics of a checkpoint.

    :param metrics: by name with the split's prefix, such as ``val_loss``.
    :param samples: how many samples they are means over; None for a stream without length.
    """

    checkpoint: Path
    split: str
    epoch: int
    step: int
    samples: int | None
    metrics: dict[str, Any]

    def as_json(self) -> dict[str, Any]:
        """Strict JSON: a metric that is not finite is null."""
        metrics = {name: finite(value) for name, value in self.metrics.items()}
        return {**vars(self), "checkpoint": str(self.checkpoint), "metrics": metrics}


def evaluate_run(
    path: Path | str,
    *,
    split: str = "val",
    device: str | None = None,
    local_files: Sequence[Path | str] = (),
) -> Evaluation:
    """Evaluates a run's best checkpoint, or the given one, on validation or test data.

    :param split: ``val`` or ``test``.
    :param device: as trainer.device; by default what the run's configuration says.
    """
    if split not in ("val", "test"):
        raise UsageError(f"split is val or test, not {split!r}")
    path = Path(path)
    run = run_of(path)
    overrides = [WITHOUT_TRACKERS, *([f"trainer.device={device}"] if device is not None else [])]
    resolution = resolve_file(run.config, overrides, local_files=local_files)
    return _evaluate(resolution, _checkpoint(path, run), split)


def _checkpoint(path: Path, run: RunDirectory) -> Path:
    if not path.is_dir():
        return path
    for name in (BEST, LAST):
        if (run.checkpoints / name).is_file():
            return run.checkpoints / name
    raise CheckpointError(f"{path} has neither checkpoints/best.pt nor checkpoints/last.pt")


def _evaluate(resolution: Resolution, checkpoint: Path, split: str) -> Evaluation:
    # These import torch: only now, since the configuration is well.
    from trainlattice.checkpoint.store import load
    from trainlattice.runs.build import build
    from trainlattice.training.callbacks import Callback, CallbackList
    from trainlattice.training.checkpointing import restore_models
    from trainlattice.training.mode import parameter_dtype
    from trainlattice.training.precision import autocast
    from trainlattice.training.validation import Surroundings, evaluate

    saved = load(checkpoint)
    built = build(resolution, budget=saved.budget)
    source = built.val if split == "val" else built.test
    if source is None:
        dataset = resolution.config.one("dataset")
        raise CheckpointError(f"the dataset {dataset.name if dataset else ''!r} has no {split} data")
    restore_models(built.parts, built.mode, saved, str(checkpoint))
    device = built.strategy.device
    # Those alone that put other weights in place: no other hears of an evaluation.
    callbacks = CallbackList(c for c in built.callbacks if type(c[1]).evaluating is not Callback.evaluating)
    for call in callbacks.update_config:
        call(read_only(resolution.config.as_plain()))
    try:
        callbacks.load_state_dict(saved.states.get("callbacks") or {})
    except ValueError as error:
        raise CheckpointError(f"{checkpoint} does not fit this run: {error}") from error
    surroundings = Surroundings(lambda: [call(built.parts.models) for call in callbacks.evaluating])
    with surroundings.inside():
        means = evaluate(
            built.mode,
            built.parts.modules(),
            source,
            device,
            parameter_dtype(built.parts),
            autocast(resolution.config.trainer.precision, device),
            built.metrics["val" if split == "val" else "test"],
            phase="val" if split == "val" else "test",
            epoch=saved.trainer["epoch"],
            step=saved.trainer["global_step"],
        )
    return Evaluation(
        checkpoint,
        split,
        saved.trainer["epoch"],
        saved.trainer["global_step"],
        source.num_samples,
        {f"{split}_{name}": value for name, value in means.items()},
    )
