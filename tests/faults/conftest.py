"""Runs that are killed: real processes, forked from one that has imported torch."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.fork_server import ForkServer


@pytest.fixture(scope="session")
def server() -> Iterator[ForkServer]:
    server = ForkServer()
    yield server
    server.close()
