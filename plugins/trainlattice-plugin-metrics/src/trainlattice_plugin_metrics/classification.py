"""Metrics of classes: definitions are those of ``torchmetrics.classification``."""

from __future__ import annotations

from typing import Any

import torchmetrics
from torchmetrics import Metric

from trainlattice.contracts.options import OptionError
from trainlattice.contracts.records import DatasetContract
from trainlattice_plugin_metrics.measured import Measured
from trainlattice_plugin_metrics.options import (
    AurocOptions,
    AverageOptions,
    ClassificationOptions,
    ConfusionMatrixOptions,
    TopKOptions,
)


def accuracy(options: AverageOptions, data: DatasetContract) -> Measured:
    return _averaged(torchmetrics.Accuracy, options, data)


def f1(options: AverageOptions, data: DatasetContract) -> Measured:
    return _averaged(torchmetrics.F1Score, options, data)


def precision(options: AverageOptions, data: DatasetContract) -> Measured:
    return _averaged(torchmetrics.Precision, options, data)


def recall(options: AverageOptions, data: DatasetContract) -> Measured:
    return _averaged(torchmetrics.Recall, options, data)


def top_k(options: TopKOptions, data: DatasetContract) -> Measured:
    """Micro-averaged multiclass accuracy with ``top_k``."""
    task = _task(options, data)
    if task["task"] != "multiclass":
        raise OptionError("task", "the largest k of several scores are those of a multiclass task")
    if options.k >= task["num_classes"]:
        raise OptionError("k", f"all of {task['num_classes']} classes are among so many")
    return Measured(torchmetrics.Accuracy(**task, average="micro", top_k=options.k))


def auroc(options: AurocOptions, data: DatasetContract) -> Measured:
    task = _task(options, data, thresholded=False)
    average = {} if task["task"] == "binary" else {"average": _none(options.average)}
    return Measured(torchmetrics.AUROC(**task, **average, thresholds=options.thresholds))


def confusion_matrix(options: ConfusionMatrixOptions, data: DatasetContract) -> Measured:
    """Rows are targets, columns predictions."""
    return Measured(torchmetrics.ConfusionMatrix(**_task(options, data), normalize=options.normalize))


def _averaged(build: type[Metric], options: AverageOptions, data: DatasetContract) -> Measured:
    task = _task(options, data)
    if options.top_k > 1 and task["task"] != "multiclass":
        raise OptionError("top_k", "the largest k of several scores are those of a multiclass task")
    top = {"top_k": options.top_k} if task["task"] == "multiclass" else {}
    average = {} if task["task"] == "binary" else {"average": _none(options.average)}
    return Measured(build(**task, **average, **top))


def _task(
    options: ClassificationOptions, data: DatasetContract, *, thresholded: bool = True
) -> dict[str, Any]:
    """The arguments that say what the targets are."""
    task = options.task or "multiclass"
    found: dict[str, Any] = {"task": task, "ignore_index": options.ignore_index}
    for option, owner in (("num_classes", "multiclass"), ("num_labels", "multilabel")):
        if getattr(options, option) is not None and task != owner:
            raise OptionError(option, f"is of a {owner} task, and this one is {task}")
    if task == "multiclass":
        known = data.num_outputs if data.task == "classification" else None
        found["num_classes"] = options.num_classes or known
        if found["num_classes"] is None:
            raise OptionError("num_classes", "is needed: the dataset does not say how many classes there are")
    elif thresholded:
        found["threshold"] = options.threshold
    if task == "multilabel":
        if options.num_labels is None:
            raise OptionError("num_labels", "is needed for a multilabel task")
        found["num_labels"] = options.num_labels
    return found


def _none(average: str) -> str | None:
    return None if average == "none" else average
