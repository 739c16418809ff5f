"""Checkpoint files: written whole or not at all, and checked before they are used."""

import hashlib
import json
import os
import pickle
import shutil
import subprocess
import sys
import zipfile

import pytest
import torch

from support.disks import copies_that_do_not_fit, refuse_links
from support.runs import digests
from trainlattice.checkpoint.format import Checkpoint
from trainlattice.checkpoint.store import CheckpointStore, checkpoint_of, load
from trainlattice.diagnostics.errors import CheckpointError, CheckpointWriteError

pytestmark = pytest.mark.torch


def content(epoch, **states):
    return Checkpoint(
        states={"model/model": {"w": torch.full((1000,), float(epoch))}, **states},
        trainer={"epoch": epoch, "global_step": 10 * epoch},
        rng={},
        config={"experiment": {"seed": 1}},
        order=1,
        budget=20,
    )


@pytest.fixture
def store(tmp_path):
    """best.pt of epoch 1, last.pt of epoch 2."""
    directory = tmp_path / "checkpoints"
    directory.mkdir()
    held = CheckpointStore(directory)
    held.save(content(1), ["last.pt", "best.pt"])
    held.save(content(2), ["last.pt"])
    return held


class Payload:
    """Creates a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


# --- saving


def test_a_checkpoint_is_read_by_plain_torch_without_pickle(store):
    found = torch.load(store.directory / "last.pt", weights_only=True)
    assert found["format"] == 4
    assert found["kind"] == "resume"
    assert found["trainer"] == {"epoch": 2, "global_step": 20}
    assert torch.equal(found["states"]["model/model"]["w"], torch.full((1000,), 2.0))


def test_what_was_saved_is_loaded(store):
    found = load(store.directory / "best.pt")
    assert found.trainer == {"epoch": 1, "global_step": 10}
    assert (found.config, found.order, found.budget, found.kind) == (
        {"experiment": {"seed": 1}},
        1,
        20,
        "resume",
    )


def test_two_names_of_one_save_hold_the_same_bytes_and_the_next_save_changes_one(tmp_path):
    store = CheckpointStore(tmp_path)
    assert store.save(content(1), ["last.pt", "best.pt"]) == [tmp_path / "last.pt", tmp_path / "best.pt"]
    first = (tmp_path / "last.pt").read_bytes()
    assert (tmp_path / "best.pt").read_bytes() == first
    store.save(content(2), ["last.pt"])
    assert (tmp_path / "best.pt").read_bytes() == first
    assert (tmp_path / "last.pt").read_bytes() != first


def test_the_index_holds_the_digest_and_size_of_every_file(store):
    files = json.loads((store.directory / "index.json").read_text(encoding="utf-8"))["files"]
    assert sorted(files) == ["best.pt", "last.pt"]
    for name, entries in files.items():
        data = (store.directory / name).read_bytes()
        assert entries[0]["sha256"] == hashlib.sha256(data).hexdigest()
        assert entries[0]["size"] == len(data)
    assert [entry["epoch"] for entry in files["last.pt"]] == [2, 1]


def test_a_file_that_was_announced_but_not_yet_renamed_is_still_known(store, tmp_path):
    """A kill between the two leaves the new index beside the old file."""
    old = (store.directory / "last.pt").read_bytes()
    store.save(content(3), ["last.pt"])
    (store.directory / "last.pt").write_bytes(old)
    assert load(store.directory / "last.pt").trainer["epoch"] == 2


def test_an_object_that_cannot_be_saved_leaves_everything_as_it_was(store):
    before = digests(store.directory)
    with pytest.raises(CheckpointWriteError, match=r"last\.pt could not be written: .*lambda"):
        store.save(content(3, callbacks={"mine": {"f": lambda: 0}}), ["last.pt", "best.pt"])
    assert digests(store.directory) == before


def test_an_object_that_could_not_be_loaded_again_is_refused_when_it_is_saved(store, tmp_path):
    before = digests(store.directory)
    with pytest.raises(CheckpointWriteError, match=r"pathlib\.\w*Path, and a state_dict holds tensors"):
        store.save(content(3, callbacks={"mine": {"file": tmp_path}}), ["last.pt"])
    assert digests(store.directory) == before


def test_a_disk_that_takes_no_more_leaves_everything_as_it_was(store):
    """A limit on the size of files stands for a full disk: the write ends in the middle."""
    before = digests(store.directory)
    program = f"""
