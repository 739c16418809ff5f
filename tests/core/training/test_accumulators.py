"""Means of metrics."""

import math

import pytest
import torch

from support.by_hand import line
from support.runs import records, train
from trainlattice.training.accumulators import WeightedMeans

pytestmark = pytest.mark.torch


def test_means_are_weighted():
    means = WeightedMeans()
    means.add({"loss": torch.tensor(1.0), "accuracy": torch.tensor(0.5)}, 3)
    means.add({"loss": torch.tensor(5.0), "accuracy": torch.tensor(1.0)}, 1)
    assert means.compute() == {"loss": 2.0, "accuracy": 0.625}


def test_nothing_added_has_no_means():
    assert WeightedMeans().compute() == {}


def test_a_value_of_weight_zero_alone_has_no_mean():
    means = WeightedMeans()
    means.add({"loss": torch.tensor(1.0)}, 0)
    assert means.compute() == {}


@pytest.mark.parametrize(("dtype", "count"), [(torch.bfloat16, 300), (torch.float16, 3000)])
def test_sums_do_not_stall_in_a_small_number_format(dtype, count):
    """A sum in bfloat16 stops at 256, one in float16 at 2048."""
    means = WeightedMeans()
    for _ in range(count):
        means.add({"loss": torch.tensor(1.0, dtype=dtype)}, 1)
    assert means.compute() == {"loss": 1.0}


def test_sums_keep_what_float32_would_lose():
    means = WeightedMeans()
    means.add({"loss": torch.tensor(2.0**24)}, 1)
    for _ in range(3):
        means.add({"loss": torch.tensor(1.0)}, 1)
    assert means.compute() == {"loss": (2**24 + 3) / 4}


def test_a_value_that_is_not_finite_shows_in_the_mean():
    means = WeightedMeans()
    means.add({"loss": torch.tensor(math.nan), "other": torch.tensor(math.inf)}, 1)
    means.add({"loss": torch.tensor(1.0), "other": torch.tensor(1.0)}, 1)
    found = means.compute()
    assert math.isnan(found["loss"])
    assert math.isinf(found["other"])


def test_values_that_require_gradients_keep_no_graph():
    means = WeightedMeans()
    means.add({"loss": torch.ones((), requires_grad=True) * 2}, 1)
    assert means.compute() == {"loss": 2.0}


def test_a_bf16_validation_of_300_losses_of_one_is_exactly_one(tmp_path):
    config = line(
        dataset={"x": [0.0], "y": [0.0], "val_x": [1.0] * 300, "val_y": [1.0] * 300},
        trainer={"precision": "bf16"},
    )
    run = train(config, tmp_path).run_dir
    assert records(run, "epoch")[0]["val_loss"] == 1.0
