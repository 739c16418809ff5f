"""A look at a dataset leaves it as it was: what it opens at its first sample, each loader process opens itself."""

import threading

import numpy
import pytest
import torch
from torch.utils.data import IterableDataset, Subset, get_worker_info

from support.runs import records, tiny, train
from trainlattice import Callback, Options, register_dataset
from trainlattice.contracts.records import DatasetContract
from trainlattice.data import Splits
from trainlattice.data.loader import MapSource
from trainlattice.data.spare import MOST_ITEMS, spare
from trainlattice.data.stream import StreamSource
from trainlattice.runs.fingerprint import fingerprint

pytestmark = pytest.mark.torch
SIZE = 8
BOTH = []
"""A barrier of two loader processes, or nothing."""


class Numbers:
    """Its file is opened at the first sample, without a buffer; sample n is the number n in it."""

    def __init__(self, path):
        self.path, self.f = path, None

    def __len__(self):
        return SIZE

    def read(self, index):
        if self.f is None:
            self.f = open(self.path, "rb", buffering=0)  # noqa: SIM115
        self.f.seek(8 * index)
        if BOTH and get_worker_info() is not None:
            BOTH[0].wait(20)  # the other has sought too
        return int.from_bytes(self.f.read(8), "little")

    def __getitem__(self, index):
        number = self.read(index)
        return torch.full((4,), float(number)), number % 3

    def __del__(self):
        if self.f is not None:
            self.f.close()


class NumberStream(Numbers, IterableDataset):
    __getitem__ = None

    def __iter__(self):
        return (Numbers.__getitem__(self, index) for index in range(SIZE))


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "numbers"
    path.write_bytes(b"".join(number.to_bytes(8, "little") for number in range(SIZE)))
    return path


@pytest.fixture
def two_at_once():
    BOTH.append(torch.multiprocessing.get_context("fork").Barrier(2))
    yield
    BOTH.clear()


@pytest.mark.usefixtures("two_at_once")
def test_loader_processes_share_no_position_in_a_file(file):
    dataset = Numbers(file)
    source = MapSource(dataset, batch_size=2, shuffle=False, seed=0, num_workers=2, start_method="fork")
    assert source.sample_batch()[0][:, 0].tolist() == [0, 1]
    assert fingerprint(Splits(dataset))["train"]["of"] == "all samples"
    assert dataset.f is None
    found = [number for x, _ in source.batches(0) for number in x[:, 0].int().tolist()]
    assert found == list(range(SIZE))


def test_no_stream_is_opened_before_its_loader_processes_are(file):
    dataset = NumberStream(file)
    source = StreamSource(dataset, batch_size=2, seed=0, num_workers=2)
    assert source.sample_batch()[0][:, 0].tolist() == [0, 1]
    assert fingerprint(Splits(dataset))["train"]["samples"] == SIZE
    assert dataset.f is None
    assert [x[:, 0].int().tolist() for x, _ in source.batches(0)] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert dataset.f is None


def test_without_loader_processes_the_dataset_itself_is_asked(file):
    dataset = Numbers(file)
    MapSource(dataset, batch_size=2, shuffle=False, seed=0).sample_batch()
    assert dataset.f is not None


class FileOptions(Options):
    file: str


@register_dataset("numbers_of_a_file", options=FileOptions)
def open_numbers(options):
    contract = DatasetContract((4,), "classification", 3)
    return Splits(Numbers(options.file), Numbers(options.file), contract=contract)


def test_a_run_opens_no_file_before_its_loader_processes_do(file, tmp_path):
    class Looks(Callback):
        def on_run_start(self, trainer):
            self.opened = [source.dataset.f for source in (trainer.train, trainer.val)]

    def config(num_workers):
        dataset = {"name": "numbers_of_a_file", "file": str(file), "batch_size": 2}
        return tiny(dataset={**dataset, "num_workers": num_workers}, trainer={"epochs": 1})

    looks = Looks()
    alone, helped = (train(config(number), tmp_path, extra_callbacks=[looks]).run_dir for number in (0, 2))
    assert looks.opened == [None, None]  # of the second one
    assert [r["loss"] for r in records(alone, "batch")] == [r["loss"] for r in records(helped, "batch")]


