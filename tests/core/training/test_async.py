"""``checkpoint: {async: true}``: the state is copied and written on a thread while training goes on."""

import os
import shutil
import signal
import threading

import pytest

from support.by_hand import line
from support.configs import TINY, write_tiny
from support.runs import assert_identical, checkpoint, manifest, records, run_dirs, tiny, train, trained
from trainlattice import Callback
from trainlattice.checkpoint.background import Background
from trainlattice.checkpoint.inventory import verify
from trainlattice.checkpoint.store import CheckpointStore, load
from trainlattice.cli.main import run as command_line
from trainlattice.diagnostics.errors import CheckpointWriteError, RunTerminated

pytestmark = pytest.mark.torch


def saving(**checkpoint):
    """Three steps an epoch, two epochs, with everything that has a state: dropout, moments, a schedule."""
    config = tiny(
        model={"dropout": 0.3},
        scheduler={"name": "warmup_cosine", "warmup_steps": 2},
        trainer={"validate_every_steps": 2, "early_stopping": {"patience": 9}},
        checkpoint={"async": True, "every_steps": 1, **checkpoint},
    )
    return {**config, "callbacks": []}


def points(**checkpoint):
    """Six steps of one epoch, without validation."""
    config = line(dataset={"x": [1.0] * 6, "y": [1.0] * 6})
    return {**config, "callbacks": [], "checkpoint": {"async": True, "every_steps": 1, **checkpoint}}


def step_of(path):
    return load(path).trainer["global_step"]


class Copies(Callback):
    """Copies of each file when it is told of."""

    def __init__(self, directory):
        self.directory = directory

    def on_checkpoint(self, trainer, path):
        target = self.directory / f"{step_of(path)}-{path.name}"
        target.parent.mkdir(exist_ok=True)
        shutil.copy(path, target)


class AtStep(Callback):
    """Does something after the step with this number."""

    def __init__(self, step, action):
        self.step, self.action = step, action

    def on_step_end(self, trainer):
        if trainer.state.global_step == self.step:
            self.action(trainer)


def failing(monkeypatch, nth):
    """The n-th write fails, as on a full disk."""
    save, calls = CheckpointStore.save, []

    def fails(self, checkpoint, names):
        calls.append(names)
        if len(calls) == nth:
            raise CheckpointWriteError("the disk is full")
        return save(self, checkpoint, names)

    monkeypatch.setattr(CheckpointStore, "save", fails)


def writing_only_when_waited_for(monkeypatch):
    """A write ends no sooner than somebody waits for it."""
    save, take, waited = CheckpointStore.save, Background.take, threading.Event()

    def slow(self, checkpoint, names):
        if threading.current_thread() is not threading.main_thread():
            assert waited.wait(20), "nobody waits for the file"
            waited.clear()
        return save(self, checkpoint, names)

    def waits(self):
        waited.set()
        return take(self)

    monkeypatch.setattr(CheckpointStore, "save", slow)
    monkeypatch.setattr(Background, "take", waits)


def no_thread_is_left():
    return not [t for t in threading.enumerate() if t.name.startswith("trainlattice")]


def plain(path):
    """A checkpoint without where its run lies, how it was written and how long its epoch took."""
    content = vars(load(path))
    for name in ("data_seconds", "seconds"):
        content["states"]["progress"].pop(name)
    content["config"]["experiment"].pop("runs_dir")
    content["config"].pop("checkpoint")
    return content


@pytest.mark.parametrize("more", [{}, {"keep_last": 3, "keep_best": 2}, {"keep_every_epochs": 1}])
def test_every_file_holds_what_a_synchronous_run_writes(tmp_path, more):
    ends = []
    for name in ("now", "async"):
        copies = Copies(tmp_path / f"{name} copies")
        config = saving(**{**more, "async": name == "async"})
        run = train(config, tmp_path / name, extra_callbacks=[copies]).run_dir
        ends.append((run, copies.directory))
    (now, now_copies), (later, later_copies) = ends
    names = sorted(path.name for path in now_copies.iterdir())
    assert names == sorted(path.name for path in later_copies.iterdir())
    assert {"1-last.pt", "2-best.pt", "6-last.pt"} <= set(names)
    for name in names:
        assert_identical(plain(later_copies / name), plain(now_copies / name))
    found = sorted(path.name for path in (now / "checkpoints").glob("*.pt"))
    assert found == sorted(path.name for path in (later / "checkpoints").glob("*.pt"))
    assert {each.verdict for each in verify((later / "checkpoints").glob("*.pt"))} == {"ok"}
    assert no_thread_is_left()


def test_a_run_learns_the_same_and_records_the_same(tmp_path):
    runs = [train(saving(**{"async": held}), tmp_path / str(held)).run_dir for held in (False, True)]
    one, other = (
        [record for record in trained(records(run)) if record.get("event") != "checkpoint"] for run in runs
    )
    assert one == other


