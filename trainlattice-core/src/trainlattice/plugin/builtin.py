"""The one component that core provides itself: the supervised step. Declared as any plugin would."""

from __future__ import annotations

from collections.abc import Iterable

from trainlattice.contracts.kind import Component
from trainlattice.plugin.hookspecs import hookimpl


@hookimpl
def trainlattice_components() -> Iterable[Component]:
    yield Component(
        "mode",
        "supervised",
        target="trainlattice.training.supervised:Supervised",
        options="trainlattice.contracts.modes:SupervisedOptions",
        summary="one forward, one loss, one backward per micro-batch",
        default_for="mode",
    )
