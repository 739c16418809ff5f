"""Which process a run belongs to, and whether it still lives. Torch-free."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_ENDED = frozenset("ZXx")  # states of a process that is over and not yet waited for


def this_process() -> dict[str, Any]:
    """What identifies this process, also when its number is given to another one later.

    ``started`` counts clock ticks since the machine booted; it and ``boot_id`` are None where there is no /proc.
    """
    stat = _stat(os.getpid())
    return {
        "pid": os.getpid(),
        "started": stat[1] if stat else None,
        "host": platform.node(),
        "boot_id": _boot_id(),
        "pid_namespace": _pid_namespace(),
    }


def is_alive(process: Mapping[str, Any]) -> bool | Literal["unknown"]:
    """Whether the process that :func:`this_process` described is still there."""
    pid, started, boot = process.get("pid"), process.get("started"), process.get("boot_id")
    if process.get("host") != platform.node() or type(pid) is not int or pid <= 0:
        return "unknown"
    namespace, ours = process.get("pid_namespace"), _pid_namespace()
    if namespace is not None and ours is not None and namespace != ours:  # a container on this host
        return "unknown"
    here = _boot_id()
    if boot is not None and here is not None:
        if boot != here:
            return False
        stat = _stat(pid)
        return stat is not None and stat[0] not in _ENDED and (started is None or stat[1] == started)
    if os.name == "nt":  # there, signal 0 is no question
        return "unknown"
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _stat(pid: int) -> tuple[str, int] | None:
    """State and start of a process, in ticks since boot; None if it is gone or there is no /proc."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        fields = text.rpartition(")")[2].split()  # the name before it may hold anything
        return fields[0], int(fields[19])
    except (OSError, ValueError, IndexError):
        return None


def _pid_namespace() -> int | None:
    """Process numbers mean the same only inside one."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return None


def _boot_id() -> str | None:
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip() or None
    except (OSError, ValueError):
        return None
