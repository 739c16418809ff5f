"""Losses of a yes or no for each output."""

import math

import pytest
import torch
from torch.nn import functional

from support.losses import assert_close, assert_same, build

pytestmark = pytest.mark.torch
bce = functional.binary_cross_entropy_with_logits


def draw(*shape):
    generator = torch.Generator().manual_seed(0)
    pred = torch.randn(shape, generator=generator)
    return pred, torch.rand(shape, generator=generator)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("pos_weight", [None, (2.5,), (1.0, 0.0, 4.0)])
@pytest.mark.parametrize("class_weights", [None, (0.5,), (1.0, 3.0, 0.25)])
@pytest.mark.parametrize("shape", [(6, 3), (2, 3, 4), (2, 3, 4, 4)])
def test_value_and_gradient_are_torchs(shape, class_weights, pos_weight, reduction):
    """torch broadcasts weights over the last dimension; here that of channels is dimension 1."""
    over_channels = (-1, *[1] * (len(shape) - 2))
    tensors = {
        name: None if values is None else torch.tensor(values).view(over_channels)
        for name, values in (("weight", class_weights), ("pos_weight", pos_weight))
    }
    loss = build("bce_with_logits", class_weights=class_weights, pos_weight=pos_weight, reduction=reduction)
    assert_same(loss, lambda p, t: bce(p, t, reduction=reduction, **tensors), *draw(*shape))


def test_one_output_without_a_channel():
    loss = build("bce_with_logits", pos_weight=(3.0,))
    assert_same(loss, lambda p, t: bce(p, t, pos_weight=torch.tensor(3.0)), *draw(5))


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float64])
@pytest.mark.parametrize(("name", "options"), [("bce_with_logits", {}), ("focal", {"binary": True})])
def test_a_yes_may_come_in_any_format(name, options, dtype):
    pred, target = torch.randn(4, 3), torch.tensor([[0, 1, 1]] * 4)
    loss = build(name, **options)
    assert_same(lambda p: loss(p, target.to(dtype)), lambda p: loss(p, target.float()), pred)
    assert loss.num_terms(target.to(dtype)) == 12


@pytest.mark.parametrize(
    ("name", "options"), [("bce_with_logits", {}), ("focal", {"binary": True}), ("dice", {"binary": True})]
)
def test_targets_may_lack_the_only_channel(name, options):
    loss = build(name, **options)
    pred, target = torch.randn(2, 1, 4, 4), torch.randint(2, (2, 4, 4))
    assert_same(lambda p: loss(p, target), lambda p: loss(p, target.unsqueeze(1)), pred)
    assert loss.broadcasts, "the mode refuses shapes that broadcast"


@pytest.mark.parametrize(
    ("name", "options"), [("bce_with_logits", {}), ("focal", {"binary": True}), ("dice", {"binary": True})]
)
@pytest.mark.parametrize("shapes", [((4, 2, 3), (4, 3)), ((4, 1, 3), (4, 3, 1)), ((4, 2, 3), (4, 1, 3))])
def test_other_shapes_are_refused(name, options, shapes):
    pred, target = (torch.zeros(shape) for shape in shapes)
    with pytest.raises(ValueError, match="they must be equal"):
        build(name, **options)(pred, target)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("bce_with_logits", {"ignore_index": 255}),
        ("focal", {"binary": True, "ignore_index": 255}),
        ("dice", {"binary": True, "ignore_index": 255}),
    ],
)
@pytest.mark.parametrize(("values", "says"), [([0, 2], "between 0 and 2"), ([-1, 1], "between -1 and 1")])
def test_what_is_no_yes_or_no_is_refused_on_the_host(name, options, values, says):
    loss = build(name, **options)
    target = torch.tensor([[[*values, 255]]])
    with pytest.raises(ValueError, match=rf"targets lie {says}, and a yes or no lies in \[0, 1\]"):
        loss.num_terms(target)
    loss.num_terms(target.clamp(0, 1).where(target != 255, 255))
    with pytest.raises(ValueError, match="nan"):
        loss.num_terms(torch.tensor([[[math.nan, 0.0]]]))


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_ignored_values_count_neither_above_nor_below(reduction):
    pred, target = torch.randn(4, 3), torch.tensor([[0, 1, 255], [255, 1, 0], [255, 255, 255], [1, 1, 1]])
    kept = target != 255
    loss = build("bce_with_logits", ignore_index=255, reduction=reduction)
    assert_close(loss, lambda p, t: bce(p[kept], t[kept].float(), reduction=reduction), pred, target)
    assert loss.num_terms(target) == kept.sum() == 7


# --- focal


def torchvision_focal(pred, target, alpha, gamma):
    """As torchvision.ops.sigmoid_focal_loss has it."""
    p = torch.sigmoid(pred)
    right = p * target + (1 - p) * (1 - target)
    losses = bce(pred, target, reduction="none") * (1 - right) ** gamma
    if alpha is not None:
        losses = losses * (alpha * target + (1 - alpha) * (1 - target))
    return losses


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("alpha", [None, 0.0, 0.25, 1.0])
@pytest.mark.parametrize("gamma", [0.0, 0.5, 2.0])
def test_focal_is_torchvisions(gamma, alpha, reduction):
    loss = build("focal", binary=True, gamma=gamma, alpha=alpha, reduction=reduction)

    def plain(p, t):
        return getattr(torchvision_focal(p, t, alpha, gamma), reduction)()

    assert_close(loss, plain, *draw(6, 3))
    hard = draw(6, 3)[1].round()
    assert_close(loss, plain, draw(6, 3)[0], hard)


def test_focal_without_gamma_is_binary_cross_entropy():
    assert_close(build("focal", binary=True, gamma=0.0), bce, *draw(6, 3))


def test_focal_by_hand():
    """A yes of probability 3/4 and a no of 1/4, gamma 2, alpha 1/4: each misses 1/4."""
    pred, target = torch.tensor([math.log(3.0), -math.log(3.0)]), torch.tensor([1, 0])
    one = math.log(4 / 3) / 16
    found = build("focal", binary=True, alpha=0.25)(pred, target).item()
    assert found == pytest.approx((0.25 * one + 0.75 * one) / 2, rel=1e-5)
    assert build("focal", binary=True)(pred, target).item() == pytest.approx(one, rel=1e-5)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 2.0])
def test_focal_has_the_gradient_of_its_values(gamma):
    pred = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    target = torch.tensor([[0, 1, -100]] * 4)
    loss = build("focal", binary=True, gamma=gamma, alpha=0.25)
    assert torch.autograd.gradcheck(lambda p: loss(p, target), pred.requires_grad_())
