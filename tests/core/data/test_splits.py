"""Data in memory."""

import pytest
import torch

from trainlattice.data import TensorData, TensorFields

pytestmark = pytest.mark.torch


def test_a_sample_is_a_pair_and_a_batch_selects_rows_in_the_given_order():
    data = TensorData(torch.arange(12.0).reshape(4, 3), torch.arange(4))
    assert len(data) == 4
    x, y = data[2]
    assert (x.tolist(), y.item()) == ([6.0, 7.0, 8.0], 2)
    xs, ys = data.fetch_batch(torch.tensor([3, 0, 3]))
    assert ys.tolist() == [3, 0, 3]
    assert xs.tolist() == [[9.0, 10.0, 11.0], [0.0, 1.0, 2.0], [9.0, 10.0, 11.0]]


def test_inputs_and_targets_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match="3 inputs and 2 targets: the lengths must be equal"):
        TensorData(torch.ones(3, 1), torch.ones(2))


def test_several_fields_make_a_batch_by_key():
    data = TensorFields({"left": torch.arange(8.0).reshape(4, 2), "target/kind": torch.arange(4)})
    assert len(data) == 4
    assert {key: value.tolist() for key, value in data[1].items()} == {"left": [2.0, 3.0], "target/kind": 1}
    batch = data.fetch_batch(torch.tensor([3, 0, 3]))
    assert {key: value.tolist() for key, value in batch.items()} == {
        "left": [[6.0, 7.0], [0.0, 1.0], [6.0, 7.0]],
        "target/kind": [3, 0, 3],
    }


def test_fields_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match="lengths must be equal: 3 of 'a', 2 of 'b'"):
        TensorFields({"a": torch.ones(3), "b": torch.ones(2)})
    with pytest.raises(ValueError, match="no fields"):
        TensorFields({})
