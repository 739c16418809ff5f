"""Cases about best checkpoints and early stopping: validation values are scripted, one for each validation."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402

from support.t1 import records, table, train_t1, weight_of  # noqa: E402
from trainlattice import Options, register_loss  # noqa: E402
from trainlattice.diagnostics.errors import ConfigError  # noqa: E402
from trainlattice.runs.result import RunResult  # noqa: E402

SCRIPT: list[float] = []


@register_loss("scripted", options=Options)
class Scripted(nn.Module):
    """Mean squared error in training; in validation the next value of SCRIPT."""

    task = "regression"

    def forward(self, pred: Tensor, target: Tensor) -> Tensor:
        if pred.is_meta or torch.is_grad_enabled():
            return nn.functional.mse_loss(pred, target)
        return torch.tensor(SCRIPT.pop(0))


def run(tmp_path: Path, values: list[float], *, resume: Path | None = None, **trainer: Any) -> RunResult:
    """One epoch of one step for each scripted value, or until it stops."""
    SCRIPT[:] = values
    trainer = {"epochs": len(values), **trainer}
    return train_t1(
        tmp_path,
        table([1.0], [1.0], val=([1.0], [1.0])),
        loss={"name": "scripted"},
        trainer=trainer,
        resume=resume,
        dataset={"table": "scripted"},
    )


@pytest.fixture(autouse=True)
def _table() -> None:
    from support.t1 import TABLES

    TABLES["scripted"] = table([1.0], [1.0], val=([1.0], [1.0]))


NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("mode", "values", "best", "epoch"),
    [
        ("max", [NAN, 0.5, 0.7, NAN, 0.6], 0.7, 3),
        ("min", [0.5, NAN, 0.4], 0.4, 3),
        ("min", [INF, 2.0], 2.0, 2),
        ("max", [-INF, 2.0], 2.0, 2),
    ],
)
def test_B56_nan_is_never_the_best(
    tmp_path: Path, mode: str, values: list[float], best: float, epoch: int
) -> None:
    result = run(tmp_path, values, monitor_mode=mode)
    assert result.best_metric == pytest.approx(best)
    assert result.best_epoch == epoch
    assert result.run_dir is not None
    assert (result.run_dir / "checkpoints" / "best.pt").exists()


def test_B56_without_a_finite_value_there_is_no_best(tmp_path: Path) -> None:
    result = run(tmp_path, [NAN, NAN, NAN])
    assert result.best_metric is None
    assert result.run_dir is not None
    assert not (result.run_dir / "checkpoints" / "best.pt").exists()
    for record in records(result, "validation"):
        assert record["val_loss"] is None
        assert record["nonfinite"] == ["val_loss"]


@pytest.mark.parametrize(
    ("patience", "values", "stops_after"),
    [
        (0, [1.0, 0.9, 0.95, 0.5], 3),
        (1, [1.0, 1.0, 1.0, 0.5], 3),
        (1, [1.0, 0.9, 0.95, 0.5], 4),
        (2, [1.0, 1.0, 1.0], 3),
        (1, [NAN, NAN, NAN, 0.5], 2),
    ],
)
def test_B57_stops_after_more_than_patience_validations_without_improvement(
    tmp_path: Path, patience: int, values: list[float], stops_after: int
) -> None:
    result = run(tmp_path, values, early_stopping={"patience": patience})
    assert result.epoch == stops_after
    assert result.status == "finished"
    if stops_after < len(values):
        assert "early stopping" in (result.stop_reason or "")
        (stop,) = [r for r in records(result, "event") if r["event"] == "stop"]
        assert stop["reason"] == result.stop_reason
    assert result.run_dir is not None
    assert (result.run_dir / "checkpoints" / "last.pt").exists()


def test_B57_an_improvement_within_min_delta_is_the_best_and_does_not_reset_patience(tmp_path: Path) -> None:
    result = run(tmp_path, [1.0, 0.95, 0.91, 0.5], early_stopping={"patience": 1, "min_delta": 0.1})
    assert result.epoch == 3
    assert result.best_metric == pytest.approx(0.91)


def test_B59_only_validations_count(tmp_path: Path) -> None:
    SCRIPT[:] = [1.0, 1.1, 1.2, 0.1]
    result = train_t1(
        tmp_path,
        table([1.0], [1.0], val=([1.0], [1.0])),
        loss={"name": "scripted"},
        trainer={"epochs": 8, "validate_every": 2, "early_stopping": {"patience": 1}},
    )
    assert result.epoch == 6
    assert ["val_loss" in r for r in records(result, "epoch")] == [False, True] * 3


def test_B59_a_last_epoch_without_validation(tmp_path: Path) -> None:
    result = run(tmp_path, [1.0, 0.5], epochs=5, validate_every=2, early_stopping={"patience": 0})
    assert result.epoch == 5
    assert result.best_metric == 0.5


def test_B60_an_interrupted_run_keeps_its_count(tmp_path: Path) -> None:
    first = run(tmp_path, [1.0, 1.0, 1.0], early_stopping={"patience": 2})
    assert first.stop_reason is None
    second = run(tmp_path, [1.0, 1.0], resume=first.run_dir, epochs=20, early_stopping={"patience": 2})
    assert second.epoch == 4
    assert "early stopping" in (second.stop_reason or "")


def test_B60_a_run_that_had_stopped_early_trains_on_from_zero(tmp_path: Path) -> None:
    first = run(tmp_path, [1.0, 1.0, 1.0, 9.0], early_stopping={"patience": 1})
    assert first.epoch == 3
    second = run(tmp_path, [2.0, 2.0, 0.5], resume=first.run_dir, epochs=20, early_stopping={"patience": 1})
    assert second.epoch == 5  # two more without improvement on the best, 1.0
    assert second.best_metric == 1.0
    changed = run(
        tmp_path, [2.0, 2.0, 2.0, 0.5], resume=first.run_dir, epochs=20, early_stopping={"patience": 2}
    )
    assert changed.epoch == 6


@pytest.mark.parametrize("monitor", ["val_acc", "val_los", "train_loss"])
def test_B62_an_unknown_monitor_is_an_error_at_start(tmp_path: Path, monitor: str) -> None:
    with pytest.raises(ConfigError) as caught:
        run(tmp_path, [1.0], monitor=monitor)
    assert "val_loss" in str(caught.value)
    assert not (tmp_path / "runs").exists()


def test_B62_an_empty_validation_set_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="val split"):
        train_t1(tmp_path, table([1.0], [1.0], val=([], [])))


def test_B62_without_validation_data_there_is_no_best(tmp_path: Path) -> None:
    result = train_t1(tmp_path, table([1.0], [1.0]))
    assert result.best_metric is None
    assert result.run_dir is not None
    assert not (result.run_dir / "checkpoints" / "best.pt").exists()


def test_early_stopping_between_epoch_ends_stops_at_that_step(tmp_path: Path) -> None:
    SCRIPT[:] = [1.0, 2.0, 3.0, 0.1]
    result = train_t1(
        tmp_path,
        table([1.0] * 10, [1.0] * 10, val=([1.0], [1.0])),
        loss={"name": "scripted"},
        trainer={"epochs": 2, "validate_every_steps": 2, "early_stopping": {"patience": 1}},
    )
    assert result.global_step == 6
    assert result.epoch == 0
    assert result.best_metric == 1.0


def test_resuming_after_max_steps_inside_an_epoch_is_bit_identical(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(10, generator=generator).tolist(), torch.randn(10, generator=generator).tolist()
    splits = table(x, y)
    whole = train_t1(tmp_path, splits, trainer={"epochs": 2})
    part = train_t1(tmp_path, splits, trainer={"epochs": 2, "max_steps": 13}, dataset={"table": "again"})
    assert part.run_dir is not None
    rest = train_t1(tmp_path, splits, trainer={"epochs": 2}, dataset={"table": "again"}, resume=part.run_dir)
    assert rest.global_step == 20
    assert weight_of(rest) == weight_of(whole)
    losses = [r["loss"] for r in records(part, "batch") + records(rest, "batch")]
    assert losses == [r["loss"] for r in records(whole, "batch")]
    assert records(rest, "epoch")[-1]["train_loss"] == records(whole, "epoch")[-1]["train_loss"]
