"""One component's options: every mistake at its place, in nested options, lists, mappings and unions too."""

from __future__ import annotations

import pytest
from pydantic import field_validator

from support.checking import mistake, mistakes, places, resolved, write
from support.odd import odd_registry
from trainlattice.config.validation import validate
from trainlattice.contracts.options import Options
from trainlattice.diagnostics.errors import PluginError
from trainlattice.diagnostics.nodes import Entry, Mapping, Scalar
from trainlattice.diagnostics.source import Mark, Source


@pytest.fixture(scope="module")
def registry():
    return odd_registry()


def odd(tmp_path, options: str, name: str = "odd"):
    """A configuration whose model has these options, which begin on line 3."""
    return write(tmp_path, f"model:\n  name: {name}\n{options}dataset: data\n")


@pytest.mark.parametrize(
    ("option", "value", "column", "message"),
    [
        ("count", "'18'", 10, "expected an integer, got the string '18'"),
        ("count", "18.0", 10, "expected an integer, got the number 18.0"),
        ("count", "true", 10, "expected an integer, got the boolean true"),
        ("count", "[1]", 10, "expected an integer, got a list"),
        ("count", "", 9, "expected an integer, got nothing (null)"),
        ("number", "true", 11, "expected a number, got the boolean true"),
        ("number", "'1e-3'", 11, "expected a number, got the string '1e-3'"),
        ("number", "1_000", 11, "expected a number, got the string '1_000'"),
        ("number", ".nan", 11, "expected a finite number, got the number .nan"),
        ("number", "-.inf", 11, "expected a finite number, got the number -.inf"),
        ("number", "1e999", 11, "expected a finite number, got the number 1e999"),
        ("flag", "yes", 9, "expected true or false, got the string 'yes'"),
        ("flag", "1", 9, "expected true or false, got the number 1"),
        ("text", "3", 9, "expected a string, got the number 3"),
        ("text", "1e3", 9, "expected a string, got the number 1e3"),
        ("text", "{a: b}", 9, "expected a string, got a mapping"),
        ("words", "abc", 10, "expected a list, got the string 'abc'"),
        ("table", "[a]", 10, "expected a mapping, got a list"),
        ("inner", "3", 10, "expected a mapping, got the number 3"),
        ("day", "tomorrow", 8, None),
        ("choice", "gamma", 11, "expected 'alpha', 'beta' or '1e3', got the string 'gamma'"),
        ("choice", "1e3", 11, "expected 'alpha', 'beta' or '1e3', got the number 1e3"),
        ("color", "green", 10, "expected 'red' or 'blue', got the string 'green'"),
        ("either", "1.5", 11, "expected an integer or a string, got the number 1.5"),
        ("maybe", "3", 10, "expected a string, got the number 3"),
        ("place", "''", 10, None),
        ("place", '"a\\0b"', 10, "a path cannot hold the character NUL"),
    ],
)
def test_a_wrong_type_is_shown_at_the_value(tmp_path, registry, option, value, column, message):
    found = mistake(odd(tmp_path, f"  {option}: {value}\n"), registry=registry)
    assert places([found]) == [(f"c.yaml:3:{column}", f"model.{option}")]
    assert found.code in ("wrong-type", "invalid-value")
    if message is not None:
        assert found.message == message


@pytest.mark.parametrize(
    ("option", "value", "advice"),
    [
        ("count", "'18'", "remove the quotes"),
        ("count", "018", "write 18"),
        ("number", "'0.1'", "remove the quotes"),
        ("count", "1_000", "write 1000"),
        ("number", "'1e-3'", "remove the quotes"),
        ("number", "abc", None),
        ("flag", "yes", "write true"),
        ("flag", "'off'", "write false"),
        ("text", "1e3", "quote it to make it a string"),
        ("choice", "alfa", "did you mean 'alpha'?"),
        ("color", "bleu", "did you mean 'blue'?"),
    ],
)
def test_advice_stands_beside_the_caret(tmp_path, registry, option, value, advice):
    found = mistake(odd(tmp_path, f"  {option}: {value}\n"), registry=registry)
    assert found.suggestion == advice


