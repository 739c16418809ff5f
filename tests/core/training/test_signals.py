"""SIGTERM, SIGINT and SIGUSR1: what they ask for is done between two steps or two batches of a validation."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import NamedTuple

import numpy
import pytest
import torch
from torch import nn

from support.by_hand import SCRIPT, scripted
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
from trainlattice import (
    Callback,
    register_dataset,
    register_model,
    register_postprocessor,
    resume_run,
)
from trainlattice.contracts.records import DatasetContract
from trainlattice.data import Splits
from trainlattice.diagnostics.errors import Interruption, RunInterrupted, RunTerminated

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="these are signals of POSIX"),
]
TAKEN = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
STOPS = [(signal.SIGTERM, RunTerminated), (signal.SIGINT, RunInterrupted)]
ON_FETCH = []
"""What the dataset ``asking`` calls for every training sample that it is asked for."""


@register_model("drawing")
class Drawing(nn.Module):
    """Has dropout, and draws from every generator in each forward pass, in validation too."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.2), nn.Linear(8, 3))

    def forward(self, x):
        return self.layers(x + 0.1 * (random.random() + numpy.random.rand()) * torch.rand_like(x))


class Asking:
    """Samples that are made when they are asked for."""

    def __init__(self, size, *, trains):
        self.size, self.trains = size, trains

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        for call in ON_FETCH if self.trains else ():
            call()
        generator = torch.Generator().manual_seed(index + 100 * self.trains)
        return torch.randn(4, generator=generator), index % 3


@register_dataset("asking")
def open_asking():
    return Splits(
        Asking(20, trains=True), Asking(10, trains=False), contract=DatasetContract((4,), "classification", 3)
    )


@pytest.fixture(autouse=True)
def nobody_asks():
    ON_FETCH.clear()


def config(**dataset):
    """Two epochs of three windows (2, 2 and 1 batches of 4), a validation of three batches after every second
    step and every epoch, and everything that has a state."""
    found = tiny(
        model={"name": "drawing"},
        dataset={"name": "asking", "batch_size": 4, **dataset},
        scheduler={"name": "warmup_cosine", "warmup_steps": 2},
        trainer={
            "epochs": 2,
            "accumulate": 2,
            "log_every": 1,
            "validate_every_steps": 2,
            "early_stopping": {"patience": 20},
        },
    )
    return {**found, "callbacks": []}


class Calls(Callback):
    """Does something at the n-th call of a method; batches, phases and samples are told apart:
    ``on_batch_end val``, ``forward train``."""

    def __init__(self, method, nth, action):
        self.method, self.left, self.action = method, nth, action

    def note(self, method):
        if method == self.method:
            self.left -= 1
            if self.left == 0:
                self.action()

    def on_run_start(self, trainer):
        model = trainer.parts.models["model"]
        model.register_forward_pre_hook(
            lambda module, inputs: self.note(f"forward {'train' if module.training else 'val'}")
        )
        ON_FETCH.append(lambda: self.note("fetch"))

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

    def on_epoch_end(self, trainer, metrics):
        self.note("on_epoch_end")

    def on_checkpoint(self, trainer, path):
        self.note("on_checkpoint")


class Copies(Callback):
    """Copies each last.pt; steps and epochs that they hold."""

    def __init__(self, directory):
        self.directory, self.saved = directory, []

    def on_checkpoint(self, trainer, path):
        if path.name == "last.pt":
            target = self.directory / str(len(self.saved))
            target.mkdir(parents=True)
            for name in ("last.pt", "best.pt"):
                if (path.parent / name).is_file():
                    shutil.copy(path.parent / name, target)
            self.saved.append((trainer.state.global_step, trainer.state.epoch))


class ValBatches(Callback):
    """Counts batches that were validated."""

    count = 0

    def on_batch_end(self, trainer, phase, container):
        self.count += phase == "val"


def send(number):
    return lambda: os.kill(os.getpid(), number)


def sending(number, method, nth):
    return Calls(method, nth, send(number))