def test_a_copy_of_any_step_is_resumed_to_the_same_end(tmp_path):
    copies = Copies(tmp_path / "copies")
    whole = train(saving(), tmp_path / "whole", extra_callbacks=[copies]).run_dir
    for step in (1, 3, 5):
        source = copies.directory / f"{step}-last.pt"
        run = train(saving(), tmp_path / str(step), resume=source, extra_callbacks=[Callback()]).run_dir
        left, right = checkpoint(run), checkpoint(whole)
        for found in (left, right):
            found["config"]["experiment"].pop("runs_dir")
        assert_identical(left["states"]["model/model"], right["states"]["model/model"])
        assert_identical(left["trainer"], right["trainer"])


def test_training_goes_on_while_a_file_is_written_and_callbacks_hear_of_it_when_it_is_durable(
    tmp_path, monkeypatch
):
    save, go, heard, threads = CheckpointStore.save, threading.Event(), [], set()

    def slow(self, checkpoint, names):
        assert go.wait(20), "training waits for the file"
        return save(self, checkpoint, names)

    def release(trainer):
        assert heard == []  # of the file of step 2
        go.set()

    class Hears(Callback):
        def on_checkpoint(self, trainer, path):
            threads.add(threading.current_thread())
            heard.append((step_of(path), path.name))  # compares with the index

    monkeypatch.setattr(CheckpointStore, "save", slow)
    callbacks = [AtStep(3, release), Hears()]
    train(points(every_steps=2), tmp_path, extra_callbacks=callbacks)
    assert heard == [(2, "last.pt"), (4, "last.pt"), (6, "last.pt")]
    assert threads == {threading.main_thread()}


def test_the_file_holds_the_step_at_which_it_was_due(tmp_path, monkeypatch):
    """The weights of step 2, although step 3 was taken before they were written."""
    save, go = CheckpointStore.save, threading.Event()

    def slow(self, checkpoint, names):
        assert go.wait(20)
        return save(self, checkpoint, names)

    monkeypatch.setattr(CheckpointStore, "save", slow)
    copies = Copies(tmp_path / "copies")
    callbacks = [AtStep(3, lambda trainer: go.set()), copies]
    train(points(every_steps=2), tmp_path, extra_callbacks=callbacks)
    held = load(copies.directory / "2-last.pt")
    # w begins at 0 and goes a fifth of the way to 1 with each step
    assert held.states["model/model"]["w"].item() == pytest.approx(1 - 0.8**2)
    assert held.states["progress"]["windows"] == 2


# --- what goes wrong


@pytest.mark.parametrize(("nth", "stands"), [(1, None), (2, 1), (4, 3), (6, 5)])
def test_a_write_that_fails_ends_the_run_at_the_next_step_or_at_its_end(tmp_path, monkeypatch, nth, stands):
    failing(monkeypatch, nth)
    with pytest.raises(CheckpointWriteError, match="the disk is full"):
        train(points(), tmp_path)
    (run,) = run_dirs(tmp_path)
    found = manifest(run)
    assert found["status"] == "failed"
    assert found["global_step"] in (nth, nth + 1)
    assert not (run / "checkpoints" / "last.pt").exists() if stands is None else True
    if stands is not None:
        assert step_of(run / "checkpoints" / "last.pt") == stands
    assert [r["step"] for r in records(run, "event") if r["event"] == "end"] == [found["global_step"]]
    assert no_thread_is_left()


def test_a_write_that_failed_is_noticed_between_two_steps_although_nothing_is_due(tmp_path, monkeypatch):
    def let_it_fail(trainer):
        for thread in threading.enumerate():
            if thread.name == "trainlattice-save":
                thread.join()

    failing(monkeypatch, 1)
    with pytest.raises(CheckpointWriteError):
        train(points(every_steps=2), tmp_path, extra_callbacks=[AtStep(3, let_it_fail)])
    (run,) = run_dirs(tmp_path)
    assert manifest(run)["global_step"] == 3


def test_earlier_files_stay_when_a_write_fails(tmp_path, monkeypatch):
    failing(monkeypatch, 4)
    with pytest.raises(CheckpointWriteError):
        train(points(keep_last=2), tmp_path)
    (run,) = run_dirs(tmp_path)
    steps = {path.name: step_of(path) for path in (run / "checkpoints").glob("step-*.pt")}
    assert steps == {"step-00000002.pt": 2, "step-00000003.pt": 3}
    assert step_of(run / "checkpoints" / "last.pt") == 3


