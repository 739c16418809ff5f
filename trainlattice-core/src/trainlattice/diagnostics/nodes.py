"""The tree that a YAML text becomes: typed values that know where they stand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from trainlattice.diagnostics.source import Mark

Plain: TypeAlias = "bool | int | float | str | list[Plain] | dict[str, Plain] | None"
Path: TypeAlias = "tuple[str | int, ...]"


@dataclass(frozen=True)
class Scalar:
    """A single value.

    :param value: what the text means.
    :param text: the text as written, without quotes.
    """

    value: bool | int | float | str | None
    text: str
    mark: Mark


@dataclass(frozen=True)
class Sequence:
    items: tuple[Node, ...]
    mark: Mark


@dataclass(frozen=True)
class Entry:
    """One key of a mapping with its value."""

    key_mark: Mark
    node: Node


@dataclass(frozen=True)
class Mapping:
    entries: dict[str, Entry]
    mark: Mark


Node = Scalar | Sequence | Mapping


def to_plain(node: Node) -> Plain:
    """Fresh dicts, lists and values. The size is bounded by the loader, aliases included."""
    if isinstance(node, Mapping):
        return {key: to_plain(entry.node) for key, entry in node.entries.items()}
    if isinstance(node, Sequence):
        return [to_plain(item) for item in node.items]
    return node.value


def from_plain(value: Plain, mark: Mark, path: Path = ()) -> Node:
    """A tree for data that came from Python; every node stands at the one mark.

    :raises TypeError: for what YAML could not hold: other types, keys that are no strings, 100 levels.
    """
    where = dotted(path) or "the configuration"
    if len(path) > 100:
        raise TypeError(f"{dotted(path[:3])}... has more than 100 levels, or holds itself")
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"{where} has the key {key!r}: keys are strings")
        return Mapping({k: Entry(mark, from_plain(v, mark, (*path, k))) for k, v in value.items()}, mark)
    if isinstance(value, (list, tuple)):
        return Sequence(tuple(from_plain(v, mark, (*path, i)) for i, v in enumerate(value)), mark)
    if value is not None and type(value) not in (bool, int, float, str):
        raise TypeError(f"{where} is a {type(value).__name__}: a configuration holds plain numbers and text")
    if type(value) is int and value.bit_length() > 13_000:
        raise TypeError(f"{where} is an integer of too many digits")
    return Scalar(value, str(value), mark)


def child(node: Node, part: str | int) -> Node | None:
    """The value at one key or index, or None if there is none."""
    if isinstance(node, Mapping):
        entry = node.entries.get(str(part))
        return entry.node if entry else None
    if isinstance(node, Sequence) and isinstance(part, int) and 0 <= part < len(node.items):
        return node.items[part]
    return None


def dotted(path: Path) -> str:
    """``("callbacks", 0, "lr")`` as ``callbacks.0.lr``."""
    return ".".join(str(part) for part in path)


def describe(node: Node) -> str:
    """How a message names a value: its YAML type and, if short, the value."""
    if isinstance(node, Mapping):
        return "a mapping"
    if isinstance(node, Sequence):
        return "a list"
    value, text = node.value, node.text if len(node.text) <= 40 else node.text[:37] + "..."
    if value is None:
        return "nothing (null)"
    if isinstance(value, bool):
        return f"the boolean {text}"
    if isinstance(value, str):
        return f"the string {text!r}"
    return f"the number {text}"
