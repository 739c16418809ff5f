"""Options of the post-processors."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from trainlattice import Options
from trainlattice.contracts.options import PositiveFloat

Numbers = float | Annotated[tuple[float, ...], Field(min_length=1)]
Deviations = PositiveFloat | Annotated[tuple[PositiveFloat, ...], Field(min_length=1)]


class DimOptions(Options):
    dim: int = Field(1, description="Dimension, that of the classes by default.")


class SoftmaxOptions(DimOptions):
    temperature: PositiveFloat = Field(1.0, description="Logits are divided by it; larger is softer.")


class ChannelOptions(Options):
    to: Literal["nchw", "nhwc"] = Field(description="nchw: channels first, as torch has them; nhwc: last.")


class SliceOptions(Options):
    dim: int = Field(1, description="Dimension.")
    start: int | None = Field(
        None, description="First index; negative from the end; null: the first there is."
    )
    stop: int | None = Field(None, description="Index after the last; null: the end.")
    step: Annotated[int, Field(ge=1)] = Field(1, description="From one index to the next.")


class MeanStdOptions(Options):
    mean: Numbers = Field(description="One number, or one for each channel.")
    std: Deviations = Field(description="One number, or one for each channel.")
    dim: int = Field(1, description="Dimension of the channels, where there is a number for each.")
    inverse: bool = Field(False, description="Whether to multiply by std and add mean instead.")

    @model_validator(mode="after")
    def _of_one_length(self) -> MeanStdOptions:
        lengths = {len(value) for value in (self.mean, self.std) if isinstance(value, tuple)}
        if len(lengths) > 1:
            raise ValueError("mean and std have a number for each channel: give as many of both")
        return self


class RunningOptions(Options):
    dim: int | None = Field(1, description="Dimension that keeps statistics of its own; null: one for all.")
    eps: PositiveFloat = Field(1e-5, description="Added to the variance.")


class GenerateOptions(Options):
    arguments: dict[str, Any] = Field({}, description="Further arguments of the model's generate.")
    attribute: Annotated[str, Field(pattern=r"^[A-Za-z_]\w*$")] = Field(
        "generate", description="Name of the model's method."
    )
