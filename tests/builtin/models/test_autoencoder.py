"""The convolutional autoencoder."""

import pytest
import torch
from torch import nn

from support.checking import mistake, resolved, write
from trainlattice_plugin_models.autoencoder import Autoencoder
from trainlattice_plugin_models.options import AutoencoderOptions

pytestmark = pytest.mark.torch


def built(**options):
    return Autoencoder(AutoencoderOptions(**options))


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 8, 12), (2, 4, 4)])
def test_images_come_back_in_their_shape_through_a_few_values(shape):
    model = built(input_shape=shape, channels=(4, 6), latent_dim=5)
    x = torch.randn(7, *shape)
    assert model(x).shape == x.shape
    assert model.encode(x).shape == (7, 5)
    assert torch.equal(model.decode(model.encode(x)), model(x))


def test_outputs_are_those_of_the_same_layers_in_plain_torch():
    torch.manual_seed(0)
    model = built(input_shape=(1, 8, 8), channels=(4, 6), latent_dim=3)
    down = [nn.Conv2d(1, 4, 3, 2, 1), nn.GELU(), nn.Conv2d(4, 6, 3, 2, 1), nn.GELU()]
    up = [nn.ConvTranspose2d(6, 4, 4, 2, 1), nn.GELU(), nn.ConvTranspose2d(4, 1, 4, 2, 1), nn.Sigmoid()]
    torch.manual_seed(0)
    for layer in (*down[::2], *up[::2]):  # in the order in which the model makes them
        layer.reset_parameters()
    encode, decode = nn.Linear(6 * 2 * 2, 3), nn.Linear(3, 6 * 2 * 2)
    x = torch.rand(2, 1, 8, 8)
    latent = encode(nn.Sequential(*down)(x).flatten(1))
    shape = decode(latent).view(2, 6, 2, 2)
    assert torch.equal(model(x), nn.Sequential(*up)(nn.functional.gelu(shape)))


@pytest.mark.parametrize(("output", "bounded"), [("sigmoid", True), ("none", False)])
def test_outputs_lie_between_0_and_1_if_they_are_to(output, bounded):
    model = built(input_shape=(1, 4, 4), channels=(4,), latent_dim=2, output=output)
    found = model(torch.randn(50, 1, 4, 4) * 1e3)
    assert bool(((found >= 0) & (found <= 1)).all()) is bounded


@pytest.mark.parametrize("shape", ["[1, 8, 6]", "[1, 6, 8]", "[1, 2, 2]"])
def test_a_size_that_the_strides_cannot_halve_is_a_configuration_error(tmp_path, shape):
    found = mistake(
        write(
            tmp_path,
            f"model: {{name: autoencoder, input_shape: {shape}, channels: [4, 4]}}\ndataset: synthetic\n",
        )
    )
    assert found.message.startswith("2 blocks divide height and width by 4, and ")
    assert found.message.endswith("is not divisible by it")


def test_its_shape_is_compared_with_the_data_and_its_width_with_no_classes(tmp_path):
    text = "model: {{name: autoencoder, input_shape: {shape}}}\ndataset: digits\n"
    text += "loss: {{name: mse, target_key: input}}\n"
    assert mistake(write(tmp_path, text.format(shape="[1, 28, 28]"))).path == "model.input_shape"
    resolved(write(tmp_path, text.format(shape="[1, 8, 8]")))
