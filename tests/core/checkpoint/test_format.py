"""Format 3: what it lacks is made up where nothing depends on it, and refused where something does."""

import json

import pytest
import torch

from support.runs import assert_same_end, checkpoint, interrupted, run_dirs, tiny, train
from trainlattice.checkpoint.format import FORMAT, Checkpoint
from trainlattice.checkpoint.inspection import inspect
from trainlattice.checkpoint.store import load
from trainlattice.diagnostics.errors import CheckpointError

pytestmark = pytest.mark.torch


def as_version_3(run):
    """Rewrites last.pt; as a file of another program's making it is in no index."""
    content = checkpoint(run)
    assert content.pop("format") == 4
    assert content.pop("budget") == 6
    for name, state in content["states"].items():
        if name.startswith("update/"):
            for key in ("implementation", "scheduler", "scaler"):
                del state[key]
            assert list(state) == ["optimizer"]
    path = run / "checkpoints" / "last.pt"
    torch.save({**content, "format": 3}, path)
    index = json.loads((run / "checkpoints" / "index.json").read_text())
    del index["files"]["last.pt"]
    (run / "checkpoints" / "index.json").write_text(json.dumps(index))
    return path


def exact(**sections):
    return tiny(model={"dropout": 0.5}, trainer={"early_stopping": {"patience": 5}}, **sections)


@pytest.mark.parametrize("optimizer", [{}, {"name": "sgd", "lr": 0.1, "momentum": 0.9}])
def test_a_run_without_a_schedule_goes_on_from_version_3_bit_identically(tmp_path, optimizer):
    config = exact(optimizer=optimizer)
    whole = train(config, tmp_path / "whole").run_dir
    first = interrupted(config, tmp_path, epochs=1)
    as_version_3(first)
    second = train(config, tmp_path, resume=first).run_dir
    assert checkpoint(second)["format"] == FORMAT
    assert_same_end(whole, second)


def test_a_run_with_a_schedule_is_refused_before_anything_is_made(tmp_path):
    config = exact(scheduler={"name": "warmup_cosine", "warmup_steps": 2})
    first = interrupted(config, tmp_path, epochs=1)
    path = as_version_3(first)
    with pytest.raises(CheckpointError) as raised:
        train(config, tmp_path, resume=first)
    assert f"{path} does not fit this run: it was saved with no scheduler, and this run has one" in str(
        raised.value
    )
    assert run_dirs(tmp_path) == [first]


def test_inspect_says_which_version_a_file_has(tmp_path):
    first = interrupted(exact(), tmp_path, epochs=1)
    found = inspect(as_version_3(first)).as_json()
    assert (found["format"], found["budget"], found["implementations"]) == (3, None, {})


def test_a_file_of_version_3_is_loaded_as_one_of_version_4(tmp_path):
    first = interrupted(exact(), tmp_path, epochs=1)
    before = load(first / "checkpoints" / "last.pt")
    after = load(as_version_3(first))
    assert list(after.states) == list(before.states)
    (update,) = (state for name, state in after.states.items() if name.startswith("update/"))
    assert (update["implementation"], update["scheduler"], update["scaler"]) == (None, None, None)
    assert (after.trainer, after.order, after.kind) == (before.trainer, before.order, "resume")


@pytest.mark.parametrize("states", [None, [], "text", {"update/optimizer": 3}])
def test_a_version_3_that_is_none_is_refused(states):
    content = {"format": 3, "trainer": {}, "rng": {}, "config": {}, "order": 1, "states": states}
    with pytest.raises(CheckpointError, match="old is no complete checkpoint"):
        Checkpoint.from_plain(content, "old")


@pytest.mark.parametrize("version", [0, 2, 5, "3", None, True])
def test_any_other_version_is_refused_with_those_that_are_read(version):
    with pytest.raises(CheckpointError, match=r"reads formats 3 and 4"):
        Checkpoint.from_plain({"format": version, "states": {}}, "other")


def test_the_plain_form_holds_all_of_a_checkpoint():
    one = Checkpoint(
        {"a": {}}, {"epoch": 1, "global_step": 2}, {"r": 1}, {"c": 2}, 2, 9, [{"d": 3}], "emergency"
    )
    assert Checkpoint.of(one.as_plain()) == Checkpoint.from_plain(one.as_plain(), "one") == one
