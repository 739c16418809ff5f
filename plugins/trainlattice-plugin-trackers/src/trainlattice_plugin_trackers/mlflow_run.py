"""``mlflow``: a run of MLflow."""

from __future__ import annotations

import hashlib
import logging
import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trainlattice import TrackedRun, Tracker
from trainlattice_plugin_trackers.content import flattened, numbers, own_directory
from trainlattice_plugin_trackers.libraries import give_own_random, require, require_reachable
from trainlattice_plugin_trackers.options import MlflowOptions

if TYPE_CHECKING:
    from mlflow.entities import Metric
    from mlflow.tracking import MlflowClient

_MOST_METRICS, _MOST_PARAMS, _LONGEST_PARAM = 1000, 100, 6000  # of one call of MLflow's API
_LONGEST_NAME = 250
_REFUSED = re.compile(r"[^/\w.\- ]")  # a colon only by some servers
_DRAW = ("mlflow", "sqlalchemy", "alembic", "opentelemetry")
_STATUS = {"finished": "FINISHED", "failed": "FAILED", "interrupted": "KILLED"}


class MlflowRun(Tracker):
    """Numbers as metrics ``batch/loss``, ``epoch/train_loss``, ... over steps; the configuration as parameters."""

    def __init__(self, options: MlflowOptions) -> None:
        self._options = options
        require("mlflow")
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # nothing leaves unasked
        import mlflow  # after the check: its own error does not say how to install it
        import mlflow.entities
        import mlflow.tracking

        self._library = mlflow
        self._client: MlflowClient | None = None
        self._run = ""
        self._waiting: list[Metric] = []
        give_own_random(*_DRAW)

    def start(self, run: TrackedRun) -> None:
        options, uri, artifacts = self._options, self._options.tracking_uri, None
        if uri is None:
            database = own_directory(run, "mlflow").with_suffix(".db")
            uri, artifacts = f"sqlite:///{database}", (run.directory / "mlartifacts").as_uri()
        elif uri.startswith(("http://", "https://")):
            require_reachable(uri)
        for name in ("mlflow", "alembic"):  # they tell of every table that they make
            logging.getLogger(name).setLevel(logging.WARNING)
        client = self._library.tracking.MlflowClient(tracking_uri=uri)
        give_own_random(*_DRAW)
        tags = {"trainlattice.directory": str(run.directory), **options.tags}
        if run.continues:
            tags["trainlattice.continues"] = str(run.continues[-1])
        experiment = _experiment(client, options.experiment or run.name, artifacts)
        created = client.create_run(experiment, run_name=options.run_name or run.directory.name, tags=tags)
        self._client, self._run = client, created.info.run_id
        params = [
            self._library.entities.Param(allowed(name), str(value)[:_LONGEST_PARAM])
            for name, value in flattened(run.config).items()
        ]
        for begin in range(0, len(params), _MOST_PARAMS):
            client.log_batch(self._run, params=params[begin : begin + _MOST_PARAMS])
        give_own_random(*_DRAW)  # requests load modules too

    def log(self, record: Mapping[str, Any]) -> None:
        time = int(record["time"] * 1000)
        self._waiting += [
            self._library.entities.Metric(allowed(name), float(value), time, record["step"])
            for name, value in numbers(record).items()
        ]

    def flush(self) -> None:
        assert self._client is not None
        while self._waiting:
            self._client.log_batch(self._run, metrics=self._waiting[:_MOST_METRICS])
            del self._waiting[:_MOST_METRICS]

    def finish(self, status: str, error: str | None) -> None:
        if self._client is None:
            return
        if error is not None:
            self._client.set_tag(self._run, "trainlattice.error", error[:_LONGEST_PARAM])
        self._client.set_terminated(self._run, status=_STATUS[status])


def allowed(name: str) -> str:
    """A name that MLflow takes. What it refuses becomes ``_``, and a name that is not its own any more ends with
    digits that follow from all of it: two names stay two, and each is the same in every run."""
    plain = "/".join(part if part.strip(".") else "_" for part in _REFUSED.sub("_", name).split("/"))
    if plain == name and len(name) <= _LONGEST_NAME:
        return name
    digits = hashlib.sha256(name.encode(errors="backslashreplace")).hexdigest()[:8]
    return f"{plain[: _LONGEST_NAME - 9]}_{digits}"


def _experiment(client: MlflowClient, name: str, artifacts: str | None) -> str:
    """The id of an experiment, which is made where it is not there yet."""
    found = client.get_experiment_by_name(name)
    if found is not None:
        return str(found.experiment_id)
    try:
        return str(client.create_experiment(name, artifact_location=artifacts))
    except Exception:
        found = client.get_experiment_by_name(name)  # another run may have made it meanwhile
        if found is None:
            raise
        return str(found.experiment_id)
