"""Where a run may be left: between two steps, with all that follows a step done once, here or after a resume."""

import os
import shutil
import signal
from collections import Counter

import pytest

from support.chains import outcome
from support.runs import (
    assert_identical,
    assert_same_end,
    checkpoint,
    records,
    run_dirs,
    tiny,
    train,
    trained,
)
from trainlattice import Callback
from trainlattice.diagnostics.errors import RunTerminated

pytestmark = pytest.mark.torch


def config(**trainer):
    """Two epochs of three steps, a validation of two batches after every second step and every epoch."""
    found = tiny(
        model={"dropout": 0.3},
        trainer={"validate_every_steps": 2, "early_stopping": {"patience": 9}, **trainer},
    )
    return {**found, "callbacks": []}


def without_checkpoints(found):
    return [record for record in trained(found) if record.get("event") != "checkpoint"]


class Everything(Callback):
    """Every call but those at a run's start and end, as ``note`` of its name, with phase or type of record."""

    def note(self, call):
        raise NotImplementedError

    def on_epoch_start(self, trainer):
        self.note("on_epoch_start")

    def on_phase_start(self, trainer, phase):
        self.note(f"on_phase_start {phase}")

    def on_batch_end(self, trainer, phase, container):
        self.note(f"on_batch_end {phase}")

    def on_step_end(self, trainer):
        self.note("on_step_end")

    def on_phase_end(self, trainer, phase):
        self.note(f"on_phase_end {phase}")

    def log_metrics(self, trainer, record):
        if record["type"] != "event":
            self.note(f"log_metrics {record['type']}")

    def on_epoch_end(self, trainer, metrics):
        self.note("on_epoch_end")


class Counting(Everything):
    """How often each was called, which is its state."""

    def __init__(self):
        self.counts = Counter()

    def note(self, call):
        self.counts[call] += 1

    def state_dict(self):
        return dict(self.counts)

    def load_state_dict(self, state):
        self.counts = Counter(state)


class AtCall(Everything):
    """Does something at the n-th call of one."""

    def __init__(self, call, nth, action):
        self.call, self.left, self.action = call, nth, action

    def note(self, call):
        if call == self.call:
            self.left -= 1
            if self.left == 0:
                self.action()


def fail():
    raise OSError("in a callback")


# --- what is recorded


@pytest.mark.parametrize("call", ["on_batch_end train", "log_metrics batch", "on_step_end"])
@pytest.mark.parametrize("nth", [2, 3, 5])
def test_a_step_after_which_a_callback_raises_is_recorded_once(tmp_path, call, nth):
    whole = train(config(), tmp_path / "whole", extra_callbacks=[Callback()]).run_dir
    with pytest.raises(OSError, match="in a callback"):
        train(config(), tmp_path, extra_callbacks=[AtCall(call, nth, fail)])
    (first,) = run_dirs(tmp_path)
    assert checkpoint(first)["trainer"]["global_step"] == nth
    second = train(config(), tmp_path, resume=first, extra_callbacks=[Callback()]).run_dir
    assert [r["step"] for r in records(first, "batch")] == [*range(1, nth + 1)]
    assert without_checkpoints(records(first) + records(second)) == without_checkpoints(records(whole))
    assert_same_end(whole, second)


@pytest.mark.parametrize("call", ["on_batch_end train", "log_metrics event"])
def test_a_step_that_was_skipped_is_recorded_once_too(tmp_path, call):
    """The second step is not finite; nothing else is logged."""

    class Poison(Callback):
        def on_run_start(self, trainer):
            trainer.train.shuffle = False
            trainer.train.dataset.inputs[8:16] = float("nan")

    class FailsOnce(Callback):
        def __init__(self):
            self.calls = 0

        def on_batch_end(self, trainer, phase, container):
            self.calls += phase == "train"
            if call == "on_batch_end train" and self.calls == 2:
                fail()

        def log_metrics(self, trainer, record):
            if call == "log_metrics event" and record.get("event") == "skipped_step":
                fail()

    def skipping():
        trainer = {"nonfinite": "skip", "nonfinite_budget": 5, "epochs": 1, "log_every": 9}
        return config(**trainer, validate_every_steps=None)

    with pytest.raises(OSError, match="in a callback"):
        train(skipping(), tmp_path, extra_callbacks=[Poison(), FailsOnce()])
    (first,) = run_dirs(tmp_path)
    second = train(skipping(), tmp_path, resume=first, extra_callbacks=[Poison()]).run_dir
    found = [r for r in records(first) + records(second) if r.get("event") == "skipped_step"]
    assert [(r["epoch"], r["step"]) for r in found] == [(1, 1)]
    assert checkpoint(second)["trainer"]["skipped_steps"] == 1


# --- what callbacks count

