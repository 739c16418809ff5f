"""Epochs, records, stopping and what is left after a failure."""

import math

import pytest
import torch
from torch import nn

from support.by_hand import line, scripted
from support.runs import checkpoint, digests, manifest, records, run_dirs, tiny, train, weights
from trainlattice import Callback, register_model
from trainlattice.diagnostics.errors import ConfigError, NonFiniteError

pytestmark = pytest.mark.torch
FOUR = {"x": [1.0] * 4, "y": [1.0] * 4}


class StopAt(Callback):
    """Asks for a stop in the middle of an epoch."""

    def __init__(self, step):
        self.step = step

    def on_step_end(self, trainer):
        if trainer.state.global_step == self.step:
            trainer.request_stop("seen enough")
            trainer.request_stop("a later reason")


class RecordsOnDisk(Callback):
    """The last record in the file when a checkpoint is on disk."""

    def __init__(self):
        self.last = []

    def on_checkpoint(self, trainer, path):
        record = records(trainer.run_dir)[-1]
        self.last.append((record["type"], record["epoch"]))


# --- records


def test_batch_records_stand_at_every_nth_step_of_the_run(tmp_path):
    run = train(line(dataset=FOUR, trainer={"epochs": 2, "log_every": 3}), tmp_path).run_dir
    assert [(r.get("event", r["type"]), r["epoch"], r["step"]) for r in records(run)] == [
        ("start", 0, 0),
        ("batch", 1, 3),
        ("epoch", 1, 4),
        ("checkpoint", 1, 4),
        ("batch", 2, 6),
        ("epoch", 2, 8),
        ("checkpoint", 2, 8),
        ("end", 2, 8),
    ]


def test_an_epoch_record_holds_means_over_all_samples_of_the_epoch(tmp_path):
    """One sample a step, lr 0.1: w goes 0, 0.2, 0.36, 0.488; each loss is (w - 1)^2 before its step."""
    run = train(line(dataset=FOUR), tmp_path).run_dir
    losses = [1.0, 0.8**2, 0.64**2, 0.512**2]
    assert [r["loss"] for r in records(run, "batch")] == pytest.approx(losses, rel=1e-5)
    (epoch,) = records(run, "epoch")
    assert epoch["train_loss"] == pytest.approx(sum(losses) / 4, rel=1e-5)
    assert "train_accuracy" not in epoch
    assert "val_loss" not in epoch
    assert weights(run)["w"].item() == pytest.approx(1 - 0.4096, rel=1e-5)


def test_a_validation_uses_the_weights_at_the_end_of_its_epoch(tmp_path):
    config = line(dataset={**FOUR, "val_x": [1.0], "val_y": [1.0]})
    (epoch,) = records(train(config, tmp_path).run_dir, "epoch")
    assert epoch["val_loss"] == pytest.approx(0.4096**2, rel=1e-5)


def test_times_and_rates_are_there_and_consistent(tmp_path):
    run = train(tiny(), tmp_path).run_dir
    for record in records(run, "epoch"):
        assert 0 <= record["data_seconds"] <= record["epoch_seconds"]
        assert record["train_samples_per_sec"] == pytest.approx(20 / record["epoch_seconds"])
    for record in records(run, "batch"):
        assert record["samples_per_sec"] > 0
        assert record["steps_per_sec"] > 0
    assert all(r["schema"] == 1 for r in records(run))


def test_records_are_on_disk_before_the_checkpoint_that_follows_them(tmp_path):
    seen = RecordsOnDisk()
    train(tiny(), tmp_path, extra_callbacks=[seen])
    assert set(seen.last) == {("epoch", 1), ("epoch", 2)}


def test_accuracy_is_the_share_of_samples_whose_largest_logit_is_the_targets(tmp_path):
    @register_model("always_the_first")
    class AlwaysTheFirst(nn.Module):
        def __init__(self):
            super().__init__()
            self.bias = nn.Parameter(torch.tensor([9.0, 0.0, 0.0]))

        def forward(self, x):
            return self.bias.expand(len(x), 3)

    config = tiny(model={"name": "always_the_first"}, optimizer={"lr": 1e-9}, trainer={"epochs": 1})
    labels = []

    class Labels(Callback):
        def on_batch_end(self, trainer, phase, container):
            labels.extend((phase, label) for label in container["target"].tolist())

    (epoch,) = records(train(config, tmp_path, extra_callbacks=[Labels()]).run_dir, "epoch")
    for phase, size in (("train", 20), ("val", 10)):
        zeros = sum(1 for p, label in labels if (p, label) == (phase, 0))
        assert epoch[f"{phase}_accuracy"] == pytest.approx(zeros / size)


# --- validations and checkpoints


def test_validate_every_counts_epochs(tmp_path):
    run = train(scripted([3.0, 2.0], epochs=5, validate_every=2), tmp_path).run_dir
    assert [r["epoch"] for r in records(run, "epoch") if "val_loss" in r] == [2, 4]


def test_last_is_every_epoch_and_best_the_best_one(tmp_path):
    run = train(scripted([3.0, 1.0, 2.0]), tmp_path).run_dir
    assert checkpoint(run)["trainer"]["epoch"] == 3
    assert checkpoint(run, "best.pt")["trainer"]["epoch"] == 2
    assert checkpoint(run, "best.pt")["trainer"]["best_metric"] == 1.0


def test_a_run_without_validation_data_has_no_best(tmp_path):
    result = train(line(dataset=FOUR), tmp_path)
    assert (result.best_metric, result.best_epoch) == (None, None)
    assert sorted(p.name for p in (result.run_dir / "checkpoints").iterdir()) == ["index.json", "last.pt"]


