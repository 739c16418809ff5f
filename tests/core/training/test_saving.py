"""The section ``checkpoint``: when files are written and which stand; what survives an exception between steps."""

import json
import math
import shutil
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from support.by_hand import SCRIPT, line, scripted
from support.runs import assert_same_end, checkpoint, manifest, records, run_dirs, tiny, train, trained
from trainlattice import Callback, register_dataset, register_model
from trainlattice.contracts.records import DatasetContract
from trainlattice.data import Splits
from trainlattice.diagnostics.errors import CheckpointError, ConfigError, NonFiniteError
from trainlattice.training import saving

pytestmark = pytest.mark.torch


def steps(*numbers):
    return [f"step-{number:08d}.pt" for number in numbers]


def points(**sections):
    """Three steps an epoch, two epochs, no validation."""
    found = line(dataset={"x": [1.0] * 3, "y": [1.0] * 3}, trainer={"epochs": 2}, **sections)
    return {**found, "callbacks": []}


class Stands(Callback):
    """What stands in the directory after each save, with the step of the save."""

    def __init__(self):
        self.seen = []

    def on_checkpoint(self, trainer, path):
        found = trainer.state.global_step, sorted(file.name for file in path.parent.glob("*.pt"))
        if found not in self.seen:
            self.seen.append(found)


def saves(run):
    """Step and files of every save."""
    return [(r["step"], r["files"]) for r in records(run, "event") if r["event"] == "checkpoint"]


def indexed(run):
    index = json.loads((run / "checkpoints" / "index.json").read_text())
    return sorted(index["files"])


def present(run):
    return sorted(file.name for file in (run / "checkpoints").glob("*.pt"))


# --- when


@pytest.mark.parametrize(("every", "expected"), [(1, [1, 2, 3, 4, 5]), (2, [2, 4, 5]), (3, [3, 5]), (9, [5])])
def test_last_is_written_after_every_nth_epoch_and_after_the_last(tmp_path, every, expected):
    config = points(checkpoint={"every_epochs": every})
    config["trainer"]["epochs"] = 5
    run = train(config, tmp_path).run_dir
    assert saves(run) == [(3 * epoch, ["last.pt"]) for epoch in expected]
    assert checkpoint(run)["trainer"]["epoch"] == 5


@pytest.mark.parametrize("trainer", [{"epochs": 3}, {"max_steps": 8, "epochs": None}])
def test_without_any_interval_the_state_in_which_the_run_ends_is_saved(tmp_path, trainer):
    config = points(checkpoint={"every_epochs": None})
    config["trainer"] = {**trainer, "log_every": 1}
    result = train(config, tmp_path)
    assert saves(result.run_dir) == [(result.global_step, ["last.pt"])]
    assert checkpoint(result.run_dir)["trainer"]["global_step"] == result.global_step


def test_a_run_that_stops_early_saves_the_state_in_which_it_stops(tmp_path):
    config = scripted([1.0, 2.0, 3.0, 4.0], early_stopping={"patience": 0})
    run = train({**config, "checkpoint": {"every_epochs": None, "keep_best": 0}}, tmp_path).run_dir
    assert [files for _, files in saves(run)] == [["last.pt"]]
    assert checkpoint(run)["trainer"]["epoch"] == 2
    assert checkpoint(run)["trainer"]["stop_reason"].startswith("early stopping")


def test_a_run_that_a_callback_stops_saves_the_state_in_which_it_stops(tmp_path):
    class Enough(Callback):
        def on_epoch_end(self, trainer, metrics):
            trainer.request_stop("enough")

    run = train(points(checkpoint={"every_epochs": 9}), tmp_path, extra_callbacks=[Enough()]).run_dir
    assert saves(run) == [(3, ["last.pt"])]