LENGTHS = {
    "two epochs": {"epochs": 2},
    "to a step inside an epoch": {"max_steps": 5, "epochs": None},
}
IN_VALIDATIONS = [
    # the first one follows step 2, the second epoch 1
    ("on_step_end", 2),
    ("on_phase_end train", 1),
    ("on_phase_start val", 1),
    ("on_phase_start val", 2),
    ("on_batch_end val", 1),
    ("on_batch_end val", 3),
    ("on_batch_end val", 4),
    ("on_phase_end val", 2),
]
LAST_VALIDATION = ("on_batch_end val", 7)
ELSEWHERE = [
    ("on_epoch_start", 2),
    ("on_phase_start train", 2),
    ("on_batch_end train", 4),
    ("on_epoch_end", 1),
]


@pytest.fixture(scope="module", params=LENGTHS)
def length(request, tmp_path_factory):
    """Settings of the Trainer, a run that nobody interrupts, and its counts."""
    settings, counting = LENGTHS[request.param], Counting()
    run = train(config(**settings), tmp_path_factory.mktemp("whole"), extra_callbacks=[counting]).run_dir
    assert len(counting.counts) == 12
    assert counting.counts["on_phase_start val"] == counting.counts["on_phase_end val"]
    return settings, run, counting.counts


def assert_counts_go_on(length, source, directory):
    settings, whole, expected = length
    counting = Counting()
    run = train(config(**settings), directory, resume=source, extra_callbacks=[counting]).run_dir
    assert counting.counts == expected
    assert_identical(outcome(run), outcome(whole))


@pytest.mark.parametrize(("call", "nth"), [*IN_VALIDATIONS, LAST_VALIDATION, *ELSEWHERE])
def test_counts_of_a_run_that_a_signal_ended_are_those_of_the_whole(tmp_path, length, call, nth):
    sends = AtCall(call, nth, lambda: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(RunTerminated):
        train(config(**length[0]), tmp_path, extra_callbacks=[Counting(), sends])
    (first,) = run_dirs(tmp_path)
    assert_counts_go_on(length, first, tmp_path)


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="a signal of POSIX")
@pytest.mark.parametrize(("call", "nth"), [("on_batch_end val", 1), ("on_batch_end val", 3)])
def test_counts_of_a_run_that_was_saved_in_a_validation_are_those_of_the_whole(tmp_path, length, call, nth):
    class Copies(Callback):
        """The first last.pt after the signal."""

        sent = False

        def send(self):
            self.sent = True
            os.kill(os.getpid(), signal.SIGUSR1)

        def on_checkpoint(self, trainer, path):
            if self.sent and not (tmp_path / "copy").exists():
                (tmp_path / "copy").mkdir()
                shutil.copy(path, tmp_path / "copy" / "last.pt")

    copies, counting = Copies(), Counting()
    settings, whole, expected = length
    sends = AtCall(call, nth, copies.send)
    run = train(config(**settings), tmp_path, extra_callbacks=[counting, sends, copies]).run_dir
    assert counting.counts == expected
    assert without_checkpoints(records(run)) == without_checkpoints(records(whole))
    assert_counts_go_on(length, tmp_path / "copy" / "last.pt", tmp_path)


@pytest.mark.parametrize(("call", "nth"), [*IN_VALIDATIONS[1:], LAST_VALIDATION])
def test_counts_of_a_run_that_an_exception_ended_in_a_validation_are_those_of_the_whole(
    tmp_path, length, call, nth
):
    with pytest.raises(OSError, match="in a callback"):
        train(config(**length[0]), tmp_path, extra_callbacks=[Counting(), AtCall(call, nth, fail)])
    (first,) = run_dirs(tmp_path)
    assert_counts_go_on(length, first, tmp_path)


@pytest.mark.parametrize("step", [1, 2, 3, 4])
def test_a_run_that_is_resumed_inside_an_epoch_is_not_told_of_its_start_again(tmp_path, step):
    """A run left at its step 3, the last of an epoch, has that epoch behind it."""
    heard = []

    class Hears(Everything):
        def note(self, call):
            heard.append(call)

    sends = AtCall("on_step_end", step, lambda: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(RunTerminated):
        train(config(validate_every_steps=None), tmp_path, extra_callbacks=[sends])
    (first,) = run_dirs(tmp_path)
    inside = checkpoint(first)["states"]["progress"]["windows"]
    assert inside == {1: 1, 2: 2, 3: 3, 4: 1}[step]
    train(config(validate_every_steps=None), tmp_path, resume=first, extra_callbacks=[Hears()])
    starts = [heard.count(call) for call in ("on_epoch_start", "on_phase_start train")]
    assert starts == ([1, 1] if step <= 3 else [0, 0])
    assert heard[0] == ("on_phase_end train" if step == 3 else "on_batch_end train")
