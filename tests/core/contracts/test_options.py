"""The base class of every options schema, and the types that plugins use in it."""

from __future__ import annotations

import json
import os

import pytest
from pydantic import Field, ValidationError

from support.odd import DemandingOptions, OddOptions
from trainlattice.contracts.options import (
    LocalPath,
    OptionError,
    Options,
    Probability,
    Shape,
    as_json,
    existing_directory,
    existing_file,
)


class Small(Options):
    number: float = 0.5
    count: int = 1
    flag: bool = False
    text: str = ""
    items: tuple[int, ...] = ()
    shape: Shape = (1,)
    share: Probability = 0.0
    place: LocalPath = "."


def read(**values) -> Small:
    return Small.model_validate_json(json.dumps(values))


@pytest.mark.parametrize(
    "values",
    [
        {"count": 1.0}, {"count": "1"}, {"count": True}, {"number": "0.5"}, {"number": True}, {"flag": 1},
        {"flag": "true"}, {"text": 1}, {"items": "12"}, {"items": [1.0]}, {"items": 1}, {"number": float("nan")},
        {"number": float("inf")}, {"unknown": 1}, {"shape": []}, {"shape": [0]}, {"shape": [1.5]},
        {"share": 1.0}, {"share": -0.1}, {"place": ""}, {"place": "a\0b"}, {"place": 3},
    ],
)  # fmt: skip
def test_types_are_strict_and_unknown_keys_forbidden(values):
    with pytest.raises(ValidationError):
        read(**values)


def test_an_integer_is_taken_where_a_number_is_expected_and_a_list_for_a_tuple():
    options = read(number=2, items=[1, 2], shape=[3, 4])
    assert (type(options.number), options.items, options.shape) == (float, (1, 2), (3, 4))


def test_options_are_immutable():
    with pytest.raises(ValidationError):
        read().count = 2


def test_a_default_is_checked_like_a_value():
    class Wrong(Options):
        share: Probability = 2.0

    with pytest.raises(ValidationError):
        Wrong()


def test_options_promise_nothing_by_themselves():
    assert read().contract() is None


def test_a_path_becomes_absolute_once(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/me")
    assert read(place="a/../b").place == os.path.join(str(tmp_path), "b")
    assert read(place="~/x").place == "/home/me/x"
    absolute = read(place="b").place
    monkeypatch.chdir("/")
    assert read(place=absolute).place == absolute


def test_as_json_writes_every_field_under_its_yaml_name():
    plain = as_json(OddOptions())
    assert json.loads(json.dumps(plain)) == plain
    assert plain["pair"] == [1, "a"]
    assert plain["color"] == "red"
    assert plain["day"] == "2024-02-29"
    assert "lambda" in plain
    assert "lambda_" not in plain


def test_as_json_is_read_back_as_the_same_options():
    options = OddOptions.model_validate_json('{"lambda": 2, "layers": [{"width": 3}], "color": "blue"}')
    assert OddOptions.model_validate_json(json.dumps(as_json(options))) == options


def test_options_without_defaults_are_all_required():
    with pytest.raises(ValidationError) as caught:
        DemandingOptions.model_validate_json("{}")
    assert {error["type"] for error in caught.value.errors()} == {"missing"}
    assert caught.value.error_count() == len(DemandingOptions.model_fields)


@pytest.mark.parametrize(
    ("option", "path"), [("root", ("root",)), (("files", 0), ("files", 0)), (["a", "b"], ("a", "b"))]
)
def test_an_option_error_knows_its_option_and_its_message(option, path):
    error = OptionError(option, "nope.csv does not exist")
    assert isinstance(error, ValueError)
    assert (error.option, error.message, str(error)) == (
        path,
        "nope.csv does not exist",
        "nope.csv does not exist",
    )


def test_an_existing_directory_and_file_are_returned(tmp_path):
    file = tmp_path / "a.txt"
    file.write_text("x")
    assert existing_directory("root", str(tmp_path)) == tmp_path
    assert existing_file("path", file) == file


@pytest.mark.parametrize(
    ("check", "name", "message"),
    [
        (existing_directory, "nope", "does not exist"),
        (existing_directory, "a.txt", "is not a directory"),
        (existing_file, "nope", "does not exist"),
        (existing_file, "", "is not a file"),
    ],
)
def test_what_is_missing_or_of_another_sort_is_an_error_of_the_option(tmp_path, check, name, message):
    (tmp_path / "a.txt").write_text("x")
    path = str(tmp_path / name) if name else str(tmp_path)
    with pytest.raises(OptionError) as caught:
        check("root", path)
    assert caught.value.option == ("root",)
    assert caught.value.message == f"{path} {message}"


def test_fields_take_the_descriptions_of_pydantic():
    class Described(Options):
        size: int = Field(1, description="How large.")

    assert Described.model_json_schema()["properties"]["size"]["description"] == "How large."
