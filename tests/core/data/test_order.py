"""The order of samples is a pure function of (seed, epoch)."""

import itertools

import pytest
import torch

from trainlattice.data.order import BLOCK, ORDER_VERSION, EpochOrder, epoch_order

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("size", [0, 1, 2, 10, 1000, 4095, 4096, 4097, 5000, 8191, 8192, 16385, 100_003])
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


def test_the_order_of_version_2_has_not_changed():
    """A run is resumed with the order it began with: another algorithm needs another ORDER_VERSION."""
    assert ORDER_VERSION == 2
    assert epoch_order(10, seed=42, epoch=0).tolist() == [4, 0, 5, 6, 2, 8, 1, 3, 9, 7]
    assert epoch_order(5000, seed=42, epoch=1)[:6].tolist() == [1944, 2611, 4742, 2199, 485, 363]
    late = EpochOrder(10**10, seed=42, epoch=0).indices(5 * 10**9, 5 * 10**9 + 3)
    assert late.tolist() == [2611233622, 1875222564, 8194901432]


# --- large data: a permutation that is computed in blocks


@pytest.mark.parametrize("size", [10, 4095, 4096, 5000, 3 * BLOCK + 17])
@pytest.mark.parametrize("step", [1, 7, 32, 4096, 5000])
def test_any_part_of_an_order_is_that_part_of_the_whole(size, step):
    whole, order = epoch_order(size, seed=5, epoch=2), EpochOrder(size, seed=5, epoch=2)
    places = range(0, size, step) if step > 1 else [0, 1, size - 1, size // 2, 4, size - 2]
    for start in places:
        assert torch.equal(order.indices(start, start + step), whole[start : start + step])
    assert len(order.indices(size, size + step)) == 0


@pytest.mark.parametrize("size", [10**6, 10**10, 2**40 + 1, 2**60 - 1])
def test_ten_billion_samples_cost_one_block_and_are_entered_in_the_middle(size):
    order = EpochOrder(size, seed=1, epoch=0)
    found = torch.cat([order.indices(start, start + 3000) for start in (0, size // 2, size - 3000)])
    assert found.unique().numel() == 9000
    assert found.min() >= 0
    assert found.max() < size
    # Uniform: the mean of 9000 numbers in [0, 1) has a standard deviation of 0.289 / 95.
    assert abs((found.double() / size).mean().item() - 0.5) < 4 * 0.2887 / 9000**0.5


def chi_square(counts: torch.Tensor) -> float:
    """In standard deviations from what equal probabilities give; for many cells it is about normal."""
    expected = counts.sum() / counts.numel()
    free = counts.numel() - 1
    return (((counts - expected) ** 2 / expected).sum().item() - free) / (2 * free) ** 0.5


QUALITY_SIZES = [4096, 5000, 8192, 60_000]


@pytest.mark.parametrize("size", QUALITY_SIZES)
def test_every_index_comes_at_every_position_equally_often(size):
    """Over 300 epochs: position and index in a grid of 16 x 16 cells."""
    grid = torch.zeros(16, 16)
    for epoch in range(300):
        position = torch.randint(size, (500,), generator=torch.Generator().manual_seed(epoch))
        index = epoch_order(size, seed=1, epoch=epoch)[position]
        grid.index_put_((position * 16 // size, index * 16 // size), torch.ones(500), accumulate=True)
    for row in grid:
        assert abs(chi_square(row)) < 5
    assert abs(chi_square(grid.sum(0))) < 5


@pytest.mark.parametrize("size", QUALITY_SIZES)
@pytest.mark.parametrize("distance", [1, 2, 32, 64, 128, 256])
def test_what_comes_next_does_not_depend_on_what_came_before(size, distance):
    """Pairs at a distance, of one epoch and of one position in two epochs: serial correlation and a grid."""
    orders = [epoch_order(size, seed=seed, epoch=epoch) for seed in range(5) for epoch in range(6)]
    for pairs in (
        [(order[:-distance], order[distance:]) for order in orders],
        list(itertools.pairwise(orders)),
    ):
        left, right = (torch.cat(part).double() for part in zip(*pairs, strict=True))
        correlation = torch.corrcoef(torch.stack([left, right]))[0, 1].item()
        assert abs(correlation) < 5 / len(left) ** 0.5
        cells = (left * 16 / size).long() * 16 + (right * 16 / size).long()
        assert abs(chi_square(torch.bincount(cells, minlength=256).double())) < 5


@pytest.mark.parametrize("size", QUALITY_SIZES)
def test_low_bits_and_fixed_points_are_those_of_random_permutations(size):
    positions = torch.arange(size)
    orders = [epoch_order(size, seed=9, epoch=epoch) for epoch in range(60)]
    # The number of fixed points of a random permutation is Poisson with mean 1.
    fixed = sum(int((order == positions).sum()) for order in orders)
    assert abs(fixed - 60) < 5 * 60**0.5
    for bit in range(8):
        agree = sum(int(((order >> bit & 1) == (positions >> bit & 1)).sum()) for order in orders)
        assert abs(agree - 30 * size) < 5 * (60 * size / 4) ** 0.5


def test_two_seeds_that_differ_in_one_bit_share_no_more_than_chance():
    size = 20_000
    first = epoch_order(size, seed=1 << 20, epoch=0)
    for bit in range(0, 60, 7):
        other = epoch_order(size, seed=(1 << 20) ^ (1 << bit), epoch=0)
        assert int((first == other).sum()) < 8  # Poisson with mean 1
