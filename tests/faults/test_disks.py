"""Disks that are full, read-only or gone, files that are damaged, and a clock that goes back."""

from __future__ import annotations

import os
import random
import resource
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from support import faulty  # noqa: F401  registers components
from support.chains import outcome
from support.runs import assert_identical, digests, run_dirs, train
from trainlattice import Callback, resume_run
from trainlattice.diagnostics.errors import CheckpointError, TrainLatticeError

pytestmark = pytest.mark.torch

CONFIG: dict[str, Any] = {
    "experiment": {"seed": 5},
    "model": {"name": "dropout_net", "width": 2000},
    "dataset": {"name": "augmented", "batch_size": 4, "samples": 8},
    "trainer": {"epochs": 4, "log_every": 1, "device": "cpu"},
    "callbacks": [],
}


class AtEpoch(Callback):
    """Does something when an epoch is over, before its checkpoint is written."""

    def __init__(self, epoch: int, action: Any) -> None:
        self.epoch, self.action = epoch, action

    def on_epoch_end(self, trainer: Any, metrics: Any) -> None:
        if trainer.state.epoch == self.epoch:
            self.action(trainer)


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def assert_resumes_as_if_nothing_had_been(run: Path, tmp_path: Path) -> None:
    straight = train(CONFIG, tmp_path / "straight").run_dir
    assert straight is not None
    resumed = resume_run(run).run_dir
    assert resumed is not None
    assert_identical(outcome(resumed), outcome(straight))


def test_a_file_that_may_not_grow_leaves_the_checkpoint_before_it(tmp_path: Path) -> None:
    seen: dict[str, str] = {}
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def limit(trainer: Any) -> None:
        seen.update(digests(trainer.run_dir / "checkpoints"))
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))

    try:
        with pytest.raises(TrainLatticeError, match=r"last\.pt could not be written: File too large"):
            train(CONFIG, tmp_path, extra_callbacks=[AtEpoch(2, limit)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    (run,) = run_dirs(tmp_path)
    left = digests(run / "checkpoints")
    assert left["last.pt"] == seen["last.pt"]
    assert not [name for name in left if name.endswith(".tmp")]
    assert_resumes_as_if_nothing_had_been(run, tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes into read-only directories")
def test_a_directory_that_became_read_only_leaves_the_checkpoint_before_it(tmp_path: Path) -> None:
    def forbid(trainer: Any) -> None:
        (trainer.run_dir / "checkpoints").chmod(0o555)

    with pytest.raises(TrainLatticeError, match=r"last\.pt could not be written: Permission denied"):
        train(CONFIG, tmp_path, extra_callbacks=[AtEpoch(2, forbid)])
    (run,) = run_dirs(tmp_path)
    (run / "checkpoints").chmod(0o755)
    assert_resumes_as_if_nothing_had_been(run, tmp_path)


@contextmanager
def mounts() -> Iterator[Callable[..., None]]:
    """``mount`` with its arguments, of which the last is the directory; undone at the end."""
    mounted: list[str] = []

    def mount(*arguments: str) -> None:
        done = subprocess.run(["mount", *arguments], capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"nothing can be mounted here: {done.stderr.strip()}")
        mounted.append(arguments[-1])

    try:
        yield mount
    finally:
        for directory in dict.fromkeys(reversed(mounted)):
            subprocess.run(["umount", "--lazy", directory], check=True)


@pytest.mark.skipif(shutil.which("mount") is None or os.geteuid() != 0, reason="only root can mount")
def test_a_mount_that_became_read_only_leaves_the_checkpoint_before_it(tmp_path: Path) -> None:
    with mounts() as mount:

        def protect(trainer: Any) -> None:
            directory = str(trainer.run_dir / "checkpoints")
            mount("--bind", directory, directory)
            mount("-o", "remount,ro,bind", directory)

        with pytest.raises(TrainLatticeError, match=r"last\.pt could not be written: Read-only file system"):
            train(CONFIG, tmp_path, extra_callbacks=[AtEpoch(2, protect)])
        (run,) = run_dirs(tmp_path)
        assert_resumes_as_if_nothing_had_been(run, tmp_path)


@pytest.mark.skipif(shutil.which("mount") is None or os.geteuid() != 0, reason="only root can mount")
@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_disk_that_is_full_leaves_the_checkpoint_before_it(tmp_path: Path, asynchronous: bool) -> None:
    """Room for two checkpoints, the last and the one that is to follow it, until something else takes the rest."""
    config = {**CONFIG, "checkpoint": {"keep_best": 0, "async": asynchronous}}
    runs = tmp_path / "runs"
    runs.mkdir()
    with mounts() as mount:
        mount("-t", "tmpfs", "-o", "size=16m", "tmpfs", str(runs))

        def fill(trainer: Any) -> None:
            with suppress(OSError), open(runs / "other", "wb", buffering=0) as file:
                while True:
                    file.write(bytes(1 << 12))

        with pytest.raises(TrainLatticeError, match="No space left on device"):
            train(config, tmp_path, extra_callbacks=[AtEpoch(2, fill)])
        (runs / "other").unlink()
        (run,) = run_dirs(tmp_path)
        assert not list((run / "checkpoints").glob(".*"))
        resumed = resume_run(run).run_dir
        straight = train(config, tmp_path / "straight").run_dir
        assert resumed is not None
        assert straight is not None
        assert_identical(outcome(resumed), outcome(straight))


def test_a_directory_that_is_gone_ends_the_run_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(TrainLatticeError, match=r"checkpoints/last\.pt could not be written: No such file"):
        train(
            CONFIG,
            tmp_path,
            extra_callbacks=[AtEpoch(2, lambda trainer: shutil.rmtree(trainer.run_dir / "checkpoints"))],
        )


def test_a_clock_that_goes_back_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    straight = train(CONFIG, tmp_path / "straight").run_dir
    assert straight is not None
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() - 86_400 * random.Random(0).random())
    config = {**CONFIG, "checkpoint": {"every_seconds": 0.001, "keep_last": 2}}
    back = train(config, tmp_path / "back").run_dir
    assert back is not None
    assert_identical(outcome(back), outcome(straight))


@pytest.mark.parametrize("damage", ["half", "empty", "flipped", "no index"])
def test_a_damaged_checkpoint_is_named_with_what_is_usable_and_nothing_is_touched(
    damage: str, tmp_path: Path
) -> None:
    run = train({**CONFIG, "checkpoint": {"keep_last": 2}}, tmp_path).run_dir
    assert run is not None
    last = run / "checkpoints" / "last.pt"
    content = bytearray(last.read_bytes())
    generator = random.Random(damage)
    last.unlink()  # it is a link to a numbered one
    if damage == "half":
        last.write_bytes(content[: len(content) // 2])
    elif damage == "empty":
        last.write_bytes(b"")
    else:
        if damage == "no index":
            (run / "checkpoints" / "index.json").unlink()
        for _ in range(16):
            content[generator.randrange(len(content))] ^= 1 << generator.randrange(8)
        last.write_bytes(content)
    before = digests(tmp_path)
    with pytest.raises(CheckpointError, match=r"last\.pt is damaged") as raised:
        resume_run(run, overrides=["trainer.epochs=5"])
    if damage != "no index":
        assert "step-00000008.pt (epoch 4, step 8)" in str(raised.value)
    assert digests(tmp_path) == before
