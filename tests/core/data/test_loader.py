"""Batches of a map-style dataset."""

import random
from itertools import chain

import pytest
import torch

from trainlattice.data import TensorData
from trainlattice.data.loader import MapSource
from trainlattice.data.order import epoch_order

pytestmark = pytest.mark.torch


class Squares:
    """Ten samples without ``fetch_batch``."""

    def __len__(self):
        return 10

    def __getitem__(self, index):
        return torch.tensor([float(index)]), index * index


class Fields(Squares):
    """Samples that are dicts."""

    def __getitem__(self, index):
        return {"value": torch.tensor(float(index)), "name": f"n{index}"}


def tensors(size=10):
    return TensorData(torch.arange(float(size)).unsqueeze(1), torch.arange(size))


def source(dataset, **arguments):
    return MapSource(dataset, **{"batch_size": 4, "shuffle": True, "seed": 3, **arguments})


def ids(batches):
    return [batch[0].flatten().int().tolist() for batch in batches]


def test_the_last_batch_is_ragged_and_counts():
    loader = source(tensors(), shuffle=False)
    assert loader.batches_per_epoch == 3
    assert ids(loader.batches(0)) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


@pytest.mark.parametrize(("size", "batches"), [(0, 0), (1, 1), (4, 1), (5, 2), (8, 2)])
def test_the_number_of_batches_is_what_is_yielded(size, batches):
    loader = source(tensors(size))
    assert loader.batches_per_epoch == batches
    assert loader.num_samples == size
    assert len(list(loader.batches(0))) == batches


@pytest.mark.parametrize(("size", "batches"), [(3, 0), (4, 1), (5, 1), (8, 2)])
def test_drop_last_leaves_the_ragged_batch_out(size, batches):
    loader = source(tensors(size), drop_last=True)
    assert (loader.batches_per_epoch, loader.num_samples) == (batches, 4 * batches)
    assert [len(batch[0]) for batch in loader.batches(0)] == [4] * batches


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("start", [0, 1, 2, 3])
def test_an_epoch_continues_at_any_batch_and_loads_nothing_before_it(start, num_workers):
    whole = ids(source(tensors()).batches(1))
    assert ids(source(tensors(), num_workers=num_workers).batches(1, start)) == whole[start:]

    fetched = []

    class Noted(Squares):
        def __getitem__(self, index):
            fetched.append(index)
            return super().__getitem__(index)

    list(source(Noted()).batches(1, start))
    assert fetched == [index for batch in whole[start:] for index in batch]


@pytest.mark.parametrize("size", [1, 2, 5])
def test_a_sample_batch_is_the_first_two_samples(size):
    assert source(tensors(size)).sample_batch()[1].tolist() == [0, 1][:size]


def test_a_batch_size_above_the_number_of_samples_gives_one_batch():
    assert ids(source(tensors(3), batch_size=64, shuffle=False).batches(0)) == [[0, 1, 2]]


def test_a_shuffled_epoch_has_the_order_of_its_number():
    loader = source(tensors())
    for epoch in (0, 1, 5):
        assert list(chain(*ids(loader.batches(epoch)))) == epoch_order(10, seed=3, epoch=epoch).tolist()


def test_without_shuffling_every_epoch_is_in_the_order_of_the_data():
    loader = source(tensors(), shuffle=False)
    assert ids(loader.batches(0)) == ids(loader.batches(1))


@pytest.mark.parametrize("dataset", [tensors(), Squares()])
def test_batches_do_not_depend_on_the_number_of_workers(dataset):
    alone, helped = source(dataset), source(dataset, num_workers=2)
    for epoch in (0, 1):
        for one, other in zip(alone.batches(epoch), helped.batches(epoch), strict=True):
            assert torch.equal(one[0], other[0])
            assert torch.equal(one[1], other[1])


def test_samples_are_collated_where_the_dataset_fetches_no_batches():
    x, y = next(iter(source(Squares(), shuffle=False).batches(0)))
    assert x.tolist() == [[0.0], [1.0], [2.0], [3.0]]
    assert y.tolist() == [0, 1, 4, 9]


def test_dict_samples_become_a_dict_batch():
    batch = next(iter(source(Fields(), shuffle=False).batches(0)))
    assert batch["value"].tolist() == [0.0, 1.0, 2.0, 3.0]
    assert batch["name"] == ["n0", "n1", "n2", "n3"]


def test_fetch_batch_is_used_where_the_dataset_has_it():
    class Counted(TensorData):
        calls = 0

        def fetch_batch(self, indices):
            self.calls += 1
            return super().fetch_batch(indices)

        def __getitem__(self, index):
            raise AssertionError("a sample was fetched alone")

    data = Counted(torch.ones(10, 1), torch.ones(10))
    list(source(data).batches(0))
    assert data.calls == 3


@pytest.mark.parametrize("num_workers", [0, 2])
def test_loading_touches_no_global_random_state(num_workers):
    before, python = torch.get_rng_state(), random.getstate()
    list(source(tensors(), num_workers=num_workers).batches(0))
    assert torch.equal(torch.get_rng_state(), before)
    assert random.getstate() == python


def test_an_exception_of_a_dataset_in_a_worker_reaches_the_main_process():
    class Broken(Squares):
        def __getitem__(self, index):
            raise OSError(f"sample {index} cannot be read")

    with pytest.raises(OSError, match="sample 0 cannot be read"):
        list(source(Broken(), shuffle=False, num_workers=1).batches(0))
