"""Iterable datasets: data with an order of its own, perhaps without a length."""

import random

import pytest
import torch

from support.by_hand import line
from support.runs import InterruptAtStep, assert_same_end, checkpoint, interrupted, records, run_dirs, train
from trainlattice import Options, register_dataset
from trainlattice.contracts.records import DatasetContract
from trainlattice.data import Splits, TensorData
from trainlattice.data.container import BatchError
from trainlattice.data.source import LEFT_OUT
from trainlattice.data.stream import StreamSource
from trainlattice.diagnostics.errors import ConfigError

pytestmark = pytest.mark.torch


class Stream:
    """``(n, 2 n)`` for n from 0 on, in an order of the epoch."""

    def __init__(self, size=10, shuffles=False):
        self.size, self.shuffles, self.epoch = size, shuffles, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        order = list(range(self.size))
        if self.shuffles:
            random.Random(self.epoch).shuffle(order)
        return iter([(float(n), 2.0 * n) for n in order])


class Sized(Stream):
    def __len__(self):
        return self.size


def source(dataset, **arguments):
    return StreamSource(dataset, **{"batch_size": 4, "seed": 3, **arguments})


def ids(batches):
    return [batch[0].int().tolist() for batch in batches if batch is not LEFT_OUT]


def test_batches_are_collated_in_the_order_of_the_stream_and_the_last_is_ragged():
    assert ids(source(Stream()).batches(0)) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    inputs, targets = next(iter(source(Stream()).batches(0)))
    assert torch.equal(targets, 2 * inputs)


def test_drop_last_leaves_the_ragged_batch_out():
    assert ids(source(Stream(), drop_last=True).batches(0)) == [[0, 1, 2, 3], [4, 5, 6, 7]]


@pytest.mark.parametrize(("size", "drop_last", "batches", "samples"), [
    (10, False, 3, 10),
    (10, True, 2, 8),
    (8, True, 2, 8),
    (3, True, 0, 0),
    (0, False, 0, 0),
])  # fmt: skip
@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_length_is_what_is_yielded(size, drop_last, batches, samples, num_workers):
    loader = source(Sized(size), drop_last=drop_last, num_workers=num_workers)
    assert (loader.batches_per_epoch, loader.num_samples) == (batches, samples)
    found = ids(loader.batches(0))
    assert (len(found), sum(map(len, found))) == (batches, samples)


def test_a_stream_without_a_length_does_not_say_how_long_it_is():
    loader = source(Stream())
    assert (loader.batches_per_epoch, loader.num_samples) == (None, None)


@pytest.mark.parametrize("num_workers", [0, 1, 2])
@pytest.mark.parametrize("start", [0, 1, 3, 5])
def test_an_epoch_continues_at_any_batch_whatever_the_number_of_workers(num_workers, start):
    whole = ids(source(Stream(shuffles=True)).batches(1))
    assert ids(source(Stream(shuffles=True), num_workers=num_workers).batches(1, start)) == whole[start:]


def test_a_dataset_is_told_the_epoch():
    loader = source(Stream(shuffles=True))
    assert ids(loader.batches(0)) != ids(loader.batches(1))
    assert ids(loader.batches(1)) == ids(loader.batches(1))


def test_a_stream_that_knows_no_epochs_begins_anew_with_each():
    class Plain:
        def __iter__(self):
            return iter([1.0, 2.0])

    loader = StreamSource(Plain(), batch_size=1, seed=0)
    assert [b.item() for b in loader.batches(0)] == [b.item() for b in loader.batches(1)] == [1.0, 2.0]


def test_samples_that_are_dicts_become_a_dict_batch():
    loader = source([{"input": 1.0, "name": "a"}, {"input": 2.0, "name": "b"}])
    (batch,) = loader.batches(0)
    assert (batch["input"].tolist(), batch["name"]) == ([1.0, 2.0], ["a", "b"])


@pytest.mark.parametrize("size", [1, 2, 5])
def test_a_sample_batch_has_two_samples_at_most_and_takes_nothing_away(size):
    loader = source(Stream(size))
    assert loader.sample_batch()[0].tolist() == [0.0, 1.0][:size]
    assert sum(map(len, ids(loader.batches(0)))) == size


def test_a_sample_batch_of_nothing_is_an_error():
    with pytest.raises(BatchError, match="the dataset yields no sample"):
        source(Stream(0)).sample_batch()


@pytest.mark.parametrize("num_workers", [0, 2])
def test_loading_touches_no_global_random_state(num_workers):
    before, python = torch.get_rng_state(), random.getstate()
    list(source(Stream(shuffles=True), num_workers=num_workers).batches(0))
    assert torch.equal(torch.get_rng_state(), before)
    assert random.getstate() == python


@pytest.mark.parametrize("num_workers", [0, 1])
def test_an_exception_of_a_stream_reaches_the_main_process(num_workers):
    class Broken:
        def __iter__(self):
            yield 1.0
            raise OSError("the file ends here")

    with pytest.raises(OSError, match="the file ends here"):
        list(source(Broken(), num_workers=num_workers).batches(0))


