"""SIGKILL at random instants, again and again: what is resumed ends as what was never touched."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest

from support.chains import Chain, assert_same_end
from support.fork_server import ForkServer

pytestmark = pytest.mark.torch


def config(**sections: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "model": {"name": "dropout_net"},
        "dataset": {"name": "augmented", "batch_size": 4, "samples": 22},
        "optimizer": {"name": "adamw", "lr": 0.01},
        "scheduler": {"name": "warmup_cosine", "warmup_steps": 4},
        "trainer": {"epochs": 3, "log_every": 1, "device": "cpu"},
        "checkpoint": {"every_steps": 1},
        "callbacks": [],
    }
    return {
        key: {**base.get(key, {}), **value} if isinstance(value, dict) else value
        for key, value in {**base, **sections}.items()
    }


CONFIGS = {
    "every step": config(),
    "epochs only": config(checkpoint={"every_steps": None}),
    "accumulation in bf16": config(trainer={"epochs": 5, "accumulate": 3, "precision": "bf16"}),
    "stochastic data and two workers": config(
        dataset={"noisy": True, "num_workers": 2}, trainer={"epochs": 2}
    ),
    "validations and early stopping": config(
        trainer={"validate_every_steps": 3, "early_stopping": {"patience": 9}},
        checkpoint={"keep_last": 3, "keep_best": 2, "keep_every_epochs": 1},
    ),
    "asynchronous": config(checkpoint={"async": True}, optimizer={"name": "sgd", "momentum": 0.9}),
}
KILLS_EACH = 16
"""Six configurations: 96 kills; with those of test_saves.py more than 200."""


@pytest.mark.parametrize("name", CONFIGS)
def test_kills_at_random_instants_change_nothing(name: str, server: ForkServer, memory_path: Path) -> None:
    generator = random.Random(f"kills of {name}")
    straight = Chain(server, memory_path / "straight", CONFIGS[name])
    began = time.monotonic()
    expected = straight.finish()
    longest = time.monotonic() - began
    kills, number = 0, 0
    while kills < KILLS_EACH:
        number += 1
        chain = Chain(server, memory_path / f"chain{number}", CONFIGS[name])
        for _ in range(8):
            if not chain.kill_at_random(generator, longest):
                break
        kills += chain.kills
        assert_same_end(chain.finish(), expected)
