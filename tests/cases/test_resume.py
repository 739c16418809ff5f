"""Cases about resuming: what was reported of other tools, scaled down; kills are in tests/faults/test_cases.py."""

from __future__ import annotations

import hashlib
import json
import math
import os
import random
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import numpy  # noqa: E402
import yaml  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from support.by_hand import SCRIPT, line, scripted  # noqa: E402
from support.runs import (  # noqa: E402
    assert_identical,
    checkpoint,
    digests,
    interrupted,
    records,
    run_dirs,
    tiny,
    train,
    trained,
    weights,
)
from support.t1 import Slope, table  # noqa: E402
from trainlattice import (  # noqa: E402
    Callback,
    Options,
    register_callback,
    register_dataset,
    register_model,
)
from trainlattice.checkpoint.store import CheckpointStore, load  # noqa: E402
from trainlattice.cli.main import run as run_cli  # noqa: E402
from trainlattice.contracts.records import DatasetContract  # noqa: E402
from trainlattice.contracts.settings import TrainerSettings  # noqa: E402
from trainlattice.data import Splits  # noqa: E402
from trainlattice.data.loader import MapSource  # noqa: E402
from trainlattice.diagnostics.errors import RunTerminated  # noqa: E402
from trainlattice.training.callbacks import CallbackList  # noqa: E402
from trainlattice.training.checkpointing import (  # noqa: E402
    Checkpointer,
    restore_objects,
    restore_progress,
)
from trainlattice.training.mode import Parts  # noqa: E402
from trainlattice.training.strategy import SingleDevice  # noqa: E402
from trainlattice.training.supervised import Supervised  # noqa: E402
from trainlattice.training.trainer import Services, Trainer  # noqa: E402
from trainlattice.training.update import Update  # noqa: E402

pytestmark = pytest.mark.torch


# --- stopping a run, and what it saw ---------------------------------------------------------------


class StopAfter(Callback):
    """SIGTERM right after a step."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, trainer: Trainer) -> None:
        if trainer.state.global_step == self.step:
            os.kill(os.getpid(), signal.SIGTERM)


class Seen(Callback):
    """First column of the inputs of each batch of training, as integers."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []

    def on_batch_end(self, trainer: Trainer, phase: str, container: dict[str, Any]) -> None:
        if phase == "train":
            self.batches.append(container["input"][:, 0].int().tolist())


def stopped(config: dict[str, Any], directory: Path, step: int, **arguments: Any) -> Path:
    """The directory of a run that SIGTERM ended after a step."""
    before = set(run_dirs(directory))
    extra = [*arguments.pop("extra_callbacks", ()), StopAfter(step)]
    with pytest.raises(RunTerminated):
        train(config, directory, extra_callbacks=extra, **arguments)
    (run,) = set(run_dirs(directory)) - before
    assert checkpoint(run)["trainer"]["global_step"] == step
    return run


def without_saves(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Records without what says when a run began, ended and was saved."""
    return [record for record in trained(found) if record.get("event") != "checkpoint"]


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def on_cli(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str]:
    """A command line in this process: its exit code, and what it wrote to stderr."""
    capsys.readouterr()
    return run_cli([str(argument) for argument in arguments]), capsys.readouterr().err


def config_file(config: dict[str, Any], directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "config.yaml"
    experiment = {**config.get("experiment", {}), "runs_dir": str(directory / "runs")}
    path.write_text(yaml.safe_dump({**config, "experiment": experiment}), encoding="utf-8")
    return path


@register_model("wide_line", options=Options)
class WideLine(nn.Module):
    """y = sum of 640,000 weights * x: a checkpoint of 2.5 MB."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(640_000))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.w.mean()


# --- B13: a save that fails ------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 6 MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if sys.platform != "linux":
        pytest.skip("needs a tmpfs")
    try:
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(disk)], capture_output=True, text=True
        )
    except FileNotFoundError:
        pytest.skip("there is no mount here")
    if done.returncode != 0:
        pytest.skip(f"only root can mount a tmpfs: {done.stderr.strip()}")
    try:
        yield disk
    finally:
        subprocess.run(["umount", str(disk)], check=True)


class FailOptions(Options):
    after: int = 2


class NotStorable(Callback):
    """From the end of an epoch on its state holds a function."""

    def __init__(self, options: FailOptions) -> None:
        self.after, self.broken = options.after, options.after == 0

    def on_epoch_end(self, trainer: Trainer, metrics: Any) -> None:
        self.broken = trainer.state.epoch > self.after

    def state_dict(self) -> dict[str, Any]:
        return {"function": lambda: None} if self.broken else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


class Limits(Callback):
    """After an epoch no file may become larger than 1 MB."""

    def __init__(self, options: FailOptions) -> None:
        self.after = options.after

    def on_epoch_start(self, trainer: Trainer) -> None:
        if trainer.state.epoch == self.after:
            hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
            resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, hard))


