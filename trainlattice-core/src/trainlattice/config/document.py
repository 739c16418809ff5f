"""The tree that a configuration is checked from: a file, what it extends, and ``--set`` overrides."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from trainlattice.diagnostics import nodes
from trainlattice.diagnostics.diagnostic import Diagnostic
from trainlattice.diagnostics.errors import ConfigError, UsageError
from trainlattice.diagnostics.nodes import Entry, Mapping, Node, Scalar
from trainlattice.diagnostics.source import Mark, Source, display_path
from trainlattice.diagnostics.yaml_reader import MOST_LEVELS, read_file, read_string

OVERRIDE_SOURCE = "--set"
EXTENDS = "extends"
MOST_CHAINED = 20

KeptKeys = Callable[[str], frozenset[str]]
"""For a section: the keys that stay when a later file names another component in it."""


@dataclass
class Document:
    """A merged tree with the mistakes found so far."""

    root: Mapping
    diagnostics: list[Diagnostic] = field(default_factory=list)


def from_file(path: Path, overrides: Sequence[str], kept_keys: KeptKeys) -> Document:
    """Reads a file with what it extends. Raises ConfigError where no tree can be made."""
    reader = _Extending(kept_keys)
    root = reader.read(path, ())
    document = Document(root, reader.diagnostics)
    apply_overrides(document, overrides)
    return document


def from_mapping(config: dict[str, nodes.Plain], overrides: Sequence[str]) -> Document:
    """A configuration that was made in Python: mistakes are shown by their dotted path."""
    source = Source("the configuration", ())
    try:
        root = nodes.from_plain(config, Mark(source, 1, 1))
    except TypeError as error:
        raise UsageError(str(error)) from None
    if not isinstance(root, Mapping):
        raise UsageError(f"a configuration is a mapping, not {nodes.describe(root)}")
    document = Document(root)
    apply_overrides(document, overrides)
    return document


class _Extending:
    """Reads files depth first and each once; a later file wins over an earlier one, the extending over
    the extended."""

    def __init__(self, kept_keys: KeptKeys) -> None:
        self.kept_keys = kept_keys
        self.diagnostics: list[Diagnostic] = []
        self.known: dict[Path, Mapping] = {}
        self.files_read = 0

    def read(self, path: Path, chain: tuple[Path, ...], named_at: Mark | None = None) -> Mapping:
        real = _real(path)
        if real in self.known:
            return self.known[real]
        self.files_read += 1
        try:
            root, diagnostics = read_file(path, order=self.files_read)
        except ConfigError as error:
            raise _named_at(error, named_at) from None
        self.diagnostics += diagnostics
        if not isinstance(root, Mapping):
            message = f"the top level must be a mapping of sections, not {nodes.describe(root)}"
            fault = Diagnostic("not-a-mapping", message, root.mark, whole_file=True)
            raise _named_at(ConfigError([fault]), named_at)
        chain = (*chain, real)
        merged: Mapping | None = None
        for base_path, mark in self.bases(root, path):
            wrong = None
            if _real(base_path) in chain:
                names = " -> ".join(display_path(p) for p in (*chain, _real(base_path)))
                wrong = Diagnostic("extends-cycle", f"extends goes in a circle: {names}", mark, path=EXTENDS)
            elif len(chain) > MOST_CHAINED:
                message = f"extends goes through more than {MOST_CHAINED} files"
                wrong = Diagnostic("extends-too-long", message, mark, path=EXTENDS)
            if wrong is not None:
                raise ConfigError([wrong])
            base = self.read(base_path, chain, mark)
            merged = base if merged is None else self.merge(merged, base)
        own = Mapping({k: e for k, e in root.entries.items() if k != EXTENDS}, root.mark)
        self.known[real] = own if merged is None else self.merge(merged, own)
        return self.known[real]

    def bases(self, root: Mapping, path: Path) -> list[tuple[Path, Mark]]:
        entry = root.entries.get(EXTENDS)
        if entry is None:
            return []
        items = entry.node.items if isinstance(entry.node, nodes.Sequence) else (entry.node,)
        found = []
        for item in items:
            if isinstance(item, Scalar) and isinstance(item.value, str) and item.value:
                found.append((path.parent / os.path.expanduser(item.value), item.mark))
            else:
                self.diagnostics.append(
                    Diagnostic(
                        "wrong-type",
                        f"expected a file name or a list of them, got {nodes.describe(item)}",
                        item.mark,
                        path=EXTENDS,
                    )
                )
        return found

    def merge(self, base: Mapping, over: Mapping) -> Mapping:
        entries = dict(base.entries)
        for section, entry in over.entries.items():
            below = entries.get(section)
            if below is not None:
                base_node = expanded(below.node) if isinstance(entry.node, Mapping) else below.node
                entry = Entry(entry.key_mark, _merge(base_node, entry.node, self.kept_keys(section)))
            entries[section] = entry
        return Mapping(entries, over.mark)


def _real(path: Path) -> Path:
    try:
        return Path(os.path.realpath(path))
    except ValueError:  # a NUL in the path: reading it says so
        return path


def _named_at(error: ConfigError, mark: Mark | None) -> ConfigError:
    """The error of a file that another one extends, with the place that names it."""
    if mark is None:
        return error
    first = error.diagnostics[0]
    message = f"{first.mark}: {first.message}" if first.mark else first.message
    return ConfigError([Diagnostic(first.code, message, mark, path=EXTENDS)])


def _merge(base: Node, over: Node, kept: frozenset[str]) -> Node:
    """Mappings key by key; everything else is replaced. Where ``over`` names another component, the
    options of the first one do not apply to it and only the keys that core reads are kept."""
    if isinstance(base, Mapping) and "name" in base.entries:
        over = expanded(over)
    if not (isinstance(base, Mapping) and isinstance(over, Mapping)):
        return over
    entries = dict(base.entries)
    ours, theirs = _name(base), _name(over)
    if theirs is not None and ours is not None and not _same_component(ours, theirs):
        entries = {key: entry for key, entry in entries.items() if key in kept}
    for key, entry in over.entries.items():
        below = entries.get(key)
        entries[key] = entry if below is None else Entry(entry.key_mark, _merge(below.node, entry.node, kept))
    return Mapping(entries, over.mark)


def _name(mapping: Mapping) -> str | None:
    node = nodes.child(mapping, "name")
    return node.text if isinstance(node, Scalar) else None


def _same_component(one: str, other: str) -> bool:
    """``mlp`` may well be ``models:mlp``; a name that is not so is reported later."""
    if ":" in one and ":" in other:
        return one == other
    return one.rpartition(":")[2] == other.rpartition(":")[2]


def expanded(node: Node) -> Node:
    """``optimizer: sgd`` as ``optimizer: {name: sgd}``; anything else as it is."""
    if isinstance(node, Scalar) and isinstance(node.value, str):
        return Mapping({"name": Entry(node.mark, node)}, node.mark)
    return node


def apply_overrides(document: Document, overrides: Iterable[str]) -> None:
    """Sets the value at each ``KEY=VALUE``, in the order given. The value is YAML; where the field that it
    sets is a string, it is taken as written."""
    texts = tuple(overrides)
    source = Source(OVERRIDE_SOURCE, texts)
    for line, text in enumerate(texts, start=1):
        key, equals, value = text.partition("=")
        mark = Mark(source, line, 1, max(1, len(key)), order=10_000)
        parts = key.strip().split(".")
        if not equals or not all(parts) or len(parts) > MOST_LEVELS:
            document.diagnostics.append(
                Diagnostic("override", "an override has the form KEY=VALUE, such as optimizer.lr=3e-4", mark)
            )
            continue
        if any("\ud800" <= c <= "\udfff" for c in text):  # bytes of the command line that were no UTF-8
            document.diagnostics.append(Diagnostic("override", "an override must be UTF-8 text", mark))
            continue
        value_mark = Mark(source, line, len(key) + 2, max(1, len(value)), order=10_000)
        node, diagnostics = _value_node(value, value_mark)
        document.diagnostics += [
            replace(found, mark=value_mark, path=key, related=()) for found in diagnostics
        ]
        fault = _set(document, parts, mark, node)
        if fault is not None:
            document.diagnostics.append(Diagnostic("override", fault, mark, path=key))


def _value_node(text: str, mark: Mark) -> tuple[Node, list[Diagnostic]]:
    """The value as YAML. A single value that YAML would take only a part of (``a #1``) is a string."""
    typed = text.strip() or text
    as_string = Scalar(typed, typed, mark)
    try:
        root, diagnostics = read_string(f"v: {text}" if text.strip() else "v:", name=OVERRIDE_SOURCE)
    except ConfigError:
        return as_string, []
    value = nodes.child(root, "v")
    if value is None or len(getattr(root, "entries", ())) != 1:
        return as_string, []
    if not isinstance(value, Scalar):
        return _marked(value, mark), diagnostics
    quoted = len(typed) > 1 and typed[0] in "'\"" and typed[-1] == typed[0]
    whole = quoted or value.text == text.strip()
    return (Scalar(value.value, typed, mark) if whole and not diagnostics else as_string), []


def _marked(node: Node, mark: Mark) -> Node:
    """The same tree with every node at the override's place."""
    if isinstance(node, Mapping):
        return Mapping({k: Entry(mark, _marked(e.node, mark)) for k, e in node.entries.items()}, mark)
    if isinstance(node, nodes.Sequence):
        return nodes.Sequence(tuple(_marked(item, mark) for item in node.items), mark)
    return Scalar(node.value, node.text, mark)


def _set(document: Document, parts: list[str], mark: Mark, value: Node) -> str | None:
    """Puts the value into the tree; why that is impossible, or None."""

    def place(node: Node | None, depth: int) -> Node:
        if depth == len(parts):
            return value
        part = parts[depth]
        where = ".".join(parts[:depth])
        if isinstance(node, nodes.Sequence):
            if not (part.isascii() and part.isdecimal() and len(part) < 10) or int(part) >= len(node.items):
                raise LookupError(f"{where} is a list of {len(node.items)}: {part!r} is no index into it")
            items = list(node.items)
            items[int(part)] = place(items[int(part)], depth + 1)
            return nodes.Sequence(tuple(items), node.mark)
        if node is None or (isinstance(node, Scalar) and node.value is None):
            node = Mapping({}, mark)
        node = expanded(node)
        if not isinstance(node, Mapping):
            raise LookupError(f"{where} is {nodes.describe(node)}, which has no {part!r}")
        below = node.entries.get(part)
        entries = dict(node.entries)
        entries[part] = Entry(mark, place(below.node if below else None, depth + 1))
        return Mapping(entries, node.mark)

    try:
        root = place(document.root, 0)
    except LookupError as error:
        return str(error.args[0])
    assert isinstance(root, Mapping)
    document.root = root
    return None
