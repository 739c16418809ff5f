"""``train`` and ``resume``: exit codes, what is printed, and where the files of a run go."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.configs import TINY, write_tiny

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

CALLBACK = '''\
import os
import signal

from trainlattice import Callback, Options, register_callback


class ActOptions(Options):
    act: str


@register_callback("act", options=ActOptions)
class Act(Callback):
    """Does something when the second epoch ends."""

    def __init__(self, options):
        self.act = options.act

    def on_epoch_end(self, trainer, metrics):
        if trainer.state.epoch < 2:
            return
        if self.act == "stop":
            trainer.request_stop("enough for today")
        elif self.act == "interrupt":
            os.kill(os.getpid(), signal.SIGINT)
        elif self.act == "poison":
            next(trainer.parts.models["model"].parameters()).data.fill_(float("nan"))
        elif self.act != "nothing":
            raise {"value": ValueError, "eof": EOFError, "key": KeyError}[self.act]("the sky is falling")
'''
ACTING = ("tiny.yaml", "--plugin", "act.py", "--set", "trainer.epochs=3")


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current directory with a configuration and a callback."""
    monkeypatch.chdir(tmp_path)
    write_tiny(tmp_path)
    (tmp_path / "act.py").write_text(CALLBACK)
    return tmp_path


def only_run(runs: Path) -> Path:
    (manifest,) = runs.glob("*/manifest.json")
    return manifest.parent


def manifest_of(run: Path) -> dict[str, Any]:
    return json.loads((run / "manifest.json").read_text(encoding="utf-8"))


def act(what: str) -> tuple[str, ...]:
    return (*ACTING, "--set", f"callbacks=[{{name: act, act: {what}}}]")


# --- exit codes -----------------------------------------------------------------------------------


def test_a_run_that_finishes_exits_with_0_and_says_where_it_is_and_how_to_go_on(cli: Callable, project: Path):
    said = cli("train", "tiny.yaml")
    assert (said.code, said.err) == (0, "")
    run = only_run(project / "runs")
    summary = said.out[said.out.index("Run finished") :].splitlines()
    assert summary[0] == f"Run finished: {run.relative_to(project)}"
    assert summary[1].startswith("  best     val_loss ")
    assert summary[2].endswith(", 6 optimizer steps")
    assert manifest_of(run)["status"] == "finished"
    command = next(line.split("  ")[-1] for line in summary if line.strip().startswith("resume "))
    said = cli(*shlex.split(command)[1:])
    assert said.code == 0
    assert "epoch 4/4" in said.out


def test_a_run_that_stops_early_exits_with_0_and_the_reason(cli: Callable, project: Path):
    stopping = "trainer.early_stopping={patience: 0, min_delta: 1000}"
    said = cli("train", "tiny.yaml", "--set", "trainer.epochs=9", "--set", stopping)
    assert said.code == 0
    assert "stopped  early stopping: val_loss did not improve" in said.out
    manifest = manifest_of(only_run(project / "runs"))
    assert (manifest["status"], manifest["epoch"]) == ("finished", 2)
    assert manifest["stop_reason"].startswith("early stopping")


def test_a_run_that_a_callback_stops_exits_with_0_and_the_reason(cli: Callable, project: Path):
    said = cli("train", *act("stop"))
    assert said.code == 0
    assert "stopped  enough for today" in said.out
    assert manifest_of(only_run(project / "runs"))["epoch"] == 2


@pytest.mark.parametrize(
    ("what", "error"), [("value", "ValueError"), ("key", "KeyError"), ("eof", "EOFError")]
)
def test_an_exception_in_training_exits_with_1_and_its_traceback(
    cli: Callable, project: Path, what: str, error: str
):
    said = cli("train", *act(what))
    assert said.code == 1
    assert f"{error}: " in said.err
    assert "the sky is falling" in said.err
    assert "act.py" in said.err  # its author needs the line
    run = only_run(project / "runs")
    manifest = manifest_of(run)
    assert (manifest["status"], manifest["error"]["type"]) == ("failed", error)
    assert {file.name for file in (run / "checkpoints").glob("*.pt")} >= {"last.pt", "emergency.pt"}


def test_a_run_that_failed_between_two_epochs_is_resumed_with_the_next(cli: Callable, project: Path):
    cli("train", *act("value"))
    said = cli("resume", only_run(project / "runs"), "--set", "callbacks=[{name: act, act: nothing}]")
    assert said.code == 0
    assert "epoch 3/3" in said.out
    assert "epoch 2/3" not in said.out


