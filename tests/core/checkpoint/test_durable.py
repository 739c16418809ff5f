"""Files that are replaced as a whole."""

import hashlib
import os

import pytest

from trainlattice.checkpoint import durable


def test_a_digest_is_sha256_and_size_also_over_several_blocks(tmp_path):
    content = b"trainlattice" * 300_000  # 3.6 MB
    (tmp_path / "f").write_bytes(content)
    assert durable.digest(tmp_path / "f") == (hashlib.sha256(content).hexdigest(), len(content))


def test_a_text_is_replaced_and_nothing_else_is_left(tmp_path):
    path = tmp_path / "f.json"
    durable.write_durably(path, "one")
    durable.write_durably(path, "zwei ü")
    assert path.read_text(encoding="utf-8") == "zwei ü"
    assert [p.name for p in tmp_path.iterdir()] == ["f.json"]


def test_a_text_that_cannot_be_written_leaves_the_old_one(tmp_path):
    path = tmp_path / "f.json"
    durable.write_durably(path, "old")
    with pytest.raises(UnicodeEncodeError):
        durable.write_durably(path, "lone surrogate \ud800")
    assert path.read_text(encoding="utf-8") == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["f.json"]


def test_a_second_name_has_the_same_bytes_and_replaces_what_was_there(tmp_path):
    (tmp_path / "a").write_bytes(b"new")
    (tmp_path / "b").write_bytes(b"old")
    os.replace(durable.second_name(tmp_path / "a", tmp_path / "b"), tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == b"new"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b"]


def test_a_second_name_stays_when_the_first_is_replaced(tmp_path):
    durable.write_durably(tmp_path / "a", "one")
    os.replace(durable.second_name(tmp_path / "a", tmp_path / "b"), tmp_path / "b")
    durable.write_durably(tmp_path / "a", "two")
    assert (tmp_path / "b").read_text(encoding="utf-8") == "one"
