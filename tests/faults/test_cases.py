"""Cases that need processes of their own: kills while checkpoints are written (B12), and what signals do to a run
that a job script started (B69, B70)."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from support.chains import Chain, assert_same_end
from support.fork_server import ForkServer
from support.runs import checkpoint, digests, manifest, records
from trainlattice.diagnostics.errors import RunInterrupted, RunTerminated

pytestmark = pytest.mark.torch

LOCAL = '''
"""A model as wide as the configuration says, and data that is slow while the file ``slow`` exists."""
import os
import time
from pathlib import Path

import torch

from trainlattice import Options, register_dataset, register_model
from trainlattice.data import Splits

HERE = Path("HERE")


class WidthOptions(Options):
    width: int = 4


@register_model("square", options=WidthOptions)
def square(options):
    return torch.nn.Linear(options.width, options.width)


class Slow:
    """Draws nothing; from the sample ``after`` on it is slow, and says so in the file ``reached``."""

    stochastic = False

    def __init__(self, name, size, width, delay, after):
        self.name, self.size, self.width, self.delay, self.after = name, size, width, delay, after
        self.asked = 0

    def __len__(self):
        return self.size

    def fingerprint(self):
        return self.name

    def who(self):
        worker = torch.utils.data.get_worker_info()
        return "m" if worker is None else str(worker.id)

    def sample(self, index):
        generator = torch.Generator().manual_seed(index)
        x = torch.randn(self.width, generator=generator)
        return x, x.flip(0)

    def __getitem__(self, index):
        if self.delay and (HERE / "slow").exists():
            self.asked += 1
            if self.asked > self.after or (HERE / "slow-at-once").exists():
                with open(HERE / "reached", "a") as file:
                    file.write(self.who())
                time.sleep(self.delay)
        return self.sample(index)


class Stream(Slow):
    __getitem__ = None

    def __iter__(self):
        return (Slow.__getitem__(self, index) for index in range(self.size))


class SlowOptions(Options):
    width: int = 4
    samples: int = 8
    val_samples: int = 4
    delay: float = 0.0
    val_delay: float = 0.0
    after: int = 0
    stream: bool = False


@register_dataset("slow", options=SlowOptions)
def open_slow(options):
    kind = Stream if options.stream else Slow
    train = kind("train", options.samples, options.width, options.delay, options.after)
    return Splits(train, Slow("val", options.val_samples, options.width, options.val_delay, 0))


SYNC = os.fsync


def slow_sync(descriptor):
    """A disk that takes its time to store a checkpoint while the file ``slow-disk`` exists."""
    if (HERE / "slow-disk").exists() and ".last.pt." in os.readlink(f"/proc/self/fd/{descriptor}"):
        (HERE / "reached").touch()
        time.sleep(30)
    SYNC(descriptor)


os.fsync = slow_sync
'''


def chain(server: ForkServer, directory: Path, *, slow: bool = False, **sections: Any) -> Chain:
    """A run whose data is slow if it is asked to be."""
    directory.mkdir()
    parts = directory / "parts.py"
    parts.write_text(LOCAL.replace('"HERE"', repr(str(directory))), encoding="utf-8")
    if slow:
        (directory / "slow").touch()
    base: dict[str, Any] = {
        "plugins": {"local": [str(parts)]},
        "model": {"name": "square"},
        "dataset": {"name": "slow", "batch_size": 1},
        "loss": {"name": "mse"},
        "optimizer": {"name": "adamw", "lr": 0.01},
        "trainer": {"epochs": 2, "log_every": 1, "device": "cpu", "early_stopping": {"patience": 9}},
    }
    config: dict[str, Any] = {
        key: {**base.get(key, {}), **sections.get(key, {})} for key in {**base, **sections}
    }
    config["callbacks"] = []
    return Chain(server, directory / "chain", config)


def reached(chain: Chain, pid: int, processes: int = 0) -> Path:
    """The file that grows where the run is slow; it is there when this returns.

    :param processes: loader processes that must be there too. One that a signal meets while it begins dies of it.
    """
    file = chain.directory.parent / "reached"
    deadline = time.monotonic() + 60
    while not file.exists() or len(set(file.read_text())) < processes:
        assert chain.server.poll(pid) is None, chain.log.read_text()
        assert time.monotonic() < deadline, chain.log.read_text()
        time.sleep(0.01)
    return file


def send(chain: Chain, pid: int, number: int, *, group: bool = True) -> None:
    os.killpg(pid, number) if group else os.kill(pid, number)


def ended(chain: Chain, pid: int, within: float) -> int:
    """The exit status of a process that must be gone in time."""
    deadline = time.monotonic() + within
    while (status := chain.server.poll(pid)) is None:
        if time.monotonic() > deadline:
            os.killpg(pid, signal.SIGKILL)
            chain.server.wait(pid)
            raise AssertionError(f"it was still there after {within} s\n{chain.log.read_text()}")
        time.sleep(0.01)
    return status


def finish_fast(chain: Chain) -> Path:
    for name in ("slow", "slow-at-once", "slow-disk"):
        (chain.directory.parent / name).unlink(missing_ok=True)
    return chain.finish()


# --- B12 -------------------------------------------------------------------------------------------


def test_B12_a_kill_while_checkpoints_are_written_leaves_the_old_or_the_new(
    server: ForkServer, memory_path: Path
) -> None:
    """Eight megabytes in each of 200 steps, and twelve kills; most of the time goes into writing."""
    sections: dict[str, Any] = {
        "model": {"width": 800},
        "dataset": {"width": 800, "samples": 20},
        "trainer": {"epochs": 10},
        "checkpoint": {"every_steps": 1},
    }
    generator = random.Random(12)
    runs = chain(server, memory_path / "killed", **sections)
    steps, known = [0], 0
    while runs.kills < 12:
        if not runs.kill_at_random(generator, 0.7):
            break
        found = runs.runs()
        if len(found) == known or not (found[-1] / "checkpoints" / "last.pt").is_file():
            continue
        known, last = len(found), found[-1] / "checkpoints" / "last.pt"
        steps.append(torch.load(last, weights_only=True)["trainer"]["global_step"])
        batches = [r["step"] for r in records(found[-1], "batch")]
        assert batches[0] == steps[-2] + 1
        assert batches[-1] in (steps[-1], steps[-1] + 1)
        assert len([p for p in last.parent.glob(".last.pt.*") if p.name.endswith(".tmp")]) <= 1
    assert runs.kills >= 10
    assert steps == sorted(steps)
    end = runs.finish()
    assert not list((end / "checkpoints").glob(".*"))
    assert_same_end(end, chain(server, memory_path / "straight", **sections).finish())


# --- B69 -------------------------------------------------------------------------------------------

STEPS = {
    "dataset": {"samples": 1000, "delay": 0.05, "after": 5},
    "trainer": {"max_steps": 20, "epochs": None},
}
"""1000 steps of 0.05 s; the resumed run is told to take 20 of them."""


@pytest.fixture(scope="module")
def straight(server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a run of STEPS ends as that no signal reaches."""
    return chain(server, tmp_path_factory.mktemp("straight") / "chain", **STEPS).finish()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("num_workers", [0, 2])
