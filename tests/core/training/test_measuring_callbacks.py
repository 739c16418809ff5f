"""What callbacks add to records, what they see of gradients, and what none of it costs who does not ask."""

from __future__ import annotations

import signal

import numpy
import pytest
import torch
from torch import nn

from support.by_hand import line
from support.runs import InOrder, checkpoint, manifest, records, run_dirs, tiny, train, weights
from trainlattice import Callback
from trainlattice.diagnostics.errors import (
    NonFiniteError,
    PluginError,
    RunTerminated,
    TrainLatticeError,
    WallTimeReached,
)
from trainlattice.training.callbacks import CallbackList
from trainlattice.training.failures import Ending

pytestmark = pytest.mark.torch
POINTS = {"x": [1.0] * 4, "y": [1.0] * 4, "val_x": [1.0, 1.0], "val_y": [1.0, 1.0], "batch_size": 1}


class Measures(Callback):
    """Steps so far, on the device and on the host."""

    def __init__(self, name="mine"):
        self.name, self.asked = name, []

    def measure(self, trainer, record):
        self.asked.append((record, trainer.state.global_step))
        step = trainer.state.global_step
        return {
            f"{self.name}/device": torch.tensor([step], dtype=torch.int32),
            f"{self.name}/host": step + 0.5,
        }


def test_numbers_of_callbacks_stand_in_the_records_that_are_written(tmp_path):
    seen = Measures()
    run = train(line(dataset=POINTS, trainer={"log_every": 2}), tmp_path, extra_callbacks=[seen]).run_dir
    assert seen.asked == [("batch", 2), ("batch", 4), ("validation", 4), ("epoch", 4)]
    found = [record for record in records(run) if record["type"] != "event"]
    assert [(r["mine/device"], r["mine/host"]) for r in found] == [(2.0, 2.5), *[(4.0, 4.5)] * 3]
    assert not any("mine/host" in record for record in records(run, "event"))


def test_they_come_with_the_one_transfer_of_the_record(tmp_path, monkeypatch):
    transfers = []
    to_list = torch.Tensor.tolist

    def tolist(tensor):
        transfers.append(tuple(tensor.shape))
        return to_list(tensor)

    class Watches(Callback):
        def on_gradients(self, trainer, role):
            transfers.clear()

        def log_metrics(self, trainer, record):
            if record["type"] == "batch":
                assert transfers == [(3,)]  # the loss, the number of the callback, whether all is finite

    with monkeypatch.context() as patch:
        patch.setattr(torch.Tensor, "tolist", tolist)
        train(line(dataset=POINTS), tmp_path, extra_callbacks=[Measures(), Watches()])


@pytest.mark.parametrize(
    ("kind", "name"),
    [("batch", "loss"), ("batch", "steps_per_sec"), ("epoch", "train_loss"), ("validation", "time")],
)
def test_a_name_that_the_record_has_is_an_error_and_costs_neither_record_nor_step(tmp_path, kind, name):
    class Takes(Callback):
        def measure(self, trainer, record):
            return {name: 1.0} if record == kind else {}

    with pytest.raises(TrainLatticeError, match=rf"measures '{name}' for a {kind} record, and the record"):
        train(line(dataset=POINTS), tmp_path, extra_callbacks=[Takes()])
    (run,) = run_dirs(tmp_path)
    assert len(records(run, kind)) == 1
    assert checkpoint(run)["trainer"]["global_step"] == (1 if kind == "batch" else 4)


def test_two_callbacks_that_measure_one_name_are_both_named(tmp_path):
    with pytest.raises(TrainLatticeError, match=r"'extra#2' measures 'mine/device' .*the callback 'extra#1'"):
        train(line(dataset=POINTS), tmp_path, extra_callbacks=[Measures(), Measures()])


@pytest.mark.parametrize("value", [torch.ones(2), "three", None, torch.tensor(1j)])
def test_what_is_no_number_is_refused(tmp_path, value):
    class Wrong(Callback):
        def measure(self, trainer, record):
            return {"wrong": value}

    with pytest.raises(TrainLatticeError, match=r"'extra#1' measures 'wrong' as a .*, expected a number"):
        train(line(dataset=POINTS), tmp_path, extra_callbacks=[Wrong()])


