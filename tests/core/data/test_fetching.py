"""A dataset that draws random numbers sees the same ones wherever and whenever a sample is loaded."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from trainlattice.data.loader import MapSource

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),  # more processes than cores
]


class Noisy:
    """Samples with noise from one of the generators, or from all three."""

    def __init__(self, source: str = "torch", size: int = 11) -> None:
        self.source, self.size = source, size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> tuple[int, float]:
        drawn = 0.0
        if self.source in ("torch", "all"):
            drawn += torch.rand(()).item()
        if self.source in ("python", "all"):
            drawn += random.random()
        if self.source in ("numpy", "all"):
            import numpy

            drawn += float(numpy.random.random())
        return index, drawn


class SometimesNoisy(Noisy):
    """Only some of the samples draw."""

    def __getitem__(self, index: int) -> tuple[int, float]:
        return super().__getitem__(index) if index in (3, 8) else (index, 0.0)


class Declared(Noisy):
    stochastic = True


class NoisyBatches(Noisy):
    def fetch_batch(self, indices: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return indices, torch.rand(len(indices))


def drawn(dataset: Any, *, epoch: int = 0, start: int = 0, **arguments: Any) -> list[Any]:
    source = MapSource(dataset, **{"batch_size": 3, "shuffle": True, "seed": 5, **arguments})
    return [tuple(part.tolist() for part in batch) for batch in source.batches(epoch, start)]


DATASETS = [
    Noisy("torch"),
    Noisy("python"),
    Noisy("numpy"),
    Noisy("all"),
    SometimesNoisy(),
    Declared("all"),
    NoisyBatches(),
]


@pytest.mark.parametrize("dataset", DATASETS, ids=lambda d: f"{type(d).__name__}-{d.source}")
def test_what_is_drawn_depends_on_the_position_alone(dataset: Any) -> None:
    pytest.importorskip("numpy")
    random.seed(1), torch.manual_seed(1)
    expected = drawn(dataset)
    random.seed(2), torch.manual_seed(2)
    assert drawn(dataset) == expected
    for workers in (1, 2, 4):
        assert drawn(dataset, num_workers=workers) == expected
    assert drawn(dataset, start=2) == expected[2:]
    assert drawn(dataset, start=2, num_workers=2) == expected[2:]
    assert drawn(dataset, epoch=1) != expected


def test_spawned_processes_draw_what_forked_ones_draw() -> None:
    assert drawn(Declared(), num_workers=1, start_method="spawn") == drawn(Declared())


def test_a_sample_that_is_drawn_twice_differs() -> None:
    class Same(Noisy):
        def __getitem__(self, index: int) -> float:
            return torch.rand(()).item()

    source = MapSource(Same(size=50), batch_size=50, shuffle=False, seed=5)
    values = [*next(iter(source.batches(0))).tolist(), *next(iter(source.batches(1))).tolist()]
    assert len(set(values)) == 100


@pytest.mark.parametrize("dataset", DATASETS, ids=lambda d: f"{type(d).__name__}-{d.source}")
def test_the_generators_of_training_stay_as_they_were(dataset: Any) -> None:
    numpy = pytest.importorskip("numpy")

    def state() -> tuple[Any, ...]:
        return random.getstate(), torch.get_rng_state().tolist(), numpy.random.get_state()[1].tolist()

    before = state()
    drawn(dataset)
    assert state() == before


def test_a_dataset_that_says_that_it_draws_nothing_is_fetched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    class Quiet:
        stochastic = False

        def __init__(self) -> None:
            self.fetched: list[int] = []

        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> int:
            self.fetched.append(index)
            return index

    dataset = Quiet()
    monkeypatch.setattr(random, "getstate", lambda: pytest.fail("nobody needs the state"))
    drawn_from = MapSource(dataset, batch_size=2, shuffle=False, seed=0)
    assert [batch.tolist() for batch in drawn_from.batches(0)] == [[0, 1], [2, 3]]
    assert dataset.fetched == [0, 1, 2, 3]


def test_the_first_batch_that_draws_is_fetched_again_and_no_other() -> None:
    class Counts(SometimesNoisy):
        def __init__(self) -> None:
            super().__init__()
            self.fetched: list[int] = []

        def __getitem__(self, index: int) -> tuple[int, float]:
            self.fetched.append(index)
            return super().__getitem__(index)

    dataset = Counts()
    drawn(dataset, shuffle=False)
    assert dataset.fetched == [0, 1, 2, 3, 4, 5, 3, 4, 5, 6, 7, 8, 9, 10]
