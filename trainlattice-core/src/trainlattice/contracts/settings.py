"""Settings: the options of core itself. The Trainer and the data loader take these objects."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from trainlattice.contracts.options import (
    LocalPath,
    NonNegativeFloat,
    NonNegativeInt,
    Options,
    PositiveFloat,
    PositiveInt,
)

Key = Annotated[str, Field(min_length=1)]
"""A key of the data container, such as ``input/image`` or ``pred/logits``."""


Label = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
PhaseSetting = Literal["train", "val", "test"]


class CheckpointSettings(Options):
    every_epochs: PositiveInt | None = Field(
        1, description="Epochs between two writes of last.pt; null: none but where the run ends."
    )
    every_steps: PositiveInt | None = Field(
        None, description="Optimizer steps between two writes of last.pt inside epochs; null: none."
    )
    every_seconds: PositiveFloat | None = Field(
        None, description="Seconds after which last.pt is written at the next step; null: never."
    )
    keep_last: PositiveInt | None = Field(
        1, description="How many of the newest are kept; beyond last.pt as step-N.pt; null: all."
    )
    keep_every_epochs: PositiveInt | None = Field(
        None, description="Each checkpoint after so many epochs is kept for good as epoch-N.pt; null: none."
    )
    keep_best: NonNegativeInt = Field(
        1, description="How many of the best are kept; beyond best.pt as step-N.pt; 0: not even best.pt."
    )
    asynchronous: bool = Field(
        False, alias="async", description="Copy the state and write it while training goes on."
    )


class ModelSettings(Options):
    inputs: dict[str, str] | None = Field(
        None,
        description="By argument of the model's forward pass, the key of the container that it gets; null: the "
        "batch's input.",
    )


class LossWeightSettings(Options):
    schedule: Literal["linear", "cosine"] = Field(description="Form of the way from start to end.")
    start: float = Field(0.0, description="Weight until the schedule begins.")
    end: float = Field(1.0, description="Weight when it is over.")
    steps: PositiveInt = Field(description="Optimizer steps that it takes.")
    begin: NonNegativeInt = Field(0, description="Optimizer steps before it begins.")


class LossSettings(Options):
    weight: float | LossWeightSettings = Field(
        1.0, description="In the sum of the losses; may follow the steps."
    )
    pred_key: Key = Field("pred", description="Key of the container for the predictions.")
    target_key: Key = Field("target", description="Key of the container for the targets.")
    context: dict[str, Key] = Field(
        {}, description="By further argument of the loss, the key of the container that it gets."
    )
    label: Label | None = Field(
        None, alias="as", description="Name of this component in records; by default the component's."
    )


class PostprocessSettings(Options):
    inputs: dict[str, Key] = Field(
        {"value": "pred"},
        description="By argument of the post-processor, the key of the container that it gets.",
    )
    output: Label | None = Field(
        None, description="It writes post_processed/<output>; by default the component's name."
    )
    outputs: dict[str, Label] | None = Field(
        None, description="Of a mapping that it returns, the output for each of its own names."
    )
    unfurl: bool = Field(False, description="Whether each name of a mapping that it returns is an output.")
    phases: Annotated[tuple[PhaseSetting, ...], Field(min_length=1)] = Field(
        ("train", "val", "test"), description="Where it works: train, val, test."
    )

    @model_validator(mode="after")
    def _one_form_of_output(self) -> PostprocessSettings:
        if (self.output is not None) + (self.outputs is not None) + self.unfurl > 1:
            raise ValueError("give one of output, outputs and unfurl")
        return self


class MetricSettings(Options):
    inputs: dict[str, Key] = Field(
        {"preds": "pred", "target": "target"},
        description="By argument of the metric's update, the key of the container that it gets.",
    )
    phases: Annotated[tuple[PhaseSetting, ...], Field(min_length=1)] = Field(
        ("val", "test"), description="Where it is measured: train, val, test."
    )
    label: Label | None = Field(
        None, alias="as", description="Name of its value in records; by default the component's."
    )


class TrackerSettings(Options):
    on_error: Literal["warn", "fail"] = Field(
        "warn",
        description="What its failure does: it is reported once, or it ends the run between two steps.",
    )
    timeout_sec: PositiveFloat = Field(
        30.0, description="Seconds that the run waits for it at the start and, once more, at the end."
    )
    label: Label | None = Field(
        None, alias="as", description="Name of this tracker; by default the component's."
    )


Implementation = Literal["auto", "fused", "foreach", "loop"]


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


class CompileSettings(Options):
    mode: Literal["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"] = Field(
        "default", description="As torch.compile takes it."
    )
    backend: Annotated[str, Field(min_length=1)] = Field("inductor", description="As torch.compile takes it.")
    dynamic: bool | None = Field(None, description="Whether shapes may change; null: torch decides.")


LENGTHS = ("epochs", "max_steps", "max_samples")
"""What of TrainerSettings says how long a run is; the first that is reached ends it."""


class TrainerSettings(Options):
    epochs: PositiveInt | None = Field(
        1,
        description="Passes over the training set; null (the default beside the next two): no limit.",
    )
    max_steps: PositiveInt | None = Field(
        None, description="Optimizer steps after which the run ends; null: no limit."
    )
    max_samples: PositiveInt | None = Field(
        None,
        description="Training samples after which the run ends, at the end of that step; null: no limit.",
    )
    max_wall_time_sec: PositiveFloat | None = Field(
        None,
        description="Seconds of training after which this process saves and leaves, with exit code 13; null: none.",
    )
    overfit_batches: PositiveInt | None = Field(
        None, description="Train on the first batches of the first epoch only, again and again; null: on all."
    )
    device: Annotated[str, AfterValidator(_device)] = Field(
        "auto", description="auto (cuda if there is one, else cpu), cpu, cuda or cuda:N."
    )
    validate_every: PositiveInt = Field(1, description="Epochs between two validations.")
    validate_every_steps: PositiveInt | None = Field(
        None, description="Optimizer steps between two validations, beside those at epoch ends; null: none."
    )
    log_every: PositiveInt = Field(10, description="Optimizer steps between two batch records.")
    monitor: Annotated[str, Field(min_length=1)] = Field(
        "val_loss", description="The validation metric that selects best.pt, such as val_accuracy."
    )
    monitor_mode: Literal["auto", "min", "max"] = Field(
        "auto", description="Whether smaller or larger is better; auto: larger for accuracies, else smaller."
    )
    max_grad_norm: PositiveFloat | None = Field(
        None, description="Total gradient norm above which gradients are scaled down; null: never."
    )
    accumulate: PositiveInt = Field(
        1, description="Micro-batches per optimizer step; the last step of an epoch may have fewer."
    )
    accumulate_weighting: Literal["samples", "fixed"] = Field(
        "samples",
        description="Weight of a micro-batch in its step: its share of the samples, or 1 / accumulate.",
    )
    precision: Literal["fp32", "bf16", "fp16"] = Field(
        "fp32", description="Number format of forward passes (autocast); fp16 needs CUDA."
    )
    early_stopping: EarlyStoppingSettings | None = Field(
        None, description="Stops when trainer.monitor no longer improves; null: never."
    )
    nonfinite: Literal["stop", "skip", "continue"] = Field(
        "stop",
        description="What a NaN or infinite loss or gradient does: end the run before the optimizer sees it, "
        "leave out the step, or nothing.",
    )
    nonfinite_budget: NonNegativeInt = Field(
        10, description="Steps that nonfinite: skip may leave out in one run."
    )
    compile: CompileSettings | None = Field(None, description="torch.compile of the model; null: not.")

    @model_validator(mode="before")
    @classmethod
    def _a_length_stands_alone(cls, data: Any) -> Any:
        """``max_steps`` or ``max_samples`` without ``epochs`` train for as many epochs as that takes."""
        if isinstance(data, dict) and "epochs" not in data:
            if any(data.get(name) is not None for name in ("max_steps", "max_samples")):
                return {**data, "epochs": None}
        return data

    @model_validator(mode="after")
    def _ends(self) -> TrainerSettings:
        if all(getattr(self, name) is None for name in (*LENGTHS, "max_wall_time_sec")):
            raise ValueError(
                "the run would never end: give epochs, max_steps, max_samples or max_wall_time_sec"
            )
        return self


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
    start_method: Literal["fork", "spawn", "forkserver"] | None = Field(
        None, description="How loader processes begin; null: Python's default."
    )
    drop_last: bool = Field(False, description="Leave out a last training batch that is not full.")


class GroupSettings(Options):
    """A group of parameters; every other key is an option of the optimizer."""

    model_config = ConfigDict(extra="allow")
    params: str | tuple[str, ...] = Field(
        description="Which parameters: bias, norm, embedding, matrix, a pattern of names such as "
        "'blocks.*.weight', or several of these; rest: what no other group has."
    )

    @property
    def wanted(self) -> tuple[str, ...]:
        return (self.params,) if isinstance(self.params, str) else self.params

    @property
    def options(self) -> dict[str, Any]:
        """What is set for this group."""
        return dict(self.model_extra or {})


class OptimizerSettings(Options):
    """Keys that core reads beside the options of an optimizer."""

    groups: Annotated[tuple[GroupSettings, ...], Field(min_length=1)] | None = Field(
        None,
        description="Groups of parameters with options of their own, each parameter in one; null: one group.",
    )

    implementation: Implementation = Field(
        "auto",
        description="Which of torch's kernels make the update: one for all tensors and the whole update (fused), "
        "one per operation for all tensors (foreach), one per tensor and operation (loop); auto: fused "
        "where torch has it.",
    )


CORE_SECTIONS: dict[str, type[Options]] = {
    "checkpoint": CheckpointSettings,
    "experiment": ExperimentSettings,
    "plugins": PluginsSettings,
    "trainer": TrainerSettings,
}
"""Sections that core itself reads; every other section names components."""
