"""Validation leaves no trace in modules or in the randomness of training."""

import random

import numpy
import pytest
import torch
from torch import nn

from support.runs import records, tiny, train, weights
from trainlattice import Callback, register_model

pytestmark = pytest.mark.torch
FORWARDS = []


@register_model("mixed_modes")
class MixedModes(nn.Module):
    """Has a batch norm that its author froze, and notes the modes of every forward pass."""

    def __init__(self):
        super().__init__()
        self.frozen = nn.BatchNorm1d(4).eval()
        self.live = nn.BatchNorm1d(4)
        self.head = nn.Linear(4, 3)
        self.fails_in_validation = False

    def forward(self, x):
        if x.device.type != "meta":
            FORWARDS.append(
                (self.training, self.live.training, self.frozen.training, torch.is_grad_enabled())
            )
        return self.head(self.live(self.frozen(x)))


@register_model("noisy")
class Noisy(nn.Module):
    """Draws random numbers in every forward pass, in validation too."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        scale = random.random() + numpy.random.rand()
        return self.head(x + scale * torch.rand_like(x))


@pytest.fixture(autouse=True)
def no_forwards():
    FORWARDS.clear()


class Modes(Callback):
    """The modes of all submodules after each training step."""

    def __init__(self):
        self.seen = []

    def on_step_end(self, trainer):
        self.seen.append({name: m.training for name, m in trainer.parts.models["model"].named_modules()})


class RaisesInValidation(Callback):
    def on_batch_end(self, trainer, phase, container):
        if phase == "val":
            raise RuntimeError("in the middle of a validation")


class Keep(Callback):
    """Keeps the model after the run."""

    def on_run_start(self, trainer):
        self.model = trainer.parts.models["model"]


def test_training_and_validation_run_in_their_modes(tmp_path):
    """20 samples in batches of 8 and 10 in batches of 8, for two epochs."""
    train(tiny(model={"name": "mixed_modes"}), tmp_path)
    training = [entry for entry in FORWARDS if entry[0]]
    validating = [entry for entry in FORWARDS if not entry[0]]
    assert training == [(True, True, False, True)] * 6
    assert set(validating) == {(False, False, False, False)}
    assert [entry[0] for entry in FORWARDS[-5:]] == [True, True, True, False, False]


def test_every_submodule_has_the_mode_after_validation_that_it_had_before(tmp_path):
    modes = Modes()
    train(tiny(model={"name": "mixed_modes"}), tmp_path, extra_callbacks=[modes])
    assert modes.seen == [{"": True, "frozen": False, "live": True, "head": True}] * 6


def test_modes_are_restored_also_when_validation_raises(tmp_path):
    keep = Keep()
    with pytest.raises(RuntimeError, match="in the middle"):
        train(tiny(model={"name": "mixed_modes"}), tmp_path, extra_callbacks=[keep, RaisesInValidation()])
    modes = {name: module.training for name, module in keep.model.named_modules()}
    assert modes == {"": True, "frozen": False, "live": True, "head": True}
    assert torch.is_grad_enabled()


def test_a_frozen_batch_norm_keeps_its_statistics_and_a_live_one_learns_from_training_alone(tmp_path):
    run = train(tiny(model={"name": "mixed_modes"}), tmp_path).run_dir
    state = weights(run)
    assert state["frozen.num_batches_tracked"].item() == 0
    assert torch.equal(state["frozen.running_mean"], torch.zeros(4))
    assert state["live.num_batches_tracked"].item() == 6


def test_a_model_that_is_returned_in_eval_mode_is_trained_in_training_mode(tmp_path):
    """As pretrained models are."""

    @register_model("returned_in_eval")
    def build():
        return nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5)).eval()

    modes = Modes()
    train(tiny(model={"name": "returned_in_eval"}), tmp_path, extra_callbacks=[modes])
    assert modes.seen[0] == {"": True, "0": True, "1": True}


def test_how_often_a_run_validates_does_not_change_what_it_learns(tmp_path):
    runs = [
        train(tiny(model={"name": "noisy"}, trainer={"epochs": 4, "validate_every": every}), tmp_path).run_dir
        for every in (1, 4)
    ]
    for one, other in zip(*(weights(run).values() for run in runs), strict=True):
        assert torch.equal(one, other)


def test_a_validation_is_the_mean_over_all_its_samples(tmp_path):
    """Ten samples in batches of 8 and 2: each sample counts once."""
    big, small = (
        records(train(tiny(dataset={"batch_size": size}, trainer={"epochs": 1}), tmp_path).run_dir, "epoch")[
            0
        ]
        for size in (20, 8)
    )
    assert big["val_accuracy"] * 10 == pytest.approx(round(big["val_accuracy"] * 10))
    assert small["val_accuracy"] * 10 == pytest.approx(round(small["val_accuracy"] * 10))
