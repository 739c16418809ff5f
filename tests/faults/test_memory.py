"""What a save takes of memory, as the kernel counts it: the benchmark's own measurement, on half of its size."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="no high-water mark to reset"),
]
BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "checkpoints.py"
MEGABYTES = 600


def peak(kind: str, directory: Path) -> tuple[float, float]:
    """MiB before a save and the most with it, in a process of its own."""
    command = [sys.executable, str(BENCHMARK), "--memory", kind, "--megabytes", str(MEGABYTES)]
    line = subprocess.run(
        [*command, "--directory", str(directory)], check=True, capture_output=True, text=True
    ).stdout
    _, before, after, _ = (cell.strip() for cell in line.strip().strip("|").split("|"))
    return float(before), float(after)


def test_a_save_takes_no_copy_of_the_state(tmp_path: Path) -> None:
    before, after = peak("synchronous", tmp_path)
    assert after <= 1.1 * before


def test_an_asynchronous_save_takes_one_copy(tmp_path: Path) -> None:
    before, after = peak("asynchronous", tmp_path)
    copy = MEGABYTES * 1e6 / 2**20
    assert before + 0.9 * copy <= after <= 1.1 * before + copy
