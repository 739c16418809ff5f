"""Options of the built-in datasets."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from trainlattice.contracts.options import (
    LocalPath,
    NonNegativeFloat,
    NonNegativeInt,
    Options,
    PositiveFloat,
    PositiveInt,
    Shape,
)
from trainlattice.contracts.records import DatasetContract, Task

Fraction = Annotated[float, Field(gt=0.0, lt=1.0)]
FileName = Annotated[str, Field(min_length=1)]


class SyntheticOptions(Options):
    samples: PositiveInt = Field(256, description="Training samples.")
    val_samples: PositiveInt = Field(64, description="Validation samples.")
    input_shape: Shape = Field((1, 28, 28), description="Shape of a sample.")
    num_classes: PositiveInt = Field(10, description="Number of classes.")

    def contract(self) -> DatasetContract:
        return DatasetContract(self.input_shape, "classification", self.num_classes)


class TensorOptions(Options):
    root: LocalPath = Field(description="Directory with the files.", examples=["data/tensor"])
    train_file: FileName = Field("train.pt", description='Holds {"features": Tensor, "labels": Tensor}.')
    val_file: FileName = Field("validation.pt", description="The same, for validation.")
    num_classes: PositiveInt = Field(
        10, description="Classes, for integer labels; width of the target, for floating-point labels."
    )

    def contract(self) -> DatasetContract:
        return DatasetContract(num_outputs=self.num_classes)


class _SplitOptions(Options):
    val_fraction: Fraction = Field(0.2, description="Share of the samples that is validated on.")
    split_seed: NonNegativeInt = Field(
        0, description="Chooses the validation samples, independently of experiment.seed."
    )


class DigitsOptions(_SplitOptions):
    def contract(self) -> DatasetContract:
        return DatasetContract((1, 8, 8), "classification", 10)


class IdxOptions(Options):
    root: LocalPath = Field(
        description="Directory with the files; each may end in .gz.",
        examples=["/usr/share/datasets/fashion-mnist"],
    )
    train_images: FileName = Field("train-images-idx3-ubyte", description="Training images.")
    train_labels: FileName = Field("train-labels-idx1-ubyte", description="Training labels.")
    test_images: FileName = Field("t10k-images-idx3-ubyte", description="Test images.")
    test_labels: FileName = Field("t10k-labels-idx1-ubyte", description="Test labels.")
    val_fraction: Fraction | None = Field(
        None,
        description="Share of the training images, class by class, that is validated on; "
        "null: validate on the test images.",
    )
    split_seed: NonNegativeInt = Field(0, description="Chooses the validation images of val_fraction.")
    num_classes: PositiveInt = Field(10, description="Number of classes.")
    mean: float = Field(0.0, description="Subtracted from pixels, which are scaled to [0, 1] before.")
    std: PositiveFloat = Field(1.0, description="Pixels are divided by it, after mean is subtracted.")

    def contract(self) -> DatasetContract:
        return DatasetContract(task="classification", num_outputs=self.num_classes)


Column = Annotated[str, Field(min_length=1)]
Columns = Annotated[tuple[str, ...], Field(min_length=1)]
FieldName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class TargetColumn(Options):
    column: Column = Field(description="Name of the column.")
    task: Task = Field(description="As task of a single target.")


class CsvOptions(_SplitOptions):
    path: LocalPath = Field(
        description="The file: a header line, then one row per sample.", examples=["data/table.csv"]
    )
    target: Column | Annotated[dict[FieldName, TargetColumn], Field(min_length=1)] = Field(
        description="Name of the target column; or several targets by name, each with column and task: a batch "
        "then has the keys target/<name>.",
        examples=["target"],
    )
    task: Task | None = Field(
        None,
        description="classification: each different value of the target is a class, in sorted order; "
        "regression: the target is a number; null: several targets have their own.",
        examples=["classification"],
    )
    features: Columns | Annotated[dict[FieldName, Columns], Field(min_length=1)] | None = Field(
        None,
        description="Feature columns, in this order; or several inputs by name, each with its columns: a batch "
        "then has the keys input/<name>; null: all but the target.",
    )
    delimiter: Annotated[str, Field(min_length=1, max_length=1)] = Field(
        ",", description="Character between two cells."
    )
    missing: Literal["refuse", "mean", "median"] = Field(
        "refuse",
        description="What becomes of an empty, NA, NaN or null feature: an error, or the mean or median of "
        "its column in the training rows.",
    )
    standardize: bool = Field(
        True, description="Bring each feature to mean 0 and deviation 1, by the training rows."
    )

    @model_validator(mode="after")
    def _every_target_has_one_task(self) -> CsvOptions:
        if isinstance(self.target, str) and self.task is None:
            raise ValueError("the option 'task' is needed: classification or regression")
        if not isinstance(self.target, str) and self.task is not None:
            raise ValueError("several targets have a task each: the option 'task' is for a single one")
        return self

    def contract(self) -> DatasetContract:
        return DatasetContract(task=self.task, num_outputs=1 if self.task == "regression" else None)


class ShapesOptions(Options):
    samples: PositiveInt = Field(512, description="Training images.")
    val_samples: PositiveInt = Field(128, description="Validation images.")
    image_size: tuple[PositiveInt, PositiveInt] = Field((32, 32), description="Height and width of an image.")
    channels: Literal[1, 3] = Field(1, description="1: grey images; 3: coloured ones.")
    max_shapes: PositiveInt = Field(
        3, description="An image has from 1 to so many shapes; later ones cover earlier ones."
    )
    radius: tuple[PositiveFloat, PositiveFloat] = Field(
        (0.12, 0.25), description="Smallest and largest radius of a shape, in shares of the shorter side."
    )
    noise: NonNegativeFloat = Field(
        0.1,
        description="Standard deviation of what is added to each pixel; the ground is 0, a shape up to 1.",
    )

    @field_validator("radius")
    @classmethod
    def _rises(cls, radius: tuple[float, float]) -> tuple[float, float]:
        if radius[0] > radius[1]:
            raise ValueError(f"the smallest radius, {radius[0]:g}, is above the largest, {radius[1]:g}")
        return radius

    def contract(self) -> DatasetContract:
        return DatasetContract((self.channels, *self.image_size), "classification", 4)