def without_checkpoints(found):
    return [record for record in found if record.get("event") != "checkpoint"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The run that nobody interrupts."""
    return train(config(), tmp_path_factory.mktemp("whole"), extra_callbacks=[Callback()]).run_dir


def interrupt(found, directory, number, method, nth, *more):
    """A run that ends by a signal; its directory."""
    error = dict(STOPS)[number]
    with pytest.raises(error) as raised:
        train(found, directory, extra_callbacks=[sending(number, method, nth), *more])
    if number == signal.SIGTERM:
        assert raised.value.code == 143
    (run,) = run_dirs(directory)
    assert manifest(run)["status"] == "interrupted"
    assert not (run / "checkpoints" / "emergency.pt").exists()
    assert records(run)[-1]["status"] == "interrupted"
    return run


def assert_continues_as(whole, first, found, directory):
    """The parts of an interrupted run are, one after the other, the whole."""
    second = train(found, directory, resume=first, extra_callbacks=[Callback()]).run_dir
    left, right = checkpoint(whole), checkpoint(second)
    for held in (left, right):
        held["config"]["experiment"].pop("runs_dir")
        held["config"]["dataset"].pop("num_workers")
    assert_identical(left, right)
    assert without_checkpoints(trained(records(first)) + trained(records(second))) == without_checkpoints(
        trained(records(whole))
    )


PLACES = [
    # method, n-th call, steps that last.pt then holds, complete epochs
    ("on_step_end", 2, 2, 0),
    ("on_step_end", 3, 3, 0),
    ("fetch", 11, 2, 0),  # the data that follows step 1
    ("forward train", 4, 2, 0),  # the second micro-batch of a window
    ("forward val", 2, 2, 0),  # inside the validation after step 2
    ("on_batch_end val", 5, 3, 0),  # inside the one after epoch 1
    ("on_batch_end val", 11, 6, 1),  # inside the last one
    ("on_epoch_end", 1, 3, 1),
]
MORE_PLACES = [
    ("on_step_end", 4, 4, 1),
    ("on_step_end", 6, 6, 1),
    ("fetch", 1, 1, 0),
    ("on_batch_end train", 3, 2, 0),
    ("on_phase_start val", 1, 2, 0),
    ("on_phase_end val", 1, 2, 0),
    ("on_phase_end train", 1, 3, 0),
    ("on_epoch_start", 2, 4, 1),
    ("on_checkpoint", 1, 2, 0),
]


@pytest.mark.parametrize(("method", "nth", "step", "epoch"), [*PLACES, *MORE_PLACES])
def test_a_run_that_sigterm_ended_goes_on_bit_identically(tmp_path, whole, method, nth, step, epoch):
    run = interrupt(config(), tmp_path, signal.SIGTERM, method, nth)
    held = checkpoint(run)
    assert (held["trainer"]["global_step"], held["trainer"]["epoch"]) == (step, epoch)
    assert held["kind"] == "resume"
    assert manifest(run)["global_step"] == step
    assert_continues_as(whole, run, config(), tmp_path)


@pytest.mark.parametrize(("method", "nth", "step"), [("on_step_end", 2, 2), ("on_batch_end val", 2, 2)])
def test_sigint_does_the_same(tmp_path, whole, method, nth, step):
    run = interrupt(config(), tmp_path, signal.SIGINT, method, nth)
    assert checkpoint(run)["trainer"]["global_step"] == step
    assert_continues_as(whole, run, config(), tmp_path)


@pytest.mark.parametrize(("method", "nth"), [("on_step_end", 1), ("on_batch_end val", 5)])
def test_with_loader_processes_it_goes_on_bit_identically_too(tmp_path, whole, method, nth):
    found = config(num_workers=2)
    run = interrupt(found, tmp_path, signal.SIGTERM, method, nth)
    assert_continues_as(whole, run, found, tmp_path)


def test_a_run_is_interrupted_again_and_again_and_ends_as_if_it_never_was(tmp_path, whole):
    """By a signal in every step and every batch of a validation that it gets to."""
    run, parts = None, []
    for method in ["on_step_end", "on_batch_end val", "forward train"] * 20:
        try:
            result = train(
                config(), tmp_path, resume=run, extra_callbacks=[sending(signal.SIGTERM, method, 1)]
            )
        except RunTerminated:
            (run,) = set(run_dirs(tmp_path)) - set(parts)
            parts.append(run)
            continue
        parts.append(result.run_dir)
        break
    assert len(parts) > 5
    assert_same_end(whole, parts[-1])


def test_a_validation_is_left_after_the_batch_in_which_the_signal_came(tmp_path):
    seen = ValBatches()
    interrupt(config(), tmp_path, signal.SIGTERM, "on_batch_end val", 2, seen)
    assert seen.count == 2


@register_postprocessor("batches_so_far")
class BatchesSoFar:
    """Its state changes in a validation too."""

    def __init__(self):
        self.count = 0

    def __call__(self, value):
        self.count += 1
        return value

    def state_dict(self):
        return {"count": self.count}

    def load_state_dict(self, state):
        self.count = state["count"]


@register_model("counts_calls")
class CountsCalls(Drawing):
    """A buffer that a validation changes too."""

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.seen += len(x)
        return super().forward(x)


@register_model("of_version_2")
class OfVersion2(Drawing):
    """Its state says so; one of an older version would be brought up to date."""

    _version = 2

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, *rest):
        if local_metadata.get("version") != 2:
            state_dict[f"{prefix}layers.0.weight"] += 1
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)


@pytest.mark.parametrize("place", ["on_step_end", "on_batch_end val"])
def test_a_modules_version_is_saved_wherever_the_signal_came(tmp_path, place):
    found = {**config(), "model": {"name": "of_version_2"}}
    whole = train(found, tmp_path / "whole", extra_callbacks=[Callback()]).run_dir
    run = interrupt(found, tmp_path, signal.SIGTERM, place, 2)
    assert_continues_as(whole, run, found, tmp_path)


def test_buffers_that_a_validation_changes_are_as_before_it_when_it_is_left(tmp_path):
    found = {**config(), "model": {"name": "counts_calls"}}
    whole = train(found, tmp_path / "whole", extra_callbacks=[Callback()]).run_dir
    run = interrupt(found, tmp_path, signal.SIGTERM, "on_batch_end val", 2)
    assert_continues_as(whole, run, found, tmp_path)


def test_whatever_has_a_state_has_that_of_before_the_validation_that_was_left(tmp_path):
    counted = {"name": "batches_so_far", "inputs": {"value": "pred"}, "output": "same"}
    found = {**config(), "postprocess": [counted]}
    whole = train(found, tmp_path / "whole", extra_callbacks=[Callback()]).run_dir
    run = interrupt(found, tmp_path, signal.SIGTERM, "on_batch_end val", 2)
    held = checkpoint(run)
    batches = held["trainer"]["global_step"] * held["config"]["trainer"]["accumulate"]
    assert held["states"]["postprocess/batches_so_far"] == {"count": batches}
    assert_continues_as(whole, run, found, tmp_path)


def test_a_signal_that_comes_when_the_run_ends_anyway_lets_it_end(tmp_path, whole):
    result = train(config(), tmp_path, extra_callbacks=[sending(signal.SIGTERM, "on_epoch_end", 2)])
    assert (result.status, manifest(result.run_dir)["status"]) == ("finished", "finished")
    assert_same_end(whole, result.run_dir)


def test_early_stopping_keeps_its_count_over_a_signal(tmp_path):
    """1, 2, 3: the second stale validation is one more than patience."""
    values = [1.0, 2.0, 3.0, 4.0]
    found = scripted(values, early_stopping={"patience": 1})
    straight = train(found, tmp_path / "whole").run_dir
    assert checkpoint(straight)["trainer"]["epoch"] == 3
    SCRIPT[:] = values
    first = interrupt(found, tmp_path, signal.SIGTERM, "on_epoch_end", 2)
    result = train(found, tmp_path, resume=first)
    assert result.stop_reason == "early stopping: val_loss did not improve in 2 validations"
    assert checkpoint(result.run_dir)["trainer"] == checkpoint(straight)["trainer"]


# --- SIGUSR1


@pytest.mark.parametrize(("method", "nth", "step", "epoch"), PLACES)
def test_sigusr1_saves_and_goes_on_as_if_it_had_not_come(tmp_path, whole, method, nth, step, epoch):
    seen = Copies(tmp_path / "copies")
    result = train(config(), tmp_path, extra_callbacks=[sending(signal.SIGUSR1, method, nth), seen])
    run = result.run_dir
    assert result.status == "finished"
    assert [held[0] for held in seen.saved] == sorted(
        [2, 3, 4, 6, step]
    )  # the best at 2 and 4, ends at 3 and 6
    assert without_checkpoints(trained(records(run))) == without_checkpoints(trained(records(whole)))
    left, right = checkpoint(whole), checkpoint(run)
    for held in (left, right):
        held["config"]["experiment"].pop("runs_dir")
        held["states"].pop("callbacks")
    assert_identical(left, right)
    copy = tmp_path / "copies" / str(seen.saved.index((step, epoch))) / "last.pt"
    resumed = train(config(), tmp_path, resume=copy, extra_callbacks=[Callback()])
    assert_same_end(whole, resumed.run_dir)


# --- a second signal, and what becomes of handlers


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
def test_a_second_sigint_ends_the_run_at_once(tmp_path, first):
    went_on = []

    def twice():
        os.kill(os.getpid(), first)
        os.kill(os.getpid(), signal.SIGINT)
        went_on.append(True)

    with pytest.raises(KeyboardInterrupt) as raised:
        train(config(), tmp_path, extra_callbacks=[Calls("on_step_end", 4, twice)])
    assert not isinstance(raised.value, Interruption)
    assert not went_on
    (run,) = run_dirs(tmp_path)
    assert manifest(run)["status"] == "interrupted"
    assert checkpoint(run)["trainer"]["global_step"] == 3  # of the epoch before
    assert not (run / "checkpoints" / "emergency.pt").exists()


class Handlers(Callback):
    """Notes who handles signals while the run is under way."""

    def __init__(self):
        self.found = []

    def on_step_end(self, trainer):
        self.found = [signal.getsignal(number) for number in TAKEN]


@pytest.fixture
def own_handlers():
    """Handlers of the program that a run is a part of."""
    before = [signal.getsignal(number) for number in TAKEN]

    def mine(number, frame):
        raise AssertionError("the run was to take this signal")

    for number in TAKEN:
        signal.signal(number, mine)
    yield mine
    for number, handler in zip(TAKEN, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.parametrize("ending", ["finished", "signal", "exception", "not storable"])
def test_afterwards_handlers_are_what_they_were(tmp_path, own_handlers, ending):
    handlers, extra = Handlers(), []
    if ending == "signal":
        extra = [sending(signal.SIGTERM, "on_step_end", 2)]
    elif ending == "exception":
        extra = [Calls("on_step_end", 2, lambda: 1 / 0)]
    elif ending == "not storable":

        class Unstorable(Callback):
            def state_dict(self):
                return {"x": object()}

        extra = [Unstorable()]
    try:
        train(config(), tmp_path, extra_callbacks=[handlers, *extra])
        assert ending == "finished"
    except (Exception, SystemExit):
        assert ending != "finished"
    assert [signal.getsignal(number) for number in TAKEN] == [own_handlers] * 3
    if ending != "not storable":
        assert own_handlers not in handlers.found


def test_in_another_thread_a_run_works_and_takes_no_handlers(tmp_path, own_handlers, whole):
    handlers, ended = Handlers(), []

    def work():
        torch.set_num_threads(1)
        ended.append(train(config(), tmp_path, extra_callbacks=[handlers]).run_dir)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert handlers.found == [own_handlers] * 3
    assert_same_end(whole, ended[0])


def test_what_somebody_ignores_stays_ignored(tmp_path, whole):
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        extra = [sending(signal.SIGTERM, "on_step_end", 2)]
        result = train(config(), tmp_path, extra_callbacks=extra)
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)
    assert_same_end(whole, result.run_dir)


def test_a_signal_of_one_run_does_not_end_the_next(tmp_path, whole):
    interrupt(config(), tmp_path / "first", signal.SIGTERM, "on_step_end", 1)
    assert_same_end(whole, train(config(), tmp_path, extra_callbacks=[Callback()]).run_dir)


# --- the command line

LOCAL = """
import os, signal
from multiprocessing import active_children, connection
import torch
from trainlattice import Callback, Options, register_callback, register_dataset
from trainlattice.contracts.records import DatasetContract
from trainlattice.data import Splits

class SendOptions(Options):
    signals: tuple[str, ...] = ()
    to_group: bool = False
    step: int = 2

@register_callback("send", options=SendOptions)
class Send(Callback):
    def __init__(self, options):
        self.options = options

    def on_run_start(self, trainer):
        trainer.train.dataset.asked = 0

    def on_step_end(self, trainer):
        if trainer.state.global_step == self.options.step:
            for name in self.options.signals:
                number = getattr(signal, name)
                os.killpg(0, number) if self.options.to_group else os.kill(os.getpid(), number)

    def on_checkpoint(self, trainer, path):
        if trainer.state.global_step == self.options.step:
            workers = [process.sentinel for process in active_children()]
            dead = connection.wait(workers, timeout=0.3) if workers else []
            print(f"{len(workers) - len(dead)} of {len(workers)} loader processes stand")

class SampleOptions(Options):
    waits: bool = False

class Samples:
    stochastic = False

    def __init__(self, size, waits):
        self.size, self.waits, self.asked = size, waits, -1000  # until the run starts

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        self.asked += 1
        if self.waits and self.asked == 12:
            tells, hears = map(int, os.environ["PIPES"].split())
            os.write(tells, b"waiting for data")
            os.read(hears, 1)
        generator = torch.Generator().manual_seed(index)
        return torch.randn(4, generator=generator), index % 3

@register_dataset("samples", options=SampleOptions)
def open_samples(options):
    contract = DatasetContract((4,), "classification", 3)
    return Splits(Samples(20, options.waits), contract=contract)
"""
YAML = """
experiment: {{name: signalled, runs_dir: runs}}
model: {{name: mlp, input_dim: 4, hidden_dims: [8], num_classes: 3}}
dataset: {{name: samples, batch_size: 4, num_workers: {workers}, waits: {waits}}}
scheduler: {{name: warmup_cosine, warmup_steps: 2}}
callbacks: [{{name: send, signals: [{signals}], to_group: {to_group}}}]
plugins: {{local: [parts.py]}}
trainer: {{epochs: 1, log_every: 1, device: cpu}}
"""


DRIVER = """
import json, os, signal, sys
import torch, trainlattice.runs.execute  # once for all
from trainlattice.cli.main import main

children = {}
waits, tells = os.pipe()
hears, answers = os.pipe()
os.environ["PIPES"] = f"{tells} {hears}"
for name in sys.argv[1:]:
    child = os.fork()
    if child == 0:
        os.close(waits), os.close(answers)
        os.setsid()
        os.chdir(name)
        for stream, file in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT), stream)
        if name != "waits":
            os.close(tells)
        if name == "ignored":
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        sys.argv[:] = ["trainlattice", "train", "c.yaml"]
        main()
    children[child] = name
