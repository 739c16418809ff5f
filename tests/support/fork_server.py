"""A process that has imported torch and run no operation, and forks one child for each run: a run then starts in
milliseconds instead of seconds, so that hundreds of them can be killed.

Run as a script it reads requests as JSON lines from stdin: ``{"work": "train" | "resume", ...}``. Each is answered
at once with the child's process id; what the child prints goes to the file that the request names.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


class ForkServer:
    """The client's side."""

    def __init__(self) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "fork_server.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self._ask({"work": "hello"})

    def start(self, work: str, path: Path, log: Path, **more: Any) -> int:
        """Begins a run in a child of the server; its process id.

        :param work: ``train`` with a configuration file, or ``resume`` with a run directory.
        :param more: ``fault`` (arguments of :func:`support.faulty.arm`), ``group`` (whether the child leads a
            process group of its own).
        """
        return int(self._ask({"work": work, "path": str(path), "log": str(log), **more}))

    def wait(self, pid: int) -> int:
        """The exit status of a child: negative for a signal, as subprocess has it."""
        return int(self._ask({"work": "wait", "pid": pid}))

    def poll(self, pid: int) -> int | None:
        """As :meth:`wait`, or None if the child is still there."""
        status = self._ask({"work": "poll", "pid": pid})
        return None if status is None else int(status)

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=30)
        self._process.stdout.close()

    def _ask(self, request: dict[str, Any]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


def serve() -> None:
    sys.path.insert(0, str(HERE.parent))
    import importlib

    import numpy  # noqa: F401  its random state belongs to every run
    import torch
    import torch._dynamo  # what the first optimizer imports, in a second

    import trainlattice.runs.execute  # noqa: F401  with everything that a run imports
    from trainlattice.plugin.registry import Registry

    registry = Registry.installed()
    for component in registry.components():
        _ = component.target
    torch.set_num_threads(1)
    import support.faulty  # noqa: F401  registers components

    importlib.invalidate_caches()
    statuses: dict[int, int] = {}
    out = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        request = json.loads(line)
        answer: Any = None
        if request["work"] in ("train", "resume"):
            pid = os.fork()
            if pid == 0:
                _run(request)
            if request.get("group"):
                # Here and in the child: whoever asks next may kill the group before the child got so far.
                with contextlib.suppress(OSError):
                    os.setpgid(pid, pid)
            answer = pid
        elif request["work"] in ("wait", "poll"):
            pid = request["pid"]
            if pid not in statuses:
                found, status = os.waitpid(pid, os.WNOHANG if request["work"] == "poll" else 0)
                if found:
                    statuses[pid] = os.waitstatus_to_exitcode(status)
            answer = statuses.get(pid)
        out.write(json.dumps(answer) + "\n")
        out.flush()


def _run(request: dict[str, Any]) -> None:
    """In the child; never returns."""
    code = 1
    try:
        if request.get("group"):
            os.setpgid(0, 0)
        with open(request["log"], "ab", buffering=0) as log, open(os.devnull, "rb") as nothing:
            os.dup2(nothing.fileno(), 0)
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
        sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
        import support.faulty
        from trainlattice.cli.main import run

        if request.get("fault"):
            support.faulty.arm(**request["fault"])
        command = ["train", request["path"]] if request["work"] == "train" else ["resume", request["path"]]
        code = run(command)
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code)


if __name__ == "__main__":
    serve()
