"""Which validation was the best, and when a run stops early."""

import math

import pytest

from support.by_hand import SCRIPT, line, scripted
from support.runs import InterruptAfter, checkpoint, digests, interrupted, records, run_dirs, train
from trainlattice.contracts.settings import EarlyStoppingSettings
from trainlattice.training.state import TrainerState
from trainlattice.training.stopping import direction_of, exhausted, judge

pytestmark = pytest.mark.torch
NAN, INF = math.nan, math.inf


def best_of(values, direction):
    """Best value and its epoch after a sequence of validations, one per epoch."""
    state = TrainerState()
    for epoch, value in enumerate(values, start=1):
        judge(value, state, direction, None, epoch)
    return state.best_metric, state.best_epoch


def stops_after(values, patience, min_delta=0.0, direction="min"):
    """The validation after which a run stops, or None."""
    state, settings = TrainerState(), EarlyStoppingSettings(patience=patience, min_delta=min_delta)
    for number, value in enumerate(values, start=1):
        judge(value, state, direction, settings, number)
        if exhausted(state, settings):
            return number
    return None


@pytest.mark.parametrize(
    ("values", "direction", "best"),
    [
        ([3.0, 2.0, 2.5], "min", (2.0, 2)),
        ([0.1, 0.3, 0.2], "max", (0.3, 2)),
        ([NAN, 0.5, 0.7, NAN, 0.6], "max", (0.7, 3)),
        ([0.5, NAN, 0.4], "min", (0.4, 3)),
        ([NAN, NAN, NAN], "min", (None, None)),
        ([INF, 2.0], "min", (2.0, 2)),
        ([-INF, 2.0], "max", (2.0, 2)),
        ([2.0, -INF], "min", (2.0, 1)),
        ([2.0, INF], "max", (2.0, 1)),
        ([1.0, 1.0], "min", (1.0, 1)),
        ([-5.0], "max", (-5.0, 1)),
    ],
)
def test_the_first_finite_value_is_the_best_and_only_a_better_one_replaces_it(values, direction, best):
    assert best_of(values, direction) == best


@pytest.mark.parametrize(
    ("values", "patience", "stop"),
    [
        ([1.0, 0.9, 0.95, 0.5], 0, 3),
        ([1.0, 0.9, 0.95, 0.5], 1, None),
        ([1.0, 1.0, 1.0], 1, 3),
        ([1.0, 1.0, 1.0], 2, None),
        ([1.0, 1.0, 1.0, 1.0], 2, 4),
        ([1.0, 1.1, 1.2, 0.1], 1, 3),
        ([NAN, NAN, NAN], 2, 3),
        ([1.0, NAN, 0.5, NAN, 0.4], 1, None),
    ],
)
def test_a_run_stops_after_more_than_patience_validations_without_improvement(values, patience, stop):
    assert stops_after(values, patience) == stop


def test_an_improvement_of_no_more_than_min_delta_does_not_count():
    assert stops_after([1.0, 0.9375, 0.875], patience=1, min_delta=0.125) == 3
    assert stops_after([1.0, 0.75, 0.5], patience=1, min_delta=0.125) is None


def test_a_small_improvement_still_is_the_best():
    state = TrainerState()
    settings = EarlyStoppingSettings(patience=5, min_delta=0.125)
    assert judge(1.0, state, "min", settings, 1)
    assert judge(0.9375, state, "min", settings, 2)
    assert (state.best_metric, state.stale_validations) == (0.9375, 1)


def test_accuracy_is_better_when_larger_and_everything_else_when_smaller():
    assert direction_of("val_accuracy") == "max"
    assert direction_of("val_loss") == "min"


# --- in a run


def test_a_run_that_stops_early_is_finished_with_its_reason_and_its_checkpoints(tmp_path):
    config = scripted([1.0, 1.0, 1.0, 1.0], early_stopping={"patience": 1})
    result = train(config, tmp_path)
    assert (result.status, result.epoch, result.best_metric, result.best_epoch) == ("finished", 3, 1.0, 1)
    assert result.stop_reason == "early stopping: val_loss did not improve in 2 validations"
    assert checkpoint(result.run_dir)["trainer"]["epoch"] == 3
    assert checkpoint(result.run_dir)["trainer"]["stop_reason"] == result.stop_reason
    assert checkpoint(result.run_dir, "best.pt")["trainer"]["epoch"] == 1


def test_epochs_without_a_validation_do_not_count(tmp_path):
    config = scripted([1.0, 1.1, 1.2, 0.1], epochs=8, validate_every=2, early_stopping={"patience": 1})
    result = train(config, tmp_path)
    assert result.epoch == 6
    assert [record["epoch"] for record in records(result.run_dir, "epoch") if "val_loss" in record] == [
        2,
        4,
        6,
    ]


