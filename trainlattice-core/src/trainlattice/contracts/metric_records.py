"""The schema of metrics.jsonl: what each line of a run may hold. ``trainlattice schema --records`` prints it."""

from __future__ import annotations

from typing import Any

RECORDS_SCHEMA = 1
"""Version of the schema; stands in every record."""

_NUMBER = {"type": ["number", "null"], "description": "null: not finite, and its name stands in nonfinite"}
_VALUE = {"anyOf": [_NUMBER, {"type": "array", "description": "of a metric that is no scalar"}]}
_COUNT = {"type": "integer", "minimum": 0}
_COMMON = {
    "schema": {"const": RECORDS_SCHEMA},
    "time": {"type": "number", "description": "Unix time, seconds"},
    "epoch": {
        **_COUNT,
        "description": "epoch under way or just completed, counted from 1; 0 before the first",
    },
    "step": {**_COUNT, "description": "optimizer steps taken so far"},
    "nonfinite": {"type": "array", "items": {"type": "string"}, "minItems": 1},
}
EVENTS = {
    "start": "the run begins",
    "resume": "the run continues a checkpoint",
    "checkpoint": "files were written",
    "skipped_step": "a window updated nothing",
    "warning": "a warning was shown",
    "stop": "the run ends before its last epoch or step, and why",
    "end": "the run ended",
}


def records_schema() -> dict[str, Any]:
    """JSON Schema (draft 7) of one line."""
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "One line of metrics.jsonl",
        "oneOf": [
            _record(
                "batch",
                "one optimizer step, every trainer.log_every steps",
                required={"lr": _NUMBER},
                optional={
                    "loss": _NUMBER,
                    "steps_per_sec": _NUMBER,
                    "samples_per_sec": _NUMBER,
                    "grad_norm": _NUMBER,
                },
                metrics=True,
            ),
            _record(
                "epoch",
                "a completed epoch, or the part of one in which the run ends",
                required={
                    "lr": _NUMBER,
                    "epoch_seconds": _NUMBER,
                    "data_seconds": _NUMBER,
                    "train_samples_per_sec": _NUMBER,
                },
                optional={
                    "max_memory_mb": _NUMBER,
                    "partial": {"const": True, "description": "the run ends inside this epoch"},
                },
                metrics=True,
            ),
            _record(
                "validation",
                "a validation",
                required={"at": {"enum": ["epoch", "step", "stop"]}},
                optional={},
                metrics=True,
            ),
            _record(
                "event",
                "something that happened",
                required={"event": {"enum": list(EVENTS)}},
                optional={
                    "files": {"type": "array", "items": {"type": "string"}},
                    "records": {**_COUNT, "description": "lines before this one that the checkpoint follows"},
                    "reason": {"type": "string"},
                    "message": {"type": "string"},
                    "status": {"type": "string"},
                    "checkpoint": {"type": "string"},
                    "seed": {"type": "integer"},
                    "device": {"type": "string"},
                    "loss": _NUMBER,
                    "accuracy": _NUMBER,
                },
                metrics=True,
            ),
        ],
    }


def _record(
    kind: str, description: str, *, required: dict[str, Any], optional: dict[str, Any], metrics: bool
) -> dict[str, Any]:
    """``metrics`` allows further numbers: those that the mode and metrics of the run produce."""
    return {
        "description": description,
        "type": "object",
        "properties": {"type": {"const": kind}, **_COMMON, **required, **optional},
        "required": ["type", "schema", "time", "epoch", "step", *required],
        "additionalProperties": _VALUE if metrics else False,
    }