def test_B69_a_signal_between_steps_has_its_exit_code_and_leaves_a_checkpoint(
    server: ForkServer, tmp_path: Path, straight: Path, number: int, code: int, num_workers: int
) -> None:
    run = chain(
        server,
        tmp_path / "run",
        slow=True,
        dataset={**STEPS["dataset"], "num_workers": num_workers},
        trainer=STEPS["trainer"],
    )
    pid = run.start(group=True)
    reached(run, pid, num_workers)
    send(run, pid, number)
    assert ended(run, pid, 5) == code, run.log.read_text()
    assert "Traceback" not in run.log.read_text()
    (first,) = run.runs()
    held = manifest(first)
    assert held["status"] == "interrupted"
    assert held["error"]["type"] == (RunInterrupted if number == signal.SIGINT else RunTerminated).__name__
    step = checkpoint(first)["trainer"]["global_step"]
    assert 0 < step < 20
    assert step == held["global_step"] == records(first, "batch")[-1]["step"]
    assert_same_end(finish_fast(run), straight)


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
def test_B69_a_second_sigint_while_the_checkpoint_is_written_keeps_the_one_before(
    server: ForkServer, tmp_path: Path, straight: Path, first: int
) -> None:
    run = chain(server, tmp_path / "run", slow=True, checkpoint={"every_steps": 3}, **STEPS)
    pid = run.start(group=True)
    slow = reached(run, pid)  # the sixth sample: last.pt holds step 3
    slow.unlink()
    while checkpoint(run.runs()[0])["trainer"]["global_step"] < 6:
        time.sleep(0.01)
    (run.directory.parent / "slow-disk").touch()
    (run.directory.parent / "slow").unlink()
    slow.unlink(missing_ok=True)
    send(run, pid, first)
    reached(run, pid)  # in the middle of the save
    (stopped,) = run.runs()
    before = digests(stopped / "checkpoints")
    assert [name for name in before if name.endswith(".tmp")]
    send(run, pid, signal.SIGINT)
    assert ended(run, pid, 5) == 130, run.log.read_text()
    left = digests(stopped / "checkpoints")
    assert left["last.pt"] == before["last.pt"]
    assert not [name for name in left if name.endswith(".tmp")]
    assert manifest(stopped)["status"] == "interrupted"
    assert_same_end(finish_fast(run), straight)


