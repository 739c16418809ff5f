"""The supervised step: forward, loss, backward."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from trainlattice.contracts.options import Options
from trainlattice.data.container import Container, get
from trainlattice.training.mode import Mode, Parts, Phase, Weight, Window
from trainlattice.training.targets import TargetError, class_target, explain_target


class Supervised(Mode):
    """One model, one loss, one optimizer.

    A loss is called as ``loss(pred, target)`` and returns a scalar. Of its attributes, all optional,
    ``reduction`` says whether that is a mean (the default) or a ``sum``; ``num_terms(target)`` of how many terms
    (by default the samples), so that means over several batches are right; ``task`` whether accuracy means
    anything; ``ignore_index`` which class does not count.
    """

    def __init__(self, options: Options, parts: Parts) -> None:
        if parts.loss is None:
            raise ValueError("the supervised mode needs a loss")
        self.model = parts.models["model"]
        self.loss = parts.loss
        self.data = parts.data
        self.averaged = getattr(parts.loss, "reduction", "mean") != "sum"
        self.num_terms = getattr(parts.loss, "num_terms", None)
        self.ignore_index = getattr(parts.loss, "ignore_index", None)
        self.classifies = getattr(parts.loss, "task", None) == "classification"
        self._phases = (Phase("optimizer", self.forward, self.averaged, last=True),)

    def phases(self, window: Window) -> Iterator[Phase]:
        return iter(self._phases)

    def forward(self, container: Container) -> Tensor:
        """Model, then loss; leaves ``pred`` and ``loss`` in the container."""
        pred = self.model(get(container, "input", "the model"))
        container["pred"] = pred
        loss = container["loss"] = self._loss_of(pred, container)
        return loss

    def _loss_of(self, pred: Any, container: Container) -> Tensor:
        target = get(container, "target", "the loss")
        if self.classifies and target.dtype != torch.int64:
            target = container["target"] = class_target(target)
        try:
            return self.loss(pred, target)
        except (IndexError, RuntimeError, ValueError) as error:
            explanation = explain_target(pred, target, self.ignore_index) if self.classifies else None
            if explanation is None:
                raise
            raise TargetError(explanation) from error

    def evaluate(self, container: Container) -> None:
        self.forward(container)

    def check(self, container: Container) -> None:
        """The batch goes through; a classifier has as many outputs as the dataset has classes, and the loss
        is a scalar."""
        pred, classes = self.model(get(container, "input", "the model")), self.data.num_outputs
        if not isinstance(pred, Tensor):
            raise TypeError(f"the model returned a {type(pred).__name__}, and the loss takes a tensor")
        if self.data.task == "classification" and classes is not None:
            if pred.dim() < 2 or pred.shape[1] != classes:
                raise ValueError(
                    f"the model's output has the shape {list(pred.shape)}, and {classes} classes "
                    f"need [{len(pred) if pred.dim() else 'N'}, {classes}]"
                )
        loss = self._loss_of(pred, container)
        if not isinstance(loss, Tensor) or loss.dim() != 0:
            what = f"shape {list(loss.shape)}" if isinstance(loss, Tensor) else f"type {type(loss).__name__}"
            raise TypeError(f"the loss returned a value of {what}, expected a scalar tensor")

    def measure(self, container: Container) -> dict[str, Tensor]:
        loss: Tensor = container["loss"].detach()
        if not self.averaged:
            loss = loss.to(torch.float64) / self.weight(container)
        metrics = {"loss": loss}
        if self.classifies:
            target = container["target"]
            correct = container["pred"].detach().argmax(dim=1) == target
            if self.ignore_index is None:
                metrics["accuracy"] = correct.to(torch.float64).mean()
            else:
                counted = target != self.ignore_index
                metrics["accuracy"] = (correct & counted).sum().to(torch.float64) / counted.sum()
        return metrics

    def weight(self, container: Container) -> Weight:
        """Terms that the loss counts; samples where it does not say."""
        if self.num_terms is None:
            return self.samples(container)
        weight: Weight = self.num_terms(get(container, "target", "the loss"))
        return weight
