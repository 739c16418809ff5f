"""The state between two steps: what follows a step is recorded once, and what was left halfway begins anew."""

import signal

import pytest
import torch

from support.by_hand import line
from support.runs import checkpoint, records, run_dirs, tiny, train
from trainlattice import Callback
from trainlattice.diagnostics.errors import RunTerminated

pytestmark = pytest.mark.torch
POINTS = {"x": [1.0] * 6, "y": [2.0] * 6, "val_x": [1.0] * 4, "val_y": [2.0] * 4, "batch_size": 2}


class Counting(Callback):
    """How often each method was called; the counts are its state. May send a signal or raise at the n-th call."""

    def __init__(self, at=None, number=signal.SIGTERM, error=None):
        self.counts, self.at, self.number, self.error = {}, at, number, error

    def note(self, what):
        self.counts[what] = self.counts.get(what, 0) + 1
        if self.at == (what, self.counts[what]):
            if self.error is not None:
                raise self.error
            signal.raise_signal(self.number)

    def on_epoch_start(self, trainer):
        self.note("epoch start")

    def on_phase_start(self, trainer, phase):
        self.note(f"{phase} start")

    def on_phase_end(self, trainer, phase):
        self.note(f"{phase} end")

    def on_batch_start(self, trainer, phase, container):
        self.note(f"{phase} batch start")

    def on_batch_end(self, trainer, phase, container):
        self.note(f"{phase} batch")

    def on_step_end(self, trainer):
        self.note("step")

    def on_epoch_end(self, trainer, metrics):
        self.note("epoch end")

    def log_metrics(self, trainer, record):
        if record["type"] != "event":
            self.note(f"{record['type']} record")

    def state_dict(self):
        return {"counts": dict(self.counts)}

    def load_state_dict(self, state):
        self.counts = dict(state["counts"])


def config(**trainer):
    return line(dataset=POINTS, trainer={"epochs": 3, "log_every": 1, **trainer})


def steps(*runs):
    return [record["step"] for run in runs for record in records(run, "batch")]


PLACES = [
    ("step", 1),
    ("step", 3),
    ("step", 4),
    ("train batch", 2),
    ("train batch", 3),
    ("val batch", 1),
    ("val batch", 2),
    ("val batch", 3),
    ("val start", 1),
    ("val end", 1),
    ("train end", 2),
    ("epoch end", 1),
    ("epoch start", 2),
]


@pytest.mark.parametrize("at", PLACES, ids=str)
@pytest.mark.parametrize("every", [None, 2])
def test_callbacks_that_count_come_to_the_same_counts_over_a_signal(tmp_path, at, every):
    settings = config(validate_every_steps=every)
    whole, first, second = Counting(), Counting(at), Counting()
    straight = train(settings, tmp_path / "whole", extra_callbacks=[whole]).run_dir
    with pytest.raises(RunTerminated):
        train(settings, tmp_path, extra_callbacks=[first])
    (run,) = run_dirs(tmp_path)
    resumed = train(settings, tmp_path, resume=run, extra_callbacks=[second]).run_dir
    assert second.counts == whole.counts
    assert steps(run, resumed) == steps(straight)
    assert torch.equal(
        checkpoint(resumed)["states"]["model/model"]["w"], checkpoint(straight)["states"]["model/model"]["w"]
    )


@pytest.mark.parametrize("what", ["train batch", "step", "batch record", "train batch start"])
@pytest.mark.parametrize("nth", [1, 2, 4])
def test_a_step_is_recorded_once_whatever_a_callback_raises_after_it(tmp_path, what, nth):
    settings = config()
    with pytest.raises(ZeroDivisionError):
        train(settings, tmp_path, extra_callbacks=[Counting((what, nth), error=ZeroDivisionError())])
    (run,) = run_dirs(tmp_path)
    if not (run / "checkpoints" / "last.pt").is_file():  # nothing was trained yet
        assert (what, nth) == ("train batch start", 1)
        return
    resumed = train(settings, tmp_path, resume=run, extra_callbacks=[Callback()]).run_dir
    assert steps(run, resumed) == list(range(1, 10))


def test_the_start_of_an_epoch_is_not_told_of_again(tmp_path):
    first, second = Counting(("step", 2)), Counting()
    with pytest.raises(RunTerminated):
        train(config(epochs=1), tmp_path, extra_callbacks=[first])
    (run,) = run_dirs(tmp_path)
    train(config(epochs=1), tmp_path, resume=run, extra_callbacks=[second])
    assert (second.counts["epoch start"], second.counts["train start"]) == (1, 1)


def test_a_state_that_on_run_start_makes_is_asked_for_after_it(tmp_path):
    class Late(Callback):
        def on_run_start(self, trainer):
            self.made = 1

        def state_dict(self):
            return {"made": self.made}

    held = checkpoint(train(tiny(), tmp_path, extra_callbacks=[Late()]).run_dir)
    assert held["states"]["callbacks"]["extra#1"] == {"made": 1}
