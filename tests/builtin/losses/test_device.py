"""No loss makes the host wait for the device, and half precision does not spoil one."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from support.losses import CASES, build, value_and_gradient

pytestmark = pytest.mark.torch
WAITS = ("_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero", "_unique2", "item")
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


class Asked(TorchDispatchMode):
    """Operators whose result the host needs: a value, or a shape that depends on values."""

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        masks = name == "index" and any(i is not None and i.dtype == torch.bool for i in args[1])
        if name in WAITS or masks:
            self.found.append(name)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_no_value_is_asked_for(case):
    loss = build(case.name, **case.options)
    with Asked() as asked:
        value_and_gradient(loss, case.pred(), case.targets)
    assert asked.found == []


def test_a_loss_that_asks_is_seen():
    """So that the test above can fail. What torch's cross entropy selects with weights and smoothing is not seen
    here, but on the meta device, below."""
    pred, target = torch.randn(4, 3), torch.tensor([0, 1, 2, -100])
    with Asked() as asked:
        kept = pred[target >= 0]
        if kept.sum() > 100.0:
            kept = kept.masked_select(kept > 0)
        kept.masked_select(kept > 0)
    assert asked.found == ["index", "_local_scalar_dense", "masked_select"]


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


@pytest.mark.parametrize("case", CASES, ids=str)
def test_predictions_of_half_precision_are_computed_with_in_full(case):
    """As they come out of autocast."""
    loss, pred = build(case.name, **case.options), case.pred().bfloat16()
    expected = value_and_gradient(loss, pred.float(), case.targets)
    with torch.autocast("cpu", torch.bfloat16):
        value, gradient = value_and_gradient(loss, pred, case.targets)
    torch.testing.assert_close(value.float(), expected[0], rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(gradient, expected[1].bfloat16(), rtol=1e-2, atol=1e-6)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_shapes_can_be_tried_on_the_meta_device(case):
    """So that no model is tried for real before a run because of its loss."""
    loss = build(case.name, **case.options)
    with torch.device("meta"):
        loss.num_terms(case.targets)
        found = loss(case.pred().to("meta"), case.targets.to("meta"))
    assert found.shape == ()
