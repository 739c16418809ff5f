"""Events in metrics.jsonl: what happened to a run, in order."""

import logging
import os
import threading
import warnings

import pytest
from jsonschema import Draft7Validator

from support.by_hand import SCRIPT, line, scripted
from support.disks import fill_the_disk_of
from support.runs import InterruptAfter, checkpoint, interrupted, manifest, records, run_dirs, tiny, train
from trainlattice import Callback
from trainlattice.contracts.metric_records import records_schema

pytestmark = pytest.mark.torch
logger = logging.getLogger("trainlattice.tests.events")


def events(run):
    """``(event, epoch, step)`` of every event of a run."""
    return [(r["event"], r["epoch"], r["step"]) for r in records(run, "event")]


def messages(run):
    return [r["message"] for r in records(run, "event") if r["event"] == "warning"]


class Calls(Callback):
    """Calls a function when the first epoch ends."""

    def __init__(self, call):
        self.call = call

    def on_epoch_end(self, trainer, metrics):
        if trainer.state.epoch == 1:
            self.call()


@pytest.fixture
def captured_warnings():
    """As the command line sets it up."""
    logging.captureWarnings(True)


def test_every_line_of_runs_of_every_form_is_valid(tmp_path):
    """The schema is applied here on its own, whatever the function that reads records does."""
    train(tiny(), tmp_path)
    train(
        tiny(scheduler={"name": "warmup_cosine"}, trainer={"max_grad_norm": 1.0, "precision": "bf16"}),
        tmp_path,
    )
    train(tiny(trainer={"max_steps": 4, "epochs": None, "validate_every_steps": 2}), tmp_path)
    train(scripted([1.0, float("nan"), 2.0], early_stopping={"patience": 1}), tmp_path)
    train(line(model={"w0": 1.0}, dataset={"x": [1e30], "y": [1.0]}, trainer={"nonfinite": "skip"}), tmp_path)
    with pytest.raises(ValueError, match="on purpose"):
        train(tiny(), tmp_path, extra_callbacks=[Calls(lambda: raises(ValueError("on purpose")))])
    first = interrupted(tiny(), tmp_path, epochs=1)
    train(tiny(), tmp_path, resume=first)
    validator = Draft7Validator(records_schema())
    kinds = set()
    for run in run_dirs(tmp_path):
        for record in records(run):
            validator.validate(record)
            kinds.add(record.get("event", record["type"]))
    assert kinds == {
        *("batch", "epoch", "validation"),
        *("start", "resume", "checkpoint", "skipped_step", "stop", "end"),
    }


def raises(error):
    raise error


def test_a_run_begins_with_start_and_ends_with_end(tmp_path):
    run = train(tiny(), tmp_path).run_dir
    assert events(run) == [("start", 0, 0), ("checkpoint", 1, 3), ("checkpoint", 2, 6), ("end", 2, 6)]
    first, *_, last = records(run)
    assert (first["event"], first["seed"], first["device"]) == ("start", 42, "cpu")
    assert (last["event"], last["status"]) == ("end", "finished")


def test_a_checkpoint_event_names_its_files(tmp_path):
    run = train(scripted([1.0, 2.0]), tmp_path).run_dir
    files = [r["files"] for r in records(run, "event") if r["event"] == "checkpoint"]
    assert files == [["last.pt", "best.pt"], ["last.pt"]]


def test_a_resumed_run_begins_with_resume_and_names_the_checkpoint(tmp_path):
    config = scripted([1.0], epochs=2)
    first = interrupted(config, tmp_path, epochs=1)
    SCRIPT[:] = [2.0]
    record = records(train(config, tmp_path, resume=first).run_dir)[0]
    assert (record["event"], record["epoch"], record["step"]) == ("resume", 1, 1)
    assert record["checkpoint"] == str(first / "checkpoints" / "last.pt")


def test_a_stop_is_recorded_with_its_reason_before_its_checkpoint(tmp_path):
    result = train(scripted([1.0, 2.0, 3.0], early_stopping={"patience": 0}), tmp_path)
    (stop,) = [r for r in records(result.run_dir, "event") if r["event"] == "stop"]
    assert stop["reason"] == result.stop_reason
    assert [event for event, *_ in events(result.run_dir)][-3:] == ["stop", "checkpoint", "end"]


@pytest.mark.parametrize(("error", "status"), [(KeyboardInterrupt, "interrupted"), (OSError, "failed")])
def test_a_run_that_does_not_finish_ends_with_its_status(tmp_path, error, status):
    with pytest.raises(error):
        train(tiny(), tmp_path, extra_callbacks=[Calls(lambda: raises(error()))])
    (run,) = run_dirs(tmp_path)
    last = records(run)[-1]
    assert (last["event"], last["status"], last["epoch"], last["step"]) == ("end", status, 1, 3)


# --- warnings


def test_what_the_log_shows_as_a_warning_stands_in_the_records(tmp_path):
    run = train(tiny(), tmp_path, extra_callbacks=[Calls(lambda: logger.warning("half %s", "full"))]).run_dir
    (record,) = [r for r in records(run, "event") if r["event"] == "warning"]
    assert (record["message"], record["epoch"], record["step"]) == ("half full", 1, 3)