import resource, torch
from pathlib import Path
from trainlattice.checkpoint.format import Checkpoint
from trainlattice.checkpoint.store import CheckpointStore
from trainlattice.diagnostics.errors import CheckpointWriteError
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
big = Checkpoint({{"w": torch.ones(1_000_000)}}, {{"epoch": 3, "global_step": 30}}, {{}}, {{}}, 1, None)
try:
    CheckpointStore(Path({str(store.directory)!r})).save(big, ["last.pt", "best.pt"])
except CheckpointWriteError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    last = store.directory / "last.pt"
    assert done.stdout.startswith(f"{last} could not be written: File too large; earlier"), done.stderr
    assert digests(store.directory) == before


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_copy_that_does_not_fit_leaves_everything_as_it_was(store, monkeypatch, number):
    """Four names without hard links: the disk is full at the first, second or third copy."""
    store.save(content(2), ["last.pt", "step-00000020.pt"])
    before = digests(store.directory)
    with (
        copies_that_do_not_fit(monkeypatch, number=number),
        pytest.raises(CheckpointWriteError, match=r"last\.pt could not be written: No space left on device"),
    ):
        store.save(content(3), ["last.pt", "best.pt", "step-00000020.pt", "step-00000030.pt"])
    assert digests(store.directory) == before
    for name, epoch in (("best.pt", 1), ("last.pt", 2), ("step-00000020.pt", 2)):
        assert load(store.directory / name).trainer["epoch"] == epoch


def test_names_are_copies_where_files_cannot_be_linked(store, monkeypatch):
    refuse_links(monkeypatch)
    store.save(content(3), ["last.pt", "best.pt"])
    last, best = store.directory / "last.pt", store.directory / "best.pt"
    assert not last.samefile(best)
    assert last.read_bytes() == best.read_bytes()
    store.save(content(4), ["last.pt"])
    assert [load(path).trainer["epoch"] for path in (last, best)] == [4, 3]
    assert sorted(path.name for path in store.directory.iterdir()) == ["best.pt", "index.json", "last.pt"]


@pytest.mark.parametrize("number", [1, 2, 3])
def test_an_interrupt_between_two_names_leaves_checkpoints_that_load(store, monkeypatch, number):
    """The index takes its name before the checkpoints do, and last.pt comes last."""
    replace, left = os.replace, [number]

    def interrupted(source, target):
        if left[0] == 0:
            raise KeyboardInterrupt
        left[0] -= 1
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.save(content(3), ["last.pt", "best.pt", "step-00000030.pt"])
    done = {1: [], 2: ["best.pt"], 3: ["best.pt", "step-00000030.pt"]}[number]
    expected = {"best.pt": 1, "last.pt": 2, **dict.fromkeys(done, 3)}
    found = {path.name: load(path).trainer["epoch"] for path in store.directory.glob("*.pt")}
    assert found == expected
    assert sorted(path.name for path in store.directory.iterdir()) == sorted([*expected, "index.json"])


# --- removing


def test_what_cannot_be_removed_stays_and_the_others_go(store, caplog):
    """A directory has taken the place of one of them."""
    store.save(content(3), ["last.pt", "step-00000010.pt", "step-00000030.pt"])
    (store.directory / "step-00000010.pt").unlink()
    (store.directory / "step-00000010.pt").mkdir()
    store.remove(["step-00000010.pt", "step-00000030.pt"])
    assert f"the old checkpoint {store.directory / 'step-00000010.pt'} stays: Is a directory" in caplog.text
    assert (store.directory / "step-00000010.pt").is_dir()
    assert not (store.directory / "step-00000030.pt").exists()
    assert sorted(store.index()) == ["best.pt", "last.pt"]


def test_left_over_temporary_files_go_with_the_next_save(store):
    leftover = store.directory / ".last.pt.12345.tmp"
    leftover.write_bytes(b"half a checkpoint")
    store.save(content(3), ["last.pt"])
    assert sorted(path.name for path in store.directory.iterdir()) == ["best.pt", "index.json", "last.pt"]


# --- loading what is damaged


def truncate(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path):
    path.write_bytes(b"")


def flip(path):
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 16] = bytes(byte ^ 0xFF for byte in data[middle : middle + 16])
    path.write_bytes(bytes(data))


def write_text(path):
    path.write_text("epoch: 2\n")


DAMAGE = pytest.mark.parametrize("damage", [truncate, empty, flip, write_text])


@DAMAGE
def test_a_damaged_file_is_refused_and_the_usable_one_named(store, damage):
    last, best = store.directory / "last.pt", store.directory / "best.pt"
    damage(last)
    before = digests(store.directory)
    with pytest.raises(CheckpointError) as raised:
        load(last)
    assert f"{last} is damaged" in str(raised.value)
    assert f"usable: {best} (epoch 1, step 10)" in str(raised.value)
    assert digests(store.directory) == before
    assert load(best).trainer["epoch"] == 1


