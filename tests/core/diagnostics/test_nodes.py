"""The tree of values with positions."""

from __future__ import annotations

import pytest

from trainlattice.diagnostics import nodes
from trainlattice.diagnostics.source import Mark, Source
from trainlattice.diagnostics.yaml_reader import read_string

PLAIN = {"a": {"b": [1, 2.5, None, True, "text"]}, "c": []}


def tree(text: str) -> nodes.Node:
    return read_string(text, name="t.yaml")[0]


def test_plain_data_becomes_a_tree_and_back():
    mark = Mark(Source("python", ()), 1, 1)
    node = nodes.from_plain(PLAIN, mark)
    assert nodes.to_plain(node) == PLAIN
    assert node.mark == mark


def test_plain_data_of_a_text_is_fresh_each_time():
    node = tree("a: {b: [1, 2.5, null, true, text]}\nc: []\n")
    first, second = nodes.to_plain(node), nodes.to_plain(node)
    assert first == second == PLAIN
    first["a"]["b"].append(3)
    assert second == PLAIN


def test_a_child_is_found_by_key_and_by_index():
    node = tree("a:\n- x\n- y\n")
    items = nodes.child(node, "a")
    assert nodes.to_plain(nodes.child(items, 1)) == "y"
    for part in (2, -1, "x"):
        assert nodes.child(items, part) is None
    assert nodes.child(node, "b") is None
    assert nodes.child(nodes.child(items, 0), 0) is None


def test_a_path_is_dotted():
    assert nodes.dotted(("callbacks", 0, "lr")) == "callbacks.0.lr"
    assert nodes.dotted(()) == ""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{a: 1}", "a mapping"),
        ("[a]", "a list"),
        ("~", "nothing (null)"),
        ("true", "the boolean true"),
        ("'18'", "the string '18'"),
        ("1e-3", "the number 1e-3"),
        ("x" * 50, "the string '" + "x" * 37 + "...'"),
    ],
)
def test_a_message_names_a_value_by_its_type(text, words):
    assert nodes.describe(tree(text)) == words
