"""An MLP of several outputs."""

import pytest
import torch
from torch import nn

from support.checking import mistake, resolved, write
from trainlattice_plugin_models.multi_head import MultiHead
from trainlattice_plugin_models.options import MultiHeadOptions

pytestmark = pytest.mark.torch


def built(**options):
    return MultiHead(
        MultiHeadOptions(**{"input_dim": 4, "heads": {"value": 1, "kind": 3}, "dropout": 0.0, **options})
    )


def test_heads_are_linear_above_layers_that_they_share():
    torch.manual_seed(0)
    model = built(hidden_dims=(5,))
    torch.manual_seed(0)
    shared, value, kind = nn.Linear(4, 5), nn.Linear(5, 1), nn.Linear(5, 3)
    x = torch.randn(7, 2, 2)
    hidden = nn.functional.gelu(shared(x.flatten(1)))
    found = model(x)
    assert list(found) == ["value", "kind"]
    assert torch.equal(found["value"], value(hidden))
    assert torch.equal(found["kind"], kind(hidden))
    assert {name.split(".")[0] for name in model.state_dict()} == {"trunk", "value_head", "kind_head"}


def test_a_loss_of_one_head_trains_what_is_shared_and_no_other_head():
    model = built(hidden_dims=(5,))
    model(torch.randn(2, 4))["kind"].sum().backward()
    assert model.trunk[1].weight.grad is not None
    assert model.value_head.weight.grad is None


@pytest.mark.parametrize("name", ["type", "half", "values", "trunk", "training"])
def test_a_head_may_have_any_name(name):
    """Names that a module has already among them."""
    assert built(heads={name: 2})(torch.zeros(3, 4))[name].shape == (3, 2)


def test_its_input_is_compared_with_the_data_and_its_heads_with_no_classes(tmp_path):
    text = (
        "model: {{name: multi_head, input_dim: {n}, heads: {{kind: 10, value: 1}}}}\ndataset: digits\n"
        "loss: {{name: cross_entropy, pred_key: pred/kind}}\n"
    )
    resolved(write(tmp_path, text.format(n=64)))
    assert mistake(write(tmp_path, text.format(n=63))).path == "model.input_dim"


@pytest.mark.parametrize("heads", ["{}", "{a b: 2}", "{a: 0}", "[a]"])
def test_heads_that_are_none_or_have_no_width_are_refused(tmp_path, heads):
    text = f"model: {{name: multi_head, heads: {heads}}}\ndataset: digits\n"
    assert mistake(write(tmp_path, text)).path.startswith("model.heads")