@DAMAGE
def test_a_damaged_file_that_lies_alone_is_refused(store, tmp_path, damage):
    alone = tmp_path / "copy.pt"
    shutil.copyfile(store.directory / "last.pt", alone)
    assert load(alone).trainer["epoch"] == 2
    damage(alone)
    with pytest.raises(CheckpointError) as raised:
        load(alone)
    assert str(alone) in str(raised.value)
    assert "there is no other usable checkpoint beside it" in str(raised.value)


def test_damaged_and_emergency_files_are_no_alternatives(store):
    store.save(content(2), ["emergency.pt"])
    for name in ("last.pt", "best.pt"):
        truncate(store.directory / name)
    with pytest.raises(CheckpointError, match="there is no other usable checkpoint beside it"):
        load(store.directory / "last.pt")


def test_a_file_of_another_run_under_this_name_is_refused(store, tmp_path):
    other = CheckpointStore(tmp_path)
    other.save(content(9), ["last.pt"])
    shutil.copyfile(tmp_path / "last.pt", store.directory / "last.pt")
    with pytest.raises(CheckpointError, match="is damaged"):
        load(store.directory / "last.pt")


# --- loading what is foreign


@pytest.mark.parametrize("save", ["torch", "pickle"])
def test_a_file_with_code_is_refused_and_the_code_not_run(tmp_path, save):
    canary, path = tmp_path / "canary", tmp_path / "last.pt"
    if save == "torch":
        torch.save({"format": 4, "model": Payload(canary)}, path)
    else:
        path.write_bytes(pickle.dumps({"format": 4, "model": Payload(canary)}))
    with pytest.raises(CheckpointError, match=r"last\.pt"):
        load(path)
    assert not canary.exists()


def test_a_file_with_code_that_the_index_vouches_for_is_refused_too(store, tmp_path):
    canary, path = tmp_path / "canary", store.directory / "last.pt"
    torch.save({"format": 4, "model": Payload(canary)}, path)
    index = json.loads((store.directory / "index.json").read_text(encoding="utf-8"))
    index["files"]["last.pt"][0]["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    (store.directory / "index.json").write_text(json.dumps(index), encoding="utf-8")
    with pytest.raises(CheckpointError, match="holds more than tensors and plain data") as raised:
        load(path)
    assert f"usable: {store.directory / 'best.pt'} (epoch 1, step 10)" in str(raised.value)
    assert not canary.exists()


def test_a_zip_file_that_is_no_checkpoint_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "last.pt", "w") as archive:
        archive.writestr("hello.txt", "hello")
    with pytest.raises(CheckpointError, match="cannot be read as a checkpoint"):
        load(tmp_path / "last.pt")


@pytest.mark.parametrize("data", [{"state_dict": {}}, [1, 2], torch.ones(2)])
def test_a_file_of_another_program_is_refused(tmp_path, data):
    torch.save(data, tmp_path / "last.pt")
    with pytest.raises(CheckpointError, match="is no TrainLattice checkpoint: it has no format number"):
        load(tmp_path / "last.pt")


def test_another_format_is_named_with_the_one_that_is_read(tmp_path):
    torch.save({"format": 99}, tmp_path / "last.pt")
    with pytest.raises(
        CheckpointError, match=r"has checkpoint format 99, and this version .* reads formats 3 and 4"
    ):
        load(tmp_path / "last.pt")


def test_a_checkpoint_without_one_of_its_parts_is_refused(tmp_path):
    torch.save({"format": 4, "states": {}}, tmp_path / "last.pt")
    with pytest.raises(CheckpointError, match="is no complete checkpoint"):
        load(tmp_path / "last.pt")


