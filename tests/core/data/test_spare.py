"""A look at a dataset leaves it as it was."""

import os
import threading

import pytest
import torch

from support.runs import run_dirs, train
from trainlattice import Callback, Options, register_dataset
from trainlattice.data import Splits
from trainlattice.data.loader import MapSource
from trainlattice.data.spare import spare
from trainlattice.data.stream import StreamSource

pytestmark = pytest.mark.torch
SIZE = 2000


class OpensLate:
    """Opens its file at the first sample, as one does with h5py, lmdb and archives."""

    def __init__(self, path):
        self.path, self.file = path, None
        self.transform = lambda value: value  # no pickle could hold it

    def __len__(self):
        return SIZE

    def __getitem__(self, index):
        if self.file is None:
            self.file = os.open(self.path, os.O_RDONLY)
        os.lseek(self.file, index * 8, os.SEEK_SET)
        value = int.from_bytes(os.read(self.file, 8), "little")
        return self.transform(torch.tensor([float(value)])), torch.tensor([0.0])


class OpensLateInOrder(OpensLate, torch.utils.data.IterableDataset):
    def __iter__(self):
        return (self[index] for index in range(SIZE))


@pytest.fixture
def numbers(tmp_path):
    path = tmp_path / "numbers"
    path.write_bytes(b"".join(number.to_bytes(8, "little") for number in range(SIZE)))
    return path


def test_forked_loader_processes_share_no_file_with_the_look_at_the_data(numbers):
    data = OpensLate(numbers)
    source = MapSource(data, batch_size=10, shuffle=False, seed=0, num_workers=2, start_method="fork")
    source.sample_batch()
    assert data.file is None
    found = torch.cat([batch[0].flatten() for batch in source.batches(0)])
    assert torch.equal(found, torch.arange(float(SIZE)))


def test_nor_does_a_stream(numbers):
    data = OpensLateInOrder(numbers)
    source = StreamSource(data, batch_size=10, seed=0, num_workers=2, start_method="fork")
    source.sample_batch()
    assert data.file is None


class LateOptions(Options):
    path: str


OPENED = []


@register_dataset("opens_late", options=LateOptions)
def open_late(options):
    data = OpensLate(options.path)
    OPENED.append(data)
    return Splits(data, None)


def test_a_run_opens_it_in_its_loader_processes_only(numbers, tmp_path):
    from support.by_hand import line

    config = line(model={"name": "line"})
    config["dataset"] = {"name": "opens_late", "path": str(numbers), "batch_size": 500, "num_workers": 1}
    train(config, tmp_path, extra_callbacks=[Callback()])
    assert OPENED[-1].file is None
    assert len(run_dirs(tmp_path)) == 1


def test_what_is_large_is_shared():
    import numpy as np

    held = {"array": np.zeros(3), "tensor": torch.zeros(3), "paths": ["x"] * 20_000, "few": [1, 2]}
    copy = spare(held)
    assert copy is not held
    assert all(copy[name] is held[name] for name in ("array", "tensor", "paths"))
    assert copy["few"] == held["few"]
    assert copy["few"] is not held["few"]


def test_classes_and_functions_inside_a_function_are_no_obstacle():
    class Inner:
        def __init__(self):
            self.call, self.opened = (lambda: 7), []

    held = Inner()
    copy = spare(held)
    copy.opened.append(1)
    assert (copy.call(), held.opened, type(copy)) == (7, [], Inner)


def test_what_cannot_be_copied_is_returned_itself():
    class Locked:
        def __init__(self):
            self.lock = threading.Lock()

    held = Locked()
    assert spare(held) is held
