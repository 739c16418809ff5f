"""Kullback-Leibler divergence."""

import math

import pytest
import torch
from torch.nn import functional

from support.losses import assert_same, build

pytestmark = pytest.mark.torch


def draw(*shape, log_target=False):
    generator = torch.Generator().manual_seed(0)
    pred, target = (torch.randn(shape, generator=generator) for _ in range(2))
    return pred.log_softmax(1), target.log_softmax(1) if log_target else target.softmax(1)


@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides")  # torch's own function, here only
@pytest.mark.parametrize("reduction", ["batchmean", "mean", "sum"])
@pytest.mark.parametrize("log_target", [False, True])
@pytest.mark.parametrize("shape", [(6, 4), (3, 4, 5)])
def test_value_and_gradient_are_torchs(shape, log_target, reduction):
    options = {"log_target": log_target, "reduction": reduction}
    pred, target = draw(*shape, log_target=log_target)
    assert_same(build("kl_div", **options), lambda p, t: functional.kl_div(p, t, **options), pred, target)
    assert_same(
        build("kl_div", from_logits=True, **options),
        lambda p, t: functional.kl_div(p.log_softmax(1), t, **options),
        3.0 * pred,
        target,
    )


@pytest.mark.parametrize("reduction", ["batchmean", "mean", "sum"])
def test_no_step_warns(reduction, recwarn):
    build("kl_div", reduction=reduction)(*draw(6, 4))
    assert not recwarn.list


def test_by_hand():
    """Target (1, 0) and (1/2, 1/2) against (1/2, 1/2): log 2 and 0; the default is the mean over samples."""
    pred, target = torch.full((2, 2), math.log(0.5)), torch.tensor([[1.0, 0.0], [0.5, 0.5]])
    assert build("kl_div")(pred, target).item() == pytest.approx(math.log(2) / 2)
    assert build("kl_div", reduction="mean")(pred, target).item() == pytest.approx(math.log(2) / 4)


@pytest.mark.parametrize(("reduction", "terms"), [("batchmean", 6), ("mean", 24), ("sum", 6)])
def test_what_a_mean_is_over(reduction, terms):
    assert build("kl_div", reduction=reduction).num_terms(draw(6, 4)[1]) == terms


@pytest.mark.parametrize(
    ("target", "log_target", "says"),
    [
        (torch.tensor([[0, 1]]), False, "targets are int64, and a divergence takes a probability"),
        (torch.tensor([[0.5, -0.5]]), False, "a target is -0.5, and a probability is not below 0"),
        (torch.tensor([[0.5, 0.5]]), True, "a target is 0.5, and with log_target none is above 0"),
        (torch.tensor([[math.nan, 0.5]]), False, "a target is nan"),
    ],
)
def test_what_is_no_distribution_is_refused_on_the_host(target, log_target, says):
    with pytest.raises(ValueError, match=says):
        build("kl_div", log_target=log_target).num_terms(target)


def test_a_logarithm_may_round_above_zero():
    assert build("kl_div", log_target=True).num_terms(torch.tensor([[1e-6, -20.0]])) == 1


def test_other_shapes_are_refused():
    with pytest.raises(ValueError, match="they must be equal"):
        build("kl_div")(torch.zeros(4, 3), torch.zeros(4))
