"""``checkpoint list``, ``verify`` and ``inspect``."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from support.by_hand import scripted  # noqa: E402
from support.runs import checkpoint, digests, tiny, train  # noqa: E402
from trainlattice import Callback  # noqa: E402
from trainlattice.data.order import ORDER_VERSION  # noqa: E402


class FailsInStep(Callback):
    """In the middle of step 8, so that nothing of it can be resumed."""

    def on_run_start(self, trainer: Any) -> None:
        def fail(module: Any, *_: Any) -> None:
            if module.training and trainer.state.global_step == 7:
                raise ZeroDivisionError

        trainer.parts.models["model"].register_forward_hook(fail)


class Payload:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (str(self.path), "w")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two epochs that then failed: last.pt, best.pt and emergency.pt."""
    directory = tmp_path_factory.mktemp("checkpoint")
    with pytest.raises(ZeroDivisionError):
        train(tiny(trainer={"epochs": 3}), directory, extra_callbacks=[FailsInStep()])
    (run,) = (directory / "runs").iterdir()
    return run


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A copy to change; last.pt and best.pt are one file, as they were."""
    copy = tmp_path / "runs" / trained.name
    shutil.copytree(trained, copy)
    (copy / "checkpoints" / "best.pt").unlink()
    os.link(copy / "checkpoints" / "last.pt", copy / "checkpoints" / "best.pt")
    return copy


def number(run: Path, *names: str, **values: float) -> None:
    """Numbered checkpoints, as copies of the last one that are listed in the index.

    :param values: by ``step_N``: what a validation of just this checkpoint measured.
    """
    directory = run / "checkpoints"
    index = json.loads((directory / "index.json").read_text())
    for name in names:
        unit, _, number = name.removesuffix(".pt").partition("-")
        content = checkpoint(run)
        trainer = content["trainer"]
        trainer["global_step"] = int(number) * (3 if unit == "epoch" else 1)
        value = values.get(f"{unit}_{int(number)}")
        trainer["validated_at"] = trainer["global_step"] if value is not None else 0
        trainer["validation"] = {"val_loss": value if value is not None else 0.0, "val_accuracy": 1.0}
        torch.save(content, directory / name)
        data = (directory / name).read_bytes()
        index["files"][name] = [
            {
                "sha256": hashlib.sha256(data).hexdigest(),
                "size": len(data),
                "epoch": 2,
                "global_step": trainer["global_step"],
            }
        ]
    (directory / "index.json").write_text(json.dumps(index))


def keep(run: Path, section: str | None, **trainer: Any) -> None:
    """Sets the section ``checkpoint`` of the run's configuration (None removes it) and values of ``trainer``."""
    path = run / "config.yaml"
    config = yaml.safe_load(path.read_text(encoding="utf-8"))
    config.pop("checkpoint")
    if section is not None:
        config["checkpoint"] = yaml.safe_load(section)
    config["trainer"] |= trainer
    path.write_text(yaml.safe_dump(config), encoding="utf-8")


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 255
    path.write_bytes(data)


def files(cli: Callable[..., Any], *arguments: object, code: int = 0) -> dict[str, dict[str, Any]]:
    """What a command says about each file."""
    said = cli("checkpoint", *arguments, "--json")
    assert said.code == code, said.err
    return {file["name"]: file for file in json.loads(said.out)["files"]}


# --- list


def test_list_says_how_far_each_is_what_it_is_for_and_whether_it_is_kept(cli, run):
    found = files(cli, "list", run)
    assert {
        name: (f["epoch"], f["global_step"], f["purpose"], f["protected"]) for name, f in found.items()
    } == {
        "last.pt": (2, 6, "last", "last"),
        "best.pt": (2, 6, "best", "best"),
        "emergency.pt": (2, 7, "emergency", None),
    }
    assert found["last.pt"]["size"] == (run / "checkpoints" / "last.pt").stat().st_size
    assert {f["state"] for f in found.values()} == {"present"}
    said = cli("checkpoint", "list", run)
    assert "not for resuming" in said.out
    assert said.out.splitlines()[0].split()[:4] == ["FILE", "EPOCH", "STEP", "SIZE"]


def test_list_takes_the_directory_of_checkpoints_too(cli, run, monkeypatch):
    assert files(cli, "list", run / "checkpoints") == files(cli, "list", run)
    monkeypatch.chdir(run / "checkpoints")
    keep(run, "{keep_last: 2}")
    number(run, "step-00000100.pt")
    assert files(cli, "list", ".")["step-00000100.pt"]["protected"] == "keep_last"


def test_what_last_and_best_link_to_is_kept(cli, run):
    number(run, "epoch-0002.pt")
    assert files(cli, "list", run)["epoch-0002.pt"]["protected"] is None
    (run / "checkpoints" / "epoch-0002.pt").unlink()
    os.link(run / "checkpoints" / "last.pt", run / "checkpoints" / "epoch-0002.pt")
    assert files(cli, "list", run)["epoch-0002.pt"]["protected"].startswith("the same file as ")


