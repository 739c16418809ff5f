"""Loader processes: how they begin, and what they do with signals that are meant for the run."""

from __future__ import annotations

import atexit
import ctypes
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, cast

import torch
from torch.utils.data import DataLoader, Dataset

from trainlattice.diagnostics.errors import TrainLatticeError

StartMethod = Literal["fork", "spawn", "forkserver"]
_TO_THE_GROUP = {getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGUSR1") if hasattr(signal, name)}


def worker_batches(
    fetch: Any,
    places: Iterable[Any] | None,
    *,
    num_workers: int,
    seed: int,
    start_method: StartMethod | None,
) -> Iterator[Any]:
    """Whole batches from loader processes, which are seeded from ``seed`` and start anew for each epoch.

    :param places: what each batch is fetched by, in order; None if ``fetch`` is an iterable dataset of batches.
    """
    context = multiprocessing.get_context(start_method)
    shield = _Shield(context)
    loader = DataLoader(
        cast("Dataset[Any]", fetch),
        batch_size=None,  # what is fetched is a whole batch: the loader collates nothing
        sampler=places,
        num_workers=num_workers,
        generator=torch.Generator().manual_seed(seed),
        multiprocessing_context=context,
        worker_init_fn=shield,
    )
    atexit.register(shield.lift)
    try:
        with _born_shielded(context.get_start_method()):
            batches = iter(loader)
        yield from batches
    except TrainLatticeError as error:
        # torch raises it again with the traceback of the loader process as its message.
        raise type(error)(str(error).rstrip().rpartition("\n")[2].partition(": ")[2]) from None
    finally:
        shield.lift()
        atexit.unregister(shield.lift)


class _Shield:
    """Signals to a whole process group (Ctrl-C, a scheduler) are the main process's to answer: its loader
    processes stay until it has saved. They obey its SIGTERM once it has no use for them, and end when it has."""

    def __init__(self, context: Any) -> None:
        self._lifted = context.RawValue(ctypes.c_bool, False)  # no lock: it is read in a signal handler

    def lift(self) -> None:
        self._lifted.value = True

    def __call__(self, worker: int) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, self._terminate)
        if hasattr(signal, "SIGUSR1"):
            signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        if hasattr(signal, "pthread_sigmask"):
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _TO_THE_GROUP)  # see _born_shielded
        threading.Thread(target=_end_with_parent, name="trainlattice-parent", daemon=True).start()

    def _terminate(self, number: int, frame: object) -> None:
        parent = multiprocessing.parent_process()  # under forkserver, not the process that os.getppid() names
        if self._lifted.value or parent is None or not parent.is_alive():
            os._exit(128 + number)


def _end_with_parent() -> None:
    """torch looks whether the process that forked this one is gone: a fork server is not as long as it has
    children."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


@contextmanager
def _born_shielded(start_method: str) -> Iterator[None]:
    """What is started inside begins with what a run answers itself blocked: a signal to the whole group would end
    a loader process that has no handler yet, or the fork server, and torch's loader processes with it."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows knows no signals to a group
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _TO_THE_GROUP)
    try:
        if start_method != "fork":
            from multiprocessing import forkserver, resource_tracker

            resource_tracker.ensure_running()  # ignores what ends others, and unblocks it here
            signal.pthread_sigmask(signal.SIG_BLOCK, _TO_THE_GROUP)
            if start_method == "forkserver":
                forkserver.ensure_running()
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