os.close(tells), os.close(hears)
if os.read(waits, 100):  # it waits for data until it is answered
    os.kill(next(child for child, name in children.items() if name == "waits"), signal.SIGTERM)
    os.write(answers, b".")
codes = {}
while children:
    child, status = os.wait()
    codes[children.pop(child)] = os.waitstatus_to_exitcode(status)
print(json.dumps(codes))
"""
CASES = {
    # workers, signals, to the whole group
    "term": (2, ["SIGTERM"], True),
    "int": (2, ["SIGINT"], True),
    "save": (2, ["SIGUSR1"], True),
    "twice": (0, ["SIGTERM", "SIGTERM"], False),
    "ignored": (2, ["SIGINT"], True),
    "waits": (0, [], False),
}


def write_case(directory, name):
    workers, signals, to_group = CASES[name]
    directory.mkdir()
    (directory / "parts.py").write_text(LOCAL)
    yaml = YAML.format(
        workers=workers,
        signals=", ".join(signals),
        to_group=str(to_group).lower(),
        waits=str(name == "waits").lower(),
    )
    (directory / "c.yaml").write_text(yaml)


class Ended(NamedTuple):
    """A process that ended.

    :param run: its run directory.
    """

    code: int
    stdout: str
    stderr: str
    run: Path


@pytest.fixture(scope="module")
def processes(tmp_path_factory):
    """``trainlattice train`` in a process and group of its own for each case, forked from one that has torch."""
    directory = tmp_path_factory.mktemp("processes")
    for name in CASES:
        write_case(directory / name, name)
    driver = subprocess.run(
        [sys.executable, "-c", DRIVER, *CASES], cwd=directory, capture_output=True, text=True, timeout=120
    )
    assert driver.returncode == 0, driver.stderr
    ended = {}
    for name, code in json.loads(driver.stdout).items():
        (run,) = run_dirs(directory / name)
        stdout, stderr = ((directory / name / stream).read_text() for stream in ("stdout", "stderr"))
        ended[name] = Ended(code, stdout, stderr, run)
    return ended


@pytest.fixture(scope="module")
def straight(processes):
    """The run whose signal changed nothing: SIGINT was ignored, as in a script's background."""
    assert processes["ignored"].code == 0, processes["ignored"].stderr
    return processes["ignored"].run


