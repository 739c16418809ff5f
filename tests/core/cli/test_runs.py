"""``runs list``, ``show`` and ``diff``."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from support.runs import InterruptAfter, digests, run_dirs, tiny, train  # noqa: E402
from trainlattice import Callback, resume_run  # noqa: E402
from trainlattice.runs.chain import joined_records  # noqa: E402

PROCESS = "import json; from trainlattice.runs.process import this_process; print(json.dumps(this_process()))"


class Fails(Callback):
    def on_step_end(self, trainer: Any) -> None:
        if trainer.state.global_step == 5:
            raise ZeroDivisionError("on purpose")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``whole``: 4 epochs at once. ``first``: interrupted after 2. ``second``: its continuation to 4."""
    directory = tmp_path_factory.mktemp("runs")
    experiment = {"runs_dir": str(directory / "runs")}
    config = tiny(experiment=experiment, trainer={"epochs": 4})
    whole = train(config, directory).run_dir
    with pytest.raises(KeyboardInterrupt):
        train(config, directory, extra_callbacks=[InterruptAfter(2)])
    (first,) = set(run_dirs(directory)) - {whole}
    second = resume_run(first).run_dir
    assert whole is not None
    assert second is not None
    for run, name in ((whole, "whole"), (first, "first"), (second, "second")):
        if run is second:  # it was told where the first one was
            manifest = json.loads((run / "manifest.json").read_text())
            manifest["resumed_from"] = str(directory / "runs" / "first" / "checkpoints" / "last.pt")
            (run / "manifest.json").write_text(json.dumps(manifest))
        run.rename(directory / "runs" / name)
    return directory