BEFORE: dict[str, str] = {}
"""What stood in the directory of the checkpoints before the save that fails."""


class Remembers(Callback):
    """Fills BEFORE after an epoch was saved."""

    def __init__(self, options: FailOptions) -> None:
        self.after = options.after

    def on_epoch_start(self, trainer: Trainer) -> None:
        if trainer.state.epoch == self.after:
            assert trainer.run_dir is not None
            BEFORE.clear()
            BEFORE.update(digests(trainer.run_dir / "checkpoints"))


for _name, _callback in (("not_storable", NotStorable), ("limits_files", Limits), ("remembers", Remembers)):
    register_callback(_name, options=FailOptions)(_callback)


@pytest.fixture
def file_sizes() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def failing_save(directory: Path, *callbacks: str, after: int = 2) -> Path:
    """A configuration file. The best epoch is the first; the one after the given epoch is not saved."""
    config = {
        **scripted([1.0, 2.0, 3.0, 4.0]),
        "model": {"name": "wide_line"},
        "callbacks": [{"name": name, "after": after} for name in ("remembers", *callbacks)],
        "trainer": {"epochs": 4, "device": "cpu"},
    }
    return config_file(config, directory)


def assert_only_the_save_failed(directory: Path, code: int, errors: str, reason: str, after: int = 2) -> None:
    (run,) = run_dirs(directory)
    left = digests(run / "checkpoints")
    assert set(BEFORE) == {"best.pt", "last.pt", "index.json"}
    assert (BEFORE["best.pt"] == BEFORE["last.pt"]) == (after == 1)
    for name in ("best.pt", "last.pt"):
        assert left[name] == BEFORE[name]
    assert not [name for name in left if ".tmp" in name]
    assert code == 1
    assert f"{run / 'checkpoints' / 'last.pt'} could not be written" in errors
    assert reason in errors
    assert load(run / "checkpoints" / "last.pt").trainer["epoch"] == after


def test_B13_a_full_disk_leaves_the_checkpoints_before_it(
    small_disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, errors = on_cli(capsys, "train", failing_save(small_disk))
    assert_only_the_save_failed(small_disk, code, errors, "No space left")


@pytest.mark.usefixtures("file_sizes")
@pytest.mark.parametrize("after", [1, 2])
def test_B13_a_file_that_may_not_grow_leaves_the_checkpoints_before_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], after: int
) -> None:
    code, errors = on_cli(capsys, "train", failing_save(tmp_path, "limits_files", after=after))
    assert_only_the_save_failed(tmp_path, code, errors, "File too large", after)


@pytest.mark.parametrize("after", [1, 2])
def test_B13_a_state_that_cannot_be_pickled_leaves_the_checkpoints_before_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], after: int
) -> None:
    code, errors = on_cli(capsys, "train", failing_save(tmp_path, "not_storable", after=after))
    assert_only_the_save_failed(tmp_path, code, errors, "'NotStorable.state_dict.", after)


def test_B13_a_state_that_can_never_be_pickled_costs_no_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, errors = on_cli(capsys, "train", failing_save(tmp_path, "not_storable", after=0))
    assert code == 1
    assert "the state of the callback 'local:not_storable' cannot be saved" in errors
    (run,) = run_dirs(tmp_path)
    assert not [r for r in records(run) if r["type"] == "epoch"]
    assert list((run / "checkpoints").iterdir()) == []


# --- B14, B16: which samples follow ----------------------------------------------------------------


class Numbers:
    """Samples are their own index, and ``x / 10`` is their target."""

    stochastic = False

    def __init__(self, size: int, nan_at: int | None = None) -> None:
        self.size, self.nan_at = size, nan_at

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        x = math.nan if index == self.nan_at else float(index)
        return torch.tensor([x]), torch.tensor([index / 10])


class NumberStream:
    """The same as a stream, shuffled by the epoch and of unknown length."""

    epoch = 0

    def __init__(self, size: int) -> None:
        self.size = size

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        data, order = Numbers(self.size), list(range(self.size))
        random.Random(self.epoch).shuffle(order)
        return (data[index] for index in order)


class NumbersOptions(Options):
    size: int = 10
    stream: bool = False
    nan_at: int | None = None

    def contract(self) -> DatasetContract:
        return DatasetContract((1,), "regression", 1)


@register_dataset("numbers", options=NumbersOptions)
def open_numbers(options: NumbersOptions) -> Splits:
    data = NumberStream(options.size) if options.stream else Numbers(options.size, options.nan_at)
    return Splits(data, contract=options.contract())


