"""The command line as a fresh process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def run_cli(
    *arguments: str | os.PathLike[str],
    cwd: Path,
    site: Path | None = None,
    env: dict[str, str] | None = None,
    timeout: float = 120,
) -> subprocess.CompletedProcess[str]:
    """``python -m trainlattice ...`` in ``cwd``.

    :param site: a directory of fake distributions that the process sees as installed.
    """
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8", **(env or {})}
    environment.pop("NO_COLOR", None)
    if site is not None:
        environment["PYTHONPATH"] = _first_on_path(site)
    return subprocess.run(
        [sys.executable, "-m", "trainlattice", *map(os.fspath, arguments)],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=timeout,
    )


def modules_after(code: str, *, cwd: Path, site: Path | None = None) -> set[str]:
    """Top-level names in ``sys.modules`` after running code in a fresh interpreter."""
    program = f"{code}\nimport sys\nprint('\\n'.join(sorted({{m.partition('.')[0] for m in sys.modules}})))"
    environment = dict(os.environ)
    if site is not None:
        environment["PYTHONPATH"] = _first_on_path(site)
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=cwd, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def _first_on_path(site: Path) -> str:
    """For PYTHONPATH: before what stands there."""
    return os.pathsep.join(filter(None, (str(site), os.environ.get("PYTHONPATH"))))
