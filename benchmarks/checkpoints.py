"""What saving and loading cost, against writing, reading and copying as many bytes by hand.

    python benchmarks/checkpoints.py [--megabytes 1200] [--rounds 5] [--directory DIR]

The state is that of a model with AdamW: three tensors of each size. Each round times every row once, in turn;
shown are medians and the ratio to the row that it is compared with. Memory is the most that a process had, before
a save and with it, each in a process of its own.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from trainlattice.checkpoint.background import host_copy
from trainlattice.checkpoint.format import Checkpoint
from trainlattice.checkpoint.store import CheckpointStore, load

LAYERS = 24


def checkpoint(megabytes: int) -> Checkpoint:
    """Of a model with so many bytes of weights and AdamW's two states."""
    size = megabytes * 1_000_000 // 4 // 3 // LAYERS
    weights = {f"layers.{n}.weight": torch.randn(size) for n in range(LAYERS)}
    state = {
        n: {"step": torch.tensor(1.0), "exp_avg": torch.randn(size), "exp_avg_sq": torch.rand(size)}
        for n in range(LAYERS)
    }
    optimizer = {"state": state, "param_groups": [{"lr": 0.001, "params": list(range(LAYERS))}]}
    return Checkpoint(
        states={"model/model": weights, "update/optimizer": {"optimizer": optimizer}},
        trainer={"epoch": 1, "global_step": 1},
        rng={},
        config={},
        order=2,
        budget=None,
    )


def tensors(held: Any) -> list[torch.Tensor]:
    if isinstance(held, torch.Tensor):
        return [held]
    if isinstance(held, dict):
        return [t for value in held.values() for t in tensors(value)]
    return [t for value in held for t in tensors(value)] if isinstance(held, (list, tuple)) else []


def write_by_hand(held: list[torch.Tensor], path: Path) -> None:
    with open(path, "wb", buffering=0) as file:
        for tensor in held:
            file.write(memoryview(tensor.contiguous().view(-1).numpy()).cast("B"))
        os.fsync(file.fileno())


def replace_by_hand(held: list[torch.Tensor], path: Path) -> None:
    """As a save must: the file that stands is replaced only when the new one is on disk."""
    temporary = path.with_suffix(".tmp")
    write_by_hand(held, temporary)
    os.replace(temporary, path)


def read_by_hand(path: Path, *, hashed: bool) -> None:
    sha256, buffer = hashlib.sha256(), bytearray(1 << 20)
    with open(path, "rb", buffering=0) as file:
        while count := file.readinto(buffer):
            if hashed:
                sha256.update(memoryview(buffer)[:count])


def rows(directory: Path, megabytes: int) -> dict[str, tuple[Callable[[], Any], str | None]]:
    """Name -> what is timed, and the row that it is compared with."""
    saved = checkpoint(megabytes)
    held = tensors(saved.states)
    store = CheckpointStore(directory)
    store.save(saved, ["last.pt"])
    hand, replaced = directory / "hand.bin", directory / "replaced.bin"
    torch_file, last = directory / "torch.bin", directory / "last.pt"

    def torch_save() -> None:
        temporary = torch_file.with_suffix(".tmp")
        torch.save(saved.as_plain(), temporary)  # by name: to a file object it is slower
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, torch_file)

    return {
        "write by hand over the same file, fsync": (lambda: write_by_hand(held, hand), None),
        "write by hand, fsync, replace": (lambda: replace_by_hand(held, replaced), None),
        "torch.save, fsync, replace": (torch_save, "write by hand, fsync, replace"),
        "durable save": (lambda: store.save(saved, ["last.pt"]), "write by hand, fsync, replace"),
        "read and hash by hand": (lambda: read_by_hand(last, hashed=True), None),
        "verified load": (lambda: load(last), "read and hash by hand"),
        "read by hand": (lambda: read_by_hand(last, hashed=False), None),
        "unverified mapped load": (
            lambda: torch.load(last, map_location="cpu", weights_only=True, mmap=True),
            "read by hand",
        ),
        "copy in memory by hand": (lambda: [tensor.clone() for tensor in held], None),
        "pause of an asynchronous save": (lambda: host_copy(saved.as_plain()), "copy in memory by hand"),
    }


def measure(megabytes: int, rounds: int, directory: Path) -> None:
    table = rows(directory, megabytes)
    times: dict[str, list[float]] = {name: [] for name in table}
    for _ in range(rounds + 1):
        for name, (work, _) in table.items():
            began = time.perf_counter()
            result = work()
            times[name].append(time.perf_counter() - began)
            del result
    print(
        f"{megabytes} MB, {rounds} rounds after one that is not counted, {torch.get_num_threads()} threads\n"
    )
    print("| | median s | min - max | ratio |\n| --- | --- | --- | --- |")
    for name, (_, against) in table.items():
        counted = times[name][1:]
        median = statistics.median(counted)
        ratio = f"{median / statistics.median(times[against][1:]):.2f}" if against else ""
        print(f"| {name} | {median:.2f} | {min(counted):.2f} - {max(counted):.2f} | {ratio} |")


def memory(kind: str, megabytes: int, directory: Path) -> None:
    """In a process of its own: the most that it had, before a save and after it."""
    saved = checkpoint(megabytes)
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark begins here
    before = resident("VmRSS")
    content = host_copy(saved.as_plain()) if kind == "asynchronous" else saved.as_plain()
    CheckpointStore(directory).save(Checkpoint.of(content), ["last.pt"])
    after = resident("VmHWM")
    print(f"| {kind} | {before / 1024:.0f} | {after / 1024:.0f} | {after / before:.2f} |")


def resident(name: str) -> int:
    """KiB, as the kernel counts it."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1])
    raise KeyError(name)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=int, default=1200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--directory", default=None, help="where to write; by default a temporary directory")
    parser.add_argument("--memory", choices=["synchronous", "asynchronous"], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
        if arguments.memory:
            memory(arguments.memory, arguments.megabytes, Path(directory))
            return
        measure(arguments.megabytes, arguments.rounds, Path(directory))
    print("\n| peak memory | before, MiB | with a save, MiB | ratio |\n| --- | --- | --- | --- |", flush=True)
    for kind in ("synchronous", "asynchronous"):
        subprocess.run(
            [sys.executable, __file__, "--memory", kind, "--megabytes", str(arguments.megabytes)], check=True
        )


if __name__ == "__main__":
    main()
