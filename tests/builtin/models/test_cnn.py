"""The convolutional network."""

import pytest
import torch
from torch import nn

from support.runs import tiny, train
from trainlattice.diagnostics.errors import ConfigError
from trainlattice_plugin_models.cnn import CNN
from trainlattice_plugin_models.options import CNNOptions

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    ("options", "parameters"),
    [
        ({}, (9 * 1 * 32 + 32) + (9 * 32 * 64 + 64) + (64 * 7 * 7 * 10 + 10)),
        (
            {"input_shape": (3, 8, 12), "channels": (5,), "num_classes": 2},
            (9 * 3 * 5 + 5) + (5 * 4 * 6 * 2 + 2),
        ),
    ],
)
def test_the_number_of_parameters_is_that_of_its_layers(options, parameters):
    assert sum(p.numel() for p in CNN(CNNOptions(**options)).parameters()) == parameters


def test_images_give_one_row_of_logits_each():
    model = CNN(CNNOptions(input_shape=(3, 16, 8), channels=(4, 6, 8), num_classes=5))
    assert model(torch.zeros(7, 3, 16, 8)).shape == (7, 5)


def test_outputs_are_those_of_the_same_layers_in_plain_torch():
    torch.manual_seed(0)
    model = CNN(CNNOptions(input_shape=(1, 8, 8), channels=(4, 6), num_classes=3))
    torch.manual_seed(0)
    plain = nn.Sequential(
        *(nn.Conv2d(1, 4, 3, padding=1), nn.GELU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(4, 6, 3, padding=1), nn.GELU(), nn.MaxPool2d(2)),
        nn.Flatten(),
        nn.Linear(24, 3),
    )
    x = torch.randn(2, 1, 8, 8)
    assert torch.equal(model(x), plain(x))


@pytest.mark.parametrize("shape", [[1, 28, 30], [1, 30, 28], [1, 2, 2]])
def test_a_size_that_pooling_cannot_halve_is_a_configuration_error(tmp_path, shape):
    """Two blocks divide by four."""
    config = tiny(
        model={"name": "cnn", "input_shape": shape, "channels": [4, 4], "num_classes": 3},
        dataset={"input_shape": shape},
    )
    with pytest.raises(ConfigError) as raised:
        train(config, tmp_path)
    assert "2 blocks divide height and width by 4" in str(raised.value)
    assert f"{shape[1]}x{shape[2]} is not divisible by it" in str(raised.value)
    assert not (tmp_path / "runs").exists()


def test_a_shape_without_three_sizes_is_refused():
    with pytest.raises(ValueError, match="input_shape"):
        CNNOptions(input_shape=(28, 28))
