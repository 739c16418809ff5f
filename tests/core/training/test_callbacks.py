"""Callbacks: what is called, when, and in which order."""

import signal
from contextlib import contextmanager

import pytest
import torch

from support.by_hand import line
from support.runs import InterruptAfter, checkpoint, manifest, records, run_dirs, train, weights
from trainlattice import Callback, Options, register_callback
from trainlattice.diagnostics.errors import CheckpointWriteError, RunTerminated
from trainlattice.training.callbacks import CallbackList

pytestmark = pytest.mark.torch
POINTS = {"x": [1.0] * 4, "y": [1.0] * 4, "val_x": [1.0, 1.0], "val_y": [1.0, 1.0], "batch_size": 2}
EVENTS = []


class Everything(Callback):
    """Notes every call."""

    def __init__(self, name="", events=None):
        self.name = name
        self.events = EVENTS if events is None else events

    def note(self, *what):
        self.events.append((self.name, *what) if self.name else what)

    def on_run_start(self, trainer):
        self.note("run_start", trainer.state.global_step)

    def on_phase_start(self, trainer, phase):
        self.note("phase_start", phase)

    def on_epoch_start(self, trainer):
        self.note("epoch_start", trainer.state.epoch)

    def on_batch_end(self, trainer, phase, container):
        self.note("batch_end", phase, sorted(container))

    def on_step_end(self, trainer):
        self.note("step_end", trainer.state.global_step)

    def on_phase_end(self, trainer, phase):
        self.note("phase_end", phase)

    def log_metrics(self, trainer, record):
        self.note("log", record["type"], record["step"])

    def on_checkpoint(self, trainer, path):
        assert path.is_file()
        self.note("checkpoint", path.name)

    def on_epoch_end(self, trainer, metrics):
        self.note("epoch_end", trainer.state.epoch, "val_loss" in metrics)

    def finalize(self, trainer, error):
        self.note("finalize", error)


class NoteOptions(Options):
    label: str = ""


@register_callback("note", options=NoteOptions)
class Note(Everything):
    """Notes every call, with a label of its own."""

    def __init__(self, options):
        super().__init__(options.label)


class Counter(Callback):
    """Counts steps, over a resume too."""

    def __init__(self):
        self.steps = 0

    def on_step_end(self, trainer):
        self.steps += 1

    def state_dict(self):
        return {"steps": self.steps}

    def load_state_dict(self, state):
        self.steps = state["steps"]


@pytest.fixture(autouse=True)
def no_events():
    EVENTS.clear()


def test_every_callback_method_is_called_in_the_documented_order(tmp_path):
    seen = Everything()
    config = line(dataset={**POINTS, "batch_size": 1}, trainer={"accumulate": 2, "log_every": 2})
    train(config, tmp_path, extra_callbacks=[seen])
    after_train = ["epoch", "input", "loss", "phase", "pred", "step", "target", "weight"]
    after_val = ["epoch", "input", "loss", "phase", "pred", "step", "target", "weight"]
    assert seen.events == [
        ("run_start", 0),
        ("epoch_start", 0),
        ("phase_start", "train"),
        ("batch_end", "train", after_train),
        ("batch_end", "train", after_train),
        ("step_end", 1),
        ("batch_end", "train", after_train),
        ("batch_end", "train", after_train),
        ("log", "batch", 2),
        ("step_end", 2),
        ("phase_end", "train"),
        ("phase_start", "val"),
        ("batch_end", "val", after_val),
        ("batch_end", "val", after_val),
        ("phase_end", "val"),
        ("log", "validation", 2),
        ("log", "epoch", 2),
        ("epoch_end", 1, True),
        ("checkpoint", "last.pt"),
        ("checkpoint", "best.pt"),
        ("log", "event", 2),
        ("finalize", None),
    ]


def test_callbacks_are_called_in_the_order_of_the_configuration_and_extra_ones_after_them(tmp_path):
    config = line(trainer={"epochs": 1})
    config["callbacks"] = [{"name": "note", "label": "a"}, {"name": "note", "label": "b"}]
    train(config, tmp_path, extra_callbacks=[Everything("c"), Everything("d")])
    assert [name for name, what, *_ in EVENTS if what == "run_start"] == ["a", "b", "c", "d"]
    assert [name for name, what, *_ in EVENTS if what == "finalize"] == ["a", "b", "c", "d"]