def test_an_interrupt_exits_with_130_and_says_so(cli: Callable, project: Path):
    said = cli("train", *act("interrupt"))
    assert said.code == 130
    assert "interrupted" in said.err
    assert "Traceback" not in said.err
    assert manifest_of(only_run(project / "runs"))["status"] == "interrupted"


def test_a_loss_that_is_no_number_exits_with_12(cli: Callable, project: Path):
    said = cli("train", *act("poison"))
    assert said.code == 12
    assert "after step 6 the weight layers.1.weight of the model is not finite" in said.err
    assert "Traceback" not in said.err


def test_a_run_directory_that_is_gone_at_the_end_exits_with_1_and_the_file_that_could_not_be_written(
    cli: Callable, project: Path
):
    (project / "act.py").write_text(
        CALLBACK + "\n    def finalize(self, trainer, error):\n"
        "        __import__('shutil').rmtree(trainer.run_dir)\n"
    )
    said = cli("train", *act("nothing"))
    assert said.code == 1
    assert "manifest.json could not be written: No such file or directory" in said.err
    assert str(project / "runs") in said.err
    assert "Traceback" not in said.err


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device of Linux")
def test_records_that_cannot_be_written_exit_with_1_and_name_their_file(cli: Callable, project: Path):
    (project / "act.py").write_text(
        CALLBACK + "\n    def on_step_end(self, trainer):\n"
        "        from support.disks import fill_the_disk_of\n"
        "        if trainer.state.global_step == 4:\n"
        "            fill_the_disk_of(trainer.run_dir / 'metrics.jsonl')\n"
        "            __import__('logging').getLogger('trainlattice.act').warning('on the way')\n"
    )
    said = cli("train", *act("nothing"))
    assert said.code == 1
    assert "metrics.jsonl could not be written: No space left on device" in said.err
    assert "Traceback" not in said.err
    run = only_run(project / "runs")
    assert manifest_of(run)["status"] == "failed"
    assert (run / "checkpoints" / "last.pt").is_file()


def test_a_plugin_at_fault_exits_with_3_and_leaves_no_run_directory(cli: Callable, project: Path):
    (project / "act.py").write_text("raise SystemExit('no licence')\n")
    said = cli("train", *ACTING)
    assert said.code == 3
    assert "SystemExit: no licence" in said.err
    assert not (project / "runs").exists()


def test_a_component_that_cannot_be_built_exits_with_3_and_its_name(cli: Callable, project: Path):
    (project / "act.py").write_text(CALLBACK.replace("self.act = options.act", "raise OSError('no camera')"))
    said = cli("train", *act("nothing"))
    assert said.code == 3
    assert "callback 'local:act'" in said.err
    assert "OSError: no camera" in said.err
    assert not (project / "runs").exists()


def test_nothing_left_to_train_exits_with_0(cli: Callable, project: Path):
    cli("train", "tiny.yaml")
    run = only_run(project / "runs")
    said = cli("resume", run)
    assert said.code == 0
    assert "nothing is left to train" in said.out
    assert only_run(project / "runs") == run


# --- streams --------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("default")
def test_records_up_to_info_go_to_stdout_and_warnings_to_stderr(cli: Callable, project: Path):
    (project / "act.py").write_text(
        CALLBACK.replace(
            'self.act == "stop":',
            'self.act == "warn":\n'
            "            import logging, warnings\n"
            '            warnings.warn("python says so", UserWarning)\n'
            '            logging.getLogger("trainlattice.mine").warning("so do I")\n'
            '            logging.getLogger("trainlattice.mine").info("good to know")\n'
            '        elif self.act == "stop":',
        )
    )
    said = cli("train", *act("warn"))
    assert said.code == 0
    assert "[INFO] trainlattice.mine: good to know" in said.out
    assert "[WARNING] trainlattice.mine: so do I" in said.err
    assert "UserWarning: python says so" in said.err
    assert "python says so" not in said.out
    assert "[INFO]" not in said.err


def test_verbose_shows_debug_records(cli: Callable, project: Path):
    source = CALLBACK.replace(
        "self.act = options.act",
        "self.act = options.act\n        __import__('logging').getLogger('trainlattice.mine').debug('details')",
    )
    (project / "act.py").write_text(source)
    assert "details" not in cli("train", *act("nothing")).out
    assert "[DEBUG] trainlattice.mine: details" in cli("train", *act("nothing"), "-v").out


# --- paths ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "directory", ["r un=1,é新/[x] %d {y}", "-runs", "a: b", "my 'runs' #2", "{y: 1}", "~x"]
)
def test_a_run_goes_exactly_where_it_is_told(cli: Callable, project: Path, directory: str):
    said = cli("train", "tiny.yaml", f"--runs-dir={directory}", "--set", "trainer.epochs=1")
    assert said.code == 0, said.err
    run = only_run(project / directory)
    assert {file.name for file in run.iterdir()} == {
        "config.yaml",
        "manifest.json",
        "environment.json",
        "metrics.jsonl",
        "checkpoints",
    }
    assert not (project / "runs").exists()
    command = said.out.partition("  resume ")[2].strip()
    assert cli(*shlex.split(command)[1:]).code == 0


