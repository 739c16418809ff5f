"""All callbacks at once: resumed in the middle of an epoch, and none that was not asked for."""

import sys
from collections import Counter

import pytest
from torch import nn

from support.runs import (
    InterruptAtStep,
    assert_identical,
    checkpoint,
    manifest,
    records,
    run_dirs,
    tiny,
    train,
    trained,
)
from trainlattice import Callback, register_model, register_postprocessor
from trainlattice.runs.compare import no_two_runs_share
from trainlattice.runs.evaluation import evaluate_run

pytestmark = pytest.mark.torch
ALL = [
    {"name": "progress"},
    {"name": "lr_monitor"},
    {"name": "throughput"},
    {"name": "grad_norm", "module_depth": 1, "patterns": ["bias"]},
    {"name": "param_histogram", "every_steps": 2, "gradients": True, "bins": 4},
    {"name": "ema", "decay": 0.8, "warmup": True, "average_buffers": True},
    {"name": "swa", "start_epoch": 2},
    {"name": "freeze", "params": ["first.*"], "until_step": 4},
    {"name": "profiler", "active": 1},
    {"name": "image_grid", "key": "post_processed/image"},
    {"name": "trial_summary"},
    {"name": "nan_report"},
]


@register_model("all_callbacks_net")
def all_callbacks_net(options):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.norm = nn.Linear(4, 12), nn.BatchNorm1d(12)
            self.last, self.dropout = nn.Linear(12, 3), nn.Dropout(0.2)

        def forward(self, x):
            return self.last(self.dropout(self.norm(self.first(x))).relu())

    return Net()


@register_postprocessor("rows_of_one_pixel")
def rows_of_one_pixel(options):
    return lambda value: value.unsqueeze(1)


def config(**trainer):
    made = tiny(
        model={"name": "all_callbacks_net"},
        trainer={"epochs": 3, "max_grad_norm": 0.5, "validate_every_steps": 2, **trainer},
        scheduler={"name": "warmup_cosine", "warmup_steps": 2},
    )
    made["postprocess"] = [{"name": "rows_of_one_pixel", "output": "image"}]
    return {**made, "checkpoint": {"every_steps": 1}, "callbacks": ALL}


def comparable(found):
    kept = [r for r in trained(found) if r["type"] != "event" or r["event"] == "skipped_step"]
    return [{key: value for key, value in r.items() if not no_two_runs_share(key)} for r in kept]


@pytest.mark.parametrize("step", [2, 4, 7])
def test_a_resume_in_the_middle_of_an_epoch_is_bit_identical(tmp_path, step):
    straight = train(config(), tmp_path / "straight").run_dir
    with pytest.raises(KeyboardInterrupt):
        train(config(), tmp_path, extra_callbacks=[InterruptAtStep(step + 1)])
    (first,) = run_dirs(tmp_path)
    held = checkpoint(first)
    assert (held["trainer"]["global_step"], held["states"]["progress"]["windows"]) == (step, step % 3)
    second = train(config(), tmp_path, resume=first).run_dir
    one, other = checkpoint(second), checkpoint(straight)
    for content in (one, other):
        content["config"]["experiment"].pop("runs_dir")
        for name in ("seconds", "data_seconds"):
            content["states"]["progress"].pop(name)
    assert_identical(one, other)
    before = [r for r in records(first) if r["step"] <= step]
    after = [r for r in records(second) if r["step"] > step]
    assert comparable(before + after) == comparable(records(straight))
    assert evaluate_run(second / "checkpoints" / "last.pt").metrics == (
        evaluate_run(straight / "checkpoints" / "last.pt").metrics
    )


def test_callbacks_that_only_look_leave_training_as_it_was(tmp_path):
    looking = [held for held in ALL if held["name"] != "freeze"]
    with_all = train({**config(), "callbacks": looking}, tmp_path / "all").run_dir
    with_none = train({**config(), "callbacks": []}, tmp_path / "none").run_dir
    for part in ("model/model", "update/optimizer"):
        assert_identical(checkpoint(with_all)["states"][part], checkpoint(with_none)["states"][part])
    assert_identical(checkpoint(with_all)["rng"], checkpoint(with_none)["rng"])
    assert manifest(with_all)["status"] == "finished"


def calls_of(name, directory, *, batch_size):
    """How often a function of the callbacks' modules was entered while a run trained, by its name."""
    entered = Counter()
    places = ("trainlattice/training/callbacks.py", "trainlattice_plugin_callbacks/")

    def note(frame, event, argument):
        if event == "call" and any(place in frame.f_code.co_filename for place in places):
            entered[frame.f_code.co_name] += 1

    class Counts(Callback):
        def on_run_start(self, trainer):
            sys.setprofile(note)

        def finalize(self, trainer, error):
            sys.setprofile(None)

    made = config(log_every=1000, validate_every_steps=None)
    made = {**made, "callbacks": [held for held in ALL if held["name"] == name], "checkpoint": {}}
    made["dataset"]["batch_size"] = batch_size
    result = train(made, directory, extra_callbacks=[Counts()])
    return result.global_step, entered


@pytest.mark.parametrize("name", ["", "ema", "throughput", "nan_report"])
def test_without_callbacks_the_number_of_calls_does_not_depend_on_the_number_of_steps(tmp_path, name):
    """The last three are there to see that it can."""
    few, calls_of_few = calls_of(name, tmp_path / "few", batch_size=10)
    many, calls_of_many = calls_of(name, tmp_path / "many", batch_size=2)
    assert (few, many) == (6, 30)
    assert (calls_of_few == calls_of_many) is (not name)
