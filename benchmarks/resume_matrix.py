"""The matrix of docs/resume-matrix.md: a run that SIGTERM interrupted somewhere and that was resumed, against one
that was never touched, bit for bit.

    python benchmarks/resume_matrix.py            # prints the table
    python benchmarks/resume_matrix.py --write    # and writes docs/resume-matrix.md

Compared are the two last.pt: weights, buffers, optimizer, schedule, progress (times left out), random states.
Takes two minutes; needs no GPU and no data.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import os
import platform
import signal
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from trainlattice import Callback, Options, register_dataset, register_model, run_experiment
from trainlattice.contracts.records import DatasetContract, ModelContract
from trainlattice.data import Splits, TensorData

PLACES = (
    "epoch boundary",
    "middle of an epoch",
    "twice in one epoch",
    "inside an accumulation window",
    "during validation",
)
STEPS = 5
"""Optimizer steps in an epoch: 30 samples, batches of 3, windows of 2 micro-batches."""


class NetOptions(Options):
    dropout: float = 0.0

    def contract(self) -> ModelContract:
        return ModelContract(input_dim=4, num_outputs=3)


@register_model("matrix_net", options=NetOptions)
class Net(nn.Module):
    def __init__(self, options: NetOptions) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.GELU(), nn.Dropout(options.dropout), nn.Linear(8, 3))
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class DataOptions(Options):
    noise: float = 0.0


class Noisy:
    """Samples with noise that is drawn anew each time."""

    stochastic = True

    def __init__(self, data: TensorData, noise: float) -> None:
        self.data, self.noise = data, noise

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        x, y = self.data[index]
        return x + self.noise * torch.randn(4), y


@register_dataset("matrix_data", options=DataOptions)
def open_data(options: DataOptions) -> Splits:
    generator = torch.Generator().manual_seed(0)

    def data(size: int) -> TensorData:
        x = torch.randn(size, 4, generator=generator)
        return TensorData(x, x[:, :3].argmax(dim=1))

    train, val = data(6 * STEPS), data(12)
    contract = DatasetContract((4,), "classification", 3)
    if options.noise:
        return Splits(Noisy(train, options.noise), Noisy(val, options.noise), contract=contract)
    return Splits(train, val, contract=contract)


FEATURES: dict[str, dict[str, Any]] = {
    "dropout": {"model": {"dropout": 0.3}},
    "stochastic dataset": {"dataset": {"noise": 0.2}},
    "warmup_cosine": {"scheduler": {"name": "warmup_cosine", "warmup_steps": 4}},
    "warmup_linear": {"scheduler": {"name": "warmup_linear", "warmup_steps": 4}},
    "step_decay": {"scheduler": {"name": "step_decay", "step_size": 3}},
    "early stopping": {"trainer": {"early_stopping": {"patience": 1, "min_delta": 0.05}, "epochs": 6}},
    "adamw": {"optimizer": {"name": "adamw"}},
    "adam": {"optimizer": {"name": "adam", "amsgrad": True}},
    "sgd": {"optimizer": {"name": "sgd", "momentum": 0.9}},
}


class Interrupts(Callback):
    """Sends SIGTERM to its own process once, at a place in the second epoch."""

    def __init__(self, place: str, step: int) -> None:
        self.place, self.step, self.sent = place, step, False

    def send(self) -> None:
        if not self.sent:
            self.sent = True
            os.kill(os.getpid(), signal.SIGTERM)

    def on_run_start(self, trainer: Any) -> None:
        if self.place == "inside an accumulation window":
            self.forwards, self.trainer = 0, trainer
            trainer.parts.models["model"].register_forward_pre_hook(self.forward)

    def forward(self, module: nn.Module, arguments: Any) -> None:
        if module.training and self.trainer.state.global_step == self.step:
            self.forwards += 1
            if self.forwards == 2:  # the second of two micro-batches
                self.send()

    def on_step_end(self, trainer: Any) -> None:
        at_step = self.place in ("middle of an epoch", "twice in one epoch")
        if at_step and trainer.state.global_step == self.step:
            self.send()

    def on_epoch_end(self, trainer: Any, metrics: Any) -> None:
        if self.place == "epoch boundary":
            self.send()

    def on_batch_end(self, trainer: Any, phase: str, container: Any) -> None:
        if self.place == "during validation" and phase == "val" and trainer.state.global_step == self.step:
            self.send()


def configuration(feature: str, workers: int, precision: str, directory: Path) -> dict[str, Any]:
    changes = FEATURES[feature]
    return {
        "experiment": {"name": "matrix", "seed": 3, "runs_dir": str(directory)},
        "model": {"name": "matrix_net", **changes.get("model", {})},
        "dataset": {
            "name": "matrix_data",
            "batch_size": 3,
            "num_workers": workers,
            **changes.get("dataset", {}),
        },
        "optimizer": {"lr": 0.05, **changes.get("optimizer", {"name": "adamw"})},
        **({"scheduler": changes["scheduler"]} if "scheduler" in changes else {}),
        "trainer": {
            **{"epochs": 3, "accumulate": 2, "precision": precision, "device": "cpu", "log_every": 4},
            **changes.get("trainer", {}),
        },
        "callbacks": [],
    }


def cell(config: dict[str, Any], place: str, straight: dict[str, Any]) -> str:
    """``identical``, or the first thing that differs."""
    steps = {"twice in one epoch": (STEPS + 1, STEPS + 3), "during validation": (2 * STEPS,)}
    resume = None
    for step in steps.get(place, (STEPS + 2,)):
        try:
            run_experiment(config, resume=resume, extra_callbacks=[Interrupts(place, step)])
        except SystemExit:
            pass
        else:
            return "was not interrupted"
        resume = max(Path(config["experiment"]["runs_dir"]).iterdir(), key=lambda run: run.stat().st_ctime_ns)
    return difference(outcome(run_experiment(config, resume=resume).run_dir), straight) or "identical"


def outcome(run: Path | None) -> dict[str, Any]:
    assert run is not None
    held: dict[str, Any] = torch.load(run / "checkpoints" / "last.pt", weights_only=True)
    for name in ("seconds", "data_seconds"):
        held["states"]["progress"].pop(name)
    return {key: held[key] for key in ("states", "trainer", "rng", "budget")}


def difference(left: Any, right: Any, where: str = "") -> str | None:
    if type(left) is not type(right):
        return f"{where}: {type(left).__name__}, not {type(right).__name__}"
    if isinstance(left, Tensor):
        return None if torch.equal(left, right) else where
    if isinstance(left, dict):
        if list(left) != list(right):
            return f"{where}: other keys"
        found = (difference(left[key], right[key], f"{where}/{key}") for key in left)
        return next((text for text in found if text), None)
    if isinstance(left, (list, tuple)):
        pairs = enumerate(zip(left, right, strict=True))
        found = (difference(a, b, f"{where}/{number}") for number, (a, b) in pairs)
        return next((text for text in found if text), None)
    return None if left == right else f"{where}: {left!r}, not {right!r}"


def matrix() -> list[tuple[str, int, str, list[str]]]:
    rows = []
    for feature in FEATURES:
        for workers in (0, 2):
            for precision in ("fp32", "bf16"):
                with tempfile.TemporaryDirectory() as directory, contextlib.redirect_stdout(io.StringIO()):
                    config = configuration(feature, workers, precision, Path(directory, "straight"))
                    straight = outcome(run_experiment(config).run_dir)
                    cells = []
                    for place in PLACES:
                        config["experiment"]["runs_dir"] = str(Path(directory, place))
                        cells.append(cell(config, place, straight))
                rows.append((feature, workers, precision, cells))
                print(feature, workers, precision, *cells, sep=" | ", file=sys.stderr, flush=True)
    return rows


def table(rows: list[tuple[str, int, str, list[str]]], seconds: float) -> str:
    total = sum(len(cells) for *_, cells in rows)
    same = sum(text == "identical" for *_, cells in rows for text in cells)
    lines = [
        "# The resume matrix",
        "",
        "Made by `python benchmarks/resume_matrix.py --write`. A run is interrupted by SIGTERM at the end of its "
        "first epoch or at a place in its second (twice: at two steps of it) and resumed; its end is compared "
        "with that "
        "of a run that was never touched: weights, buffers, optimizer, schedule, progress without times, best "
        "metric, random states of Python, torch and NumPy, bit for bit. Every run accumulates two micro-batches "
        "and has batch norm; what stands in the first column comes on top.",
        "",
        f"{same} of {total} cells are identical (torch {torch.__version__}, Python {platform.python_version()}, "
        f"{platform.machine()}, CPU, {torch.get_num_threads()} thread, {seconds:.0f} s).",
        "",
        "| with | workers | precision | " + " | ".join(PLACES) + " |",
        "| --- | --- | --- |" + " --- |" * len(PLACES),
    ]
    lines += [
        f"| {feature} | {workers} | {precision} | " + " | ".join(cells) + " |"
        for feature, workers, precision, cells in rows
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="write docs/resume-matrix.md")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    began = time.perf_counter()
    rows = matrix()
    text = table(rows, time.perf_counter() - began)
    if arguments.write:
        (Path(__file__).parents[1] / "docs" / "resume-matrix.md").write_text(text, encoding="utf-8")
    print(text)
    sys.exit(any(text != "identical" for *_, cells in rows for text in cells))


if __name__ == "__main__":
    main()