@pytest.mark.parametrize(
    ("every", "expected"),
    [
        (1, [1, 2, 3, 4, 5, 6]),
        (2, [2, 3, 4, 6]),  # epochs end after 3 and 6, which are saved once
        (3, [3, 6]),
        (5, [3, 5, 6]),
    ],
)
def test_last_is_written_after_every_nth_step_beside_the_ends_of_epochs(tmp_path, every, expected):
    run = train(points(checkpoint={"every_steps": every}), tmp_path).run_dir
    assert saves(run) == [(step, ["last.pt"]) for step in expected]


def test_intervals_of_steps_go_on_over_epochs_that_are_not_saved(tmp_path):
    """Step 3 ends an epoch: it belongs to the interval of epochs, of which there is none."""
    run = train(points(checkpoint={"every_steps": 2, "every_epochs": None}), tmp_path).run_dir
    assert saves(run) == [(2, ["last.pt"]), (4, ["last.pt"]), (6, ["last.pt"])]


class Clock(Callback):
    """A second goes by with every step."""

    def __init__(self):
        self.now = 100.0

    def on_step_end(self, trainer):
        self.now += 1.0


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0.5, [1, 2, 3, 4, 5, 6]),
        (2.0, [2, 3, 5, 6]),  # the save after an epoch starts the interval anew
        (60.0, [3, 6]),
    ],
)
def test_last_is_written_at_the_next_step_after_some_seconds(tmp_path, monkeypatch, seconds, expected):
    clock = Clock()
    monkeypatch.setattr(saving, "time", SimpleNamespace(monotonic=lambda: clock.now))
    config = points(checkpoint={"every_seconds": seconds})
    run = train(config, tmp_path, extra_callbacks=[clock]).run_dir
    assert saves(run) == [(step, ["last.pt"]) for step in expected]


def test_what_is_not_finite_is_written_after_some_seconds_too_not_after_each_step(tmp_path, monkeypatch):
    class Spoils(Callback):
        def on_step_end(self, trainer):
            if trainer.state.global_step == 3:
                trainer.parts.models["model"].w.data.fill_(math.nan)

    clock = Clock()
    monkeypatch.setattr(saving, "time", SimpleNamespace(monotonic=lambda: clock.now))
    config = points(checkpoint={"every_seconds": 2.0})
    config["dataset"] |= {"x": [1.0] * 9, "y": [1.0] * 9}
    config["trainer"] |= {"epochs": 1, "nonfinite": "continue"}
    run = train(config, tmp_path, extra_callbacks=[clock, Spoils()]).run_dir
    assert saves(run) == [(2, ["last.pt"]), *((step, ["nonfinite.pt"]) for step in (4, 6, 8, 9))]


def test_the_best_model_so_far_is_also_the_newest_checkpoint(tmp_path, monkeypatch):
    """Else last.pt would point back to a best.pt that is overwritten."""
    clock = Clock()
    monkeypatch.setattr(saving, "time", SimpleNamespace(monotonic=lambda: clock.now))
    config = points(checkpoint={"every_seconds": 2.0})
    config["dataset"] |= {"val_x": [1.0], "val_y": [1.0]}
    config["trainer"] |= {"validate_every_steps": 1, "epochs": 1}
    run = train(config, tmp_path, extra_callbacks=[clock]).run_dir
    assert saves(run) == [
        (1, ["last.pt", "best.pt"]),
        (2, ["last.pt", "best.pt"]),
        (3, ["last.pt", "best.pt"]),
        (3, ["last.pt"]),
    ]


@pytest.mark.parametrize(("every", "expected"), [(3, [3, 6]), (1, [1, 2, 3, 4, 5, 6]), (2, [2, 4, 6])])
def test_every_steps_counts_the_last_step_of_an_epoch(tmp_path, every, expected):
    """Three steps an epoch; no epoch is due."""
    run = train(points(checkpoint={"every_steps": every, "every_epochs": None}), tmp_path).run_dir
    assert saves(run) == [(step, ["last.pt"]) for step in expected]


