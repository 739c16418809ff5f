"""Checkpoint format v4: what is in the file.

========== ==============================================================================
key        value
========== ==============================================================================
format     4
kind       ``resume`` (can be resumed from) or ``emergency`` (diagnostic only)
states     state by object: ``model/<role>``, ``update/<role>``, ``mode``, ``callbacks``, ``progress``, ``data``
trainer    epoch, global_step, best metric, early stopping, stop reason
rng        Python, torch, CUDA, NumPy
config     the resolved configuration as plain data
order      version of the order of samples
budget     total optimizer steps that the schedule was made for
components provenance of every component: distribution, version, options schema
========== ==============================================================================

Only tensors and plain containers, so that ``torch.load(path, weights_only=True)`` reads it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from trainlattice.diagnostics.errors import CheckpointError

FORMAT = 4


@dataclass
class Checkpoint:
    """The content of one checkpoint file; the module's docstring says what each field holds."""

    states: dict[str, Any]
    trainer: dict[str, Any]
    rng: dict[str, Any]
    config: dict[str, Any]
    order: int
    budget: int | None
    components: list[dict[str, Any]] = field(default_factory=list)
    kind: str = "resume"

    @classmethod
    def of(cls, plain: dict[str, Any]) -> Checkpoint:
        """From what :meth:`as_plain` gave."""
        return cls(**{key: value for key, value in plain.items() if key != "format"})

    def as_plain(self) -> dict[str, Any]:
        return {"format": FORMAT, **vars(self)}

    @classmethod
    def from_plain(cls, data: Any, name: str) -> Checkpoint:
        """Raises CheckpointError if the data is no checkpoint of a format that is read here."""
        if not isinstance(data, dict) or "format" not in data:
            raise CheckpointError(f"{name} is no TrainLattice checkpoint: it has no format number")
        if data["format"] == 3:
            data = _from_version_3(data)
        if data["format"] != FORMAT:
            raise CheckpointError(
                f"{name} has checkpoint format {data['format']!r}, and this version of trainlattice-core "
                f"reads formats 3 and {FORMAT}"
            )
        fields = {key: value for key, value in data.items() if key != "format"}
        try:
            checkpoint = cls(**fields)
        except TypeError as error:
            raise CheckpointError(f"{name} is no complete checkpoint: {error}") from None
        expected = {"states": dict, "trainer": dict, "rng": dict, "config": dict, "components": list}
        for key, kind in expected.items():
            if not isinstance(getattr(checkpoint, key), kind):
                raise CheckpointError(f"{name} is no complete checkpoint: {key} is not a {kind.__name__}")
        absent = sorted({"epoch", "global_step"} - checkpoint.trainer.keys())
        if absent or not all(isinstance(record, dict) for record in checkpoint.components):
            raise CheckpointError(
                f"{name} is no complete checkpoint: {', '.join(absent) or 'components'} missing"
            )
        return checkpoint


def _from_version_3(data: dict[str, Any]) -> dict[str, Any]:
    """Version 3 is version 4 without the state of schedulers and scalers and without the step budget."""
    states = data.get("states")
    if isinstance(states, dict):
        nothing = {"implementation": None, "scheduler": None, "scaler": None}
        states = {
            name: {**nothing, **state} if name.startswith("update/") and isinstance(state, dict) else state
            for name, state in states.items()
        }
    return {"budget": None, **data, "states": states, "format": FORMAT}