def test_a_step_after_which_measuring_fails_was_taken_and_can_be_resumed(tmp_path):
    class Fails(Callback):
        def measure(self, trainer, record):
            if trainer.state.global_step == 2:
                raise ZeroDivisionError
            return {}

    plain = train(line(dataset=POINTS), tmp_path / "plain").run_dir
    with pytest.raises(ZeroDivisionError):
        train(line(dataset=POINTS), tmp_path, extra_callbacks=[Fails()])
    (run,) = run_dirs(tmp_path)
    assert [record["step"] for record in records(run, "batch")] == [1, 2]
    assert checkpoint(run)["trainer"]["global_step"] == 2
    resumed = train(line(dataset=POINTS), tmp_path, resume=run).run_dir
    assert weights(resumed)["w"] == weights(plain)["w"]


def test_of_a_callback_that_fails_no_number_is_recorded_and_of_others_each(tmp_path):
    class Clashes(Callback):
        def measure(self, trainer, record):
            return {"before": 1.0, "loss": 2.0}

    with pytest.raises(TrainLatticeError, match=r"'extra#2' measures 'loss'"):
        train(
            line(dataset=POINTS),
            tmp_path,
            extra_callbacks=[Measures("one"), Clashes(), Measures("before/two")],
        )
    (run,) = run_dirs(tmp_path)
    (record,) = records(run, "batch")
    assert "before" not in record
    assert (record["one/host"], record["before/two/host"]) == (1.5, 1.5)


def test_a_name_of_a_callback_that_failed_is_free_for_the_next(tmp_path):
    class Fails(Callback):
        def measure(self, trainer, record):
            return {"both": 1.0, "wrong": None}

    class Works(Callback):
        def measure(self, trainer, record):
            return {"both": 2.0}

    with pytest.raises(TrainLatticeError, match=r"'extra#1' measures 'wrong' as a NoneType"):
        train(line(dataset=POINTS), tmp_path, extra_callbacks=[Fails(), Works()])
    (run,) = run_dirs(tmp_path)
    assert records(run, "batch")[0]["both"] == 2.0


@pytest.mark.parametrize("kind", [numpy.float16, numpy.float32, numpy.float64, numpy.int64, int, bool])
def test_every_real_number_is_one(tmp_path, kind):
    class Counts(Callback):
        def measure(self, trainer, record):
            return {"counted": kind(1)}

    run = train(line(dataset=POINTS), tmp_path, extra_callbacks=[Counts()]).run_dir
    assert [type(record["counted"]) for record in records(run, "batch")] == [float] * 4


# --- gradients


class Gradients(Callback):
    def __init__(self):
        self.seen = []

    def on_gradients(self, trainer, role):
        self.seen.append((trainer.state.global_step, role, trainer.parts.models["model"].w.grad.item()))


class EveryGradient(Gradients):
    sees_every_gradient = True


def test_gradients_are_seen_of_steps_that_are_logged_before_they_are_clipped(tmp_path):
    """At w = 0 the gradient is 2 (w - 1); clipped to 0.5, each step adds 0.05."""
    some, every = Gradients(), EveryGradient()
    config = line(
        dataset={**POINTS, "batch_size": 2}, trainer={"epochs": 2, "log_every": 2, "max_grad_norm": 0.5}
    )
    train(config, tmp_path, extra_callbacks=[some, every])
    assert [seen[:2] for seen in every.seen] == [(step, "optimizer") for step in range(4)]
    assert [seen[2] for seen in every.seen] == pytest.approx([-2.0, -1.9, -1.8, -1.7], rel=1e-5)
    assert some.seen == [every.seen[1], every.seen[3]]


def test_they_are_those_of_the_whole_window(tmp_path):
    seen = Gradients()
    points = {"x": [1.0] * 3, "y": [1.0, 2.0, 6.0], "batch_size": 1}
    train(line(dataset=points, trainer={"accumulate": 3}), tmp_path, extra_callbacks=[InOrder(), seen])
    assert [gradient for _, _, gradient in seen.seen] == pytest.approx([-6.0], rel=1e-6)


# --- what it costs