@pytest.mark.parametrize(
    ("options", "place"),
    [
        ("  words: [a, 2, c]\n", ("c.yaml:3:14", "model.words.1")),
        ("  words:\n  - a\n  - b\n  - 3\n", ("c.yaml:6:5", "model.words.2")),
        ("  numbers: [1, x]\n", ("c.yaml:3:16", "model.numbers.1")),
        ("  pair: [a, b]\n", ("c.yaml:3:10", "model.pair.0")),
        ("  pair: [1, 2]\n", ("c.yaml:3:13", "model.pair.1")),
        ("  table: {a: 1, b: [2]}\n", ("c.yaml:3:20", "model.table.b")),
        ("  inner: {width: 0}\n", ("c.yaml:3:18", "model.inner.width")),
        ("  inner:\n    width: 1\n    bias: 1\n", ("c.yaml:5:11", "model.inner.bias")),
        ("  layers:\n  - {width: 1}\n  - {width: x}\n", ("c.yaml:5:13", "model.layers.1.width")),
        ("  layers: [{width: 1}, 3]\n", ("c.yaml:3:24", "model.layers.1")),
        ("  groups: {a: {width: 1}, b: {width: -1}}\n", ("c.yaml:3:38", "model.groups.b.width")),
        ("  schedule: {kind: cosine, steps: x}\n", ("c.yaml:3:35", "model.schedule.steps")),
        ("  schedule: {kind: steps, at: [1, 0]}\n", ("c.yaml:3:35", "model.schedule.at.1")),
        ("  schedule: {kind: linear}\n", ("c.yaml:3:13", "model.schedule")),
        ("  lambda: x\n", ("c.yaml:3:11", "model.lambda")),
    ],
)  # fmt: skip
def test_a_mistake_inside_a_value_is_shown_at_the_innermost_place(tmp_path, registry, options, place):
    assert places([mistake(odd(tmp_path, options), registry=registry)]) == [place]


@pytest.mark.parametrize("value", ["[1]", "[1, a, b]", "[]"])
def test_a_tuple_has_its_length(tmp_path, registry, value):
    for found in mistakes(odd(tmp_path, f"  pair: {value}\n"), registry=registry):
        assert found.path.startswith("model.pair")


@pytest.mark.parametrize(
    ("options", "place", "message", "suggestion"),
    [
        ("  contu: 1\n", ("c.yaml:3:3", "model.contu"), "unknown option 'contu' for model 'odd:odd'",
         "did you mean 'count'?"),
        ("  inner: {widht: 1, width: 2}\n", ("c.yaml:3:11", "model.inner.widht"),
         "unknown option 'widht' for model.inner", "did you mean 'width'?"),
        ("  layers:\n  - width: 1\n  - width: 1\n    bais: true\n", ("c.yaml:6:5", "model.layers.1.bais"),
         "unknown option 'bais' for model.layers.1", "did you mean 'bias'?"),
        ("  groups: {a: {width: 1, bais: 2}}\n", ("c.yaml:3:26", "model.groups.a.bais"),
         "unknown option 'bais' for model.groups.a", "did you mean 'bias'?"),
        ("  lambda_: 1.0\n", ("c.yaml:3:3", "model.lambda_"), "unknown option 'lambda_' for model 'odd:odd'",
         "did you mean 'lambda'?"),
        ('  "a b": 1\n', ("c.yaml:3:3", "model.a b"), "unknown option 'a b' for model 'odd:odd'", None),
    ],
)  # fmt: skip
def test_an_unknown_option_is_shown_at_its_key(tmp_path, registry, options, place, message, suggestion):
    found = mistake(odd(tmp_path, options), registry=registry)
    assert found.code == "unknown-option"
    assert places([found]) == [place]
    assert (found.message, found.suggestion) == (message, suggestion)


def test_an_unknown_option_lists_the_options_there_are(tmp_path, registry):
    assert mistake(odd(tmp_path, "  inner: {width: 1, zebra: 2}\n"), registry=registry).notes == (
        "options: bias, width",
        "(trainlattice plugins info odd:odd)",
    )
    assert mistake(odd(tmp_path, "  zebra: 2\n", "any"), registry=registry).notes == (
        "it has no options",
        "(trainlattice plugins info odd:any)",
    )


def test_a_missing_option_is_shown_where_the_component_is_named(tmp_path, registry):
    found = mistakes(odd(tmp_path, "", "demanding"), registry=registry)
    assert {diagnostic.code for diagnostic in found} == {"missing-option"}
    assert places(found)[:2] == [("c.yaml:2:9", "model.pair"), ("c.yaml:2:9", "model.level")]
    assert len(found) == 11
    assert found[0].message == "model 'odd:demanding' needs the option 'pair'"