def assert_ends_as(straight, run):
    left, right = checkpoint(straight), checkpoint(run)
    for held in (left, right):
        held.pop("config")
        held.pop("components")
    assert_identical(left, right)


@pytest.mark.parametrize(("name", "code"), [("term", 143), ("int", 130)])
def test_a_signal_to_the_whole_group_ends_the_run_with_its_exit_code(processes, straight, name, code):
    """The loader processes stay until the state is saved."""
    found = processes[name]
    assert found.code == code, found.stderr
    assert found.stderr.count(f"SIG{name.upper()}: saving last.pt after this step") == 1
    assert "Traceback" not in found.stderr
    assert "2 of 2 loader processes stand" in found.stdout
    assert manifest(found.run)["status"] == "interrupted"
    assert checkpoint(found.run)["trainer"]["global_step"] == 2
    assert not (found.run / "checkpoints" / "emergency.pt").exists()
    resumed = resume_run(found.run, overrides=["callbacks.0.signals=[]"]).run_dir
    assert_ends_as(straight, resumed)
    assert without_checkpoints(trained(records(found.run)) + trained(records(resumed))) == (
        without_checkpoints(trained(records(straight)))
    )


def test_sigusr1_to_the_whole_group_changes_nothing_but_that_it_saves(processes, straight):
    found = processes["save"]
    assert found.code == 0, found.stderr
    assert "2 of 2 loader processes stand" in found.stdout
    assert_ends_as(straight, found.run)
    saved = [(r["step"], r["files"]) for r in records(found.run) if r.get("event") == "checkpoint"]
    assert saved[0] == (2, ["last.pt"])
    assert without_checkpoints(trained(records(found.run))) == (
        without_checkpoints(trained(records(straight)))
    )


