"""What identifies the data of a run."""

import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset

from support.runs import assert_identical, manifest, tiny, train
from trainlattice.checkpoint.rng import capture_rng
from trainlattice.data import Splits, TensorData, TensorFields
from trainlattice.runs.fingerprint import fingerprint

pytestmark = pytest.mark.torch
OWN = np.random.default_rng(0)


def one(split):
    return fingerprint(Splits(split))["train"]


def tensor_data(n=20):
    return TensorData(torch.arange(n * 3.0).reshape(n, 3), torch.arange(n))


class Samples(Dataset):
    """Samples made by a function of the index."""

    def __init__(self, count, sample):
        self.count, self.sample = count, sample

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.sample(index)


def test_a_run_records_the_fingerprint_of_each_split(tmp_path):
    data = manifest(train(tiny(), tmp_path).run_dir)["data"]
    assert list(data) == ["train", "val"]
    assert data["train"]["samples"] == 20
    assert data["train"]["hash"].startswith("sha256:")
    assert data["train"]["of"] == "all bytes"
    same = manifest(train(tiny(), tmp_path).run_dir)["data"]
    other = manifest(train(tiny(experiment={"seed": 1}), tmp_path).run_dir)["data"]
    assert same == data
    assert other["train"]["hash"] != data["train"]["hash"]


@pytest.mark.parametrize(
    "change",
    [
        lambda inputs, targets: (inputs + 1, targets),
        lambda inputs, targets: (inputs, targets.flip(0)),
        lambda inputs, targets: (inputs.double(), targets),
        lambda inputs, targets: (inputs.reshape(20, 1, 3), targets),
        lambda inputs, targets: (inputs[:-1], targets[:-1]),
    ],
)
def test_tensors_in_memory_differ_by_every_byte_type_and_shape(change):
    data = tensor_data()
    assert one(TensorData(*change(data.inputs, data.targets)))["hash"] != one(data)["hash"]


def test_how_tensors_lie_in_memory_does_not_matter():
    data = tensor_data()
    transposed = TensorData(data.inputs.t().contiguous().t(), data.targets)
    assert one(transposed) == one(data)


def test_large_tensors_are_hashed_in_evenly_spaced_blocks():
    rows = 70 * 2**20 // 1024
    data = TensorData(torch.zeros(rows, 256), torch.zeros(rows, dtype=torch.int64))
    before = one(data)
    assert before["of"] == "64 blocks of 1 MiB"
    data.inputs[0, 0] = 1  # in the first block
    assert one(data)["hash"] != before["hash"]
    data.inputs[0, 0] = 0
    data.targets[-1] = 1  # in the last one
    assert one(data)["hash"] != before["hash"]


def test_a_view_that_is_larger_than_memory_is_not_made_whole():
    rows = 10**12
    view = TensorData(torch.arange(3.0).expand(rows, 3), torch.zeros(1).expand(rows))
    assert one(view)["samples"] == rows
    assert one(view)["hash"] != one(TensorData(torch.ones(3).expand(rows, 3), view.targets))["hash"]


def test_blocks_are_the_same_however_the_tensor_lies():
    wide = torch.arange(20 * 2**20, dtype=torch.int32).reshape(2**20, 20)
    targets = torch.zeros(2**20)
    assert one(TensorData(wide, targets)) == one(TensorData(wide.t().contiguous().t(), targets))


def test_a_dataset_may_say_what_identifies_it():
    class Named(Samples):
        def fingerprint(self):
            return "imagenet-2012"

    found = one(Named(5, lambda index: 1 / 0))
    assert found == {"samples": 5, "hash": "imagenet-2012", "of": "its own fingerprint()"}


def test_other_map_style_data_is_known_by_sixteen_samples():
    fetched = []

    def sample(index):
        fetched.append(index)
        return torch.tensor([index]), {"label": index, "name": f"n{index}", "box": np.array([0.5])}

    found = one(Samples(1000, sample))
    assert found["of"] == "16 evenly spaced samples"
    assert len(fetched) == 32
    assert {0, 999} <= set(fetched)
    assert one(Samples(1000, sample)) == found
    assert one(Samples(1001, sample))["hash"] != found["hash"]
    assert one(TensorDataset(torch.arange(3)))["of"] == "all samples"
    assert one(Subset(tensor_data(), [1, 2]))["hash"] != one(Subset(tensor_data(), [1, 3]))["hash"]


def test_a_batch_fetcher_is_asked_as_in_training():
    class Batched(Samples):
        def fetch_batch(self, indices):
            return indices * 2, indices

    assert one(Batched(5, lambda index: 1 / 0))["hash"] is not None


@pytest.mark.parametrize(
    "draw",
    [
        lambda index: torch.randn(2),
        lambda index: random.random(),
        lambda index: np.random.rand(),
        lambda index: OWN.random(),
        lambda index: torch.rand(1) < 2,  # the same each time, and yet it draws
    ],
)
def test_samples_that_are_random_are_not_hashed(draw):
    before = capture_rng()
    found = one(Samples(3, draw))
    assert found == {"samples": 3, "hash": None, "reason": "samples are stochastic"}
    assert_identical(capture_rng(), before)


def test_a_dataset_that_declares_itself_stochastic_is_not_asked_for_samples():
    dataset = Samples(3, lambda index: 1 / 0)
    dataset.stochastic = True
    assert one(dataset)["reason"] == "samples are stochastic"


def test_a_stream_is_not_read():
    class Stream(IterableDataset):
        def __iter__(self):
            raise AssertionError

        def __len__(self):
            return 7

    assert one(Stream()) == {"samples": 7, "hash": None, "reason": "a stream is not read before the run"}
    assert one(iter(()))["samples"] is None


@pytest.mark.parametrize(
    ("sample", "reason"),
    [
        (lambda index: 1 / 0, "ZeroDivisionError: division by zero"),
        (lambda index: SimpleNamespace(), "a sample holds a SimpleNamespace, which cannot be hashed"),
        (lambda index: np.array([object()]), "a sample holds a ndarray, which cannot be hashed"),
        (lambda index: exit(3), "SystemExit: 3"),
    ],
)
def test_data_that_cannot_be_hashed_says_why(sample, reason):
    assert one(Samples(2, sample)) == {"samples": 2, "hash": None, "reason": reason}


@pytest.mark.parametrize(
    "value", [1.5, None, True, b"x", 2**70, np.float32(1), (1, [2, "3"]), torch.tensor(1j)]
)
def test_every_plain_value_is_hashed_with_its_type(value):
    found = one(Samples(1, lambda index: value))["hash"]
    assert found is not None
    assert found != one(Samples(1, lambda index: [value]))["hash"]
    assert found != one(Samples(1, lambda index: str(value)))["hash"]


def test_every_byte_and_every_key_of_fields_in_memory_counts():
    fields = {"a": torch.arange(200.0), "target/b": torch.arange(200)}
    found = one(TensorFields(fields))
    assert (found["samples"], found["of"]) == (200, "all bytes")
    assert one(TensorFields(dict(fields))) == found
    changed = fields["a"].clone()
    changed[101] += 1
    for other in ({**fields, "a": changed}, {"c": fields["a"], "target/b": fields["target/b"]}):
        assert one(TensorFields(other))["hash"] != found["hash"]
