"""Real digits of scikit-learn."""

import pytest
import torch

from trainlattice_plugin_datasets.digits import open_digits
from trainlattice_plugin_datasets.options import DigitsOptions

pytestmark = pytest.mark.torch


def test_all_1797_images_are_split_and_scaled_to_one():
    splits = open_digits(DigitsOptions(val_fraction=0.2))
    assert len(splits.train) + len(splits.val) == 1797
    images = torch.cat([splits.train.inputs, splits.val.inputs])
    assert images.shape == (1797, 1, 8, 8)
    assert (images.min().item(), images.max().item()) == (0.0, 1.0)
    assert (
        len(images.flatten(1).unique(dim=0)) == 1797
    )  # no image is in the data twice: none is in both splits


def test_every_class_gives_its_share_of_validation_images():
    splits = open_digits(DigitsOptions(val_fraction=0.2))
    train, val = (torch.bincount(split.targets, minlength=10) for split in (splits.train, splits.val))
    sizes = torch.tensor([178, 182, 177, 183, 181, 182, 181, 179, 174, 180])
    assert torch.equal(train + val, sizes)
    assert torch.equal(val, torch.floor(sizes * 0.2 + 0.5).long())


def test_the_split_follows_split_seed():
    first, same, other = (open_digits(DigitsOptions(split_seed=seed)) for seed in (0, 0, 1))
    assert torch.equal(first.val.inputs, same.val.inputs)
    assert not torch.equal(first.val.inputs, other.val.inputs)


def test_the_contract_is_that_of_the_images():
    contract = open_digits(DigitsOptions()).contract
    assert (contract.input_shape, contract.task, contract.num_outputs) == ((1, 8, 8), "classification", 10)
