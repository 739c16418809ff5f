"""Work on a thread, and the copy of a state that it works on."""

import threading
from collections import OrderedDict

import pytest
import torch
from torch import nn

from support.runs import assert_identical
from trainlattice.checkpoint.background import Background, host_copy

pytestmark = pytest.mark.torch


@pytest.fixture
def background():
    return Background()


def wait():
    """Until the thread has ended; its result stays where it is."""
    for thread in threading.enumerate():
        if thread.name == "trainlattice-save":
            thread.join()


# --- work


def test_the_result_is_there_to_be_taken_once(background):
    assert not background.is_busy
    assert not background.is_done
    background.start(lambda: [1, 2])
    wait()
    assert background.is_busy
    assert background.is_done
    assert background.take() == [1, 2]
    assert not background.is_busy
    assert not background.is_done


def test_work_is_done_on_another_thread_while_the_caller_goes_on(background):
    go, names = threading.Event(), []
    background.start(lambda: (go.wait(10), names.append(threading.current_thread().name)))
    assert background.is_busy
    assert not background.is_done
    assert names == []
    go.set()
    background.take()
    assert names == ["trainlattice-save"]


def test_taking_waits_for_the_work(background):
    go, taken = threading.Event(), []
    background.start(lambda: go.wait(10))
    taker = threading.Thread(target=lambda: taken.append((background.take(), go.is_set())))
    taker.start()
    assert taken == []
    go.set()
    taker.join()
    assert taken == [(True, True)]


@pytest.mark.parametrize("error", [OSError("disk"), KeyboardInterrupt(), SystemExit(3)])
def test_what_the_work_raises_is_raised_where_it_is_taken(background, error):
    def work():
        raise error

    background.start(work)
    wait()
    assert background.is_busy
    with pytest.raises(type(error)) as raised:
        background.take()
    assert raised.value is error
    assert not background.is_busy
    background.start(lambda: "next")
    assert background.take() == "next"


def test_one_piece_of_work_follows_the_other(background):
    done = []
    for number in range(20):
        background.start(lambda number=number: done.append(number))
        background.take()
    assert done == list(range(20))


def test_a_result_that_nobody_took_is_not_lost(background):
    background.start(lambda: 1)
    wait()
    with pytest.raises(RuntimeError, match="still to be taken"):
        background.start(lambda: 2)
    assert background.take() == 1


# --- the copy


def addresses(tensor):
    return tensor.untyped_storage().data_ptr()


STATES = {
    "floats": torch.randn(5, 3),
    "bf16": torch.randn(9).to(torch.bfloat16),
    "half": torch.randn(9).to(torch.float16),
    "integers": torch.arange(7),
    "booleans": torch.tensor([True, False]),
    "complex": torch.randn(4, dtype=torch.complex64),
    "empty": torch.empty(0, 4),
    "number": torch.tensor(3.5),
    "transposed": torch.randn(4, 6).t(),
    "strided": torch.randn(6, 2)[:, 1],
    "channels last": torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),
    "expanded": torch.randn(1, 4).expand(3, 4),
    "parameter": nn.Parameter(torch.randn(3)),
    "conjugate": torch.randn(4, dtype=torch.complex64).conj(),
    "negative": torch.randn(4, dtype=torch.complex64).conj().imag,
}


@pytest.mark.parametrize(
    "name",
    STATES,
)
def test_a_copy_has_the_values_and_the_layout(name):
    tensor = STATES[name]
    copy = host_copy({"w": tensor})["w"]
    assert torch.equal(copy, tensor)
    assert (copy.dtype, copy.shape) == (tensor.dtype, tensor.shape)
    assert copy.stride() == tensor.stride() or tensor.is_neg()  # it is a view of every second number
    assert copy.device.type == "cpu"
    assert not copy.requires_grad


