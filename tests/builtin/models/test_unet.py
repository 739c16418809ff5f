"""The U-Net."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from support.checking import mistake, resolved, write
from support.runs import train
from trainlattice.diagnostics.errors import ConfigError
from trainlattice_plugin_models.options import UNetOptions
from trainlattice_plugin_models.unet import UNet

pytestmark = pytest.mark.torch


def built(**options):
    return UNet(UNetOptions(**options))


@pytest.mark.parametrize(("height", "width"), [(4, 4), (8, 12), (20, 4)])
def test_each_pixel_has_logits_at_any_size_that_the_levels_divide(height, width):
    model = built(in_channels=3, channels=(4, 6, 8), num_classes=5)
    assert model(torch.randn(2, 3, height, width)).shape == (2, 5, height, width)


def test_one_level_is_two_convolutions_and_takes_any_size():
    assert built(channels=(4,), num_classes=3)(torch.randn(2, 1, 5, 7)).shape == (2, 3, 5, 7)


@pytest.mark.parametrize(("height", "width"), [(6, 8), (8, 6), (5, 5)])
def test_a_size_that_the_levels_cannot_halve_is_refused_with_the_way_out(height, width):
    with pytest.raises(ValueError, match=f"multiples of 4, and the images have {height}x{width}"):
        built(channels=(4, 4, 4))(torch.zeros(1, 1, height, width))


def test_outputs_are_those_of_the_same_weights_in_plain_torch():
    torch.manual_seed(0)
    model = built(in_channels=2, channels=(4, 8), num_classes=3)
    with torch.no_grad():
        for parameter in model.parameters():  # norms begin as the identity: nothing may
            parameter.copy_(torch.randn_like(parameter) / 3)
    w = dict(model.named_parameters())

    def block(x, name, groups):
        for conv, norm in ((0, 1), (3, 4)):
            x = functional.conv2d(x, w[f"{name}.{conv}.weight"], padding=1)
            x = functional.group_norm(x, groups, w[f"{name}.{norm}.weight"], w[f"{name}.{norm}.bias"])
            x = x.relu()
        return x

    x = torch.randn(2, 2, 6, 8)
    fine = block(x, "down.0", 4)
    coarse = block(functional.max_pool2d(fine, 2), "down.1", 8)
    grown = functional.conv_transpose2d(coarse, w["grow.0.weight"], w["grow.0.bias"], stride=2)
    last = block(torch.cat([fine, grown], 1), "up.0", 4)
    expected = functional.conv2d(last, w["head.weight"], w["head.bias"])
    assert torch.allclose(model(x), expected, atol=1e-6)


def test_no_sample_changes_what_another_gets():
    model = built(channels=(4, 6))
    x = torch.randn(3, 1, 8, 8)
    assert torch.allclose(model(x)[:1], model(x[:1]), atol=1e-6)
    assert not any(isinstance(layer, nn.BatchNorm2d) for layer in model.modules())


SEGMENTATION = """\
model: {{name: unet, in_channels: {channels}, channels: [4, 4, 4], num_classes: {classes}}}
dataset: {{name: shapes, image_size: {size}, samples: 4, val_samples: 2}}
"""


@pytest.mark.parametrize(
    ("changes", "path", "message"),
    [
        ({"channels": 3}, "model.in_channels", "of 3 channels, dataset 'datasets:shapes' yields [1, 8, 8]"),
        ({"size": "[8, 6]"}, "model.channels", "takes samples whose sizes are multiples of 4, dataset"),
        ({"classes": 3}, "model.num_classes", "has 3 outputs, dataset 'datasets:shapes' declares 4 classes"),
    ],
)  # fmt: skip
def test_what_does_not_fit_the_data_is_shown_before_torch_is_imported(tmp_path, changes, path, message):
    fits = {"channels": 1, "classes": 4, "size": "[8, 8]"}
    resolved(write(tmp_path, SEGMENTATION.format(**fits)))
    found = mistake(write(tmp_path, SEGMENTATION.format(**fits | changes)))
    assert found.path == path
    assert message in found.message


def test_images_of_a_size_that_only_the_data_tells_are_refused_before_the_run(tmp_path):
    """A file of tensors states its shape when it is opened."""
    for name in ("train.pt", "validation.pt"):
        torch.save(
            {"features": torch.zeros(4, 1, 6, 6), "labels": torch.zeros(4, 6, 6).long()}, tmp_path / name
        )
    config = {
        "model": {"name": "unet", "channels": [4, 4, 4]},
        "dataset": {"name": "tensor", "root": str(tmp_path), "num_classes": 2},
    }
    with pytest.raises(ConfigError, match="sizes are multiples of 4"):
        train(config, tmp_path)
    assert not (tmp_path / "runs").exists()
