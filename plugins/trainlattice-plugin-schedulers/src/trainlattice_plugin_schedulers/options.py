"""Options of the built-in schedulers. A step is an optimizer step."""

from __future__ import annotations

from pydantic import Field, model_validator

from trainlattice.contracts.options import (
    NonNegativeFloat,
    NonNegativeInt,
    Options,
    PositiveFloat,
    PositiveInt,
)


class WarmupOptions(Options):
    warmup_steps: NonNegativeInt = Field(0, description="Steps over which the rate rises to optimizer.lr.")
    total_steps: PositiveInt | None = Field(
        None, description="Step at which min_lr is reached; null: the length of the run."
    )
    min_lr: NonNegativeFloat = Field(0.0, description="Rate at the end and after it.")

    @model_validator(mode="after")
    def _warmup_ends(self) -> WarmupOptions:
        if self.total_steps is not None and self.warmup_steps >= self.total_steps:
            raise ValueError(
                f"scheduler.warmup_steps ({self.warmup_steps}) must be smaller than total_steps "
                f"({self.total_steps})"
            )
        return self


class StepDecayOptions(Options):
    step_size: PositiveInt = Field(description="Steps between two drops.")
    gamma: PositiveFloat = Field(0.1, description="Factor of each drop.")