STEPS = [f"step-{step:08}.pt" for step in (20, 40, 60, 80, 100)]
EPOCHS = [f"epoch-{epoch:04}.pt" for epoch in range(1, 7)]


def kept_for(cli: Callable[..., Any], run: Path) -> dict[str, list[str]]:
    """The numbered checkpoints by what protects them."""
    found: dict[str, list[str]] = {}
    for name, file in files(cli, "list", run).items():
        if file["purpose"] == "numbered" and file["protected"] is not None:
            found.setdefault(file["protected"], []).append(name)
    return found


@pytest.mark.parametrize(
    ("section", "kept"),
    [
        (None, {}),
        ("{}", {}),
        ("nonsense", {}),
        ("{keep_last: 1}", {}),
        ("{keep_last: 2}", {"keep_last": STEPS[-2:]}),
        ("{keep_last: 9}", {"keep_last": STEPS}),
        ("{keep_last: null}", {"keep_last": STEPS}),
        ("{keep_every_epochs: 3}", {"keep_every_epochs": EPOCHS[2::3]}),
        (
            "{keep_last: 3, keep_every_epochs: 2}",
            {"keep_last": STEPS[-3:], "keep_every_epochs": EPOCHS[1::2]},
        ),
    ],
)
def test_the_newest_and_each_so_many_epochs_are_kept_by_the_configuration(cli, run, section, kept):
    number(run, *STEPS, *EPOCHS)
    keep(run, section)
    assert kept_for(cli, run) == kept
    shown = [f["global_step"] for f in files(cli, "list", run).values()]
    assert shown == sorted(shown)


@pytest.mark.parametrize(
    ("section", "trainer", "kept"),
    [
        ("{keep_best: 0}", {}, []),
        ("{keep_best: 1}", {}, []),  # best.pt is the one
        ("{keep_best: 2}", {}, [STEPS[0], STEPS[2]]),
        ("{keep_best: 3}", {}, STEPS[:3]),
        ("{keep_best: 2}", {"monitor_mode": "max"}, [STEPS[0], STEPS[1]]),
        ("{keep_best: 2}", {"monitor": "val_accuracy"}, STEPS[:2]),  # all are equal: the first
        ("{keep_best: 2}", {"monitor": "val_gone"}, []),
    ],
)
def test_the_best_are_kept_by_the_configuration(cli, run, section, trainer, kept):
    """The last was not validated, and the one before it measured NaN."""
    number(run, *STEPS, *EPOCHS, step_20=2.0, step_40=3.0, step_60=1.0, step_80=float("nan"), epoch_1=0.5)
    keep(run, section, **trainer)
    assert kept_for(cli, run) == ({"keep_best": kept} if kept else {})


def test_one_of_the_best_takes_no_place_among_the_newest(cli, run):
    """It may have been written for a validation inside an epoch, without being last.pt."""
    number(run, *STEPS, step_40=3.0, step_60=1.0, step_80=2.0)
    keep(run, "{keep_last: 2, keep_best: 2}")
    assert kept_for(cli, run) == {"keep_last": [STEPS[1], STEPS[4]], "keep_best": [STEPS[2], STEPS[3]]}


def test_a_damaged_checkpoint_is_not_among_the_best(cli, run):
    number(run, *STEPS, step_20=2.0, step_40=3.0, step_60=1.0)
    os.truncate(run / "checkpoints" / STEPS[2], 100)
    keep(run, "{keep_best: 2}")
    assert kept_for(cli, run) == {"keep_best": STEPS[:2]}


@pytest.mark.parametrize(
    "section",
    [
        {"keep_last": 2, "keep_best": 2, "every_steps": 1},
        {"keep_last": 3, "keep_best": 2, "every_epochs": 3},
        {"keep_best": 3, "keep_every_epochs": 2},
        {"keep_last": None, "keep_best": 0},
    ],
)
@pytest.mark.parametrize("mode", ["min", "max"])
def test_whatever_a_run_leaves_is_kept(cli, tmp_path, section, mode):
    """Two steps an epoch, a validation after each: files that were the newest stand beside those that were only
    among the best."""
    config = scripted([4.0, 2.0, 2.0, 3.0, 1.0, 5.0, 2.5, 6.0, 1.5, 2.0, 9.0, 8.0], validate_every_steps=1)
    config["dataset"]["batch_size"] = 1
    config["trainer"] |= {"epochs": 6, "monitor_mode": mode}
    run = train({**config, "checkpoint": section}, tmp_path).run_dir
    found = {name: f for name, f in files(cli, "list", run).items() if f["state"] != "missing"}
    assert [name for name, file in found.items() if file["purpose"] == "numbered"]
    assert [name for name, file in found.items() if file["protected"] is None] == []


