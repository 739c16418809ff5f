"""The clock of an epoch."""

import pytest
import torch

from support.by_hand import line
from support.runs import checkpoint, records, train
from trainlattice import Callback
from trainlattice.training import epoch
from trainlattice.training.epoch import EpochProgress

pytestmark = pytest.mark.torch


@pytest.fixture
def clock(monkeypatch):
    """A clock that a test moves by hand."""
    now = [100.0]
    monkeypatch.setattr(epoch.time, "perf_counter", lambda: now[0])
    return now


def test_the_clock_runs_from_start_to_stop(clock):
    progress = EpochProgress()
    clock[0] += 5
    assert progress.seconds == 0.0
    progress.start()
    clock[0] += 2
    assert progress.seconds == 2.0
    progress.stop()
    clock[0] += 7
    assert progress.seconds == 2.0


def test_a_pause_and_the_time_between_two_parts_do_not_count(clock):
    progress = EpochProgress()
    progress.start()
    clock[0] += 2
    with progress.paused():
        clock[0] += 50
    clock[0] += 1
    progress.count(6)
    assert progress.rates() == {"steps_per_sec": 1 / 3, "samples_per_sec": 2.0}
    later = EpochProgress()
    later.load_state_dict(progress.state_dict(), torch.device("cpu"))
    clock[0] += 50
    later.start()
    clock[0] += 3
    later.count(6)
    assert later.summary() == {"epoch_seconds": 6.0, "data_seconds": 0.0, "train_samples_per_sec": 2.0}


def test_waiting_for_data_is_counted(clock):
    progress = EpochProgress()
    progress.start()
    with progress.waiting_for_data():
        clock[0] += 4
    assert (progress.data_seconds, progress.seconds) == (4.0, 4.0)


def test_an_epoch_lasts_as_long_as_its_training_part(tmp_path, clock):
    """Not as long as validations, checkpoints and what stands between epochs."""

    class Slow(Callback):
        def on_step_end(self, trainer):
            clock[0] += 1

        def on_phase_start(self, trainer, phase):
            clock[0] += 1000

        def on_phase_end(self, trainer, phase):
            clock[0] += 1000

        def on_epoch_end(self, trainer, metrics):
            clock[0] += 1000

        def on_checkpoint(self, trainer, path):
            clock[0] += 1000

    config = line(
        dataset={"x": [1.0] * 4, "y": [1.0] * 4, "val_x": [1.0], "val_y": [1.0]},
        trainer={"epochs": 2, "validate_every_steps": 1, "log_every": 1000},
    )
    run = train(config, tmp_path, extra_callbacks=[Slow()]).run_dir
    for record in records(run, "epoch"):
        assert (record["epoch_seconds"], record["train_samples_per_sec"]) == (4.0, 1.0)
    assert checkpoint(run)["states"]["progress"]["seconds"] == 0.0
