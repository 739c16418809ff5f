"""``evaluate``: the metrics of a checkpoint on the console or as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.cli import run_cli
from support.configs import TINY, write_tiny

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

LOUD = """\
from torch import nn

from trainlattice import Options, register_model

print("loud while it is imported")


class LoudOptions(Options):
    pass


@register_model("loud", options=LoudOptions)
def build(options):
    print("loud while it is built")
    return nn.Linear(4, 3)
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of a model that prints."""
    directory = tmp_path_factory.mktemp("evaluate")
    (directory / "loud.py").write_text(LOUD)
    model = "model:\n  name: loud\n"
    text = TINY.replace(TINY[TINY.index("model:") : TINY.index("dataset:")], model + "\n")
    write_tiny(directory, text + "  device: cpu\n")
    done = run_cli("train", "tiny.yaml", "--plugin", "loud.py", cwd=directory)
    assert done.returncode == 0, done.stderr
    return directory


@pytest.fixture(scope="module")
def run(project: Path) -> Path:
    (found,) = (project / "runs").iterdir()
    return found


def test_it_prints_the_checkpoint_and_its_metrics(project: Path, run: Path):
    done = run_cli("evaluate", run, cwd=project)
    assert (done.returncode, done.stderr) == (0, "")
    assert "best.pt  (epoch " in done.stdout
    assert "val_loss" in done.stdout
    assert "val_accuracy" in done.stdout


def test_json_stands_alone_on_stdout_whatever_a_component_prints(project: Path, run: Path):
    done = run_cli("evaluate", run / "checkpoints" / "last.pt", "--json", cwd=project)
    assert done.returncode == 0
    found = json.loads(done.stdout)
    assert "loud while it is built" in done.stderr
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    epoch = [r for r in map(json.loads, lines) if r["type"] == "epoch"][-1]
    assert found == {
        "schema_version": 1,
        "checkpoint": str(run / "checkpoints" / "last.pt"),
        "split": "val",
        "epoch": 2,
        "step": 6,
        "samples": 10,
        "metrics": {name: epoch[name] for name in ("val_loss", "val_accuracy")},
    }


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--split", "test"), "has no test data"),
        (("--split", "train"), "train"),
        (("--device", "tpu"), "device is auto, cpu, cuda or cuda:N"),
    ],
)
def test_what_cannot_be_evaluated_exits_with_2(
    project: Path, run: Path, arguments: tuple[str, ...], says: str
):
    done = run_cli("evaluate", run, *arguments, cwd=project)
    assert (done.returncode, done.stdout.count("val_loss")) == (2, 0)
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_a_path_that_is_no_run_exits_with_2_without_importing_torch(project: Path):
    done = run_cli("evaluate", "nowhere", cwd=project)
    assert done.returncode == 2
    assert "nowhere does not exist" in done.stderr