def test_only_overridden_methods_are_bound():
    class Base(Callback):
        def on_epoch_start(self, trainer):
            pass

    class Derived(Base):
        def on_epoch_end(self, trainer, metrics):
            pass

    derived = Derived()
    bound = CallbackList([("plain", Callback()), ("derived", derived)])
    assert bound.on_epoch_start == [derived.on_epoch_start]
    assert bound.on_epoch_end == [derived.on_epoch_end]
    methods = ("run_start", "phase_start", "gradients", "step_end", "phase_end", "checkpoint")
    assert all(getattr(bound, f"on_{method}") == [] for method in methods)
    assert bound.on_batch_start == bound.on_batch_end == {"train": [], "val": [], "test": []}
    assert bound.log_metrics == bound.measure == []


def test_finalize_reaches_every_callback_with_the_error_that_ended_the_run(tmp_path):
    class Fails(Callback):
        def on_step_end(self, trainer):
            raise OSError("the tracker is gone")

    first, last = Everything("first", []), Everything("last", [])
    with pytest.raises(OSError, match="the tracker is gone") as raised:
        train(line(), tmp_path, extra_callbacks=[first, Fails(), last])
    assert first.events[-1] == ("first", "finalize", raised.value)
    assert last.events[-1] == ("last", "finalize", raised.value)


def test_finalize_reaches_every_callback_also_when_one_of_them_raises_there(tmp_path):
    class Fails(Callback):
        def finalize(self, trainer, error):
            raise OSError("cannot close")

    last = Everything("last", [])
    with pytest.raises(OSError, match="cannot close"):
        train(line(), tmp_path, extra_callbacks=[Fails(), last])
    assert last.events[-1] == ("last", "finalize", None)


def test_an_error_in_finalize_does_not_hide_the_error_that_ended_the_run(tmp_path):
    class Fails(Callback):
        def on_epoch_start(self, trainer):
            raise ValueError("the reason")

        def finalize(self, trainer, error):
            raise OSError("cannot close")

    with pytest.raises(ValueError, match="the reason"):
        train(line(), tmp_path, extra_callbacks=[Fails()])
    (run,) = run_dirs(tmp_path)
    assert manifest(run)["error"] == {"type": "ValueError", "message": "the reason"}


def test_finalize_hears_of_an_interrupt(tmp_path):
    seen = Everything("seen", [])
    with pytest.raises(KeyboardInterrupt):
        train(line(), tmp_path, extra_callbacks=[InterruptAfter(0), seen])
    assert seen.events[-1][1] == "finalize"
    assert isinstance(seen.events[-1][2], KeyboardInterrupt)


def test_the_state_of_callbacks_is_saved_and_loaded(tmp_path):
    config = line(dataset=POINTS, trainer={"epochs": 2})
    counter = Counter()
    run = train(config, tmp_path, extra_callbacks=[counter]).run_dir
    assert checkpoint(run)["states"]["callbacks"]["extra#1"] == {"steps": 4}
    config["trainer"]["epochs"] = 3
    again = Counter()
    train(config, tmp_path, resume=run, extra_callbacks=[again])
    assert again.steps == 6


def test_a_callback_that_came_after_the_checkpoint_starts_fresh_and_one_that_is_gone_is_not_missed(tmp_path):
    config = line(dataset=POINTS, trainer={"epochs": 1})
    run = train(config, tmp_path, extra_callbacks=[Counter(), Counter()]).run_dir
    config["trainer"]["epochs"] = 2
    train(config, tmp_path, resume=run)
    fresh = [Counter(), Counter(), Counter()]
    train(config, tmp_path, resume=run, extra_callbacks=fresh)
    assert [counter.steps for counter in fresh] == [4, 4, 2]


def test_two_callbacks_of_one_name_keep_their_states_apart(tmp_path):
    config = line(dataset=POINTS)
    config["callbacks"] = [{"name": "note", "label": "a"}, {"name": "note", "label": "b"}]
    states = checkpoint(train(config, tmp_path).run_dir)["states"]["callbacks"]
    assert list(states) == ["local:note", "local:note#2"]


def test_a_state_that_could_not_be_loaded_again_is_refused_before_anything_is_trained(tmp_path):
    class Unplain(Callback):
        def state_dict(self):
            return {"where": tmp_path}

    with pytest.raises(CheckpointWriteError, match=r"'extra#1' cannot be saved: it would hold pathlib"):
        train(line(dataset=POINTS), tmp_path, extra_callbacks=[Unplain()])
    (run,) = run_dirs(tmp_path)
    assert [record["step"] for record in records(run)] == [0, 0]
    assert manifest(run)["status"] == "failed"


def test_a_state_dict_that_raises_does_not_hide_the_error_that_ended_the_run(tmp_path):
    class Fails(Callback):
        trained = False

        def on_step_end(self, trainer):
            self.trained = True
            raise ValueError("the reason")

        def state_dict(self):
            if self.trained:
                raise RuntimeError("no state")
            return {}

    with pytest.raises(ValueError, match="the reason"):
        train(line(dataset=POINTS), tmp_path, extra_callbacks=[Fails()])


