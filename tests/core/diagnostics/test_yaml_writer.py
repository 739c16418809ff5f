"""What is written reads back equal, in value and in type."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from support.checking import typed
from trainlattice.diagnostics import nodes
from trainlattice.diagnostics.yaml_reader import read_string
from trainlattice.diagnostics.yaml_writer import write_string

# Every character that YAML can hold: lone surrogates are none.
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
lookalikes = st.one_of(
    st.from_regex(r"[-+]?[0-9_]{1,5}([.:][0-9]{1,3})?([eE][-+]?[0-9]{1,3})?", fullmatch=True),
    st.sampled_from(
        ["1E6", "695e0514", "no", "yes", "010", "0x1F", "0o7", "12:30", "2024-01-01", "1_000", "null", "~", "",
         ".nan", ".inf", "-.inf", "true", "True", "<<", "=", "-", "?", ":", "- a", "a: b", "#x", "a #b", "*a",
         "&a", "!x", "%x", "@x", "`x", "'", '"', "[", "]", "{", "}", ",", "|", ">", " a", "a ", "\t", "\n",
         "a\nb", "a\r\nb", "a\n\n\nb", "\n a", "---", "...", "--- a", "\x85", "\u2028", "\ufeff", "\xa0", "\x00"]
    ),
)  # fmt: skip
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=-(10**100), max_value=10**100),
    st.floats(allow_nan=False, allow_infinity=False),
    texts,
    lookalikes,
)
keys = st.one_of(texts, lookalikes)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=12,
)


def reread(text: str) -> nodes.Plain:
    node, diagnostics = read_string(text, name="t.yaml")
    assert diagnostics == []
    return nodes.to_plain(node)


@settings(deadline=None)
@given(st.dictionaries(keys, values, max_size=4))
@example({"a": ["1E6", "695e0514", "no", "010", "2024-01-01", "two\nlines", 1e-05]})
@example({"x" * 200: {"y" * 1500: "word " * 400}})
@example({"a": " ".join(["word"] * 20_000)})
@example({"a": [5e-324, 1.7976931348623157e308, 1e16, 1e22, 0.1 + 0.2, -0.0, 0.0, 1.0, 1, True]})
def test_any_content_survives_in_value_type_and_order(data):
    text = write_string(data)
    assert typed(reread(text)) == typed(data)
    assert list(reread(text)) == list(data)
    assert write_string(reread(text)) == text


def test_a_plain_word_has_no_quotes_and_a_lookalike_has():
    assert write_string({"a": "mlp", "b": "1e3", "c": "yes", "d": "true", "e": "models:mlp"}) == (
        'a: mlp\nb: "1e3"\nc: \'yes\'\nd: "true"\ne: models:mlp\n'
    )


def test_a_value_that_stands_twice_is_written_twice():
    shared = {"x": [1]}
    assert write_string({"a": shared, "b": shared}) == "a:\n  x: [1]\nb:\n  x: [1]\n"


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_is_not_finite_is_not_written(number):
    with pytest.raises(ValueError, match="finite"):
        write_string({"a": [number]})
