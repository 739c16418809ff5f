"""A process that ends at each call of a save, and what the system must have been asked to do, in which order."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.chains import Chain, assert_same_end
from support.faulty import CALLS
from support.fork_server import ForkServer

pytestmark = pytest.mark.torch

CONFIG = {
    "model": {"name": "dropout_net"},
    "dataset": {"name": "augmented", "batch_size": 4, "samples": 8},
    "trainer": {"epochs": 2, "log_every": 1, "device": "cpu"},
    "checkpoint": {"every_steps": 1, "keep_last": 2, "keep_best": 2},
    "callbacks": [],
}


def test_a_kill_before_or_after_any_call_of_any_save_leaves_a_whole_checkpoint(
    server: ForkServer, memory_path: Path
) -> None:
    """Every fsync, rename, link and unlink of the run, and some of the pieces that are written, one process each;
    then it is resumed."""
    expected = Chain(server, memory_path / "straight", CONFIG).finish()
    ended = 0
    for calls, step in ((CALLS, 1), (("write",), 41)):
        number = 1
        while True:
            chain = Chain(server, memory_path / f"{calls[0]}{number}", CONFIG)
            status = server.wait(chain.start(fault={"number": number, "calls": calls}))
            if status == 0:
                break
            assert status == -signal.SIGKILL, chain.log.read_text()
            chain.check()
            assert_same_end(chain.finish(), expected)
            shutil.rmtree(chain.directory)
            ended += 1
            number += step
    assert ended > 104


def traced(arguments: list[str], directory: Path, config: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    """A run under strace. Skips where processes cannot be traced."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    file = directory / "config.yaml"
    content = {**config, "experiment": {"seed": 5, "runs_dir": str(directory / "runs")}}
    file.write_text(yaml.safe_dump(content), encoding="utf-8")
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); import support.faulty; "
        "from trainlattice import run_from_file; run_from_file(sys.argv[2])"
    )
    done = subprocess.run(
        [
            *("strace", "-f", "-qq", *arguments),
            *(sys.executable, "-c", program, str(Path(__file__).parents[1]), str(file)),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    if "ptrace" in done.stderr or "Operation not permitted" in done.stderr:
        pytest.skip("this machine does not let a process be traced")
    return done


@pytest.mark.parametrize(
    ("call", "number"),
    [("fsync", 6), ("fsync", 9), ("rename", 4), ("rename", 5), ("rename", 7), ("fsync", 14)],
)
def test_a_kill_that_the_kernel_injects_into_a_call_leaves_a_whole_checkpoint(
    call: str, number: int, server: ForkServer, tmp_path: Path
) -> None:
    """SIGKILL on entering the call, whoever makes it: Python, torch or a library."""
    expected = Chain(server, tmp_path / "straight", CONFIG).finish()
    chain = Chain(server, tmp_path / "killed", CONFIG)
    inject = ["-o", os.devnull, "-e", f"inject={call}:signal=SIGKILL:when={number}"]
    done = traced(inject, chain.directory, CONFIG)
    assert done.returncode in (-signal.SIGKILL, 128 + signal.SIGKILL), done.stderr
    chain.check()
    assert_same_end(chain.finish(), expected)


def test_bytes_are_on_disk_before_the_name_is_and_the_index_comes_first(tmp_path: Path) -> None:
    """By the trace of a run: the file is synced, then the index is renamed and its directory synced, then the file
    is renamed and the directory synced."""
    trace = tmp_path / "trace"
    config = {**CONFIG, "trainer": {"epochs": 1, "device": "cpu"}, "checkpoint": {"keep_best": 0}}
    events = "trace=fsync,fdatasync,rename,renameat,renameat2,linkat,link"
    done = traced(["-y", "-o", str(trace), "-e", events], tmp_path, config)
    assert done.returncode == 0, done.stderr
    calls = []
    for line in trace.read_text().splitlines():
        if "/checkpoints" not in line and "metrics.jsonl" not in line:
            continue
        name = re.search(r"\b(fsync|fdatasync|rename\w*|link\w*)\(", line)
        if name:
            targets = re.findall(r'"([^"]*)"|<([^>]*)>', line)
            calls.append(
                (name[1].removesuffix("at2").removesuffix("at"), Path([a or b for a, b in targets][-1]).name)
            )
    save = calls[calls.index(("fsync", "metrics.jsonl")) :]
    temporary = next(target for call, target in save if call == "fsync" and target.startswith(".last.pt"))
    expected = [
        ("fsync", "metrics.jsonl"),  # every record up to this step
        ("fsync", temporary),
        ("fsync", next(target for call, target in save if target.startswith(".index.json"))),
        ("rename", "index.json"),
        ("fsync", "checkpoints"),
        ("rename", "last.pt"),
        ("fsync", "checkpoints"),
    ]
    relevant = [call for call in save if call in expected]
    assert relevant[: len(expected)] == expected
