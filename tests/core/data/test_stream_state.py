"""Streams that say where they stand are continued there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from support.runs import (
    InterruptAtStep,
    assert_identical,
    interrupted,
    records,
    run_dirs,
    tiny,
    train,
    weights,
)
from trainlattice import register_dataset
from trainlattice.contracts.records import DatasetContract
from trainlattice.data import Splits, TensorData
from trainlattice.data.stream import StreamSource

pytestmark = pytest.mark.torch


class Remembering:
    """Numbers from 0 on, and which of them were ever read in this process."""

    def __init__(self, size: int = 22) -> None:
        self.size, self.position, self.read = size, 0, []

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        while self.position < self.size:
            number = self.position
            self.position += 1
            self.read.append(number)
            yield torch.full((4,), number / 10), torch.tensor(number % 3)
        self.position = 0

    def state_dict(self) -> dict[str, Any]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.position = state["position"]


def batches_of(source: StreamSource, start: int = 0) -> list[list[int]]:
    return [(batch[0][:, 0] * 10).round().int().tolist() for batch in source.batches(0, start)]


@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize("consumed", [1, 2, 3, 5])
def test_it_goes_on_after_the_last_batch_that_was_consumed(workers: int, consumed: int) -> None:
    """Not after what workers had read ahead; and what lies before is not read again."""
    whole = batches_of(StreamSource(Remembering(), batch_size=4, seed=0))
    source = StreamSource(Remembering(), batch_size=4, seed=0, num_workers=workers)
    taken = source.batches(0)
    for _ in range(consumed):
        next(taken)
    state = source.state_dict()
    dataset = Remembering()
    later = StreamSource(dataset, batch_size=4, seed=0, num_workers=0)
    later.load_state_dict(state)
    assert batches_of(later, consumed) == whole[consumed:]
    assert min(dataset.read) == 4 * consumed
    again = StreamSource(Remembering(), batch_size=4, seed=0, num_workers=2)
    again.load_state_dict(state)
    assert batches_of(again, consumed) == whole[consumed:]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_run_is_resumed_in_the_middle_of_such_a_stream_bit_identically(tmp_path: Any, workers: int) -> None:
    @register_dataset("remembering")
    def build() -> Splits:
        val = TensorData(torch.ones(3, 4), torch.zeros(3, dtype=torch.int64))
        return Splits(Remembering(), val, contract=DatasetContract((4,), "classification", 3))

    config = tiny(dataset={"name": "remembering", "batch_size": 4, "num_workers": workers})
    config["trainer"]["max_steps"], config["trainer"]["epochs"] = 10, None
    whole = train(config, tmp_path / "whole").run_dir
    config["trainer"]["max_steps"] = 8
    part = train(config, tmp_path / "part").run_dir
    config["trainer"]["max_steps"] = 10
    resumed = train(config, tmp_path / "part", resume=part).run_dir
    assert_identical(weights(resumed), weights(whole))


def test_an_interrupted_run_between_epochs_begins_the_stream_anew(tmp_path: Any) -> None:
    @register_dataset("remembering_again")
    def build() -> Splits:
        return Splits(Remembering(), contract=DatasetContract((4,), "classification", 3))

    config = tiny(dataset={"name": "remembering_again", "batch_size": 4})
    whole = train(config, tmp_path / "whole").run_dir
    first = interrupted(config, tmp_path / "parts", epochs=1)
    assert_identical(weights(train(config, tmp_path / "parts", resume=first).run_dir), weights(whole))


class Forgetting:
    """The same numbers, read from the beginning each time."""

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return ((torch.full((4,), number / 10), torch.tensor(number % 3)) for number in range(22))


@register_dataset("forgetting")
def open_forgetting() -> Splits:
    return Splits(Forgetting(), contract=DatasetContract((4,), "classification", 3))


@register_dataset("remembering_for_good")
def open_remembering() -> Splits:
    return Splits(Remembering(), contract=DatasetContract((4,), "classification", 3))


AGAIN = "has no state_dict: it is read again from its beginning, and {} batches are left out"


@pytest.mark.parametrize(
    ("name", "step", "says"),
    [
        ("forgetting", 8, [AGAIN.format(2)]),  # six steps an epoch
        ("forgetting", 5, [AGAIN.format(5)]),
        ("forgetting", 6, []),
        ("remembering_for_good", 8, []),
        ("remembering_for_good", 6, []),
    ],
)
def test_a_stream_that_is_read_again_is_said_in_the_records(
    tmp_path: Any, name: str, step: int, says: list[str]
) -> None:
    config = tiny(dataset={"name": name, "batch_size": 4}, trainer={"epochs": 2})
    config["checkpoint"] = {"every_steps": 1}
    with pytest.raises(KeyboardInterrupt):
        train(config, tmp_path, extra_callbacks=[InterruptAtStep(step + 1)])
    (first,) = run_dirs(tmp_path)
    resumed = train(config, tmp_path, resume=first)
    assert resumed.global_step == 12
    messages = [r["message"] for r in records(resumed.run_dir, "event") if r["event"] == "warning"]
    assert len(messages) == len(says)
    for message, part in zip(messages, says, strict=True):
        assert message.startswith(f"the stream Forgetting {part}")