@pytest.mark.parametrize(
    "settings",
    [
        {"every_epochs": 0},
        {"every_steps": 0},
        {"every_seconds": 0},
        {"keep_last": 0},
        {"keep_every_epochs": 0},
        {"keep_best": -1},
        {"keep_best": None},
    ],
)
def test_values_that_mean_nothing_are_refused(tmp_path, settings):
    with pytest.raises(ConfigError):
        train(points(checkpoint=settings), tmp_path)
    assert not (tmp_path / "runs").exists()


# --- which stand


def test_the_three_newest_stand(tmp_path):
    stands = Stands()
    run = train(
        points(checkpoint={"keep_last": 3, "every_steps": 1}), tmp_path, extra_callbacks=[stands]
    ).run_dir
    assert stands.seen == [
        (1, ["last.pt", *steps(1)]),
        (2, ["last.pt", *steps(1, 2)]),
        (3, ["last.pt", *steps(1, 2, 3)]),
        (4, ["last.pt", *steps(2, 3, 4)]),
        (5, ["last.pt", *steps(3, 4, 5)]),
        (6, ["last.pt", *steps(4, 5, 6)]),
    ]
    assert [checkpoint(run, name)["trainer"]["global_step"] for name in steps(4, 5, 6)] == [4, 5, 6]
    assert (run / "checkpoints" / steps(6)[0]).samefile(run / "checkpoints" / "last.pt")


def test_all_stand(tmp_path):
    run = train(points(checkpoint={"keep_last": None, "every_steps": 1}), tmp_path).run_dir
    assert present(run) == ["last.pt", *steps(1, 2, 3, 4, 5, 6)]


def test_files_that_went_leave_the_index_too(tmp_path):
    class Index(Callback):
        seen = ()

        def on_checkpoint(self, trainer, path):
            self.seen = [*self.seen, indexed(trainer.run_dir)]

    index = Index()
    config = points(checkpoint={"keep_last": 2, "every_steps": 1})
    run = train(config, tmp_path, extra_callbacks=[index]).run_dir
    by_save = index.seen[::2]  # each save has two names
    assert by_save == [
        ["last.pt", *steps(1)],
        ["last.pt", *steps(1, 2)],
        ["last.pt", *steps(2, 3)],  # 1 went once 3 was durable
        ["last.pt", *steps(3, 4)],
        ["last.pt", *steps(4, 5)],
        ["last.pt", *steps(5, 6)],
    ]
    assert present(run) == ["last.pt", *steps(5, 6)]


def test_what_is_to_be_kept_for_good_is_written_whatever_every_epochs_says(tmp_path):
    config = points(checkpoint={"keep_every_epochs": 3, "every_epochs": 2})
    config["trainer"]["epochs"] = 6
    run = train(config, tmp_path).run_dir
    assert present(run) == ["epoch-0003.pt", "epoch-0006.pt", "last.pt"]


def test_an_old_checkpoint_that_cannot_be_removed_is_a_warning_and_the_run_goes_on(tmp_path):
    class PutsADirectoryThere(Callback):
        def on_checkpoint(self, trainer, path):
            if path.name == steps(1)[0]:
                path.unlink()
                path.mkdir()

    config = points(checkpoint={"keep_last": 2, "every_steps": 1})
    result = train(config, tmp_path, extra_callbacks=[PutsADirectoryThere()])
    assert result.status == "finished"
    assert present(result.run_dir) == ["last.pt", *steps(1, 5, 6)]
    assert indexed(result.run_dir) == ["last.pt", *steps(5, 6)]
    (warning,) = [r for r in records(result.run_dir, "event") if r["event"] == "warning"]
    stays = result.run_dir / "checkpoints" / steps(1)[0]
    assert warning["message"] == f"the old checkpoint {stays} stays: Is a directory"


def test_every_second_epoch_is_kept_for_good(tmp_path):
    config = points(checkpoint={"keep_every_epochs": 2, "every_steps": 2})
    config["trainer"]["epochs"] = 5
    run = train(config, tmp_path).run_dir
    assert present(run) == ["epoch-0002.pt", "epoch-0004.pt", "last.pt"]
    assert checkpoint(run, "epoch-0002.pt")["trainer"]["epoch"] == 2
    assert checkpoint(run, "epoch-0004.pt")["trainer"]["global_step"] == 12


