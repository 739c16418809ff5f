"""Iterable datasets in loader processes: each sample once, in the same batches, whatever the dataset does."""

import random

import numpy
import pytest
import torch
from torch.utils.data import IterableDataset, get_worker_info

from support.by_hand import line
from support.runs import (
    InterruptAtStep,
    assert_same_end,
    checkpoint,
    records,
    run_dirs,
    train,
    trained,
)
from trainlattice import Callback, Options, register_dataset
from trainlattice.checkpoint.rng import capture_rng
from trainlattice.contracts.records import DatasetContract
from trainlattice.data import Splits, TensorData
from trainlattice.data.source import LEFT_OUT
from trainlattice.data.stream import StreamSource

pytestmark = pytest.mark.torch
SIZE = 10


class Sharding(IterableDataset):
    """Shares itself out among loader processes, as torch's documentation shows it."""

    def __iter__(self):
        worker = get_worker_info()
        first, step = (worker.id, worker.num_workers) if worker is not None else (0, 1)
        return iter([float(n) for n in range(first, SIZE, step)])


class LateSharding(IterableDataset):
    """Asks who it is for each sample."""

    def __iter__(self):
        for n in range(SIZE):
            worker = get_worker_info()
            if worker is None or n % worker.num_workers == worker.id:
                yield float(n)


class ShufflingByPython(IterableDataset):
    def __iter__(self):
        order = list(range(SIZE))
        random.shuffle(order)
        return iter([float(n) for n in order])


class ShufflingByTorch(IterableDataset):
    def __iter__(self):
        return iter([float(n) for n in torch.randperm(SIZE).tolist()])


class ShufflingByNumpy(IterableDataset):
    def __iter__(self):
        return iter([float(n) for n in numpy.random.permutation(SIZE)])


class ShufflingInABuffer(IterableDataset):
    """Draws from every generator between one sample and the next, across the borders of batches."""

    def __iter__(self):
        held = []
        for n in range(SIZE):
            held.append(float(n))
            if len(held) == 4:
                yield held.pop(self.place(len(held)))
        while held:
            yield held.pop(self.place(len(held)))

    def place(self, size):
        drawn = random.random() + numpy.random.rand() + torch.rand(()).item()
        return int(drawn * 1000) % size


class ShardingAndShuffling(IterableDataset):
    def __iter__(self):
        worker = get_worker_info()
        order = torch.randperm(SIZE).tolist()
        mine = order if worker is None else order[worker.id :: worker.num_workers]
        return iter([float(n) for n in mine])


class ShufflingByTheEpoch(IterableDataset):
    epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        order = list(range(SIZE))
        random.Random(self.epoch).shuffle(order)
        return iter([float(n) for n in order])


DRAWING = [ShufflingByPython, ShufflingByTorch, ShufflingByNumpy, ShufflingInABuffer, ShardingAndShuffling]
KINDS = [Sharding, LateSharding, *DRAWING, ShufflingByTheEpoch]


def batches(kind, num_workers, epoch=0, start=0, *, batch_size=3, drop_last=False, seed=5):
    source = StreamSource(
        kind(), batch_size=batch_size, seed=seed, num_workers=num_workers, drop_last=drop_last
    )
    return [batch.int().tolist() for batch in source.batches(epoch, start) if batch is not LEFT_OUT]


