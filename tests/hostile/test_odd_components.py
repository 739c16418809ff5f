"""Components that misbehave once they run: the command says so, and nothing is taken for success."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from pydantic import Field, field_serializer, field_validator  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from support.configs import write_tiny  # noqa: E402
from support.t1 import TABLES, NoOptions, table, train_t1  # noqa: E402
from trainlattice import (  # noqa: E402
    Callback,
    Options,
    register_callback,
    register_model,
    resolve_file,
    run_experiment,
)
from trainlattice.cli.main import run  # noqa: E402
from trainlattice.cli.summary import print_summary  # noqa: E402
from trainlattice.data import Splits  # noqa: E402
from trainlattice.diagnostics.errors import (  # noqa: E402
    ConfigError,
    PluginError,
    TrainLatticeError,
    UsageError,
)


class Stopping:
    """Raises StopIteration for its fourth sample."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        if index == 3:
            raise StopIteration
        return torch.ones(1), torch.ones(1)


def test_a_stop_iteration_of_a_dataset_does_not_end_the_epoch_in_silence(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="Stopping raised StopIteration"):
        train_t1(tmp_path, Splits(Stopping()))


def exits() -> None:
    sys.exit(0)


def drops_a_connection() -> None:
    raise BrokenPipeError("the tracker is gone")


@pytest.mark.parametrize("misbehaviour", [exits, drops_a_connection])
def test_what_a_callback_does_to_the_process_is_a_failure_of_the_run(
    tmp_path: Path, misbehaviour: Callable[[], None]
) -> None:
    class Odd(Callback):
        def on_step_end(self, trainer: Any) -> None:
            misbehaviour()

    with pytest.raises(TrainLatticeError, match="a component") as caught:
        train_t1(tmp_path, table([1.0], [1.0]), callbacks=[Odd()])
    assert caught.value.exit_code == 1
    (run_dir,) = (tmp_path / "runs").iterdir()
    assert json.loads((run_dir / "manifest.json").read_text())["status"] == "failed"


@register_callback("no_callback", options=NoOptions)
def no_callback(options: NoOptions) -> str:
    return "nothing"


@register_model("no_module", options=NoOptions)
def no_module(options: NoOptions) -> None:
    return None


def test_a_target_that_returns_something_else_is_the_plugins_fault(tmp_path: Path) -> None:
    splits = table([1.0], [1.0])
    with pytest.raises(PluginError, match="returned a str, expected a Callback"):
        train_with_callback(tmp_path, splits)
    with pytest.raises(PluginError, match=r"returned a NoneType, expected a torch\.nn\.Module"):
        train_t1(tmp_path, splits, model={"name": "no_module"})
    assert not (tmp_path / "runs").exists()


def train_with_callback(tmp_path: Path, splits: Splits) -> None:

    TABLES["odd"] = splits
    run_experiment(
        {
            "experiment": {"runs_dir": str(tmp_path / "runs")},
            "model": "t1",
            "dataset": {"name": "t1_table", "table": "odd"},
            "loss": "mse",
            "callbacks": ["no_callback"],
        }
    )


class Excluded(Options):
    width: int = Field(1, exclude=True)


class Growing(Options):
    width: int = 1

    @field_validator("width")
    @classmethod
    def _grow(cls, value: int) -> int:
        return value + 1


class Renaming(Options):
    width: int = 1

    @field_serializer("width")
    def _as_text(self, value: int) -> str:
        return f"{value} wide"


class Infinite(Options):
    width: float = Field(1.0, allow_inf_nan=True)

    @field_validator("width")
    @classmethod
    def _to_infinity(cls, value: float) -> float:
        return float("inf")


