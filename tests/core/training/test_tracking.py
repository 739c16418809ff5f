"""Trackers take records on threads of their own: what comes, when, and what their failures do to a run."""

import json
import logging
import os
import random
import shutil
import signal
import threading

import numpy
import pytest
import torch

from support.by_hand import line
from support.cli import run_cli
from support.configs import write_tiny
from support.distributions import fake_plugin, registration
from support.runs import (
    assert_identical,
    assert_same_end,
    checkpoint,
    manifest,
    records,
    run_dirs,
    tiny,
    train,
    trained,
)
from trainlattice import Callback, OptionError, Options, Tracker, register_tracker, resume_run
from trainlattice.cli.main import run as command_line
from trainlattice.diagnostics.errors import ConfigError, PluginError, RunTerminated, TrackerError
from trainlattice.runs.evaluation import evaluate_run
from trainlattice.training import tracking

pytestmark = pytest.mark.torch
SEEN = []
"""Every tracker that was built, in order."""
GATE = threading.Event()
"""What a tracker that hangs waits for."""
FAILED = threading.Event()
"""Set once what a tracker raised is known to the run."""
KILLED = threading.Event()
"""Set once a tracker has sent SIGTERM."""
PATIENCE = 60.0


class NotesOptions(Options):
    fails_in: str | None = None
    fails_after: int = 0
    hangs_in: str | None = None


@register_tracker("notes", options=NotesOptions)
class Notes(Tracker):
    """Notes every call; fails or hangs in one of them if it is told to."""

    def __init__(self, options):
        self.options = options
        self.run = self.status = self.mask = None
        self.lines, self.calls, self.threads = [], [], set()
        SEEN.append(self)

    def note(self, call):
        self.calls.append(call)
        self.threads.add(threading.current_thread().name)
        if self.options.hangs_in == call:
            assert GATE.wait(PATIENCE)
        if self.options.fails_in == call and len(self.lines) >= self.options.fails_after:
            raise OSError(f"no route in {call}")

    def start(self, run):
        self.run = run
        self.mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])
        self.note("start")

    def log(self, record):
        self.note("log")
        self.lines.append(dict(record))

    def flush(self):
        self.note("flush")

    def finish(self, status, error):
        self.status = status, error
        self.note("finish")


@register_tracker("draws")
class Draws(Tracker):
    """Draws from every global generator when it starts."""

    def __init__(self):
        self.draw()

    def start(self, run):
        self.draw()

    def draw(self):
        random.random(), numpy.random.rand(), torch.rand(1)


@register_tracker("kills")
class Kills(Tracker):
    """Sends SIGTERM to this process from its own thread."""

    def log(self, record):
        if record["type"] == "batch" and record["step"] == 2:
            os.kill(os.getpid(), signal.SIGTERM)
            KILLED.set()


@register_tracker("exits")
class Exits(Tracker):
    def log(self, record):
        raise SystemExit(7)


@register_tracker("warns")
class Warns(Tracker):
    def log(self, record):
        logging.getLogger("trainlattice.tracker").warning("from another thread")


@register_tracker("refuses", options=NotesOptions)
def refuses(options):
    raise OptionError("fails_in", "there is no key")


@register_tracker("no_tracker")
def no_tracker():
    return object()


@pytest.fixture(autouse=True)
def _clean(monkeypatch):
    SEEN.clear()
    for event in (GATE, FAILED, KILLED):
        event.clear()
    fails = tracking._Worker._fails

    def told(*call):
        fails(*call)
        FAILED.set()

    monkeypatch.setattr(tracking._Worker, "_fails", told)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    yield
    GATE.set()
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before


def tracked(*trackers, **sections):
    """Three steps an epoch, two epochs, with dropout."""
    return {
        **tiny(model={"dropout": 0.3}, **sections),
        "callbacks": [],
        "trackers": [{"name": "notes", **tracker} for tracker in trackers],
    }