@pytest.mark.filterwarnings("ignore:This DataLoader will create 4 worker")
@pytest.mark.parametrize("num_workers", [0, 1, 2, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_every_sample_comes_once_and_in_the_same_batches(kind, num_workers):
    found = batches(kind, num_workers)
    assert [len(batch) for batch in found] == [3, 3, 3, 1]
    assert sorted(n for batch in found for n in batch) == list(range(SIZE))
    assert found == batches(kind, 0)


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("kind", [Sharding, ShufflingInABuffer])
def test_without_a_last_batch_that_is_not_full_too(kind, num_workers):
    found = batches(kind, num_workers, batch_size=4, drop_last=True)
    assert [len(batch) for batch in found] == [4, 4]
    assert found == batches(kind, 0, batch_size=4)[:2]


@pytest.mark.parametrize("kind", DRAWING)
def test_each_epoch_and_each_seed_has_an_order_of_its_own(kind):
    orders = [batches(kind, 0, epoch, seed=seed) for epoch, seed in ((0, 5), (1, 5), (0, 6))]
    assert orders[0] != orders[1] != orders[2] != orders[0]
    assert batches(kind, 0, 1) == orders[1]


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("kind", [ShufflingInABuffer, ShardingAndShuffling])
def test_an_epoch_goes_on_at_any_batch(kind, num_workers):
    whole = batches(kind, 0, 1)
    starts = range(6) if num_workers == 0 else (1, 2)
    for start in starts:
        assert batches(kind, num_workers, 1, start) == whole[start:]


def drawn():
    return random.random(), torch.rand(()).item(), numpy.random.rand()


def same_rng(one, other):
    return (
        one["python"] == other["python"]
        and one["numpy"] == other["numpy"]
        and torch.equal(one["torch"], other["torch"])
    )


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("kind", [ShufflingByNumpy, ShufflingInABuffer])
def test_what_a_stream_draws_training_never_misses_and_the_other_way_round(kind, num_workers):
    """Training draws between two batches."""
    quiet = batches(kind, num_workers)
    random.seed(1)
    torch.manual_seed(1)
    numpy.random.seed(1)
    alone = [drawn() for _ in range(4)]
    random.seed(1)
    torch.manual_seed(1)
    numpy.random.seed(1)
    beside, found = [], []
    for batch in StreamSource(kind(), batch_size=3, seed=5, num_workers=num_workers).batches(0):
        beside.append(drawn())
        found.append(batch.int().tolist())
    assert beside == alone
    assert found == quiet


def test_a_stream_that_is_left_in_the_middle_leaves_the_generators_alone():
    before = capture_rng()
    stream = iter(StreamSource(ShufflingInABuffer(), batch_size=3, seed=5).batches(0))
    next(stream)
    del stream
    assert same_rng(before, capture_rng())


# --- in a run


class Points(IterableDataset):
    """Samples of the model ``line``: shared out, shuffled by all generators, and noisy.

    :param says: its length, whatever it yields.
    """

    def __init__(self, size):
        self.size = size

    def __iter__(self):
        order = torch.randperm(self.size).tolist()
        random.shuffle(order)
        worker = get_worker_info()
        for n in order if worker is None else order[worker.id :: worker.num_workers]:
            yield torch.ones(1), torch.tensor([n + numpy.random.rand()], dtype=torch.float32)


class SizedPoints(Points):
    def __init__(self, size, says):
        super().__init__(size)
        self.says = says

    def __len__(self):
        return self.says


class PointOptions(Options):
    size: int = SIZE
    says: int | None = None


@register_dataset("drawn_points", options=PointOptions)
def open_points(options):
    stream = Points(options.size) if options.says is None else SizedPoints(options.size, options.says)
    val = TensorData(torch.ones(2, 1), torch.ones(2, 1))
    return Splits(stream, val, contract=DatasetContract((1,), "regression", 1))


def streaming(num_workers=0, says=None, **trainer):
    config = line(optimizer={"lr": 0.01, "momentum": 0.9}, trainer={"log_every": 1, **trainer})
    dataset = {"name": "drawn_points", "batch_size": 2, "num_workers": num_workers}
    config["dataset"] = dataset if says is None else {**dataset, "says": says}
    return {**config, "callbacks": [], "checkpoint": {"every_steps": 1}}


def without_checkpoints(found):
    return [record for record in found if record.get("event") not in ("checkpoint", "warning")]


def ends(run):
    held = checkpoint(run)
    held["config"]["experiment"].pop("runs_dir")
    held["config"]["dataset"].pop("num_workers")
    return held


@pytest.mark.parametrize(("step", "num_workers"), [(2, 0), (5, 0), (7, 0), (2, 2), (7, 2)])
def test_a_run_is_resumed_in_the_middle_of_a_stream_that_draws(tmp_path, step, num_workers):
    """Five steps an epoch; last.pt holds the step before the interruption."""
    config = streaming(num_workers, epochs=2)
    whole = train(config, tmp_path / "whole", extra_callbacks=[Callback()]).run_dir
    with pytest.raises(KeyboardInterrupt):
        train(config, tmp_path, extra_callbacks=[InterruptAtStep(step)])
    (first,) = run_dirs(tmp_path)
    assert checkpoint(first)["trainer"]["global_step"] == step - 1
    second = train(config, tmp_path, resume=first, extra_callbacks=[Callback()]).run_dir
    assert_same_end(whole, second)
    later = without_checkpoints(trained(records(second)))
    assert later == without_checkpoints(trained(records(whole)))[-len(later) :]


def test_the_number_of_loader_processes_changes_no_weight(tmp_path):
    runs = [train(streaming(n, epochs=2), tmp_path).run_dir for n in (0, 2)]
    one, other = (trained(records(run)) for run in runs)
    assert one == other


@pytest.fixture(scope="module")
def losses_without_a_length(tmp_path_factory):
    """Of eight steps of the same stream."""
    run = train(streaming(max_steps=8), tmp_path_factory.mktemp("plain")).run_dir
    return [r["loss"] for r in records(run, "batch")]


@pytest.mark.parametrize(
    ("says", "max_steps", "epoch", "ends_epoch", "num_workers"),
    [
        (4, 2, 1, True, 0),  # it says two steps, and yields five
        (4, 3, 0, False, 0),
        (4, 3, 0, False, 2),
        (4, 5, 0, False, 0),
        (4, 7, 2, True, 0),
        (4, 8, 1, False, 0),
        (40, 3, 0, False, 0),  # it says twenty
        (40, 5, 0, False, 0),
        (40, 7, 1, False, 0),
        (40, 7, 1, False, 2),
    ],
)
def test_a_length_that_is_wrong_does_not_change_how_many_steps_are_taken(
    tmp_path, losses_without_a_length, says, max_steps, epoch, ends_epoch, num_workers
):
    result = train(streaming(num_workers, says, max_steps=max_steps), tmp_path)
    assert (result.epoch, result.global_step) == (epoch, max_steps)
    run = result.run_dir
    assert [r["step"] for r in records(run, "batch")] == list(range(1, max_steps + 1))
    last = records(run, "epoch")[-1]
    assert (last["step"], last.get("partial", False)) == (max_steps, not ends_epoch)
    assert checkpoint(run)["trainer"]["global_step"] == max_steps
    assert records(run, "validation")[-1]["step"] == max_steps
    assert [r["loss"] for r in records(run, "batch")] == losses_without_a_length[:max_steps]


@pytest.mark.parametrize("says", [4, 40])
def test_epochs_of_a_stream_end_where_it_ends_whatever_its_length_says(tmp_path, says):
    result = train(streaming(says=says, epochs=2), tmp_path)
    assert (result.epoch, result.global_step) == (2, 10)
    assert [r["step"] for r in records(result.run_dir, "epoch")] == [5, 10]


@pytest.mark.parametrize("says", [4, 40])
@pytest.mark.parametrize("step", [3, 6])
def test_a_run_of_a_stream_whose_length_is_wrong_is_resumed(tmp_path, says, step):
    config = streaming(says=says, max_steps=8)
    whole = train(config, tmp_path / "whole", extra_callbacks=[Callback()]).run_dir
    with pytest.raises(KeyboardInterrupt):
        train(config, tmp_path, extra_callbacks=[InterruptAtStep(step)])
    (first,) = run_dirs(tmp_path)
    second = train(config, tmp_path, resume=first, extra_callbacks=[Callback()]).run_dir
    later = without_checkpoints(trained(records(second)))
    assert later == without_checkpoints(trained(records(whole)))[-len(later) :]
    assert torch.equal(
        checkpoint(whole)["states"]["model/model"]["w"], checkpoint(second)["states"]["model/model"]["w"]
    )
