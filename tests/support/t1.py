"""The smallest problem that can be done by hand: y = w * x with w0 = 0, mean squared error, plain SGD.

Loss = mean((w x - y)^2), gradient = mean(2 x (w x - y)). Importing the module registers its components.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from support import runs
from trainlattice import Callback, Options, register_dataset, register_model, run_experiment
from trainlattice.data import Splits, TensorData
from trainlattice.runs.result import RunResult

TABLES: dict[str, Splits] = {}
"""What the dataset ``t1_table`` opens, by the option ``table``; tests put their data here."""


class NoOptions(Options):
    pass


class TableOptions(Options):
    table: str = "default"


@register_model("t1", options=NoOptions)
class Slope(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(1, 1, bias=False)
        nn.init.zeros_(self.linear.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)


@register_dataset("t1_table", options=TableOptions)
def open_table(options: TableOptions) -> Splits:
    return TABLES[options.table]


def table(x: list[float], y: list[float], val: tuple[list[float], list[float]] | None = None) -> Splits:
    """Columns of numbers as samples ``[N, 1]``; without ``val`` there is no validation."""

    def data(xs: list[float], ys: list[float]) -> TensorData:
        return TensorData(torch.tensor(xs).unsqueeze(1), torch.tensor(ys).unsqueeze(1))

    return Splits(data(x, y), data(*val) if val is not None else None)


def train_t1(
    tmp_path: Path,
    splits: Splits,
    *,
    batch_size: int = 1,
    lr: float = 0.1,
    callbacks: list[Callback] | None = None,
    resume: Path | None = None,
    **sections: dict[str, Any],
) -> RunResult:
    """Trains T1 on the given data. ``sections`` are merged over the default configuration."""
    name = f"table{len(TABLES)}" if splits not in TABLES.values() else "again"
    TABLES[name] = splits
    config: dict[str, Any] = {
        "experiment": {"name": "t1", "runs_dir": str(tmp_path / "runs")},
        "model": {"name": "t1"},
        "dataset": {"name": "t1_table", "table": name, "batch_size": batch_size},
        "loss": {"name": "mse"},
        "optimizer": {"name": "sgd", "lr": lr},
        "callbacks": [],
        "trainer": {"device": "cpu", "log_every": 1},
    }
    for section, values in sections.items():
        config[section] = {**config.get(section, {}), **values} if isinstance(values, dict) else values
    return run_experiment(config, extra_callbacks=callbacks or [], resume=resume)


def weight_of(result: RunResult, file: str = "last.pt") -> float:
    """w of a checkpoint."""
    assert result.run_dir is not None
    saved = torch.load(result.run_dir / "checkpoints" / file, weights_only=True)
    return float(saved["states"]["model/model"]["linear.weight"])


def records(result: RunResult | Path, kind: str | None = None) -> list[dict[str, Any]]:
    """The records of a run, all or of one type."""
    return runs.records(result if isinstance(result, Path) else result.run_dir, kind)
