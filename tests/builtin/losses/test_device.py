"""No loss makes the host wait for the device, and half precision does not spoil one."""

import pytest
import torch

from support.losses import CASES, build, value_and_gradient

pytestmark = pytest.mark.torch
WAITS = {f"aten::{name}" for name in ("_local_scalar_dense", "nonzero", "masked_select", "equal", "_unique2")}
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def asked_for(work):
    """Operators, those inside torch's own too, whose result the host needs: a value, or a shape made of values."""
    with torch.autograd.profiler.profile() as profile:
        work()
    return {event.name for event in profile.function_events} & WAITS


@pytest.mark.parametrize("case", CASES, ids=str)
def test_no_value_is_asked_for(case):
    loss, pred = build(case.name, **case.options), case.pred().requires_grad_()
    assert asked_for(lambda: loss(pred, case.targets).backward()) == set()


def test_a_loss_that_asks_is_seen():
    """So that the test above can fail: torch's own mean over weights, with smoothing, selects what counts."""
    pred, target, weight = torch.randn(4, 3), torch.tensor([0, 1, 2, -100]), torch.ones(3)
    cross_entropy = torch.nn.functional.cross_entropy
    found = asked_for(lambda: cross_entropy(pred, target, weight, label_smoothing=0.1))
    assert "aten::masked_select" in found
    assert asked_for(lambda: pred[target >= 0]) == {"aten::nonzero"}
    assert asked_for(lambda: float(pred.sum())) == {"aten::_local_scalar_dense"}


@needs_cuda
@pytest.mark.parametrize("case", CASES, ids=str)
def test_nothing_waits_on_cuda(case):
    loss = build(case.name, **case.options).to("cuda")
    pred, targets = case.pred().cuda().requires_grad_(), case.targets.cuda()
    loss(pred, targets).backward()  # kernels are loaded
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        loss(pred, targets).backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@needs_cuda
@pytest.mark.parametrize("case", CASES, ids=str)
def test_cuda_gives_what_the_cpu_gives_in_double(case):
    """With torch's settings as they are: convolutions of cuDNN in TF32."""
    loss, pred = build(case.name, **case.options), case.pred()
    targets = case.targets.double() if case.targets.is_floating_point() else case.targets
    expected = value_and_gradient(loss, pred.double(), targets)
    found = value_and_gradient(loss.to("cuda"), pred.cuda(), case.targets.cuda())
    for one, other in zip(found, expected, strict=True):
        scale = other.abs().max().item()
        torch.testing.assert_close(one.cpu().double(), other, rtol=1e-5, atol=2e-5 * scale)


@needs_cuda
@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_run_on_cuda_gives_the_same_bits(case):
    """torch refuses here what it knows to depend on the order in which threads finish."""
    loss = build(case.name, **case.options).to("cuda")
    torch.use_deterministic_algorithms(True)
    try:
        value_and_gradient(loss, case.pred().cuda(), case.targets.cuda())
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_autocast_changes_nothing_for_predictions_of_full_precision(case):
    """What a loss computes is not rounded to bfloat16."""
    loss, pred = build(case.name, **case.options), case.pred()
    expected = value_and_gradient(loss, pred, case.targets)
    with torch.autocast("cpu", torch.bfloat16):
        found = value_and_gradient(loss, pred, case.targets)
    assert found[0].dtype == torch.float32
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("autocast", [True, False], ids=["autocast", "half model"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_predictions_of_half_precision_are_computed_with_in_full(case, autocast):
    loss, pred = build(case.name, **case.options), case.pred().bfloat16()
    expected = value_and_gradient(loss, pred.float(), case.targets)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        value, gradient = value_and_gradient(loss, pred, case.targets)
    torch.testing.assert_close(value, expected[0], rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(gradient, expected[1].bfloat16(), rtol=1e-2, atol=1e-6)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_shapes_can_be_tried_on_the_meta_device(case):
    """So that no model is tried for real before a run because of its loss."""
    loss = build(case.name, **case.options)
    with torch.device("meta"):
        loss.num_terms(case.targets)
        found = loss(case.pred().to("meta"), case.targets.to("meta"))
    assert found.shape == ()
