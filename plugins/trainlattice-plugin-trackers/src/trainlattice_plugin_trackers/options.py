"""Options of the built-in trackers."""

from __future__ import annotations

import os
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from trainlattice.contracts.options import Options, PositiveFloat

Name = Annotated[str, Field(min_length=1, max_length=128)]
_SQLITE = "sqlite:///"


class WandbOptions(Options):
    mode: Literal["offline", "online"] = Field(
        "offline",
        description="offline: into the run directory, for `wandb sync`; online: to the server, which takes a key.",
    )
    project: Name = Field("trainlattice", description="Project of the run.")
    entity: Name | None = Field(None, description="User or team; null: that of the key.")
    run_name: Name | None = Field(None, description="Name of the run; null: its directory's.")
    group: Name | None = Field(
        None, description="Group of the run; null: the directory of the first run that it continues."
    )
    tags: tuple[Name, ...] = Field((), description="Tags of the run.")
    init_timeout_sec: PositiveFloat = Field(20.0, description="Seconds in which the server has to answer.")


def _tracking_uri(uri: str) -> str:
    """A file is written as an absolute path, so that a run can be resumed from anywhere."""
    if "://" not in uri and uri != "databricks":
        raise ValueError("expected a URI such as http://localhost:5000 or sqlite:///mlflow.db")
    path = uri.removeprefix(_SQLITE)
    if path != uri and not path.startswith((os.sep, ":")):
        return _SQLITE + os.path.abspath(os.path.expanduser(path))
    return uri


class MlflowOptions(Options):
    tracking_uri: Annotated[str, AfterValidator(_tracking_uri)] | None = Field(
        None, description="Server or database; null: mlflow.db in the run directory."
    )
    experiment: Name | None = Field(None, description="Experiment of the run; null: experiment.name.")
    run_name: Name | None = Field(None, description="Name of the run; null: its directory's.")
    tags: dict[Name, str] = Field({}, description="Tags of the run.")
