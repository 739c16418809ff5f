"""Reading YAML: what is refused, what stands where, and the bounds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from support.checking import write
from trainlattice.diagnostics import nodes
from trainlattice.diagnostics.errors import ConfigError
from trainlattice.diagnostics.yaml_reader import read_file, read_string


def refused(text: str | bytes, directory: Path) -> str:
    """The one line that says why a file cannot be read."""
    path = write(directory, text)
    with pytest.raises(ConfigError) as caught:
        read_file(path)
    assert caught.value.exit_code == 2
    (line,) = caught.value.render().splitlines()
    assert line.count("c.yaml") >= 1
    return line.replace(str(path), "c.yaml")


def plain(text: str) -> nodes.Plain:
    node, diagnostics = read_string(text, name="t.yaml")
    assert diagnostics == []
    return nodes.to_plain(node)


def complaints(text: str) -> list[tuple[str, str]]:
    """Place and message of mistakes that leave a tree."""
    return [(str(found.mark), found.message) for found in read_string(text, name="t.yaml")[1]]


# --- files -------------------------------------------------------------------------------------------


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError) as caught:
        read_file(tmp_path / "nope.yaml")
    assert caught.value.render() == f"error[no-such-file]: {tmp_path}/nope.yaml: no such file"


def test_a_directory_is_no_file(tmp_path):
    with pytest.raises(ConfigError) as caught:
        read_file(tmp_path)
    assert caught.value.render() == f"error[not-a-file]: {tmp_path} is a directory, expected a YAML file"


@pytest.mark.parametrize("name", ["c.yaml/below.yaml", "nul\0.yaml", "n" * 300 + ".yaml"])
def test_a_path_that_no_file_can_have_is_one_line(tmp_path, name):
    write(tmp_path, "a: 1\n")
    with pytest.raises(ConfigError) as caught:
        read_file(tmp_path / name)
    assert len(caught.value.render().splitlines()) == 1
    assert "cannot be read" in caught.value.render()


@pytest.mark.skipif(not hasattr(os, "symlink"), reason="no symbolic links here")
def test_a_link_to_itself_is_one_line(tmp_path):
    (tmp_path / "loop.yaml").symlink_to("loop.yaml")
    with pytest.raises(ConfigError) as caught:
        read_file(tmp_path / "loop.yaml")
    assert "loop.yaml cannot be read" in caught.value.render()


@pytest.mark.parametrize("text", ["", "\n\n", "# only\n# comments\n", "\ufeff", "   "])
def test_a_file_without_content_is_empty(tmp_path, text):
    assert "c.yaml is empty" in refused(text, tmp_path)


def test_a_byte_order_mark_is_accepted_and_shifts_no_column(tmp_path):
    node, _ = read_file(write(tmp_path, b"\xef\xbb\xbfa: 1\n"))
    assert nodes.to_plain(node) == {"a": 1}
    assert node.entries["a"].key_mark.column == 1
    assert node.entries["a"].node.mark.column == 4
    assert node.mark.text == "a: 1"


def test_a_file_that_is_not_utf8_is_refused_with_its_line(tmp_path):
    assert "c.yaml:2 is not UTF-8 text (byte 0xfc)" in refused(b"a: 1\nb: gr\xfcn\n", tmp_path)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf16_is_refused(tmp_path, encoding):
    line = refused("model: mlp\n".encode(encoding), tmp_path)
    assert ("looks like UTF-16" in line) == (encoding == "utf-16")


def test_a_nul_is_refused_at_its_place_counted_in_characters(tmp_path):
    line = refused("ä: 日本語\nb: x\0y\n", tmp_path)
    assert "c.yaml:2:5: " in line
    assert "U+0000" in line


def test_a_file_of_256_kib_is_read_and_one_byte_more_is_refused(tmp_path):
    text = b"a: 1\n#" + b"x" * (256 * 1024 - 6)
    assert nodes.to_plain(read_file(write(tmp_path, text))[0]) == {"a": 1}
    assert "c.yaml is larger than 256 KiB" in refused(text + b"x", tmp_path)


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_every_line_end_counts_one_line(line_end):
    node, _ = read_string(f"a: 1{line_end}b:{line_end}  c: 2{line_end}", name="t.yaml")
    mark = node.entries["b"].node.entries["c"].node.mark
    assert (mark.line, mark.column, mark.text) == (3, 6, "  c: 2")


# --- syntax ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "place"),
    [("a:\n\tb: 1\n", "2:1"), ("a:\n  b: 1\n\tc: 2\n", "3:1"), ("a:\n  - {b: 1,\n\t  c: [}\n", "3:")],
)
def test_a_tab_as_indentation_is_refused_in_our_words(tmp_path, text, place):
    line = refused(text, tmp_path)
    assert f"c.yaml:{place}" in line
    assert "a tab cannot indent YAML; use spaces" in line


def test_a_tab_inside_a_string_is_text():
    assert plain('a: "x\ty"\n') == {"a": "x\ty"}


def test_two_documents_are_refused_at_the_second(tmp_path):
    line = refused("a: 1\n---\nb: 2\n", tmp_path)
    assert line == "error[two-documents]: c.yaml:2:1: a second YAML document begins here; a file holds one"


def test_the_marks_of_a_single_document_are_accepted():
    assert plain("%YAML 1.2\n---\na: 1\n...\n") == {"a": 1}


@pytest.mark.parametrize(
    ("text", "place", "begins"),
    [
        ("a: [1, 2\nb: 3\n", "2:2", 1),
        ("x: 1\na: {b: 1\nc: 3\n", "3:2", 2),
        ("x: 1\na: 'text\nb: 3\n", "4:1", 2),
        ("a:\n  - x\n  b: 1\n", "3:3", 2),
    ],
)
def test_a_syntax_error_shows_its_place_and_where_the_broken_part_begins(tmp_path, text, place, begins):
    line = refused(text, tmp_path)
    assert f"error[yaml-syntax]: c.yaml:{place}: " in line
    assert f"begins on line {begins})" in line


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a: b: c\n", "1:5"),
        ("a: @x\n", "1:4"),
        ("a: 1\n? [b]\n: 2\n", "2:3"),
        ("a: 1\n{b: 1}: 2\n", "2:1"),
        ("a: *nowhere\n", "1:4"),
        ("a: 1\n  b: 2\n", "2:4"),
    ],
)
def test_other_syntax_errors_are_one_line_with_their_place(tmp_path, text, place):
    assert f"error[yaml-syntax]: c.yaml:{place}: " in refused(text, tmp_path)


# --- duplicate keys and tags -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "second", "first"),
    [
        ("a: 1\nb: 2\na: 3\n", "t.yaml:3:1", "t.yaml:1:1"),
        ("x:\n  y:\n    - a: 1\n      b: 2\n      a: 1\n", "t.yaml:5:7", "t.yaml:3:7"),
        ("x: {a: 1, 'a': 2}\n", "t.yaml:1:11", "t.yaml:1:5"),
        ('a: 1\n"\\x61": 2\n', "t.yaml:2:1", "t.yaml:1:1"),
    ],
)
def test_a_duplicate_key_shows_both_places_at_any_depth(text, second, first):
    (found,) = read_string(text, name="t.yaml")[1]
    assert (found.code, str(found.mark)) == ("duplicate-key", second)
    assert found.message == "'a' is given twice in one mapping"
    assert [(label, str(mark)) for label, mark in found.related] == [("first given here", first)]
    assert f"first given here: {first}" in found.render()


def test_a_key_that_is_given_three_times_is_reported_twice():
    assert [place for place, _ in complaints("a: 1\na: 2\na: 3\n")] == ["t.yaml:2:1", "t.yaml:3:1"]


def test_the_same_key_in_two_mappings_is_no_duplicate():
    assert plain("x: {a: 1}\ny: {a: 2}\n") == {"x": {"a": 1}, "y": {"a": 2}}


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a: !!python/object/apply:os.system ['x']\n", "t.yaml:1:4"),
        ("a: !mine 3\n", "t.yaml:1:4"),
        ("a:\n  - !!timestamp 2024-01-01\n", "t.yaml:2:5"),
        ("a: !!binary aGk=\n", "t.yaml:1:4"),
        ("a: !!set {x, y}\n", "t.yaml:1:4"),
        ("!!python/name:os.system a: 1\n", "t.yaml:1:1"),
        ("!mine\na: 1\n", "t.yaml:1:1"),
    ],
)
def test_a_custom_tag_is_a_mistake_at_its_place(text, place):
    ((where, message),) = complaints(text)
    assert where == place
    assert message.endswith("is not supported; YAML here names no Python objects")


def test_a_tag_of_plain_yaml_says_what_a_value_is():
    assert plain("a: !!str 1\nb: !!int '2'\nc: !!float 3e0\nd: ! 4\ne: !!map {}\n") == {
        "a": "1",
        "b": 2,
        "c": 3.0,
        "d": "4",
        "e": {},
    }


def test_quoted_and_block_text_is_always_a_string():
    text = "a: '1e-3'\nb: \"true\"\nc: |\n  1\nd: >-\n  null\n"
    assert plain(text) == {"a": "1e-3", "b": "true", "c": "1\n", "d": "null"}


def test_keys_are_strings_whatever_they_look_like():
    assert plain("1: a\ntrue: b\n1e-3: c\n~: d\n") == {"1": "a", "true": "b", "1e-3": "c", "~": "d"}


def test_a_number_with_too_many_digits_is_a_mistake_at_its_place():
    ((place, message),) = complaints("a: 1\nb: " + "9" * 5000 + "\n")
    assert place == "t.yaml:2:4"
    assert "5000 digits" in message


@pytest.mark.parametrize("text", ['a: "\\ud800"\n', "a: \ud800\n", "\ud800: 1\n"])
def test_a_lone_surrogate_is_refused(text):
    try:
        _, diagnostics = read_string(text, name="t.yaml")
    except ConfigError as error:
        diagnostics = list(error.diagnostics)
    assert len(diagnostics) == 1


# --- anchors and merge keys --------------------------------------------------------------------------


def test_an_alias_repeats_the_value_of_its_anchor():
    assert plain("a: &x {b: [1]}\nc: *x\nd: [*x, *x]\n") == {
        "a": {"b": [1]},
        "c": {"b": [1]},
        "d": [{"b": [1]}, {"b": [1]}],
    }


def test_a_merge_key_gives_way_to_the_keys_beside_it():
    assert plain("base: &b {lr: 1, eps: 2}\no:\n  lr: 3\n  <<: *b\n")["o"] == {"lr": 3, "eps": 2}


def test_of_several_merged_mappings_the_first_wins():
    text = "a: &a {x: 1}\nb: &b {x: 2, y: 2}\nc: {<<: [*a, *b], z: 3}\n"
    assert plain(text)["c"] == {"x": 1, "y": 2, "z": 3}


def test_a_merged_value_stands_where_its_anchor_stands():
    node, _ = read_string("base: &b\n  lr: 1\no:\n  <<: *b\n  eps: 2\n", name="t.yaml")
    merged = nodes.child(node, "o").entries
    assert str(merged["lr"].key_mark) == "t.yaml:2:3"
    assert str(merged["lr"].node.mark) == "t.yaml:2:7"
    assert str(merged["eps"].node.mark) == "t.yaml:5:8"


def test_a_quoted_merge_key_is_an_ordinary_key():
    assert plain('"<<": {a: 1}\n') == {"<<": {"a": 1}}


@pytest.mark.parametrize("text", ["o: {<<: 3}\n", "o: {<<: [{a: 1}, x]}\n"])
def test_only_mappings_are_merged(text):
    ((_, message),) = complaints(text)
    assert message == "'<<' merges mappings only"


# --- bounds ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["x: &x {y: *x}\n", "a: &a [*a]\n", "&r\na: {b: [1, *r]}\n"])
def test_an_alias_inside_its_own_anchor_is_refused(tmp_path, text):
    assert "stands inside its own anchor" in refused(text, tmp_path)


def test_nested_aliases_are_refused_before_they_expand(tmp_path):
    names = "abcdefghi"
    text = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in pairwise(names)
    )
    assert "more than 100,000 values, aliases expanded" in refused(text, tmp_path)


@pytest.mark.parametrize("anchor", ["'{}'", "{{? '{}' : 1}}"], ids=["value", "key"])
def test_an_alias_of_a_long_text_counts_as_many_values(tmp_path, anchor):
    text = f"a: &a {anchor.format('s' * 100_000)}\nb: [{', '.join(['*a'] * 200)}]\n"
    assert "more than 100,000 values" in refused(text, tmp_path)


def test_a_long_list_within_the_bounds_is_read():
    assert len(plain("a: [" + "1," * 90_000 + "]\n")["a"]) == 90_000


@pytest.mark.parametrize(
    "text",
    [
        "[" * 130_000,
        "a: " + "{a: " * 60_000,
        "- " * 120_000,
        "".join("  " * level + "a:\n" for level in range(400)),
        "a0: &a0 [1]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 200)),
    ],
    ids=["flow lists", "flow mappings", "block lists", "block mappings", "aliases"],
)
def test_deep_nesting_is_refused_in_one_line(tmp_path, text):
    line = refused(text, tmp_path)
    assert "levels of nesting" in line or "nesting depth" in line


def test_a_hundred_levels_are_read():
    node = plain("[" * 100 + "1" + "]" * 100)
    for _ in range(100):
        (node,) = node
    assert node == 1


# --- libyaml or not ----------------------------------------------------------------------------------

BOTH = [
    "a: 1\nb: [x, 1e-3, {c: null}]\n",
    "a: 1\na: 2\n",
    "a: ä\nb: x\0\n",
    "a:\n\tb: 1\n",
    "a: 1\n---\nb: 2\n",
    "x: &x {y: *x}\n",
    "日本: [*nowhere]\n",
    "a: &a {b: 1}\nc: {<<: *a, b: 2}\n",
    "a: !x 3\n",
    "# nothing\n",
]
READ = """
import json, sys
if sys.argv[1] == "python":
    import yaml
    del yaml.CSafeLoader
from trainlattice.diagnostics import nodes, yaml_reader
from trainlattice.diagnostics.errors import ConfigError
for text in json.load(sys.stdin):
    try:
        node, found = yaml_reader.read_string(text, name="t.yaml")
        result = nodes.to_plain(node)
    except ConfigError as error:
        result, found = None, error.diagnostics
    print(json.dumps([result, [(d.code, str(d.mark)) for d in found]]))
"""


@pytest.mark.skipif(not hasattr(yaml, "CSafeLoader"), reason="PyYAML was built without libyaml")
def test_without_libyaml_the_same_is_read_and_refused_at_the_same_places():
    outputs = []
    for loader in ("libyaml", "python"):
        done = subprocess.run(
            [sys.executable, "-c", READ, loader],
            input=json.dumps(BOTH),
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        outputs.append(done.stdout.splitlines())
    assert len(outputs[0]) == len(BOTH)
    assert outputs[0] == outputs[1]
