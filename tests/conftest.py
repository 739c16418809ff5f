"""What every test leaves as it was."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """The command line sets up logging for its process."""
    loggers = [logging.getLogger(), logging.getLogger("trainlattice")]
    before = [(logger.level, logger.handlers[:]) for logger in loggers]
    raises = logging.raiseExceptions
    yield
    logging.captureWarnings(False)
    logging.raiseExceptions = raises
    for logger, (level, handlers) in zip(loggers, before, strict=True):
        logger.setLevel(level)
        logger.handlers[:] = handlers