def test_a_missing_option_of_nested_options_is_shown_at_them(tmp_path, registry):
    found = mistake(odd(tmp_path, "  layers:\n  - width: 1\n  - bias: true\n"), registry=registry)
    assert places([found]) == [("c.yaml:5:5", "model.layers.1.width")]


def test_all_mistakes_of_a_component_are_shown_in_the_order_of_the_file(tmp_path, registry):
    path = odd(tmp_path, "  text: 1\n  zebra: 1\n  words: [1, a, 2]\n  flag: 1\n  inner: {bias: 3}\n")
    assert places(mistakes(path, registry=registry)) == [
        ("c.yaml:3:9", "model.text"),
        ("c.yaml:4:3", "model.zebra"),
        ("c.yaml:5:11", "model.words.0"),
        ("c.yaml:5:17", "model.words.2"),
        ("c.yaml:6:9", "model.flag"),
        ("c.yaml:7:10", "model.inner.width"),
        ("c.yaml:7:17", "model.inner.bias"),
    ]


def test_a_check_of_several_options_together_is_shown_where_the_component_is_named(tmp_path):
    path = write(tmp_path, "model:\n  name: cnn\n  input_shape: [1, 30, 30]\ndataset: synthetic\n")
    found = mistake(path)
    assert places([found]) == [("c.yaml:2:9", "model")]
    assert found.message == ("2 blocks divide height and width by 4, and 30x30 is not divisible by it")


def test_a_wrong_default_of_a_plugin_is_laid_at_its_door(tmp_path, registry):
    found = mistake(odd(tmp_path, "", "wrong_default"), registry=registry)
    assert found.code == "broken-plugin"
    assert "the default of the option 'width' of model 'odd:wrong_default' is not valid" in found.message
    assert places([found]) == [("c.yaml:2:9", "model")]


def test_a_value_merged_from_an_anchor_is_wrong_at_the_anchor(tmp_path, registry):
    path = write(
        tmp_path, "model:\n  name: odd\n  inner: &i {width: 0}\n  layers:\n  - <<: *i\ndataset: data\n"
    )
    assert sorted(places(mistakes(path, registry=registry))) == [
        ("c.yaml:3:21", "model.inner.width"),
        ("c.yaml:3:21", "model.layers.0.width"),
    ]


def test_integers_are_taken_where_numbers_are_expected(tmp_path, registry):
    model = resolved(odd(tmp_path, "  number: 3\n  numbers: [1, -2]\n"), registry=registry)["model"]
    assert [type(value) for value in (model["number"], *model["numbers"])] == [float] * 3


def test_options_may_be_named_by_words_of_python(tmp_path, registry):
    assert resolved(odd(tmp_path, "  lambda: 2\n"), registry=registry)["model"]["lambda"] == 2.0


def test_a_validator_that_raises_something_odd_is_the_plugins_fault():
    class Raising(Options):
        size: int = 1

        @field_validator("size")
        @classmethod
        def _look_up(cls, value: int) -> int:
            return {}[value]

    source = Source("x", ("size: 3",))
    node = Mapping(
        {"size": Entry(Mark(source, 1, 1), Scalar(3, "3", Mark(source, 1, 7)))}, Mark(source, 1, 1)
    )
    with pytest.raises(PluginError, match=r"model 'acme:raising'.*KeyError"):
        validate(Raising, node, ("model",), owner="model 'acme:raising'", at=Mark(source, 1, 1))


@pytest.mark.parametrize(
    ("value", "path", "message"),
    [
        ("{a: {width: 0}}", "model.several.a.width", "expected a value greater than 0, got the number 0"),
        ("{a: {}}", "model.several.a.width", "model 'odd:one_or_several' needs the option 'width'"),
        ("{a: 3}", "model.several.a", "expected a mapping, got the number 3"),
        ("{}", "model.several", "expected at least 1, got none"),
        (
            "{a b: {width: 1}}",
            "model.several.a b",
            "expected text that matches '^[a-z]+$' as the key, got 'a b'",
        ),
        ("3", "model.several", "expected a string or a mapping, got the number 3"),
        ("[a]", "model.several", "expected a string or a mapping, got a list"),
    ],
)
def test_a_mapping_with_a_mistake_inside_is_not_told_to_be_a_string(tmp_path, registry, value, path, message):
    found = mistake(odd(tmp_path, f"  several: {value}\n", name="one_or_several"), registry=registry)
    assert (found.path, found.message) == (path, message)
