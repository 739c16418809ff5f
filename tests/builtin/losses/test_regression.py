"""Losses of measurements, and masks."""

import math

import pytest
import torch
from torch.nn import functional

from support.losses import assert_close, assert_same, build

pytestmark = pytest.mark.torch
PLAIN = {
    "mse": functional.mse_loss,
    "l1": functional.l1_loss,
    "smooth_l1": functional.smooth_l1_loss,
    "bce_with_logits": functional.binary_cross_entropy_with_logits,
}


def draw(*shape):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(shape, generator=generator), torch.rand(shape, generator=generator)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0, 3.0])
def test_smooth_l1_has_torchs_value_and_gradient(beta, reduction):
    loss = build("smooth_l1", beta=beta, reduction=reduction)
    assert_same(
        loss, lambda p, t: functional.smooth_l1_loss(p, t, beta=beta, reduction=reduction), *draw(6, 2)
    )


def test_smooth_l1_by_hand():
    """Differences 1 and 3 at beta 2: 1 / 4 and 3 - 1."""
    found = build("smooth_l1", beta=2.0)(torch.tensor([1.0, 3.0]), torch.zeros(2))
    assert found.item() == 1.125


@pytest.mark.parametrize("shapes", [((4, 1), (4,)), ((4, 2), (4, 1))])
def test_smooth_l1_refuses_shapes_that_would_broadcast(shapes):
    with pytest.raises(ValueError, match="they must be equal"):
        build("smooth_l1")(*(torch.zeros(shape) for shape in shapes))


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("kind", [torch.bool, torch.float32, torch.int64])
@pytest.mark.parametrize("name", PLAIN)
def test_a_mask_leaves_values_out(name, kind, reduction):
    pred, target = draw(4, 3)
    mask = torch.tensor([[1, 0, 1], [0, 0, 0], [1, 1, 1], [0, 1, 0]])
    kept = mask.bool()
    loss = build(name, reduction=reduction)
    assert_close(
        lambda p, t: loss(p, t, mask=mask.to(kind)),
        lambda p, t: PLAIN[name](p[kept], t[kept], reduction=reduction),
        pred,
        target,
    )
    assert loss.num_terms(target, mask=mask.to(kind)) == 6
    assert loss.num_terms(target) == 12


@pytest.mark.parametrize("name", PLAIN)
def test_one_mask_may_be_for_all_channels(name):
    pred, target = draw(2, 3, 4)
    mask = torch.tensor([[[1, 1, 0, 0]], [[1, 0, 0, 0]]])
    loss = build(name)
    whole = mask.expand(2, 3, 4)
    assert_same(lambda p, t: loss(p, t, mask=mask), lambda p, t: loss(p, t, mask=whole), pred, target)
    assert loss.num_terms(target, mask=mask) == 9


@pytest.mark.parametrize("name", PLAIN)
def test_a_mask_of_fewer_dimensions_is_refused(name):
    """``[3]`` beside ``[3, 3]`` would be taken for columns."""
    for ask in (build(name).num_terms, lambda t, mask: build(name)(t, t, mask=mask)):
        with pytest.raises(ValueError, match=r"the mask has the shape \[3\] and targets \[3, 3\]"):
            ask(torch.zeros(3, 3), mask=torch.ones(3))


@pytest.mark.parametrize("name", PLAIN)
def test_what_is_left_out_may_be_nan(name):
    pred, target = draw(2, 2)
    target[0, 0] = math.nan
    mask = torch.tensor([[0, 1], [1, 1]])
    pred.requires_grad_()
    build(name)(pred, target, mask=mask).backward()
    assert pred.grad.isfinite().all()
    assert pred.grad[0, 0] == 0.0


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_a_mask_and_ignored_values_are_left_out_both(reduction):
    pred, target = torch.randn(2, 1, 3), torch.tensor([[0, 1, 255], [1, 1, 255]])
    mask = torch.tensor([[1, 0, 1], [1, 1, 1]])
    loss = build("bce_with_logits", ignore_index=255, reduction=reduction)
    kept = torch.tensor([[[1, 0, 0]], [[1, 1, 0]]]).bool()
    assert_close(
        lambda p, t: loss(p, t, mask=mask),
        lambda p, t: PLAIN["bce_with_logits"](p[kept], t.unsqueeze(1)[kept].float(), reduction=reduction),
        pred,
        target,
    )
    assert loss.num_terms(target, mask=mask) == 3
