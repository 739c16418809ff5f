"""Cases of configuration files: B01 to B10. B11 waits for search (NOT_APPLICABLE.md)."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from support.checking import mistake, places, resolved, typed, write
from support.cli import run_cli
from support.configs import TINY
from support.one_thread import one_torch_thread
from support.runs import records, run_dirs
from trainlattice import resume_run, run_from_file
from trainlattice.config.resolve import resolve_file
from trainlattice.config.snapshot import snapshot_text
from trainlattice.diagnostics.errors import ConfigError

__all__ = ["one_torch_thread"]

pytestmark = pytest.mark.torch

SGD = TINY.replace("optimizer:\n  lr: 0.01\n", "optimizer:\n  name: sgd\n  lr: LR\n")
ONE_EPOCH = "trainer.epochs=1"


@pytest.fixture(autouse=True)
def in_its_own_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def train(path: Path, *overrides: str):
    return run_from_file(path, overrides=overrides)


def refused(path: Path, *overrides: str) -> ConfigError:
    """Training is refused before a run directory exists."""
    with pytest.raises(ConfigError) as caught:
        train(path, *overrides)
    assert caught.value.exit_code == 2
    assert run_dirs(Path.cwd()) == []
    return caught.value


# --- B01 ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "lr"), [("1e-3", 0.001), ("5e-4", 0.0005), ("1E-3", 0.001), ("1.0e-3", 0.001), (".001", 0.001)]
)
def test_B01_a_learning_rate_with_an_exponent_is_a_number(tmp_path, text, lr):
    result = train(write(tmp_path, SGD.replace("LR", text)), ONE_EPOCH)
    assert records(result.run_dir, "batch")[0]["lr"] == lr


def test_B01_exponents_are_numbers_in_every_option_and_in_lists(tmp_path):
    text = TINY.replace("  lr: 0.01\n", "  lr: 1e-3\n  weight_decay: 1e-2\n  betas: [9e-1, 0.999]\n")
    path = write(tmp_path, text + "  early_stopping: {patience: 1, min_delta: 1e-4}\n")
    config = resolved(path)
    assert typed(config["optimizer"]["weight_decay"]) == typed(0.01)
    assert typed(config["optimizer"]["betas"]) == typed([0.9, 0.999])
    assert typed(config["trainer"]["early_stopping"]["min_delta"]) == typed(0.0001)
    assert train(path, ONE_EPOCH).status == "finished"


def test_B01_a_quoted_number_is_refused_with_its_path_and_a_hint(tmp_path):
    (found,) = refused(write(tmp_path, SGD.replace("LR", "'1e-3'"))).diagnostics
    assert (found.path, found.suggestion) == ("optimizer.lr", "remove the quotes")


# --- B02 ---------------------------------------------------------------------------------------------


def test_B02_a_key_given_twice_is_refused_with_both_lines(tmp_path):
    path = write(tmp_path, TINY + "  epochs: 300\n")
    done = run_cli("train", path.name, cwd=tmp_path)
    assert done.returncode == 2
    assert "'epochs' is given twice in one mapping" in done.stderr
    first = TINY.splitlines().index("  epochs: 2") + 1
    assert f"c.yaml:{len(TINY.splitlines()) + 1}:3" in done.stderr
    assert f"first given here: c.yaml:{first}:3" in done.stderr
    assert sorted(tmp_path.iterdir()) == [path]


def test_B02_a_section_given_twice_is_refused(tmp_path):
    (found,) = refused(write(tmp_path, TINY + "optimizer:\n  lr: 0.5\n")).diagnostics
    assert (found.code, found.path) == ("duplicate-key", "optimizer")


@pytest.mark.parametrize(
    "text",
    [
        TINY + "  early_stopping: {patience: 1, patience: 2}\n",
        TINY + "callbacks:\n- name: progress\n  refresh_per_second: 1\n  refresh_per_second: 2\n",
        TINY + "  early_stopping: &e {patience: 1}\nx: {<<: *e, a: 1, a: 2}\n",
    ],
)
def test_B02_a_duplicate_is_found_at_any_depth(tmp_path, text):
    assert "duplicate-key" in [found.code for found in refused(write(tmp_path, text)).diagnostics]


def test_B02_a_merge_key_with_an_override_stays_legal(tmp_path):
    text = TINY.replace("  hidden_dims: [8]\n", "  <<: {hidden_dims: [8], num_classes: 7}\n")
    model = resolved(write(tmp_path, text))["model"]
    assert (model["hidden_dims"], model["num_classes"]) == ([8], 3)


# --- B04 ---------------------------------------------------------------------------------------------

NINE = "abcdefghi"
BOMBS = {
    "nested aliases": "a: &a [x, x, x, x, x, x, x, x, x]\n"
    + "".join(f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in pairwise(NINE)),
    "self reference": "x: &x {y: *x}\n",
    "one long text": f"model:\n  name: mlp\n  a: &a {'s' * 150_000}\n  b: [{', '.join(['*a'] * 20_000)}]\n",
    "one long key": f"a: &a\n  ? {'s' * 150_000}\n  : 1\nmodel: {{name: mlp, b: [{', '.join(['*a'] * 20_000)}]}}\n",
    "merged": "a: &a {" + ", ".join(f"k{n}: [1, 2, 3]" for n in range(500)) + "}\n"
    + "b: [" + ", ".join(["{<<: *a}"] * 500) + "]\n",
    "depth": "a: " + "[" * 100_000 + "\n",
}  # fmt: skip
MEASURE = """
import json, resource, subprocess, sys
done = subprocess.run(sys.argv[1:], capture_output=True, text=True, timeout=30)
print(json.dumps([done.returncode, done.stderr, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss]))
"""


def measured(path: Path) -> tuple[int, str, int]:
    """Exit code, stderr and peak memory in KiB of ``validate`` in a process of its own; 30 s at most."""
    command = [sys.executable, "-c", MEASURE, sys.executable, "-m", "trainlattice", "validate", path.name]
    done = subprocess.run(command, cwd=path.parent, capture_output=True, text=True, timeout=60, check=True)
    code, err, peak = json.loads(done.stdout)
    return code, err, peak


@pytest.fixture(scope="module")
def normal_peak(tmp_path_factory) -> int:
    """Peak memory in KiB of ``validate`` for an ordinary configuration."""
    code, err, peak = measured(write(tmp_path_factory.mktemp("normal"), TINY))
    assert code == 0, err
    return peak


linux = pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in other units elsewhere")


@linux
@pytest.mark.parametrize("bomb", BOMBS)
def test_B04_a_file_that_expands_without_end_is_refused_in_one_line_and_little_memory(
    tmp_path, normal_peak, bomb
):
    code, err, peak = measured(write(tmp_path, BOMBS[bomb]))
    assert code == 2
    assert len(err.splitlines()) == 1
    assert "c.yaml:" in err
    assert peak < normal_peak + 300 * 1024


@linux
@pytest.mark.parametrize("files", [30, 1_500])
def test_B04_files_that_extend_each_other_without_end_are_refused(tmp_path, files):
    write(tmp_path, TINY, f"{files}.yaml")
    for number in range(files):
        write((tmp_path), f"extends: [{number + 1}.yaml, {number + 1}.yaml]\n", f"{number}.yaml")
    code, err, _ = measured(tmp_path / "0.yaml")
    assert code == 2
    assert "extends goes through more than 20 files" in err
    assert "Traceback" not in err


# --- B05 ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "key", "hint"),
    [
        (TINY.replace("  epochs: 2", "  max_epoch: 3"), "trainer.max_epoch", "did you mean 'epochs'?"),
        (TINY + "lr: 0.1\n", "lr", "it belongs below optimizer"),
        (TINY.replace("  lr: 0.01", "  weight-decay: 0.1"), "optimizer.weight-decay", "'weight_decay'?"),
        (TINY + "callbacks:\n- {name: progress, refresh: 3}\n", "callbacks.0.refresh", "refresh_per_second"),
        (TINY + "train:\n  epochs: 3\n", "train", "did you mean 'trainer'?"),
        (TINY + "  early_stopping: {patience: 1, delta: 3}\n", "trainer.early_stopping.delta", "min_delta"),
        (TINY.replace("  samples: 20", "  sampels: 20"), "dataset.sampels", "did you mean 'samples'?"),
    ],
)
def test_B05_an_unknown_key_at_any_level_is_refused_and_the_right_one_suggested(tmp_path, text, key, hint):
    error = refused(write(tmp_path, text))
    (found,) = error.diagnostics
    assert found.path == key
    assert hint in error.render()


def test_B05_the_command_line_refuses_an_unknown_key_too(tmp_path):
    path = write(tmp_path, TINY.replace("  epochs: 2", "  max_epoch: 3"))
    done = run_cli("train", path.name, cwd=tmp_path)
    assert done.returncode == 2
    assert "max_epoch" in done.stderr
    assert "did you mean 'epochs'?" in done.stderr
    assert sorted(tmp_path.iterdir()) == [path]


# --- B07 ---------------------------------------------------------------------------------------------

FINITE = [".nan", ".inf", "-.inf", "1e999"]


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("optimizer.lr", [*FINITE, "-0.1", "0", "-0.0"]),
        ("optimizer.weight_decay", [*FINITE, "-1", "-1e-9"]),
        ("optimizer.eps", [*FINITE, "0", "-1e-8"]),
        ("optimizer.betas.0", [*FINITE, "-0.1", "1", "1.0"]),
        ("trainer.max_grad_norm", [*FINITE, "0", "-1"]),
        ("trainer.accumulate", ["0", "-1", "1.5", ".nan"]),
        ("trainer.epochs", ["0", "-1", "1e3", ".inf"]),
        ("trainer.early_stopping.min_delta", [*FINITE, "-1e-9"]),
        ("trainer.early_stopping.patience", ["-1", ".inf"]),
        ("scheduler.warmup_steps", ["-1", ".nan", "0.5"]),
        ("scheduler.min_lr", [*FINITE, "-1"]),
        ("loss.label_smoothing", [*FINITE, "-0.1", "1"]),
        ("model.dropout", [*FINITE, "-0.1", "1"]),
        ("dataset.batch_size", ["0", "-1", ".inf"]),
    ],
)  # fmt: skip
def test_B07_a_number_outside_its_range_is_refused_and_the_field_named(tmp_path, field, values):
    text = TINY.replace("  lr: 0.01\n", "  lr: 0.01\n  betas: [0.9, 0.999]\n")
    path = write(tmp_path, text + "  early_stopping: {patience: 1}\nscheduler: warmup_cosine\n")
    for value in values:
        assert mistake(path, f"{field}={value}").path == field


@pytest.mark.parametrize(
    ("field", "values"),
    [("momentum", [*FINITE, "-0.1", "1"]), ("dampening", [*FINITE, "-1"]), ("weight_decay", [*FINITE, "-1"])],
)
def test_B07_the_same_holds_for_sgd(tmp_path, field, values):
    path = write(tmp_path, SGD.replace("LR", "0.1"))
    for value in values:
        assert mistake(path, f"optimizer.{field}={value}").path == f"optimizer.{field}"


@pytest.mark.parametrize("value", [".nan", ".inf", "-.inf", "-0.1", "0", "-0.0"])
def test_B07_training_is_refused_with_a_learning_rate_that_cannot_train(tmp_path, value):
    (found,) = refused(write(tmp_path, SGD.replace("LR", value))).diagnostics
    assert found.path == "optimizer.lr"
    assert value in found.message


def test_B07_minus_zero_counts_as_zero(tmp_path):
    assert resolved(write(tmp_path, TINY), "optimizer.weight_decay=-0.0")["optimizer"]["weight_decay"] == 0


def test_B07_the_documentation_states_the_ranges(tmp_path):
    done = run_cli("plugins", "info", "sgd", "--json", cwd=tmp_path)
    (found,) = json.loads(done.stdout)["found"]
    types = {row["name"]: row["type"] for row in found["options"]}
    assert types["lr"] == "number > 0"
    assert types["weight_decay"] == "number >= 0"
    assert types["momentum"] == "number >= 0 and < 1"


# --- B09 ---------------------------------------------------------------------------------------------

NOTED = """\
from torch import nn