@pytest.mark.parametrize(
    ("keep", "expected"),
    [
        (0, ["last.pt"]),
        (1, ["best.pt", "last.pt"]),
        (3, ["best.pt", "last.pt", *steps(4, 6, 10)]),
    ],
)
def test_the_best_stand(tmp_path, keep, expected):
    """Two steps an epoch."""
    values = [4.0, 2.0, 3.0, math.nan, 1.0, 5.0]
    config = {**scripted(values), "checkpoint": {"keep_best": keep}}
    config["dataset"]["batch_size"] = 1
    run = train(config, tmp_path).run_dir
    assert present(run) == expected
    if keep:
        best = checkpoint(run, "best.pt")["trainer"]
        assert (best["best_metric"], best["global_step"]) == (1.0, 10)


def test_which_of_the_best_stand_after_each_save(tmp_path):
    values, stands = [4.0, 2.0, 2.0, math.nan, 1.0, 2.0], Stands()
    train({**scripted(values), "checkpoint": {"keep_best": 2}}, tmp_path, extra_callbacks=[stands])
    both = ["best.pt", "last.pt"]
    assert stands.seen == [
        (1, [*both, *steps(1)]),
        (2, [*both, *steps(1, 2)]),
        (3, [*both, *steps(2, 3)]),
        (4, [*both, *steps(2, 3)]),
        (5, [*both, *steps(2, 5)]),  # of 2 and 2 the first
        (6, [*both, *steps(2, 5)]),
    ]


def test_larger_may_be_better(tmp_path):
    config = {**scripted([1.0, 3.0, 2.0], monitor_mode="max"), "checkpoint": {"keep_best": 2}}
    assert present(train(config, tmp_path).run_dir) == ["best.pt", "last.pt", *steps(2, 3)]


def test_where_nothing_was_finite_none_is_the_best(tmp_path):
    config = {**scripted([math.nan, math.nan]), "checkpoint": {"keep_best": 3}}
    assert present(train(config, tmp_path).run_dir) == ["last.pt"]


def test_one_best_has_no_number_beside_the_newest(tmp_path):
    config = {**scripted([1.0, 2.0, 3.0, 4.0]), "checkpoint": {"keep_last": 2}}
    assert present(train(config, tmp_path).run_dir) == ["best.pt", "last.pt", *steps(3, 4)]


def test_a_checkpoint_that_is_only_among_the_best_is_written_too(tmp_path):
    """last.pt is not due after epochs 1 and 2."""
    config = {**scripted([2.0, 1.0, 3.0]), "checkpoint": {"keep_best": 2, "every_epochs": 3}}
    run = train(config, tmp_path).run_dir
    assert saves(run) == [
        (1, ["last.pt", "best.pt", *steps(1)]),
        (2, ["last.pt", "best.pt", *steps(2)]),
        (3, ["last.pt"]),
    ]
    assert checkpoint(run, "best.pt")["trainer"]["best_step"] == 2


def test_a_resumed_run_keeps_its_own_numbered_files_and_the_best_so_far(tmp_path):
    settings = {"keep_last": 2, "keep_best": 2, "every_steps": 1}
    config = {**scripted([1.0, 3.0, 4.0, 2.0]), "checkpoint": settings}
    config["trainer"]["epochs"] = 2
    first = train(config, tmp_path).run_dir
    before = present(first)
    config["trainer"]["epochs"] = 4
    second = train(config, tmp_path, resume=first / "checkpoints" / steps(2)[0]).run_dir
    assert present(first) == before == ["best.pt", "last.pt", *steps(1, 2)]
    assert present(second) == ["best.pt", "last.pt", *steps(3, 4)]
    assert checkpoint(second, "best.pt")["trainer"]["best_metric"] == 1.0


# --- saves inside epochs


