"""Options of the built-in models."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from trainlattice.contracts.options import Options, PositiveInt, Probability
from trainlattice.contracts.records import ModelContract

Widths = tuple[PositiveInt, ...]
Channels = Annotated[Widths, Field(min_length=1)]
ImageShape = tuple[PositiveInt, PositiveInt, PositiveInt]
WidthByName = Annotated[
    dict[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")], PositiveInt], Field(min_length=1)
]


class MLPOptions(Options):
    input_dim: PositiveInt = Field(784, description="Values per sample; inputs are flattened.")
    hidden_dims: Widths = Field(
        (512, 256, 128), description="Widths of the hidden layers; none gives a linear model."
    )
    num_classes: PositiveInt = Field(10, description="Outputs: classes, or regression targets.")
    dropout: Probability = Field(0.1, description="Dropout after each hidden layer.")

    def contract(self) -> ModelContract:
        return ModelContract(input_dim=self.input_dim, num_outputs=self.num_classes)


class CNNOptions(Options):
    input_shape: ImageShape = Field((1, 28, 28), description="Channels, height and width of a sample.")
    channels: Channels = Field(
        (32, 64), description="Channels of each block; each block halves height and width."
    )
    num_classes: PositiveInt = Field(10, description="Outputs: classes, or regression targets.")

    @model_validator(mode="after")
    def _pooling_fits(self) -> CNNOptions:
        _require_divisible(self.input_shape, len(self.channels))
        return self

    def contract(self) -> ModelContract:
        return ModelContract(input_shape=self.input_shape, num_outputs=self.num_classes)


class LateFusionOptions(Options):
    input_dims: WidthByName = Field(
        description="By input, its values per sample (flattened); model.inputs says which key each is.",
        examples=[{"left": 32, "right": 32}],
    )
    tower_dims: Widths = Field(
        (64,),
        description="Widths of the hidden layers that each input has of its own; none: the input itself.",
    )
    hidden_dims: Widths = Field((64,), description="Widths of the hidden layers above all of them.")
    num_classes: PositiveInt = Field(10, description="Outputs: classes, or regression targets.")
    dropout: Probability = Field(0.1, description="Dropout after each hidden layer.")

    def contract(self) -> ModelContract:
        return ModelContract(num_outputs=self.num_classes)


class MultiHeadOptions(Options):
    input_dim: PositiveInt = Field(784, description="Values per sample; inputs are flattened.")
    hidden_dims: Widths = Field((256, 128), description="Widths of the hidden layers that all heads share.")
    heads: WidthByName = Field(
        description="By name, the outputs of each linear head: classes, or regression targets.",
        examples=[{"kind": 10, "value": 1}],
    )
    dropout: Probability = Field(0.1, description="Dropout after each hidden layer.")

    def contract(self) -> ModelContract:
        return ModelContract(input_dim=self.input_dim)


class AutoencoderOptions(Options):
    input_shape: ImageShape = Field((1, 28, 28), description="Channels, height and width of a sample.")
    channels: Channels = Field(
        (32, 64), description="Channels of each block of the encoder; each block halves height and width."
    )
    latent_dim: PositiveInt = Field(32, description="Values between encoder and decoder.")
    output: Literal["sigmoid", "none"] = Field(
        "sigmoid", description="sigmoid: outputs lie in (0, 1), as images do; none: any number."
    )

    @model_validator(mode="after")
    def _strides_fit(self) -> AutoencoderOptions:
        _require_divisible(self.input_shape, len(self.channels))
        return self

    def contract(self) -> ModelContract:
        return ModelContract(input_shape=self.input_shape)


class UNetOptions(Options):
    in_channels: PositiveInt = Field(1, description="Channels of a sample.")
    channels: Channels = Field(
        (16, 32, 64),
        description="Channels of each level, from the finest; each level but the first halves height and width.",
    )
    num_classes: PositiveInt = Field(2, description="Logits of each pixel.")

    def contract(self) -> ModelContract:
        return ModelContract(
            num_outputs=self.num_classes,
            in_channels=self.in_channels,
            size_divisor=2 ** (len(self.channels) - 1),
            size_divisor_option="channels",
        )


def _require_divisible(shape: ImageShape, blocks: int) -> None:
    factor = 2**blocks
    _, height, width = shape
    if height % factor or width % factor:
        raise ValueError(
            f"{blocks} blocks divide height and width by {factor}, "
            f"and {height}x{width} is not divisible by it"
        )
