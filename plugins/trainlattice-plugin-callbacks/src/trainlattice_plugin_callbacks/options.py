"""Options of the built-in callbacks."""

from __future__ import annotations

from pydantic import Field

from trainlattice.contracts.options import Options, PositiveInt


class ProgressOptions(Options):
    refresh_per_second: PositiveInt = Field(8, description="How often the bar is drawn.")
