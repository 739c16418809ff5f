"""Cosine between two embeddings."""

import pytest
import torch
from torch.nn import functional

from support.losses import assert_same, build, value_and_gradient

pytestmark = pytest.mark.torch
TARGET = torch.tensor([1, -1, -1, 1, -1, -1])


def pairs():
    return torch.randn(6, 2, 4, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("margin", [-1.0, 0.0, 0.25])
@pytest.mark.parametrize("dtype", [torch.int64, torch.float32])
def test_value_and_gradient_are_torchs(dtype, margin, reduction):
    options = {"margin": margin, "reduction": reduction}
    assert_same(
        build("cosine_embedding", **options),
        lambda p, t: functional.cosine_embedding_loss(p[:, 0], p[:, 1], t, **options),
        pairs(),
        TARGET.to(dtype),
    )


def test_the_two_may_come_as_one_tensor_as_a_pair_or_beside_each_other():
    loss, pred = build("cosine_embedding"), pairs()
    first, second = pred.unbind(1)
    stacked = value_and_gradient(loss, pred, TARGET)
    assert loss((first, second), TARGET) == stacked[0]
    beside = value_and_gradient(lambda p, t: loss(p, t, other=second), first, TARGET)
    assert beside[0] == stacked[0]
    assert torch.equal(beside[1], stacked[1][:, 0])


def test_by_hand():
    """At right angles 1 where alike, and nothing where different; along each other 0 and 1."""
    x, y = [1.0, 0.0], [0.0, 1.0]
    pred = torch.tensor([[x, y], [x, y], [x, x], [x, x]])
    assert build("cosine_embedding")(pred, torch.tensor([1, -1, 1, -1])).item() == pytest.approx(0.5)


@pytest.mark.parametrize("shape", [(6, 3, 4), (6, 4), (6, 2, 4, 4)])
def test_what_is_no_pair_is_refused(shape):
    with pytest.raises(ValueError, match=r"two embeddings are \[N, 2, D\]"):
        build("cosine_embedding")(torch.zeros(shape), TARGET)


def test_embeddings_that_differ_in_shape_are_refused():
    with pytest.raises(ValueError, match=r"\[6, 4\] and \[6, 5\]: both must be \[N, D\]"):
        build("cosine_embedding")((torch.zeros(6, 4), torch.zeros(6, 5)), TARGET)


def test_targets_of_another_shape_are_refused():
    with pytest.raises(ValueError, match=r"targets \[6, 1\]: targets must be \[6\]"):
        build("cosine_embedding")(pairs(), TARGET.unsqueeze(1))


def test_a_target_that_is_neither_is_refused_on_the_host():
    """torch gives a pair with the target 0 no loss, and it would never be learned."""
    assert build("cosine_embedding").num_terms(TARGET) == 6
    with pytest.raises(ValueError, match="neither 1"):
        build("cosine_embedding").num_terms(torch.tensor([1, 0]))
