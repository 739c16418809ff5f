"""The data container."""

from types import SimpleNamespace

import pytest
import torch

from trainlattice.data.container import BatchError, batch_size, container_of, get, move

pytestmark = pytest.mark.torch
CPU = torch.device("cpu")


@pytest.mark.parametrize("form", [tuple, list])
def test_a_pair_is_input_and_target(form):
    x, y = torch.ones(3, 2), torch.zeros(3)
    container = container_of(form((x, y)))
    assert list(container) == ["input", "target"]
    assert container["input"] is x
    assert container["target"] is y


def test_fields_of_a_dict_are_inputs_unless_they_are_targets():
    batch = {
        "image": torch.ones(1),
        "target": torch.ones(1),
        "target/box": torch.ones(1),
        "input": torch.ones(1),
    }
    assert list(container_of(batch)) == ["input/image", "target", "target/box", "input"]


def test_tensors_move_to_the_device_and_other_values_stay():
    container = container_of({"x": torch.ones(2), "names": ["a", "b"]})
    move(container, torch.device("meta"))
    assert container["input/x"].device.type == "meta"
    assert container["input/names"] == ["a", "b"]


@pytest.mark.parametrize(
    ("batch", "form"),
    [
        (torch.ones(2), "a Tensor"),
        ((torch.ones(2),), "a tuple of 1"),
        ([torch.ones(2)] * 3, "a list of 3"),
        (None, "a NoneType"),
    ],
)
def test_a_batch_of_another_form_is_refused_and_the_form_named(batch, form):
    with pytest.raises(
        BatchError, match=rf"a pair \(input, target\) or a dict, and this dataset yields {form}$"
    ):
        container_of(batch)


def test_the_batch_size_is_the_length_of_the_first_tensor_with_a_dimension():
    assert batch_size({"input/scale": torch.tensor(2.0), "input/x": torch.ones(5, 3)}) == 5


def test_a_container_without_a_batch_dimension_names_its_keys():
    with pytest.raises(BatchError, match="no tensor with a batch dimension among the keys input/a, epoch"):
        batch_size({"input/a": torch.tensor(1.0), "epoch": 3})


def test_a_missing_key_is_named_with_who_asked_and_what_exists():
    with pytest.raises(KeyError) as raised:
        get({"input/image": 1, "target": 2}, "input", "the model")
    assert raised.value.args[0] == "the model needs the key 'input'; the batch has 'input/image', 'target'"


def test_a_value_that_is_there_is_returned():
    value = SimpleNamespace()
    assert get({"pred": value}, "pred", "a loss") is value
