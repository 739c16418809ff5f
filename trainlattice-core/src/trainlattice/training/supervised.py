"""The supervised step: forward, loss, backward."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from trainlattice.contracts.options import Options
from trainlattice.data.container import Container, get
from trainlattice.training.mode import Measured, Mode, Parts, Phase, Window
from trainlattice.training.targets import TargetError, class_target, explain_target


class Supervised(Mode):
    """One model, one loss, one optimizer.

    A loss is called as ``loss(pred, target)`` and returns a scalar. Of its attributes, all optional,
    ``reduction`` says whether that is a mean (the default) or a ``sum``; ``num_terms(target)`` of how many terms,
    so that means over several batches are right: by default the samples, with ``ignore_index`` the other
    targets, for torch's own losses with class weights their sum; ``task`` says whether accuracy means anything,
    ``ignore_index`` which class does not count, ``broadcasts`` that predictions and targets of different shapes
    are meant.
    """

    def __init__(self, options: Options, parts: Parts) -> None:
        if parts.loss is None:
            raise ValueError("the supervised mode needs a loss")
        self.model = parts.models["model"]
        self.modules = parts.modules()
        self.loss = parts.loss
        self.data = parts.data
        self.averaged = getattr(parts.loss, "reduction", "mean") != "sum"
        self.num_terms = getattr(parts.loss, "num_terms", None)
        self.ignore_index = getattr(parts.loss, "ignore_index", None)
        self.classifies = getattr(parts.loss, "task", None) == "classification"
        self.broadcasts = getattr(parts.loss, "broadcasts", False)
        # Where every batch has as many targets as samples, both weigh its accuracy alike.
        self._counts_targets = self.num_terms is None and self.ignore_index is None
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
        target = get(container, "target", "the loss")
        if not self.classifies and not self.broadcasts and _would_broadcast(pred, target):
            raise ValueError(
                f"predictions have the shape {list(pred.shape)} and targets {list(target.shape)}: the loss would "
                "compare each with several others; a loss that means to has broadcasts = True"
            )
        learns = any(p.requires_grad for module in self.modules for p in module.parameters())
        if learns and not loss.requires_grad:
            raise ValueError(
                "the loss does not depend on any parameter that is trained: nothing would be learned"
            )

    def measure(self, container: Container) -> Measured:
        loss: Tensor = container["loss"].detach()
        if not self.averaged:
            loss = loss.to(torch.float64) / container["weight"]
        metrics: Measured = {"loss": loss}
        if self.classifies:
            target = container["target"]
            correct = container["pred"].detach().argmax(dim=1) == target
            if self.ignore_index is None:
                accuracy = correct.to(torch.float64).mean()
            else:
                counted = target != self.ignore_index
                accuracy = (correct & counted).sum().to(torch.float64) / counted.sum()
            own = container.get("counted")
            metrics["accuracy"] = accuracy if own is None else (accuracy, own)
        return metrics

    def weight(self, container: Container) -> float:
        """Terms that the loss counts; samples where it does not say. Brings classes to int64."""
        target = container.get("target")
        if self.classifies and isinstance(target, Tensor) and target.dtype != torch.int64:
            target = container["target"] = class_target(target)
        if self.classifies and isinstance(target, Tensor) and not self._counts_targets:
            # What the loss counts may be other than targets: accuracy is a share of these.
            kept = None if self.ignore_index is None else target != self.ignore_index
            container["counted"] = target.numel() if kept is None else int(kept.sum())
        if self.num_terms is not None:
            return _number(self.num_terms(get(container, "target", "the loss")))
        if self.ignore_index is None or not isinstance(target, Tensor):
            return self.samples(container)
        counted = target != self.ignore_index
        weights = self.loss.weight if isinstance(self.loss, (nn.CrossEntropyLoss, nn.NLLLoss)) else None
        if weights is not None and target.dtype == torch.int64:
            return _number(weights.detach().cpu()[target[counted]].sum())
        return _number(counted.sum())


def _number(value: Any) -> float:
    """What a loss counts, from whatever it counts in; the probe has seen that it is a number."""
    counted: float = value.item() if getattr(value, "ndim", None) == 0 else value  # of torch or NumPy
    return counted


def _would_broadcast(pred: Any, target: Any) -> bool:
    if not isinstance(pred, Tensor) or not isinstance(target, Tensor) or pred.shape == target.shape:
        return False
    try:
        torch.broadcast_shapes(pred.shape, target.shape)  # type: ignore[no-untyped-call]
    except RuntimeError:  # the loss will say so itself
        return False
    return True