def test_what_retention_removed_is_not_missing(cli, tmp_path):
    config = {**scripted([1.0, 2.0, 3.0]), "checkpoint": {"keep_last": 2}}
    run = train(config, tmp_path).run_dir
    assert sorted(files(cli, "verify", run)) == [
        *("best.pt", "last.pt", "step-00000002.pt", "step-00000003.pt"),
    ]


def test_list_shows_what_is_missing_damaged_or_not_in_the_index(cli, run):
    checkpoints = run / "checkpoints"
    shutil.copyfile(checkpoints / "emergency.pt", checkpoints / "mine.pt")
    (checkpoints / "notes.txt").write_text("hello")
    (checkpoints / ".last.pt.1.tmp").write_text("half")
    (checkpoints / "best.pt").unlink()
    os.truncate(checkpoints / "last.pt", 1000)
    found = files(cli, "list", run)
    assert {name: f["state"] for name, f in found.items()} == {
        "best.pt": "missing",
        "last.pt": "damaged",
        "emergency.pt": "present",
        "mine.pt": "unlisted",
        "notes.txt": "unlisted",
    }
    assert (found["mine.pt"]["epoch"], found["mine.pt"]["global_step"]) == (2, 7)
    assert "it has 1000 bytes, and" in found["last.pt"]["note"]
    assert "cannot be read as a checkpoint" in found["notes.txt"]["note"]
    said = cli("checkpoint", "list", run)
    assert ".last.pt.1.tmp" in said.out


def test_list_describes_the_file_that_stands_when_a_save_was_cut_off(cli, run):
    """The index is written before the file takes its name."""
    path = run / "checkpoints" / "index.json"
    index = json.loads(path.read_text())
    entries = index["files"]["last.pt"]
    entries.insert(0, {**entries[0], "sha256": "0" * 64, "epoch": 3, "global_step": 9})
    path.write_text(json.dumps(index))
    assert files(cli, "list", run)["last.pt"]["global_step"] == 6


# --- verify


def test_verify_compares_every_byte(cli, run):
    found = files(cli, "verify", run)
    assert {name: f["verdict"] for name, f in found.items()} == dict.fromkeys(
        ["last.pt", "best.pt", "emergency.pt"], "ok"
    )
    flip(run / "checkpoints" / "emergency.pt")
    before = digests(run)
    found = files(cli, "verify", run, code=1)
    assert found["emergency.pt"]["verdict"] == "damaged"
    assert "its sha256 is" in found["emergency.pt"]["note"]
    assert found["last.pt"]["verdict"] == "ok"
    assert digests(run) == before
    said = cli("checkpoint", "verify", run)
    assert (said.code, "damaged" in said.out) == (1, True)


def test_verify_takes_one_file(cli, run):
    flip(run / "checkpoints" / "emergency.pt")
    assert list(files(cli, "verify", run / "checkpoints" / "last.pt")) == ["last.pt"]
    assert list(files(cli, "verify", run / "checkpoints" / "emergency.pt", code=1)) == ["emergency.pt"]


def test_verify_says_what_is_missing_or_cut_off(cli, run):
    (run / "checkpoints" / "emergency.pt").unlink()
    os.truncate(run / "checkpoints" / "last.pt", 1000)
    found = files(cli, "verify", run, code=1)
    assert found["emergency.pt"]["verdict"] == "missing"
    assert "it has 1000 bytes" in found["last.pt"]["note"]
    assert files(cli, "verify", run / "checkpoints" / "emergency.pt", code=1)


def test_verify_checks_a_file_that_lies_alone_by_its_own_checksums(cli, run, tmp_path):
    alone = tmp_path / "alone.pt"
    shutil.copyfile(run / "checkpoints" / "last.pt", alone)
    assert files(cli, "verify", alone)["alone.pt"]["verdict"] == "unlisted"
    with zipfile.ZipFile(alone) as archive:
        record = archive.infolist()[-3]
    data = bytearray(alone.read_bytes())
    data[record.header_offset + 200] ^= 255
    alone.write_bytes(data)
    assert files(cli, "verify", alone, code=1)["alone.pt"]["verdict"] == "damaged"
    alone.write_text("text")
    assert "no checkpoint file" in files(cli, "verify", alone, code=1)["alone.pt"]["note"]


@pytest.mark.parametrize("command", ["list", "verify"])
def test_paths_that_hold_no_checkpoint_are_named(cli, run, tmp_path, command):
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "absent", tmp_path / "empty"):
        said = cli("checkpoint", command, path)
        assert said.code == 2
        assert str(path) in said.err
        assert "Traceback" not in said.err