def exact(**sections):
    """Three steps an epoch with everything that has a state: dropout, momentum, a schedule, early stopping."""
    more = {"model": {"dropout": 0.3}, "scheduler": {"name": "warmup_cosine", "warmup_steps": 2}}
    trainer = {"epochs": 2, "log_every": 1, "validate_every_steps": 2, "early_stopping": {"patience": 9}}
    found = tiny(**{**more, **sections})
    return {**found, "trainer": trainer, "callbacks": []}


class Copies(Callback):
    """A directory for each step, with the last.pt that was written after it."""

    def __init__(self, directory):
        self.directory = directory

    def on_checkpoint(self, trainer, path):
        if path.name == "last.pt":
            target = self.directory / str(trainer.state.global_step)
            target.mkdir(parents=True, exist_ok=True)
            for file in path.parent.glob("*.pt"):
                shutil.copy(file, target)


def without_checkpoints(found):
    return [record for record in found if record.get("event") != "checkpoint"]


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_run_is_resumed_from_any_step_of_two_epochs_bit_identically(tmp_path, num_workers):
    config = exact(checkpoint={"every_steps": 1})
    whole = train(config, tmp_path / "whole", extra_callbacks=[Copies(tmp_path / "copies")]).run_dir
    copies = sorted((tmp_path / "copies").iterdir())
    assert [copy.name for copy in copies] == ["1", "2", "3", "4", "5", "6"]
    config["dataset"]["num_workers"] = num_workers
    all_records = without_checkpoints(trained(records(whole)))
    for copy in copies[:-1] if num_workers == 0 else copies[1:2]:
        second = train(config, tmp_path, resume=copy / "last.pt", extra_callbacks=[Callback()]).run_dir
        saved = checkpoint(second)
        saved["config"]["dataset"]["num_workers"] = 0
        torch.save(saved, second / "checkpoints" / "last.pt")
        assert_same_end(whole, second)
        later = without_checkpoints(trained(records(second)))
        assert later == all_records[-len(later) :]
        assert len(later) >= 6 - int(copy.name)


def test_how_often_a_run_saves_does_not_change_what_it_learns(tmp_path):
    ends = []
    for settings in ({}, {"every_steps": 1, "keep_last": None, "keep_best": 3}):
        run = train(exact(checkpoint=settings), tmp_path).run_dir
        held = checkpoint(run)
        held.pop("config")
        ends.append((run, held, without_checkpoints(trained(records(run)))))
    (_, one, records_one), (_, other, records_other) = ends
    assert records_one == records_other
    for name, tensor in one["states"]["model/model"].items():
        assert torch.equal(tensor, other["states"]["model/model"][name])
    assert torch.equal(one["rng"]["torch"], other["rng"]["torch"])


# --- exceptions between two steps

FAULTS = []
"""Fires once: what raises at the n-th call of which part, counted from the beginning of a run."""
UNDER_WAY = []


def fault(part):
    for armed in FAULTS if UNDER_WAY else ():
        if armed[0] == part:
            armed[1] -= 1
            if armed[1] == 0:
                raise OSError(f"in {part}")


@pytest.fixture(autouse=True)
def no_faults():
    FAULTS.clear()
    UNDER_WAY.clear()


