"""The multilayer perceptron."""

import pytest
import torch
from torch import nn

from trainlattice_plugin_models.mlp import MLP
from trainlattice_plugin_models.options import MLPOptions

pytestmark = pytest.mark.torch


def count(model):
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(
    ("options", "parameters"),
    [
        ({}, 784 * 512 + 512 + 512 * 256 + 256 + 256 * 128 + 128 + 128 * 10 + 10),
        ({"input_dim": 4, "hidden_dims": (8,), "num_classes": 3}, 4 * 8 + 8 + 8 * 3 + 3),
        ({"input_dim": 5, "hidden_dims": (), "num_classes": 2}, 5 * 2 + 2),
    ],
)
def test_the_number_of_parameters_is_that_of_its_layers(options, parameters):
    assert count(MLP(MLPOptions(**options))) == parameters


def test_inputs_of_any_shape_are_flattened():
    model = MLP(MLPOptions(input_dim=24, hidden_dims=(8,), num_classes=3))
    assert model(torch.zeros(5, 2, 3, 4)).shape == (5, 3)
    assert model(torch.zeros(5, 24)).shape == (5, 3)


def test_layers_are_linear_gelu_dropout_and_a_linear_head():
    layers = list(MLP(MLPOptions(input_dim=4, hidden_dims=(8, 6), num_classes=3, dropout=0.25)).layers)
    kinds = [nn.Flatten, nn.Linear, nn.GELU, nn.Dropout, nn.Linear, nn.GELU, nn.Dropout, nn.Linear]
    assert [type(layer) for layer in layers] == kinds
    assert layers[3].p == 0.25


def test_outputs_are_those_of_the_same_layers_in_plain_torch():
    torch.manual_seed(0)
    model = MLP(MLPOptions(input_dim=4, hidden_dims=(8,), num_classes=3))
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Dropout(0.1), nn.Linear(8, 3))
    x = torch.randn(6, 4)
    torch.manual_seed(1)
    ours = model(x)
    torch.manual_seed(1)
    assert torch.equal(ours, plain(x))


def test_dropout_acts_in_training_and_not_in_evaluation():
    model = MLP(MLPOptions(input_dim=4, hidden_dims=(64,), num_classes=3, dropout=0.5))
    x = torch.randn(2, 4)
    assert not torch.equal(model(x), model(x))
    model.eval()
    assert torch.equal(model(x), model(x))


def test_dropout_of_zero_drops_nothing():
    model = MLP(MLPOptions(input_dim=4, hidden_dims=(64,), num_classes=3, dropout=0.0))
    x = torch.randn(2, 4)
    assert torch.equal(model(x), model(x))


@pytest.mark.parametrize(
    "options", [{"dropout": 1.0}, {"dropout": -0.1}, {"hidden_dims": (0,)}, {"num_classes": 0}]
)
def test_options_that_make_no_network_are_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        MLPOptions(**options)