def lines_of(run):
    return [json.loads(text) for text in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def warned(run):
    return [record["message"] for record in records(run, "event") if record["event"] == "warning"]


class At(Callback):
    """Does something after the step with this number."""

    def __init__(self, step, action):
        self.step, self.action = step, action

    def on_step_end(self, trainer):
        if trainer.state.global_step == self.step:
            self.action()


def waits_for(event, step=3):
    def wait():
        assert event.wait(PATIENCE)

    return At(step, wait)


# --- what comes -----------------------------------------------------------------------------------


def test_a_tracker_gets_every_line_of_metrics_jsonl_in_order_on_one_thread(tmp_path):
    run = train(tracked({}), tmp_path).run_dir
    (notes,) = SEEN
    assert notes.lines == lines_of(run)
    assert [line["event"] for line in notes.lines if line["type"] == "event"][::3] == ["start", "end"]
    assert notes.threads == {"trainlattice-tracker-notes"}
    assert notes.calls[0] == "start"
    assert notes.calls[-2:] == ["flush", "finish"]
    assert notes.status == ("finished", None)


def test_it_is_told_what_run_it_is(tmp_path):
    run = train(tracked({"as": "mine"}), tmp_path).run_dir
    told = SEEN[0].run
    assert (told.tracker, told.name, told.seed) == ("mine", "tiny", 42)
    assert told.directory == run
    assert (told.resumed_from, told.continues) == (None, ())
    assert told.config["model"]["dropout"] == 0.3
    assert told.config["trackers"][0]["as"] == "mine"
    with pytest.raises(TypeError):
        told.config["model"]["dropout"] = 0.5


def test_numbers_that_are_not_finite_come_as_in_the_file(tmp_path):
    config = line(dataset={"x": [1.0, 1.0], "y": [1e38, 1e38]}, trainer={"nonfinite": "continue"})
    run = train({**config, "callbacks": [], "trackers": ["notes"]}, tmp_path).run_dir
    (batch,) = [line for line in SEEN[0].lines if line["type"] == "batch"][:1]
    assert batch["loss"] is None
    assert "loss" in batch["nonfinite"]
    assert SEEN[0].lines == lines_of(run)


def test_training_does_not_wait_for_a_tracker_that_is_behind(tmp_path):
    class Opens(Callback):
        def finalize(self, trainer, error):
            self.behind = len(SEEN[0].lines)
            GATE.set()

    callback = Opens()
    run = train(tracked({"hangs_in": "log"}), tmp_path, extra_callbacks=[callback]).run_dir
    assert callback.behind == 0
    assert SEEN[0].lines == lines_of(run)


def test_weights_and_random_states_are_those_of_a_run_without_trackers(tmp_path):
    config = tracked({}, dataset={"num_workers": 0})
    alone = train({**config, "trackers": []}, tmp_path).run_dir
    followed = train({**config, "trackers": ["draws", "notes"]}, tmp_path).run_dir
    ends = [checkpoint(run) for run in (alone, followed)]
    for end in ends:
        end["config"].pop("trackers")
        end["components"] = [c for c in end["components"] if c["kind"] != "tracker"]
    assert_identical(*ends)
    assert trained(records(alone)) == trained(records(followed))


def test_loader_processes_are_forked_beside_it(tmp_path):
    config = tracked({}, dataset={"num_workers": 2, "start_method": "fork"})
    run = train(config, tmp_path).run_dir
    assert SEEN[0].lines == lines_of(run)


def test_two_of_one_component_take_names(tmp_path):
    with pytest.raises(ConfigError, match="the name 'notes' is taken: give this tracker another one"):
        train(tracked({}, {}), tmp_path)
    train(tracked({}, {"as": "second"}), tmp_path)
    assert [notes.run.tracker for notes in SEEN] == ["notes", "second"]
    assert SEEN[0].lines == SEEN[1].lines


# --- what cannot work -----------------------------------------------------------------------------


def test_what_is_refused_while_the_run_is_built_creates_nothing(tmp_path):
    config = {**tracked(), "trackers": [{"name": "refuses", "fails_in": "x"}]}
    with pytest.raises(ConfigError, match="there is no key") as caught:
        train(config, tmp_path)
    assert [found.path for found in caught.value.diagnostics] == ["trackers.0.fails_in"]
    with pytest.raises(PluginError, match="returned a object, expected a Tracker"):
        train({**tracked(), "trackers": ["no_tracker"]}, tmp_path)
    assert run_dirs(tmp_path) == []


def test_no_tracker_starts_for_a_run_that_cannot_be_built(tmp_path):
    with pytest.raises(ConfigError):
        train({**tracked({}), "loss": "l1"}, tmp_path)
    assert SEEN == []
    with pytest.raises(ConfigError):
        train(tracked({}, dataset={"name": "csv", "path": str(tmp_path / "gone"), "target": "y"}), tmp_path)
    assert all(notes.calls == [] for notes in SEEN)


# --- failures -------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["start", "log", "flush"])
def test_one_that_fails_is_reported_once_and_the_run_goes_on(tmp_path, caplog, monkeypatch, call):
    monkeypatch.setattr(tracking, "_FLUSH_SECONDS", 0.0)
    config = tracked({"fails_in": call, "as": "bad"}, {"as": "good"})
    result = train(config, tmp_path, extra_callbacks=[waits_for(FAILED)])
    assert (result.status, result.global_step) == ("finished", 6)
    what = "could not start" if call == "start" else "failed"
    text = f"tracker 'bad' {what}: OSError: no route in {call}"
    said = [r.getMessage() for r in caplog.records if "tracker" in r.getMessage()]
    assert len(said) == 1
    assert said[0].startswith(text)
    bad, good = SEEN
    assert bad.calls.count(call) == 1
    assert bad.calls[-1] == "finish"
    assert bad.status == ("finished", None)
    assert good.lines == lines_of(result.run_dir)
    assert warned(result.run_dir) == [text + "; the run goes on without it"]


def test_on_error_fail_ends_the_run_between_two_steps_and_loses_nothing(tmp_path):
    config = tracked({"on_error": "fail", "fails_in": "log", "fails_after": 2})
    with pytest.raises(TrackerError, match="tracker 'notes' failed: OSError: no route in log") as caught:
        train(config, tmp_path, extra_callbacks=[waits_for(FAILED, step=4)])
    assert isinstance(caught.value.__cause__, OSError)
    (run,) = run_dirs(tmp_path)
    ended = manifest(run)
    assert ended["status"] == "failed"
    assert ended["error"]["type"] == "TrackerError"
    assert SEEN[0].status == ("failed", str(caught.value))
    assert (run / "checkpoints" / "emergency.pt").is_file()
    assert 2 <= checkpoint(run)["trainer"]["global_step"] == ended["global_step"] <= 4
    resumed = resume_run(run, overrides=["trackers=[]", f"experiment.runs_dir={tmp_path / 'again'}"])
    whole = train({**config, "trackers": []}, tmp_path / "whole")
    left, right = (checkpoint(result.run_dir) for result in (resumed, whole))
    assert left["trainer"]["global_step"] == 6
    assert_identical(left["states"], right["states"])


@pytest.mark.parametrize("how", [{"fails_in": "start"}, {"hangs_in": "start", "timeout_sec": 0.1}])
def test_one_that_cannot_start_ends_the_run_before_its_first_step(tmp_path, how):
    why = "could not start: OSError" if "fails_in" in how else "did not start within 0.1 s"
    with pytest.raises(TrackerError, match=f"tracker 'notes' {why}"):
        train(tracked({"on_error": "fail", **how}), tmp_path)
    (run,) = run_dirs(tmp_path)
    assert (manifest(run)["status"], manifest(run)["global_step"]) == ("failed", 0)
    assert [record["event"] for record in records(run)] == ["end"]


def test_what_fails_at_the_end_changes_the_exit_and_not_the_run(tmp_path):
    with pytest.raises(TrackerError, match="tracker 'notes' could not finish: OSError") as caught:
        train(tracked({"on_error": "fail", "fails_in": "finish"}), tmp_path)
    assert isinstance(caught.value.__cause__, OSError)
    assert caught.value.result.status == "finished"
    (run,) = run_dirs(tmp_path)
    assert manifest(run)["status"] == "finished"
    assert records(run)[-1]["status"] == "finished"


def test_the_error_of_the_end_says_that_the_run_is_finished_and_its_summary_is_printed(tmp_path, capsys):
    (tmp_path / "mine.py").write_text(
        "from trainlattice import Tracker, register_tracker\n\n\n"
        "@register_tracker('unfinished')\nclass Unfinished(Tracker):\n"
        "    def finish(self, status, error):\n        raise OSError('no route')\n"
    )
    path = write_tiny(tmp_path)
    text = path.read_text().replace("runs_dir: runs", f"runs_dir: {tmp_path / 'runs'}")
    tail = "\ntrackers: [{name: unfinished, on_error: fail}]\nplugins: {local: [mine.py]}\n"
    path.write_text(text + tail)
    assert command_line(["train", str(path)]) == 1
    (run,) = run_dirs(tmp_path)
    printed = capsys.readouterr()
    for said in ("Run finished: ", "  best     val_loss "):
        assert said in printed.out
    error = "error: tracker 'unfinished' could not finish: OSError: no route\n"
    assert printed.err.endswith(f"{error}  the run itself is finished: {run}\n")
    assert command_line(["resume", str(run), "--set", "trainer.epochs=3"]) == 1
    assert "Run finished: " in capsys.readouterr().out


def test_one_that_exits_the_program_only_fails(tmp_path, caplog):
    assert train({**tracked(), "trackers": ["exits"]}, tmp_path).status == "finished"
    assert "tracker 'exits' failed: SystemExit: 7" in caplog.text


def test_what_its_thread_warns_of_is_no_record(tmp_path, caplog):
    run = train({**tracked(), "trackers": ["warns"]}, tmp_path).run_dir
    assert "from another thread" in caplog.text
    assert warned(run) == []


# --- hanging --------------------------------------------------------------------------------------


def test_one_that_hangs_keeps_the_run_for_its_time_only(tmp_path, caplog):
    result = train(tracked({"hangs_in": "log", "timeout_sec": 0.2}), tmp_path)
    assert result.status == "finished"
    number = len(lines_of(result.run_dir))
    text = f"tracker 'notes' did not finish within 0.2 s: {number} of {number} records were not taken"
    assert [r.getMessage() for r in caplog.records if "tracker" in r.getMessage()] == [text]


def test_one_that_hangs_at_its_start_gets_nothing_and_no_more_time(tmp_path, caplog):
    run = train(tracked({"hangs_in": "start", "timeout_sec": 0.2}, {"as": "good"}), tmp_path).run_dir
    text = "tracker 'notes' did not start within 0.2 s; the run goes on without it, and is not exactly repeatable"
    assert warned(run) == [f"{text} if it still draws random numbers"]
    assert caplog.text.count("tracker 'notes'") == 1
    assert SEEN[0].lines == []
    assert SEEN[1].lines == lines_of(run)


def test_one_that_is_too_far_behind_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(tracking, "MOST_WAITING", 4)
    run = train(tracked({"hangs_in": "log"}), tmp_path).run_dir
    assert warned(run) == ["tracker 'notes' is 4 records behind; the run goes on without it"]


def hears_of_a_wait(monkeypatch, action):
    """Does something as soon as the user is told that the run waits for a tracker."""
    told = []

    class Hears(logging.Handler):
        def emit(self, record):
            if "waiting for" in record.getMessage():
                told.append(record.getMessage())
                action()

    monkeypatch.setattr(tracking, "_SILENT_SECONDS", 0.0)
    monkeypatch.setattr(tracking.logger, "handlers", [Hears()])
    monkeypatch.setattr(tracking.logger, "level", logging.INFO)
    return told


@pytest.mark.parametrize(("call", "what"), [("start", " to start"), ("log", ""), ("finish", "")])
def test_the_user_is_told_what_the_run_waits_for(tmp_path, monkeypatch, call, what):
    told = hears_of_a_wait(monkeypatch, GATE.set)
    result = train(tracked({"hangs_in": call, "timeout_sec": PATIENCE}), tmp_path)
    assert told == [f"waiting for tracker 'notes'{what} (at most 60 s)"]
    assert SEEN[0].lines == lines_of(result.run_dir)


@pytest.mark.parametrize(("call", "rest"), [("finish", "all"), ("log", "{0} of {0}")])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_wait_and_not_the_run_that_is_finished(
    tmp_path, monkeypatch, caplog, number, call, rest
):
    hears_of_a_wait(monkeypatch, lambda: signal.raise_signal(number))
    before = signal.getsignal(number)
    result = train(tracked({"hangs_in": call, "timeout_sec": PATIENCE}, {"as": "good"}), tmp_path)
    assert signal.getsignal(number) is before
    assert result.status == manifest(result.run_dir)["status"] == "finished"
    rest = rest.format(len(lines_of(result.run_dir)))
    not_taken = f"{rest} records were {'not ' if call == 'log' else ''}taken"
    text = f"tracker 'notes' had not finished when {number.name} ended the wait: {not_taken}"
    assert [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING] == [text]
    assert SEEN[1].lines == lines_of(result.run_dir)


def test_a_signal_in_the_wait_leaves_an_error_what_it_is(tmp_path, monkeypatch):
    def fail():
        raise ValueError("a callback")

    hears_of_a_wait(monkeypatch, lambda: signal.raise_signal(signal.SIGINT))
    with pytest.raises(ValueError, match="a callback"):
        train(tracked({"hangs_in": "finish"}), tmp_path, extra_callbacks=[At(2, fail)])


def test_plugins_hear_that_a_run_is_finished_before_it_waits(tmp_path):
    code = FOLLOWS.format(path=str(tmp_path / "started")) + (
        "\n    def finish(self, status, error):\n"
        "        assert (self.run.directory / 'finished').exists(), 'it was not told'\n"
    )
    code = code.replace("run):\n", "run):\n        self.run = run\n")
    declared = "Component('tracker', 'heeds', 'trainlattice_plugin_heeder.code:Follows')"
    hook = (
        "\n\n@hookimpl\ndef trainlattice_run_finished(run, outcome):\n"
        "    (run.directory / 'finished').touch()\n"
    )
    site = tmp_path / "site"
    fake_plugin(site, "heeder", registration(declared) + hook, {"code.py": code})
    path = write_tiny(tmp_path)
    path.write_text(path.read_text() + "\ntrackers: [{name: heeds, on_error: fail}]\n")
    done = run_cli("train", path, cwd=tmp_path, site=site)
    assert done.returncode == 0, done.stderr


def test_a_process_ends_although_a_tracker_hangs(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import threading\nfrom trainlattice import Tracker, register_tracker\n\n\n"
        "@register_tracker('stuck')\nclass Stuck(Tracker):\n"
        "    def log(self, record):\n        threading.Event().wait()\n"
    )
    text = "trackers: [{name: stuck, timeout_sec: 0.2}]\nplugins: {local: [mine.py]}\n"
    path = write_tiny(tmp_path)
    path.write_text(path.read_text() + text)
    done = run_cli("train", path, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "tracker 'stuck' did not finish within 0.2 s" in done.stderr


# --- however a run ends ---------------------------------------------------------------------------


def test_signals_reach_the_run_and_not_its_trackers(tmp_path):
    def end():
        signal.raise_signal(signal.SIGTERM)

    with pytest.raises(RunTerminated):
        train(tracked({}), tmp_path, extra_callbacks=[At(2, end)])
    assert {signal.SIGINT, signal.SIGTERM, signal.SIGUSR1} <= SEEN[0].mask
    (run,) = run_dirs(tmp_path)
    assert SEEN[0].status == ("interrupted", "SIGTERM")
    assert manifest(run)["error"] == {"type": "RunTerminated", "message": "SIGTERM"}
    assert SEEN[0].lines == lines_of(run)
    assert SEEN[0].lines[-1]["status"] == "interrupted"
    assert checkpoint(run)["trainer"]["global_step"] == 2


def test_sigterm_while_a_tracker_works_is_the_runs(tmp_path):
    config = {**tracked(), "trackers": ["kills"]}
    with pytest.raises(RunTerminated):
        train(config, tmp_path, extra_callbacks=[waits_for(KILLED)])
    (run,) = run_dirs(tmp_path)
    assert 2 <= checkpoint(run)["trainer"]["global_step"] <= 3


def test_an_exception_and_ctrl_c_finish_it_too(tmp_path):
    def fail():
        raise ValueError("a callback")

    def interrupt():
        raise KeyboardInterrupt

    for action, kind, status in (
        (fail, ValueError, ("failed", "a callback")),
        (interrupt, KeyboardInterrupt, ("interrupted", "KeyboardInterrupt")),
    ):
        SEEN.clear()
        with pytest.raises(kind):
            train(tracked({}), tmp_path, extra_callbacks=[At(2, action)])
        assert SEEN[0].status == status
        assert SEEN[0].lines == lines_of(run_dirs(tmp_path)[-1])


# --- resuming, and what only looks at a run -------------------------------------------------------


def test_trackers_may_change_on_resume_and_are_told_of_the_chain(tmp_path):
    first = train(tracked(trainer={"epochs": 1}), tmp_path).run_dir
    ways = ["trainer.epochs=2", "trackers=[{name: notes}]"]
    second = resume_run(first, overrides=ways).run_dir
    third = resume_run(second, overrides=["trainer.epochs=3", "trackers=[{name: notes, as: other}]"]).run_dir
    assert [notes.run.continues for notes in SEEN] == [(first,), (first, second)]
    assert SEEN[1].run.resumed_from == second / "checkpoints" / "last.pt"
    assert SEEN[0].lines == lines_of(second)
    whole = train(tracked(trainer={"epochs": 3}), tmp_path / "whole").run_dir
    assert_identical(checkpoint(third)["states"]["model/model"], checkpoint(whole)["states"]["model/model"])


FOLLOWS = """\
from pathlib import Path
from trainlattice import Tracker


class Follows(Tracker):
    def start(self, run):
        with open({path!r}, "a") as file:
            file.write("x")
"""


def test_evaluating_and_proofs_report_to_no_tracker(tmp_path, capsys):
    started = tmp_path / "started"
    source = FOLLOWS.format(path=str(started)).replace("class", "@register_tracker('follows')\nclass")
    (tmp_path / "mine.py").write_text(source.replace("import Tracker", "import Tracker, register_tracker"))
    path = write_tiny(tmp_path)
    text = path.read_text().replace("runs_dir: runs", f"runs_dir: {tmp_path / 'runs'}")
    path.write_text(text + "\ntrackers: [follows]\nplugins: {local: [mine.py]}\n")
    assert command_line(["train", str(path)]) == 0
    (run,) = run_dirs(tmp_path)
    assert evaluate_run(run).step == 6
    assert command_line(["runs", "reproduce", str(run)]) == 0
    assert started.read_text() == "x"
    capsys.readouterr()


def test_a_run_can_be_used_where_its_trackers_plugin_is_not(tmp_path):
    site = tmp_path / "site"
    declared = "Component('tracker', 'follows', 'trainlattice_plugin_follower.code:Follows')"
    code = FOLLOWS.format(path=str(tmp_path / "started"))
    fake_plugin(site, "follower", registration(declared), {"code.py": code})
    path = write_tiny(tmp_path)
    path.write_text(path.read_text() + "\ntrackers: [follows]\n")
    done = run_cli("train", path, cwd=tmp_path, site=site)
    assert done.returncode == 0, done.stderr
    (run,) = run_dirs(tmp_path)
    shutil.rmtree(site)
    assert run_cli("evaluate", run, cwd=tmp_path).returncode == 0
    more = ["--set", "trainer.epochs=3"]
    refused = run_cli("resume", run, *more, cwd=tmp_path)
    assert refused.returncode == 3
    assert "the plugin 'follower' is not installed" in refused.stderr
    done = run_cli("resume", run, *more, "--set", "trackers=[]", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_a_resumed_run_is_the_same_whatever_follows_it(tmp_path):
    whole = train(tracked({}), tmp_path / "whole").run_dir
    with pytest.raises(RunTerminated):
        train(tracked({}), tmp_path, extra_callbacks=[At(4, lambda: signal.raise_signal(signal.SIGTERM))])
    (part,) = run_dirs(tmp_path)
    assert_same_end(resume_run(part).run_dir, whole)
