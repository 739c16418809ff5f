"""trial_summary.json says how a run ended, whatever ended it, with the exit code of the command."""

import json
import math
import re
import resource
import signal
from pathlib import Path

import pytest
import torch

from support.by_hand import line, scripted
from support.cli import run_cli
from support.configs import TINY, write_tiny
from support.runs import interrupted, manifest, records, run_dirs, tiny, train
from trainlattice import Callback
from trainlattice.diagnostics.errors import NonFiniteError, RunTerminated, WallTimeReached

pytestmark = pytest.mark.torch
POINTS = {"x": [1.0] * 4, "y": [1.0] * 4, "val_x": [1.0, 1.0], "val_y": [1.0, 1.0], "batch_size": 2}
DOCS = Path(__file__).parents[3] / "docs"


def with_summary(config, *others):
    return {**config, "callbacks": [*others, {"name": "trial_summary"}]}


def summary(run):
    def refuse(constant):
        raise AssertionError(f"{constant} is not strict JSON")

    return json.loads((run / "trial_summary.json").read_text(), parse_constant=refuse)


def ended(config, directory, error, *callbacks):
    """The summary of a run that this error ends, and its directory."""
    with pytest.raises(error):
        train(with_summary(config), directory, extra_callbacks=callbacks)
    (run,) = run_dirs(directory)
    return summary(run), run


class Raises(Callback):
    """After the third step."""

    def __init__(self, error):
        self.error = error

    def on_step_end(self, trainer):
        if trainer.state.global_step == 3:
            raise self.error


def test_of_a_run_that_finished(tmp_path):
    result = train(with_summary(tiny(trainer={"epochs": 3})), tmp_path)
    found = summary(result.run_dir)
    assert (found["status"], found["exit_code"], found["reason"], found["error"]) == (
        "finished",
        0,
        None,
        None,
    )
    assert (found["epochs"], found["steps"], found["samples"], found["skipped_steps"]) == (3, 9, 60, 0)
    assert found["parameters"] == found["trained_parameters"] == 4 * 8 + 8 + 8 * 3 + 3
    best = found["best"]
    assert (best["monitor"], best["value"], best["epoch"]) == (
        "val_loss",
        result.best_metric,
        result.best_epoch,
    )
    for kind in ("batch", "validation", "epoch"):
        last = records(result.run_dir, kind)[-1]
        assert found["last"][kind] == {k: v for k, v in last.items() if k not in ("schema", "time", "type")}
    assert 0 < found["seconds"] <= result.seconds
    assert found["samples_per_sec"] == pytest.approx(60 / found["seconds"])
    assert found["peak_memory_mb"]["device"] is None
    now = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    assert now / 2 < found["peak_memory_mb"]["host"] <= now


def test_samples_a_second_are_those_of_this_process(tmp_path):
    config = with_summary(tiny(trainer={"epochs": 3}))
    first = interrupted(config, tmp_path, epochs=2)
    found = summary(train(config, tmp_path, resume=first).run_dir)
    assert found["samples"] == 60
    assert found["samples_per_sec"] == pytest.approx(20 / found["seconds"])


def test_an_early_stop_is_a_success_with_a_reason(tmp_path):
    config = scripted([1.0, 2.0, 3.0, 4.0], early_stopping={"patience": 1})
    found = summary(train(with_summary(config), tmp_path).run_dir)
    assert (found["status"], found["exit_code"], found["epochs"]) == ("finished", 0, 3)
    assert found["reason"] == "early stopping: val_loss did not improve in 2 validations"
    assert found["best"] == {"monitor": "val_loss", "value": 1.0, "epoch": 1, "step": found["best"]["step"]}


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [
        (ValueError("the tracker is gone"), "ValueError", 1),
        (torch.OutOfMemoryError("no room"), "OutOfMemoryError", 10),
    ],
)
def test_after_a_failure(tmp_path, error, kind, code):
    found, run = ended(tiny(), tmp_path, Exception, Raises(error))
    assert (found["status"], found["exit_code"], found["steps"]) == ("failed", code, 3)
    assert found["error"] == manifest(run)["error"]
    assert found["error"]["type"] == kind
    assert found["reason"] == found["error"]["message"]
    assert found["last"]["batch"]["step"] == 3


def test_after_a_loss_that_is_not_finite(tmp_path):
    config = line(dataset={**POINTS, "x": [3e38] * 4, "y": [-3e38] * 4})
    found, run = ended(config, tmp_path, NonFiniteError)
    assert (found["status"], found["exit_code"], found["steps"]) == ("failed", 12, 0)
    assert found["error"] == manifest(run)["error"]


@pytest.mark.parametrize(
    ("number", "error", "code"),
    [(signal.SIGINT, KeyboardInterrupt, 130), (signal.SIGTERM, RunTerminated, 143)],
)
def test_after_a_signal(tmp_path, number, error, code):
    class Sends(Callback):
        def on_step_end(self, trainer):
            if trainer.state.global_step == 2:
                signal.raise_signal(number)

    found, run = ended(tiny(), tmp_path, error, Sends())
    assert (found["status"], found["exit_code"], found["error"]) == ("interrupted", code, None)
    assert found["reason"] == manifest(run)["error"]["message"]
    assert found["steps"] == 2


def test_after_the_end_of_its_time(tmp_path):
    found, _ = ended(tiny(trainer={"max_wall_time_sec": 1e-9}), tmp_path, WallTimeReached)
    assert (found["status"], found["exit_code"]) == ("interrupted", 13)
    assert found["reason"].startswith("trainer.max_wall_time_sec")


def test_a_number_that_is_not_finite_is_null(tmp_path):
    config = {**scripted([math.inf], nonfinite="continue"), "checkpoint": {"keep_best": 0}}
    found = summary(train(with_summary(config), tmp_path).run_dir)
    assert found["last"]["validation"]["val_loss"] is None
    assert found["best"]["value"] is None


@pytest.mark.parametrize("failing", [False, True])
def test_the_exit_code_is_that_of_the_command(tmp_path, failing):
    callbacks = "callbacks: [{name: trial_summary}]\n"
    if failing:
        (tmp_path / "fails.py").write_text(FAILS)
        callbacks = "callbacks: [{name: gives_up}, {name: trial_summary}]\nplugins: {local: [fails.py]}\n"
    write_tiny(tmp_path, TINY + callbacks)
    done = run_cli("train", "tiny.yaml", cwd=tmp_path)
    (run,) = (tmp_path / "runs").iterdir()
    assert summary(run)["exit_code"] == done.returncode == (12 if failing else 0)


FAILS = """
from trainlattice import Callback, register_callback
from trainlattice.diagnostics.errors import NonFiniteError


@register_callback("gives_up")
class GivesUp(Callback):
    def on_step_end(self, trainer):
        raise NonFiniteError("given up")
"""


def test_every_exit_code_of_a_run_stands_in_the_documentation():
    documented = set(re.findall(r"^\| (\d+) \|", (DOCS / "exit-codes.md").read_text(), re.MULTILINE))
    assert {"0", "1", "10", "11", "12", "13", "130", "143"} <= documented
