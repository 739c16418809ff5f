"""Options of the built-in losses."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from trainlattice.contracts.options import NonNegativeFloat, Options, PositiveFloat, Probability
from trainlattice.contracts.records import LossContract, Task

Reduction = Literal["mean", "sum"]
_REDUCTION = "What goes backward; metrics report the mean either way."
_IGNORED = "Class index of targets that do not count."


def _something_counts(weights: tuple[float, ...]) -> tuple[float, ...]:
    if not any(weights):
        raise ValueError("every weight is 0: nothing would count")
    return weights


def _odd(size: int) -> int:
    if size % 2 == 0:
        raise ValueError("a window has a pixel in its middle: its size is odd")
    return size


Weights = Annotated[tuple[NonNegativeFloat, ...], Field(min_length=1), AfterValidator(_something_counts)]


class CrossEntropyOptions(Options):
    class_weights: Weights | None = Field(
        None, description="Weight of each class, in order; the mean is then over weights. null: 1 each."
    )
    label_smoothing: Probability = Field(
        0.0, description="Share of the target that is spread evenly over all classes."
    )
    ignore_index: int = Field(-100, description=_IGNORED)
    reduction: Reduction = Field("mean", description=_REDUCTION)

    def contract(self) -> LossContract:
        return LossContract(task="classification")


class NLLOptions(Options):
    class_weights: Weights | None = Field(
        None, description="Weight of each class, in order; the mean is then over weights. null: 1 each."
    )
    ignore_index: int = Field(-100, description=_IGNORED)
    reduction: Reduction = Field("mean", description=_REDUCTION)

    def contract(self) -> LossContract:
        return LossContract(task="classification")


class FocalOptions(Options):
    gamma: NonNegativeFloat = Field(
        2.0, description="How much less what is already right counts; 0: cross entropy."
    )
    binary: bool = Field(
        False,
        description="Each output is a yes or no of its own (sigmoid), not one class of several (softmax).",
    )
    alpha: Annotated[float, Field(ge=0.0, le=1.0)] | None = Field(
        None, description="With binary: weight of yes, no has 1 - alpha (0.25 in the paper); null: 1 each."
    )
    class_weights: Weights | None = Field(
        None,
        description="Without binary: weight of each class, in order; the mean is then over weights. null: 1 each.",
    )
    ignore_index: int = Field(-100, description="Targets of this value do not count.")
    reduction: Reduction = Field("mean", description=_REDUCTION)

    @model_validator(mode="after")
    def _weighs_what_there_is(self) -> FocalOptions:
        if self.alpha is not None and not self.binary:
            raise ValueError("alpha weighs yes against no and needs binary: true; classes have class_weights")
        if self.class_weights is not None and self.binary:
            raise ValueError(
                "class_weights weighs classes against each other; with binary: true there is alpha"
            )
        return self

    def contract(self) -> LossContract:
        return LossContract(task=_task(self.binary))


class BCEOptions(Options):
    pos_weight: Weights | None = Field(
        None, description="How much more a yes counts than a no: one number, or one for each output. null: 1."
    )
    class_weights: Weights | None = Field(
        None, description="Factor of each output (torch's weight): one number, or one for each. null: 1."
    )
    ignore_index: int | None = Field(
        None, description="Targets of this value do not count, such as 255 in a mask; null: all do."
    )
    reduction: Reduction = Field("mean", description=_REDUCTION)

    def contract(self) -> LossContract:
        return LossContract()


class RegressionOptions(Options):
    reduction: Reduction = Field("mean", description=_REDUCTION)

    def contract(self) -> LossContract:
        return LossContract(task="regression")


class SmoothL1Options(RegressionOptions):
    beta: NonNegativeFloat = Field(
        1.0, description="Difference up to which the loss is a square, and beyond which it is a line; 0: l1."
    )


class KLDivOptions(Options):
    log_target: bool = Field(False, description="Targets are log-probabilities, not probabilities.")
    from_logits: bool = Field(
        False, description="Predictions are logits: log_softmax over dimension 1 comes first."
    )
    reduction: Literal["batchmean", "mean", "sum"] = Field(
        "batchmean",
        description="What goes backward: sum over values divided by samples (the divergence), by values, or by "
        "nothing; with sum, metrics report batchmean.",
    )

    def contract(self) -> LossContract:
        return LossContract()


class CosineEmbeddingOptions(Options):
    margin: Annotated[float, Field(ge=-1.0, le=1.0)] = Field(
        0.0, description="Cosine up to which two embeddings that should differ cost nothing."
    )
    reduction: Reduction = Field("mean", description=_REDUCTION)

    def contract(self) -> LossContract:
        return LossContract()


class DiceOptions(Options):
    binary: bool = Field(
        False,
        description="Each channel is a region of its own (sigmoid), not one class of several (softmax).",
    )
    smooth: PositiveFloat = Field(
        1.0,
        description="Added to both sides of the fraction; a class that is absent and not predicted costs 0.",
    )
    squared: bool = Field(False, description="Squares in the denominator, as in V-Net.")
    class_weights: Weights | None = Field(
        None, description="Weight of each class in the mean over classes, in order; null: 1 each."
    )
    ignore_index: int = Field(-100, description="Pixels whose target has this value do not count.")
    reduction: Reduction = Field("mean", description=_REDUCTION)

    def contract(self) -> LossContract:
        return LossContract(task=_task(self.binary))


class SSIMOptions(Options):
    data_range: PositiveFloat = Field(1.0, description="Largest minus smallest value that a pixel can have.")
    window_size: Annotated[int, Field(ge=3), AfterValidator(_odd)] = Field(
        11, description="Pixels that the gaussian window is high and wide."
    )
    sigma: PositiveFloat = Field(1.5, description="Standard deviation of the window, in pixels.")
    padding: Literal["reflect", "none"] = Field(
        "reflect",
        description="reflect: windows at every pixel, over images continued by their mirror images, as in "
        "torchmetrics; none: windows wholly inside, as in the paper.",
    )
    k1: PositiveFloat = Field(0.01, description="Keeps the comparison of means stable.")
    k2: PositiveFloat = Field(0.03, description="Keeps the comparison of variances stable.")
    reduction: Reduction = Field("mean", description=_REDUCTION)

    def contract(self) -> LossContract:
        return LossContract(task="regression")


def _task(binary: bool) -> Task | None:
    """A yes or no for each output may come as a mask or as labels: datasets of any task have them."""
    return None if binary else "classification"
