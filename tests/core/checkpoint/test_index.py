"""The index of a directory of checkpoints."""

import json

import pytest

from trainlattice.checkpoint.index import Entry, read_index
from trainlattice.diagnostics.errors import CheckpointError


def test_a_directory_without_an_index_has_an_empty_one(tmp_path):
    assert read_index(tmp_path) == {}


def test_entries_are_read_in_their_order(tmp_path):
    entries = [
        {"sha256": "ab", "size": 1, "epoch": 2, "global_step": 3},
        {"sha256": "cd", "size": 4, "epoch": 1, "global_step": 2},
    ]
    (tmp_path / "index.json").write_text(json.dumps({"schema": 1, "files": {"last.pt": entries}}))
    assert read_index(tmp_path) == {"last.pt": [Entry("ab", 1, 2, 3), Entry("cd", 4, 1, 2)]}


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"files": []}', '{"files": {"last.pt": [{"size": 1}]}}', "\ufffd"]
)
def test_an_index_that_cannot_be_understood_is_named(tmp_path, text):
    (tmp_path / "index.json").write_text(text, encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"index\.json cannot be understood"):
        read_index(tmp_path)


def test_an_index_that_is_not_text_is_named(tmp_path):
    (tmp_path / "index.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CheckpointError, match=r"index\.json cannot be understood"):
        read_index(tmp_path)
