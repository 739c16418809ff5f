"""The supervised step: forward, loss, backward."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from trainlattice.contracts.options import Options
from trainlattice.data.container import Container, get
from trainlattice.training.forward import Forward
from trainlattice.training.losses import LossTerm, auxiliary_losses
from trainlattice.training.mode import Measured, Mode, Parts, Phase, Window


class Supervised(Mode):
    """One model, one optimizer, and a loss of one or more terms (:class:`~trainlattice.training.losses.LossTerm`).

    With several terms the loss is their weighted sum, each a mean over what it counts itself in the whole window,
    plus what submodules offer as ``auxiliary_loss()``.
    """

    def __init__(self, options: Options, parts: Parts) -> None:
        if parts.terms is None:
            raise ValueError("the supervised mode needs a loss")
        self.model = parts.models["model"]
        self.modules = parts.modules()
        self.call = Forward(self.model, parts.inputs.get("model"))
        self.postprocess = parts.postprocess
        self.terms = parts.terms.terms
        self.data = parts.data
        self.auxiliary = auxiliary_losses({"model": self.model})
        self._classifier = next((term for term in self.terms if term.classifies), None)
        self._own_weights = parts.weighting == "samples"
        first = self.terms[0]
        # One term alone needs no bookkeeping: its loss is the loss.
        self._alone = first if len(self.terms) == 1 and first.weight == 1.0 and not self.auxiliary else None
        self.averaged = first.averaged if self._alone else True
        self._phases = (Phase("optimizer", self.forward, self.averaged, last=True),)

    def phases(self, window: Window) -> Iterator[Phase]:
        if self._alone is None and self._own_weights:
            self._share_out(window)
        return iter(self._phases)

    def _share_out(self, window: Window) -> None:
        """A micro-batch's loss is multiplied by its share of the window's samples. A term that counts something
        else needs its own share instead: the ratio of both."""
        samples = [container["weight"] for container in window]
        for number, term in enumerate(self.terms):
            counts = [container["counts"][number] for container in window]
            for container, count, weight in zip(window, counts, samples, strict=True):
                share = weight / sum(samples) if sum(samples) else 0.0
                own = (count / sum(counts) if sum(counts) else 0.0) if term.averaged else 1.0
                container.setdefault("ratios", []).append(own / share if share else 0.0)

    def forward(self, container: Container) -> Tensor:
        """Model, post-processing, loss; leaves ``pred``, ``loss`` and, of several terms, ``loss/<name>``."""
        self.call(container)
        self.postprocess(container)
        return self._loss_of(container)

    def _loss_of(self, container: Container) -> Tensor:
        if self._alone is not None:
            loss = container["loss"] = self._alone(container)
            return loss
        total: Tensor | None = None
        ratios, counts = container.get("ratios"), container["counts"]
        # Where nothing at all counts, the step is left out: then any value does.
        left_out = any(counts) or bool(self.auxiliary)
        for number, term in enumerate(self.terms):
            ratio = ratios[number] if ratios is not None else 1.0
            if not counts[number] and left_out:  # the mean of nothing
                continue
            value = container[f"loss/{term.name}"] = term(container)
            part = value * (term.weight_at(container.get("step", 0)) * ratio)
            total = part if total is None else total + part
        for name, auxiliary in self.auxiliary:
            value = container[f"loss/{name}"] = auxiliary()
            total = value if total is None else total + value
        assert total is not None
        container["loss"] = total
        return total

    def evaluate(self, container: Container) -> None:
        self.forward(container)

    def check(self, container: Container) -> None:
        """The batch goes through; a classifier has as many outputs as the dataset has classes, and the loss
        is a scalar."""
        self._require_names()
        self.call(container)
        self.postprocess(container)
        self._require_outputs(container)
        values = [term.check(container) for term in self.terms] + [loss() for _, loss in self.auxiliary]
        learns = any(p.requires_grad for module in self.modules for p in module.parameters())
        if learns and not any(value.requires_grad for value in values):
            raise ValueError(
                "the loss does not depend on any parameter that is trained: nothing would be learned"
            )

    def _require_names(self) -> None:
        taken = {"loss", "accuracy", *(term.name for term in self.terms)}
        for name, _ in self.auxiliary:
            if name in taken:
                raise ValueError(
                    f"the submodule {name!r} has an auxiliary_loss, recorded under its name, and {name!r} is "
                    "a loss or metric of this run: give the submodule, or with 'as' the loss, another name"
                )

    def _require_outputs(self, container: Container) -> None:
        first, classes = self.terms[0], self.data.num_outputs
        pred = get(container, first.pred_key, "the loss")
        if len(self.terms) == 1 and not first.context and not isinstance(pred, Tensor):
            raise TypeError(
                f"the model returned a {type(pred).__name__}, and the loss takes a tensor"
                + f"; loss.pred_key may be one of {', '.join(_keys(container))}" * bool(_keys(container))
            )
        for term in self.terms:
            pred = container.get(term.pred_key)
            if self.data.task != "classification" or classes is None or not term.classifies:
                continue
            if not isinstance(pred, Tensor) or term.target_key != "target":
                continue
            if pred.dim() < 2 or pred.shape[1] != classes:
                raise ValueError(
                    f"the model's output has the shape {list(pred.shape)}, and {classes} classes "
                    f"need [{len(pred) if pred.dim() else 'N'}, {classes}]"
                )

    def measure(self, container: Container) -> Measured:
        if self._alone is not None:
            loss: Tensor = container["loss"].detach()
            if not self.averaged:
                loss = loss.to(torch.float64) / container["weight"]
            metrics: Measured = {"loss": loss}
        else:
            metrics = {"loss": container["loss"].detach()}
            for term, count in zip(self.terms, container["counts"], strict=True):
                if count:
                    value = container[f"loss/{term.name}"].detach()
                    metrics[term.name] = (value if term.averaged else value.to(torch.float64) / count, count)
            for name, _ in self.auxiliary:
                metrics[name] = container[f"loss/{name}"].detach()
        if self._classifier is not None:
            metrics["accuracy"] = self._accuracy(self._classifier, container)
        return metrics

    def _accuracy(self, term: LossTerm, container: Container) -> Any:
        target = container[term.target_key]
        correct = container[term.pred_key].detach().argmax(dim=1) == target
        if term.ignore_index is None:
            accuracy = correct.to(torch.float64).mean()
        else:
            counted = target != term.ignore_index
            accuracy = (correct & counted).sum().to(torch.float64) / counted.sum()
        own = container.get("counted")
        return accuracy if own is None else (accuracy, own)

    def summarise(self, means: dict[str, float], step: int) -> dict[str, float]:
        """Of a validation: the sum of the terms' means, each over what it counts itself."""
        if self._alone is not None or not means:
            return means
        parts = [term.weight_at(step) * means[term.name] for term in self.terms if term.name in means]
        return {**means, "loss": sum(parts) + sum(means[name] for name, _ in self.auxiliary)}

    def weight(self, container: Container) -> float:
        """Terms that the loss counts; samples where it does not say. Brings classes to int64."""
        counts = [term.count(container, self.samples) for term in self.terms]
        term = self._classifier
        if term is not None and (term.counts_targets or self._alone is None):
            target = container.get(term.target_key)
            if isinstance(target, Tensor):
                # What the loss counts may be other than targets: accuracy is a share of these.
                kept = None if term.ignore_index is None else target != term.ignore_index
                container["counted"] = target.numel() if kept is None else int(kept.sum())
        if self._alone is not None:
            return counts[0]
        container["counts"] = counts
        return self.samples(container) if any(counts) or self.auxiliary else 0.0


def _keys(container: Container) -> list[str]:
    return [key for key in container if key.startswith("pred/")]
