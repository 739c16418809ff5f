"""Soft Dice."""

import math

import pytest
import torch

from support.losses import assert_close, build

pytestmark = pytest.mark.torch


def logits(*probabilities):
    """Logits over classes ``[C, pixels]`` with these probabilities."""
    return torch.tensor(probabilities).log()


def test_by_hand():
    """Two pixels, of class 0 and 1, with probabilities (3/4, 1/4) and (1/2, 1/2).

    Class 0: overlap 3/4, sums 5/4 and 1; class 1: overlap 1/2, sums 3/4 and 1.
    """
    pred, target = logits([0.75, 0.5], [0.25, 0.5]).unsqueeze(0), torch.tensor([[0, 1]])
    dice = [(1.5 + 1) / (2.25 + 1), (1 + 1) / (1.75 + 1)]
    assert build("dice")(pred, target).item() == pytest.approx(1 - sum(dice) / 2, rel=1e-5)
    weighted = build("dice", class_weights=(1.0, 3.0))(pred, target).item()
    assert weighted == pytest.approx(1 - (dice[0] + 3 * dice[1]) / 4, rel=1e-5)
    without = build("dice", class_weights=(0.0, 1.0))(pred, target).item()
    assert without == pytest.approx(1 - dice[1], rel=1e-5)


def test_by_hand_with_squares():
    """The same; squares 9/16 + 1/4 and 1/16 + 1/4."""
    pred, target = logits([0.75, 0.5], [0.25, 0.5]).unsqueeze(0), torch.tensor([[0, 1]])
    dice = [(1.5 + 0.5) / (13 / 16 + 1 + 0.5), (1 + 0.5) / (5 / 16 + 1 + 0.5)]
    found = build("dice", squared=True, smooth=0.5)(pred, target).item()
    assert found == pytest.approx(1 - sum(dice) / 2, rel=1e-5)


def test_binary_by_hand():
    """Probabilities 3/4 and 1/4 of a region that is the first pixel: overlap 3/4, sums 1 and 1."""
    pred, target = torch.tensor([[[math.log(3.0), -math.log(3.0)]]]), torch.tensor([[[1, 0]]])
    assert build("dice", binary=True)(pred, target).item() == pytest.approx(1 - 2.5 / 3, rel=1e-5)


def test_what_is_certain_and_right_costs_nothing_and_what_is_wrong_nearly_all():
    target = torch.randint(3, (2, 8, 8), generator=torch.Generator().manual_seed(0))
    right = 100.0 * torch.nn.functional.one_hot(target, 3).movedim(-1, 1)
    assert build("dice")(right, target).item() == pytest.approx(0.0, abs=1e-6)
    assert build("dice", smooth=1e-3)(right, (target + 1) % 3).item() == pytest.approx(1.0, abs=1e-3)


def plain(pred, target, *, squared=False, smooth=1.0, ignore_index=-100):
    """Sample by sample and class by class."""
    losses = []
    for p, t in zip(pred.softmax(1), target, strict=True):
        kept = t != ignore_index
        if not kept.any():
            continue
        parts = []
        for c, q in enumerate(p):
            found, truth = q[kept], (t[kept] == c).to(q.dtype)
            size = (found**2).sum() + truth.sum() if squared else found.sum() + truth.sum()
            parts.append((2 * (found * truth).sum() + smooth) / (size + smooth))
        losses.append(1 - torch.stack(parts).mean())
    return torch.stack(losses)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("ignore_index", [-100, 255, 1])
@pytest.mark.parametrize("squared", [False, True])
@pytest.mark.parametrize("shape", [(4, 3, 6), (4, 3, 4, 4), (4, 3, 2, 3, 4)])
def test_value_and_gradient_are_those_of_the_samples(shape, squared, ignore_index, reduction):
    generator = torch.Generator().manual_seed(0)
    pred = torch.randn(shape, generator=generator)
    target = torch.randint(3, (4, *shape[2:]), generator=generator)
    target[0, 0] = target[1] = ignore_index
    options = {"squared": squared, "smooth": 0.5, "ignore_index": ignore_index}
    loss = build("dice", reduction=reduction, **options)
    assert_close(loss, lambda p, t: getattr(plain(p, t, **options), reduction)(), pred, target)
    assert loss.num_terms(target) == 3


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("weights", [None, (1.0, 3.0)])
def test_binary_channels_are_regions_of_their_own(weights, reduction):
    generator = torch.Generator().manual_seed(0)
    pred, target = torch.randn(3, 2, 4, generator=generator), torch.randint(2, (3, 2, 4), generator=generator)
    target[1], target[0, 0, 0] = -100, -100
    loss = build("dice", binary=True, class_weights=weights, reduction=reduction)

    def by_hand(p, t):
        parts = []
        for n in (0, 2):
            dice = []
            for c in (0, 1):
                kept = t[n, c] != -100
                found, truth = p[n, c][kept].sigmoid(), t[n, c][kept].float()
                dice.append((2 * (found * truth).sum() + 1) / (found.sum() + truth.sum() + 1))
            w = weights or (1.0, 1.0)
            parts.append(1 - (w[0] * dice[0] + w[1] * dice[1]) / sum(w))
        return getattr(torch.stack(parts), reduction)()

    assert_close(loss, by_hand, pred, target)
    assert loss.num_terms(target) == 2


@pytest.mark.parametrize(
    "options", [{}, {"squared": True, "class_weights": (1.0, 0.0, 2.0)}, {"binary": True}]
)
def test_it_has_the_gradient_of_its_values(options):
    generator = torch.Generator().manual_seed(0)
    pred = torch.randn(2, 3, 2, 2, dtype=torch.float64, generator=generator).requires_grad_()
    shape = (2, 3, 2, 2) if options.get("binary") else (2, 2, 2)
    target = torch.randint(2, shape, generator=generator)
    target[0, 0, 0] = -100
    loss = build("dice", **options)
    assert torch.autograd.gradcheck(lambda p: loss(p, target), pred)


@pytest.mark.parametrize("target", [[[0, 3]], [[0, -1]]])
def test_a_class_that_does_not_exist_is_refused(target):
    """A comparison with each class would take it for a pixel of none."""
    with pytest.raises(RuntimeError, match="out of bounds"):
        build("dice")(torch.zeros(1, 3, 2), torch.tensor(target))


@pytest.mark.parametrize(("pred", "target"), [((4, 3), (4,)), ((4, 3, 5), (4, 3, 5)), ((4, 3, 5), (4, 4))])
def test_shapes_that_are_no_regions_are_refused(pred, target):
    with pytest.raises(ValueError, match=r"regions need logits \[B, C, ...\] and targets \[B, ...\]"):
        build("dice")(torch.zeros(pred), torch.zeros(target, dtype=torch.int64))


def test_binary_shapes_that_are_no_regions_are_refused():
    with pytest.raises(ValueError, match=r"regions need \[B, C, ...\]"):
        build("dice", binary=True)(torch.zeros(4, 3), torch.zeros(4, 3))
