"""Writes plain data as YAML that :mod:`yaml_reader` reads back equal, in value and in type."""

from __future__ import annotations

from typing import Any

import yaml

from trainlattice.diagnostics.nodes import Plain
from trainlattice.diagnostics.yaml_scalars import ScalarError, resolve


class _Writer(yaml.SafeDumper):
    """Quotes every string that our reader would take for something else, and gives no aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_sequence(self, tag: str, sequence: Any, flow_style: bool | None = None) -> Any:
        return super().represent_sequence(
            tag, sequence, flow_style=not any(isinstance(item, (list, dict)) for item in sequence)
        )


def _string(writer: _Writer, text: str) -> yaml.ScalarNode:
    try:
        plain = isinstance(resolve(text), str)
    except ScalarError:
        plain = False
    # Double quotes escape whatever a plain or block style would lose (line ends, control characters).
    safe = plain and text.isprintable() and text == text.strip() and text != "<<"
    node: yaml.ScalarNode = writer.represent_scalar(
        "tag:yaml.org,2002:str", text, style=None if safe else '"'
    )
    return node


def _float(writer: _Writer, number: float) -> yaml.ScalarNode:
    if number != number or number in (float("inf"), float("-inf")):
        raise ValueError(f"{number} cannot be written: configurations hold finite numbers only")
    mantissa, exponent, power = repr(number).partition("e")
    # PyYAML knows 1.0e-08 for a float, and would put a tag before 1e-08.
    text = f"{mantissa}.0{exponent}{power}" if exponent and "." not in mantissa else repr(number)
    node: yaml.ScalarNode = writer.represent_scalar("tag:yaml.org,2002:float", text)
    return node


_Writer.add_representer(str, _string)
_Writer.add_representer(float, _float)


def write_string(data: Plain) -> str:
    """YAML text with the keys in the order given; a list of single values stands on one line.

    :raises ValueError: for nan and inf.
    """
    text: str = yaml.dump(
        data, Dumper=_Writer, sort_keys=False, allow_unicode=True, width=2**16, default_flow_style=False
    )
    return text
