"""Metrics of classes and labels."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torchmetrics import AUROC, Accuracy, ConfusionMatrix, F1Score, Metric, Precision, Recall

from trainlattice.contracts.options import OptionError
from trainlattice.contracts.records import DatasetContract
from trainlattice_plugin_metrics.measure import Measure
from trainlattice_plugin_metrics.options import (
    AccuracyOptions,
    AurocOptions,
    ClassificationOptions,
    ConfusionMatrixOptions,
    ScoreOptions,
)


def accuracy(options: AccuracyOptions, data: DatasetContract) -> Measure:
    return _build(Accuracy, options, data)


def f1(options: ScoreOptions, data: DatasetContract) -> Measure:
    return _build(F1Score, options, data)


def precision(options: ScoreOptions, data: DatasetContract) -> Measure:
    return _build(Precision, options, data)


def recall(options: ScoreOptions, data: DatasetContract) -> Measure:
    return _build(Recall, options, data)


def auroc(options: AurocOptions, data: DatasetContract) -> Measure:
    thresholds = options.thresholds
    as_list = list(thresholds) if isinstance(thresholds, tuple) else thresholds
    return _build(AUROC, options, data, compares=True, thresholds=as_list)


def confusion_matrix(options: ConfusionMatrixOptions, data: DatasetContract) -> Measure:
    return _build(ConfusionMatrix, options, data)


def num_classes_of(options: ClassificationOptions, data: DatasetContract) -> int | None:
    """Of task multiclass: as written, or as the dataset states.

    :raises OptionError: if neither says.
    """
    if options.task != "multiclass":
        return None
    if options.num_classes is not None:
        return options.num_classes
    if data.task != "classification" or data.num_outputs is None:
        raise OptionError("num_classes", "task multiclass needs num_classes: the dataset states no classes")
    return data.num_outputs


def _build(
    wrapper: type,
    options: ClassificationOptions,
    data: DatasetContract,
    compares: bool = False,
    **changes: Any,
) -> Measure:
    """:param compares: whether predictions are compared with one another across samples, so that logits have to
    become probabilities for several classes too."""
    given = options.model_dump(exclude={"logits", "num_classes"}) | changes
    classes = num_classes_of(options, data)
    top_k = given.get("top_k", 1)
    if classes is not None and top_k > classes:
        raise OptionError("top_k", f"the {top_k} largest of {classes} classes are not there")
    metric: Metric = wrapper(num_classes=classes, **given)
    return Measure(metric, _Preparation(options, compares))


class _Preparation:
    """Probabilities of logits, integers of targets that a loss needs as floats, and for a yes or no the only
    channel left out, which predictions ``[N, 1, ...]`` have and targets ``[N, ...]`` may lack.

    Torchmetrics takes predictions of a batch for logits if one lies outside of [0, 1], and a small batch of logits
    may have none: here it is an option. It finds probabilities, and leaves them.
    """

    def __init__(self, options: ClassificationOptions, compares: bool) -> None:
        self.several = options.task == "multiclass"
        self.yes_or_no = options.task == "binary"
        self.normalizes = options.logits and (compares or not self.several)
        self.probabilities = not options.logits and (compares or not self.several)

    def __call__(self, name: str, value: Any, first: bool) -> Any:
        if not isinstance(value, Tensor):
            return value
        if self.yes_or_no and value.dim() > 1 and value.shape[1] == 1:
            value = value.squeeze(1)
        if not value.is_floating_point():
            return value
        if name == "preds" and self.normalizes:
            return value.softmax(1) if self.several else value.sigmoid()
        if name == "preds" and self.probabilities and first and bool(((value < 0) | (value > 1)).any()):
            raise ValueError(
                "preds has values outside of [0, 1], and logits: false says that they are probabilities"
            )
        if name == "target" and not self.several:
            labels = value.to(torch.int64)
            if first and not torch.equal(labels.to(value.dtype), value):
                raise ValueError("target has values that are no whole numbers")
            return labels
        return value