# --- in a run


class PointStream(Stream):
    """Samples ``x, y`` of shape [1] for the model ``line``."""

    def __iter__(self):
        return iter([(torch.tensor([1.0]), torch.tensor([y / 10])) for _, y in super().__iter__()])


class SizedPointStream(PointStream):
    def __len__(self):
        return self.size


class StreamOptions(Options):
    size: int = 10
    sized: bool = False


@register_dataset("point_stream", options=StreamOptions)
def open_stream(options):
    stream = (SizedPointStream if options.sized else PointStream)(options.size, shuffles=True)
    validation = TensorData(torch.ones(2, 1), torch.ones(2, 1))
    return Splits(stream, validation, contract=DatasetContract((1,), "regression", 1))


def streaming(trainer=None, **options):
    config = line(trainer=trainer or {})
    return {**config, "dataset": {"name": "point_stream", "batch_size": 2, **options}}


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_run_takes_every_sample_once_an_epoch(tmp_path, num_workers):
    result = train(streaming({"epochs": 2}, num_workers=num_workers), tmp_path)
    assert (result.epoch, result.global_step) == (2, 10)
    assert [r["step"] for r in records(result.run_dir, "epoch")] == [5, 10]


@pytest.mark.parametrize("sized", [False, True])
@pytest.mark.parametrize("step", [2, 5, 8])
def test_a_run_is_resumed_in_the_middle_of_a_stream_bit_identically(tmp_path, sized, step):
    config = streaming({"epochs": 2, "validate_every_steps": 1, "accumulate": 2}, sized=sized, batch_size=1)
    whole = train(config, tmp_path / "whole").run_dir
    with pytest.raises(KeyboardInterrupt):
        train(config, tmp_path / "parts", extra_callbacks=[InterruptAtStep(step)])
    (first,) = run_dirs(tmp_path / "parts")
    best = first / "checkpoints" / "best.pt"
    assert 0 < checkpoint(first, "best.pt")["trainer"]["global_step"] < step
    assert_same_end(whole, train(config, tmp_path / "parts", resume=best).run_dir)


def test_without_a_length_max_steps_ends_a_run_in_the_middle_of_an_epoch(tmp_path):
    result = train(streaming({"max_steps": 7}), tmp_path)
    assert (result.epoch, result.global_step) == (1, 7)
    assert result.stop_reason == "max_steps: 7 optimizer steps"


def test_a_schedule_needs_to_know_how_long_the_run_is(tmp_path):
    config = {**streaming({"epochs": 2}), "scheduler": {"name": "warmup_cosine"}}
    with pytest.raises(ConfigError, match=r"give this option or trainer\.max_steps") as raised:
        train(config, tmp_path)
    assert raised.value.diagnostics[0].path == "scheduler.total_steps"
    for section, values in (("scheduler", {"total_steps": 10}), ("trainer", {"max_steps": 10})):
        longer = {**config, section: {**config[section], **values}}
        assert train(longer, tmp_path).global_step == 10


def test_a_stream_that_can_be_read_only_once_is_refused(tmp_path):
    """Looking at its first samples would already take them away."""

    @register_dataset("generator")
    def build():
        return Splits(sample for sample in [(torch.ones(1), torch.ones(1))] * 4)

    with pytest.raises(ConfigError, match=r"the train split .* is a generator, which can be read only once"):
        train({**line(), "dataset": {"name": "generator"}}, tmp_path)
    assert not (tmp_path / "runs").exists()


class RunsDry:
    """Yields samples in its first passes only."""

    def __init__(self, passes):
        self.passes = passes

    def __iter__(self):
        self.passes -= 1
        return iter([(torch.ones(1), torch.ones(1))] * 2 if self.passes >= 0 else [])


@pytest.mark.parametrize("trainer", [{"epochs": 3}, {"max_steps": 100}])
def test_an_epoch_without_a_batch_ends_the_run_with_an_error(tmp_path, trainer):
    @register_dataset("runs_dry")
    def build():
        return Splits(RunsDry(2))  # the first pass is the look at a sample

    with pytest.raises(BatchError, match="the training data yields no batch in epoch 2"):
        train({**line(trainer=trainer), "dataset": {"name": "runs_dry"}}, tmp_path)


def test_a_validation_without_a_batch_ends_the_run_with_an_error(tmp_path):
    @register_dataset("nothing_to_validate")
    def build():
        return Splits(TensorData(torch.ones(2, 1), torch.ones(2, 1)), RunsDry(0))

    with pytest.raises(ConfigError, match="the dataset yields no sample"):
        train({**line(), "dataset": {"name": "nothing_to_validate"}}, tmp_path)
    assert not (tmp_path / "runs").exists()


def test_a_run_of_a_stream_that_was_interrupted_between_epochs_is_resumed(tmp_path):
    config = streaming({"epochs": 3})
    whole = train(config, tmp_path / "whole").run_dir
    first = interrupted(config, tmp_path / "parts", epochs=1)
    assert_same_end(whole, train(config, tmp_path / "parts", resume=first).run_dir)
