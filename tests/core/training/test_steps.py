"""Runs that are counted in optimizer steps: max_steps, validate_every_steps, and their checkpoints."""

import pytest

from support.by_hand import line, scripted
from support.runs import (
    InterruptAtStep,
    assert_same_end,
    checkpoint,
    records,
    run_dirs,
    tiny,
    train,
    trained,
)
from trainlattice.diagnostics.errors import ConfigError

pytestmark = pytest.mark.torch
DROPOUT = {"name": "mlp", "input_dim": 4, "hidden_dims": [8], "num_classes": 3, "dropout": 0.5}
FOUR = {"x": [1.0] * 4, "y": [1.0] * 4}


def by_steps(**trainer):
    """Three steps an epoch (20 samples, batches of 8), dropout, a schedule."""
    return tiny(
        model=DROPOUT,
        scheduler={"name": "warmup_cosine", "warmup_steps": 2},
        trainer={"epochs": 4, **trainer},
    )


def places(run, kind):
    return [(r["epoch"], r["step"]) for r in records(run, kind)]


# --- max_steps


def test_the_smaller_of_epochs_and_max_steps_ends_a_run(tmp_path):
    for epochs, max_steps, steps, complete in ((2, 100, 8, 2), (5, 6, 6, 1), (2, 8, 8, 2)):
        result = train(line(dataset=FOUR, trainer={"epochs": epochs, "max_steps": max_steps}), tmp_path)
        assert (result.global_step, result.epoch) == (steps, complete)


def test_max_steps_without_epochs_takes_as_many_epochs_as_it_needs(tmp_path):
    result = train(line(dataset=FOUR, trainer={"max_steps": 10}), tmp_path)
    assert (result.global_step, result.epoch, result.status) == (10, 2, "finished")
    assert places(result.run_dir, "epoch") == [(1, 4), (2, 8), (3, 10)]
    assert [r.get("partial") for r in records(result.run_dir, "epoch")] == [None, None, True]
    assert result.stop_reason == "max_steps: 10 optimizer steps"


def test_max_steps_at_the_end_of_an_epoch_completes_it(tmp_path):
    result = train(line(dataset=FOUR, trainer={"max_steps": 8}), tmp_path)
    assert (result.global_step, result.epoch, result.stop_reason) == (8, 2, None)
    assert places(result.run_dir, "epoch") == [(1, 4), (2, 8)]


def test_max_steps_counts_windows_not_batches(tmp_path):
    config = line(dataset=FOUR, trainer={"max_steps": 3, "accumulate": 2})
    result = train(config, tmp_path)
    assert (result.global_step, result.epoch) == (3, 1)


def test_neither_epochs_nor_max_steps_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="the run would never end: give epochs, max_steps"):
        train(line(trainer={"epochs": None}), tmp_path)


@pytest.mark.parametrize(
    ("trainer", "budget"),
    [
        ({"max_steps": 5}, 5),
        ({"epochs": 2, "max_steps": 5}, 5),
        ({"epochs": 1, "max_steps": 5}, 4),
        ({"epochs": 2}, 8),
    ],
)
def test_max_steps_bounds_the_length_of_a_schedule(tmp_path, trainer, budget):
    config = line(dataset=FOUR, scheduler={"name": "warmup_linear"}, trainer=trainer)
    run = train(config, tmp_path).run_dir
    rates = [r["lr"] for r in records(run, "batch")]
    assert rates == pytest.approx([0.1 * (1 - s / budget) for s in range(budget)])
    assert checkpoint(run)["budget"] == budget


def test_a_warmup_that_max_steps_leaves_no_room_for_is_refused(tmp_path):
    config = line(
        dataset=FOUR,
        scheduler={"name": "warmup_linear", "warmup_steps": 5},
        trainer={"epochs": 9, "max_steps": 5},
    )
    with pytest.raises(ConfigError, match=r"warmup_steps \(5\) must be smaller than the 5 optimizer steps"):
        train(config, tmp_path)


def test_a_run_that_ends_inside_an_epoch_validates_there_and_keeps_its_place(tmp_path):
    config = line(dataset={**FOUR, "val_x": [1.0], "val_y": [1.0]}, trainer={"max_steps": 6})
    run = train(config, tmp_path).run_dir
    assert [(r["at"], r["step"]) for r in records(run, "validation")] == [("epoch", 4), ("stop", 6)]
    last = checkpoint(run)
    assert (last["trainer"]["global_step"], last["states"]["progress"]["windows"]) == (6, 2)


