"""Resuming at an epoch boundary: bit-identical to the run that was never interrupted, or refused."""

import gc
import json
import logging
import os
import shutil
import weakref

import pytest
import torch

from support.by_hand import SCRIPT, line, scripted
from support.configs import TINY, write_tiny
from support.runs import (
    InterruptAfter,
    assert_identical,
    assert_same_end,
    checkpoint,
    digests,
    interrupted,
    manifest,
    records,
    run_dirs,
    tiny,
    train,
    trained,
    weights,
)
from trainlattice import Callback, resume_run, run_from_file
from trainlattice.diagnostics.errors import CheckpointError
from trainlattice.runs import execute

pytestmark = pytest.mark.torch
DROPOUT = {"name": "mlp", "input_dim": 4, "hidden_dims": [8, 8], "num_classes": 3, "dropout": 0.5}

VARIANTS = {
    "adamw": {},
    "adam": {"optimizer": {"name": "adam", "lr": 0.01, "amsgrad": True}},
    "sgd": {"optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.9, "nesterov": True}},
    "warmup_cosine": {"scheduler": {"name": "warmup_cosine", "warmup_steps": 4}},
    "warmup_cosine_inside_warmup": {"scheduler": {"name": "warmup_cosine", "warmup_steps": 8}},
    "warmup_linear": {"scheduler": {"name": "warmup_linear", "warmup_steps": 2, "min_lr": 1e-4}},
    "step_decay": {"scheduler": {"name": "step_decay", "step_size": 4, "gamma": 0.5}},
    "bf16": {"trainer": {"precision": "bf16", "accumulate": 2, "max_grad_norm": 0.1}},
    "early_stopping": {"trainer": {"early_stopping": {"patience": 5, "min_delta": 0.5}}},
    "workers": {"dataset": {"num_workers": 1}},
    "sum": {"loss": {"name": "cross_entropy", "reduction": "sum", "label_smoothing": 0.1}},
    "validate_every": {"trainer": {"validate_every": 2, "monitor": "val_accuracy"}},
}


def variant(name, epochs=4):
    config = tiny(model=DROPOUT)
    for section, values in VARIANTS[name].items():
        config[section] = values if "name" in values else {**config.get(section, {}), **values}
    config["trainer"]["epochs"] = epochs
    return config


@pytest.mark.parametrize("name", VARIANTS)
def test_a_resumed_run_ends_bit_identical_to_one_that_was_never_interrupted(tmp_path, name):
    whole = train(variant(name), tmp_path / "whole").run_dir
    first = interrupted(variant(name), tmp_path / "parts", epochs=2)
    second = train(variant(name), tmp_path / "parts", resume=first).run_dir
    assert_same_end(whole, second)
    joined = records(first) + records(second)
    assert trained(joined) == trained(records(whole))


def test_a_run_that_is_resumed_after_every_epoch_ends_bit_identical(tmp_path):
    config = variant("warmup_cosine", epochs=4)
    whole = train(config, tmp_path / "whole").run_dir
    run = interrupted(config, tmp_path / "parts", epochs=1)
    for epochs in (2, 3):
        with pytest.raises(KeyboardInterrupt):
            train(config, tmp_path / "parts", resume=run, extra_callbacks=[InterruptAfter(epochs)])
        run = run_dirs(tmp_path / "parts")[-1]
    last = train(config, tmp_path / "parts", resume=run).run_dir
    assert_same_end(whole, last)
    found = [r["step"] for part in run_dirs(tmp_path / "parts") for r in records(part, "batch")]
    assert found == list(range(1, 13))


def test_what_ran_before_in_the_process_does_not_matter(tmp_path):
    """As in another process: the global random state differs when the run is resumed."""
    whole = train(variant("adamw"), tmp_path).run_dir
    first = interrupted(variant("adamw"), tmp_path, epochs=2)
    torch.manual_seed(12345)
    torch.rand(100)
    assert_same_end(whole, train(variant("adamw"), tmp_path, resume=first).run_dir)


def test_the_tensors_of_the_checkpoint_are_let_go(tmp_path, monkeypatch):
    """Else they would take their room in memory as long as the run takes."""
    find, held, alive = execute.find_resume_point, [], []

    class Looks(Callback):
        def on_run_start(self, trainer):
            gc.collect()
            alive.extend(tensor() is not None for tensor in held)

    def found(path, resolution):
        point = find(path, resolution)
        held.extend(map(weakref.ref, point.checkpoint.states["model/model"].values()))
        return point

    run = interrupted(tiny(), tmp_path, epochs=1)
    monkeypatch.setattr(execute, "find_resume_point", found)
    train(tiny(), tmp_path, resume=run, extra_callbacks=[Looks()])
    assert alive == [False] * 4


def test_an_exception_in_the_middle_of_an_epoch_loses_that_epoch_only(tmp_path):
    class Fails(Callback):
        def on_step_end(self, trainer):
            if trainer.state.global_step == 8:
                raise OSError("the machine is on fire")

    config = variant("warmup_cosine")
    whole = train(config, tmp_path / "whole").run_dir
    with pytest.raises(OSError, match="on fire"):
        train(config, tmp_path / "parts", extra_callbacks=[Fails()])
    (first,) = run_dirs(tmp_path / "parts")
    assert checkpoint(first)["trainer"]["epoch"] == 2
    assert_same_end(whole, train(config, tmp_path / "parts", resume=first).run_dir)


# --- rates


@pytest.mark.parametrize("interrupt", [1, 2, 3, 4, 5])
def test_the_rates_after_a_resume_are_those_of_the_whole_schedule(tmp_path, interrupt):
    """Base rate 1, half a cosine over ten steps, one step an epoch: 0.5 (1 + cos(pi s / 10))."""
    config = line(
        dataset={"x": [0.0], "y": [0.0]},
        optimizer={"lr": 1.0},
        scheduler={"name": "warmup_cosine"},
        trainer={"epochs": 10},
    )
    first = interrupted(config, tmp_path, epochs=interrupt)
    second = train(config, tmp_path, resume=first).run_dir
    rates = [r["lr"] for r in records(first, "batch") + records(second, "batch")]
    expected = [1.0, 0.975528, 0.904508, 0.793893, 0.654508, 0.5, 0.345492, 0.206107, 0.095492, 0.024472]
    assert rates == pytest.approx(expected, abs=1e-6)


def test_more_epochs_keep_the_budget_of_the_schedule(tmp_path, caplog):
    """The schedule was made for 6 steps: from then on the rate is min_lr, and the log says so."""
    config = tiny(scheduler={"name": "warmup_linear", "min_lr": 0.001})
    run = train(config, tmp_path).run_dir
    config["trainer"]["epochs"] = 4
    with caplog.at_level(logging.INFO, logger="trainlattice"):
        resumed = train(config, tmp_path, resume=run).run_dir
    assert [r["lr"] for r in records(resumed, "batch")] == [0.001] * 6
    assert checkpoint(resumed)["budget"] == 6
    assert "the schedule keeps its budget of 6 steps from the checkpoint" in caplog.text
    assert "would give 12" in caplog.text


def test_more_epochs_without_a_schedule_equal_a_longer_run(tmp_path):
    longer = train(variant("sgd", epochs=5), tmp_path).run_dir
    shorter = train(variant("sgd", epochs=2), tmp_path).run_dir
    resumed = train(variant("sgd", epochs=5), tmp_path, resume=shorter).run_dir
    assert_identical(checkpoint(longer)["states"], checkpoint(resumed)["states"])


# --- from where


def test_a_checkpoint_file_can_be_resumed_and_so_can_best(tmp_path):
    config = scripted([3.0, 1.0, 2.0], epochs=4)
    run = interrupted(config, tmp_path, epochs=3)
    for name, epoch in (("last.pt", 3), ("best.pt", 2)):
        SCRIPT[:] = [5.0, 5.0]
        result = train(config, tmp_path, resume=run / "checkpoints" / name)
        assert [r["epoch"] for r in records(result.run_dir, "epoch")] == list(range(epoch + 1, 5))
        assert (result.best_metric, result.best_epoch) == (1.0, 2)
        assert checkpoint(result.run_dir, "best.pt")["trainer"]["epoch"] == 2


def test_a_run_is_resumed_by_its_directory_alone_from_any_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = write_tiny(tmp_path, TINY.replace("epochs: 2", "epochs: 4"))
    whole = run_from_file(path).run_dir
    with pytest.raises(KeyboardInterrupt):
        run_from_file(path, extra_callbacks=[InterruptAfter(2)])
    first = run_dirs(tmp_path)[-1]
    path.unlink()
    elsewhere = tmp_path / "else where"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    second = resume_run(os.path.relpath(first)).run_dir
    assert second.parent == tmp_path / "runs"
    assert list(elsewhere.iterdir()) == []
    assert_same_end(whole, second)


def test_a_run_with_a_local_component_file_is_resumed_by_its_directory_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(
        "from torch import nn\n"
        "from trainlattice import register_model\n"
        "@register_model('mine_resumed')\n"
        "def build():\n"
        "    return nn.Linear(4, 3)\n"
    )
    config = {**tiny(model={"name": "mine_resumed"}), "plugins": {"local": [str(tmp_path / "mine.py")]}}
    whole = train(config, tmp_path).run_dir
    first = interrupted(config, tmp_path, epochs=1)
    (tmp_path / "mine.py").unlink()
    second = resume_run(first).run_dir
    assert_identical(checkpoint(whole)["states"], checkpoint(second)["states"])


@pytest.mark.parametrize("inside", ["", "checkpoints", "checkpoints/last.pt"])
def test_resume_takes_a_run_directory_or_a_checkpoint_inside_one(tmp_path, inside):
    run = train(tiny(trainer={"epochs": 1}), tmp_path).run_dir
    result = resume_run(run / inside, overrides=["trainer.epochs=2"])
    assert (result.epoch, result.global_step) == (2, 6)


def test_a_checkpoint_that_was_copied_out_of_its_run_is_resumed_with_a_configuration(tmp_path):
    run = interrupted(tiny(), tmp_path, epochs=1)
    alone = tmp_path / "backup"
    alone.mkdir()
    for name in ("last.pt", "best.pt"):
        shutil.copyfile(run / "checkpoints" / name, alone / name)
    whole = train(tiny(), tmp_path).run_dir
    resumed = train(tiny(), tmp_path, resume=alone).run_dir
    assert_same_end(whole, resumed)
    with pytest.raises(CheckpointError, match=r"has no config\.yaml; .* trainlattice train CONFIG --resume"):
        resume_run(alone / "last.pt")


def test_a_checkpoint_without_its_best_is_resumed_with_a_warning(tmp_path, caplog):
    config = scripted([1.0, 2.0], epochs=3)
    run = interrupted(config, tmp_path, epochs=2)
    (run / "checkpoints" / "best.pt").unlink()
    SCRIPT[:] = [1.5]
    train(config, tmp_path, resume=run)
    assert "there is no checkpoint of step 1 in" in caplog.text
    assert "the best model so far stays unavailable" in caplog.text


def test_a_later_best_beside_an_earlier_checkpoint_is_not_taken_for_its_best(tmp_path):
    """Resumed from epoch 2 of a run whose best came in epoch 3: what was the best by then has a number."""
    config = scripted([1.0, 2.0, 0.5], epochs=3)
    config["checkpoint"] = {"keep_last": None, "keep_best": 2}
    run = train(config, tmp_path).run_dir
    first, second = (run / "checkpoints" / f"step-{step:08d}.pt" for step in (1, 2))
    SCRIPT[:] = [0.75]
    resumed = train(config, tmp_path, resume=second).run_dir
    assert checkpoint(resumed, "best.pt")["trainer"]["best_metric"] == 0.75
    SCRIPT[:] = [3.0]
    resumed = train(config, tmp_path, resume=second).run_dir
    assert (resumed / "checkpoints" / "best.pt").read_bytes() == first.read_bytes()


def test_a_run_that_saved_nothing_is_resumed_from_where_it_began(tmp_path):
    class EndsAtOnce(Callback):
        def on_run_start(self, trainer):
            raise ValueError("before the first step")

    whole = train(tiny(trainer={"epochs": 3}), tmp_path / "whole").run_dir
    run = interrupted(tiny(trainer={"epochs": 3}), tmp_path, epochs=1)
    for _ in range(2):  # and again, from that one
        with pytest.raises(ValueError, match="before the first step"):
            resume_run(run, extra_callbacks=[EndsAtOnce()])
        run = run_dirs(tmp_path)[-1]
        assert not (run / "checkpoints" / "last.pt").exists()
    resumed = resume_run(run).run_dir
    assert_identical(weights(resumed), weights(whole))
    assert manifest(resumed)["resumed_from"].endswith("checkpoints/last.pt")


def test_a_run_that_lost_its_last_checkpoint_is_not_taken_for_one_that_saved_none(tmp_path):
    config = tiny(trainer={"epochs": 3})
    first = interrupted(config, tmp_path, epochs=1)
    with pytest.raises(KeyboardInterrupt):
        train(config, tmp_path, resume=first, extra_callbacks=[InterruptAfter(2)])
    (second,) = set(run_dirs(tmp_path)) - {first}
    (second / "checkpoints" / "last.pt").unlink()
    with pytest.raises(CheckpointError) as raised:
        resume_run(second)
    best = second / "checkpoints" / "best.pt"
    assert f"no checkpoints/last.pt and no last.pt; usable: {best} (epoch 2, step 6)" in str(raised.value)


@pytest.mark.parametrize("index", [None, "{"])
def test_without_an_index_whole_checkpoints_are_still_named(tmp_path, index):
    run = interrupted(tiny(trainer={"epochs": 3}), tmp_path, epochs=1)
    checkpoints = run / "checkpoints"
    (checkpoints / "index.json").unlink()
    (checkpoints / "last.pt").unlink()  # one file with best.pt
    (checkpoints / "last.pt").write_bytes(b"damaged")
    shutil.copyfile(checkpoints / "last.pt", checkpoints / "step-00000007.pt")
    if index is not None:
        (checkpoints / "index.json").write_text(index)
    with pytest.raises(CheckpointError) as raised:
        resume_run(run)
    assert str(raised.value).endswith(f"; usable: {checkpoints / 'best.pt'} (epoch 1, step 3)")


def test_an_emergency_checkpoint_alone_is_refused_with_the_way_to_start_again(tmp_path):
    class Fails(Callback):
        def on_step_end(self, trainer):
            raise ValueError("on purpose")

        def state_dict(self):
            return {"asked": self.asked()}

        def asked(self):
            return 0

    config = tiny(trainer={"epochs": 3})
    with pytest.raises(ValueError, match="on purpose"):
        train(config, tmp_path, extra_callbacks=[Fails()])
    (run,) = run_dirs(tmp_path)
    (run / "checkpoints" / "last.pt").unlink()
    with pytest.raises(CheckpointError) as raised:
        resume_run(run / "checkpoints" / "emergency.pt")
    assert str(raised.value).endswith(
        f"for diagnosis; trainlattice train {run}/config.yaml starts its run again"
    )
    whole = interrupted(config, tmp_path, epochs=1)
    with pytest.raises(ValueError, match="on purpose"):
        resume_run(whole, extra_callbacks=[Fails()])
    run = run_dirs(tmp_path)[-1]
    (run / "checkpoints" / "last.pt").unlink()
    (run / "checkpoints" / "best.pt").unlink()
    with pytest.raises(CheckpointError) as raised:
        resume_run(run / "checkpoints" / "emergency.pt")
    assert str(raised.value).endswith(
        f"for diagnosis; trainlattice resume {run} goes on from where its run began"
    )


def test_a_run_is_resumed_from_the_file_that_a_link_means(tmp_path):
    run = interrupted(tiny(trainer={"epochs": 2}), tmp_path, epochs=1)
    (tmp_path / "latest").symlink_to(run)
    resumed = resume_run(tmp_path / "latest").run_dir
    assert manifest(resumed)["resumed_from"] == str(run / "checkpoints" / "last.pt")


def test_a_damaged_best_beside_a_good_last_is_left_behind_with_a_warning(tmp_path, caplog):
    config = scripted([1.0, 2.0], epochs=3)
    run = interrupted(config, tmp_path, epochs=2)
    (run / "checkpoints" / "best.pt").write_bytes(b"damaged")
    SCRIPT[:] = [1.5]
    result = train(config, tmp_path, resume=run)
    assert "best.pt is damaged" in caplog.text
    assert (result.best_metric, result.best_epoch) == (1.0, 1)
    assert not (result.run_dir / "checkpoints" / "best.pt").exists()


def test_nothing_of_the_earlier_run_changes(tmp_path):
    run = interrupted(tiny(), tmp_path, epochs=1)
    before = digests(run)
    train(tiny(), tmp_path, resume=run)
    assert digests(run) == before


def test_the_best_checkpoint_is_carried_over_also_if_the_earlier_run_is_deleted(tmp_path):
    config = scripted([1.0], epochs=2)
    run = interrupted(config, tmp_path, epochs=1)
    SCRIPT[:] = [2.0]
    second = train(config, tmp_path, resume=run).run_dir
    best = digests(run / "checkpoints")["best.pt"]
    shutil.rmtree(run)
    assert digests(second / "checkpoints")["best.pt"] == best
    assert checkpoint(second, "best.pt")["trainer"]["epoch"] == 1


# --- runs that are complete


def test_resuming_a_finished_run_trains_nothing_and_creates_nothing(tmp_path, caplog):
    run = train(tiny(), tmp_path).run_dir
    before = digests(tmp_path)
    with caplog.at_level(logging.INFO, logger="trainlattice"):
        result = train(tiny(), tmp_path, resume=run)
    assert (result.run_dir, result.status, result.epoch, result.global_step) == (None, "finished", 2, 6)
    assert result.best_metric == manifest(run)["best_metric"]
    assert digests(tmp_path) == before
    assert "nothing is left to train; --set trainer.epochs=4 trains on" in caplog.text


def test_fewer_epochs_than_were_completed_train_nothing(tmp_path):
    run = train(tiny(), tmp_path).run_dir
    result = train(tiny(trainer={"epochs": 1}), tmp_path, resume=run)
    assert (result.run_dir, result.epoch) == (None, 2)


# --- what may change, and what may not


def test_every_refused_change_is_listed_with_both_values(tmp_path):
    run = interrupted(tiny(), tmp_path, epochs=1)
    config = tiny(
        experiment={"seed": 7},
        optimizer={"lr": 0.5, "weight_decay": 0.125},
        dataset={"batch_size": 4},
        trainer={"accumulate": 2, "log_every": 3},
    )
    with pytest.raises(CheckpointError) as raised:
        train(config, tmp_path, resume=run)
    text = str(raised.value)
    for changed in (
        "experiment.seed: 42 in the checkpoint, 7 now",
        "optimizer.lr: 0.01 in the checkpoint, 0.5 now",
        "optimizer.weight_decay: 0.01 in the checkpoint, 0.125 now",
        "dataset.batch_size: 8 in the checkpoint, 4 now",
        "trainer.accumulate: 1 in the checkpoint, 2 now",
    ):
        assert changed in text
    assert "trainer.log_every: 1 in the checkpoint, 3 now (may change)" in text
    assert "runs_dir" not in text
    assert raised.value.exit_code == 2
    assert len(run_dirs(tmp_path)) == 1


def test_a_refused_resume_lists_what_may_change_last_and_marks_it(tmp_path):
    run = interrupted(tiny(), tmp_path, epochs=1)
    config = tiny(trainer={"log_every": 3, "accumulate": 2}, dataset={"num_workers": 1, "batch_size": 4})
    with pytest.raises(CheckpointError, match="these values may not change on resume") as raised:
        train(config, tmp_path, resume=run)
    assert str(raised.value).splitlines()[1:] == [
        "  dataset.batch_size: 8 in the checkpoint, 4 now",
        "  trainer.accumulate: 1 in the checkpoint, 2 now",
        "  dataset.num_workers: 0 in the checkpoint, 1 now (may change)",
        "  trainer.log_every: 1 in the checkpoint, 3 now (may change)",
    ]


@pytest.mark.parametrize(
    ("sections", "path"),
    [
        ({"model": {"hidden_dims": [9]}}, "model.hidden_dims"),
        ({"model": {"dropout": 0.2}}, "model.dropout"),
        ({"optimizer": {"name": "sgd", "lr": 0.01}}, "optimizer.name"),
        ({"loss": {"name": "cross_entropy", "label_smoothing": 0.1}}, "loss.label_smoothing"),
        ({"trainer": {"precision": "bf16"}}, "trainer.precision"),
        ({"trainer": {"max_grad_norm": 1.0}}, "trainer.max_grad_norm"),
        ({"trainer": {"monitor": "val_accuracy"}}, "trainer.monitor"),
        ({"scheduler": {"name": "step_decay", "step_size": 1}}, "scheduler"),
    ],
)
def test_a_change_of_what_a_step_computes_is_refused(tmp_path, sections, path):
    run = interrupted(tiny(), tmp_path, epochs=1)
    with pytest.raises(CheckpointError, match=f"these values may not change on resume:(.|\n)*  {path}"):
        train(tiny(**sections), tmp_path, resume=run)


def test_a_schedule_that_is_taken_away_is_refused(tmp_path):
    run = interrupted(tiny(scheduler={"name": "step_decay", "step_size": 1}), tmp_path, epochs=1)
    with pytest.raises(CheckpointError, match=r"scheduler: .* None now"):
        train(tiny(), tmp_path, resume=run)


@pytest.mark.parametrize(
    "change",
    [
        {"experiment": {"name": "another"}},
        {"trainer": {"log_every": 2}},
        {"trainer": {"device": "cpu"}},
        {"trainer": {"early_stopping": {"patience": 9}}},
        {"dataset": {"num_workers": 1}},
    ],
)
def test_what_leaves_the_computation_alone_may_change(tmp_path, change):
    whole = train(tiny(), tmp_path).run_dir
    run = interrupted(tiny(), tmp_path, epochs=1)
    resumed = train(tiny(**change), tmp_path, resume=run).run_dir
    for key, value in weights(whole).items():
        assert torch.equal(weights(resumed)[key], value)


def test_runs_dir_and_callbacks_may_change(tmp_path):
    run = interrupted(tiny(), tmp_path, epochs=1)
    config = {**tiny(), "callbacks": []}
    result = train(config, tmp_path / "elsewhere", resume=run)
    assert result.run_dir.parent == tmp_path / "elsewhere" / "runs"
    assert result.epoch == 2


# --- checkpoints that cannot be used


def test_an_emergency_checkpoint_is_refused_and_the_good_one_named(tmp_path):
    class Fails(Callback):
        def on_epoch_start(self, trainer):
            if trainer.state.epoch == 1:
                raise ValueError("on purpose")

    with pytest.raises(ValueError, match="on purpose"):
        train(tiny(), tmp_path, extra_callbacks=[Fails()])
    (run,) = run_dirs(tmp_path)
    with pytest.raises(CheckpointError) as raised:
        train(tiny(), tmp_path, resume=run / "checkpoints" / "emergency.pt")
    text = str(raised.value)
    assert "was written when training failed, for diagnosis" in text
    assert f"for diagnosis; usable: {run / 'checkpoints' / 'best.pt'} (epoch 1, step 3), " in text
    assert text.endswith(f"{run / 'checkpoints' / 'last.pt'} (epoch 1, step 3)")


def test_a_damaged_checkpoint_is_refused_before_a_run_exists_and_best_still_works(tmp_path):
    run = interrupted(scripted([1.0, 2.0], epochs=3), tmp_path, epochs=2)
    last = run / "checkpoints" / "last.pt"
    last.write_bytes(last.read_bytes()[:1000])
    before = digests(tmp_path)
    with pytest.raises(
        CheckpointError, match=r"last\.pt is damaged.* 1000 bytes.*usable: .*best\.pt \(epoch 1"
    ):
        train(scripted([3.0, 4.0], epochs=3), tmp_path, resume=run)
    assert digests(tmp_path) == before
    result = train(scripted([3.0, 4.0], epochs=3), tmp_path, resume=run / "checkpoints" / "best.pt")
    assert result.epoch == 3


def test_a_path_to_nothing_is_named(tmp_path):
    with pytest.raises(CheckpointError, match="gone does not exist"):
        train(tiny(), tmp_path, resume=tmp_path / "gone")
    with pytest.raises(CheckpointError, match="gone does not exist"):
        resume_run(tmp_path / "gone")
    assert not (tmp_path / "runs").exists()


def test_a_run_that_made_no_checkpoint_is_named(tmp_path):
    run = interrupted(tiny(), tmp_path, epochs=0)
    with pytest.raises(CheckpointError) as raised:
        resume_run(run)
    assert str(raised.value).endswith(f"; trainlattice train {run}/config.yaml starts it again")


def test_a_run_whose_last_checkpoint_is_gone_is_named_with_what_is_usable(tmp_path):
    run = interrupted(scripted([1.0, 2.0], epochs=3), tmp_path, epochs=2)
    (run / "checkpoints" / "last.pt").unlink()
    with pytest.raises(CheckpointError) as raised:
        resume_run(run)
    usable = f"usable: {run / 'checkpoints' / 'best.pt'} (epoch 1, step 1)"
    assert str(raised.value) == f"{run} has no checkpoints/last.pt and no last.pt; {usable}"


def test_a_schedule_that_has_ended_is_announced(tmp_path, caplog):
    config = tiny(scheduler={"name": "warmup_cosine"}, trainer={"epochs": 1})
    run = train(config, tmp_path).run_dir
    config["trainer"]["epochs"] = 2
    with caplog.at_level(logging.WARNING):
        train(config, tmp_path, resume=run)
    assert "the schedule ended at step 3: the learning rate stays 0" in caplog.text


@pytest.mark.parametrize(
    ("size", "says"), [(12, "it had 20 samples and has 12"), (20, "its content has changed")]
)
def test_other_data_than_that_of_the_checkpoint_is_refused_and_nothing_is_created(tmp_path, size, says):
    def write(generator, samples):
        for file in ("train.pt", "validation.pt"):
            features = torch.randn(samples, 4, generator=generator)
            torch.save({"features": features, "labels": torch.arange(samples) % 3}, tmp_path / file)

    config = tiny(dataset={"name": "tensor", "root": str(tmp_path), "num_classes": 3, "batch_size": 8})
    write(torch.Generator().manual_seed(0), 20)
    run = train(config, tmp_path).run_dir
    config["trainer"]["epochs"] = 3
    write(torch.Generator().manual_seed(1), size)
    before = digests(tmp_path)
    with pytest.raises(CheckpointError, match=f"the train data is not that of .*: {says}"):
        train(config, tmp_path, resume=run)
    assert digests(tmp_path) == before
    write(torch.Generator().manual_seed(0), 20)
    assert train(config, tmp_path, resume=run).epoch == 3


def test_another_machine_is_told_of_with_what_differs(tmp_path, caplog):
    run = interrupted(tiny(trainer={"epochs": 2}), tmp_path, epochs=1)
    resume_run(run)
    assert "the last bits may differ" not in caplog.text
    environment = json.loads((run / "environment.json").read_text())
    environment |= {"torch_threads": 64, "executable": "elsewhere"}
    (run / "environment.json").write_text(json.dumps(environment))
    again = resume_run(run).run_dir
    expected = f"torch_threads was 64 in the run of {run / 'checkpoints' / 'last.pt'} and is 1 here"
    assert [r["message"] for r in records(again, "event") if r["event"] == "warning"] == []
    assert expected in caplog.text
    assert caplog.text.count("the last bits may differ") == 1
