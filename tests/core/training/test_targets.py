"""Targets: every integer width is a class; what cannot be one is refused with its row and value."""

import math

import pytest
import torch

from support.by_hand import line
from support.runs import run_dirs, tiny, train, weights
from trainlattice import register_dataset
from trainlattice.contracts.records import DatasetContract
from trainlattice.data import Splits, TensorData
from trainlattice.diagnostics.errors import ConfigError, TrainLatticeError
from trainlattice.training.targets import (
    TargetError,
    class_target,
    explain_target,
    not_finite,
    outside_classes,
)

pytestmark = pytest.mark.torch
INTEGERS = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.bool]
CLASSES = DatasetContract((4,), "classification", 3)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_of_any_width_become_int64(dtype):
    found = class_target(torch.tensor([0, 1, 1]).to(dtype))
    assert (found.dtype, found.tolist()) == (torch.int64, [0, 1, 1])


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64, torch.complex64])
def test_numbers_with_a_point_are_no_classes(dtype):
    with pytest.raises(TargetError, match=f"the target is {str(dtype)[6:]}, and a classification takes"):
        class_target(torch.ones(2, dtype=dtype))


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ([0, 2, 1], None),
        ([0, 3, 5], "target 3 in row 1 is outside 0..2"),
        ([0, 1, -1], "target -1 in row 2 is outside 0..2"),
        ([-100, 1, 2], None),
        ([-100, 1, -99], "target -99 in row 2 is outside 0..2"),
        ([[0, 1], [2, 7]], "target 7 in row [1, 1] is outside 0..2"),
        ([], None),
    ],
)
def test_the_first_class_that_does_not_exist_is_shown_with_its_row(target, says):
    assert outside_classes(torch.tensor(target, dtype=torch.int64), 3, -100) == says


def test_without_an_ignored_class_every_negative_one_is_outside():
    assert outside_classes(torch.tensor([-100]), 3) == "target -100 in row 0 is outside 0..2"


@pytest.mark.parametrize(
    ("target", "says"),
    [
        (torch.tensor([1.0, 2.0]), None),
        (torch.tensor([1.0, math.nan, math.inf]), "target nan in row 1 is not finite"),
        (torch.tensor([[1.0, 2.0], [3.0, -math.inf]]), "target -inf in row 1 is not finite"),
        (torch.tensor([1, 2]), None),
    ],
)
def test_the_first_target_that_is_not_finite_is_shown_with_its_row(target, says):
    assert not_finite(target) == says


@pytest.mark.parametrize(
    ("logits", "target", "says"),
    [
        ((4, 3), torch.zeros(4, dtype=torch.int64), None),
        ((4, 3), torch.zeros(4, 1, dtype=torch.int64), r"shape [4, 1], and logits [4, 3] need [4]"),
        ((4, 3), torch.zeros(5, dtype=torch.int64), r"shape [5], and logits [4, 3] need [4]"),
        ((2, 3, 6), torch.zeros(2, 5, dtype=torch.int64), r"shape [2, 5], and logits [2, 3, 6] need [2, 6]"),
        ((2, 3), torch.tensor([0, 3]), "target 3 in row 1 is outside 0..2"),
        ((2, 3), torch.zeros(2, dtype=torch.int64, device="meta"), None),
    ],
)
def test_why_a_loss_refused_a_target(logits, target, says):
    found = explain_target(torch.zeros(logits), target, None)
    assert found is None if says is None else says in found


# --- in a run


class Samples:
    """Fetched one by one: nobody can look at all targets before the run."""

    def __init__(self, targets):
        self.targets = targets

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, index):
        return torch.ones(4), self.targets[index]


def classes(tmp_path, targets, *, in_memory=True, val=None, **sections):
    """A run of the tiny classifier on these targets."""

    def split(values):
        return TensorData(torch.ones(len(values), 4), values) if in_memory else Samples(values)

    @register_dataset("given_targets")
    def build():
        return Splits(split(targets), split(val) if val is not None else None, contract=CLASSES)

    config = tiny(dataset={"name": "given_targets", "batch_size": 4}, **sections)
    return train(config, tmp_path)


@pytest.mark.parametrize("in_memory", [True, False])
@pytest.mark.parametrize("dtype", INTEGERS)
def test_every_integer_width_trains_to_the_same_weights(tmp_path, dtype, in_memory):
    values = torch.tensor([0, 1, 1, 0, 1, 0, 0, 1])
    one = classes(tmp_path, values, in_memory=in_memory).run_dir
    other = classes(tmp_path, values.to(dtype), in_memory=in_memory).run_dir
    for left, right in zip(weights(one).values(), weights(other).values(), strict=True):
        assert torch.equal(left, right)


@pytest.mark.parametrize(
    ("targets", "says"),
    [
        (torch.tensor([0, 1, 2, 3]), r"the train split .*: target 3 in row 3 is outside 0\.\.2"),
        (torch.tensor([0.0, 1.0, 2.0]), "the target is float32"),
    ],
)
def test_targets_in_memory_are_looked_at_before_a_run_exists(tmp_path, targets, says):
    with pytest.raises(ConfigError, match=says) as raised:
        classes(tmp_path, targets)
    assert raised.value.diagnostics[0].code == "target"
    assert not (tmp_path / "runs").exists()


def test_those_of_validation_too(tmp_path):
    with pytest.raises(ConfigError, match=r"the val split .*: target 9 in row 1"):
        classes(tmp_path, torch.tensor([0, 1]), val=torch.tensor([0, 9]))
    assert not (tmp_path / "runs").exists()


def test_a_target_that_only_training_meets_is_shown_with_its_row(tmp_path):
    targets = torch.tensor([0, 1, 2, 0, 1, 2, 0, 7])
    with pytest.raises(TargetError, match=r"target 7 in row \d is outside 0\.\.2"):
        classes(tmp_path, targets, in_memory=False)
    assert len(run_dirs(tmp_path)) == 1


def test_ignored_targets_are_no_fault(tmp_path):
    assert classes(tmp_path, torch.tensor([0, -100, 2, 1])).status == "finished"


def test_a_measurement_that_is_not_finite_is_refused_before_a_run_exists(tmp_path):
    @register_dataset("half_measured")
    def build():
        return Splits(
            TensorData(torch.ones(3, 1), torch.tensor([[1.0], [2.0], [math.inf]])),
            contract=DatasetContract((1,), "regression", 1),
        )

    with pytest.raises(ConfigError, match=r"the train split .*: target inf in row 2 is not finite"):
        train({**line(), "dataset": {"name": "half_measured"}}, tmp_path)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("shape", [(4, 1), (4, 2)])
def test_targets_of_another_shape_are_refused_before_a_run_exists(tmp_path, shape):
    with pytest.raises(TrainLatticeError, match=r"the target has the shape \[2, \d\], and logits \[2, 3\]"):
        classes(tmp_path, torch.zeros(shape, dtype=torch.int64))
    assert not (tmp_path / "runs").exists()
