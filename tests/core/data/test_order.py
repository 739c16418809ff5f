"""The order of samples is a pure function of (seed, epoch)."""

import pytest
import torch

from trainlattice.data.order import ORDER_VERSION, epoch_order

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("size", [0, 1, 2, 10, 1000])
def test_an_order_is_a_permutation_of_all_indices(size):
    order = epoch_order(size, seed=7, epoch=3)
    assert order.dtype == torch.int64
    assert sorted(order.tolist()) == list(range(size))


def test_the_same_seed_and_epoch_give_the_same_order_whatever_was_drawn_before():
    first = epoch_order(50, seed=7, epoch=3)
    torch.manual_seed(99)
    torch.rand(10)
    epoch_order(50, seed=8, epoch=0)
    assert torch.equal(epoch_order(50, seed=7, epoch=3), first)


def test_every_epoch_and_every_seed_has_an_order_of_its_own():
    orders = {tuple(epoch_order(20, seed=s, epoch=e).tolist()) for s in range(10) for e in range(10)}
    assert len(orders) == 100


def test_an_order_touches_no_global_random_state():
    before = torch.get_rng_state()
    epoch_order(100, seed=1, epoch=1)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_order_of_version_1_has_not_changed():
    """A run is resumed with the order it began with: another algorithm needs another ORDER_VERSION."""
    assert ORDER_VERSION == 1
    assert epoch_order(10, seed=42, epoch=0).tolist() == [4, 0, 5, 6, 2, 8, 1, 3, 9, 7]
