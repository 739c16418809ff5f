"""Training and validation samples by a seed."""

import pytest
import torch

from trainlattice_plugin_datasets.splitting import split

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("labels", [None, [0, 1] * 10])
def test_every_sample_is_on_exactly_one_side_in_ascending_order(labels):
    train, val = split(20, 0.3, 5, labels)
    assert sorted(train.tolist() + val.tolist()) == list(range(20))
    assert train.tolist() == sorted(train.tolist())
    assert val.tolist() == sorted(val.tolist())
    assert len(val) == 6


def test_rare_classes_get_their_share_too():
    labels = [0] * 90 + [1] * 10
    _, val = split(100, 0.2, 0, labels)
    assert sum(labels[i] for i in val.tolist()) == 2
    assert len(val) == 20


def test_a_side_without_samples_is_refused_with_the_numbers():
    with pytest.raises(
        ValueError, match=r"4 samples with val_fraction 0\.1 leave 4 for training and 0 for valid"
    ):
        split(4, 0.1, 0)
    with pytest.raises(ValueError, match="leave 0 for training and 2 for validation"):
        split(2, 0.9, 0)


def test_a_split_touches_no_global_random_state():
    before = torch.get_rng_state()
    split(20, 0.5, 0)
    assert torch.equal(torch.get_rng_state(), before)
