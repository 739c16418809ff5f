"""Options of the built-in metrics: names and meaning as in torchmetrics."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, ValidationInfo, field_validator

from trainlattice.contracts.options import NonNegativeInt, Options, PositiveFloat, PositiveInt

AtLeastTwo = Annotated[int, Field(ge=2)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]
Task = Literal["multiclass", "binary", "multilabel"]
Average = Literal["micro", "macro", "weighted", "none"]

TASKS_OF = {
    "num_classes": ("multiclass",),
    "num_labels": ("multilabel",),
    "top_k": ("multiclass",),
    "average": ("multiclass", "multilabel"),
    "threshold": ("binary", "multilabel"),
    "max_fpr": ("binary",),
}
"""Options that only some tasks have."""


class ClassificationOptions(Options):
    task: Task = Field(
        "multiclass", description="One of several classes, yes or no, or several labels at once."
    )
    num_classes: AtLeastTwo | None = Field(
        None, description="Of task multiclass; null: as many as the dataset states."
    )
    num_labels: AtLeastTwo | None = Field(None, description="Of task multilabel, which needs it.")
    logits: bool = Field(
        True,
        description="Whether predictions are logits; false: probabilities. Matters where they are compared with a "
        "threshold or one another; integers are classes or labels either way.",
    )
    ignore_index: int | None = Field(None, description="Targets of this value do not count; null: all count.")

    @field_validator(
        "num_classes", "num_labels", "top_k", "average", "threshold", "max_fpr", check_fields=False
    )
    @classmethod
    def _of_the_task(cls, value: Any, info: ValidationInfo) -> Any:
        """A default says nothing: a resolved configuration holds every one."""
        assert info.field_name is not None
        task, name = info.data.get("task"), info.field_name
        tasks = TASKS_OF[name]
        if task is not None and task not in tasks and value != cls.model_fields[name].default:
            raise ValueError(f"{name} is for task {' or '.join(tasks)}, and task is {task}")
        if name == "num_labels" and task == "multilabel" and value is None:
            raise ValueError("task multilabel needs num_labels")
        return value


class _Thresholded(ClassificationOptions):
    threshold: Share = Field(
        0.5, description="Of tasks binary and multilabel: the probability above which it is a yes."
    )


class AccuracyOptions(_Thresholded):
    average: Average = Field(
        "micro",
        description="micro: over all samples; macro: mean of the classes; weighted: by their size; none: a list.",
    )
    top_k: PositiveInt = Field(
        1, description="Of task multiclass: how many of the largest predictions may hold the class."
    )

    def record_name(self) -> str | None:
        """Such as accuracy_macro: the name accuracy is that of core's own."""
        return f"accuracy_{self.average if self.task == 'multiclass' else self.task}"


class TopKOptions(AccuracyOptions):
    top_k: PositiveInt = Field(5, description="How many of the largest predictions may hold the class.")

    def record_name(self) -> str | None:
        return None


class ScoreOptions(_Thresholded):
    average: Average = Field(
        "macro",
        description="macro: mean of the classes; micro: over all samples; weighted: by their size; none: a list.",
    )
    top_k: PositiveInt = Field(
        1, description="Of task multiclass: how many of the largest predictions may hold the class."
    )


class AurocOptions(ClassificationOptions):
    average: Literal["macro", "weighted", "none"] = Field(
        "macro", description="macro: mean of the classes; weighted: by their size; none: a list."
    )
    max_fpr: Annotated[float, Field(gt=0.0, le=1.0)] | None = Field(
        None, description="Of task binary: the false positive rate up to which the area is taken; null: 1."
    )
    thresholds: AtLeastTwo | Annotated[tuple[Share, ...], Field(min_length=2)] | None = Field(
        None,
        description="null: exact, and every prediction is kept; a number or a list of thresholds: binned, in "
        "constant memory.",
    )


class ConfusionMatrixOptions(_Thresholded):
    normalize: Literal["none", "true", "pred", "all"] = Field(
        "none", description="Counts, or shares of the true class, of the predicted class or of all."
    )

    @field_validator("normalize", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        """YAML's true without quotes."""
        return "true" if value is True else value


_NUM_OUTPUTS = "Values per sample that are measured each by itself, with a list as result; 1: all together."


class MaeOptions(Options):
    num_outputs: PositiveInt = Field(1, description=_NUM_OUTPUTS)


class MseOptions(Options):
    squared: bool = Field(True, description="false: its root.")
    num_outputs: PositiveInt = Field(1, description=_NUM_OUTPUTS)


class R2Options(Options):
    adjusted: NonNegativeInt = Field(0, description="Independent regressors to adjust for; 0: not adjusted.")
    multioutput: Literal["uniform_average", "variance_weighted", "raw_values"] = Field(
        "uniform_average", description="Of several outputs: the mean, weighted by variance, or a list."
    )


DataRange = Annotated[
    PositiveFloat | tuple[float, float],
    Field(description="Width of the range of values, or [lowest, highest], to which they are then clamped."),
]


class _ImageOptions(Options):
    data_range: DataRange

    @field_validator("data_range")
    @classmethod
    def _rises(cls, value: float | tuple[float, float]) -> float | tuple[float, float]:
        if isinstance(value, tuple) and value[0] >= value[1]:
            raise ValueError(f"the highest value is above the lowest, and here are {value[0]} and {value[1]}")
        return value


class PsnrOptions(_ImageOptions):
    base: Annotated[float, Field(gt=1.0)] = Field(10.0, description="Of the logarithm.")


class SsimOptions(_ImageOptions):
    gaussian_kernel: bool = Field(True, description="Whether windows are Gaussian; false: of equal weights.")
    sigma: PositiveFloat = Field(
        1.5, description="Of a Gaussian window, which is then 2 * floor(3.5 * sigma + 0.5) + 1 wide."
    )
    kernel_size: PositiveInt = Field(11, description="Width of a window of equal weights; odd.")
    k1: PositiveFloat = Field(0.01, description="Constant of luminance.")
    k2: PositiveFloat = Field(0.03, description="Constant of contrast.")

    @field_validator("kernel_size")
    @classmethod
    def _odd(cls, value: int) -> int:
        if value % 2 == 0:
            raise ValueError(f"a window has a middle, so its width is odd, not {value}")
        return value


class PerplexityOptions(Options):
    ignore_index: int = Field(-100, description="Tokens that do not count, as in cross_entropy.")


class AnyClassOptions(Options):
    """Everything beside ``class`` goes to the class, against whose signature it is checked when it is built."""

    model_config = ConfigDict(extra="allow")

    class_name: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9]*$")] = Field(
        alias="class", description="Name of a class in torchmetrics, such as KLDivergence."
    )

    def record_name(self) -> str:
        """``kl_divergence`` of KLDivergence."""
        return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", self.class_name).lower()
