"""Runs in this process and what they leave behind."""

from __future__ import annotations

import copy
import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import yaml
from jsonschema import Draft7Validator

from support.configs import TINY
from trainlattice import Callback, RunResult, run_experiment
from trainlattice.contracts.metric_records import records_schema

RECORD = Draft7Validator(records_schema())
TIMES = frozenset(
    {
        "time",
        "steps_per_sec",
        "samples_per_sec",
        "epoch_seconds",
        "data_seconds",
        "train_samples_per_sec",
        "records",
    }
)
"""Fields of records that no two runs share, or no two parts of one."""


def tiny(**sections: Mapping[str, Any] | None) -> dict[str, Any]:
    """The tiny configuration as data, with values of some sections replaced (None removes a section).

    A section that names another component replaces the whole section.
    """
    config: dict[str, Any] = yaml.safe_load(TINY)
    for name, values in sections.items():
        if values is None:
            config.pop(name)
        elif "name" in values:
            config[name] = dict(values)
        else:
            config[name] = {**config.get(name, {}), **values}
    return copy.deepcopy(config)


def train(config: Mapping[str, Any], directory: Path, **arguments: Any) -> RunResult:
    """``run_experiment`` with its run directory below ``directory / "runs"``."""
    experiment = {**config.get("experiment", {}), "runs_dir": str(directory / "runs")}
    return run_experiment({**config, "experiment": experiment}, **arguments)


def run_dirs(directory: Path) -> list[Path]:
    """Run directories below ``directory / "runs"``, in the order in which they were made."""
    runs = directory / "runs"
    return sorted(runs.iterdir(), key=lambda run: run.stat().st_ctime_ns) if runs.is_dir() else []


def checkpoint(run_dir: Path | None, name: str = "last.pt") -> dict[str, Any]:
    """A checkpoint of a run, as plain torch reads it."""
    assert run_dir is not None
    content: dict[str, Any] = torch.load(run_dir / "checkpoints" / name, weights_only=True)
    return content


def weights(run_dir: Path | None, name: str = "last.pt") -> dict[str, torch.Tensor]:
    """State dict of the model in a checkpoint."""
    held: dict[str, torch.Tensor] = checkpoint(run_dir, name)["states"]["model/model"]
    return held


def rewrite(run_dir: Path | None, **changes: Any) -> None:
    """Changes entries of the last checkpoint of a run; it then lies without an index."""
    assert run_dir is not None
    content = {**checkpoint(run_dir), **changes}
    (run_dir / "checkpoints" / "index.json").unlink()
    torch.save(content, run_dir / "checkpoints" / "last.pt")


def records(run_dir: Path | None, kind: str | None = None) -> list[dict[str, Any]]:
    """The records of a run, each line parsed as strict JSON and valid by the published schema."""
    assert run_dir is not None

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not strict JSON")

    lines = (run_dir / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    parsed = [json.loads(line, parse_constant=refuse) for line in lines]
    for record in parsed:
        RECORD.validate(record)
    return [record for record in parsed if kind in (None, record["type"])]


def without_times(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Records without what differs between equal runs."""
    return [{key: value for key, value in record.items() if key not in TIMES} for record in found]


def trained(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Records without times and without where a run began and ended: those of the parts of an interrupted run,
    one after the other, are those of the whole."""
    edges = ("start", "resume", "end")
    return without_times([record for record in found if record.get("event") not in edges])


def manifest(run_dir: Path | None) -> dict[str, Any]:
    assert run_dir is not None
    content: dict[str, Any] = json.loads((run_dir / "manifest.json").read_text(encoding="utf-8"))
    return content


def digests(directory: Path) -> dict[str, str]:
    """sha256 of every file below a directory."""
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def assert_identical(left: Any, right: Any, where: str = "") -> None:
    """Equal in structure, types and every bit of every tensor."""
    assert type(left) is type(right), where
    if isinstance(left, torch.Tensor):
        assert left.dtype == right.dtype, where
        assert torch.equal(left, right), where
    elif isinstance(left, Mapping):
        assert list(left) == list(right), where
        for key in left:
            assert_identical(left[key], right[key], f"{where}/{key}")
    elif isinstance(left, (list, tuple)):
        assert len(left) == len(right), where
        for index, (one, other) in enumerate(zip(left, right, strict=True)):
            assert_identical(one, other, f"{where}/{index}")
    elif isinstance(left, float) and math.isnan(left):
        assert math.isnan(right), where
    else:
        assert left == right, where


class InOrder(Callback):
    """Makes the run take its samples in the order of the data."""

    def on_run_start(self, trainer: Any) -> None:
        trainer.train.shuffle = False


class InterruptAfter(Callback):
    """Ctrl-C at the beginning of the epoch that follows the first N."""

    def __init__(self, epochs: int) -> None:
        self.epochs = epochs

    def on_epoch_start(self, trainer: Any) -> None:
        if trainer.state.epoch == self.epochs:
            raise KeyboardInterrupt


class InterruptAtStep(Callback):
    """Ctrl-C right after the step with this number, which may lie in the middle of an epoch."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, trainer: Any) -> None:
        if trainer.state.global_step == self.step:
            raise KeyboardInterrupt


def assert_same_end(one: Path | None, other: Path | None) -> None:
    """The last checkpoints of two runs agree in everything but where the runs lie."""
    left, right = checkpoint(one), checkpoint(other)
    for found in (left, right):
        found["config"]["experiment"].pop("runs_dir")
    assert_identical(left, right)


def interrupted(config: Mapping[str, Any], directory: Path, *, epochs: int, **arguments: Any) -> Path:
    """The directory of a run that was interrupted after its first N epochs."""
    before = set(run_dirs(directory))
    try:
        train(config, directory, extra_callbacks=[InterruptAfter(epochs)], **arguments)
    except KeyboardInterrupt:
        (run,) = set(run_dirs(directory)) - before
        return run
    raise AssertionError("the run was not interrupted")
