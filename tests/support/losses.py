"""Built-in losses with data that suits them, and how two losses are compared."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from trainlattice.contracts.kind import Component
from trainlattice_plugin_losses.plugin import trainlattice_components

COMPONENTS: dict[str, Component] = {c.name: c for c in trainlattice_components()}


def build(name: str, data: Any = None, **options: Any) -> nn.Module:
    """A built-in loss, as a run builds it."""
    arguments = () if data is None else (data,)
    loss: nn.Module = _load(COMPONENTS[name].target)(options_of(name, **options), *arguments)
    return loss


def options_of(name: str, **options: Any) -> Any:
    """Its options, checked."""
    return _load(COMPONENTS[name].options or "")(**options)


def _load(path: str) -> Any:
    module, attribute = path.split(":")
    return getattr(importlib.import_module(module), attribute)


def value_and_gradient(
    loss: Callable[..., Tensor], pred: Tensor, *arguments: Tensor
) -> tuple[Tensor, Tensor]:
    pred = pred.clone().requires_grad_()
    value = loss(pred, *arguments)
    value.backward()
    assert pred.grad is not None
    return value.detach(), pred.grad


def assert_same(
    ours: Callable[..., Tensor], theirs: Callable[..., Tensor], pred: Tensor, *arguments: Tensor
) -> None:
    """Bit by bit the same value and the same gradient, which is not zero."""
    found, expected = (value_and_gradient(loss, pred, *arguments) for loss in (ours, theirs))
    assert torch.equal(found[0], expected[0]), (found[0], expected[0])
    assert torch.equal(found[1], expected[1])
    assert found[1].any()


def assert_close(
    ours: Callable[..., Tensor],
    theirs: Callable[..., Tensor],
    pred: Tensor,
    *arguments: Tensor,
    rtol: float = 1e-5,
) -> None:
    """The same up to rounding."""
    found, expected = (value_and_gradient(loss, pred, *arguments) for loss in (ours, theirs))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=rtol, atol=rtol * other.abs().max().item())
    assert found[1].any()


@dataclass(frozen=True)
class Case:
    """A loss with seven samples.

    :param shape: of the predictions of one sample.
    :param targets: the samples differ in how much of them counts.
    """

    name: str
    shape: tuple[int, ...]
    targets: Tensor
    options: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return "-".join([self.name, *(f"{key}={value}" for key, value in self.options.items())])

    def pred(self) -> Tensor:
        return torch.randn(len(self.targets), *self.shape, generator=torch.Generator().manual_seed(1))


def _draw() -> list[Case]:
    generator = torch.Generator().manual_seed(0)

    def classes(*shape: int, ignored: int = -100) -> Tensor:
        """Of three. Few targets of the first three samples count, and none of the next three."""
        target = torch.randint(3, (7, *shape), generator=generator)
        dropped = torch.rand(7, *shape, generator=generator) < 0.6
        dropped[3:6], dropped[6], dropped[0] = True, False, False
        return torch.where(dropped, ignored, target)

    def yes_or_no(*shape: int) -> Tensor:
        return torch.randint(2, (7, *shape), generator=generator)

    def numbers(*shape: int) -> Tensor:
        return torch.randn(7, *shape, generator=generator)

    weights = (0.5, 3.0, 1.25)
    void = yes_or_no(2, 4, 4)
    void[1, 0, 1:], void[2, 1, :2], void[3:6] = 255, 255, 255
    one_channel = yes_or_no(4, 4)
    alike = 2 * yes_or_no() - 1
    soft = numbers(3).softmax(1)
    return [
        Case("cross_entropy", (3, 5), classes(5)),
        Case("cross_entropy", (3, 5), classes(5), {"class_weights": weights}),
        Case("cross_entropy", (3, 5), classes(5), {"class_weights": weights, "label_smoothing": 0.2}),
        Case(
            "cross_entropy",
            (3, 2, 2),
            classes(2, 2, ignored=1),
            {"class_weights": weights, "ignore_index": 1},
        ),
        Case("nll", (3, 5), classes(5)),
        Case("nll", (3, 5), classes(5), {"class_weights": weights}),
        Case("focal", (3, 5), classes(5)),
        Case("focal", (3, 5), classes(5), {"class_weights": weights, "gamma": 0.5}),
        Case("focal", (2, 4, 4), void, {"binary": True, "ignore_index": 255, "alpha": 0.25}),
        Case("bce_with_logits", (4,), yes_or_no(4).float(), {"pos_weight": (1.0, 2.0, 0.5, 4.0)}),
        Case("bce_with_logits", (2, 4, 4), void, {"ignore_index": 255, "class_weights": (0.5, 2.0)}),
        Case("bce_with_logits", (1, 4, 4), one_channel),
        Case("mse", (4,), numbers(4)),
        Case("l1", (4,), numbers(4)),
        Case("smooth_l1", (4,), numbers(4), {"beta": 0.5}),
        Case("kl_div", (3,), soft, {"from_logits": True}),
        Case("kl_div", (3,), soft.log(), {"from_logits": True, "log_target": True, "reduction": "mean"}),
        Case("cosine_embedding", (2, 2), alike, {"margin": -0.5}),
        Case("dice", (3, 4, 4), classes(4, 4)),
        Case("dice", (3, 4, 4), classes(4, 4), {"class_weights": weights, "squared": True, "smooth": 0.1}),
        Case("dice", (2, 4, 4), void, {"binary": True, "ignore_index": 255}),
        Case("dice", (1, 4, 4), one_channel, {"binary": True}),
        Case("ssim", (2, 8, 8), numbers(2, 8, 8), {"window_size": 5, "data_range": 4.0}),
        Case("ssim", (1, 8, 8), numbers(1, 8, 8), {"window_size": 5, "data_range": 4.0, "padding": "none"}),
    ]


CASES = _draw()