# --- B70 -------------------------------------------------------------------------------------------

PLACES: dict[str, dict[str, Any]] = {
    "validation": {"dataset": {"val_samples": 100, "val_delay": 0.2}},
    "validation with workers": {"dataset": {"val_samples": 100, "val_delay": 0.2, "num_workers": 2}},
    "validation inside an epoch": {
        "dataset": {"val_samples": 100, "val_delay": 0.2},
        "trainer": {"validate_every_steps": 3},
    },
    "accumulation window": {
        "dataset": {"samples": 12, "delay": 0.3, "after": 5},
        "trainer": {"accumulate": 4},
    },
    "data that blocks": {"dataset": {"delay": 2.0, "after": 3}},
    "data of workers that block": {"dataset": {"delay": 2.0, "after": 3, "num_workers": 1}},
}


@pytest.mark.parametrize("place", PLACES)
def test_B70_a_signal_is_heeded_within_one_batch_of_any_loop(
    server: ForkServer, tmp_path: Path, place: str
) -> None:
    run = chain(server, tmp_path / "run", slow=True, **PLACES[place])
    pid = run.start(group=True)
    slow = reached(run, pid, PLACES[place]["dataset"].get("num_workers", 0))
    send(run, pid, signal.SIGTERM)
    assert ended(run, pid, 5) == 143, run.log.read_text()
    assert len(slow.read_text()) <= 8  # of 100 batches of a validation
    (first,) = run.runs()
    held = checkpoint(first)
    assert held["kind"] == "resume"
    assert manifest(first)["status"] == "interrupted"
    assert held["trainer"]["validated_at"] < held["trainer"]["global_step"]
    end = finish_fast(run)
    expected = chain(server, tmp_path / "straight", **PLACES[place]).finish()
    assert_same_end(end, expected)  # patience too
    validations = [r["step"] for r in records(first, "validation") + records(end, "validation")]
    assert validations == [r["step"] for r in records(expected, "validation")]


@pytest.mark.parametrize("skipped", [6, 40])
def test_B70_a_signal_while_a_stream_is_skipped_keeps_the_position(
    server: ForkServer, tmp_path: Path, skipped: int
) -> None:
    """What a resumed run reads of a stream and leaves out, 0.2 s a sample."""
    asked = skipped + 2  # the model was tried with two
    sections = {"dataset": {"stream": True, "samples": skipped + 4, "delay": 0.2, "after": asked}}
    run = chain(server, tmp_path / "run", slow=True, **sections)
    pid = run.start(group=True)
    reached(run, pid).unlink()
    send(run, pid, signal.SIGTERM)
    assert ended(run, pid, 5) == 143, run.log.read_text()
    (first,) = run.runs()
    assert checkpoint(first)["trainer"]["global_step"] > skipped
    (run.directory.parent / "slow-at-once").touch()
    pid = run.start(group=True)
    while run.server.poll(pid) is None and len(run.runs()) < 2:
        time.sleep(0.01)
    (run.directory.parent / "reached").unlink(missing_ok=True)
    reached(run, pid)
    send(run, pid, signal.SIGTERM)
    assert ended(run, pid, 5) == 143, run.log.read_text()
    end = finish_fast(run)
    assert_same_end(end, chain(server, tmp_path / "straight", **sections).finish())