def test_an_accuracy_that_is_monitored_is_better_when_larger(tmp_path):
    result = train(tiny(trainer={"monitor": "val_accuracy", "epochs": 6}), tmp_path)
    values = [r["val_accuracy"] for r in records(result.run_dir, "epoch")]
    assert result.best_metric == max(values)
    assert result.best_epoch == values.index(max(values)) + 1


def test_a_monitor_that_nothing_produces_is_refused_before_a_run_exists(tmp_path):
    for config in (tiny(trainer={"monitor": "val_los"}), line(trainer={"monitor": "val_accuracy"})):
        with pytest.raises(ConfigError, match="is no metric of this run") as raised:
            train(config, tmp_path)
        assert raised.value.diagnostics[0].path == "trainer.monitor"
    assert not (tmp_path / "runs").exists()


# --- stopping


def test_a_requested_stop_ends_the_run_after_the_epochs_checkpoint(tmp_path):
    config = line(dataset={**FOUR, "val_x": [1.0], "val_y": [1.0]}, trainer={"epochs": 5})
    result = train(config, tmp_path, extra_callbacks=[StopAt(6)])
    assert (result.status, result.epoch, result.global_step) == ("finished", 2, 8)
    assert result.stop_reason == "seen enough"
    assert checkpoint(result.run_dir)["trainer"]["epoch"] == 2
    assert checkpoint(result.run_dir)["trainer"]["stop_reason"] == "seen enough"
    assert manifest(result.run_dir)["stop_reason"] == "seen enough"
    assert records(result.run_dir, "epoch")[-1]["val_loss"] > 0


def test_a_run_that_was_stopped_trains_on_when_it_is_resumed(tmp_path):
    config = line(dataset=FOUR, trainer={"epochs": 3})
    run = train(config, tmp_path, extra_callbacks=[StopAt(1)]).run_dir
    result = train(config, tmp_path, resume=run)
    assert (result.epoch, result.global_step, result.stop_reason) == (3, 12, None)


# --- losses that are not finite


def exploding(**trainer):
    """lr 3: the error is multiplied by -5 in each step, until float32 overflows in the 28th."""
    return line(
        dataset={"x": [1.0] * 4, "y": [1.0] * 4}, optimizer={"lr": 3.0}, trainer={"epochs": 20, **trainer}
    )


def test_a_loss_that_overflows_ends_the_run_with_exit_code_12_and_a_good_checkpoint(tmp_path):
    with pytest.raises(NonFiniteError, match="the loss or a gradient of step 29 is not finite") as raised:
        train(exploding(log_every=1), tmp_path)
    assert raised.value.exit_code == 12
    (run,) = run_dirs(tmp_path)
    last = checkpoint(run)
    assert last["trainer"]["epoch"] == 7
    assert math.isfinite(last["states"]["model/model"]["w"].item())
    assert manifest(run)["status"] == "failed"
    assert manifest(run)["error"]["type"] == "NonFiniteError"


def test_the_record_of_such_a_step_is_strict_json_with_a_flag(tmp_path):
    with pytest.raises(NonFiniteError):
        train(exploding(log_every=1), tmp_path)
    run = run_dirs(tmp_path)[0]
    (record,) = [r for r in records(run, "event") if r["event"] == "skipped_step"]
    assert record["loss"] is None
    assert record["nonfinite"] == ["loss"]
    assert (record["step"], records(run, "batch")[-1]["step"]) == (28, 28)
    assert (records(run)[-1]["event"], records(run)[-1]["status"]) == ("end", "failed")


def test_a_loss_that_no_record_shows_is_noticed_before_the_epochs_checkpoint(tmp_path):
    with pytest.raises(NonFiniteError):
        train(exploding(log_every=1000), tmp_path)
    (run,) = run_dirs(tmp_path)
    assert math.isfinite(checkpoint(run)["states"]["model/model"]["w"].item())


def test_the_emergency_checkpoint_says_what_it_is(tmp_path):
    with pytest.raises(NonFiniteError):
        train(exploding(), tmp_path)
    (run,) = run_dirs(tmp_path)
    assert checkpoint(run, "emergency.pt")["kind"] == "emergency"
    assert checkpoint(run)["kind"] == "resume"


# --- failures


class Fails(Callback):
    def __init__(self, epoch):
        self.epoch = epoch

    def on_epoch_start(self, trainer):
        if trainer.state.epoch == self.epoch:
            raise RuntimeError("on purpose")


def test_an_exception_leaves_the_checkpoints_of_earlier_epochs_as_they_were(tmp_path):
    kept = {}

    class Keep(Callback):
        def on_checkpoint(self, trainer, path):
            kept.update(digests(path.parent))

    with pytest.raises(RuntimeError, match="on purpose"):
        train(tiny(trainer={"epochs": 4}), tmp_path, extra_callbacks=[Keep(), Fails(2)])
    (run,) = run_dirs(tmp_path)
    found = digests(run / "checkpoints")
    assert sorted(found) == ["best.pt", "emergency.pt", "index.json", "last.pt"]
    assert (found["last.pt"], found["best.pt"]) == (kept["last.pt"], kept["best.pt"])


def test_an_interrupt_leaves_no_emergency_checkpoint(tmp_path):
    class Interrupts(Callback):
        def on_step_end(self, trainer):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(tiny(), tmp_path, extra_callbacks=[Interrupts()])
    (run,) = run_dirs(tmp_path)
    assert list((run / "checkpoints").iterdir()) == []
    assert manifest(run)["status"] == "interrupted"
