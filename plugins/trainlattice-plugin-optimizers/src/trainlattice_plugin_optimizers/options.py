"""Options of the built-in optimizers. Defaults are torch's."""

from __future__ import annotations

from pydantic import Field, model_validator

from trainlattice.contracts.options import NonNegativeFloat, Options, PositiveFloat, Probability


class _Rate(Options):
    lr: PositiveFloat = Field(0.001, description="Learning rate; a scheduler starts from it.")


class AdamOptions(_Rate):
    betas: tuple[Probability, Probability] = Field(
        (0.9, 0.999), description="Decay rates of the running means of gradient and squared gradient."
    )
    eps: PositiveFloat = Field(1e-8, description="Added to the denominator.")
    weight_decay: NonNegativeFloat = Field(0.0, description="L2 penalty, added to the gradient.")
    amsgrad: bool = Field(False, description="Keep the largest running mean of squares.")


class AdamWOptions(AdamOptions):
    weight_decay: NonNegativeFloat = Field(
        0.01, description="Share of each weight, times lr, that is removed at each step."
    )


class SGDOptions(_Rate):
    momentum: Probability = Field(0.0, description="Share of the last update that is kept.")
    dampening: Probability = Field(0.0, description="Share of the gradient that is left out of momentum.")
    weight_decay: NonNegativeFloat = Field(0.0, description="L2 penalty, added to the gradient.")
    nesterov: bool = Field(False, description="Nesterov momentum; needs momentum and no dampening.")

    @model_validator(mode="after")
    def _nesterov_needs_momentum(self) -> SGDOptions:
        if self.nesterov and (self.momentum == 0 or self.dampening != 0):
            raise ValueError("nesterov needs momentum above 0 and dampening 0")
        return self
