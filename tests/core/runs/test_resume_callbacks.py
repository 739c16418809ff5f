"""Which callback takes which state on resume, and what a resumed run lets go."""

import logging

import pytest
import torch

from support.by_hand import line
from support.runs import (
    InterruptAtStep,
    assert_identical,
    checkpoint,
    manifest,
    run_dirs,
    tiny,
    train,
    weights,
)
from trainlattice import Callback, Options, register_callback
from trainlattice.diagnostics.errors import TrainLatticeError
from trainlattice.runs.process import is_alive, this_process

pytestmark = pytest.mark.torch
POINTS = {"x": [1.0] * 4, "y": [2.0] * 4, "val_x": [1.0], "val_y": [2.0], "batch_size": 2}


class TallyOptions(Options):
    every: int = 1


@register_callback("tally", options=TallyOptions)
class Tally(Callback):
    """Counts steps, in units of its own."""

    def __init__(self, options):
        self.every, self.count = options.every, 0

    def on_step_end(self, trainer):
        self.count += self.every

    def state_dict(self):
        return {"count": self.count}

    def load_state_dict(self, state):
        self.count = state["count"]


def config(*every, epochs):
    callbacks = [{"name": "tally", "every": number} for number in every]
    return {**line(dataset=POINTS, trainer={"epochs": epochs}), "callbacks": callbacks}


def counts(run):
    held = checkpoint(run)["states"]["callbacks"]
    return {name: state["count"] for name, state in held.items()}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ((1, 10), (1, 10), [4, 40]),
        ((1, 10), (10, 1), [40, 4]),  # they changed places
        ((1, 10), (10,), [40]),  # the first is gone
        ((10,), (1, 10), [2, 40]),  # a new one begins
        ((1, 1), (1, 1), [4, 4]),
        ((1, 10), (1, 100), [4, 200]),  # other options are another callback
        ((1,), (10,), [22]),  # the only one keeps its state whatever its options
    ],
)
def test_among_several_of_one_component_a_state_goes_by_the_options(tmp_path, before, after, expected):
    first = train(config(*before, epochs=1), tmp_path).run_dir
    second = train(config(*after, epochs=2), tmp_path, resume=first).run_dir
    assert list(counts(second).values()) == expected


def test_one_that_begins_without_a_state_says_so(tmp_path, caplog):
    first = train(config(1, 10, epochs=1), tmp_path).run_dir
    with caplog.at_level(logging.WARNING):
        train(config(1, 100, epochs=2), tmp_path, resume=first)
    assert "the callback 'core" not in caplog.text
    assert "begins without a state: none was saved with its options" in caplog.text


def test_a_process_of_another_namespace_is_not_called_dead(tmp_path):
    here = this_process()
    assert is_alive(here) is True
    if here["pid_namespace"] is None:
        pytest.skip("this system has no /proc")
    assert is_alive({**here, "pid_namespace": here["pid_namespace"] + 1, "pid": 2**22 - 1}) == "unknown"


def test_the_best_of_a_checkpoint_that_knows_no_step_is_found_by_its_value(tmp_path):
    from support.runs import rewrite

    first = train(config(1, epochs=1), tmp_path).run_dir
    held = checkpoint(first)["trainer"]
    held.pop("best_step")
    rewrite(first, trainer=held)
    second = train({**config(1, epochs=2), "model": {"name": "line"}}, tmp_path, resume=first).run_dir
    assert checkpoint(second, "best.pt")["trainer"]["best_metric"] <= held["best_metric"]
    assert manifest(second)["best_metric"] <= held["best_metric"]


def test_a_run_that_is_still_under_way_is_named(tmp_path, caplog):
    class Resumes(Callback):
        def on_epoch_end(self, trainer, metrics):
            if trainer.state.epoch == 2:
                train(config(1, epochs=2), tmp_path / "second", resume=trainer.run_dir)

    with caplog.at_level(logging.WARNING):
        train(config(1, epochs=3), tmp_path, extra_callbacks=[Resumes()])
    assert "is under way in process" in caplog.text
    caplog.clear()
    run = train(config(1, epochs=1), tmp_path / "over").run_dir
    train(config(1, epochs=2), tmp_path / "over", resume=run)
    assert "is under way" not in caplog.text


@pytest.mark.parametrize("method", ["on_run_start", "on_checkpoint", "log_metrics", "state_dict", "finalize"])
def test_what_a_callback_draws_beside_the_training_leaves_it_alone(tmp_path, method):
    """Such as samples that it will show: a run that is resumed draws them at other moments."""

    class Draws(Callback):
        pass

    def draw(self, *arguments):
        if method != "log_metrics" or arguments[1]["type"] == "event":
            assert torch.rand(3).shape == (3,)
        return {}

    setattr(Draws, method, draw)
    found = tiny(model={"name": "mlp", "input_dim": 4, "hidden_dims": [8], "dropout": 0.5, "num_classes": 3})
    found["checkpoint"] = {"every_steps": 1}
    plain = train(found, tmp_path / "plain").run_dir
    straight = train(found, tmp_path / "straight", extra_callbacks=[Draws()]).run_dir
    assert_identical(weights(straight), weights(plain))
    with pytest.raises(KeyboardInterrupt):
        train(found, tmp_path / "parts", extra_callbacks=[Draws(), InterruptAtStep(4)])
    (first,) = run_dirs(tmp_path / "parts")
    resumed = train(found, tmp_path / "parts", resume=first, extra_callbacks=[Draws()]).run_dir
    assert_identical(weights(resumed), weights(plain))


@pytest.mark.parametrize(
    "method", ["on_batch_end", "measure", "log_metrics", "on_lr_update", "on_step_end", "on_epoch_end"]
)
def test_after_an_exception_of_one_callback_the_others_have_seen_the_step(tmp_path, method):
    """What they hold is saved with it."""

    class Counts(Callback):
        def __init__(self):
            self.steps, self.epochs = 0, 0

        def on_step_end(self, trainer):
            self.steps += 1

        def on_epoch_end(self, trainer, metrics):
            self.epochs += 1

        def state_dict(self):
            return {"steps": self.steps, "epochs": self.epochs}

    class Fails(Callback):
        pass

    def fail(self, trainer, *arguments):
        if trainer.state.global_step == 3:
            raise ZeroDivisionError(method)
        return {}

    setattr(Fails, method, fail)
    found = {**tiny(), "scheduler": {"name": "warmup_linear", "warmup_steps": 2}}
    with pytest.raises(ZeroDivisionError, match=method):
        train(found, tmp_path, extra_callbacks=[Fails(), Counts()])
    (run,) = run_dirs(tmp_path)
    held = checkpoint(run)
    assert held["trainer"]["global_step"] == 3
    assert held["states"]["callbacks"]["extra#2"]["steps"] == 3
    assert held["states"]["callbacks"]["extra#2"]["epochs"] == held["trainer"]["epoch"]


def test_a_component_that_ends_the_program_between_two_steps_costs_nothing(tmp_path):
    class Leaves(Callback):
        def on_step_end(self, trainer):
            if trainer.state.global_step == 2:
                raise SystemExit(0)

    class Hears(Callback):
        ended = None

        def finalize(self, trainer, error):
            self.ended = error

    hears = Hears()
    with pytest.raises(TrainLatticeError, match="a component ended the program"):
        train(tiny(), tmp_path, extra_callbacks=[Leaves(), hears])
    (run,) = run_dirs(tmp_path)
    assert checkpoint(run)["trainer"]["global_step"] == 2
    assert isinstance(hears.ended, SystemExit)
