"""What a plain scalar means."""

from __future__ import annotations

import math

import pytest

from support.checking import typed
from trainlattice.diagnostics.yaml_scalars import ScalarError, resolve


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 1e-3),
        ("5e-4", 5e-4),
        ("1E-3", 1e-3),
        ("1.0e-3", 1e-3),
        (".001", 1e-3),
        ("1e3", 1000.0),
        ("1.e3", 1000.0),
        ("1E+6", 1e6),
        ("9e-1", 0.9),
        ("-1.5", -1.5),
        ("+2.5", 2.5),
        ("-0.0", -0.0),
        ("3.", 3.0),
        ("01.5", 1.5),
        ("1e400", math.inf),
        (".inf", math.inf),
        ("-.inf", -math.inf),
    ],
)
def test_a_float_is_written_with_a_point_or_an_exponent(text, value):
    assert typed(resolve(text)) == typed(value)


def test_nan_is_a_float():
    assert math.isnan(resolve(".nan"))


@pytest.mark.parametrize(
    ("text", "value"), [("0", 0), ("-7", -7), ("+7", 7), ("123456789012345678901", 123456789012345678901)]
)
def test_an_integer_is_decimal_digits(text, value):
    assert typed(resolve(text)) == typed(value)


@pytest.mark.parametrize(("text", "value"), [("0x1F", 31), ("0o17", 15)])
def test_hexadecimal_and_octal_integers_carry_their_prefix(text, value):
    assert typed(resolve(text)) == typed(value)


@pytest.mark.parametrize(("text", "value"), [("true", True), ("false", False)])
def test_true_and_false_are_the_booleans(text, value):
    assert resolve(text) is value


@pytest.mark.parametrize("text", ["", "~", "null"])
def test_nothing_tilde_and_null_are_null(text):
    assert resolve(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "yes", "no", "on", "off", "y", "n", "True", "FALSE", "None", "Null", "NULL",
        "010", "-08", "00", "1_000", "1_1_1", "0b101", "0X1F", "0x", "0o8",
        "12:30", "1:30:00", "190:20:30.15", "2024-01-01", "2024-01-01T00:00:00Z",
        "1e", "e5", "1e5.5", ".", "-", "+", "--1", "1.2.3", ".e5", "inf", "nan", "infinity", "NaN", ".Inf", ".NaN",
        "695e0514x", "1 000", "١٢٣", "１", "½", "=", "<<",
    ],
)  # fmt: skip
def test_everything_else_is_a_string(text):
    assert typed(resolve(text)) == typed(text)


def test_a_number_with_too_many_digits_is_refused_by_name():
    with pytest.raises(ScalarError, match="4001 digits"):
        resolve("9" * 4001)
