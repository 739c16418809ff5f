"""Options: the typed, strict schema of what a YAML file may say about one component.

Importing this module imports pydantic, so registration modules name their options class as a string.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic import NonNegativeFloat as NonNegativeFloat
from pydantic import NonNegativeInt as NonNegativeInt
from pydantic import PositiveFloat as PositiveFloat
from pydantic import PositiveInt as PositiveInt

from trainlattice.contracts.records import Contract


class Options(BaseModel):
    """Base class of every options schema: strict types, no unknown keys, no inf or nan, immutable.

    Subclasses declare fields as in any pydantic model; the description and the default of each field
    appear in ``trainlattice plugins info`` and in the JSON Schema.
    """

    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        validate_default=True,
        protected_namespaces=(),
    )

    def contract(self) -> Contract | None:
        """What these options promise to the components around this one, or None where only the opened
        component can tell. Called without torch, before anything is built."""
        return None

    def record_name(self) -> str | None:
        """The name in records of a metric or loss with these options, where the configuration does not give one
        with ``as``; None: the component's."""
        return None


Shape = Annotated[tuple[PositiveInt, ...], Field(min_length=1)]
"""Sizes of one sample, without the batch dimension, such as ``[1, 28, 28]``."""

Probability = Annotated[float, Field(ge=0.0, lt=1.0)]
"""A number in [0, 1)."""


def _absolute(path: str) -> str:
    if "\0" in path:
        raise ValueError("a path cannot hold the character NUL")
    return os.path.abspath(os.path.expanduser(path))


LocalPath = Annotated[str, Field(min_length=1), AfterValidator(_absolute)]
"""A path of data or output: ``~`` is expanded and a relative path is taken from the current directory.
The resolved configuration holds it absolute, so that a run can be resumed from anywhere."""


class OptionError(ValueError):
    """An option that turned out wrong when the component was built, for example a file that is absent.

    Raised by a component's target; shown at the line of the option like any other configuration mistake.

    :param option: the option's name, or a path into it such as ``("files", 0)``.
    :param message: what is wrong with the value, as one sentence without the option's name.
    """

    def __init__(self, option: str | Iterable[str | int], message: str) -> None:
        super().__init__(message)
        self.option: tuple[str | int, ...] = (option,) if isinstance(option, str) else tuple(option)
        self.message = message


def existing_directory(option: str, path: str) -> Path:
    """The directory that an option names. Raises OptionError if there is none."""
    directory = Path(path)
    if not directory.is_dir():
        reason = "is not a directory" if directory.exists() else "does not exist"
        raise OptionError(option, f"{path} {reason}")
    return directory


def existing_file(option: str, path: str | Path) -> Path:
    """The file that an option names. Raises OptionError if there is none."""
    file = Path(path)
    if not file.is_file():
        reason = "is not a file" if file.exists() else "does not exist"
        raise OptionError(option, f"{path} {reason}")
    return file


def as_json(options: BaseModel) -> dict[str, Any]:
    """Every field with its value, defaults included, as plain JSON types."""
    data: dict[str, Any] = options.model_dump(mode="json", by_alias=True)
    return data