@pytest.fixture
def runs(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the runs to change, as ``runs`` of the current directory."""
    shutil.copytree(trained / "runs", tmp_path / "runs")
    for run in (tmp_path / "runs").iterdir():
        change(run, working_directory=str(tmp_path))
    change(tmp_path / "runs" / "second", resumed_from="runs/first/checkpoints/last.pt")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs"


def change(run: Path, **entries: Any) -> None:
    manifest = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps({**manifest, **entries}))


def ended_process() -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-c", PROCESS], capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def plain(cli: Callable[..., Any], *arguments: object, code: int = 0) -> dict[str, Any]:
    """What a command says as JSON."""
    said = cli("runs", *arguments, "--json")
    assert said.code == code, said.err

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not strict JSON")

    found: dict[str, Any] = json.loads(said.out, parse_constant=refuse)
    return found


def listed(cli: Callable[..., Any], *arguments: object) -> dict[str, dict[str, Any]]:
    return {run["name"]: run for run in plain(cli, "list", *arguments)["runs"]}


# --- list


def test_list_has_a_line_for_each_run(cli, runs):
    found = listed(cli)
    assert list(found) == ["whole", "first", "second"]
    assert {name: (run["status"], run["epoch"], run["global_step"]) for name, run in found.items()} == {
        "whole": ("finished", 4, 12),
        "first": ("interrupted", 2, 6),
        "second": ("finished", 4, 12),
    }
    assert found["second"]["continues"] == "first"
    assert found["whole"]["continues"] is None
    assert found["whole"]["monitor"] == "val_loss"
    assert found["whole"]["best_metric"] == found["second"]["best_metric"]
    lines = cli("runs", "list").out.splitlines()
    assert lines[0].split() == ["RUN", "STATUS", "EPOCHS", "STEPS", "BEST", "BEGAN", "CONTINUES"]
    assert lines[3].split()[:5] == ["second", "finished", "4", "12", "val_loss"]
    assert lines[3].split()[-1] == "first"
    assert listed(cli, "runs") == found


def test_list_tells_a_killed_run_from_one_under_way(cli, runs):
    change(
        runs / "first", status="running", process=ended_process(), epoch=0, global_step=0, best_metric=None
    )
    change(runs / "whole", status="running")  # its process is this one
    found = listed(cli)
    assert (found["first"]["status"], found["whole"]["status"]) == ("killed", "running")
    # What the manifest does not say yet stands in the records and checkpoints.
    assert (found["first"]["epoch"], found["first"]["global_step"]) == (2, 6)
    assert found["first"]["best_epoch"] == 2
    assert found["first"]["best_metric"] is not None


def test_list_says_what_it_cannot_check(cli, runs):
    change(runs / "first", status="running", process={**ended_process(), "host": "elsewhere"})
    assert listed(cli)["first"]["status"] == "running"
    assert "cannot be checked from here" in cli("runs", "list").out


def test_list_shows_broken_directories_as_such(cli, runs):
    (runs / "empty").mkdir()
    (runs / "not a run.txt").write_text("hello")
    (runs / ".hidden").mkdir()
    (runs / "first" / "manifest.json").write_text('{"status": "finis')
    (runs / "second" / "manifest.json").write_text("[1]")
    shutil.rmtree(runs / "whole" / "checkpoints")
    (runs / "whole" / "metrics.jsonl").write_bytes(b"\x00\xff\n" * 10)
    change(runs / "whole", status="running", process=ended_process(), epoch="?", best_metric="?", created=7)
    found = listed(cli)
    statuses = {name: run["status"] for name, run in found.items()}
    assert statuses == {"empty": "broken", "first": "broken", "second": "broken", "whole": "killed"}
    assert found["empty"]["note"] == "manifest.json is missing"
    assert found["first"]["note"] == "manifest.json cannot be read"
    assert found["whole"]["epoch"] is None
    said = cli("runs", "list")
    assert (said.code, said.err) == (0, "")


def test_list_needs_a_directory_of_runs(cli, runs, tmp_path):
    (tmp_path / "none").mkdir()
    assert "holds no runs" in cli("runs", "list", tmp_path / "none").out
    for path, text in ((tmp_path / "absent", "does not exist"), (runs / "first", "trainlattice runs show")):
        said = cli("runs", "list", path)
        assert said.code == 2
        assert text in said.err


# --- show


def batch_steps(records: list[dict[str, Any]]) -> list[int]:
    return [record["step"] for record in records if record["type"] == "batch"]


def test_show_joins_the_chain_of_resumed_runs(cli, runs):
    found = plain(cli, "show", "runs/second")
    assert [(Path(link["path"]).name, link["status"], link["begins_at"]) for link in found["chain"]] == [
        ("first", "interrupted", None),
        ("second", "finished", 6),
    ]
    assert batch_steps(found["records"]) == list(range(1, 13))
    assert found["notes"] == []
    assert found["records"] == joined_records("runs/second")
    assert found["config"]["model"]["name"] == "models:mlp"
    assert found["data"]["train"]["samples"] == 20
    said = cli("runs", "show", "runs/second").out
    for text in ("second  finished", "models:mlp", "trainlattice-plugin-models", "step 6", "VAL_LOSS"):
        assert text in said
    assert [line.split()[0] for line in said.splitlines()[-5:-1]] == ["1", "2", "3", "4"]


def test_records_after_the_checkpoint_that_was_continued_are_superseded(cli, runs):
    metrics = runs / "first" / "metrics.jsonl"
    stale = {"type": "batch", "epoch": 3, "step": 7, "loss": -1.0}
    metrics.write_text(metrics.read_text() + json.dumps(stale) + "\n")
    assert batch_steps(joined_records("runs/first"))[-1] == 7
    found = plain(cli, "show", "runs/second")["records"]
    assert batch_steps(found) == list(range(1, 13))
    assert all(record.get("loss") != -1.0 for record in found)


def test_what_came_after_a_checkpoint_at_its_step_is_superseded_only_if_it_was_done_again(cli, runs):
    """A checkpoint inside an epoch may be that of its last step: the epoch's record follows it."""
    metrics = runs / "first" / "metrics.jsonl"
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    epoch = next(line for line in lines if line["type"] == "epoch" and line["step"] == 6)
    place = lines.index(epoch)
    saved = {"type": "event", "event": "checkpoint", "files": ["last.pt"], "epoch": 2, "step": 6}
    skipped = {"type": "event", "event": "skipped_step", "reason": "x", "epoch": 3, "step": 6}
    metrics.write_text("".join(json.dumps(line) + "\n" for line in [*lines[:place], saved, epoch, skipped]))

    def epochs_at_6() -> list[dict[str, Any]]:
        return [r for r in joined_records("runs/second") if r["type"] == "epoch" and r["step"] == 6]

    assert epochs_at_6() == [epoch]
    second = runs / "second" / "metrics.jsonl"
    second.write_text(second.read_text() + json.dumps({**epoch, "again": 1}) + "\n")
    assert epochs_at_6() == [{**epoch, "again": 1}]
    assert not any(record.get("event") == "skipped_step" for record in joined_records("runs/second"))


def test_a_half_written_last_line_is_passed_over_and_a_damaged_one_is_noted(cli, runs):
    metrics = runs / "first" / "metrics.jsonl"
    data = metrics.read_bytes()
    metrics.write_bytes(data[:-7])
    assert plain(cli, "show", "runs/first")["notes"] == []
    lines = data.split(b"\n")
    lines[2] = lines[2][:10]
    metrics.write_bytes(b"\n".join(lines))
    found = plain(cli, "show", "runs/second")
    assert len(found["notes"]) == 1
    assert "metrics.jsonl: left out what is no record, in line 3" in found["notes"][0]
    assert "note: " in cli("runs", "show", "runs/second").out


def test_a_parent_that_is_gone_is_said(cli, runs):
    shutil.rmtree(runs / "first")
    found = plain(cli, "show", "runs/second")
    assert batch_steps(found["records"]) == list(range(7, 13))
    assert [note for note in found["notes"] if "whose run directory is gone" in note]
    assert listed(cli)["second"]["continues"] == "first"


def test_runs_that_were_moved_together_still_find_one_another(cli, runs, tmp_path, monkeypatch):
    runs.rename(tmp_path / "moved")
    monkeypatch.chdir(tmp_path / "moved")
    assert batch_steps(plain(cli, "show", "second")["records"]) == list(range(1, 13))


def test_a_circle_of_runs_ends(cli, runs):
    change(runs / "first", resumed_from=str(runs / "second" / "checkpoints" / "last.pt"))
    found = plain(cli, "show", "runs/second")
    assert len(found["chain"]) == 2
    assert [note for note in found["notes"] if "continues it in turn" in note]
    change(runs / "whole", resumed_from=str(runs / "whole" / "checkpoints" / "last.pt"))
    assert len(plain(cli, "show", "runs/whole")["chain"]) == 1


def test_show_leaves_what_is_more_than_one_number_to_json(cli, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    record = {
        "type": "epoch",
        "epoch": 1,
        "step": 3,
        "val_loss": 0.5,
        "val_confusion_matrix": [[4, 1], [0, 5]],
    }
    (run / "metrics.jsonl").write_text(json.dumps(record) + "\n")
    said = cli("runs", "show", run).out
    assert "VAL_CONFUSION_MATRIX" not in said
    assert "with more than one number: val_confusion_matrix (--json)" in said
    assert plain(cli, "show", run)["records"][0]["val_confusion_matrix"] == [[4, 1], [0, 5]]


def test_show_of_a_run_without_manifest_shows_what_there_is(cli, runs):
    (runs / "whole" / "manifest.json").unlink()
    (runs / "whole" / "config.yaml").write_text("model: [")
    found = plain(cli, "show", "runs/whole")
    assert (found["status"], found["config"]) == ("broken", None)
    assert batch_steps(found["records"]) == list(range(1, 13))
    assert cli("runs", "show", "runs/whole").code == 0


def test_show_says_why_a_run_failed(cli, tmp_path):
    with pytest.raises(ZeroDivisionError):
        train(tiny(), tmp_path, extra_callbacks=[Fails()])
    (run,) = run_dirs(tmp_path)
    assert "ZeroDivisionError: on purpose" in cli("runs", "show", run).out


@pytest.mark.parametrize(
    "command", [["show", "{}"], ["diff", "{}", "runs/whole"], ["diff", "runs/whole", "{}"]]
)
def test_what_is_no_run_directory_is_named(cli, runs, command):
    for path, text in (
        ("absent", "does not exist"),
        ("runs/whole/config.yaml", "is a file"),
        ("runs", "trainlattice runs list runs"),
        ("runs/whole/checkpoints", "is no run directory"),
    ):
        said = cli("runs", *(part.format(path) for part in command))
        assert said.code == 2
        assert path in said.err
        assert text in said.err


# --- diff


def test_a_resumed_run_is_the_same_as_one_that_was_not_interrupted(cli, runs):
    before = digests(runs)
    found = plain(cli, "diff", "runs/whole", "runs/second")
    assert found["same"] is True
    assert found["metrics"]["compared"] == 12 + 4 + 4
    assert found["weights"]["tensors"] == 4
    said = cli("runs", "diff", "runs/whole", "runs/second")
    assert said.code == 0
    assert "the same in 4 tensors, bit for bit" in said.out
    assert digests(runs) == before


def test_diff_shows_configuration_and_environment_that_differ(cli, runs):
    other = train(
        tiny(optimizer={"lr": 0.02}, trainer={"epochs": 4}, scheduler={"name": "warmup_cosine"}), runs
    ).run_dir
    change(runs / "whole", git_commit="a" * 40)
    found = plain(cli, "diff", "runs/whole", other, code=1)
    paths = {d["path"]: d for d in found["config"]}
    assert paths["optimizer.lr"] == {"path": "optimizer.lr", "a": 0.01, "b": 0.02}
    assert paths["scheduler"]["b"]["name"] == "schedulers:warmup_cosine"
    assert "a" not in paths["scheduler"]  # absent, which is not null
    assert "experiment.runs_dir" not in paths
    assert "git_commit" in {d["path"] for d in found["environment"]}
    environment = json.loads((other / "environment.json").read_text())
    environment["variables"]["OMP_NUM_THREADS"] = "64"
    (other / "environment.json").write_text(json.dumps(environment))
    said = cli("runs", "diff", "runs/whole", other)
    assert said.code == 1
    assert "  optimizer.lr: 0.01 | 0.02" in said.out
    assert "  variables.OMP_NUM_THREADS: " in said.out
    assert "absent |" in said.out


def test_diff_shows_the_first_record_that_differs_and_the_last_values(cli, runs):
    metrics = runs / "second" / "metrics.jsonl"
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    for record in lines:
        if record["type"] == "batch" and record["step"] >= 8:
            record["loss"] += 1
            record["time"] += 1
    metrics.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = plain(cli, "diff", "runs/whole", "runs/second", code=1)["metrics"]
    assert found["differing"] == 5
    assert (found["first"]["type"], found["first"]["step"]) == ("batch", 8)
    (field,) = found["first"]["fields"]
    assert field["path"] == "loss"
    assert field["b"] == field["a"] + 1
    assert [d["path"] for d in found["last"]] == ["loss"]
    assert (
        "first: the batch record of epoch 3, step 8" in cli("runs", "diff", "runs/whole", "runs/second").out
    )


def test_diff_shows_records_that_one_run_alone_has(cli, runs):
    found = plain(cli, "diff", "runs/whole", "runs/first", code=1)["metrics"]
    assert (found["differing"], found["only"]) == (0, {"a": 10, "b": 0})
    assert found["first"] == {"type": "batch", "epoch": 3, "step": 7, "only": "a"}


def test_diff_shows_code_and_data_that_differ(cli, runs):
    manifest = json.loads((runs / "second" / "manifest.json").read_text())
    manifest["components"][1] |= {"version": "9.9", "file": "/elsewhere/mlp.py"}
    manifest["plugins"] = [p for p in manifest["plugins"] if p["id"] != "losses"]
    manifest["data"]["train"]["hash"] = "sha256:0"
    (runs / "second" / "manifest.json").write_text(json.dumps(manifest))
    found = plain(cli, "diff", "runs/whole", "runs/second", code=1)
    assert [d["path"] for d in found["components"]] == [
        "components.model.version",
        "plugins.losses",
    ]
    assert [d["path"] for d in found["data"]] == ["train.hash"]


def test_diff_shows_each_tensor_that_differs_and_by_how_much(cli, runs):
    last = runs / "second" / "checkpoints" / "last.pt"
    content = torch.load(last, weights_only=True)
    weights = content["states"]["model/model"]
    weights["layers.1.weight"][0, 0] += 0.5
    weights["layers.1.bias"][0] = float("nan")
    weights["layers.4.weight"][0, 0] = torch.nextafter(weights["layers.4.weight"][0, 0], torch.tensor(9.0))
    weights["layers.4.bias"] = weights["layers.4.bias"].double()
    weights["extra"] = torch.zeros(1)
    torch.save(content, last)
    (runs / "second" / "checkpoints" / "index.json").unlink()
    found = plain(cli, "diff", "runs/whole", "runs/second", code=1)["weights"]
    assert (found["same"], found["tensors"]) == (False, 5)
    by_path = {d["path"].removeprefix("model/model/"): d for d in found["differing"]}
    assert by_path["layers.1.weight"]["largest"] == pytest.approx(0.5, abs=1e-6)
    assert 0 < by_path["layers.4.weight"]["largest"] < 1e-6
    assert by_path["layers.1.bias"] == {
        "path": "model/model/layers.1.bias",
        "largest": None,
        "note": "in values that are not finite",
    }
    assert by_path["layers.4.bias"]["note"] == "float32 [3] in a, float64 [3] in b"
    assert by_path["extra"]["note"] == "only in b"
    said = cli("runs", "diff", "runs/whole", "runs/second").out
    assert "5 of 5 tensors differ" in said
    assert "model/model/layers.1.weight: by up to 0.5" in said


def test_diff_takes_the_name_of_the_checkpoint(cli, runs):
    (runs / "second" / "checkpoints" / "last.pt").unlink()
    found = plain(cli, "diff", "runs/whole", "runs/second", "--checkpoint", "best.pt")
    assert (found["weights"]["name"], found["weights"]["same"]) == ("best.pt", True)
    missing = plain(cli, "diff", "runs/whole", "runs/second", code=1)["weights"]
    assert missing["same"] is False
    assert "second/checkpoints/last.pt does not exist" in missing["note"]
    neither = plain(cli, "diff", "runs/whole", "runs/second", "--checkpoint", "step-00000001.pt")["weights"]
    assert (neither["same"], neither["note"]) == (None, "neither run has step-00000001.pt")
    assert cli("runs", "diff", "runs/whole", "runs/second", "--checkpoint", "../x").code == 2


def test_diff_refuses_a_damaged_checkpoint(cli, runs):
    last = runs / "second" / "checkpoints" / "last.pt"
    data = bytearray(last.read_bytes())
    data[len(data) // 2] ^= 255
    last.write_bytes(data)
    said = cli("runs", "diff", "runs/whole", "runs/second")
    assert (said.code, "last.pt is damaged" in said.err) == (2, True)


def test_diff_takes_no_files_for_the_same_that_only_their_indexes_say_are(cli, runs):
    """A copy of a run, in which one byte has changed since."""
    copy = shutil.copytree(runs / "first", runs / "copy")
    assert plain(cli, "diff", "runs/first", "runs/copy")["weights"]["note"] == "the files are the same"
    data = bytearray((copy / "checkpoints" / "last.pt").read_bytes())
    data[len(data) // 2] ^= 1
    (copy / "checkpoints" / "last.pt").write_bytes(data)
    said = cli("runs", "diff", "runs/first", "runs/copy")
    assert said.code == 2
    assert "the same" not in said.out
    assert f"{Path('runs/copy/checkpoints/last.pt')} is damaged" in said.err


def test_diff_needs_manifest_and_configuration(cli, runs):
    (runs / "second" / "config.yaml").unlink()
    said = cli("runs", "diff", "runs/whole", "runs/second")
    assert said.code == 2
    assert "second/config.yaml is missing or cannot be read" in said.err