# --- the configuration, learning rates, what surrounds a validation


class Watching(Callback):
    def __init__(self):
        self.config, self.rates, self.starts = None, [], []

    def update_config(self, config):
        self.config = config

    def on_lr_update(self, trainer, rates):
        self.rates.append((trainer.state.global_step, rates))

    def on_batch_start(self, trainer, phase, container):
        self.starts.append((phase, sorted(container), "pred" in container))


def test_update_config_shows_the_resolved_configuration_and_lets_nobody_change_it(tmp_path):
    seen = Watching()
    train(line(dataset=POINTS), tmp_path, extra_callbacks=[seen])
    assert seen.config["trainer"]["log_every"] == 1
    assert isinstance(seen.config["callbacks"], tuple)
    with pytest.raises(TypeError):
        seen.config["trainer"]["log_every"] = 2


def test_on_lr_update_tells_the_rate_of_the_next_step_after_each_step_of_a_schedule(tmp_path):
    seen, without = Watching(), Watching()
    config = line(
        dataset={**POINTS, "batch_size": 1}, scheduler={"name": "step_decay", "step_size": 2, "gamma": 0.5}
    )
    train(config, tmp_path, extra_callbacks=[seen])
    assert [(step, rates["optimizer"]) for step, rates in seen.rates] == [
        (1, 0.1),
        (2, 0.05),
        (3, 0.05),
        (4, 0.025),
    ]
    train(line(dataset={**POINTS, "batch_size": 1}), tmp_path, extra_callbacks=[without])
    assert without.rates == []


def test_on_batch_start_comes_before_the_forward_pass(tmp_path):
    seen = Watching()
    train(line(dataset=POINTS), tmp_path, extra_callbacks=[seen])
    assert {start[0] for start in seen.starts} == {"train", "val"}
    assert not any(start[2] for start in seen.starts)


class Swapping(Callback):
    """Validates with a weight of 7 in place of the one that is trained."""

    def __init__(self, fails=False):
        self.fails, self.seen = fails, []

    @contextmanager
    def evaluating(self, models):
        weight = models["model"].w
        held = weight.detach().clone()
        with torch.no_grad():
            weight.fill_(7.0)
        try:
            yield
        finally:
            with torch.no_grad():
                weight.copy_(held)

    def on_batch_end(self, trainer, phase, container):
        self.seen.append((phase, trainer.parts.models["model"].w.item()))
        if phase == "val" and self.fails:
            raise ZeroDivisionError


def test_weights_that_stand_in_are_validated_and_swapped_back(tmp_path):
    swapping = Swapping()
    result = train(line(dataset=POINTS), tmp_path, extra_callbacks=[swapping])
    plain = train(line(dataset=POINTS), tmp_path / "plain")
    assert {weight for phase, weight in swapping.seen if phase == "val"} == {7.0}
    assert weights(result.run_dir)["w"] == weights(plain.run_dir)["w"] != 7.0
    assert (
        records(result.run_dir, "epoch")[0]["train_loss"] == records(plain.run_dir, "epoch")[0]["train_loss"]
    )


def test_they_are_swapped_back_when_a_validation_fails(tmp_path):
    with pytest.raises(ZeroDivisionError):
        train(line(dataset=POINTS), tmp_path, extra_callbacks=[Swapping(fails=True)])
    (run,) = run_dirs(tmp_path)
    plain = train(line(dataset=POINTS), tmp_path / "plain")
    assert weights(run)["w"] == weights(plain.run_dir)["w"] != 7.0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_checkpoint_that_is_written_inside_a_validation_holds_what_is_trained(tmp_path, number):
    class Sends(Swapping):
        def on_batch_end(self, trainer, phase, container):
            super().on_batch_end(trainer, phase, container)
            if phase == "val" and len([seen for seen in self.seen if seen[0] == "val"]) == 1:
                signal.raise_signal(number)

        def on_checkpoint(self, trainer, path):
            self.seen.append(("saved", trainer.parts.models["model"].w.item()))

    sends = Sends()
    plain = train(line(dataset=POINTS), tmp_path / "plain")
    if number == signal.SIGTERM:
        with pytest.raises(RunTerminated):
            train(line(dataset=POINTS), tmp_path, extra_callbacks=[sends])
    else:
        train(line(dataset=POINTS), tmp_path, extra_callbacks=[sends])
        assert [seen for seen in sends.seen if seen[0] == "val"][-1] == ("val", 7.0)  # it went on inside
    saved = [seen[1] for seen in sends.seen if seen[0] == "saved"]
    assert set(saved) == {weights(plain.run_dir)["w"].item()}