def test_a_sparse_tensor_is_copied():
    tensor = torch.sparse_coo_tensor(
        torch.tensor([[0, 2]]), torch.tensor([1.0, 2.0]), (4,), check_invariants=True
    ).coalesce()
    copy = host_copy([tensor])[0]
    assert copy.layout is torch.sparse_coo
    assert torch.equal(copy.to_dense(), torch.tensor([1.0, 0.0, 2.0, 0.0]))
    tensor.values().fill_(9.0)
    assert torch.equal(copy.to_dense(), torch.tensor([1.0, 0.0, 2.0, 0.0]))


@pytest.mark.parametrize("name", [name for name, tensor in STATES.items() if tensor.numel()])
def test_a_change_of_the_original_changes_nothing(name):
    tensor = STATES[name].detach().clone(memory_format=torch.preserve_format)
    copy = host_copy({"w": tensor})["w"]
    before = copy.clone()
    tensor.zero_()
    assert torch.equal(copy, before)
    assert addresses(copy) != addresses(tensor)


def test_tied_weights_are_tied_in_the_copy():
    weight = torch.randn(4, 4)
    copy = host_copy({"a": weight, "b": {"c": [weight, weight[1:]]}, "d": weight.t(), "e": torch.randn(4, 4)})
    tied = [copy["a"], *copy["b"]["c"], copy["d"]]
    assert len({addresses(tensor) for tensor in tied}) == 1
    assert addresses(copy["e"]) != addresses(copy["a"])
    copy["a"][1, 2] = 77.0
    assert copy["d"][2, 1] == copy["b"]["c"][1][0, 2] == 77.0
    assert 77.0 not in weight


def test_tied_weights_of_a_model_take_their_room_once(tmp_path):
    first, second = nn.Linear(100, 100, bias=False), nn.Linear(100, 100, bias=False)
    second.weight = first.weight
    model = nn.Sequential(first, second)
    for name, state in (("direct", model.state_dict()), ("copy", host_copy(model.state_dict()))):
        torch.save(state, tmp_path / name)
    assert (tmp_path / "copy").stat().st_size < 60_000
    assert_identical(dict(torch.load(tmp_path / "copy")), dict(torch.load(tmp_path / "direct")))


def test_of_a_view_of_something_large_only_what_is_seen_is_copied():
    large = torch.randn(100_000)
    copy = host_copy({"w": large[10:20]})["w"]
    assert torch.equal(copy, large[10:20])
    assert copy.untyped_storage().nbytes() == 40


def test_containers_stay_what_they_are():
    state = {
        "ordered": OrderedDict(b=torch.ones(1), a=torch.zeros(1)),
        "list": [torch.ones(1), [1, "x", None]],
        "tuple": (1.5, (True, b"raw")),
        "size": torch.Size([2, 3]),
        3: {},
    }
    copy = host_copy(state)
    assert_identical(copy, state)
    state["list"][1].append("later")
    state["ordered"]["c"] = 1
    state[3]["new"] = 1
    assert (copy["list"][1], list(copy["ordered"]), copy[3]) == ([1, "x", None], ["b", "a"], {})


def test_what_is_neither_tensor_nor_container_of_some_is_shared_with_nobody_either():
    state = {"set": {1, 2}, "bytes": bytearray(b"ab"), "deep": [({3},)], "frozen": frozenset({4})}
    copy = host_copy(state)
    assert_identical(copy, state)
    state["set"].add(9)
    state["bytes"][:] = b"xyz"
    state["deep"][0][0].clear()
    assert copy == {"set": {1, 2}, "bytes": bytearray(b"ab"), "deep": [({3},)], "frozen": frozenset({4})}


def test_the_versions_of_modules_in_a_state_dict_are_kept():
    state = nn.Sequential(nn.BatchNorm1d(2)).state_dict()
    assert state._metadata["0"] == {"version": 2}
    assert host_copy(state)._metadata == state._metadata


def test_the_state_of_an_optimizer_is_restored_from_its_copy():
    model = nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    copy = host_copy(optimizer.state_dict())
    assert_identical(copy, optimizer.state_dict())
    optimizer.step()
    assert copy["state"][0]["step"] == 1.0
