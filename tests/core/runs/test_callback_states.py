"""Which state a callback gets when a run is resumed with other callbacks, or the same in another order."""

import pytest
import torch

from support.runs import InterruptAfter, interrupted, run_dirs, tiny, train
from trainlattice import Callback, Options, register_callback
from trainlattice.contracts.records import CallbackContract
from trainlattice.diagnostics.errors import CheckpointError
from trainlattice.runs.evaluation import evaluate_run

pytestmark = pytest.mark.torch
LOADED = []
"""Option and loaded state of each callback of a resumed run, in their order; None for one without a state."""


class LabelledOptions(Options):
    label: str
    flag: bool = False


@register_callback("labelled", options=LabelledOptions)
class Labelled(Callback):
    """Its state is its label and how many steps it saw."""

    def __init__(self, options):
        self.label, self.steps, self.loaded = options.label, 0, None

    def on_run_start(self, trainer):
        LOADED.append((self.label, self.loaded))

    def on_step_end(self, trainer):
        self.steps += 1

    def state_dict(self):
        return {"label": self.label, "steps": self.steps}

    def load_state_dict(self, state):
        self.loaded, self.steps = state["label"], state["steps"]


@register_callback("counting_one_more", options=LabelledOptions)
class OneMore(Labelled):
    """Another component."""


def config(*labels, **options):
    """A letter is a callback ``labelled`` of that label; in capitals it is of the other component."""
    callbacks = [
        {"name": "labelled" if label.islower() else "counting_one_more", "label": label, **options}
        for label in labels
    ]
    return {**tiny(), "callbacks": callbacks}


def loaded(before, now, directory, **options):
    """By callback of a run that is resumed after one epoch: its label, and that of the state it was given."""
    first = interrupted(config(*before), directory, epochs=1)
    LOADED.clear()
    train(config(*now, **options), directory, resume=first)
    return LOADED


def begins_without(caplog):
    """Names of callbacks that are said to begin without a state."""
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert all(
        message.endswith("begins without a state: none was saved with its options") for message in said
    )
    return [message.split("'")[1] for message in said]


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ("ab", "ab"),
        ("ab", "ba"),  # swapped
        ("ab", "b"),  # the first is gone
        ("ab", "a"),
        ("abc", "ca"),
        ("aa", "aa"),
        ("aa", "a"),
        ("aAbB", "BbAa"),  # each component for itself
        ("aAb", "bA"),
    ],
)
def test_a_state_goes_to_the_callback_with_its_options(tmp_path, caplog, before, now):
    assert loaded(before, now, tmp_path) == [(label, label) for label in now]
    assert begins_without(caplog) == []


@pytest.mark.parametrize(
    ("before", "now", "expected", "without"),
    [
        ("ab", "ac", ["a", None], ["local:labelled#2"]),
        ("ab", "cb", [None, "b"], ["local:labelled"]),
        ("ab", "cd", [None, None], ["local:labelled", "local:labelled#2"]),
        ("ab", "c", [None], ["local:labelled"]),
        ("a", "xa", [None, "a"], ["local:labelled"]),
        ("a", "aa", ["a", None], ["local:labelled#2"]),
    ],
)
def test_a_callback_whose_options_are_new_begins_without_a_state_and_that_is_said(
    tmp_path, caplog, before, now, expected, without
):
    assert loaded(before, now, tmp_path) == list(zip(now, expected, strict=True))
    assert begins_without(caplog) == without


def test_any_option_that_differs_makes_it_another_one(tmp_path, caplog):
    assert loaded("ab", "ab", tmp_path, flag=True) == [("a", None), ("b", None)]
    assert len(begins_without(caplog)) == 2


def test_the_only_callback_of_a_component_keeps_its_state_whatever_its_options(tmp_path, caplog):
    assert loaded("a", "b", tmp_path) == [("b", "a")]
    assert loaded("aA", "Bb", tmp_path) == [("B", "A"), ("b", "a")]
    assert begins_without(caplog) == []


def test_a_callback_of_a_component_that_was_not_there_is_no_warning(tmp_path, caplog):
    assert loaded("a", "Aa", tmp_path) == [("A", None), ("a", "a")]
    assert begins_without(caplog) == []


def test_states_find_their_callbacks_over_two_resumes(tmp_path):
    first = interrupted(config(*"ab"), tmp_path, epochs=1)
    more = config(*"ba")
    more["trainer"]["epochs"] = 3
    with pytest.raises(KeyboardInterrupt):
        train(more, tmp_path, resume=first, extra_callbacks=[InterruptAfter(2)])
    (second,) = set(run_dirs(tmp_path)) - {first}
    LOADED.clear()
    last = config(*"b")
    last["trainer"]["epochs"] = 3
    train(last, tmp_path, resume=second)
    assert LOADED == [("b", "b")]


class ActingOptions(Options):
    strength: float = 1.0

    def contract(self):
        return CallbackContract(observes=False)


@register_callback("acting", options=ActingOptions)
class Acting(Callback):
    def __init__(self, options):
        self.strength = options.strength

    def state_dict(self):
        return {"strength": self.strength}

    def load_state_dict(self, state):
        if state["strength"] == 3.0:
            raise KeyError("an older version")


def acting(*strengths, observer="a"):
    found = config(observer)
    found["callbacks"] += [{"name": "acting", "strength": strength} for strength in strengths]
    return found


@pytest.mark.parametrize("now", [(), (2.0,), (1.0, 1.0)])
def test_callbacks_that_do_more_than_observe_stay_as_they_are(tmp_path, now):
    first = interrupted(acting(1.0), tmp_path, epochs=1)
    with pytest.raises(CheckpointError, match="callbacks that do more than observe: ") as raised:
        train(acting(*now), tmp_path, resume=first)
    assert "(may change)" not in str(raised.value)  # it is listed once
    assert len(run_dirs(tmp_path)) == 1
    assert train(acting(1.0, observer="b"), tmp_path, resume=first).epoch == 2


def test_a_state_that_a_callback_cannot_take_is_named_and_nothing_is_created(tmp_path):
    first = interrupted(acting(3.0), tmp_path, epochs=1)
    with pytest.raises(CheckpointError) as raised:
        train(acting(3.0), tmp_path, resume=first)
    last = first / "checkpoints" / "last.pt"
    expected = (
        f"{last} does not fit this run: the callback 'local:acting' cannot take its state: an older version"
    )
    assert str(raised.value) == expected
    assert len(run_dirs(tmp_path)) == 1


def test_code_of_a_callback_that_does_more_than_observe_is_compared(tmp_path, caplog):
    first = interrupted(acting(1.0), tmp_path, epochs=1)
    saved = torch.load(first / "checkpoints" / "last.pt", weights_only=True)
    for record in saved["components"]:
        if record["kind"] == "callback":
            record["sha256"] = "of other code"
    torch.save(saved, first / "checkpoints" / "last.pt")
    (first / "checkpoints" / "index.json").unlink()
    train(acting(1.0), tmp_path, resume=first)
    assert "the code of callback 'local:acting' is not that of" in caplog.text
    assert "the code of callback 'local:labelled'" not in caplog.text


def test_an_evaluation_asks_only_callbacks_that_put_other_weights_in_place(tmp_path):
    config = {
        **acting(1.0),
        "callbacks": [{"name": "ema", "decay": 0.5}, {"name": "acting", "strength": 3.0}],
    }
    run = train(config, tmp_path).run_dir
    assert evaluate_run(run).metrics["val_loss"] > 0