def test_without_an_index_that_can_be_understood_each_file_stands_for_itself(cli, run):
    (run / "checkpoints" / "index.json").write_text("{")
    assert files(cli, "list", run)["last.pt"]["state"] == "unlisted"
    found = files(cli, "verify", run, code=1)
    assert (found["last.pt"]["verdict"], found["index.json"]["verdict"]) == ("unlisted", "damaged")
    assert found["index.json"]["note"].startswith("cannot be understood (")


def test_list_of_a_file_names_the_run_directory(cli, run):
    said = cli("checkpoint", "list", run / "checkpoints" / "last.pt")
    assert said.code == 2
    assert f"give its run directory, {run}" in said.err


def test_a_run_that_saved_nothing_holds_no_checkpoint(cli, run):
    shutil.rmtree(run / "checkpoints")
    (run / "checkpoints").mkdir()
    said = cli("checkpoint", "list", run)
    assert (said.code, "holds no checkpoint" in said.out) == (0, True)
    assert cli("checkpoint", "verify", run).code == 2


# --- inspect


def inspected(cli: Callable[..., Any], path: Path) -> dict[str, Any]:
    said = cli("checkpoint", "inspect", path, "--json")
    assert said.code == 0, said.err
    found: dict[str, Any] = json.loads(said.out)
    return found


def test_inspect_shows_progress_components_and_every_tensor(cli, run):
    found = inspected(cli, run)
    assert (found["format"], found["kind"], found["epoch"], found["global_step"]) == (4, "resume", 2, 6)
    assert (found["order"], found["budget"]) == (ORDER_VERSION, 9)
    assert found["best_epoch"] == 2
    assert found["verified"] is False
    assert found["implementations"] == {"optimizer": "fused"}
    sections = {component["section"]: component["version"] for component in found["components"]}
    assert sections["model"] == "0.1.0"
    tensors = {tensor["path"]: tensor for tensor in found["tensors"]}
    assert tensors["model/model/layers.1.weight"] == {
        "path": "model/model/layers.1.weight",
        "dtype": "float32",
        "shape": [8, 4],
        "bytes": 128,
    }
    moments = "update/optimizer/optimizer/state/0/exp_avg"
    assert tensors[moments]["shape"] == [8, 4]
    assert found["totals"] == {"tensors": len(tensors), "bytes": sum(t["bytes"] for t in tensors.values())}
    said = cli("checkpoint", "inspect", run)
    assert "its bytes were not verified" in said.out
    assert "layers.1.weight" in said.out


def test_inspect_shows_a_checkpoint_for_diagnosis(cli, run):
    assert inspected(cli, run / "checkpoints" / "emergency.pt")["kind"] == "emergency"


def write_hostile(run: Path, kind: str, canary: Path) -> Path:
    """A file that is no checkpoint of ours."""
    path = run / "checkpoints" / "hostile.pt"
    whole = torch.load(run / "checkpoints" / "last.pt", weights_only=True)
    if kind == "text":
        path.write_text("epoch: 3\n" * 100)
    elif kind == "empty":
        path.touch()
    elif kind == "code":
        torch.save({**whole, "states": Payload(canary)}, path)
    elif kind == "old code":
        torch.save({"model": Payload(canary)}, path, _use_new_zipfile_serialization=False)
    elif kind == "other zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("readme.txt", "hello")
    elif kind == "format 99":
        torch.save({**whole, "format": 99}, path)
    elif kind == "weights":
        torch.save(whole["states"]["model/model"], path)
    elif kind == "cut off":
        path.write_bytes((run / "checkpoints" / "last.pt").read_bytes()[:-500])
    elif kind == "directory":
        path.mkdir()
    return path


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("text", "are no whole zip archive"),
        ("empty", "it is empty"),
        ("code", "holds more than tensors and plain data and was not read, since that could run code: "),
        ("old code", "are no whole zip archive"),
        ("other zip", "cannot be read as a checkpoint"),
        ("format 99", "has checkpoint format 99"),
        ("weights", "has no format number"),
        ("cut off", "are no whole zip archive"),
        ("directory", "has no checkpoints/last.pt"),
        ("absent", "does not exist"),
    ],
)
def test_inspect_refuses_what_is_no_checkpoint_and_runs_nothing(cli, run, tmp_path, kind, said):
    canary = tmp_path / "canary"
    path = write_hostile(run, kind, canary)
    before = digests(tmp_path)
    for command in ("inspect", "verify", "list"):
        shown = cli("checkpoint", command, path)
        assert "Traceback" not in shown.err
        assert not canary.exists()
        if command == "inspect":
            assert shown.code == 2
            assert said in shown.err
            assert str(path) in shown.err
            assert len(shown.err.splitlines()) == 1
    cli("checkpoint", "list", run)
    assert not canary.exists()
    assert digests(tmp_path) == before
