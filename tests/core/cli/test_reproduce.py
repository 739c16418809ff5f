"""``runs reproduce``: a run again from its directory alone."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from support.runs import checkpoint, digests, rewrite, run_dirs, tiny, train  # noqa: E402
from trainlattice import Callback, resume_run  # noqa: E402
from trainlattice.runs.rerun import differing_data  # noqa: E402

LOCAL = """\
import torch
from trainlattice import Options, register_dataset
from trainlattice.contracts.records import DatasetContract
from trainlattice.data import Splits, TensorData


class FileOptions(Options):
    file: str


@register_dataset("from_file", options=FileOptions)
def open_file(options):
    x = torch.load(options.file, weights_only=True)
    data = TensorData(x, x[:, :3].argmax(dim=1))
    return Splits(data, data, contract=DatasetContract((4,), "classification", 3))
"""


class SignalAtStep5(Callback):
    def on_step_end(self, trainer: Any) -> None:
        if trainer.state.global_step == 5:
            signal.raise_signal(signal.SIGINT)


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "temporary"
    directory.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(directory))
    monkeypatch.chdir(tmp_path)
    return directory


@pytest.fixture
def from_file(tmp_path: Path) -> dict[str, Any]:
    """A configuration whose data lies in a file and is read by a local component; both may be lost later."""
    (tmp_path / "mine.py").write_text(LOCAL, encoding="utf-8")
    data = torch.randn(24, 4, generator=torch.Generator().manual_seed(1))
    torch.save(data, tmp_path / "data.pt")
    dataset = {"name": "from_file", "file": str(tmp_path / "data.pt"), "batch_size": 8}
    return tiny(dataset=dataset, plugins={"local": [str(tmp_path / "mine.py")]})


def plain(cli: Callable[..., Any], run: Path, *more: str, code: int) -> dict[str, Any]:
    said = cli("runs", "reproduce", run, "--json", *more)
    assert said.code == code, said.out + said.err
    found: dict[str, Any] = json.loads(said.out)
    return found


def test_a_chain_with_another_length_is_run_again_from_its_directory_alone(
    cli: Callable[..., Any], temporary: Path, tmp_path: Path, from_file: dict[str, Any]
):
    """The schedule keeps the length of the first run; the local component's file is gone."""
    first = train({**from_file, "scheduler": {"name": "warmup_cosine", "warmup_steps": 2}}, tmp_path).run_dir
    assert first is not None
    run = resume_run(first, overrides=["trainer.epochs=4"]).run_dir
    assert run is not None
    (tmp_path / "mine.py").unlink()
    before = digests(tmp_path / "runs")
    found = plain(cli, run, "--keep", code=0)
    assert found["same"]
    assert digests(tmp_path / "runs") == before
    assert [(part["name"], part["tensors"]) for part in found["parts"]] == [("weights", 4)]
    assert found["records"]["compared"] == 12 + 4 + 4
    rerun = Path(found["rerun"])
    assert rerun.is_relative_to(found["directory"])
    assert checkpoint(rerun)["budget"] == checkpoint(run)["budget"] == 6


def test_a_chain_whose_first_part_ended_inside_an_epoch_is_run_again_in_one_piece(
    cli: Callable[..., Any], tmp_path: Path, temporary: Path
) -> None:
    """The first part's closing validation and its part of an epoch are no records of the whole."""
    first = train(tiny(trainer={"max_steps": 4}), tmp_path).run_dir
    second = resume_run(first, overrides=["trainer.max_steps=6"]).run_dir
    said = cli("runs", "reproduce", second)
    assert said.code == 0, said.out


def test_a_run_that_was_interrupted_is_compared_up_to_its_checkpoint(
    cli: Callable[..., Any], temporary: Path, tmp_path: Path
):
    with pytest.raises(KeyboardInterrupt):
        train(tiny(trainer={"epochs": 4}), tmp_path, extra_callbacks=[SignalAtStep5()])
    (run,) = run_dirs(tmp_path)
    found = plain(cli, run, code=0)
    assert found["until"] == 5
    assert found["same"]
    assert any("did not finish" in note for note in found["notes"])
    assert list(temporary.iterdir()) == []