from trainlattice import Options, register_model
from trainlattice.contracts.records import ModelContract


class NotedOptions(Options):
    tag: str
    note: str
    id: str
    date: str
    text: str
    rate: float

    def contract(self):
        return ModelContract(input_dim=4, num_outputs=3)


@register_model("noted", options=NotedOptions)
def noted(options):
    return nn.Linear(4, 3)
"""
NOTED_CONFIG = (
    TINY[TINY.index("dataset:") :]
    + """\
experiment:
  name: "1E6"
  runs_dir: runs
plugins:
  local: [noted.py]
model:
  name: noted
  tag: "695e0514"
  note: "no"
  id: "010"
  date: "2024-01-01"
  text: "two\\n lines "
  rate: 1e-05
"""
)
NOTES = {
    "tag": "695e0514", "note": "no", "id": "010", "date": "2024-01-01", "text": "two\n lines ", "rate": 1e-05,
}  # fmt: skip


def test_B09_the_stored_configuration_reloads_to_the_same_values_and_types(tmp_path):
    write(tmp_path, NOTED, "noted.py")
    first = train(write(tmp_path, NOTED_CONFIG), ONE_EPOCH)
    stored = resolved(first.run_dir / "config.yaml")
    assert typed(stored["experiment"]["name"]) == typed("1E6")
    assert typed({key: stored["model"][key] for key in NOTES}) == typed(NOTES)
    resumed = resume_run(first.run_dir, overrides=["trainer.epochs=2"])
    assert (resumed.epoch, resumed.global_step) == (2, 6)
    assert records(resumed.run_dir, "epoch")[-1]["epoch"] == 2
    assert typed(resolved(resumed.run_dir / "config.yaml")["model"]) == typed(stored["model"])


def test_B09_writing_and_reading_again_changes_nothing(tmp_path):
    write(tmp_path, NOTED, "noted.py")
    text = snapshot_text(resolve_file(write(tmp_path, NOTED_CONFIG)).config)
    again = write(tmp_path, text, "again.yaml")
    assert snapshot_text(resolve_file(again).config) == text


# --- B10 ---------------------------------------------------------------------------------------------


def test_B10_an_override_is_parsed_by_the_type_of_its_field(tmp_path):
    result = train(write(tmp_path, TINY), "optimizer.lr=1e-5", ONE_EPOCH)
    assert records(result.run_dir, "batch")[0]["lr"] == 1e-05


@pytest.mark.parametrize(
    ("override", "path"),
    [
        ("optimizer.lr=abc", "optimizer.lr"),
        ("optimizer.lr=-1e-5", "optimizer.lr"),
        ("optimizer.lrr=0.1", "optimizer.lrr"),
        ("dataset.batch_size=true", "dataset.batch_size"),
        ("dataset.batch_size=8.0", "dataset.batch_size"),
        ("optimiser.lr=0.1", "optimiser"),
        ("lr=0.1", "lr"),
        ("model.hidden_dims.1=3", "model.hidden_dims.1"),
        ("experiment.name=", "experiment.name"),
        ("trainer.precision=16", "trainer.precision"),
    ],
)
def test_B10_a_wrong_override_is_refused_at_its_own_place(tmp_path, override, path):
    (found,) = refused(write(tmp_path, TINY), override).diagnostics
    assert found.path == path
    assert places([found])[0][0].startswith("--set:1:")


@pytest.mark.parametrize("name", ["1_1_1", "a=b", "1e-5", "no", "010", "null", "a #1", "[a]", "'"])
def test_B10_text_stays_text(tmp_path, name):
    assert resolved(write(tmp_path, TINY), f"experiment.name={name}")["experiment"]["name"] == name


def test_B10_the_command_line_refuses_too(tmp_path):
    path = write(tmp_path, TINY)
    done = run_cli("train", path.name, "--set", "optimizer.lr=abc", "--set", "optimizer.lrr=1", cwd=tmp_path)
    assert done.returncode == 2
    assert "--set:1:14   optimizer.lr" in done.stderr
    assert "--set:2:1   optimizer.lrr" in done.stderr
    assert sorted(tmp_path.iterdir()) == [path]