def numbers(*, size: int = 10, epochs: int = 3, **sections: Any) -> dict[str, Any]:
    """Batches of two numbers, shuffled by seed 7."""
    dataset = {"name": "numbers", "size": size, "batch_size": 2, **sections.pop("dataset", {})}
    trainer = {"epochs": epochs, "log_every": 1, "device": "cpu", **sections.pop("trainer", {})}
    return {
        **line(optimizer={"lr": 0.01}),
        "experiment": {"seed": 7},
        "callbacks": [],
        **sections,
        "dataset": dataset,
        "trainer": trainer,
    }


def seen_by(config: dict[str, Any], directory: Path, **arguments: Any) -> tuple[Path, list[list[int]]]:
    seen = Seen()
    run = train(config, directory, extra_callbacks=[seen], **arguments).run_dir
    assert run is not None
    return run, seen.batches


@pytest.fixture(scope="module")
def fifteen_steps(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[list[int]]]:
    """Three epochs of five steps that nobody interrupted."""
    return seen_by(numbers(), tmp_path_factory.mktemp("whole"))


@pytest.mark.parametrize("how", ["signal", "max_steps"])
@pytest.mark.parametrize("step", range(1, 15))
def test_B14_every_epoch_goes_on_in_its_own_order(
    tmp_path: Path, fifteen_steps: tuple[Path, list[list[int]]], step: int, how: str
) -> None:
    whole, expected = fifteen_steps
    first = Seen()
    if how == "signal":
        run = stopped(numbers(), tmp_path, step, extra_callbacks=[first])
    else:
        found = train(numbers(trainer={"max_steps": step}), tmp_path, extra_callbacks=[first]).run_dir
        assert found is not None
        run = found
    assert len(first.batches) == step
    resumed, rest = seen_by(numbers(), tmp_path, resume=run)
    batches = first.batches + rest
    assert batches == expected
    ids = [number for batch in batches for number in batch]
    orders = [ids[start : start + 10] for start in (0, 10, 20)]
    assert [sorted(order) for order in orders] == [list(range(10))] * 3
    assert orders[0] != orders[1] != orders[2]
    assert_identical(weights(resumed), weights(whole))
    if how == "signal":
        assert without_saves(records(run) + records(resumed)) == without_saves(records(whole))


WORKERS = [(0, 0), (2, 2), (2, 0), (0, 2)]


@pytest.fixture(scope="module", params=[False, True], ids=["map", "stream"])
def two_epochs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[bool, Path, list[list[int]]]:
    config = numbers(size=12, epochs=2, dataset={"stream": request.param})
    return request.param, *seen_by(config, tmp_path_factory.mktemp("whole"))


@pytest.mark.parametrize(("before", "after"), WORKERS)
def test_B16_the_position_in_the_data_does_not_depend_on_workers(
    tmp_path: Path, two_epochs: tuple[bool, Path, list[list[int]]], before: int, after: int
) -> None:
    stream, whole, expected = two_epochs
    config = numbers(size=12, epochs=2, dataset={"stream": stream, "num_workers": before})
    first = Seen()
    run = stopped(config, tmp_path, 2, extra_callbacks=[first])
    assert first.batches == expected[:2]
    assert checkpoint(run)["states"]["progress"]["windows"] == 2  # of four that workers had prefetched
    config["dataset"]["num_workers"] = after
    resumed, rest = seen_by(config, tmp_path, resume=run)
    assert rest[0] == expected[2]
    assert first.batches + rest == expected
    assert_identical(weights(resumed), weights(whole))


@pytest.mark.parametrize("stream", [False, True])
def test_B16_a_later_checkpoint_stores_a_position_that_moved(tmp_path: Path, stream: bool) -> None:
    """Stopped, resumed and stopped again in the same epoch, with workers."""
    config = numbers(size=12, epochs=1, dataset={"stream": stream, "num_workers": 2})
    _, expected = seen_by(config, tmp_path / "whole")
    run, batches = None, []
    for step in (2, 3, 5):
        seen = Seen()
        run = stopped(config, tmp_path, step, resume=run, extra_callbacks=[seen])
        assert checkpoint(run)["states"]["progress"]["windows"] == step
        batches += seen.batches
    assert batches + seen_by(config, tmp_path, resume=run)[1] == expected


# --- B18: the gradient scaler ----------------------------------------------------------------------


class Nowhere:
    def write(self, record: Any) -> None:
        pass

    def flush(self) -> None:
        pass


class MeanSquaredError(nn.Module):
    task = "regression"

    def forward(self, pred: Tensor, target: Tensor) -> Tensor:
        return nn.functional.mse_loss(pred, target)


def scaled_trainer(directory: Path, max_steps: int) -> Trainer:
    """T1 on six samples under fp16, with a scale that grows after two good steps."""
    strategy, model = SingleDevice(torch.device("cpu")), Slope()
    scaler = torch.amp.GradScaler("cpu", init_scale=65536.0, growth_interval=2)
    update = Update(torch.optim.SGD(model.parameters(), lr=0.01), strategy, scaler=scaler)
    parts = Parts({"model": model}, {"optimizer": update}, MeanSquaredError())
    directory.mkdir(exist_ok=True)
    checkpointer = Checkpointer(CheckpointStore(directory), config={}, components=[], budget=None)
    return Trainer(
        TrainerSettings(device="cpu", precision="fp16", max_steps=max_steps),
        Supervised(Options(), parts),
        parts,
        strategy,
        Services(Nowhere(), CallbackList([]), checkpointer),
        MapSource(table([1.0] * 6, [0.01] * 6).train, batch_size=1, shuffle=False, seed=0),
    )