# --- the copy


class Holds:
    """Anything under the name ``held``."""

    def __init__(self, held):
        self.held = held


def test_it_is_another_object_with_containers_of_its_own():
    dataset = Holds({"list": [1, [2]], "other": Holds("x")})
    copy = spare(dataset)
    assert copy is not dataset
    assert copy.held["list"] == [1, [2]]
    copy.held["list"][1].append(3)
    copy.held["other"].held = "y"
    assert dataset.held["list"] == [1, [2]]
    assert dataset.held["other"].held == "x"


def test_what_is_one_object_in_the_dataset_is_one_in_the_copy():
    held = [1]
    copy = spare(Holds([held, held]))
    assert copy.held[0] is copy.held[1]
    assert copy.held[0] is not held


def memory_mapped(path):
    array = numpy.lib.format.open_memmap(path / "array.npy", mode="w+", dtype="int64", shape=(4,))
    array[:] = 7
    return array


SHARED = {
    "tensor": lambda path: torch.ones(1000),
    "parameter": lambda path: torch.nn.Parameter(torch.ones(3)),
    "array": lambda path: numpy.ones(1000),
    "array of objects": lambda path: numpy.array([object()]),
    "memory-mapped array": memory_mapped,
    "large list": lambda path: list(range(MOST_ITEMS + 1)),
    "large dict": lambda path: dict.fromkeys(range(MOST_ITEMS + 1)),
    "large set": lambda path: set(range(MOST_ITEMS + 1)),
    "large bytes": lambda path: bytes(MOST_ITEMS + 1),
    "lambda": lambda path: lambda x: x,
    "function in a function": lambda path: memory_mapped,
    "module": lambda path: numpy,
    "local class": lambda path: type("Local", (), {}),
}


@pytest.mark.parametrize("name", SHARED)
def test_what_is_large_or_code_is_shared_with_it(tmp_path, name):
    held = SHARED[name](tmp_path)
    copy = spare(Holds({"held": [held]}))
    assert copy.held["held"][0] is held


def test_a_dataset_of_a_class_inside_a_function_is_copied():
    class Local:
        def __init__(self, transform):
            self.transform, self.calls = transform, 0

        def __getitem__(self, index):
            self.calls += 1
            return self.transform(index)

    dataset = Local(lambda index: index + 1)
    copy = spare(dataset)
    assert type(copy) is Local
    assert (copy[1], copy.calls, dataset.calls) == (2, 1, 0)


def test_a_subset_of_a_dataset_is_copied_with_it(file):
    dataset = Subset(Numbers(file), [1, 2])
    assert spare(dataset)[1][1] == 2
    assert dataset.dataset.f is None


def test_its_random_numbers_are_its_own_and_the_same():
    dataset = Holds(numpy.random.default_rng(3))
    drawn = spare(dataset).held.random()
    assert spare(dataset).held.random() == drawn
    assert dataset.held.random() == drawn


class Raises:
    def __getstate__(self):
        raise OSError("not to be copied")


class Exits:
    def __reduce_ex__(self, protocol):
        raise RuntimeError("not to be copied")


@pytest.mark.parametrize(
    "held",
    [threading.Lock(), (number for number in range(3)), Raises(), Exits()],
    ids=["lock", "generator", "state that raises", "reduction that raises"],
)
def test_what_cannot_be_copied_is_returned_itself(held):
    dataset = Holds(held)
    assert spare(dataset) is dataset


def test_a_dataset_with_an_open_file_is_returned_itself(file):
    dataset = Numbers(file)
    dataset.read(0)
    assert spare(dataset) is dataset
    assert dataset.read(3) == 3
