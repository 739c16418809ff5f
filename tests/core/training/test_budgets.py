"""What ends a run: samples, wall time; and runs on a few batches only."""

import pytest

from support.by_hand import line
from support.runs import (
    assert_same_end,
    checkpoint,
    manifest,
    records,
    run_dirs,
    tiny,
    train,
    trained,
)
from trainlattice import Callback
from trainlattice.diagnostics.errors import ConfigError, WallTimeReached
from trainlattice.training import trainer as trainer_module

pytestmark = pytest.mark.torch
DROPOUT = {"name": "mlp", "input_dim": 4, "hidden_dims": [8], "num_classes": 3, "dropout": 0.5}


def run_of(**trainer):
    """Three steps an epoch: 20 samples, batches of 8, 8 and 4."""
    return tiny(
        model=DROPOUT,
        scheduler={"name": "warmup_cosine", "warmup_steps": 2},
        trainer={"epochs": 4, **trainer},
    )


# --- max_samples


@pytest.mark.parametrize(
    ("limit", "steps", "samples", "complete"),
    [
        (1, 1, 8, 0),
        (8, 1, 8, 0),
        (9, 2, 16, 0),
        (20, 3, 20, 1),
        (21, 4, 28, 1),
        (40, 6, 40, 2),
        (999, 12, 80, 4),
    ],
)
def test_max_samples_ends_a_run_after_the_step_that_reaches_it(tmp_path, limit, steps, samples, complete):
    config = run_of(max_samples=limit)
    del config["scheduler"]  # its warm-up is longer than the shortest of these runs
    result = train(config, tmp_path)
    assert (result.global_step, result.samples, result.epoch) == (steps, samples, complete)
    inside = None if samples % 20 == 0 else f"max_samples: {limit} samples"
    assert result.stop_reason == inside
    assert records(result.run_dir, "validation")[-1]["step"] == steps


def test_max_samples_without_epochs_takes_as_many_as_it_needs(tmp_path):
    config = run_of(max_samples=90)
    del config["trainer"]["epochs"]
    assert train(config, tmp_path).samples == 96  # four epochs of 20, then 8 and 8


@pytest.mark.parametrize(("limit", "budget"), [(20, 3), (40, 6), (30, 5), (999, 12)])
def test_a_schedule_is_made_for_the_steps_of_so_many_samples(tmp_path, limit, budget):
    """Three steps for 20 samples; rounded up."""
    assert checkpoint(train(run_of(max_samples=limit), tmp_path).run_dir)["budget"] == budget


def test_a_run_goes_on_when_max_samples_is_raised(tmp_path):
    first = train(run_of(max_samples=28), tmp_path)
    config = run_of(max_samples=28)
    assert train(config, tmp_path, resume=first.run_dir).run_dir is None
    raised = run_of(max_samples=60)
    raised["scheduler"] = config["scheduler"]
    second = train(raised, tmp_path, resume=first.run_dir)
    assert (second.global_step, second.samples) == (9, 60)


def test_a_run_needs_an_end(tmp_path):
    with pytest.raises(ConfigError, match=r"epochs, max_steps, max_samples or max_wall_time_sec"):
        train(run_of(epochs=None), tmp_path)


# --- max_wall_time_sec


class Clock(Callback):
    """A second for each training step, or each validation batch."""

    def __init__(self, of="step"):
        self.now, self.of = 100.0, of

    def on_step_end(self, trainer):
        self.now += self.of == "step"

    def on_batch_end(self, trainer, phase, container):
        self.now += self.of == phase


def stopped(config, tmp_path, monkeypatch, clock):
    monkeypatch.setattr(trainer_module, "monotonic", lambda: clock.now)
    with pytest.raises(WallTimeReached) as raised:
        train(config, tmp_path, extra_callbacks=[clock])
    assert raised.value.code == 13
    return run_dirs(tmp_path)[-1]


@pytest.mark.parametrize(("seconds", "step"), [(1.0, 1), (3.0, 3), (4.0, 4), (6.5, 7)])
def test_time_that_is_over_ends_a_run_between_two_steps_and_it_goes_on(tmp_path, monkeypatch, seconds, step):
    config = run_of(max_wall_time_sec=seconds)
    run = stopped(config, tmp_path, monkeypatch, Clock())
    assert checkpoint(run)["trainer"]["global_step"] == step
    held = manifest(run)
    assert (held["status"], held["error"]["type"]) == ("interrupted", "WallTimeReached")
    assert held["error"]["message"] == f"trainer.max_wall_time_sec: {seconds:g} s are over after step {step}"
    config["trainer"]["max_wall_time_sec"] = None
    end = train(config, tmp_path, resume=run, extra_callbacks=[Callback()]).run_dir
    whole = train(config, tmp_path / "whole", extra_callbacks=[Callback()]).run_dir
    assert_same_end(whole, end)
    assert trained(records(run, "batch")) + trained(records(end, "batch")) == trained(records(whole, "batch"))


def test_time_that_is_over_in_a_validation_ends_it_after_the_batch(tmp_path, monkeypatch):
    config = run_of(max_wall_time_sec=1.0)
    config["dataset"]["batch_size"] = 2  # five batches of validation
    run = stopped(config, tmp_path, monkeypatch, Clock("val"))
    assert records(run, "validation") == []
    config["trainer"]["max_wall_time_sec"] = None
    end = train(config, tmp_path, resume=run, extra_callbacks=[Callback()]).run_dir
    assert_same_end(train(config, tmp_path / "whole", extra_callbacks=[Callback()]).run_dir, end)


def test_a_run_that_is_through_in_time_finishes(tmp_path):
    assert train(run_of(max_wall_time_sec=3600), tmp_path).status == "finished"


# --- overfit_batches


class Seen(Callback):
    def __init__(self):
        self.batches = []

    def on_batch_end(self, trainer, phase, container):
        if phase == "train":
            self.batches.append(container["input"].tolist())


@pytest.mark.parametrize(("few", "per_epoch"), [(1, 1), (2, 2), (3, 3), (99, 3)])
def test_the_same_first_batches_are_trained_in_every_epoch(tmp_path, few, per_epoch):
    seen, all_of_them = Seen(), Seen()
    result = train(run_of(epochs=3, overfit_batches=few), tmp_path, extra_callbacks=[seen])
    train(run_of(epochs=1), tmp_path / "whole", extra_callbacks=[all_of_them])
    assert result.global_step == 3 * per_epoch
    assert seen.batches == all_of_them.batches[:per_epoch] * 3


def test_a_run_on_few_batches_is_resumed_inside_an_epoch(tmp_path):
    whole = train(run_of(overfit_batches=2), tmp_path / "whole").run_dir
    first = train(run_of(overfit_batches=2, max_steps=3), tmp_path).run_dir
    resumed = train(run_of(overfit_batches=2), tmp_path, resume=first)
    assert resumed.global_step == 8
    assert checkpoint(resumed.run_dir)["budget"] == 3  # the schedule keeps the length that it began with
    assert (
        checkpoint(whole)["trainer"]["samples"] == checkpoint(resumed.run_dir)["trainer"]["samples"] == 4 * 16
    )


def test_a_model_learns_a_few_batches_by_heart(tmp_path):
    result = train(
        line(dataset={"x": [1.0, 2.0], "y": [3.0, 6.0]}, trainer={"epochs": 60, "overfit_batches": 1}),
        tmp_path,
    )
    assert records(result.run_dir, "epoch")[-1]["train_loss"] < 1e-3