def scale_of(trainer: Trainer) -> tuple[float, int]:
    scaler = trainer.parts.updates["optimizer"].scaler
    assert scaler is not None
    state = scaler.state_dict()
    return state["scale"], state["_growth_tracker"]


def test_B18_the_gradient_scale_and_its_growth_go_on(tmp_path: Path) -> None:
    first = scaled_trainer(tmp_path, 5)
    first.fit()
    assert scale_of(first) == (262144.0, 1)
    resumed = scaled_trainer(tmp_path / "next", 6)
    held = load(tmp_path / "last.pt")
    restore_objects(resumed.parts, resumed.mode, resumed.callbacks, held, "last.pt")
    restore_progress(resumed, held)
    resumed.state.stop_reason = None  # max_steps was raised
    assert scale_of(resumed) == (262144.0, 1)
    resumed.fit()
    assert resumed.state.global_step == 6
    assert scale_of(resumed) == (524288.0, 0)
    straight = scaled_trainer(tmp_path / "straight", 6)
    straight.fit()
    weight, expected = (t.parts.models["model"].linear.weight for t in (resumed, straight))
    assert torch.equal(weight, expected)


# --- B19: learning rates ---------------------------------------------------------------------------

COSINE = [0.5 * (1 + math.cos(math.pi * s / 10)) for s in range(10)]
AFTER_WARMUP = [0.5 * (1 + math.cos(math.pi * s / 6)) for s in range(6)]
RATES = {
    "cosine": ({"name": "warmup_cosine"}, COSINE),
    "warmup": ({"name": "warmup_cosine", "warmup_steps": 4}, [0.25, 0.5, 0.75, 1.0, *AFTER_WARMUP]),
    "steps": ({"name": "step_decay", "step_size": 3, "gamma": 0.1}, [0.1 ** (s // 3) for s in range(10)]),
}


@pytest.mark.parametrize("steps_per_epoch", [1, 10])
@pytest.mark.parametrize(
    ("schedule", "stop"),
    [("cosine", 5), *(("warmup", stop) for stop in (1, 2, 3, 4)), *(("steps", stop) for stop in (2, 3, 4))],
)
def test_B19_the_rates_after_a_resume_are_those_of_the_schedule(
    tmp_path: Path, schedule: str, stop: int, steps_per_epoch: int
) -> None:
    scheduler, expected = RATES[schedule]
    zeros = [0.0] * steps_per_epoch
    config = line(
        dataset={"x": zeros, "y": zeros},
        optimizer={"lr": 1.0},
        trainer={"epochs": 10 // steps_per_epoch},
    )
    config["scheduler"] = scheduler
    whole = train(config, tmp_path / "whole").run_dir
    first = stopped(config, tmp_path, stop)
    second = train(config, tmp_path, resume=first).run_dir
    rates = [r["lr"] for r in records(first, "batch") + records(second, "batch")]
    assert rates == [r["lr"] for r in records(whole, "batch")]
    assert rates == pytest.approx(expected, abs=1e-6)
    if schedule == "cosine":
        assert rates[5:] == pytest.approx([0.5, 0.345492, 0.206107, 0.095492, 0.024472], abs=1e-6)


# --- B21: the best so far --------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["", "checkpoints/last.pt", "checkpoints/best.pt"])
def test_B21_only_a_value_better_than_all_before_the_resume_replaces_the_best(
    tmp_path: Path, source: str
) -> None:
    config = scripted([0.9, 0.5, 0.8, 0.7, 0.45, 0.6])
    first = interrupted(config, tmp_path, epochs=3)
    best = sha256(first / "checkpoints" / "best.pt")
    assert checkpoint(first, "best.pt")["trainer"]["best_metric"] == 0.5
    SCRIPT[:] = [0.8, 0.7, 0.45, 0.6] if source.endswith("best.pt") else [0.7, 0.45, 0.6]
    found: dict[int, str] = {}

    class Digests(Callback):
        def on_epoch_start(self, trainer: Trainer) -> None:
            assert trainer.run_dir is not None
            found[trainer.state.epoch] = sha256(trainer.run_dir / "checkpoints" / "best.pt")

    result = train(config, tmp_path, resume=first / source, extra_callbacks=[Digests()])
    assert found[3] == found[4] == best
    assert found[5] == sha256(result.run_dir / "checkpoints" / "best.pt") != best  # type: ignore[operator]
    held = checkpoint(result.run_dir, "best.pt")["trainer"]
    assert (held["epoch"], held["best_metric"], held["best_step"]) == (5, pytest.approx(0.45), 5)
    assert (result.best_epoch, result.epoch) == (5, 6)
    assert sha256(first / "checkpoints" / "best.pt") == best


# --- B22: what is left to train --------------------------------------------------------------------


def test_B22_no_epoch_is_trained_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def resume(run: Path) -> tuple[int, str]:
        code = run_cli(["resume", str(run), "--set", "trainer.epochs=6"])
        return code, capsys.readouterr().out

    assert run_cli(["train", str(config_file(numbers(epochs=4), tmp_path))]) == 0
    (first,) = run_dirs(tmp_path)
    assert resume(first)[0] == 0
    (second,) = set(run_dirs(tmp_path)) - {first}
    for run, epochs in ((first, range(1, 5)), (second, range(5, 7))):
        batches = [(r["epoch"], r["step"]) for r in records(run, "batch")]
        assert batches == [(epoch, 5 * (epoch - 1) + k) for epoch in epochs for k in range(1, 6)]
        assert [r["epoch"] for r in records(run, "epoch")] == list(epochs)
    before = digests(tmp_path)
    code, output = resume(second)
    assert code == 0
    assert "nothing is left to train" in output
    assert digests(tmp_path) == before
    longer = train(numbers(epochs=6), tmp_path / "whole").run_dir
    assert_identical(weights(second), weights(longer))


# --- B24: files that would run code ----------------------------------------------------------------


class Command:
    """Pickled, it is a call of os.system."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch '{self.canary}'",)


def write_malicious(path: Path, canary: Path, form: str) -> None:
    """A checkpoint that runs a command when it is unpickled, in each form that torch.load reads."""
    path.unlink(missing_ok=True)
    content = {"format": 4, "model": Command(canary)}
    if form == "genuine but for its rng":
        held = load(path.parent / "best.pt").as_plain()
        content = {**held, "rng": {**held["rng"], "numpy": Command(canary)}}
    torch.save(content, path, _use_new_zipfile_serialization=form != "old torch format")
    index = path.parent / "index.json"
    if form == "listed in the index":
        listed = json.loads(index.read_text())
        for entry in listed["files"]["last.pt"]:
            entry |= {"sha256": sha256(path), "size": path.stat().st_size}
        index.write_text(json.dumps(listed))
    else:
        index.unlink(missing_ok=True)


REFUSED = "holds more than tensors and plain data and was not loaded, since that could run code: posix.system"


@pytest.mark.parametrize(
    ("form", "why"),
    [
        ("as reported", REFUSED),
        ("listed in the index", REFUSED),
        ("genuine but for its rng", REFUSED),
        ("old torch format", "is damaged: it is no checkpoint file"),
    ],
)
def test_B24_a_checkpoint_cannot_run_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str, why: str
) -> None:
    assert run_cli(["train", str(config_file(tiny(), tmp_path))]) == 0
    (run,) = run_dirs(tmp_path)
    canary, last = tmp_path / "canary", run / "checkpoints" / "last.pt"
    write_malicious(last, canary, form)
    torch.load(last, weights_only=False)  # it is what it is meant to be
    assert canary.exists()
    canary.unlink()
    for command in ("resume", "evaluate"):
        for path in (run, last) if command == "resume" else (last,):
            code, errors = on_cli(capsys, command, path, *_more_epochs(command))
            assert code == 2
            assert f"{last} {why}" in errors
            assert not canary.exists()
    for arguments in (
        ["checkpoint", "inspect", last],
        ["checkpoint", "inspect", run],
        ["checkpoint", "verify", run],
        ["checkpoint", "list", run],
        ["runs", "list", run.parent],
        ["runs", "show", run],
        ["runs", "diff", run, run],
        ["plugins", "list", "--plugin", last],
        ["plugins", "list"],
        ["train", tmp_path / "config.yaml", "--resume", last],
        ["train", last],
        ["validate", last],
    ):
        on_cli(capsys, *arguments)
        assert not canary.exists(), arguments
    assert run_dirs(tmp_path) == [run]


def _more_epochs(command: str) -> tuple[str, ...]:
    return ("--set", "trainer.epochs=3") if command == "resume" else ()


def test_B24_a_best_checkpoint_that_is_carried_over_cannot_run_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(["train", str(config_file(scripted([1.0, 2.0]), tmp_path))]) == 0
    (run,) = run_dirs(tmp_path)
    canary = tmp_path / "canary"
    write_malicious(run / "checkpoints" / "best.pt", canary, "as reported")
    SCRIPT[:] = [3.0]
    code, errors = on_cli(capsys, "resume", run, "--set", "trainer.epochs=3")
    assert code == 0
    assert f"best.pt {REFUSED}" in errors
    assert not canary.exists()


def test_B24_a_file_of_tensors_cannot_run_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    canary = tmp_path / "canary"
    good = {"features": torch.randn(8, 4), "labels": torch.arange(8) % 3}
    torch.save(good, tmp_path / "train.pt")
    torch.save({**good, "extra": Command(canary)}, tmp_path / "validation.pt")
    dataset = {"name": "tensor", "batch_size": 8, "root": str(tmp_path), "num_classes": 3}
    code, errors = on_cli(capsys, "train", config_file(tiny(dataset=dataset), tmp_path))
    assert code == 2
    assert "validation.pt holds" in errors
    assert "could run code" in errors
    assert not canary.exists()
    assert not run_dirs(tmp_path)


class Counts(Callback):
    """A callback with a state of every plain type."""

    def state_dict(self) -> dict[str, Any]:
        return {"list": [1, 2.5, None], "text": "a", "tensor": torch.ones(2), "nested": {"deep": (True,)}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


def test_B24_bare_torch_loads_our_checkpoints_safely(tmp_path: Path) -> None:
    config = tiny(scheduler={"name": "warmup_cosine"}, trainer={"early_stopping": {"patience": 3}})
    numpy.random.rand()  # its state belongs to the checkpoint
    run = train(config, tmp_path, extra_callbacks=[Counts()]).run_dir
    assert run is not None
    program = (
        "import sys, torch; found = [torch.load(path, weights_only=True) for path in sys.argv[1:]]; "
        "assert 'trainlattice' not in sys.modules; assert all(f['rng']['numpy'] for f in found); "
        "assert all(f['states']['callbacks'] for f in found)"
    )
    files = [str(run / "checkpoints" / name) for name in ("last.pt", "best.pt")]
    done = subprocess.run(
        [sys.executable, "-I", "-c", program, *files], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr


# --- B25: a newest checkpoint that is damaged ------------------------------------------------------


@pytest.mark.parametrize("damage", ["half", "empty", "flipped"])
@pytest.mark.parametrize("index", ["good", "damaged", "gone"])
def test_B25_a_damaged_checkpoint_is_named_with_the_usable_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: str, index: str
) -> None:
    SCRIPT[:] = [2.0, 1.0, 3.0]
    assert run_cli(["train", str(config_file(scripted([2.0, 1.0, 3.0]), tmp_path))]) == 0
    (run,) = run_dirs(tmp_path)
    last, best = (run / "checkpoints" / name for name in ("last.pt", "best.pt"))
    content = bytearray(last.read_bytes())
    if damage == "flipped":
        middle = len(content) // 2
        content[middle : middle + 16] = bytes(byte ^ 0xFF for byte in content[middle : middle + 16])
        last.write_bytes(content)
    else:
        os.truncate(last, len(content) // 2 if damage == "half" else 0)
    if index == "gone":
        (run / "checkpoints" / "index.json").unlink()
    elif index == "damaged":
        os.truncate(run / "checkpoints" / "index.json", 60)
    before = digests(tmp_path)
    for path in (run, last):
        code, errors = on_cli(capsys, "resume", path, "--set", "trainer.epochs=4")
        assert code == 2
        assert f"{last} is damaged" in errors
        assert f"usable: {best} (epoch 2, step 2)" in errors
        assert digests(tmp_path) == before
    SCRIPT[:] = [4.0, 5.0]
    code, errors = on_cli(capsys, "resume", best, "--set", "trainer.epochs=4")
    assert code == 0
    assert ("index.json cannot be understood" in errors) == (index == "damaged")
    assert {name: held for name, held in digests(tmp_path).items() if name in before} == before
    (second,) = set(run_dirs(tmp_path)) - {run}
    assert [r["epoch"] for r in records(second, "epoch")] == [3, 4]


# --- B70: loader processes that the signal ends too ------------------------------------------------


class Dying:
    """In a loader process a sample brings SIGTERM to the run, and the end to the loader process: as a signal to
    the whole group does to one that has only just begun."""

    stochastic = False

    def __init__(self, dies: bool) -> None:
        self.dies = dies

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        if self.dies and index == 2 and torch.utils.data.get_worker_info() is not None:
            os.kill(os.getppid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.ones(1), torch.full((1,), index / 10)


class DyingOptions(Options):
    phase: str

    def contract(self) -> DatasetContract:
        return DatasetContract((1,), "regression", 1)


@register_dataset("dying", options=DyingOptions)
def open_dying(options: DyingOptions) -> Splits:
    splits = [Dying(options.phase == phase) for phase in ("train", "val")]
    return Splits(*splits, contract=options.contract())


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # torch's loader in its __del__
@pytest.mark.parametrize("phase", ["train", "val"])
def test_B70_a_signal_that_ends_a_loader_process_too_is_what_counts(tmp_path: Path, phase: str) -> None:
    config = line(trainer={"epochs": 1, "device": "cpu"})
    config["dataset"] = {"name": "dying", "phase": phase, "batch_size": 1, "num_workers": 1}
    with pytest.raises((RunTerminated, RuntimeError)) as raised:
        train(config, tmp_path)
    assert raised.type is RunTerminated
    (run,) = run_dirs(tmp_path)
    config["dataset"]["num_workers"] = 0  # where nothing dies
    whole = train(config, tmp_path / "whole").run_dir
    assert_identical(weights(train(config, tmp_path, resume=run).run_dir), weights(whole))


# --- others of the same kind: Lightning, Transformers, accelerate, torchtitan ----------------------


def test_resume_in_a_ragged_epoch_of_windows_skips_micro_batches(tmp_path: Path) -> None:
    """Windows of 3, 3 and 1 batches; steps were taken for batches (transformers#5605, gpt-neox#308)."""
    config = numbers(size=14, epochs=2, trainer={"accumulate": 3})
    whole, expected = seen_by(config, tmp_path / "whole")
    assert len(expected) == 14
    for step in (1, 3, 4, 5):
        first = Seen()
        run = stopped(config, tmp_path / str(step), step, extra_callbacks=[first])
        resumed, rest = seen_by(config, tmp_path / str(step), resume=run)
        assert first.batches + rest == expected
        assert_identical(weights(resumed), weights(whole))


def test_resume_keeps_leaving_out_the_ragged_batch(tmp_path: Path) -> None:
    """The loader that skips was made without drop_last (accelerate#4295)."""
    config = numbers(size=11, epochs=2, dataset={"drop_last": True})
    _, expected = seen_by(config, tmp_path / "whole")
    first = Seen()
    run = stopped(config, tmp_path, 7, extra_callbacks=[first])
    assert first.batches + seen_by(config, tmp_path, resume=run)[1] == expected
    assert {len(batch) for batch in expected} == {2}


@pytest.mark.parametrize("step", [1, 2, 3, 4, 5])
def test_resume_inside_an_epoch_validates_on_all_data_and_at_the_same_steps(
    tmp_path: Path, step: int
) -> None:
    """After a resume one batch was validated instead of all, at steps that were off by one
    (Lightning#19549, #19367)."""

    class Batches(Callback):
        def __init__(self) -> None:
            self.phases: list[str] = []

        def on_batch_end(self, trainer: Trainer, phase: str, container: dict[str, Any]) -> None:
            self.phases.append(phase)

    points = [0.1 * number for number in range(12)]
    config = line(
        dataset={"x": points, "y": points, "val_x": points, "val_y": points, "batch_size": 4},
        trainer={"epochs": 2, "validate_every_steps": 2},
    )
    straight, first, rest = Batches(), Batches(), Batches()
    whole = train(config, tmp_path / "whole", extra_callbacks=[straight]).run_dir
    run = stopped(config, tmp_path, step, extra_callbacks=[first])
    resumed = train(config, tmp_path, resume=run, extra_callbacks=[rest]).run_dir
    # A validation that the signal ended after its first batch begins anew.
    left_out = [] if step % 2 else ["val"]
    begun = straight.phases[: len(first.phases)]
    assert first.phases == begun
    assert rest.phases == straight.phases[len(begun) - len(left_out) :]
    assert without_saves(records(run) + records(resumed)) == without_saves(records(whole))


@pytest.mark.parametrize("step", [1, 2, 3, 4, 6])
def test_resume_after_a_skipped_step_counts_what_was_read(tmp_path: Path, step: int) -> None:
    """The position was computed from the steps that were taken (transformers#5605)."""
    config = numbers(epochs=2, dataset={"nan_at": 4}, trainer={"nonfinite": "skip"})
    whole = train(config, tmp_path / "whole").run_dir
    assert checkpoint(whole)["trainer"]["skipped_steps"] == 2
    run = stopped(config, tmp_path, step)
    resumed = train(config, tmp_path, resume=run).run_dir
    assert without_saves(records(run) + records(resumed)) == without_saves(records(whole))
    assert checkpoint(resumed)["trainer"] == checkpoint(whole)["trainer"]
    assert_identical(weights(resumed), weights(whole))


def test_resume_has_a_schedule_that_counts_every_step_once_in_every_kind_of_checkpoint(
    tmp_path: Path,
) -> None:
    """Checkpoints by steps were written before the schedule moved, those by epochs after it
    (Lightning#7637, #1772)."""
    config = numbers(epochs=2, checkpoint={"every_steps": 1, "keep_last": None})
    config["scheduler"] = {"name": "warmup_cosine"}
    run = train(config, tmp_path).run_dir
    assert run is not None
    files = sorted((run / "checkpoints").glob("step-*.pt"))
    assert len(files) == 10
    for number, path in enumerate(files, start=1):
        held = checkpoint(run, path.name)
        assert held["trainer"]["global_step"] == number
        assert held["states"]["update/optimizer"]["scheduler"]["last_epoch"] == number
        assert held["states"]["progress"]["windows"] == number % 5
        if number in (1, 4, 5, 9):
            resumed = train(config, tmp_path / path.stem, resume=path).run_dir
            assert_identical(weights(resumed), weights(run))
            assert checkpoint(resumed)["trainer"] == checkpoint(run)["trainer"]


class Remembering(Callback):
    """Counts steps over all parts of a run, and notes what it knew when one began."""

    def __init__(self) -> None:
        self.count, self.at_start = 0, -1

    def on_run_start(self, trainer: Trainer) -> None:
        self.at_start = self.count

    def on_step_end(self, trainer: Trainer) -> None:
        self.count += 1

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.count = state["count"]


def test_resume_gives_callbacks_their_state_before_the_run_begins(tmp_path: Path) -> None:
    """The start of the run put the count of early stopping back to zero (Lightning#1463)."""
    first, second = Remembering(), Remembering()
    run = stopped(numbers(), tmp_path, 7, extra_callbacks=[first])
    train(numbers(), tmp_path, resume=run, extra_callbacks=[second])
    assert (first.count, second.at_start, second.count) == (7, 7, 15)


class TiedOptions(Options):
    freezes: bool = False


@register_model("tied", options=TiedOptions)
class Tied(nn.Module):
    """One weight in two places, and a bias that may be frozen."""

    def __init__(self, options: TiedOptions) -> None:
        super().__init__()
        self.first = nn.Linear(1, 1)
        self.second = nn.Linear(1, 1)
        self.second.weight = self.first.weight
        self.first.bias.requires_grad_(not options.freezes)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x))


@pytest.mark.parametrize("freezes", [False, True])
def test_resume_keeps_weights_tied_and_frozen(tmp_path: Path, freezes: bool) -> None:
    config = numbers(model={"name": "tied", "freezes": freezes}, optimizer={"name": "adamw", "lr": 0.01})
    whole = train(config, tmp_path / "whole").run_dir
    run = stopped(config, tmp_path, 7)
    resumed = train(config, tmp_path, resume=run).run_dir
    held = weights(resumed)
    assert torch.equal(held["first.weight"], held["second.weight"])
    assert torch.equal(held["first.bias"], weights(run)["first.bias"]) == freezes
    key = "update/optimizer"
    assert_identical(checkpoint(resumed)["states"][key], checkpoint(whole)["states"][key])
    assert_identical(held, weights(whole))


def test_resume_of_one_checkpoint_twice_gives_the_same_twice(tmp_path: Path) -> None:
    """Also through a link to the run, as ``latest`` is."""
    run = stopped(numbers(), tmp_path, 7)
    (tmp_path / "latest").symlink_to(run)
    before = digests(run)
    ends = [train(numbers(), tmp_path, resume=path).run_dir for path in (run, tmp_path / "latest")]
    assert ends[0] != ends[1]
    whole = train(numbers(), tmp_path / "whole").run_dir
    for end in ends:
        assert_identical(weights(end), weights(whole))
    assert digests(run) == before


def test_resume_removes_no_checkpoint_of_the_run_before(tmp_path: Path) -> None:
    """Retention must not count the files of the earlier run as its own and delete them."""
    config = numbers(epochs=5, checkpoint={"keep_last": 2})
    run = stopped(config, tmp_path, 12)
    before = digests(run)
    assert len([name for name in before if "step-" in name]) == 2
    resumed = train(config, tmp_path, resume=run).run_dir
    assert resumed is not None
    assert digests(run) == before
    assert sorted(p.name for p in (resumed / "checkpoints").glob("step-*")) == [
        "step-00000020.pt",
        "step-00000025.pt",
    ]


def test_resume_from_the_best_has_the_patience_of_that_step(tmp_path: Path) -> None:
    config = scripted([1.0, 0.5, 2.0, 3.0], early_stopping={"patience": 5})
    run = train(config, tmp_path).run_dir
    assert run is not None
    assert checkpoint(run)["trainer"]["stale_validations"] == 2
    SCRIPT[:] = [2.0, 0.4]
    result = train(config, tmp_path, resume=run / "checkpoints" / "best.pt")
    assert checkpoint(result.run_dir)["trainer"]["stale_validations"] == 0
    assert result.best_epoch == 4


def test_resume_inside_an_epoch_with_fewer_steps_than_were_taken_trains_nothing(tmp_path: Path) -> None:
    """The record of the part of the epoch that was trained is left to write, and no more."""
    run = stopped(numbers(), tmp_path, 7)
    result = train(numbers(trainer={"max_steps": 5}), tmp_path, resume=run)
    assert result.global_step == 7
    assert [r["type"] for r in records(result.run_dir) if r["type"] != "event"] == ["epoch"]
    assert_identical(weights(result.run_dir), weights(run))
