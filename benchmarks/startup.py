"""How long the light commands take, as ratios to a bare interpreter: no torch, no plugin's libraries.

python benchmarks/startup.py [--runs 15]

Each round runs every command once, in turn, and a bare ``python -c pass`` beside each, so that a machine that
slows down slows down both. Printed are medians over the rounds, with minimum and maximum, and the allowance:
3 bare starts + 200 ms for ``plugins list``, + 400 ms for ``validate``; 5 ms for each further plugin.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
PLUGIN = """\
from trainlattice.plugin import Component, hookimpl


@hookimpl
def trainlattice_components():
    return [Component("model", "stranger_{i}", target="stranger_{i}.model:Model")]
"""


def install_strangers(site: Path, count: int) -> None:
    """Distributions as pip leaves them: metadata and a package."""
    for i in range(count):
        info = site / f"stranger_{i}-0.1.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: stranger-{i}\nVersion: 0.1\n")
        (info / "entry_points.txt").write_text(
            f"[trainlattice.plugins]\nstranger_{i} = stranger_{i}.plugin\n"
        )
        package = site / f"stranger_{i}"
        package.mkdir()
        (package / "__init__.py").write_text("")
        (package / "plugin.py").write_text(PLUGIN.format(i=i))
        (package / "model.py").write_text("class Model: ...\n")


def seconds(command: list[str], site: Path | None) -> float:
    """Wall time of a process."""
    env = dict(os.environ)
    if site is not None:
        env["PYTHONPATH"] = str(site)
    started = time.perf_counter()
    subprocess.run(command, env=env, cwd=REPOSITORY, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, default=15, help="rounds (default 15)")
    runs = parser.parse_args().runs
    cli = [sys.executable, "-m", "trainlattice"]
    bare = [sys.executable, "-c", "pass"]
    with tempfile.TemporaryDirectory() as folder:
        sites = {count: Path(folder, str(count)) for count in (10, 50)}
        for count, site in sites.items():
            install_strangers(site, count)
        commands: dict[str, tuple[list[str], Path | None, float | None]] = {
            "--help": ([*cli, "--help"], None, None),
            "plugins list": ([*cli, "plugins", "list"], None, 0.2),
            "plugins list, 10 more": ([*cli, "plugins", "list"], sites[10], 0.2 + 10 * 0.005),
            "plugins list, 50 more": ([*cli, "plugins", "list"], sites[50], 0.2 + 50 * 0.005),
            "validate digits_cnn": ([*cli, "validate", "configs/digits_cnn.yaml"], None, 0.4),
        }
        times: dict[str, list[float]] = {name: [] for name in commands}
        bares: list[float] = []
        for _ in range(runs + 1):  # the first round fills caches and does not count
            for name, (command, site, _) in commands.items():
                bares.append(seconds(bare, None))
                times[name].append(seconds(command, site))
    start = statistics.median(bares[len(commands) :])
    print(f"bare interpreter: {start * 1e3:.0f} ms (median of {runs * len(commands)})")
    print(f"{'command':<24} {'median':>8} {'min':>7} {'max':>7} {'x bare':>7} {'allowed':>8}")
    for name, (_, _, extra) in commands.items():
        taken = times[name][1:]
        middle = statistics.median(taken)
        allowed = f"{(3 * start + extra) * 1e3:.0f} ms" if extra is not None else "-"
        print(
            f"{name:<24} {middle * 1e3:>5.0f} ms {min(taken) * 1e3:>4.0f} ms {max(taken) * 1e3:>4.0f} ms "
            f"{middle / start:>7.1f} {allowed:>8}"
        )
    step = (
        statistics.median(times["plugins list, 50 more"][1:]) - statistics.median(times["plugins list"][1:])
    ) / 50
    print(f"each further plugin: {step * 1e3:.1f} ms")


if __name__ == "__main__":
    main()