@register_model("frail")
class Frail(nn.Module):
    """Fails in a validation."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.Linear(8, 3))

    def forward(self, x):
        if not self.training and x.device.type != "meta" and not torch.is_grad_enabled():
            fault("model in validation")
        return self.layers(x)


class FrailData:
    stochastic = False

    def __init__(self, size, part):
        self.size, self.part = size, part

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        fault(self.part)
        generator = torch.Generator().manual_seed(index)
        return torch.randn(4, generator=generator), index % 3


@register_dataset("frail")
def open_frail():
    contract = DatasetContract((4,), "classification", 3)
    return Splits(FrailData(10, "training data"), FrailData(6, "validation data"), contract=contract)


class FrailCallback(Callback):
    def on_run_start(self, trainer):
        UNDER_WAY[:] = [True]

    def finalize(self, trainer, error):
        UNDER_WAY.clear()

    def on_epoch_start(self, trainer):
        fault("on_epoch_start")

    def on_epoch_end(self, trainer, metrics):
        fault("on_epoch_end")

    def on_phase_start(self, trainer, phase):
        fault(f"on_phase_start {phase}")

    def on_phase_end(self, trainer, phase):
        fault(f"on_phase_end {phase}")

    def on_step_end(self, trainer):
        fault("on_step_end")


def frail(**sections):
    """Three steps an epoch (batches of 4, 4 and 2), a validation of two batches after step 2 and every epoch."""
    config = exact(model={"name": "frail"}, dataset={"name": "frail", "batch_size": 4}, **sections)
    config["trainer"]["epochs"] = 3
    return config


@pytest.fixture(scope="module")
def unharmed(tmp_path_factory):
    FAULTS.clear()
    directory = tmp_path_factory.mktemp("unharmed")
    return train(frail(), directory, extra_callbacks=[FrailCallback()]).run_dir


@pytest.mark.parametrize(
    ("part", "nth", "step", "epoch"),
    [
        ("on_epoch_end", 1, 3, 1),
        ("on_epoch_end", 3, 9, 3),
        ("on_phase_end train", 2, 6, 1),
        ("on_phase_end val", 1, 2, 0),  # after step 2
        ("on_phase_end val", 2, 3, 0),  # after epoch 1
        ("on_phase_start val", 4, 6, 1),
        ("on_step_end", 2, 2, 0),
        ("on_step_end", 5, 5, 1),
        ("model in validation", 2, 2, 0),
        ("model in validation", 3, 3, 0),
        ("validation data", 5, 2, 0),
        ("validation data", 9, 3, 0),
        ("training data", 5, 1, 0),
        ("training data", 10 + 5, 4, 1),
    ],
)
def test_what_was_trained_survives_an_exception_between_two_steps(tmp_path, unharmed, part, nth, step, epoch):
    FAULTS.append([part, nth])
    with pytest.raises(OSError, match=f"in {part}"):
        train(frail(), tmp_path, extra_callbacks=[FrailCallback()])
    (first,) = run_dirs(tmp_path)
    held = checkpoint(first)
    assert held["kind"] == "resume"
    assert (held["trainer"]["global_step"], held["trainer"]["epoch"]) == (step, epoch)
    assert manifest(first)["status"] == "failed"
    with pytest.raises(CheckpointError, match="written when training failed, for diagnosis"):
        train(frail(), tmp_path, resume=first / "checkpoints" / "emergency.pt")
    result = train(frail(), tmp_path, resume=first, extra_callbacks=[FrailCallback()])
    last = result.run_dir or first  # the run was complete
    assert_same_end(unharmed, last)
    parts = records(first) + (records(result.run_dir) if result.run_dir else [])
    assert without_checkpoints(trained(parts)) == without_checkpoints(trained(records(unharmed)))
    assert checkpoint(last, "best.pt")["trainer"] == checkpoint(unharmed, "best.pt")["trainer"]


@pytest.mark.parametrize(("part", "nth"), [("training data", 1), ("on_epoch_start", 1)])
def test_before_the_first_step_there_is_nothing_to_save(tmp_path, part, nth):
    FAULTS.append([part, nth])
    with pytest.raises(OSError, match=part):
        train(frail(), tmp_path, extra_callbacks=[FrailCallback()])
    (run,) = run_dirs(tmp_path)
    assert present(run) == ["emergency.pt"]


def test_what_is_saved_already_is_not_written_again(tmp_path):
    FAULTS.append(["on_epoch_start", 2])
    with pytest.raises(OSError, match="on_epoch_start"):
        train(frail(), tmp_path, extra_callbacks=[FrailCallback()])
    (run,) = run_dirs(tmp_path)
    assert [files for step, files in saves(run) if step == 3 and "last.pt" in files] == [
        ["last.pt", "best.pt"]
    ]


def test_the_epoch_that_an_exception_kept_from_being_saved_gets_all_its_names(tmp_path):
    """Best of two, and every second epoch."""
    SCRIPT[:] = []
    FAULTS.append(["on_epoch_end", 2])
    config = {**scripted([2.0, 1.0, 3.0]), "checkpoint": {"keep_best": 2, "keep_every_epochs": 2}}
    with pytest.raises(OSError, match="on_epoch_end"):
        train(config, tmp_path, extra_callbacks=[FrailCallback()])
    (run,) = run_dirs(tmp_path)
    assert present(run) == ["best.pt", "emergency.pt", "epoch-0002.pt", "last.pt", *steps(1, 2)]
    assert checkpoint(run, "best.pt")["trainer"]["best_metric"] == 1.0


def test_an_exception_in_a_step_saves_nothing_that_is_half_done(tmp_path):
    class FailsInStep(Callback):
        def on_run_start(self, trainer):
            self.calls = 0
            trainer.parts.models["model"].register_forward_hook(self.forward)

        def forward(self, *_):
            self.calls += 1
            if self.calls == 5:
                raise OSError("in a forward pass")

    with pytest.raises(OSError, match="in a forward pass"):
        train(points(), tmp_path, extra_callbacks=[FailsInStep()])
    (run,) = run_dirs(tmp_path)
    assert checkpoint(run)["trainer"]["global_step"] == 3  # of the epoch before
    assert checkpoint(run, "emergency.pt")["trainer"]["global_step"] == 4


def test_a_loss_that_is_not_finite_rescues_nothing(tmp_path):
    class Poison(Callback):
        def on_step_end(self, trainer):
            if trainer.state.global_step == 4:
                trainer.train.dataset.inputs.fill_(math.nan)

    with pytest.raises(NonFiniteError, match="step 5"):
        train(points(), tmp_path, extra_callbacks=[Poison()])
    (run,) = run_dirs(tmp_path)
    assert checkpoint(run)["trainer"]["global_step"] == 3
    assert saves(run) == [(3, ["last.pt"])]


def test_more_skipped_steps_than_the_budget_rescue_nothing(tmp_path):
    class Poison(Callback):
        def on_step_end(self, trainer):
            if trainer.state.global_step == 4:
                trainer.train.dataset.inputs.fill_(math.nan)

    config = points()
    config["trainer"] |= {"nonfinite": "skip", "nonfinite_budget": 0}
    with pytest.raises(NonFiniteError, match="nonfinite_budget"):
        train(config, tmp_path, extra_callbacks=[Poison()])
    (run,) = run_dirs(tmp_path)
    assert saves(run) == [(3, ["last.pt"])]


def test_a_weight_that_is_not_finite_is_not_rescued_from_another_exception(tmp_path):
    class Spoils(Callback):
        def on_step_end(self, trainer):
            if trainer.state.global_step == 4:
                trainer.parts.models["model"].w.data.fill_(math.nan)
                raise OSError("in on_step_end")

    with pytest.raises(OSError, match="in on_step_end"):
        train(points(), tmp_path, extra_callbacks=[Spoils()])
    (run,) = run_dirs(tmp_path)
    assert checkpoint(run)["trainer"]["global_step"] == 3


def test_an_exception_in_on_epoch_end_does_not_put_off_an_early_stop(tmp_path):
    values = [1.0, 2.0, 3.0, 4.0]
    config = scripted(values, early_stopping={"patience": 1})
    straight = train(config, tmp_path / "whole").run_dir
    assert checkpoint(straight)["trainer"]["epoch"] == 3
    SCRIPT[:] = values
    FAULTS.append(["on_epoch_end", 3])
    with pytest.raises(OSError, match="on_epoch_end"):
        train(config, tmp_path, extra_callbacks=[FrailCallback()])
    (first,) = run_dirs(tmp_path)
    result = train(config, tmp_path, resume=first)
    last = checkpoint(result.run_dir or first)["trainer"]
    assert (last["epoch"], last["global_step"]) == (3, 3)