@pytest.mark.parametrize("options", [Excluded, Growing, Renaming, Infinite])
def test_options_that_do_not_read_back_are_refused_before_a_run(
    tmp_path: Path, options: type[Options]
) -> None:
    name = f"reads_back_{options.__name__.lower()}"
    register_model(name, options=options)(nn.Identity)
    path = tmp_path / "c.yaml"
    path.write_text(f"model: {{name: {name}, width: 5}}\ndataset: synthetic\n")
    with pytest.raises(ConfigError, match="cannot be stored and read back") as caught:
        resolve_file(path)
    assert caught.value.exit_code == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"overrides": "trainer.epochs=1"}, "overrides is a list"),
        ({"local_files": "x.py"}, "local_files is a list"),
    ],
)
def test_a_string_is_no_list_of_overrides(tmp_path: Path, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        resolve_file(write_tiny(tmp_path), **arguments)


@pytest.mark.parametrize(
    "line",
    [
        "trainer: {epochs: 0x" + "f" * 3990 + "}",
        "optimizer: !!seq {lr: 1}",
        "optimizer: !!str {lr: 1}",
    ],
)
def test_odd_yaml_is_a_mistake_and_no_traceback(tmp_path: Path, line: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(f"model: mlp\ndataset: synthetic\n{line}\n")
    with pytest.raises(ConfigError) as caught:
        resolve_file(path)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    "override", ["a." * 900 + "b=1", "callbacks.٠=progress", "callbacks." + "9" * 5000 + "=1"]
)
def test_odd_overrides_are_mistakes_and_no_traceback(tmp_path: Path, override: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("model: mlp\ndataset: synthetic\ncallbacks: [progress]\n")
    with pytest.raises(ConfigError):
        resolve_file(path, [override])


def test_a_key_of_the_wrong_type_is_shown_at_the_key(tmp_path: Path) -> None:
    class Milestones(Options):
        at: dict[int, float] = Field(default_factory=dict)

    register_model("milestones", options=Milestones)(nn.Identity)
    path = tmp_path / "c.yaml"
    path.write_text("model:\n  name: milestones\n  at:\n    10: 0.1\n    soon: 0.2\ndataset: synthetic\n")
    with pytest.raises(ConfigError) as caught:
        resolve_file(path)
    (found,) = caught.value.diagnostics
    assert (found.mark.line, found.mark.column) == (5, 5) if found.mark else False
    assert found.message == "expected an integer as the key, got 'soon'"


@pytest.mark.parametrize("redirection", [">/dev/full", ">&-"])
def test_a_console_that_is_full_or_absent_does_not_stop_training(tmp_path: Path, redirection: str) -> None:
    config = write_tiny(tmp_path)
    command = f"'{sys.executable}' -m trainlattice train '{config}' {redirection}"
    subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, timeout=120)
    (run_dir,) = (tmp_path / "runs").iterdir()
    assert json.loads((run_dir / "manifest.json").read_text())["status"] == "finished"


def test_a_run_that_never_had_a_finite_validation_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = train_t1(tmp_path, table([1.0], [1.0], val=([math.inf], [1.0])))
    assert result.best_metric is None
    print_summary(result)
    assert "val_loss was never finite" in capsys.readouterr().out


def test_the_exit_code_does_not_depend_on_stderr(tmp_path: Path) -> None:
    for redirection in ("2>&-", "2>/dev/full"):
        command = f"'{sys.executable}' -m trainlattice validate nope.yaml {redirection}"
        assert subprocess.run(command, shell=True, cwd=tmp_path, timeout=60).returncode == 2


def test_a_damaged_index_is_told_of_and_costs_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = train_t1(tmp_path, table([1.0], [1.0]))
    assert result.run_dir is not None
    index = result.run_dir / "checkpoints" / "index.json"
    for content in ('{"files": {"last.pt": []}}', '{"files": {"last.pt": [{"sha256": 5}]}}', "[" * 100_000):
        index.write_text(content)
        assert run(["resume", str(result.run_dir)]) == 0
        assert f"{index} cannot be understood" in capsys.readouterr().err
        assert run(["checkpoint", "verify", str(result.run_dir)]) == 1


def test_training_in_a_directory_that_was_deleted_is_no_traceback(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    config = write_tiny(tmp_path)
    command = f"cd '{gone}' && rmdir '{gone}' && '{sys.executable}' -m trainlattice validate '{config}'"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60)
    assert "Traceback" not in done.stderr
