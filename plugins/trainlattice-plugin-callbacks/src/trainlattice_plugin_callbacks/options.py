"""Options of the built-in callbacks."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from trainlattice.contracts.options import (
    NonNegativeInt,
    Options,
    PositiveFloat,
    PositiveInt,
    Probability,
)
from trainlattice.contracts.records import CallbackContract

Pattern = Annotated[str, Field(min_length=1)]
Patterns = Annotated[tuple[Pattern, ...], Field(min_length=1)]


class ProgressOptions(Options):
    refresh_per_second: PositiveInt = Field(8, description="How often the bar is drawn.")


class LRMonitorOptions(Options):
    pass


class ThroughputOptions(Options):
    window: PositiveInt = Field(50, description="Optimizer steps that a rate is the average of.")


class GradNormOptions(Options):
    norm_type: PositiveFloat | Literal["inf"] = Field(
        2.0, description="p of the norm (sum |g|^p)^(1/p); inf: the largest |g|."
    )
    module_depth: PositiveInt | None = Field(
        None,
        description="One norm besides for each module: parameters are told apart by so many parts of their names "
        "(1: top-level modules); null: none.",
    )
    patterns: tuple[Pattern, ...] = Field(
        (), description="One norm besides for each kind or pattern of names, as in optimizer.groups."
    )


class ParamHistogramOptions(Options):
    every_epochs: PositiveInt | None = Field(1, description="Epochs between two histograms; null: none.")
    every_steps: PositiveInt | None = Field(
        None, description="Optimizer steps between two histograms; null: none."
    )
    bins: PositiveInt = Field(64, description="Bins of equal width from the smallest to the largest value.")
    params: Patterns = Field(
        ("*",), description="Which parameters: kinds and patterns of names, as in optimizer.groups."
    )
    gradients: bool = Field(
        False, description="Histograms of gradients too, before they are clipped; goes by every_steps."
    )

    @model_validator(mode="after")
    def _is_due_sometime(self) -> ParamHistogramOptions:
        if self.every_epochs is None and self.every_steps is None:
            raise ValueError("every_epochs and every_steps are both null: nothing would be written")
        if self.gradients and self.every_steps is None:
            raise ValueError("gradients needs every_steps: they are seen at steps, not after an epoch")
        return self


class EMAOptions(Options):
    decay: Probability = Field(0.999, description="Share of the average that each update keeps.")
    warmup: bool = Field(
        False,
        description="Update number t keeps min(decay, (1 + t) / (10 + t)): the first weights fade sooner.",
    )
    every_steps: PositiveInt = Field(1, description="Optimizer steps between two updates of the average.")
    average_buffers: bool = Field(
        False,
        description="Average floating-point buffers too (statistics of batch normalisation); else those of the "
        "trained model are used.",
    )

    def contract(self) -> CallbackContract:
        return CallbackContract(observes=False)


class SWAOptions(Options):
    start_epoch: PositiveInt = Field(
        description="The first epoch, counted from 1, after which the weights are averaged."
    )
    average_buffers: bool = Field(
        True,
        description="Average floating-point buffers too (statistics of batch normalisation); else those of the "
        "trained model are used.",
    )

    def contract(self) -> CallbackContract:
        return CallbackContract(observes=False)


class FreezeOptions(Options):
    params: Patterns = Field(
        description="What is not trained: kinds and patterns of parameter names, as in optimizer.groups."
    )
    until_step: PositiveInt | None = Field(
        None, description="Optimizer steps after which it is trained too; null: never."
    )
    freeze_statistics: bool = Field(
        True,
        description="Normalisation layers of frozen parameters keep their running statistics and use them.",
    )

    def contract(self) -> CallbackContract:
        return CallbackContract(observes=False)


class ProfilerOptions(Options):
    skip_first: NonNegativeInt = Field(0, description="Steps of this process before the first cycle.")
    wait: NonNegativeInt = Field(1, description="Steps of each cycle that are not profiled.")
    warmup: PositiveInt = Field(1, description="Steps of each cycle that are profiled and thrown away.")
    active: PositiveInt = Field(3, description="Steps of each cycle that are written.")
    repeat: PositiveInt = Field(1, description="Cycles; one file for each.")
    record_shapes: bool = Field(False, description="Record the shapes of operators' inputs.")
    profile_memory: bool = Field(False, description="Record what operators allocate.")
    with_stack: bool = Field(False, description="Record file and line of each operator; slow.")


class ImageGridOptions(Options):
    key: Annotated[str, Field(min_length=1)] = Field(
        "pred", description="Key of the container: images [N, C, H, W] (C 1 or 3) or [N, H, W]."
    )
    count: PositiveInt = Field(16, description="Images of the first validation batch that are shown at most.")
    columns: PositiveInt | None = Field(None, description="Images in a row; null: about as many as rows.")
    value_range: tuple[float, float] | None = Field(
        None,
        description="Values that become black and white; what is beyond is cut off; null: smallest and largest of "
        "each image.",
    )

    @model_validator(mode="after")
    def _range_is_one(self) -> ImageGridOptions:
        if self.value_range is not None and self.value_range[0] >= self.value_range[1]:
            raise ValueError(f"value_range is [low, high] with low < high, not {list(self.value_range)}")
        return self


class TrialSummaryOptions(Options):
    pass


class NaNReportOptions(Options):
    most: PositiveInt = Field(20, description="How many further places of the same batch are listed at most.")
