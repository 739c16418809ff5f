"""A save of several names where hard links fail, and checkpoints that are taken over or cannot be removed."""

import errno
import logging
import shutil

import pytest
import torch

from support.runs import digests
from trainlattice.checkpoint import durable
from trainlattice.checkpoint.background import host_copy
from trainlattice.checkpoint.format import Checkpoint
from trainlattice.checkpoint.store import CheckpointStore, load
from trainlattice.diagnostics.errors import CheckpointError, CheckpointWriteError

pytestmark = pytest.mark.torch


def content(epoch):
    return Checkpoint(
        states={"model/model": {"w": torch.full((10,), float(epoch))}},
        trainer={"epoch": epoch, "global_step": 10 * epoch},
        rng={},
        config={},
        order=1,
        budget=None,
    )


@pytest.fixture
def store(tmp_path):
    held = CheckpointStore(tmp_path / "checkpoints")
    held.directory.mkdir()
    held.save(content(1), ["last.pt", "best.pt", "step-00000010.pt"])
    return held


def refuse(*arguments, **keywords):
    raise OSError(errno.EPERM, "no links here")


@pytest.mark.parametrize("copies", [0, 1])
def test_a_copy_that_does_not_fit_leaves_every_earlier_file(store, monkeypatch, copies):
    before, left = digests(store.directory), [copies]

    def copy(source, target):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(source, target)

    real = shutil.copyfile
    monkeypatch.setattr(durable.os, "link", refuse)
    monkeypatch.setattr(durable.shutil, "copyfile", copy)
    with pytest.raises(
        CheckpointWriteError, match="No space left on device; earlier checkpoints are as they were"
    ):
        store.save(content(2), ["last.pt", "best.pt", "step-00000020.pt"])
    assert digests(store.directory) == before
    assert load(store.directory / "best.pt").trainer["epoch"] == 1


def test_copies_are_as_good_as_links(store, monkeypatch):
    monkeypatch.setattr(durable.os, "link", refuse)
    store.save(content(2), ["last.pt", "best.pt"])
    assert [load(store.directory / name).trainer["epoch"] for name in ("last.pt", "best.pt")] == [2, 2]
    assert not list(store.directory.glob(".*"))


def test_what_cannot_be_removed_stays_with_a_warning(store, monkeypatch, caplog):
    monkeypatch.setattr("pathlib.Path.unlink", refuse)
    with caplog.at_level(logging.WARNING):
        store.remove(["step-00000010.pt"])
    assert "step-00000010.pt stays: no links here" in caplog.text
    assert load(store.directory / "step-00000010.pt").trainer["epoch"] == 1


def test_a_directory_that_takes_nothing_is_named_when_a_checkpoint_is_taken_over(
    store, tmp_path, monkeypatch
):
    target = CheckpointStore(tmp_path / "new")
    target.directory.mkdir()
    monkeypatch.setattr(durable.os, "link", refuse)
    monkeypatch.setattr(durable.shutil, "copyfile", refuse)
    with pytest.raises(CheckpointError, match=r"cannot be taken over as .*new.best\.pt"):
        target.adopt(store.directory / "best.pt", "best.pt", epoch=1, global_step=10)


@pytest.mark.parametrize("damage", ["newer", "foreign", "absent"])
def test_a_refusal_names_what_can_be_used(store, damage):
    path = store.directory / "last.pt"
    held = torch.load(path, weights_only=True)
    (store.directory / "index.json").rename(store.directory / "kept.json")
    path.unlink()  # best.pt is the same file
    if damage != "absent":
        torch.save({**held, "format": 5} if damage == "newer" else {"weights": 1}, path)
    text = (store.directory / "kept.json").read_text()
    (store.directory / "index.json").write_text(text.replace('"last.pt"', '"other.pt"'))
    with pytest.raises(CheckpointError, match=r"; usable: .*best\.pt \(epoch 1, step 10\)"):
        load(path)


def test_a_copy_for_the_thread_shares_no_container():
    held = {"seen": {1, 2}, "raw": bytearray(b"ab"), "nested": [{"set": {3}}]}
    copied = host_copy(held)
    held["seen"].add(9)
    held["raw"][0] = 0
    held["nested"][0]["set"].clear()
    assert copied == {"seen": {1, 2}, "raw": bytearray(b"ab"), "nested": [{"set": {3}}]}
