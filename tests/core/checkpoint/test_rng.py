"""Random states in a checkpoint."""

import random

import numpy
import pytest
import torch

from trainlattice.checkpoint.rng import capture_rng, restore_rng

pytestmark = pytest.mark.torch


def draws():
    return (
        [random.random() for _ in range(3)],
        random.gauss(0, 1),
        torch.rand(3).tolist(),
        torch.randn(3).tolist(),
        numpy.random.rand(3).tolist(),
        numpy.random.randn(),
    )


def test_what_was_captured_draws_the_same_numbers_again():
    random.gauss(0, 1)  # Python and NumPy keep a second normal number back: it is part of the state
    numpy.random.randn()
    state = capture_rng()
    first = draws()
    draws()
    restore_rng(state)
    assert draws() == first


def test_the_state_survives_a_file_that_is_read_without_pickle(tmp_path):
    torch.save(capture_rng(), tmp_path / "rng.pt")
    first = draws()
    restore_rng(torch.load(tmp_path / "rng.pt", weights_only=True))
    assert draws() == first


def test_a_state_without_numpy_leaves_numpy_alone():
    state = capture_rng()
    del state["numpy"]
    before = numpy.random.get_state()[1].tolist()
    restore_rng(state)
    assert numpy.random.get_state()[1].tolist() == before
