"""The process in which a run is made again: ``python -m trainlattice.runs.rerun REQUEST``, a request being JSON.

It ends with exit code 2 before the first step if its data is not that of the request.
"""

from __future__ import annotations

import json
import logging
import signal
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainlattice.diagnostics.errors import TrainLatticeError, UsageError
from trainlattice.runs.child import WITHOUT_TRACKERS, runs_dir_is
from trainlattice.runs.directory import RunDirectory
from trainlattice.runs.experiment import run_from_file
from trainlattice.runs.manifest import read_manifest

if TYPE_CHECKING:
    from trainlattice.training.callbacks import Callback


@dataclass(frozen=True)
class Request:
    """What to run.

    :param config: a resolved configuration.
    :param data: the fingerprint that the data must have, as far as it is known.
    :param until: the step after which SIGTERM comes; None: the run takes its end.
    :param resume: the run directory to continue.
    """

    config: str
    runs_dir: str
    data: dict[str, Any]
    until: int | None = None
    resume: str | None = None

    def as_text(self) -> str:
        return json.dumps(asdict(self))


def differing_data(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """A line for each split that is known not to be the same. A hash that one side lacks says nothing."""
    found = []
    for name in dict.fromkeys((*then, *now)):
        before, after = then.get(name), now.get(name)
        if not isinstance(before, Mapping) or not isinstance(after, Mapping):
            found.append(f"data: the {name} split is {'new' if before is None else 'gone'}")
            continue
        for key, what in (("samples", "size"), ("hash", "content")):
            if None not in (old := before.get(key), new := after.get(key)) and old != new:
                found.append(
                    f"data: the {name} split has another {what}: {_short(old)} then, {_short(new)} now"
                )
    return found


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 20 else f"{text[:19]}..."


def _guard(request: Request) -> Callback:
    """What looks at the data before the first step, and ends the run after the last."""
    from trainlattice.training.callbacks import Callback
    from trainlattice.training.trainer import Trainer

    class Guard(Callback):
        def on_run_start(self, trainer: Trainer) -> None:
            assert trainer.run_dir is not None
            now = read_manifest(RunDirectory(trainer.run_dir)).get("data") or {}
            found = differing_data(request.data, now) if request.data else []
            if found:
                raise UsageError("\n  ".join(found))

        def on_step_end(self, trainer: Trainer) -> None:
            if trainer.state.global_step == request.until:
                signal.raise_signal(signal.SIGTERM)

    return Guard()


def main(text: str) -> int:
    """Carries out a request; the exit code."""
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="[%(levelname)s] %(name)s: %(message)s")
    request = Request(**json.loads(text))
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        run_from_file(
            request.config,
            overrides=[
                runs_dir_is(Path(request.runs_dir)),
                "trainer.max_wall_time_sec=null",
                WITHOUT_TRACKERS,
            ],
            resume=request.resume,
            extra_callbacks=[_guard(request)],
            command="trainlattice runs reproduce",
        )
    except TrainLatticeError as error:
        print(error.render(), file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