REFUSED = {
    "a newer format": ({"format": 99}, "has checkpoint format 99"),
    "another program's": ({"state_dict": {}}, "is no TrainLattice checkpoint"),
    "incomplete": ({"format": 4, "states": {}}, "is no complete checkpoint"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_is_named_with_what_is_usable(store, name):
    """Whole by the index: it was written so."""
    data, text = REFUSED[name]
    last, best = store.directory / "last.pt", store.directory / "best.pt"
    torch.save(data, last)
    index = json.loads((store.directory / "index.json").read_text(encoding="utf-8"))
    index["files"]["last.pt"][0]["sha256"] = hashlib.sha256(last.read_bytes()).hexdigest()
    (store.directory / "index.json").write_text(json.dumps(index), encoding="utf-8")
    with pytest.raises(CheckpointError) as raised:
        load(last)
    assert text in str(raised.value)
    assert str(raised.value).endswith(f"; usable: {best} (epoch 1, step 10)")


def test_what_is_absent_is_named_with_what_is_usable(store, tmp_path):
    last, best = store.directory / "last.pt", store.directory / "best.pt"
    both = f"usable: {best} (epoch 1, step 10), {last} (epoch 2, step 20)"
    gone = store.directory / "step-00000007.pt"
    for use in (load, checkpoint_of):
        with pytest.raises(CheckpointError) as raised:
            use(gone)
        assert str(raised.value) == f"{gone} does not exist; {both}"
    last.unlink()
    with pytest.raises(CheckpointError) as raised:
        checkpoint_of(tmp_path)
    text = f"{tmp_path} has no checkpoints/last.pt and no last.pt; usable: {best} (epoch 1, step 10)"
    assert str(raised.value) == text


@pytest.mark.parametrize("name", ["emergency.pt", "nonfinite.pt"])
def test_what_is_for_diagnosis_is_no_alternative(store, name):
    store.save(content(2), [name])
    for other in ("last.pt", "best.pt"):
        (store.directory / other).unlink()
    with pytest.raises(CheckpointError, match="there is no other usable checkpoint beside it"):
        load(store.directory / "last.pt")


def test_a_missing_file_and_a_directory_are_named(tmp_path):
    with pytest.raises(CheckpointError, match=r"gone\.pt does not exist"):
        load(tmp_path / "gone.pt")
    with pytest.raises(CheckpointError, match="is a directory"):
        load(tmp_path)


# --- which checkpoint a path means


def test_a_run_directory_means_its_last_checkpoint(store, tmp_path):
    assert checkpoint_of(tmp_path) == store.directory / "last.pt"
    assert checkpoint_of(store.directory) == store.directory / "last.pt"
    assert checkpoint_of(store.directory / "best.pt") == store.directory / "best.pt"


def test_a_directory_without_checkpoints_and_a_path_to_nothing_are_named(tmp_path):
    with pytest.raises(CheckpointError, match=r"has no checkpoints/last\.pt and no last\.pt"):
        checkpoint_of(tmp_path)
    with pytest.raises(CheckpointError, match=r"nothing does not exist"):
        checkpoint_of(tmp_path / "nothing")


# --- taking over a checkpoint of another run


def test_an_adopted_checkpoint_is_usable_and_listed(store, tmp_path):
    target = CheckpointStore(tmp_path / "new")
    target.directory.mkdir()
    target.adopt(store.directory / "best.pt", "best.pt", epoch=1, global_step=2)
    assert load(target.directory / "best.pt").trainer["epoch"] == 1
    assert list(target.index()) == ["best.pt"]


def test_an_adopted_checkpoint_survives_the_run_it_came_from(store, tmp_path):
    target = CheckpointStore(tmp_path / "new")
    target.directory.mkdir()
    target.adopt(store.directory / "best.pt", "best.pt", epoch=1, global_step=2)
    shutil.rmtree(store.directory)
    assert load(target.directory / "best.pt").trainer["epoch"] == 1


def test_a_checkpoint_that_lies_alone_is_adopted(store, tmp_path):
    os.remove(store.directory / "index.json")
    target = CheckpointStore(tmp_path / "new")
    target.directory.mkdir()
    target.adopt(store.directory / "best.pt", "best.pt", epoch=1, global_step=2)
    assert load(target.directory / "best.pt").trainer["epoch"] == 1


@pytest.mark.parametrize("index", ["with", "without"])
def test_a_damaged_checkpoint_is_not_adopted(store, tmp_path, index):
    flip(store.directory / "best.pt")
    if index == "without":
        os.remove(store.directory / "index.json")
    target = CheckpointStore(tmp_path / "new")
    target.directory.mkdir()
    with pytest.raises(CheckpointError, match=r"best\.pt is damaged"):
        target.adopt(store.directory / "best.pt", "best.pt", epoch=1, global_step=2)
    assert list(target.directory.iterdir()) == []


@pytest.mark.parametrize("reason", ["full", "gone"])
def test_a_checkpoint_that_cannot_be_taken_over_is_named_with_both_places(
    store, tmp_path, monkeypatch, reason
):
    target, source = CheckpointStore(tmp_path / "new"), store.directory / "best.pt"
    if reason == "full":
        target.directory.mkdir()
    before = digests(tmp_path)
    with (
        copies_that_do_not_fit(monkeypatch),
        pytest.raises(CheckpointError, match=r"best\.pt cannot be taken over as .*new/best\.pt: "),
    ):
        target.adopt(source, "best.pt", epoch=1, global_step=10)
    assert digests(tmp_path) == before