def test_a_checkpoint_is_resumed_from_where_it_lies_and_under_any_name(
    cli: Callable, project: Path, monkeypatch: pytest.MonkeyPatch
):
    cli("train", "tiny.yaml")
    run = only_run(project / "runs")
    for name in ("-best.pt", "epoch=6, step #1.pt", "é新.pt"):
        shutil.copy(run / "checkpoints" / "last.pt", run / "checkpoints" / name)
    monkeypatch.chdir(run / "checkpoints")
    for path in ("last.pt", "./-best.pt", "epoch=6, step #1.pt", "é新.pt"):
        said = cli("resume", path, "--set", "trainer.epochs=3")
        assert said.code == 0, said.err
        assert "epoch 3/3" in said.out
    assert cli("resume", "--set", "trainer.epochs=3", "--", "-best.pt").code == 0
    train = ("train", run / "config.yaml", "--set", "trainer.epochs=3")
    assert cli(*train, "--resume=-best.pt").code == 0
    assert cli(*train, "--resume", "../checkpoints").code == 0


def test_a_run_is_resumed_without_its_configuration_and_local_file(
    cli: Callable, project: Path, monkeypatch: pytest.MonkeyPatch
):
    cli("train", *act("stop"))
    run = only_run(project / "runs")
    moved = project / "else where"
    moved.mkdir()
    run = run.rename(moved / "my run")
    for name in ("tiny.yaml", "act.py"):
        (project / name).unlink()
    monkeypatch.chdir(moved)
    said = cli("resume", "my run", "--set", "trainer.epochs=4", "--runs-dir", "x")
    assert said.code == 2  # a resumed run has its own configuration; runs_dir is set like any value
    said = cli("resume", "my run", "--set", "trainer.epochs=4", "--set", "experiment.runs_dir=new runs")
    assert said.code == 0, said.err
    assert only_run(moved / "new runs")


def test_the_command_is_recorded_so_that_it_can_be_run_again(
    cli: Callable, project: Path, monkeypatch: pytest.MonkeyPatch
):
    write_tiny(project, TINY, "my cfg.yaml")
    arguments = ["train", "my cfg.yaml", "--set", "trainer.epochs=1"]
    monkeypatch.setattr("sys.argv", ["trainlattice", *arguments])
    cli(*arguments)
    assert manifest_of(only_run(project / "runs"))["command"] == (
        "trainlattice train 'my cfg.yaml' --set trainer.epochs=1"
    )


def test_an_interrupted_run_says_how_to_continue(cli: Callable, project: Path):
    said = cli("train", *act("interrupt"))
    assert said.code == 130
    line = next(line for line in said.out.splitlines() if "to continue: " in line)
    assert "interrupted" in line
    resumed = cli(
        *shlex.split(line.partition("to continue: ")[2])[1:], "--set", "callbacks=[{name: act, act: nothing}]"
    )
    assert resumed.code == 0
    assert "epoch 3/3" in resumed.out


# --- the terminal and the process -----------------------------------------------------------------


def in_shell(arguments: str, directory: Path) -> subprocess.CompletedProcess[str]:
    command = f"{shlex.quote(sys.executable)} -m trainlattice {arguments}"
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], cwd=directory, capture_output=True, text=True, timeout=120
    )


