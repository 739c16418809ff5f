"""Options of the metrics, as torchmetrics calls them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from trainlattice import Options
from trainlattice.contracts.options import PositiveFloat, PositiveInt, Probability

Task = Literal["binary", "multiclass", "multilabel"]
Several = Annotated[int, Field(ge=2)]


class ClassificationOptions(Options):
    task: Task | None = Field(
        None, description="What the targets are; null: multiclass, with the classes of the dataset."
    )
    num_classes: Several | None = Field(None, description="Of a multiclass task; null: those of the dataset.")
    num_labels: Several | None = Field(None, description="Of a multilabel task.")
    threshold: Probability = Field(
        0.5, description="Score from which a binary or multilabel prediction is yes."
    )
    ignore_index: int | None = Field(None, description="A target that does not count.")


class AverageOptions(ClassificationOptions):
    average: Literal["micro", "macro", "weighted", "none"] = Field(
        "micro",
        description="Over all predictions (micro), over classes (macro), over classes by how often they occur "
        "(weighted), or a value for each class (none).",
    )
    top_k: PositiveInt = Field(
        1, description="How many of the largest scores of a multiclass task are predictions."
    )


class TopKOptions(ClassificationOptions):
    k: PositiveInt = Field(5, description="How many of the largest scores count.")


class AurocOptions(ClassificationOptions):
    average: Literal["macro", "weighted", "none"] = Field("macro", description="Over classes; none: each.")
    thresholds: PositiveInt | None = Field(
        None,
        description="How many thresholds the curve is made of; null: all, which keeps every score in memory.",
    )


class ConfusionMatrixOptions(ClassificationOptions):
    normalize: Literal["true", "pred", "all"] | None = Field(
        None, description="Divide by the targets of a class, its predictions, or all; null: counts."
    )


class MSEOptions(Options):
    squared: bool = Field(True, description="False: the root of the mean squared error.")


class R2Options(Options):
    multioutput: Literal["uniform_average", "raw_values", "variance_weighted"] = Field(
        "uniform_average", description="How the values of several outputs are put together."
    )


class PSNROptions(Options):
    data_range: PositiveFloat = Field(description="Largest minus smallest value of an image, such as 1.0.")


class SSIMOptions(Options):
    data_range: PositiveFloat = Field(description="Largest minus smallest value of an image, such as 1.0.")
    kernel_size: Annotated[int, Field(ge=3)] = Field(11, description="Width of the Gaussian window; odd.")
    sigma: PositiveFloat = Field(1.5, description="Standard deviation of the Gaussian window.")


class PerplexityOptions(Options):
    ignore_index: int | None = Field(None, description="A target that does not count.")


class AnyOptions(Options):
    class_name: Annotated[str, Field(pattern=r"^[A-Z][A-Za-z0-9]*$")] = Field(
        alias="class",
        examples=["LogCoshError"],
        description="A class of torchmetrics or of one of its domains, such as MeanSquaredLogError.",
    )
    arguments: dict[str, Any] = Field({}, description="Arguments of its constructor.")
