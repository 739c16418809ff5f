"""Reads YAML into a tree of values with positions, strictly and within bounds.

Works on PyYAML's event stream, so that depth, size and alias expansion are bounded while reading, and
nothing is ever constructed that the text does not spell out. Refused: duplicate keys (both places are
shown), tags other than YAML's own plain ones, several documents, more than 256 KiB, more than 100,000
values after alias expansion (a long text counts as several), more than 100 levels, aliases inside their
own anchor.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import yaml

from trainlattice.diagnostics.diagnostic import Diagnostic
from trainlattice.diagnostics.errors import ConfigError
from trainlattice.diagnostics.nodes import Entry, Mapping, Node, Scalar, Sequence
from trainlattice.diagnostics.source import Mark, Source, display_path
from trainlattice.diagnostics.yaml_scalars import ScalarError, resolve

MOST_BYTES = 256 * 1024
MOST_VALUES = 100_000
MOST_LEVELS = 100
CHARACTERS_PER_VALUE = 100  # an alias repeats the text of its anchor too: long texts count as more values

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's scanner is ten times faster
_PLAIN_TAGS = {f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null", "seq", "map")}


def read_text(path: Path) -> str:
    """The text of a configuration file. Raises ConfigError in one line if it cannot be read."""
    name = display_path(path)
    try:
        with open(path, "rb") as file:
            data = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        _refuse("no-such-file", f"{name}: no such file")
    except IsADirectoryError:
        _refuse("not-a-file", f"{name} is a directory, expected a YAML file")
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        _refuse("unreadable", f"{name} cannot be read: {reason}")
    if len(data) > MOST_BYTES:
        _refuse("too-large", f"{name} is larger than {MOST_BYTES // 1024} KiB; it is no configuration file")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        hint = "; it looks like UTF-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else ""
        _refuse("not-utf8", f"{name}:{line} is not UTF-8 text (byte 0x{data[error.start]:02x}){hint}")


def read_file(path: Path, *, order: int = 0) -> tuple[Node, list[Diagnostic]]:
    """The tree of a file and the mistakes that leave a tree (duplicate keys).

    Raises ConfigError where no tree can be made.
    """
    return read_string(read_text(path), name=display_path(path), path=path, order=order)


def read_string(
    text: str, *, name: str, path: Path | None = None, order: int = 0
) -> tuple[Node, list[Diagnostic]]:
    """As :func:`read_file`, for a text."""
    source = Source(name, tuple(text.splitlines()), path)
    reader = _Reader(source, order)
    return reader.document(text), reader.diagnostics


def _refuse(code: str, message: str, mark: Mark | None = None) -> NoReturn:
    raise ConfigError([Diagnostic(code, message, mark, whole_file=True)]) from None


class _Reader:
    def __init__(self, source: Source, order: int) -> None:
        self.source = source
        self.order = order
        self.diagnostics: list[Diagnostic] = []
        self.events: Iterator[Any] = iter(())
        self.anchors: dict[str, Node | None] = {}  # None while the anchored value is being read
        self.sizes: dict[int, tuple[int, int]] = {}  # id of a collection -> values in it, levels below it
        self.values = 0

    def document(self, text: str) -> Node:
        try:
            self.events = yaml.parse(text, Loader=_Loader)
            next(self.events)  # stream start
            event = next(self.events)
            if isinstance(event, yaml.StreamEndEvent):
                _refuse(
                    "empty", f"{self.source.name} is empty; a configuration has at least model and dataset"
                )
            root = self.node(next(self.events), 0)
            next(self.events)  # document end
            event = next(self.events)
        except yaml.YAMLError as error:
            self.syntax_error(error, text)
        except UnicodeEncodeError:  # only text that did not come from a file
            _refuse("not-unicode", f"{self.source.name}: a lone surrogate is not a character")
        if not isinstance(event, yaml.StreamEndEvent):
            _refuse("two-documents", "a second YAML document begins here; a file holds one", self.mark(event))
        return root

    def mark(self, event: Any) -> Mark:
        start, end = event.start_mark, event.end_mark
        width = end.column - start.column if end.line == start.line else 1
        return Mark(self.source, start.line + 1, start.column + 1, max(1, width), self.order)

    def node(self, event: Any, level: int) -> Node:
        mark = self.mark(event)
        if isinstance(event, yaml.AliasEvent):
            return self.alias(str(event.anchor), mark, level)
        if level > MOST_LEVELS:
            _refuse("too-deep", f"more than {MOST_LEVELS} levels of nesting", mark)
        self.count(1, mark)
        if event.anchor is not None:
            self.anchors[event.anchor] = None
        self.check_tag(event, mark)
        before = self.values
        node: Node
        if isinstance(event, yaml.ScalarEvent):
            node = self.scalar(event, mark)
            levels = 0
        elif isinstance(event, yaml.SequenceStartEvent):
            node, levels = self.sequence(mark, level)
        else:
            node, levels = self.mapping(mark, level)
        self.sizes[id(node)] = (1 + self.values - before, levels)
        if event.anchor is not None:
            self.anchors[event.anchor] = node
        return node

    def check_tag(self, event: Any, mark: Mark) -> None:
        allowed = _PLAIN_TAGS
        if isinstance(event, yaml.SequenceStartEvent):
            allowed = {"tag:yaml.org,2002:seq"}
        elif isinstance(event, yaml.MappingStartEvent):
            allowed = {"tag:yaml.org,2002:map"}
        if event.tag not in (None, "!") and event.tag not in allowed:
            self.diagnostics.append(
                Diagnostic(
                    "tag",
                    f"the tag {event.tag!r} is not supported; YAML here names no Python objects",
                    mark,
                )
            )

    def alias(self, anchor: str, mark: Mark, level: int) -> Node:
        node = self.anchors.get(anchor)
        if node is None:
            if anchor in self.anchors:
                _refuse("self-reference", f"the alias *{anchor} stands inside its own anchor", mark)
            _refuse("yaml-syntax", f"the alias *{anchor} has no anchor &{anchor} above it", mark)
        size, levels = self.sizes[id(node)]
        self.count(size, mark)
        if level + levels > MOST_LEVELS:
            _refuse("too-deep", f"more than {MOST_LEVELS} levels of nesting through aliases", mark)
        return node

    def count(self, values: int, mark: Mark) -> None:
        self.values += values
        if self.values > MOST_VALUES:
            _refuse(
                "too-many-values",
                f"more than {MOST_VALUES:,} values, aliases expanded ({CHARACTERS_PER_VALUE} characters of "
                "text count as one)",
                mark,
            )

    def scalar(self, event: Any, mark: Mark) -> Scalar:
        text: str = event.value
        self.count(len(text) // CHARACTERS_PER_VALUE, mark)
        if any("\ud800" <= c <= "\udfff" for c in text):
            self.diagnostics.append(Diagnostic("not-unicode", "a lone surrogate is not a character", mark))
            return Scalar("", "", mark)
        plain = event.implicit[0] and event.tag is None
        try:
            value = resolve(text) if plain else self.tagged(event.tag, text)
        except ScalarError as error:
            self.diagnostics.append(Diagnostic("number", str(error), mark))
            value = 0
        return Scalar(value, text, mark)

    @staticmethod
    def tagged(tag: str | None, text: str) -> bool | int | float | str | None:
        if tag is None or tag in ("!", "tag:yaml.org,2002:str"):
            return text
        return resolve(text)

    def sequence(self, mark: Mark, level: int) -> tuple[Sequence, int]:
        items: list[Node] = []
        levels = 0
        while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
            items.append(self.node(event, level + 1))
            levels = max(levels, 1 + self.levels(items[-1]))
        return Sequence(tuple(items), mark), levels

    def levels(self, node: Node) -> int:
        return self.sizes[id(node)][1]

    def mapping(self, mark: Mark, level: int) -> tuple[Mapping, int]:
        entries: dict[str, Entry] = {}
        merged: dict[str, Entry] = {}
        levels = 0
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            key_mark = self.mark(event)
            if not isinstance(event, yaml.ScalarEvent):
                _refuse("yaml-syntax", "a key must be plain text", key_mark)
            self.check_tag(event, key_mark)
            scalar = self.scalar(event, key_mark)
            key = scalar.text
            if event.anchor is not None:
                self.anchors[event.anchor] = scalar
                self.sizes[id(scalar)] = (1 + len(key) // CHARACTERS_PER_VALUE, 0)
            is_merge = key == "<<" and event.implicit[0]
            node = self.node(next(self.events), level + 1)
            levels = max(levels, 1 + self.levels(node))
            if is_merge:
                self.merge(node, merged)
            elif key in entries:
                first = entries[key].key_mark
                self.diagnostics.append(
                    Diagnostic(
                        "duplicate-key",
                        f"{key!r} is given twice in one mapping",
                        key_mark,
                        path=key,
                        related=(("first given here", first),),
                    )
                )
            else:
                entries[key] = Entry(key_mark, node)
        return Mapping({**merged, **entries}, mark), levels

    def merge(self, node: Node, into: dict[str, Entry]) -> None:
        """``<<: *base`` or ``<<: [*a, *b]``: keys of the mapping itself win, then earlier ones."""
        for mapping in node.items if isinstance(node, Sequence) else (node,):
            if not isinstance(mapping, Mapping):
                self.diagnostics.append(Diagnostic("yaml-syntax", "'<<' merges mappings only", mapping.mark))
                continue
            for key, entry in mapping.entries.items():
                into.setdefault(key, entry)

    def syntax_error(self, error: yaml.YAMLError, text: str) -> NoReturn:
        place = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
        if place is None:
            position = getattr(error, "position", 0) or 0
            if issubclass(_Loader, yaml.SafeLoader):
                before = text[:position]
            else:  # libyaml counts bytes
                before = text.encode()[:position].decode(errors="ignore")
            lines = f"{before}.".splitlines()
            line, column = len(lines), len(lines[-1])
            character = getattr(error, "character", None)
            if isinstance(character, int):
                problem = f"{problem} (U+{character:04X})"
        else:
            line, column = place.line + 1, place.column + 1
            begin = getattr(error, "context_mark", None)
            if begin is not None and begin.line < place.line:
                problem = (
                    f"{problem} ({getattr(error, 'context', '')}, which begins on line {begin.line + 1})"
                )
        mark = Mark(self.source, line, column, 1, self.order)
        if mark.text[:column].lstrip(" ").startswith("\t"):
            problem = "a tab cannot indent YAML; use spaces"
        _refuse("yaml-syntax", problem, mark)