@pytest.mark.parametrize("max_steps", [1, 4, 6, 7])
def test_a_run_that_goes_on_after_max_steps_equals_one_that_never_stopped(tmp_path, max_steps):
    """Without a schedule, whose length would be another; last.pt is the place, in or between epochs."""
    config = tiny(model=DROPOUT, trainer={"epochs": 4})
    whole = train(config, tmp_path / "whole").run_dir
    part = {**config, "trainer": {**config["trainer"], "max_steps": max_steps}}
    first = train(part, tmp_path / "parts").run_dir
    second = train(config, tmp_path / "parts", resume=first).run_dir
    left, right = checkpoint(whole), checkpoint(second)
    for key, value in left["states"]["model/model"].items():
        assert value.equal(right["states"]["model/model"][key])
    losses = [r["loss"] for part in (first, second) for r in records(part, "batch")]
    assert losses == [r["loss"] for r in records(whole, "batch")]
    means = {r["epoch"]: r["train_loss"] for part in (first, second) for r in records(part, "epoch")}
    assert means == {r["epoch"]: r["train_loss"] for r in records(whole, "epoch")}


# --- validate_every_steps


def test_validations_stand_at_their_steps_and_at_the_ends_of_epochs(tmp_path):
    run = train(by_steps(epochs=2, validate_every_steps=2), tmp_path).run_dir
    assert [(r["at"], r["epoch"], r["step"]) for r in records(run, "validation")] == [
        ("step", 1, 2),
        ("epoch", 1, 3),
        ("step", 2, 4),
        ("step", 2, 6),  # the epoch's end is this very step: it is not validated twice
    ]
    by_step = {r["step"]: r["val_loss"] for r in records(run, "validation")}
    assert [r["val_loss"] for r in records(run, "epoch")] == [by_step[3], by_step[6]]


def test_validating_inside_epochs_does_not_change_what_is_learned(tmp_path):
    runs = [train(by_steps(validate_every_steps=every), tmp_path).run_dir for every in (None, 1)]
    losses = [[r["loss"] for r in records(run, "batch")] for run in runs]
    assert losses[0] == losses[1]


def test_the_best_of_all_validations_is_kept_with_its_step(tmp_path):
    """Two steps an epoch, a validation after each."""
    config = scripted([3.0, 2.0, 0.5, 1.0, 2.0, 3.0], epochs=3, validate_every_steps=1)
    config["dataset"]["batch_size"] = 1
    result = train(config, tmp_path)
    assert (result.best_metric, result.best_epoch) == (0.5, 2)
    best = checkpoint(result.run_dir, "best.pt")
    assert (best["trainer"]["global_step"], best["trainer"]["best_step"]) == (3, 3)
    assert (best["trainer"]["epoch"], best["states"]["progress"]["windows"]) == (1, 1)


@pytest.mark.parametrize("every", [1, 2, 3])
@pytest.mark.parametrize("step", [5, 8, 11])
def test_a_best_checkpoint_is_resumed_from_the_middle_of_its_epoch_bit_identically(tmp_path, every, step):
    """Every third step is the last of an epoch: that checkpoint is resumed too."""
    config = by_steps(validate_every_steps=every)
    whole = train(config, tmp_path / "whole").run_dir
    with pytest.raises(KeyboardInterrupt):
        train(config, tmp_path / "parts", extra_callbacks=[InterruptAtStep(step)])
    (first,) = run_dirs(tmp_path / "parts")
    best = checkpoint(first, "best.pt")["trainer"]["global_step"]
    assert 0 < best < step
    second = train(config, tmp_path / "parts", resume=first / "checkpoints" / "best.pt").run_dir
    assert_same_end(whole, second)
    # The checkpoint was taken while the records of its own step were written: those after it are the same.
    expected = [r for r in trained(records(whole)) if r["step"] > best or r["type"] == "epoch"]
    found = trained(records(second))
    assert [r for r in found if r["step"] > best] == [r for r in expected if r["step"] > best]
    for record in found:
        if record["type"] == "epoch":
            assert record in expected


def test_early_stopping_counts_validations_inside_epochs(tmp_path):
    config = scripted([1.0, 2.0, 3.0, 0.1], epochs=4, validate_every_steps=1, early_stopping={"patience": 1})
    config["dataset"]["batch_size"] = 1
    result = train(config, tmp_path)
    assert (result.global_step, result.epoch, result.best_metric) == (3, 1, 1.0)
    assert "early stopping" in result.stop_reason
    assert checkpoint(result.run_dir)["states"]["progress"]["windows"] == 1
