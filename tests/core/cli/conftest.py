"""The command line inside this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from trainlattice.cli.main import run


class Said(NamedTuple):
    """How a command ended and what it printed."""

    code: int
    out: str
    err: str


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """``trainlattice ...`` without a process of its own, for commands that only read."""

    def call(*arguments: object) -> Said:
        capsys.readouterr()
        try:
            code = run([str(argument) for argument in arguments])
        except SystemExit as stop:
            code = stop.code
        return Said(code, *capsys.readouterr())

    return call