def test_a_run_whose_last_epoch_has_no_validation_ends_as_usual(tmp_path):
    result = train(scripted([1.0, 0.5], epochs=5, validate_every=2), tmp_path)
    assert (result.epoch, result.best_metric, result.best_epoch) == (5, 0.5, 4)


def test_validations_that_are_all_nan_leave_no_best_checkpoint_and_valid_records(tmp_path):
    result = train(scripted([NAN, NAN, NAN]), tmp_path)
    assert result.best_metric is None
    assert not (result.run_dir / "checkpoints" / "best.pt").exists()
    for record in records(result.run_dir, "epoch"):
        assert record["val_loss"] is None
        assert record["nonfinite"] == ["val_loss"]


def test_an_interrupted_run_keeps_its_count_and_stops_where_it_would_have(tmp_path):
    config = scripted([1.0, 1.0, 1.0], epochs=20, early_stopping={"patience": 2})
    run = interrupted(config, tmp_path, epochs=3)
    SCRIPT[:] = [1.0, 1.0]
    result = train(config, tmp_path, resume=run)
    assert result.epoch == 4
    assert SCRIPT == [1.0]


def test_a_run_that_had_stopped_early_counts_from_zero_when_it_is_resumed_and_keeps_its_best(tmp_path):
    config = scripted([1.0, 1.0], epochs=20, early_stopping={"patience": 0})
    run = train(config, tmp_path).run_dir
    SCRIPT[:] = [2.0]
    assert train(config, tmp_path, resume=run).run_dir is None  # nobody asked for more
    config["trainer"]["epochs"] = 21
    result = train(config, tmp_path, resume=run)
    assert (result.epoch, result.best_metric, result.best_epoch) == (3, 1.0, 1)
    assert checkpoint(result.run_dir)["trainer"]["stale_validations"] == 1


def test_a_changed_early_stopping_counts_from_zero_and_keeps_the_best(tmp_path):
    config = scripted([1.0, 1.0, 1.0], epochs=20, early_stopping={"patience": 2})
    run = interrupted(config, tmp_path, epochs=3)
    SCRIPT[:] = [1.0] * 10
    config["trainer"]["early_stopping"] = {"patience": 3}
    result = train(config, tmp_path, resume=run)
    assert (result.epoch, result.best_metric, result.best_epoch) == (7, 1.0, 1)


def test_the_best_checkpoint_changes_only_on_a_real_improvement_also_over_a_resume(tmp_path):
    config = scripted([0.9, 0.5, 0.8], epochs=6)
    run = interrupted(config, tmp_path, epochs=3)
    best = digests(run / "checkpoints")["best.pt"]
    assert checkpoint(run, "best.pt")["trainer"]["epoch"] == 2

    SCRIPT[:] = [0.7]
    with pytest.raises(KeyboardInterrupt):
        train(config, tmp_path, resume=run, extra_callbacks=[InterruptAfter(4)])
    second = run_dirs(tmp_path)[-1]
    assert digests(second / "checkpoints")["best.pt"] == best

    SCRIPT[:] = [0.45, 0.6]
    result = train(config, tmp_path, resume=second)
    assert (result.best_metric, result.best_epoch) == (pytest.approx(0.45), 5)
    assert checkpoint(result.run_dir, "best.pt")["trainer"]["epoch"] == 5
    assert digests(second / "checkpoints")["best.pt"] == best


@pytest.mark.parametrize("ends", [{"max_steps": 5}, {"max_samples": 10}, {"max_steps": 6}])
def test_a_run_that_ended_at_a_limit_goes_on_with_the_count_of_stale_validations(tmp_path, ends):
    """Of two steps an epoch, a validation after each; 1 is the best, and nothing improves on it."""
    points = {"x": [1.0] * 4, "y": [1.0] * 4, "val_x": [0.0], "val_y": [1.0], "batch_size": 2}
    trainer = {"epochs": 20, "validate_every_steps": 1, "early_stopping": {"patience": 6}}
    config = line(dataset=points, trainer=trainer)
    whole = train(config, tmp_path / "whole").run_dir
    config["trainer"] |= ends
    first = train(config, tmp_path / "parts").run_dir
    for name in ends:
        config["trainer"].pop(name)
    second = train(config, tmp_path / "parts", resume=first).run_dir
    assert checkpoint(whole)["trainer"]["global_step"] == 8
    assert checkpoint(second)["trainer"] == checkpoint(whole)["trainer"]