def test_a_warning_of_another_thread_is_written_by_the_runs_own(tmp_path):
    heard = []

    class Hears(Callback):
        def on_step_end(self, trainer):
            if trainer.state.global_step == 2:
                thread = threading.Thread(target=lambda: logger.warning("the disk is slow"))
                thread.start()
                thread.join()
                heard.append(len(messages(trainer.run_dir)))

    run = train(tiny(), tmp_path, extra_callbacks=[Hears()]).run_dir
    assert heard == [0]
    (record,) = [r for r in records(run, "event") if r["event"] == "warning"]
    assert (record["message"], record["epoch"], record["step"]) == ("the disk is slow", 1, 2)


def test_what_is_no_warning_does_not(tmp_path):
    run = train(tiny(), tmp_path, extra_callbacks=[Calls(lambda: logger.info("all is well"))]).run_dir
    assert messages(run) == []


@pytest.mark.usefixtures("captured_warnings")
@pytest.mark.filterwarnings("always")
def test_warnings_of_python_that_go_to_the_log_stand_in_the_records(tmp_path):
    call = Calls(lambda: warnings.warn("this kernel is slow", stacklevel=1))
    (message,) = messages(train(tiny(), tmp_path, extra_callbacks=[call]).run_dir)
    assert "this kernel is slow" in message
    assert "UserWarning" in message


def test_a_warning_of_the_resume_itself_stands_in_the_records(tmp_path):
    """The best checkpoint is of an earlier step than the last, so that nothing stands in for it."""
    config = scripted([1.0, 2.0], epochs=3)
    first = interrupted(config, tmp_path, epochs=2)
    best = first / "checkpoints" / "best.pt"
    best.write_bytes(best.read_bytes()[:-100])
    SCRIPT[:] = [3.0]
    (message,) = messages(train(config, tmp_path, resume=first).run_dir)
    assert f"{best} is damaged" in message


def test_a_run_that_is_over_records_no_more_warnings(tmp_path):
    run = train(tiny(), tmp_path).run_dir
    logger.warning("too late")
    assert messages(run) == []


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device of Linux")
def test_a_warning_that_cannot_be_recorded_does_not_take_the_place_of_an_error(tmp_path, caplog):
    class Fails(Callback):
        def on_step_end(self, trainer):
            fill_the_disk_of(trainer.run_dir / "metrics.jsonl")
            try:
                raise ZeroDivisionError("the cause")
            except ZeroDivisionError:
                logger.warning("on the way out")
                raise

    with pytest.raises(ZeroDivisionError, match="the cause"):
        train(tiny(), tmp_path, extra_callbacks=[Fails()])
    (run,) = run_dirs(tmp_path)
    assert "on the way out" in caplog.text
    assert "metrics.jsonl could not be written: No space left on device" in caplog.text
    assert manifest(run)["error"] == {"type": "ZeroDivisionError", "message": "the cause"}


# --- callbacks


def test_callbacks_hear_of_records_between_their_start_and_their_end_only(tmp_path):
    heard = []

    class Listens(Callback):
        def on_run_start(self, trainer):
            logger.warning("while starting")
            heard.append("run start")

        def log_metrics(self, trainer, record):
            heard.append(record.get("event", record["type"]))

        def finalize(self, trainer, error):
            heard.append("finalize")

    run = train(line(), tmp_path, extra_callbacks=[Listens()]).run_dir
    assert heard == ["run start", "batch", "epoch", "checkpoint", "finalize"]
    assert messages(run) == ["while starting"]


def test_a_callback_that_warns_of_every_record_does_not_warn_of_its_own_warnings(tmp_path):
    class Warns(Callback):
        def log_metrics(self, trainer, record):
            logger.warning("a %s", record["type"])

    run = train(line(), tmp_path, extra_callbacks=[Warns()]).run_dir
    assert messages(run) == ["a batch", "a epoch", "a event"]


def test_what_a_callback_raises_when_it_hears_of_a_warning_is_raised(tmp_path):
    class Refuses(Callback):
        def on_step_end(self, trainer):
            if trainer.state.global_step == 2:
                logger.warning("too slow")

        def log_metrics(self, trainer, record):
            if record.get("event") == "warning":
                raise ZeroDivisionError(record["message"])

    with pytest.raises(ZeroDivisionError, match="too slow"):
        train(tiny(), tmp_path, extra_callbacks=[Refuses()])
    (run,) = run_dirs(tmp_path)
    assert messages(run) == ["too slow"]
    assert checkpoint(run)["trainer"]["global_step"] == 3  # it is told before the next record, after its step


def test_an_interrupt_before_the_first_step_leaves_start_and_end(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        train(tiny(), tmp_path, extra_callbacks=[InterruptAfter(0)])
    (run,) = run_dirs(tmp_path)
    assert [event for event, *_ in events(run)] == ["start", "end"]
