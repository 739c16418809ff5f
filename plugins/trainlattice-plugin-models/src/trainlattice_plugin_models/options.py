"""Options of the built-in models."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from trainlattice.contracts.options import Options, PositiveInt, Probability
from trainlattice.contracts.records import ModelContract


class MLPOptions(Options):
    input_dim: PositiveInt = Field(784, description="Values per sample; inputs are flattened.")
    hidden_dims: tuple[PositiveInt, ...] = Field(
        (512, 256, 128), description="Widths of the hidden layers; none gives a linear model."
    )
    num_classes: PositiveInt = Field(10, description="Outputs: classes, or regression targets.")
    dropout: Probability = Field(0.1, description="Dropout after each hidden layer.")

    def contract(self) -> ModelContract:
        return ModelContract(input_dim=self.input_dim, num_outputs=self.num_classes)


class CNNOptions(Options):
    input_shape: tuple[PositiveInt, PositiveInt, PositiveInt] = Field(
        (1, 28, 28), description="Channels, height and width of a sample."
    )
    channels: Annotated[tuple[PositiveInt, ...], Field(min_length=1)] = Field(
        (32, 64), description="Channels of each block; each block halves height and width."
    )
    num_classes: PositiveInt = Field(10, description="Outputs: classes, or regression targets.")

    @model_validator(mode="after")
    def _pooling_fits(self) -> CNNOptions:
        factor = 2 ** len(self.channels)
        _, height, width = self.input_shape
        if height % factor or width % factor:
            raise ValueError(
                f"{len(self.channels)} blocks divide height and width by {factor}, "
                f"and {height}x{width} is not divisible by it"
            )
        return self

    def contract(self) -> ModelContract:
        return ModelContract(input_shape=self.input_shape, num_outputs=self.num_classes)
