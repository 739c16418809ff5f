"""What every proof about a run comes down to: checkpoints compared part by part, and records."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainlattice.checkpoint.identity import PartIdentity
from trainlattice.runs.compare import MetricDifference


@dataclass(frozen=True)
class Proof:
    """Two runs that are to be one and the same.

    :param parts: of their checkpoints.
    :param records: what differs in their metrics.
    """

    parts: list[PartIdentity]
    records: MetricDifference

    @property
    def same(self) -> bool:
        return self.records.same and all(part.same for part in self.parts)

    def as_json(self) -> dict[str, Any]:
        """Every field as plain JSON types."""
        own = {name: str(value) if isinstance(value, Path) else value for name, value in vars(self).items()}
        return {
            **own,
            "same": self.same,
            "parts": [part.as_json() for part in self.parts],
            "records": self.records.as_json(),
        }
