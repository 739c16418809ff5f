"""Settings: the options of core itself. The Trainer and the data loader take these objects."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from trainlattice.contracts.options import (
    LocalPath,
    NonNegativeFloat,
    NonNegativeInt,
    Options,
    PositiveFloat,
    PositiveInt,
)


def _visible(name: str) -> str:
    if not name.strip() or not name.isprintable():
        raise ValueError("a name must have visible characters and no control characters")
    return name


class ExperimentSettings(Options):
    name: Annotated[str, Field(max_length=200), AfterValidator(_visible)] = Field(
        "experiment", description="Part of the run directory's name."
    )
    seed: Annotated[int, Field(ge=0, lt=2**63)] = Field(
        42, description="Seeds weights, sample order, splits and every random number of the run."
    )
    runs_dir: LocalPath = Field("runs", description="Directory that holds the run directories.")


class EarlyStoppingSettings(Options):
    patience: NonNegativeInt = Field(
        description="Validations without improvement that are tolerated; one more stops the run."
    )
    min_delta: NonNegativeFloat = Field(
        0.0, description="An improvement of trainer.monitor counts only if it is larger than this."
    )


def _device(device: str) -> str:
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", device):
        raise ValueError("device is auto, cpu, cuda or cuda:N")
    return device


class TrainerSettings(Options):
    epochs: PositiveInt = Field(1, description="Passes over the training set.")
    device: Annotated[str, AfterValidator(_device)] = Field(
        "auto", description="auto (cuda if there is one, else cpu), cpu, cuda or cuda:N."
    )
    validate_every: PositiveInt = Field(1, description="Epochs between two validations.")
    log_every: PositiveInt = Field(10, description="Optimizer steps between two batch records.")
    monitor: Annotated[str, Field(min_length=1)] = Field(
        "val_loss", description="The validation metric that selects best.pt: val_loss or val_accuracy."
    )
    max_grad_norm: PositiveFloat | None = Field(
        None, description="Total gradient norm above which gradients are scaled down; null: never."
    )
    accumulate: PositiveInt = Field(
        1, description="Micro-batches per optimizer step; the last step of an epoch may have fewer."
    )
    precision: Literal["fp32", "bf16", "fp16"] = Field(
        "fp32", description="Number format of forward passes (autocast); fp16 needs CUDA."
    )
    early_stopping: EarlyStoppingSettings | None = Field(
        None, description="Stops when trainer.monitor no longer improves; null: never."
    )


def _without_nul(path: str) -> str:
    if "\0" in path:
        raise ValueError("a path cannot hold the character NUL")
    return path


class PluginsSettings(Options):
    local: tuple[Annotated[str, Field(min_length=1), AfterValidator(_without_nul)], ...] = Field(
        (), description="Python files with components of your own, relative to the YAML file."
    )
    require: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        (), description="Distributions that must be installed, such as 'trainlattice-plugin-foo>=0.3'."
    )


class DatasetSettings(Options):
    """Keys that core reads beside the options of a dataset."""

    batch_size: PositiveInt = Field(64, description="Samples per micro-batch.")
    num_workers: NonNegativeInt = Field(0, description="Loader processes; 0 loads in the main process.")


CORE_SECTIONS: dict[str, type[Options]] = {
    "experiment": ExperimentSettings,
    "plugins": PluginsSettings,
    "trainer": TrainerSettings,
}
"""Sections that core itself reads; every other section names components."""
