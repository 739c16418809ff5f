"""The index of a directory of checkpoints."""

import json

import pytest

from trainlattice.checkpoint.index import Entry, index_fault, read_index


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
def test_an_index_that_cannot_be_understood_stands_for_none_with_a_warning(tmp_path, caplog, text):
    (tmp_path / "index.json").write_text(text, encoding="utf-8")
    assert read_index(tmp_path) == {}
    assert "index.json cannot be understood" in caplog.text
    assert index_fault(tmp_path).startswith("cannot be understood (")


def test_an_index_that_is_not_text_stands_for_none_too(tmp_path, caplog):
    (tmp_path / "index.json").write_bytes(b"\xff\xfe\x00")
    assert read_index(tmp_path) == {}
    assert "index.json cannot be understood" in caplog.text