def test_a_write_that_fails_gives_exit_code_1_and_a_message(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    failing(monkeypatch, 2)
    path = write_tiny(tmp_path, TINY + "checkpoint: {async: true, every_steps: 1}\n")
    assert command_line(["train", str(path)]) == 1
    said = capsys.readouterr().err
    assert "the disk is full" in said
    assert "Traceback" not in said


def test_the_record_of_a_checkpoint_has_its_step(tmp_path, monkeypatch):
    writing_only_when_waited_for(monkeypatch)
    run = train(points(every_steps=2), tmp_path).run_dir
    assert [r["step"] for r in records(run, "event") if r["event"] == "checkpoint"] == [2, 4, 6]


def test_an_exception_of_a_callback_waits_for_the_file_and_saves_the_rest(tmp_path, monkeypatch):
    def fail(trainer):
        raise ZeroDivisionError

    writing_only_when_waited_for(monkeypatch)
    monkeypatch.setattr(Background, "is_done", property(lambda self: False))  # no poll finds it
    with pytest.raises(ZeroDivisionError):
        train(points(every_steps=2), tmp_path, extra_callbacks=[AtStep(3, fail)])
    (run,) = run_dirs(tmp_path)
    assert step_of(run / "checkpoints" / "last.pt") == 3
    assert no_thread_is_left()


class FailsInStep(Callback):
    """In the forward pass of the step with this number: nothing can be rescued."""

    def __init__(self, step):
        self.step = step

    def on_run_start(self, trainer):
        self.calls = 0
        trainer.parts.models["model"].register_forward_hook(self.forward)

    def forward(self, *_):
        self.calls += 1
        if self.calls == self.step:
            raise ZeroDivisionError


def test_a_file_that_was_on_its_way_when_a_step_raised_is_told_of(tmp_path, monkeypatch):
    heard = []

    class Hears(Callback):
        def on_checkpoint(self, trainer, path):
            heard.append(step_of(path))

    writing_only_when_waited_for(monkeypatch)
    with pytest.raises(ZeroDivisionError):
        train(points(every_steps=2), tmp_path, extra_callbacks=[FailsInStep(3), Hears()])
    (run,) = run_dirs(tmp_path)
    assert heard == [2]
    found = [(r["event"], r["step"]) for r in records(run, "event")]
    assert found == [("start", 0), ("checkpoint", 2), ("end", 2)]
    assert step_of(run / "checkpoints" / "last.pt") == 2
    assert step_of(run / "checkpoints" / "emergency.pt") == 2
    assert no_thread_is_left()


def test_a_step_that_raises_leaves_an_emergency_file_although_the_file_before_it_failed(
    tmp_path, monkeypatch, caplog
):
    failing(monkeypatch, 1)
    with pytest.raises(ZeroDivisionError):
        train(points(every_steps=2), tmp_path, extra_callbacks=[FailsInStep(3)])
    (run,) = run_dirs(tmp_path)
    assert "the checkpoint before it: the disk is full" in caplog.text
    assert [path.name for path in (run / "checkpoints").glob("*.pt")] == ["emergency.pt"]
    assert step_of(run / "checkpoints" / "emergency.pt") == 2
    assert manifest(run)["error"]["type"] == "ZeroDivisionError"
    assert no_thread_is_left()


# --- ends that wait


def test_the_end_of_a_run_waits_for_the_file(tmp_path, monkeypatch):
    writing_only_when_waited_for(monkeypatch)
    run = train(points(every_steps=None), tmp_path).run_dir
    assert step_of(run / "checkpoints" / "last.pt") == 6
    assert [r["event"] for r in records(run, "event")] == ["start", "checkpoint", "end"]
    assert no_thread_is_left()


def test_a_request_to_stop_waits_for_the_file(tmp_path, monkeypatch):
    writing_only_when_waited_for(monkeypatch)
    config = points(every_steps=None)
    config["trainer"]["epochs"] = 3
    stop = AtStep(2, lambda trainer: trainer.request_stop("enough"))
    run = train(config, tmp_path, extra_callbacks=[stop]).run_dir
    held = load(run / "checkpoints" / "last.pt").trainer
    assert (held["global_step"], held["stop_reason"]) == (6, "enough")
    assert [r["event"] for r in records(run, "event")] == ["start", "stop", "checkpoint", "end"]
    assert no_thread_is_left()


@pytest.mark.skipif(os.name == "nt", reason="a signal of POSIX")
@pytest.mark.parametrize("every", [None, 1])
def test_sigterm_waits_for_the_file(tmp_path, monkeypatch, every):
    writing_only_when_waited_for(monkeypatch)
    send = AtStep(3, lambda trainer: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(RunTerminated):
        train(points(every_steps=every), tmp_path, extra_callbacks=[send])
    (run,) = run_dirs(tmp_path)
    assert step_of(run / "checkpoints" / "last.pt") == 3
    assert manifest(run)["status"] == "interrupted"
    assert [r["event"] for r in records(run, "event")][-2:] == ["checkpoint", "end"]
    assert no_thread_is_left()
