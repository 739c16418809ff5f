"""Cases about workers, streams and targets."""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import numpy  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from support.t1 import records, table, train_t1  # noqa: E402
from trainlattice import Options, register_model  # noqa: E402
from trainlattice.contracts.records import DatasetContract  # noqa: E402
from trainlattice.data import Splits, TensorData  # noqa: E402
from trainlattice.data.loader import MapSource  # noqa: E402
from trainlattice.data.source import LEFT_OUT  # noqa: E402
from trainlattice.data.stream import StreamSource  # noqa: E402
from trainlattice.diagnostics.errors import TrainLatticeError  # noqa: E402


class Drawing:
    """Eight samples that draw from every generator."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> tuple[int, int, int, int]:
        return (
            index,
            int(numpy.random.randint(2**31)),
            random.getrandbits(31),
            int(torch.randint(2**31, (1,))),
        )


def drawn(seed: int, epoch: int) -> list[list[int]]:
    source = MapSource(Drawing(), batch_size=1, shuffle=True, seed=seed, num_workers=2)
    rows = [[int(value) for value in batch] for batch in source.batches(epoch)]
    return sorted(rows)


def test_B48_workers_draw_different_numbers_and_repeat_them_exactly() -> None:
    first, second = drawn(1, 0), drawn(1, 1)
    for column in (1, 2, 3):
        assert len({row[column] for row in first}) == 8
        assert not {row[column] for row in first} & {row[column] for row in second}
    assert drawn(1, 0) == first
    assert drawn(2, 0) != first


class Stream:
    """0..9 in an order that depends on the epoch."""

    def __init__(self, size: int = 10, *, shuffles: bool = False) -> None:
        self.size, self.shuffles, self.epoch = size, shuffles, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[tuple[int, int]]:
        order = list(range(self.size))
        if self.shuffles:
            random.Random(self.epoch).shuffle(order)
        return iter((value, value) for value in order)


def ids(source: StreamSource, epoch: int = 0, start: int = 0) -> list[int]:
    batches = (batch for batch in source.batches(epoch, start) if batch is not LEFT_OUT)
    return [int(value) for batch in batches for value in batch[0]]


@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # more workers than this machine has cores
@pytest.mark.parametrize("num_workers", [0, 2, 3, 4])
def test_B49_a_stream_is_split_over_workers(num_workers: int) -> None:
    source = StreamSource(Stream(), batch_size=2, seed=0, num_workers=num_workers)
    assert ids(source) == list(range(10))
    assert ids(source, start=2) == list(range(4, 10))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_B53_every_epoch_has_its_own_order_in_workers_too(num_workers: int) -> None:
    source = StreamSource(Stream(shuffles=True), batch_size=2, seed=0, num_workers=num_workers)
    orders = [ids(source, epoch) for epoch in range(3)]
    assert len({tuple(order) for order in orders}) == 3
    here = StreamSource(Stream(shuffles=True), batch_size=2, seed=0)
    assert orders == [ids(here, epoch) for epoch in range(3)]


def test_a_stream_without_a_length_trains_and_counts_its_steps(tmp_path: Path) -> None:
    class Pairs:
        def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
            return iter([(torch.ones(1), torch.ones(1))] * 5)

    result = train_t1(tmp_path, Splits(Pairs()), batch_size=2, trainer={"epochs": 2})
    assert result.global_step == 6
    assert [record["step"] for record in records(result, "epoch")] == [3, 6]


def test_a_stream_that_yields_nothing_is_an_error(tmp_path: Path) -> None:
    class Nothing:
        def __iter__(self) -> Iterator[Any]:
            return iter(())

    with pytest.raises(TrainLatticeError, match="no sample"):
        train_t1(tmp_path, Splits(Nothing()))
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("name", ["synthetic", "digits"])
def test_B52_built_in_datasets_load_in_spawned_workers(tmp_path: Path, name: str) -> None:
    from trainlattice_plugin_datasets.options import DigitsOptions, SyntheticOptions

    if name == "digits":
        from trainlattice_plugin_datasets.digits import open_digits

        splits = open_digits(DigitsOptions())
    else:
        from trainlattice_plugin_datasets.synthetic import open_synthetic

        splits = open_synthetic(SyntheticOptions(samples=16), seed=0)
    assert isinstance(splits.train, TensorData)
    assert len(pickle.loads(pickle.dumps(splits.train))) == len(splits.train)


def test_B52_an_epoch_of_a_built_in_dataset_from_spawned_workers_is_the_same() -> None:
    from trainlattice_plugin_datasets.digits import open_digits
    from trainlattice_plugin_datasets.options import DigitsOptions

    data = open_digits(DigitsOptions()).train
    spawned = MapSource(data, batch_size=500, shuffle=True, seed=0, num_workers=1, start_method="spawn")
    here = MapSource(data, batch_size=500, shuffle=True, seed=0)
    for ours, theirs in zip(spawned.batches(0), here.batches(0), strict=True):
        assert torch.equal(ours[0], theirs[0])
        assert torch.equal(ours[1], theirs[1])


class WithLambda:
    def __init__(self) -> None:
        self.transform = lambda x: x

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.transform(torch.ones(1)), torch.ones(1)


def test_B52_a_dataset_that_cannot_be_sent_to_workers_is_named(tmp_path: Path) -> None:
    with pytest.raises(TrainLatticeError, match="WithLambda") as caught:
        train_t1(tmp_path, Splits(WithLambda()), dataset={"num_workers": 2, "start_method": "spawn"})
    assert "num_workers" in str(caught.value)
    assert not (tmp_path / "runs").exists()


class Three(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)


register_model("three", options=Options)(Three)


def train_classes(tmp_path: Path, inputs: Tensor, targets: Tensor) -> list[float]:
    data = TensorData(inputs, targets)
    result = train_t1(
        tmp_path,
        Splits(data, data, contract=DatasetContract((2,), "classification", 3)),
        batch_size=3,
        model={"name": "three"},
        loss={"name": "cross_entropy"},
    )
    return [record["loss"] for record in records(result, "batch")]


@pytest.mark.parametrize("dtype", [torch.int32, torch.int16, torch.uint8, torch.int8])
def test_B54_integer_targets_of_any_width_train_the_same(tmp_path: Path, dtype: torch.dtype) -> None:
    x, y = torch.randn(6, 2), torch.tensor([0, 1, 2, 0, 1, 2])
    assert train_classes(tmp_path, x, y.to(dtype)) == train_classes(tmp_path, x, y)


def test_B54_boolean_targets_are_classes(tmp_path: Path) -> None:
    x, y = torch.randn(6, 2), torch.tensor([0, 1, 1, 0, 1, 0])
    assert train_classes(tmp_path, x, y.bool()) == train_classes(tmp_path, x, y)


def test_B54_float64_inputs_are_brought_to_the_type_of_the_model(tmp_path: Path) -> None:
    x, y = torch.randn(6, 2), torch.tensor([0, 1, 2, 0, 1, 2])
    assert train_classes(tmp_path, x.double(), y) == train_classes(tmp_path, x, y)


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        (torch.tensor([0, 3, 1]), r"target 3 in row 1 is outside 0\.\.2"),
        (torch.tensor([0, -1, 1]), r"target -1 in row 1 is outside 0\.\.2"),
        (torch.tensor([0.0, 1.0, 2.0]), "float32"),
    ],
)
def test_B54_targets_that_are_no_classes_are_refused(tmp_path: Path, targets: Tensor, message: str) -> None:
    with pytest.raises(TrainLatticeError, match=message) as caught:
        train_classes(tmp_path, torch.randn(3, 2), targets)
    assert caught.value.exit_code == 2
    assert not (tmp_path / "runs").exists()


def test_B54_targets_out_of_range_in_a_dataset_of_single_samples_are_explained(tmp_path: Path) -> None:
    class Samples:
        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> tuple[Tensor, int]:
            return torch.ones(2), 7 if index == 3 else 0

    with pytest.raises(TrainLatticeError, match=r"target 7 in row \d is outside 0\.\.2"):
        train_t1(
            tmp_path,
            Splits(Samples(), contract=DatasetContract((2,), "classification", 3)),
            batch_size=4,
            model={"name": "three"},
            loss={"name": "cross_entropy"},
        )


def test_B54_a_missing_target_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TrainLatticeError, match="row 1 is not finite"):
        train_t1(tmp_path, table([1.0, 1.0], [1.0, float("nan")]))


def test_B54_a_loss_whose_shapes_would_broadcast_is_refused(tmp_path: Path) -> None:
    data = TensorData(torch.ones(4, 1), torch.ones(4))
    with pytest.raises(TrainLatticeError, match=r"\[2, 1\].*\[2\]"):
        train_t1(tmp_path, Splits(data))
    assert not (tmp_path / "runs").exists()


def test_drop_last_that_leaves_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TrainLatticeError, match="drop_last"):
        train_t1(tmp_path, table([1.0], [1.0]), batch_size=2, dataset={"drop_last": True})


def test_drop_last_leaves_out_the_ragged_batch(tmp_path: Path) -> None:
    result = train_t1(tmp_path, table([1.0] * 5, [1.0] * 5), batch_size=2, dataset={"drop_last": True})
    assert result.global_step == 2
