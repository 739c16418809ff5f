"""The supervised step: forward, loss, backward."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from trainlattice.contracts.options import Options
from trainlattice.data.container import Container, batch_size, get
from trainlattice.training.mode import Mode, Parts, Phase, Window


class Supervised(Mode):
    """One model, one loss, one optimizer.

    A loss is called as ``loss(pred, target)`` and returns a scalar. Its attribute ``reduction`` says whether
    that is a mean (the default) or a ``sum``, and ``num_terms(target)`` of how many terms (by default the
    samples); metrics report the mean either way. Its attribute ``task`` says whether accuracy means anything.
    """

    def __init__(self, options: Options, parts: Parts) -> None:
        if parts.loss is None:
            raise ValueError("the supervised mode needs a loss")
        self.model = parts.models["model"]
        self.loss = parts.loss
        self.averaged = getattr(parts.loss, "reduction", "mean") != "sum"
        self.num_terms = getattr(parts.loss, "num_terms", None)
        self.has_accuracy = getattr(parts.loss, "task", None) == "classification"
        self.data = parts.data
        self._phases = (Phase("optimizer", self.forward, self.averaged),)

    def phases(self, window: Window) -> Iterator[Phase]:
        return iter(self._phases)

    def forward(self, container: Container) -> Tensor:
        """Model, then loss; leaves ``pred`` and ``loss`` in the container."""
        pred = self.model(get(container, "input", "the model"))
        loss = self.loss(pred, get(container, "target", "the loss"))
        container["pred"] = pred
        container["loss"] = loss
        return loss

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
        loss = self.loss(pred, get(container, "target", "the loss"))
        if not isinstance(loss, Tensor) or loss.dim() != 0:
            what = f"shape {list(loss.shape)}" if isinstance(loss, Tensor) else f"type {type(loss).__name__}"
            raise TypeError(f"the loss returned a value of {what}, expected a scalar tensor")

    def measure(self, container: Container) -> dict[str, Tensor]:
        loss: Tensor = container["loss"].detach()
        if not self.averaged:
            loss = loss / (self.num_terms(container["target"]) if self.num_terms else self.weight(container))
        metrics = {"loss": loss}
        if self.has_accuracy:
            correct = container["pred"].detach().argmax(dim=1) == container["target"]
            metrics["accuracy"] = correct.to(torch.float32).mean()
        return metrics

    def weight(self, container: Container) -> int:
        return batch_size(container)
