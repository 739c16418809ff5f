"""From samples to what a run is trained on: dataclasses, and batches that a dataset makes itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from support.runs import assert_identical, run_dirs, tiny, train, weights
from trainlattice import Callback, Options, register_dataset, register_model
from trainlattice.contracts.records import DatasetContract
from trainlattice.data import Splits
from trainlattice.data.collation import collate

pytestmark = pytest.mark.torch
X = torch.arange(28.0).reshape(7, 4) / 28
Y = torch.tensor([0, 1, 2, 0, 1, 2, 0])


@dataclass(frozen=True)
class Sample:
    input: Any
    target: Any
    more: dict[str, Any] = field(default_factory=dict)


class Bag:
    """Rows of any number in one tensor, as a batch of graphs is."""

    def __init__(self, rows: Tensor, owner: Tensor, y: Tensor) -> None:
        self.rows, self.owner, self.y = rows, owner, y

    def to(self, device: Any) -> Bag:
        return Bag(self.rows.to(device), self.owner.to(device), self.y.to(device))


class Bags:
    """Sample n has n + 1 rows."""

    def __len__(self) -> int:
        return 7

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return X[index].repeat(index + 1, 1), Y[index]

    def collate_fn(self, samples: list[tuple[Tensor, Tensor]]) -> Bag:
        owner = torch.cat([torch.full((len(rows),), number) for number, (rows, _) in enumerate(samples)])
        return Bag(torch.cat([rows for rows, _ in samples]), owner, torch.stack([y for _, y in samples]))


class BagStream:
    collate_fn = Bags.collate_fn

    def __iter__(self) -> Any:
        return (Bags()[index] for index in range(7))


class Plain:
    def __init__(self, form: type) -> None:
        self.form = form

    def __len__(self) -> int:
        return 7

    def __getitem__(self, index: int) -> Any:
        return self.form(X[index], Y[index]) if self.form is Sample else (X[index], Y[index])


class FormOptions(Options):
    form: str

    def contract(self) -> DatasetContract:
        return DatasetContract(None, "classification", 3)


@register_dataset("of_some_form", options=FormOptions)
def open_form(options: FormOptions) -> Splits:
    made: Any = {"pair": Plain(tuple), "dataclass": Plain(Sample), "bags": Bags(), "stream": BagStream()}
    return Splits(made[options.form], Plain(tuple) if options.form == "pair" else made[options.form])


@register_model("linear_of_rows")
class LinearOfRows(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)


@register_model("mean_of_bags")
class MeanOfBags(LinearOfRows):
    def forward(self, bag: Bag) -> Tensor:
        sums = torch.zeros(len(bag.y), 4, device=bag.rows.device).index_add(0, bag.owner, bag.rows)
        return self.linear(sums / torch.bincount(bag.owner, minlength=len(bag.y)).unsqueeze(1))


def config(form: str, model: str = "linear_of_rows", **dataset: Any) -> dict[str, Any]:
    found = tiny(model=None)
    found["model"] = {"name": model}
    found["dataset"] = {"name": "of_some_form", "form": form, "batch_size": 3, **dataset}
    return found


def test_a_dataclass_is_collated_field_by_field() -> None:
    batch = collate([Sample(X[n], int(Y[n]), {"n": n}) for n in (2, 5)])
    assert isinstance(batch, Sample)
    assert torch.equal(batch.input, X[[2, 5]])
    assert torch.equal(batch.target, Y[[2, 5]])
    assert batch.more["n"].tolist() == [2, 5]


def test_a_dataclass_inside_of_others_is_collated_too() -> None:
    first, label = collate([({"of": Sample(X[n], int(Y[n]))}, n) for n in (2, 5)])
    assert torch.equal(first["of"].input, X[[2, 5]])
    assert label.tolist() == [2, 5]


def test_a_run_on_dataclasses_is_that_on_pairs(tmp_path: Path) -> None:
    pairs = train(config("pair"), tmp_path / "pairs").run_dir
    assert_identical(weights(train(config("dataclass"), tmp_path / "classes").run_dir), weights(pairs))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_run_on_batches_of_a_type_of_their_own_with_loader_processes_too(
    tmp_path: Path, num_workers: int
) -> None:
    """The mean of equal rows is the row: the weights are those of a run on pairs, to rounding."""
    sizes = []

    class Sizes(Callback):
        def on_batch_end(self, trainer: Any, phase: str, container: Any) -> None:
            sizes.append((phase, container["weight"], type(container["input"])))

    bags = config("bags", "mean_of_bags", num_workers=num_workers)
    found = weights(train(bags, tmp_path / "bags", extra_callbacks=[Sizes()]).run_dir)
    assert sizes[:6] == [(phase, size, Bag) for phase in ("train", "val") for size in (3, 3, 1)]
    expected = weights(train(config("pair"), tmp_path / "pairs").run_dir)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value)


def test_a_stream_of_samples_takes_the_datasets_own_collate_fn(tmp_path: Path) -> None:
    result = train(config("stream", "mean_of_bags"), tmp_path)
    assert result.global_step == 6
    assert len(run_dirs(tmp_path)) == 1
