"""Structural similarity."""

import pytest
import torch
from torch.nn import functional

from support.losses import assert_close, build

pytestmark = pytest.mark.torch


def images(*shape, dtype=torch.float32, scale=1.0):
    generator = torch.Generator().manual_seed(0)
    x, noise = (torch.rand(shape, generator=generator, dtype=torch.float64) for _ in range(2))
    return (scale * x).to(dtype), (scale * (0.7 * x + 0.3 * noise)).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_identical_images_differ_by_nothing(dtype):
    x, _ = images(2, 3, 16, 16, dtype=dtype)
    assert build("ssim")(x, x.clone()).item() == pytest.approx(0.0, abs=1e-6)


def test_flat_images_by_hand():
    """Without variance only the means speak: (2 * 0.5 * 0.25 + c1) / (0.25 + 0.0625 + c1) with c1 = 1e-4."""
    x, y = torch.full((1, 1, 11, 11), 0.5), torch.full((1, 1, 11, 11), 0.25)
    expected = 1 - (0.25 + 1e-4) / (0.3125 + 1e-4)
    assert build("ssim")(x, y).item() == pytest.approx(expected, rel=1e-4)


def test_one_window_by_hand():
    """A window of 3 as wide as it is high, at the only place where a 3x3 image has one: weighted means and
    variances of nine numbers."""
    x = torch.tensor([[0.0, 0.5, 1.0], [0.25, 0.75, 0.5], [1.0, 0.0, 0.25]], dtype=torch.float64)
    y = torch.tensor([[0.5, 0.5, 0.75], [0.0, 1.0, 0.5], [0.75, 0.25, 0.0]], dtype=torch.float64)
    e = torch.tensor([-0.5 / 1.44, 0.0, -0.5 / 1.44], dtype=torch.float64).exp()  # sigma 1.2
    w = torch.outer(e, e) / torch.outer(e, e).sum()
    mx, my = (w * x).sum(), (w * y).sum()
    vx, vy, cov = (w * (x - mx) ** 2).sum(), (w * (y - my) ** 2).sum(), (w * (x - mx) * (y - my)).sum()
    c1, c2 = (0.02 * 2) ** 2, (0.05 * 2) ** 2
    ssim = (2 * mx * my + c1) * (2 * cov + c2) / ((mx**2 + my**2 + c1) * (vx + vy + c2))
    loss = build("ssim", window_size=3, sigma=1.2, data_range=2.0, k1=0.02, k2=0.05, padding="none")
    assert loss(x[None, None], y[None, None]).item() == pytest.approx(1 - ssim.item(), rel=1e-9)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize(
    ("size", "sigma", "data_range", "k1", "k2"),
    [(11, 1.5, 1.0, 0.01, 0.03), (7, 0.8, 255.0, 0.01, 0.03), (5, 0.5, 2.0, 0.05, 0.1)],
)
@pytest.mark.parametrize("shape", [(3, 1, 16, 16), (2, 3, 14, 19)])
def test_value_and_gradient_are_torchmetrics(shape, size, sigma, data_range, k1, k2, reduction):
    """torchmetrics takes the size of its window from sigma: int(3.5 sigma + 0.5) to each side."""
    pytest.importorskip("torchmetrics", reason="torchmetrics is not installed")
    from torchmetrics.functional.image import structural_similarity_index_measure as theirs

    x, y = images(*shape, dtype=torch.float64, scale=data_range)
    loss = build(
        "ssim", window_size=size, sigma=sigma, data_range=data_range, k1=k1, k2=k2, reduction=reduction
    )
    found = loss(x.requires_grad_(), y)
    (gradient,) = torch.autograd.grad(found, x)
    how = {"mean": "elementwise_mean", "sum": "sum"}[reduction]
    similarity = theirs(x, y, sigma=sigma, data_range=data_range, k1=k1, k2=k2, reduction=how)
    expected = (1.0 if reduction == "mean" else len(x)) - similarity
    (other,) = torch.autograd.grad(expected, x)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(gradient, other, rtol=1e-6, atol=1e-9 * other.abs().max().item())


@pytest.mark.parametrize("padding", ["reflect", "none"])
def test_it_has_the_gradient_of_its_values(padding):
    x, y = images(2, 2, 5, 6, dtype=torch.float64)
    loss = build("ssim", window_size=3, padding=padding)
    assert torch.autograd.gradcheck(lambda p: loss(p, y), x.requires_grad_())


def test_the_mean_is_over_images_and_the_sum_too():
    x, y = images(3, 2, 12, 12)
    each = [build("ssim")(x[i : i + 1], y[i : i + 1]).item() for i in range(3)]
    assert build("ssim")(x, y).item() == pytest.approx(sum(each) / 3, rel=1e-5)
    assert build("ssim", reduction="sum")(x, y).item() == pytest.approx(sum(each), rel=1e-5)
    assert build("ssim").num_terms(y) == 3


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_images_in_any_layout(layout):
    x, y = images(2, 3, 16, 16)
    assert build("ssim")(x.to(memory_format=layout), y).item() == pytest.approx(build("ssim")(x, y).item())


def test_a_target_of_bytes():
    x, y = images(2, 1, 12, 12, scale=255.0)
    loss = build("ssim", data_range=255.0)
    assert loss(x, y.to(torch.uint8)) == loss(x, y.to(torch.uint8).float())


def test_padding_continues_images_by_their_mirror_image():
    x, y = images(2, 3, 9, 12)
    around = (2, 2, 2, 2)
    inside = build("ssim", window_size=5, padding="none")
    assert_close(
        build("ssim", window_size=5),
        lambda x, y: inside(functional.pad(x, around, "reflect"), functional.pad(y, around, "reflect")),
        x,
        y,
    )
    assert inside(x, y) != build("ssim", window_size=5)(x, y)


@pytest.mark.parametrize(
    ("shape", "padding", "says"),
    [
        ((2, 1, 10, 16), "none", r"\[2, 1, 10, 16\].*a window_size of 11 .*H and W at least 11"),
        ((2, 1, 16, 5), "reflect", r"\[2, 1, 16, 5\].*a window_size of 11 .*H and W at least 6"),
        ((2, 16, 16), "reflect", r"needs \[B, C, H, W\]"),
    ],
)
def test_images_that_are_too_small_are_refused(shape, padding, says):
    with pytest.raises(ValueError, match=says):
        build("ssim", padding=padding)(torch.zeros(shape), torch.zeros(shape))


@pytest.mark.parametrize(("size", "padding"), [(11, "none"), (6, "reflect")])
def test_the_smallest_images(size, padding):
    x, y = images(2, 1, size, size)
    assert 0.0 < build("ssim", padding=padding)(x, y).item() < 1.0


def test_images_of_different_shapes_are_refused():
    with pytest.raises(ValueError, match="they must be equal"):
        build("ssim")(torch.zeros(2, 3, 16, 16), torch.zeros(2, 1, 16, 16))
