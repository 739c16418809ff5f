"""Disks that are full, read-only or gone, files that are damaged, and a clock that goes back."""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from support import faulty  # noqa: F401  registers components
from support.chains import outcome
from support.runs import assert_identical, digests, run_dirs, tiny, train
from trainlattice import Callback, resume_run
from trainlattice.checkpoint.store import load
from trainlattice.diagnostics.errors import CheckpointError, TrainLatticeError
from trainlattice.runs.manifest import status_of

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


# --- mounts that only a process of its own sees

READ_ONLY = """
import subprocess
from pathlib import Path
from trainlattice import Callback, Options, register_callback

def make_read_only(directory):
    for options in (["--bind", directory, directory], ["-o", "remount,ro,bind", directory]):
        subprocess.run(["mount", *options], check=True)

class WhichOptions(Options):
    which: str
    epoch: int

@register_callback("makes_read_only", options=WhichOptions)
class MakesReadOnly(Callback):
    def __init__(self, options):
        self.options = options

    def on_epoch_end(self, trainer, metrics):
        if trainer.state.epoch == self.options.epoch:
            make_read_only(trainer.run_dir / self.options.which)
"""


def in_its_own_mounts(
    command: str, *arguments: str | Path, directory: Path
) -> subprocess.CompletedProcess[str]:
    """A shell command whose mounts nobody else sees. Skips where no such can be made."""
    unshare = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    try:
        there = directory / "there"
        there.mkdir(exist_ok=True)
        subprocess.run([*unshare, 'mount --bind "$1" "$1"', "sh", there], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"nothing can be mounted here: {error}")
    return subprocess.run(
        [*unshare, command, "sh", sys.executable, *arguments],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def write_config(directory: Path, **sections: Any) -> Path:
    config = {**tiny(model={"dropout": 0.3}, trainer={"epochs": 4}), "callbacks": [], **sections}
    config["experiment"]["runs_dir"] = str(directory / "runs")
    (directory / "read_only.py").write_text(READ_ONLY)
    file = directory / "c.yaml"
    file.write_text(yaml.safe_dump(config), encoding="utf-8")
    return file


@pytest.mark.parametrize("which", ["checkpoints", "."])
def test_a_file_system_that_becomes_read_only_ends_the_run_and_costs_what_was_not_saved(
    which: str, tmp_path: Path
) -> None:
    straight = train({**tiny(model={"dropout": 0.3}, trainer={"epochs": 4}), "callbacks": []}, tmp_path / "s")
    assert straight.run_dir is not None
    makes = {"name": "makes_read_only", "which": which, "epoch": 3}
    file = write_config(tmp_path, callbacks=[makes], plugins={"local": ["read_only.py"]})
    done = in_its_own_mounts('exec "$1" -m trainlattice train "$2"', file, directory=tmp_path)
    assert done.returncode == 1, done.stderr
    (run,) = run_dirs(tmp_path)
    last = run / "checkpoints" / "last.pt"
    assert (
        f"error: {last} could not be written: Read-only file system; earlier checkpoints are" in done.stderr
    )
    assert "Traceback" not in done.stderr
    unwritten = "manifest.json could not be written: Read-only file system"
    assert (unwritten in done.stderr) == (which == ".")
    found = json.loads((run / "manifest.json").read_text())
    assert status_of(found).name == ("killed" if which == "." else "failed")
    assert load(last).trainer["epoch"] == 2
    assert [path.name for path in last.parent.iterdir() if path.name.startswith(".")] == []
    resumed = resume_run(run, overrides=["callbacks=[]"]).run_dir
    assert resumed is not None
    assert_identical(outcome(resumed), outcome(straight.run_dir))


def test_a_directory_of_runs_that_is_read_only_is_named_before_anything_is_trained(tmp_path: Path) -> None:
    file = write_config(tmp_path)
    runs = tmp_path / "runs"
    runs.mkdir()
    done = in_its_own_mounts(
        'mount --bind "$3" "$3" && mount -o remount,ro,bind "$3" && exec "$1" -m trainlattice train "$2"',
        *(file, runs),
        directory=tmp_path,
    )
    assert done.returncode == 2, done.stderr
    assert (
        f"no run directory can be made in {runs} (experiment.runs_dir): Read-only file system" in done.stderr
    )
    assert "Traceback" not in done.stderr
    assert list(runs.iterdir()) == []


def test_a_run_on_a_read_only_file_system_is_resumed_elsewhere(tmp_path: Path) -> None:
    """Its best.pt cannot be linked over two mounts: it is copied."""
    config = {**tiny(trainer={"epochs": 2}), "callbacks": []}
    run = train(config, tmp_path).run_dir
    assert run is not None
    before = digests(run)
    done = in_its_own_mounts(
        'mount --bind "$2" "$2" && mount -o remount,ro,bind "$2" && exec "$1" -m trainlattice resume "$2" '
        '--set trainer.epochs=3 --set "experiment.runs_dir=$3"',
        *(run, tmp_path / "elsewhere"),
        directory=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    (second,) = (tmp_path / "elsewhere").iterdir()
    assert load(second / "checkpoints" / "last.pt").trainer["epoch"] == 3
    best = load(second / "checkpoints" / "best.pt").trainer
    assert best["global_step"] == load(second / "checkpoints" / "last.pt").trainer["best_step"]
    assert digests(run) == before