def test_one_bit_of_a_weight_is_a_difference_and_the_runs_are_kept(
    cli: Callable[..., Any], temporary: Path, tmp_path: Path
):
    run = train(tiny(), tmp_path).run_dir
    assert run is not None
    states = checkpoint(run)["states"]
    next(iter(states["model/model"].values())).view(-1).view(torch.uint8)[0] ^= 1
    rewrite(run, states=states)
    environment = json.loads((run / "environment.json").read_text())
    (run / "environment.json").write_text(json.dumps({**environment, "torch_threads": 2, "torch": "1.0"}))
    said = cli("runs", "reproduce", run)
    assert said.code == 1
    assert "1 differ; first model/model/" in said.out
    assert "NOT identical" in said.out
    (kept,) = temporary.iterdir()
    assert f"the runs are kept in {kept}" in said.out
    made = json.loads(next(kept.glob("again/*/environment.json")).read_text())
    assert made["torch_threads"] == 2
    assert [line for line in said.out.splitlines() if line.startswith("missing: ")] == [
        f"missing: torch: 1.0 then, {torch.__version__} now"
    ]


def test_changed_data_is_named_and_nothing_is_trained(
    cli: Callable[..., Any], temporary: Path, tmp_path: Path, from_file: dict[str, Any]
):
    run = train(from_file, tmp_path).run_dir
    torch.save(torch.zeros(24, 4), tmp_path / "data.pt")
    said = cli("runs", "reproduce", run)
    assert said.code == 2
    assert "data: the train split has another content" in said.err
    records = next(temporary.glob("*/again/[!.]*/metrics.jsonl")).read_text()
    assert '"type": "batch"' not in records.replace('":"', '": "')


def test_what_is_missing_is_named_before_anything_is_run(
    cli: Callable[..., Any], temporary: Path, tmp_path: Path, from_file: dict[str, Any]
):
    run = train(from_file, tmp_path).run_dir
    assert run is not None
    manifest = json.loads((run / "manifest.json").read_text())

    def said_with(**entries: Any) -> Any:
        (run / "manifest.json").write_text(json.dumps({**manifest, **entries}))
        return cli("runs", "reproduce", run)

    absent = {**manifest["components"][0], "distribution": "trainlattice-plugin-gone", "version": "1.2"}
    said = said_with(components=[absent])
    assert said.code == 3
    assert "python -m pip install 'trainlattice-plugin-gone==1.2'" in said.err
    said = said_with(components=[{**c, "version": c["version"] and "0.0.9"} for c in manifest["components"]])
    assert said.code == 3
    assert "==0.0.9'" in said.err
    said = said_with(resumed_from="/gone/checkpoints/last.pt")
    assert said.code == 2
    assert "whose run directory is gone" in said.err
    (run / "local" / "mine.py").write_text(LOCAL + "\n", encoding="utf-8")
    said = said_with()
    assert said.code == 3
    assert "'local:from_file'" in said.err
    (run / "local" / "mine.py").unlink()
    said = said_with()
    assert said.code == 3
    assert "mine.py" in said.err
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        ({"train": {"samples": 4, "hash": "x"}}, []),
        ({"train": {"samples": 5, "hash": "x"}}, ["data: the train split has another size: 4 then, 5 now"]),
        (
            {"train": {"samples": 4, "hash": "y"}},
            ["data: the train split has another content: x then, y now"],
        ),
        ({"train": {"samples": 4, "hash": None, "reason": "samples are stochastic"}}, []),
        ({}, ["data: the train split is gone"]),
        (
            {"train": {"samples": 4, "hash": "x"}, "val": {"samples": 1, "hash": "z"}},
            ["data: the val split is new"],
        ),
    ],
)
def test_data_differs_where_that_is_known(now: dict[str, Any], expected: list[str]):
    assert differing_data({"train": {"samples": 4, "hash": "x"}}, now) == expected
