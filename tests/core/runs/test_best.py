"""best.pt over a resume: the best model that the resumed checkpoint knows, or a warning; never another one."""

import json
import os

import pytest
import torch

from support.by_hand import SCRIPT, scripted
from support.disks import copies_that_do_not_fit
from support.runs import checkpoint, digests, interrupted, rewrite, run_dirs, train
from trainlattice import Callback

pytestmark = pytest.mark.torch
NO_BEST = "the best model so far stays unavailable until a better one is found"


def resumed(config, values, directory, source):
    SCRIPT[:] = values
    return train(config, directory, resume=source).run_dir


def assert_best_is_known(run):
    """best.pt is of the step that last.pt says."""
    assert checkpoint(run, "best.pt")["trainer"]["global_step"] == checkpoint(run)["trainer"]["best_step"]


# --- a run that was killed


def test_a_best_that_came_inside_an_epoch_is_not_ahead_of_last(tmp_path, caplog):
    """Two steps an epoch, a validation after each: 3 is the best when the run is killed at the second step."""
    config = scripted([4.0, 3.0, 2.0, 1.0], epochs=2, validate_every_steps=1)
    config["dataset"]["batch_size"] = 1

    class Killed(Callback):
        def on_phase_start(self, trainer, phase):
            if phase == "val" and trainer.state.global_step == 4:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(config, tmp_path, extra_callbacks=[Killed()])
    (first,) = run_dirs(tmp_path)
    assert checkpoint(first, "best.pt")["trainer"]["global_step"] == 3
    assert_best_is_known(first)
    second = resumed(config, [9.0], tmp_path, first)
    assert (second / "checkpoints" / "best.pt").read_bytes() == (
        first / "checkpoints" / "best.pt"
    ).read_bytes()
    assert NO_BEST not in caplog.text


def killed_between_two_names(config, directory, monkeypatch, *, save):
    """A run that is killed in the save with this number: best.pt has its name, last.pt has not."""
    replace, saves = os.replace, [0]

    def interrupted_replace(source, target):
        saves[0] += os.path.basename(target) == "best.pt"
        if saves[0] == save and os.path.basename(target) == "last.pt":
            raise KeyboardInterrupt
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", interrupted_replace)
        with pytest.raises(KeyboardInterrupt):
            train(config, directory)
    (run,) = run_dirs(directory)
    return run


def test_a_kill_between_best_and_last_leaves_the_best_of_last_in_last_itself(tmp_path, monkeypatch, caplog):
    config = scripted([3.0, 2.0, 1.0], epochs=3)
    first = killed_between_two_names(config, tmp_path, monkeypatch, save=2)
    held = [checkpoint(first, name)["trainer"]["global_step"] for name in ("last.pt", "best.pt")]
    assert held == [1, 2]
    second = resumed(config, [9.0, 9.0], tmp_path, first)
    assert checkpoint(second, "best.pt")["trainer"]["global_step"] == 1
    assert_best_is_known(second)
    assert NO_BEST not in caplog.text


def test_a_kill_between_best_and_last_that_costs_the_best_of_last_is_said(tmp_path, monkeypatch, caplog):
    """last.pt is of epoch 2, whose best was epoch 1; best.pt is already that of epoch 3, which is done again."""
    config = scripted([2.0, 3.0, 1.0], epochs=3)
    first = killed_between_two_names(config, tmp_path, monkeypatch, save=2)
    assert checkpoint(first)["trainer"]["best_step"] == 1
    assert checkpoint(first, "best.pt")["trainer"]["global_step"] == 3
    second = resumed(config, [1.0], tmp_path, first)
    assert f"there is no checkpoint of step 1 in {first / 'checkpoints'}; {NO_BEST}" in caplog.text
    assert_best_is_known(second)


# --- a checkpoint that does not say at which step the best came


def without_best_step(run):
    """As an earlier version wrote it."""
    trainer = checkpoint(run)["trainer"]
    del trainer["best_step"]
    rewrite(run, trainer=trainer)


def test_a_checkpoint_that_knows_no_step_of_its_best_takes_the_best_of_the_same_value(tmp_path, caplog):
    config = scripted([1.0, 2.0], epochs=3)
    first = interrupted(config, tmp_path, epochs=2)
    without_best_step(first)
    second = resumed(config, [3.0], tmp_path, first)
    assert (second / "checkpoints" / "best.pt").read_bytes() == (
        first / "checkpoints" / "best.pt"
    ).read_bytes()
    assert (
        json.loads((second / "checkpoints" / "index.json").read_text())["files"]["best.pt"][0]["epoch"] == 1
    )
    assert NO_BEST not in caplog.text


def test_a_later_best_is_not_that_of_a_checkpoint_that_knows_no_step(tmp_path, caplog):
    """Nor is the checkpoint itself, which knows the value of its best too."""
    config = scripted([2.0, 3.0, 1.0], epochs=3)
    config["checkpoint"] = {"keep_last": None}
    run = train(config, tmp_path).run_dir
    content = checkpoint(run, "step-00000002.pt")
    del content["trainer"]["best_step"]
    torch.save(content, run / "checkpoints" / "alone.pt")
    second = resumed(config, [9.0], tmp_path, run / "checkpoints" / "alone.pt")
    assert (
        f"there is no checkpoint whose best value is 2.0 in {run / 'checkpoints'}; {NO_BEST}" in caplog.text
    )
    assert not (second / "checkpoints" / "best.pt").exists()


# --- a disk that does not take it


def test_a_best_that_cannot_be_taken_over_is_a_warning_and_the_run_goes_on(tmp_path, monkeypatch, caplog):
    config = scripted([1.0, 2.0], epochs=3)
    first = interrupted(config, tmp_path, epochs=2)
    before = digests(first)
    with copies_that_do_not_fit(monkeypatch):
        second = resumed(config, [3.0], tmp_path, first)
    best = second / "checkpoints" / "best.pt"
    assert f"cannot be taken over as {best}: " in caplog.text
    assert NO_BEST in caplog.text
    assert sorted(path.name for path in best.parent.iterdir()) == ["index.json", "last.pt"]
    assert checkpoint(second)["trainer"]["best_metric"] == 1.0
    assert digests(first) == before


def test_a_run_that_keeps_no_best_takes_none_over(tmp_path, caplog):
    config = {**scripted([1.0, 2.0], epochs=2), "checkpoint": {"keep_best": 0}}
    first = interrupted(config, tmp_path, epochs=1)
    second = resumed(config, [3.0], tmp_path, first)
    assert not (second / "checkpoints" / "best.pt").exists()
    assert NO_BEST not in caplog.text
