"""The state of named objects."""

import pytest
import torch
from torch import nn

from trainlattice.checkpoint.capture import capture, restore

pytestmark = pytest.mark.torch


def test_each_object_gets_its_own_state_back():
    saved = {"a": nn.Linear(2, 1), "b": nn.Linear(2, 1)}
    state = {name: {k: v.clone() for k, v in s.items()} for name, s in capture(saved).items()}
    other = {"b": nn.Linear(2, 1), "a": nn.Linear(2, 1)}
    restore(other, state)
    for name, module in saved.items():
        assert torch.equal(other[name].weight, module.weight)


def test_objects_without_state_and_states_without_object_are_named_together():
    with pytest.raises(KeyError) as raised:
        restore({"model/a": nn.Linear(1, 1)}, {"model/b": {}})
    assert raised.value.args[0] == (
        "it holds no state for model/a; it holds state for model/b, which this run does not have"
    )
