"""Loader processes, however they begin: a signal to the group is the run's to answer, and none outlives the run."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from support import faulty  # noqa: F401  registers components
from support.runs import assert_identical, checkpoint, manifest, records, run_dirs, tiny, train, trained
from trainlattice import resume_run

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="waits for processes as Linux does"),
]
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join(
        filter(None, (str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH")))
    ),
    "OMP_NUM_THREADS": str(torch.get_num_threads()),  # the bits depend on it
}

LOADS = """
import signal, sys
from itertools import islice
from multiprocessing import active_children
import torch
from support.faulty import Augmented
from trainlattice.data import TensorData
from trainlattice.data.loader import MapSource

if __name__ == "__main__":
    heard = []
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, lambda number, frame: heard.append(number))  # as a Trainer does
    data = Augmented(TensorData(torch.arange(64.0).reshape(16, 4), torch.arange(16)), 0.0)
    source = MapSource(
        data, batch_size=1, shuffle=False, seed=0, num_workers=2, start_method=sys.argv[1]
    )
    batches = source.batches(0)
    print("ready", flush=True)
    list(islice(batches, 2))  # one of each: they are under way
    print(*(process.pid for process in active_children()), flush=True)
    for count in (12, 2):
        sys.stdin.readline()
        print([int(y) for _, y in islice(batches, count)], sorted(set(heard)), flush=True)
"""


@contextmanager
def loading(
    method: str, log: Path, meanwhile: Sequence[signal.Signals] = ()
) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """A process in a group of its own that has taken two of 16 batches, and takes more for a line; and what becomes
    ready when its two loader processes end.

    :param meanwhile: sent to the group, again and again, while the loader processes start.
    """
    with log.open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-c", LOADS, method],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
            env=ENVIRONMENT,
        )
    assert process.stdin is not None
    assert process.stdout is not None
    ends: list[int] = []
    try:
        assert process.stdout.readline() == "ready\n", log.read_text()
        while not select.select([process.stdout], [], [], 0.005)[0]:
            for number in meanwhile:
                os.killpg(process.pid, number)
        workers = [int(pid) for pid in process.stdout.readline().split()]
        ends = [os.pidfd_open(pid) for pid in workers]
        assert len(ends) == 2
        yield process, ends
    finally:
        process.kill()
        process.wait()
        for pidfd in ends:
            if not select.select([pidfd], [], [], 0)[0]:
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            os.close(pidfd)
        process.stdin.close()
        process.stdout.close()


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_they_outlive_signals_to_the_whole_group_and_end_when_their_run_is_killed(
    tmp_path: Path, method: str
) -> None:
    log = tmp_path / "log"
    with loading(method, log) as (process, ends):
        assert process.stdin is not None
        assert process.stdout is not None
        os.killpg(process.pid, signal.SIGTERM)
        os.killpg(process.pid, signal.SIGUSR1)
        process.stdin.write("go on\n")
        process.stdin.flush()
        heard = sorted(map(int, (signal.SIGTERM, signal.SIGUSR1)))
        assert process.stdout.readline() == f"{[*range(2, 14)]} {heard}\n", log.read_text()
        os.kill(process.pid, signal.SIGKILL)
        for pidfd in ends:
            assert select.select([pidfd], [], [], 20)[0], "a loader process is still there"


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_signals_to_the_whole_group_while_they_start_are_the_runs_to_answer(
    tmp_path: Path, method: str
) -> None:
    log = tmp_path / "log"
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
    with loading(method, log, meanwhile=signals) as (process, _):
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("go on\n")
        process.stdin.flush()
        heard = sorted(map(int, signals))
        assert process.stdout.readline() == f"{[*range(2, 14)]} {heard}\n", log.read_text()
        assert log.read_text() == ""


RUNS = """
import os, signal, sys
import support.faulty
from trainlattice import Callback, run_from_file

class Send(Callback):
    def on_step_end(self, trainer):
        if trainer.state.global_step == 2:
            os.killpg(0, getattr(signal, sys.argv[2]))

if __name__ == "__main__":
    run_from_file(sys.argv[1], extra_callbacks=[Send()])
"""


def config(**dataset: Any) -> dict[str, Any]:
    """20 steps of one epoch: more than what loader processes have ready."""
    found = tiny(
        model={"name": "dropout_net"},
        dataset={"name": "augmented", "batch_size": 2, "noisy": True, **dataset},
        trainer={"epochs": 1, "device": "cpu"},
    )
    return {**found, "callbacks": []}


def without_checkpoints(run: Path) -> list[dict[str, Any]]:
    return [record for record in trained(records(run)) if record.get("event") != "checkpoint"]


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = train(config(), tmp_path_factory.mktemp("straight")).run_dir
    assert run is not None
    return run


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
@pytest.mark.parametrize("name", ["SIGTERM", "SIGUSR1"])
def test_a_run_answers_a_signal_to_the_whole_group(
    tmp_path: Path, straight: Path, method: str, name: str
) -> None:
    """By its exit code, or by a checkpoint; either way nothing of what it learns is lost."""
    found = config(num_workers=2, start_method=method)
    found["experiment"]["runs_dir"] = str(tmp_path / "runs")
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(found), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", RUNS, str(tmp_path / "c.yaml"), name],
        capture_output=True,
        text=True,
        start_new_session=True,
        env=ENVIRONMENT,
        timeout=120,
    )
    (run,) = run_dirs(tmp_path)
    parts = [run]
    if name == "SIGTERM":
        assert done.returncode == 143, done.stderr
        assert manifest(run)["status"] == "interrupted"
        assert 2 <= checkpoint(run)["trainer"]["global_step"] < 20
        end = resume_run(run, overrides=["dataset.num_workers=0"]).run_dir
        assert end is not None
        parts.append(end)
    else:
        assert done.returncode == 0, done.stderr
        saved = [r["step"] for r in records(run) if r.get("event") == "checkpoint"]
        assert 2 <= saved[0] < 20
    assert_identical(
        checkpoint(parts[-1])["states"]["model/model"], checkpoint(straight)["states"]["model/model"]
    )
    assert [r for part in parts for r in without_checkpoints(part)] == without_checkpoints(straight)
