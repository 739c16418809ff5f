"""``wandb``: a run of Weights & Biases."""

from __future__ import annotations

import netrc
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from trainlattice import OptionError, TrackedRun, Tracker
from trainlattice_plugin_trackers.content import numbers, plain
from trainlattice_plugin_trackers.libraries import give_own_random, require, require_reachable
from trainlattice_plugin_trackers.options import WandbOptions

if TYPE_CHECKING:
    import wandb

_KEYS = ("WANDB_API_KEY", "WANDB_IDENTITY_TOKEN_FILE")


class WandbRun(Tracker):
    """Numbers as ``batch/loss``, ``epoch/train_loss``, ... over steps, and the configuration."""

    def __init__(self, options: WandbOptions) -> None:
        self._options = options
        require("wandb")
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # nothing leaves unasked
        import wandb  # after the check: its own error does not say how to install it

        self._library = wandb
        self._run: wandb.Run | None = None
        self._server = ""
        if options.mode == "online":
            settings = wandb.setup().settings  # from the environment and what `wandb login` wrote
            self._server = settings.base_url
            if not (settings.api_key or _has_key(self._server)):  # wandb itself would ask on a terminal
                raise OptionError(
                    "mode",
                    f"online takes a key for {self._server}: set WANDB_API_KEY or run `wandb login`; mode: "
                    "offline takes none",
                )
        give_own_random("wandb")

    def start(self, run: TrackedRun) -> None:
        options = self._options
        if options.mode == "online":
            require_reachable(self._server)
        first = run.continues[0] if run.continues else run.directory
        self._run = self._library.init(
            mode=options.mode,
            project=options.project,
            entity=options.entity,
            name=options.run_name or run.directory.name,
            group=options.group or first.name[:128],
            tags=list(options.tags),
            dir=run.directory,
            config=plain(run.config),
            reinit="create_new",
            settings=self._library.Settings(
                init_timeout=options.init_timeout_sec,
                console="off",  # else it takes over standard output
                silent=True,
                disable_git=True,  # the run's manifest says it, and nothing leaves unasked
                disable_code=True,
            ),
        )
        give_own_random("wandb")

    def log(self, record: Mapping[str, Any]) -> None:
        assert self._run is not None
        found = numbers(record)
        if found:
            self._run.log(found, step=record["step"])

    def finish(self, status: str, error: str | None) -> None:
        if self._run is not None:
            self._run.finish(exit_code=0 if status == "finished" else 1)


def _has_key(server: str) -> bool:
    if any(os.environ.get(name) for name in _KEYS):
        return True
    try:
        found = netrc.netrc(os.environ.get("NETRC") or None)
    except (OSError, netrc.NetrcParseError):
        return False
    return found.authenticators(urlsplit(server).hostname or "") is not None
