"""Synthetic classification."""

import pytest
import torch

from trainlattice_plugin_datasets.options import SyntheticOptions
from trainlattice_plugin_datasets.synthetic import open_synthetic

pytestmark = pytest.mark.torch
OPTIONS = SyntheticOptions(samples=30, val_samples=10, input_shape=(2, 3), num_classes=4)


def test_shapes_types_and_sizes():
    splits = open_synthetic(OPTIONS, seed=1)
    assert splits.train.inputs.shape == (30, 2, 3)
    assert splits.val.inputs.shape == (10, 2, 3)
    assert (splits.train.inputs.dtype, splits.train.targets.dtype) == (torch.float32, torch.int64)
    assert set(splits.train.targets.tolist()) <= {0, 1, 2, 3}
    assert splits.test is None


def test_the_same_seed_gives_the_same_data_whatever_was_drawn_before():
    first = open_synthetic(OPTIONS, seed=1)
    torch.manual_seed(99)
    again = open_synthetic(OPTIONS, seed=1)
    for split in ("train", "val"):
        assert torch.equal(getattr(first, split).inputs, getattr(again, split).inputs)
        assert torch.equal(getattr(first, split).targets, getattr(again, split).targets)


def test_another_seed_gives_other_data():
    assert not torch.equal(
        open_synthetic(OPTIONS, seed=1).train.inputs, open_synthetic(OPTIONS, seed=2).train.inputs
    )


def test_making_the_data_touches_no_global_random_state():
    before = torch.get_rng_state()
    open_synthetic(OPTIONS, seed=1)
    assert torch.equal(torch.get_rng_state(), before)


def test_training_and_validation_samples_differ_and_share_their_classes():
    """A classifier by the nearest class mean of the training samples is right about the validation ones."""
    options = SyntheticOptions(samples=400, val_samples=100, input_shape=(64,), num_classes=4)
    splits = open_synthetic(options, seed=0)
    means = torch.stack([splits.train.inputs[splits.train.targets == c].mean(0) for c in range(4)])
    nearest = torch.cdist(splits.val.inputs, means).argmin(1)
    assert (nearest == splits.val.targets).float().mean() > 0.95
    assert not torch.equal(splits.train.inputs[:100], splits.val.inputs)


def test_the_contract_is_that_of_the_options():
    contract = open_synthetic(OPTIONS, seed=1).contract
    assert (contract.input_shape, contract.task, contract.num_outputs) == ((2, 3), "classification", 4)
