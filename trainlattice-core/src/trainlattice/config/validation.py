"""Checks a part of the tree against an options schema; every mistake becomes a diagnostic at its place."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError

from trainlattice.config.document import OVERRIDE_SOURCE
from trainlattice.contracts.options import Options, as_json
from trainlattice.diagnostics import nodes
from trainlattice.diagnostics.diagnostic import Diagnostic
from trainlattice.diagnostics.errors import PluginError
from trainlattice.diagnostics.hints import closest
from trainlattice.diagnostics.nodes import Entry, Mapping, Node, Path, Scalar
from trainlattice.diagnostics.source import Mark

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

OptionsT = TypeVar("OptionsT", bound=Options)

_EXPECTED = {
    "int_type": "an integer",
    "int_parsing": "an integer",
    "int_from_float": "an integer",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "float_type": "a number",
    "float_parsing": "a number",
    "string_type": "a string",
    "list_type": "a list",
    "tuple_type": "a list",
    "set_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "none_required": "null",
    "finite_number": "a finite number",
}


def validate(
    schema: type[OptionsT], node: Mapping, path: Path, *, owner: str, at: Mark, help_line: str | None = None
) -> tuple[OptionsT | None, list[Diagnostic]]:
    """Validates the entries of a mapping, strictly, as JSON text.

    :param owner: what the options belong to, for messages: ``model 'models:mlp'`` or ``the section trainer``.
    :param at: where a missing option is reported.
    :param help_line: a note under an unknown option.
    :returns: the options, or None with at least one diagnostic.
    """
    errors = _errors(schema, node, owner)
    if isinstance(errors, list) and (retyped := _text_overrides(node, errors)) is not None:
        node = retyped
        errors = _errors(schema, node, owner)
    if not isinstance(errors, list):
        return errors, []
    report = _Report(schema, node, path, owner, at, help_line)
    return None, _merged(report.diagnostic(error) for error in _meant(node, errors))


def _meant(node: Mapping, errors: list[ErrorDetails]) -> list[ErrorDetails]:
    """Without what the members of a union say that take another type: a mapping that has a mistake inside was not
    meant to be a string."""
    places = [(error, *_walk(node, error["loc"])) for error in errors]

    def looks_inside(error: ErrorDetails, where: Path, place: Path) -> bool:
        return where[: len(place)] == place and (len(where) > len(place) or error["type"] not in _EXPECTED)

    return [
        error
        for error, place, found in places
        if isinstance(found, Scalar)
        or error["type"] not in _EXPECTED
        or error["loc"][-1:] == ("[key]",)
        or not any(looks_inside(other, where, place) for other, where, _ in places)
    ]


def _errors(schema: type[OptionsT], node: Mapping, owner: str) -> OptionsT | list[ErrorDetails]:
    try:
        # JSON text in strict mode: lists become tuples and names become enums, but "18", 1.0 and true
        # are no integers. Python data in strict mode would refuse a list where a tuple is declared.
        return schema.model_validate_json(json.dumps(nodes.to_plain(node)))
    except ValidationError as error:
        return error.errors(include_url=False)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a validator of a plugin raised something else than ValueError
        raise PluginError(
            f"the options of {owner} cannot be checked: a validator of {schema.__name__} raised "
            f"{type(error).__name__}: {error}; validators raise ValueError for a value that they refuse"
        ) from error


def unreadable_options(options: Options) -> str | None:
    """Why a run directory could not hold these options, or None: what is written must read back the same."""
    schema = type(options)
    try:
        text = json.dumps(as_json(options), allow_nan=False)
        text.encode()
        again = schema.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        return f"{nodes.dotted(first['loc'])}: {first['msg']}"
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever a plugin's serializer raises
        return f"{type(error).__name__}: {error}"
    changed = [name for name in schema.model_fields if getattr(again, name) != getattr(options, name)]
    return f"{', '.join(changed)} would come back changed" if changed else None


def _text_overrides(node: Mapping, errors: list[ErrorDetails]) -> Mapping | None:
    """The tree with every ``--set`` value that should have been a string taken as it was typed."""
    result: Node = node
    for error in errors:
        where, found = _walk(node, error["loc"])
        if error["type"] == "string_type" and found.mark.source.name == OVERRIDE_SOURCE:
            if isinstance(found, Scalar):
                result = _replaced(result, where, Scalar(found.text, found.text, found.mark))
            elif _walk(node, where[:-1])[1].mark != found.mark:  # not a part of the value that was typed
                text = found.mark.text[found.mark.column - 1 :].strip()
                result = _replaced(result, where, Scalar(text, text, found.mark))
    return result if result is not node and isinstance(result, Mapping) else None


def _replaced(node: Node, path: Path, leaf: Scalar) -> Node:
    if not path:
        return leaf
    part, rest = path[0], path[1:]
    if isinstance(node, Mapping):
        entry = node.entries[str(part)]
        return Mapping(
            {**node.entries, str(part): Entry(entry.key_mark, _replaced(entry.node, rest, leaf))}, node.mark
        )
    assert isinstance(node, nodes.Sequence)
    assert isinstance(part, int)
    items = list(node.items)
    items[part] = _replaced(items[part], rest, leaf)
    return nodes.Sequence(tuple(items), node.mark)


def _walk(node: Node, location: Iterable[str | int]) -> tuple[Path, Node]:
    """Follows a pydantic location as far as the tree goes. Unions add parts that name a type and are no
    key of the tree: they are passed over."""
    path: Path = ()
    for part in location:
        below = nodes.child(node, part)
        if below is not None:
            node, path = below, (*path, part)
    return path, node


class _Report:
    def __init__(
        self, schema: type[Options], node: Mapping, path: Path, owner: str, at: Mark, help_line: str | None
    ) -> None:
        self.schema, self.node, self.path = schema, node, path
        self.owner, self.at, self.help_line = owner, at, help_line

    def diagnostic(self, error: ErrorDetails) -> Diagnostic:
        location = error["loc"]
        if location and location[-1] == "[key]":
            return self.wrong_key(location, error)
        kind, context = error["type"], error.get("ctx", {})
        where, found = _walk(self.node, location)
        if kind == "missing":
            return self.missing(where, found, str(location[-1]))
        if kind == "extra_forbidden":
            return self.unknown(where, found)
        path = nodes.dotted((*self.path, *where))
        mark = found.mark if where else self.at
        if location and not where:  # nothing that the user wrote
            fault = f"the default of the option {str(location[0])!r} of {self.owner} is not valid"
            message = f"{fault}: {_sentence(error['msg'])}"
            return Diagnostic("broken-plugin", message, mark, path, notes=self.notes())
        if kind in ("value_error", "assertion_error"):
            return Diagnostic("invalid-value", _sentence(str(context.get("error", error["msg"]))), mark, path)
        if kind in ("literal_error", "enum"):
            suggestion = None
            if isinstance(found, Scalar) and isinstance(found.value, str):
                match = closest(found.value, _quoted(context.get("expected", "")))
                suggestion = f"did you mean {match!r}?" if match else None
            return Diagnostic(
                "invalid-value",
                f"expected {context.get('expected', 'another value')}, got {nodes.describe(found)}",
                mark,
                path,
                suggestion,
            )
        expected = _EXPECTED.get(kind)
        if expected is not None:
            code = "invalid-value" if kind == "finite_number" else "wrong-type"
            return Diagnostic(
                code, f"expected {expected}, got {nodes.describe(found)}", mark, path, _advice(kind, found)
            )
        if kind == "too_short" and context.get("actual_length") == 0:
            return Diagnostic(
                "invalid-value", f"expected at least {context['min_length']}, got none", mark, path
            )
        message = str(error["msg"]).replace("Input should be ", "expected a value ", 1)
        if isinstance(found, Scalar):
            message = f"{message}, got {nodes.describe(found)}"
        return Diagnostic("invalid-value", _sentence(message), mark, path)

    def wrong_key(self, location: Path, error: ErrorDetails) -> Diagnostic:
        """A key of a mapping whose keys have a type."""
        where, found = _walk(self.node, location[:-1])
        parent = _walk(self.node, where[:-1])[1]
        mark = (
            parent.entries[str(where[-1])].key_mark if where and isinstance(parent, Mapping) else found.mark
        )
        pattern = error.get("ctx", {}).get("pattern")
        other = f"text that matches {pattern!r}" if pattern else "another key"
        expected = _EXPECTED.get(error["type"], other)
        path = nodes.dotted((*self.path, *where))
        return Diagnostic("wrong-type", f"expected {expected} as the key, got {str(where[-1])!r}", mark, path)

    def missing(self, where: Path, found: Node, option: str) -> Diagnostic:
        mark = found.mark if where else self.at
        path = nodes.dotted((*self.path, *where, option))
        return Diagnostic(
            "missing-option", f"{self.owner} needs the option {option!r}", mark, path, notes=self.notes()
        )

    def unknown(self, where: Path, found: Node) -> Diagnostic:
        option = str(where[-1])
        parent: Node = self.node
        schema: Any = self.schema
        for part in where[:-1]:
            parent = nodes.child(parent, part) or parent
            schema = _field_schema(schema, part)
        mark = found.mark
        if isinstance(parent, Mapping) and option in parent.entries:
            mark = parent.entries[option].key_mark
        legal = sorted(field.alias or name for name, field in schema.model_fields.items()) if schema else []
        match = closest(option, legal)
        notes = (f"options: {', '.join(legal)}" if legal else "it has no options", *self.notes())
        owner = self.owner if len(where) == 1 else f"{nodes.dotted((*self.path, *where[:-1]))}"
        return Diagnostic(
            "unknown-option",
            f"unknown option {option!r} for {owner}",
            mark,
            nodes.dotted((*self.path, *where)),
            f"did you mean {match!r}?" if match else None,
            notes,
        )

    def notes(self) -> tuple[str, ...]:
        return (self.help_line,) if self.help_line else ()


def _field_schema(schema: Any, part: str | int) -> type[Options] | None:
    """The Options class inside a field's annotation, for the names of nested options."""
    if schema is None:
        return None
    if isinstance(part, int):
        return schema if isinstance(schema, type) else None
    field = next((f for name, f in schema.model_fields.items() if str(part) in (name, f.alias)), None)
    if field is None:  # a key of a mapping whose values have the schema
        return schema if isinstance(schema, type) else None
    pending: list[Any] = [field.annotation]
    while pending:
        annotation = pending.pop()
        if isinstance(annotation, type) and issubclass(annotation, Options):
            return annotation
        pending += getattr(annotation, "__args__", ())
    return None


