"""Tells all callbacks of something, also after one of them raised."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


class FirstError:
    """Every callback hears of a step or an epoch that is over, since the state of each is saved with it; what the
    first one raised is raised afterwards.

    :param error: of something before.
    """

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error

    def call(self, calls: Iterable[Callable[..., Any]], *arguments: Any) -> None:
        for call in calls:
            try:
                call(*arguments)
            except (Exception, SystemExit) as raised:
                self.error = self.error or raised

    def raise_it(self) -> None:
        if self.error is not None:
            raise self.error