def test_a_second_sigterm_ends_the_process_at_once(processes):
    found = processes["twice"]
    assert found.code == -signal.SIGTERM
    assert manifest(found.run)["status"] == "running"
    assert not list((found.run / "checkpoints").glob("*.pt"))


def test_a_signal_that_comes_while_data_is_waited_for_is_heeded_after_the_step_of_that_data(processes):
    """Sample 12 belongs to the third batch; it comes only after the signal was sent."""
    found = processes["waits"]
    assert found.code == 143, found.stderr
    assert "SIGTERM: saving last.pt" in found.stderr
    assert checkpoint(found.run)["trainer"]["global_step"] == 3


def test_an_error_beside_a_signal_stands_for_itself_and_nothing_is_lost(tmp_path):
    class FailsToo(Callback):
        def on_step_end(self, trainer):
            if trainer.state.global_step == 2:
                os.kill(os.getpid(), signal.SIGTERM)
                raise ValueError("on its own account")

    with pytest.raises(ValueError, match="on its own account"):
        train(tiny(), tmp_path, extra_callbacks=[FailsToo()])
    (run,) = run_dirs(tmp_path)
    assert checkpoint(run)["trainer"]["global_step"] == 2
    assert manifest(run)["status"] == "failed"
    assert (run / "checkpoints" / "emergency.pt").is_file()
