"""Seeds."""

import random

import numpy
import pytest
import torch

from trainlattice.data.seeding import mixed_seed, seed_everything

pytestmark = pytest.mark.torch


def test_seeding_everything_seeds_python_torch_and_numpy():
    seed_everything(5)
    drawn = random.random(), torch.rand(1).item(), numpy.random.rand()
    random.seed(5)
    torch.manual_seed(5)
    numpy.random.seed(5)
    assert drawn == (random.random(), torch.rand(1).item(), numpy.random.rand())


def test_a_seed_of_more_than_32_bits_is_accepted():
    seed_everything(2**63 - 1)
    first = torch.rand(1).item(), numpy.random.rand()
    seed_everything(2**63 - 1)
    assert first == (torch.rand(1).item(), numpy.random.rand())


def test_mixed_seeds_are_those_of_splitmix64():
    """The first output of SplitMix64 for state 0 is published as 0xE220A8397B1DCDAF."""
    assert mixed_seed(0) == 0xE220A8397B1DCDAF >> 1


def test_neighbouring_seeds_and_epochs_give_different_seeds_that_fit_63_bits():
    seeds = {mixed_seed(seed, epoch) for seed in range(50) for epoch in range(50)}
    assert len(seeds) == 2500
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_the_parts_of_a_mixed_seed_do_not_commute():
    assert mixed_seed(1, 2) != mixed_seed(2, 1)
