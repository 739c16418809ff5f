"""Losses of class indices: torch's values, class weights, what is ignored."""

import math

import pytest
import torch
from torch.nn import functional

from support.losses import assert_close, assert_same, build
from trainlattice.contracts.options import OptionError
from trainlattice.contracts.records import DatasetContract

pytestmark = pytest.mark.torch
WEIGHTS = (0.5, 3.0, 1.25, 0.0)
SHAPES = [(8, 4), (3, 4, 5), (2, 4, 3, 3)]


def draw(shape, ignore_index=-100):
    generator = torch.Generator().manual_seed(0)
    pred = torch.randn(shape, generator=generator)
    target = torch.randint(3, shape[:1] + shape[2:], generator=generator)
    target.view(-1)[::3] = ignore_index
    return pred, target


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("ignore_index", [-100, 1])
@pytest.mark.parametrize("weights", [None, WEIGHTS])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ["cross_entropy", "nll"])
def test_value_and_gradient_are_torchs(name, shape, weights, ignore_index, reduction):
    common = {"ignore_index": ignore_index, "reduction": reduction}
    plain = functional.cross_entropy if name == "cross_entropy" else functional.nll_loss
    weight = None if weights is None else torch.tensor(weights)
    loss = build(name, class_weights=weights, **common)
    assert_same(loss, lambda p, t: plain(p, t, weight, **common), *draw(shape, ignore_index))


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("ignore_index", [-100, 1])
@pytest.mark.parametrize("shape", SHAPES)
def test_cross_entropy_with_weights_and_smoothing_is_torchs(shape, ignore_index, reduction):
    """Up to rounding: the sum is divided outside torch, whose own division waits for the device."""
    common = {"label_smoothing": 0.2, "ignore_index": ignore_index, "reduction": reduction}
    loss = build("cross_entropy", class_weights=WEIGHTS, **common)
    weight = torch.tensor(WEIGHTS)
    assert_close(
        loss, lambda p, t: functional.cross_entropy(p, t, weight, **common), *draw(shape, ignore_index)
    )


# --- focal


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("ignore_index", [-100, 1])
@pytest.mark.parametrize("weights", [None, WEIGHTS])
@pytest.mark.parametrize("shape", SHAPES)
def test_focal_without_gamma_is_cross_entropy(shape, weights, ignore_index, reduction):
    common = {"class_weights": weights, "ignore_index": ignore_index, "reduction": reduction}
    assert_close(
        build("focal", gamma=0.0, **common), build("cross_entropy", **common), *draw(shape, ignore_index)
    )


@pytest.mark.parametrize("gamma", [0.5, 1.0, 2.0, 5.0])
def test_focal_is_the_formula_of_the_paper(gamma):
    pred, target = draw((8, 4), ignore_index=-100)
    kept = target != -100

    def plain(p, t):
        right = p.softmax(1)[kept].gather(1, t[kept].unsqueeze(1))
        return (-((1 - right) ** gamma) * right.log()).mean()

    assert_close(build("focal", gamma=gamma), plain, pred, target, rtol=1e-4)


def test_focal_by_hand():
    """Probabilities 1/2 and 3/4 of the right class: gamma 2 leaves 1/4 and 1/16 of their logarithms."""
    pred = torch.tensor([[0.0, 0.0], [0.0, math.log(3.0)]])
    target = torch.tensor([0, 1])
    parts = [math.log(2.0) / 4, math.log(4 / 3) / 16]
    assert build("focal")(pred, target).item() == pytest.approx(sum(parts) / 2, rel=1e-5)
    weighted = build("focal", class_weights=(1.0, 3.0))(pred, target).item()
    assert weighted == pytest.approx((parts[0] + 3 * parts[1]) / 4, rel=1e-5)


@pytest.mark.parametrize("options", [{}, {"class_weights": (1.0, 2.0, 3.0)}, {"ignore_index": 1}])
@pytest.mark.parametrize("gamma", [0.0, 0.5, 2.0])
def test_focal_has_the_gradient_of_its_values(gamma, options):
    pred = torch.randn(4, 3, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    target = torch.tensor([[0, 1], [1, 2], [2, 1], [-100, 0]])
    if "ignore_index" in options:
        target[target == -100] = 1
    loss = build("focal", gamma=gamma, **options)
    assert torch.autograd.gradcheck(lambda p: loss(p, target), pred.requires_grad_())


@pytest.mark.parametrize("gamma", [0.0, 0.1, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("far", [20.0, 1e4])
def test_focal_has_a_finite_gradient_where_nothing_is_missing(gamma, far):
    """At p = 1 a power below 1 has an infinite slope, times a logarithm of zero."""
    for options, pred, target in (
        ({}, [[far, 0.0], [0.0, far]], torch.tensor([0, 0])),
        ({"binary": True}, [[far, -far], [far, -far]], torch.tensor([[1, 0], [0, 1]])),
    ):
        pred = torch.tensor(pred, requires_grad=True)
        value = build("focal", gamma=gamma, **options)(pred, target)
        value.backward()
        assert value.isfinite()
        assert pred.grad.isfinite().all()


# --- class weights


@pytest.mark.parametrize("name", ["cross_entropy", "nll", "focal", "dice"])
def test_as_many_weights_as_the_dataset_has_classes(name):
    data = DatasetContract((4,), "classification", 4)
    assert build(name, data, class_weights=WEIGHTS).class_weights.tolist() == list(WEIGHTS)
    with pytest.raises(OptionError, match="there are 2 weights, and the dataset has 4 classes") as raised:
        build(name, data, class_weights=(1.0, 2.0))
    assert raised.value.option == ("class_weights",)


@pytest.mark.parametrize("name", ["cross_entropy", "nll", "focal", "dice"])
def test_as_many_weights_as_predictions_have_classes(name):
    with pytest.raises(ValueError, match=r"class_weights has 2 weights.*\[3, 4, 5\]"):
        build(name, class_weights=(1.0, 2.0))(*draw((3, 4, 5)))


@pytest.mark.parametrize("name", ["cross_entropy", "nll", "focal", "dice"])
def test_weights_are_no_state(name):
    """A checkpoint holds them in its configuration; they go where the loss goes."""
    loss = build(name, class_weights=WEIGHTS)
    assert loss.state_dict() == {}
    assert loss.to("meta").class_weights.is_meta


@pytest.mark.parametrize("name", ["cross_entropy", "nll", "focal"])
@pytest.mark.parametrize(
    ("weights", "ignore_index", "terms"),
    [(None, -100, 4), (None, 1, 3), (WEIGHTS, -100, 0.5 + 2 * 3.0 + 1.25), (WEIGHTS, 1, 0.5 + 1.25)],
)
def test_what_a_mean_is_over(name, weights, ignore_index, terms):
    target = torch.tensor([0, 1, 1, 2])
    if ignore_index == 1:
        target = torch.tensor([0, 1, 3, 2])  # weight 0
    loss = build(name, class_weights=weights, ignore_index=ignore_index)
    assert float(loss.num_terms(target)) == terms


def test_a_class_that_does_not_exist_is_not_counted_wrongly_but_refused():
    loss, target = build("cross_entropy", class_weights=WEIGHTS), torch.tensor([0, 9])
    assert loss.num_terms(target).isfinite()
    with pytest.raises(IndexError):
        loss(torch.zeros(2, 4), target)
