"""What a plain YAML scalar means here: the JSON-like part of YAML 1.2's core schema.

``1e-3`` is a float; only ``true`` and ``false`` are booleans; only ``null``, ``~`` and nothing are null;
``010``, ``1_000``, ``12:30`` and ``2024-01-01`` are strings. The loader and the writer share these rules,
so what is written reads back as the same value of the same type.
"""

from __future__ import annotations

import re

_INT = re.compile(r"[-+]?(0|[1-9][0-9]*)|0x[0-9a-fA-F]+|0o[0-7]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*|0[0-9]+(?=[.eE]))(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_SPECIAL = {
    "": None,
    "~": None,
    "null": None,
    "true": True,
    "false": False,
    ".inf": float("inf"),
    "+.inf": float("inf"),
    "-.inf": float("-inf"),
    ".nan": float("nan"),
}
MOST_DIGITS = 4000  # CPython refuses to convert more than 4,300


class ScalarError(ValueError):
    """A number that cannot be represented."""


def resolve(text: str) -> bool | int | float | str | None:
    """The value of a plain (unquoted) scalar. Raises ScalarError for a number with too many digits."""
    if text in _SPECIAL:
        return _SPECIAL[text]
    if _INT.fullmatch(text):
        if len(text) > (MOST_DIGITS if text[:2] not in ("0x", "0o") else MOST_DIGITS * 3 // 4):
            raise ScalarError(f"an integer of {len(text)} digits is too long")
        return int(text, 0) if text[:2] in ("0x", "0o") else int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text
