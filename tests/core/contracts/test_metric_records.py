"""The schema of metrics.jsonl. That every line of a run validates is checked wherever tests read records."""

from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft7Validator

from trainlattice.contracts.metric_records import EVENTS, RECORDS_SCHEMA, records_schema

VALIDATOR = Draft7Validator(records_schema())


def record(kind: str, **content: Any) -> dict[str, Any]:
    return {"schema": RECORDS_SCHEMA, "time": 1.5, "type": kind, "epoch": 1, "step": 2, **content}


BATCH = {"loss": 0.5, "lr": 0.1}
EPOCH = {"lr": 0.1, "epoch_seconds": 1.0, "data_seconds": 0.5, "train_samples_per_sec": 3.0}


def test_it_is_a_valid_schema_of_version_1():
    Draft7Validator.check_schema(records_schema())
    assert RECORDS_SCHEMA == 1


@pytest.mark.parametrize(
    "line",
    [
        record("batch", **BATCH),
        record("batch", **BATCH, accuracy=1.0, grad_norm=2.0, a_metric_of_a_plugin=3),
        record("batch", loss=None, lr=0.1, nonfinite=["loss"]),
        record("epoch", **EPOCH, train_loss=1.0, val_loss=None, nonfinite=["val_loss"]),
        record("validation", at="step", val_loss=0.5),
        *(record("event", event=event) for event in EVENTS),
        record("event", event="skipped_step", reason="by the scaler", loss=None, nonfinite=["loss"]),
    ],
)
def test_what_a_run_writes_is_valid(line: dict[str, Any]):
    VALIDATOR.validate(line)


@pytest.mark.parametrize(
    "line",
    [
        {"type": "batch", **BATCH},
        record("bacth", **BATCH),
        {**record("batch", **BATCH), "schema": 2},
        record("batch", loss=0.1),
        record("batch", **BATCH, note="a text among numbers"),
        record("batch", **BATCH, nonfinite=[]),
        {**record("batch", **BATCH), "step": -1},
        {**record("batch", **BATCH), "epoch": 1.5},
        record("epoch", lr=0.1),
        record("validation", at="noon", val_loss=0.5),
        record("event", event="party"),
        record("event", event="end", mood="good"),
    ],
)
def test_what_no_run_writes_is_not(line: dict[str, Any]):
    assert not VALIDATOR.is_valid(line)