def _merged(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """One diagnostic for each place: the members of a union each report the same value."""
    by_place: dict[tuple[str, str], Diagnostic] = {}
    for found in diagnostics:
        known = by_place.get((found.path, found.code))
        if known is None:
            by_place[found.path, found.code] = found
        elif known.message != found.message and ", got " in known.message and ", got " in found.message:
            first, _, got = known.message.rpartition(", got ")
            also = found.message.rpartition(", got ")[0].removeprefix("expected ")
            by_place[found.path, found.code] = Diagnostic(
                known.code,
                f"{first} or {also}, got {got}",
                known.mark,
                known.path,
                known.suggestion,
                known.notes,
            )
    return list(by_place.values())


def _advice(kind: str, found: Node) -> str | None:
    if not isinstance(found, Scalar) or not isinstance(found.value, str):
        return "quote it to make it a string" if kind == "string_type" and isinstance(found, Scalar) else None
    text = found.value.strip()
    if kind.startswith("bool") and text.lower() in ("true", "yes", "on", "1"):
        return "write true"
    if kind.startswith("bool") and text.lower() in ("false", "no", "off", "0"):
        return "write false"
    if kind.startswith(("int", "float")):
        try:
            float(text.replace("_", ""))
        except ValueError:
            return None
        plain = re.sub(r"^([-+]?)0+(?=[0-9])", r"\1", text.replace("_", ""))
        return f"write {plain}" if plain != text else "remove the quotes"
    return None


def _quoted(expected: str) -> list[str]:
    """The names in pydantic's ``'a', 'b' or 'c'``."""
    return expected.split("'")[1::2]


def _sentence(message: str) -> str:
    return message.removeprefix("Value error, ").strip() or "the value is refused, without a reason"
