"""Parameters of a run under the names that a configuration has for them."""

from __future__ import annotations

from collections.abc import Sequence

from trainlattice.contracts.options import OptionError
from trainlattice.training.groups import NamedParameter, named_parameters
from trainlattice.training.mode import Parts


def parameters_of(parts: Parts) -> list[NamedParameter]:
    """Of the models, and of a loss that learns; frozen ones too. Named as in ``optimizer.groups``."""
    return named_parameters({**parts.models, **parts.loss_modules()}, frozen=True)


def require_matches(option: str, patterns: Sequence[str], parameters: Sequence[NamedParameter]) -> None:
    """
    :raises OptionError: for a kind or pattern that no parameter has.
    """
    for number, pattern in enumerate(patterns):
        if not any(held.matches(pattern) for held in parameters):
            shown = ", ".join(held.name for held in parameters[:5]) + ", ..." * (len(parameters) > 5)
            raise OptionError((option, number), f"no parameter is named {pattern!r}; parameters: {shown}")
