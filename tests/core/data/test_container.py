"""The data container."""

from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from trainlattice.data.container import BatchError, batch_size, container_of, get, move

pytestmark = pytest.mark.torch
CPU = torch.device("cpu")


@pytest.mark.parametrize("form", [tuple, list])
def test_a_pair_is_input_and_target(form):
    x, y = torch.ones(3, 2), torch.zeros(3)
    container = container_of(form((x, y)))
    assert list(container) == ["input", "target"]
    assert container["input"] is x
    assert container["target"] is y


def test_fields_of_a_dict_are_inputs_unless_they_are_targets():
    batch = {
        "image": torch.ones(1),
        "target": torch.ones(1),
        "target/box": torch.ones(1),
        "input": torch.ones(1),
    }
    assert list(container_of(batch)) == ["input/image", "target", "target/box", "input"]


def test_tensors_move_to_the_device_and_other_values_stay():
    container = container_of({"x": torch.ones(2), "names": ["a", "b"]})
    move(container, torch.device("meta"))
    assert container["input/x"].device.type == "meta"
    assert container["input/names"] == ["a", "b"]


def test_what_lists_tuples_and_dicts_hold_moves_too():
    x = torch.ones(2)
    container = container_of({"boxes": [x, (x, 3)], "words": {"ids": x}})
    move(container, torch.device("meta"))
    both = namedtuple("both", "a b")
    nested = container_of({"one": Fields(x, both(x, OrderedDict(deep=x)))})
    move(nested, torch.device("meta"))
    one = nested["input/one"]
    assert type(one.target) is both
    assert {t.device.type for t in (one.image, one.target.a, one.target.b["deep"])} == {"meta"}
    assert x.device.type == "cpu"
    boxes, words = container["input/boxes"], container["input/words"]
    assert [type(boxes), type(boxes[1]), boxes[1][1]] == [list, tuple, 3]
    assert {t.device.type for t in (boxes[0], boxes[1][0], words["ids"])} == {"meta"}


@dataclass
class Fields:
    image: Any
    target: Any


class Graph:
    """A type that moves itself."""

    def __init__(self, nodes: Any, **more: Any) -> None:
        self.nodes = nodes
        self.__dict__.update(more)

    def __len__(self) -> int:
        return 7

    def to(self, device: Any) -> "Graph":
        return Graph(**{name: value.to(device) for name, value in self.__dict__.items()})


def test_fields_of_a_dataclass_or_named_tuple_are_as_those_of_a_dict():
    a, b, c = torch.ones(1), torch.ones(2), torch.ones(3)
    assert container_of(Fields(a, b)) == {"input/image": a, "target": b}
    three = namedtuple("three", "left right target")
    assert container_of(three(a, b, c)) == {"input/left": a, "input/right": b, "target": c}
    pair = namedtuple("pair", "x y")
    assert container_of(pair(a, b)) == {"input": a, "target": b}


@pytest.mark.parametrize("name", ["target", "y"])
def test_a_type_that_moves_itself_is_the_input_as_a_whole(name):
    graph = Graph(torch.ones(5), **{name: torch.ones(4)})
    container = container_of(graph)
    assert container["input"] is graph
    assert batch_size(container) == 4
    move(container, torch.device("meta"))
    assert container["input"].nodes.device.type == container["target"].device.type == "meta"


def test_the_size_of_a_batch_without_a_tensor_is_its_length():
    assert batch_size(container_of(Graph(torch.ones(5)))) == 7


def test_a_tensor_is_an_input_without_a_target():
    x = torch.ones(3, 2)
    assert container_of(x) == {"input": x}


@pytest.mark.parametrize(
    ("batch", "form"),
    [
        ((torch.ones(2),), "a tuple of 1"),
        ([torch.ones(2)] * 3, "a list of 3"),
        (None, "a NoneType"),
    ],
)
def test_a_batch_of_another_form_is_refused_and_the_form_named(batch, form):
    with pytest.raises(
        BatchError, match=rf"a dataclass or a type with to\(device\), and this dataset yields {form}$"
    ):
        container_of(batch)


def test_the_batch_size_is_the_length_of_the_first_tensor_with_a_dimension():
    assert batch_size({"input/scale": torch.tensor(2.0), "input/x": torch.ones(5, 3)}) == 5


def test_the_target_says_how_many_samples_there_are_where_there_is_one():
    vocabulary, x, y = torch.ones(7), torch.ones(4, 2), torch.ones(4)
    assert batch_size({"input/vocabulary": vocabulary, "input/x": x, "target": y}) == 4
    assert batch_size({"input/vocabulary": vocabulary, "input": x}) == 4
    assert batch_size({"input/x": x, "target": torch.tensor(1.0)}) == 4


def test_a_container_without_a_batch_dimension_names_its_keys():
    with pytest.raises(BatchError, match="no tensor with a batch dimension among the keys input/a, epoch"):
        batch_size({"input/a": torch.tensor(1.0), "epoch": 3})


def test_a_missing_key_is_named_with_who_asked_and_what_exists():
    with pytest.raises(KeyError) as raised:
        get({"input/image": 1, "target": 2}, "input", "the model")
    assert raised.value.args[0] == "the model needs the key 'input'; the batch has 'input/image', 'target'"


def test_a_value_that_is_there_is_returned():
    value = SimpleNamespace()
    assert get({"pred": value}, "pred", "a loss") is value