def test_a_run_whose_callbacks_override_nothing_calls_none_of_their_methods(tmp_path, monkeypatch):
    """Counted: every method of the base class that a run could call for a batch, a step or a record."""
    calls = []

    def counting(name, original):
        def method(*arguments, **named):
            calls.append(name)
            return original(*arguments, **named)

        return method

    for name in (
        *("on_batch_start", "on_batch_end", "on_gradients", "on_lr_update", "on_step_end", "measure"),
        *("log_metrics", "on_phase_start", "on_phase_end", "on_epoch_start", "on_epoch_end", "on_checkpoint"),
    ):
        monkeypatch.setattr(Callback, name, counting(name, getattr(Callback, name)))

    class Plain(Callback):
        pass

    class Looks(Callback):
        def on_step_end(self, trainer):
            assert not any(update.observe_gradients for update in trainer.parts.updates.values())
            assert not any(model._forward_hooks for model in trainer.parts.models["model"].modules())

    train({**tiny(), "callbacks": []}, tmp_path, extra_callbacks=[Plain(), Looks()])
    assert calls == []


def test_batches_are_shown_in_the_phases_that_a_callback_asks_for(tmp_path):
    class OfValidation(Callback):
        batch_phases = ("val",)

        def __init__(self):
            self.seen = []

        def on_batch_start(self, trainer, phase, container):
            self.seen.append(("start", phase))

        def on_batch_end(self, trainer, phase, container):
            self.seen.append(("end", phase))

    seen = OfValidation()
    bound = CallbackList([("seen", seen)])
    assert bound.on_batch_end["train"] == bound.on_batch_start["test"] == []
    train(line(dataset=POINTS), tmp_path, extra_callbacks=[seen])
    assert seen.seen == [("start", "val"), ("end", "val")] * 2


def test_whether_the_training_of_an_epoch_ends_or_the_run_inside_it(tmp_path):
    class Asks(Callback):
        def __init__(self):
            self.seen = []

        def on_phase_end(self, trainer, phase):
            if phase == "train":
                self.seen.append(trainer.epoch_is_over)

    seen = Asks()
    train(line(dataset=POINTS, trainer={"epochs": None, "max_steps": 6}), tmp_path, extra_callbacks=[seen])
    assert seen.seen == [True, False]


# --- targets and endings


def test_how_a_run_ended_says_the_exit_code_of_its_command():
    found = [
        Ending.of(error)
        for error in (
            None,
            NonFiniteError("x"),
            torch.OutOfMemoryError("x"),
            PluginError("x"),
            ValueError("x"),
            SystemExit(7),  # of a component
            KeyboardInterrupt(),
            RunTerminated(128 + signal.SIGTERM),
            WallTimeReached("x"),
        )
    ]
    assert [(ending.status, ending.exit_code) for ending in found] == [
        ("finished", 0),
        ("failed", 12),
        ("failed", 10),
        ("failed", 3),
        ("failed", 1),
        ("failed", 1),
        ("interrupted", 130),
        ("interrupted", 143),
        ("interrupted", 13),
    ]


def test_a_callback_may_see_the_parts_of_the_run_when_it_is_built(tmp_path):
    from trainlattice import OptionError, Options, register_callback

    class WantsOptions(Options):
        layer: str

    @register_callback("wants_a_layer", options=WantsOptions)
    class Wants(Callback):
        def __init__(self, options, parts):
            model = parts.models["model"]
            assert isinstance(model, nn.Module)
            if not hasattr(model, options.layer):
                raise OptionError("layer", f"the model has no {options.layer!r}")

    config = line(dataset=POINTS)
    train({**config, "callbacks": [{"name": "wants_a_layer", "layer": "w"}]}, tmp_path)
    with pytest.raises(TrainLatticeError, match=r"the model has no 'v'"):
        train({**config, "callbacks": [{"name": "wants_a_layer", "layer": "v"}]}, tmp_path / "no")
    assert not (tmp_path / "no" / "runs").exists()
    assert manifest(run_dirs(tmp_path)[0])["status"] == "finished"


@pytest.mark.parametrize("key", [1, None, ("a", "b")])
def test_a_number_without_a_name_is_refused_and_costs_no_step(tmp_path, key):
    class Numbers(Callback):
        def measure(self, trainer, record):
            return {key: 2.0}

    with pytest.raises(TrainLatticeError, match=r"the callback 'extra#1' measures .*, which is no name"):
        train(tiny(), tmp_path, extra_callbacks=[Numbers()])
    (run,) = run_dirs(tmp_path)
    assert checkpoint(run)["trainer"]["global_step"] == 1
    assert records(run, "batch")[0]["step"] == 1
