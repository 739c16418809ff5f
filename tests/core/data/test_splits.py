"""Data in memory."""

import pytest
import torch

from trainlattice.data import TensorData

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