def test_a_reader_that_leaves_ends_the_run_with_its_checkpoint_and_the_way_to_go_on(project: Path):
    """head closes the pipe after one line."""
    done = in_shell(
        "train tiny.yaml --set trainer.log_every=1 --set trainer.epochs=2000 | head -n 1", project
    )
    assert done.returncode == 1, done.stderr
    run = only_run(project / "runs")
    manifest = manifest_of(run)
    assert (manifest["status"], manifest["error"]["type"]) == ("interrupted", "ConsoleClosed")
    assert {path.name for path in (run / "checkpoints").glob("*.pt")} <= {"last.pt", "best.pt"}
    assert "standard output was closed: saving last.pt after this step and leaving" in done.stderr
    assert f"to continue: trainlattice resume {run}" in done.stderr
    assert "Traceback" not in done.stderr
    steps = [json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert max(steps) == manifest["global_step"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device of Linux")
def test_a_run_that_is_complete_exits_with_0_though_nobody_can_read_its_summary(project: Path):
    assert in_shell("train tiny.yaml > /dev/full", project).returncode == 0
    assert manifest_of(only_run(project / "runs"))["status"] == "finished"


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="Windows has no SIGUSR1")
@pytest.mark.parametrize("command", ["train tiny.yaml", "resume RUN --set trainer.epochs=3"])
def test_a_request_to_save_that_comes_before_training_ends_nothing(project: Path, command: str):
    (project / "act.py").write_text(CALLBACK + "\n\nos.kill(os.getpid(), signal.SIGUSR1)\n")
    if "RUN" in command:
        assert in_shell("train tiny.yaml", project).returncode == 0
        command = command.replace("RUN", shlex.quote(str(only_run(project / "runs"))))
    done = in_shell(f"{command} --plugin act.py --set 'callbacks=[{{name: act, act: nothing}}]'", project)
    assert done.returncode == 0, done.stderr
    assert "SIGUSR1: no training is under way, so there is nothing to save" in done.stderr


def test_a_current_directory_that_was_deleted_is_named(project: Path):
    gone = project / "gone"
    gone.mkdir()
    python, config = (shlex.quote(str(path)) for path in (sys.executable, project / "tiny.yaml"))
    command = f"cd gone && rmdir ../gone && {python} -m trainlattice train {config}"
    done = subprocess.run(["bash", "-c", command], cwd=project, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert (
        done.stderr.splitlines()[-1] == "error: the current directory was deleted; change to one that exists"
    )


def test_a_schedule_that_ran_out_is_no_offer_to_train_on(cli: Callable, project: Path):
    schedule = "{name: warmup_cosine, warmup_steps: 1"
    said = cli("train", "tiny.yaml", "--set", f"scheduler={schedule}}}")
    assert "  resume   not worthwhile: the learning rate has come down to 0" in said.out
    said = cli("train", "tiny.yaml", "--set", f"scheduler={schedule}, min_lr: 1.0e-5}}")
    assert "  resume   trainlattice resume " in said.out


def test_a_configuration_is_not_resumed(cli: Callable, project: Path):
    said = cli("resume", "tiny.yaml")
    assert said.code == 2
    assert said.err.rstrip().endswith(
        "tiny.yaml is a configuration; give a run directory or a checkpoint inside "
        "one, or begin a run: trainlattice train tiny.yaml"
    )


def test_a_run_that_fails_before_its_first_checkpoint_says_how_to_start_it_again(
    cli: Callable, project: Path
):
    (project / "act.py").write_text(
        CALLBACK + "\n    def on_run_start(self, trainer):\n        raise ValueError('no camera')\n"
    )
    said = cli("train", *act("nothing"))
    run = only_run(project / "runs")
    assert (
        f"failed before its first checkpoint; to start it again: trainlattice train {run}/config.yaml"
        in said.out
    )
    (run / "local" / "act.py").write_text(CALLBACK)
    assert cli("train", run / "config.yaml").code == 0


@pytest.mark.parametrize(
    ("limits", "offered"),
    [
        ({"epochs": "2"}, ["trainer.epochs=4"]),
        ({"epochs": "null", "max_steps": "6"}, ["trainer.max_steps=12"]),
        ({"epochs": "null", "max_samples": "40"}, ["trainer.max_samples=80"]),
        ({"epochs": "3", "max_steps": "4"}, ["trainer.max_steps=8"]),
        ({"epochs": "2", "max_steps": "6"}, ["trainer.epochs=4", "trainer.max_steps=12"]),
    ],
)
def test_the_way_to_train_on_raises_what_was_reached(
    cli: Callable, project: Path, limits: dict[str, str], offered: list[str]
):
    settings = [part for name, value in limits.items() for part in ("--set", f"trainer.{name}={value}")]
    said = cli("train", "tiny.yaml", *settings)
    line = next(line.strip() for line in said.out.splitlines() if line.startswith("  resume "))
    words = shlex.split(line)[2:]
    assert words[2:] == [part for setting in offered for part in ("--set", setting)]
    nothing = cli(*words[:2])
    assert f"nothing is left to train; {' '.join(words[2:])} trains on" in nothing.out
    assert cli(*words).code == 0
    assert len(list((project / "runs").iterdir())) == 2


def test_a_local_file_that_was_mended_takes_the_place_of_the_runs_copy(cli: Callable, project: Path):
    assert cli("train", *act("value")).code == 1
    run = only_run(project / "runs")
    (project / "act.py").write_text(CALLBACK.replace("the sky is falling", "never").replace("raise {", "{"))
    assert cli("resume", run).code == 1  # with its own copy
    said = cli("resume", run, "--plugin", "act.py")
    assert said.code == 0, said.err
    assert "epoch 3/3" in said.out
