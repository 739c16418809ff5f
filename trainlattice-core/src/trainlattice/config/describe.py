"""What ``plugins info`` says: origin, options and an example, from the schema that checks them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import PydanticUndefined

from trainlattice.contracts.options import Options
from trainlattice.diagnostics.yaml_writer import write_string
from trainlattice.plugin.registration import Plugin
from trainlattice.plugin.registry import Registered, Registry, settings_class


@dataclass(frozen=True)
class OptionRow:
    """One option of a component.

    :param type: in words, such as ``integer >= 1``.
    :param default: as YAML, or None where the option is required.
    :param beside: whether core reads it, beside the component's own options.
    """

    name: str
    type: str
    default: str | None
    description: str
    beside: bool = False


@dataclass(frozen=True)
class Description:
    """A plugin or a component, explained."""

    title: str
    facts: dict[str, str]
    options: list[OptionRow] | None = None
    example: str = ""
    components: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        options = None if self.options is None else [vars(row) for row in self.options]
        return {**vars(self), "options": options}

    def as_text(self) -> str:
        lines = [self.title]
        width = max(map(len, self.facts), default=0)
        lines += [f"  {label:<{width}}  {text}" for label, text in self.facts.items() if text]
        if self.components:
            lines += ["", *(f"  {component}" for component in self.components)]
        if self.options is not None:
            lines += ["", *self._table()]
        if self.example:
            lines += ["", "example:", *(f"  {line}" for line in self.example.rstrip().splitlines())]
        return "\n".join(lines)

    def _table(self) -> Iterator[str]:
        if not self.options:
            yield "  no options"
            return
        cells = [("OPTION", "TYPE", "DEFAULT", "MEANING")]
        cells += [
            (row.name, row.type, "required" if row.default is None else row.default, row.description)
            for row in self.options
        ]
        widths = [max(len(row[column]) for row in cells) for column in range(3)]
        for row in cells:
            head = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False))
            yield f"  {head}  {row[3]}".rstrip()


def describe_plugin(plugin: Plugin, registry: Registry) -> Description:
    """Where a plugin comes from and what it provides."""
    provenance = plugin.provenance.as_json()
    facts = {
        "distribution": f"{plugin.distribution_name} {plugin.version}" if plugin.distribution_name else "",
        "status": f"broken: {plugin.broken}" if plugin.broken else "ok",
        "file": plugin.file or "",
        **{label: str(value) for label, value in provenance.items()},
    }
    theirs = [r for r in registry.components() if r.plugin is plugin]
    rows = [f"{r.kind.name:<10} {r.component.name:<16} {r.component.summary}".rstrip() for r in theirs]
    return Description(f"plugin {plugin.id}", facts, components=rows)


def describe_component(registered: Registered, registry: Registry) -> Description:
    """What a component is, its options and a block of YAML that validates.

    :raises PluginError: if its options cannot be imported.
    """
    component, kind = registered.component, registered.kind
    unique = len(registry.find(kind.name, component.name)) == 1
    facts = {
        "summary": component.summary,
        "qualified": registered.qualified,
        "provided by": str(registered.plugin),
        "source": " ".join(f"{k}={v}" for k, v in registered.plugin.provenance.as_json().items()),
        "target": component.target,
        "default": f"used where the section {kind.section!r} is silent" if component.default_for else "",
        "deprecated": component.deprecated or "",
    }
    options = sorted(_rows(registered.options_class), key=lambda row: row.default is not None)
    settings = settings_class(kind)
    if settings is not None:
        options += _rows(settings, beside=True)
    example = _example(registered, component.name if unique else registered.qualified)
    return Description(f"{kind.name} {component.name}", facts, options, example)


def _rows(schema: type[Options], *, beside: bool = False) -> Iterator[OptionRow]:
    json_schema = schema.model_json_schema()
    definitions = json_schema.get("$defs", {})
    for name, field_schema in json_schema.get("properties", {}).items():
        info = next(f for n, f in schema.model_fields.items() if name in (n, f.alias))
        default = None
        if not info.is_required():
            value = info.get_default(call_default_factory=True)
            plain = field_schema.get("default", None if value is PydanticUndefined else value)
            default = json.dumps(plain, ensure_ascii=False, default=str)
        yield OptionRow(name, _type(field_schema, definitions), default, info.description or "", beside)


_BOUNDS = (
    ("minimum", ">="),
    ("exclusiveMinimum", ">"),
    ("maximum", "<="),
    ("exclusiveMaximum", "<"),
)


def _type(schema: dict[str, Any], definitions: dict[str, Any]) -> str:
    """A JSON Schema in words."""
    if "$ref" in schema:
        schema = definitions[schema["$ref"].rpartition("/")[2]]
    if "enum" in schema:
        return " | ".join(str(value) for value in schema["enum"])
    if "const" in schema:
        return str(schema["const"])
    members = schema.get("anyOf") or schema.get("oneOf")
    if members:
        return " or ".join(dict.fromkeys(_type(member, definitions) for member in members))
    name = str(schema.get("type", "any"))
    if name == "array":
        if "prefixItems" in schema:
            inner = ", ".join(_type(item, definitions) for item in schema["prefixItems"])
            return f"[{inner}]"
        return f"list of {_type(schema.get('items', {}), definitions)}"
    if name == "object":
        return "mapping"
    if name == "integer" and "exclusiveMinimum" in schema:
        schema = {**schema, "minimum": schema["exclusiveMinimum"] + 1}
        del schema["exclusiveMinimum"]
    bounds = " and ".join(f"{sign} {schema[key]:g}" for key, sign in _BOUNDS if key in schema)
    return f"{name} {bounds}".strip()


def _example(registered: Registered, name: str) -> str:
    """The section with every option at its first example, else its default; a required one gets a value of its
    type."""
    schema = registered.options_class
    block: dict[str, Any] = {"name": name}
    json_schema = schema.model_json_schema()
    required = json_schema.get("required", ())
    properties = sorted(json_schema.get("properties", {}).items(), key=lambda item: item[0] not in required)
    for option, field_schema in properties:
        info = next(f for n, f in schema.model_fields.items() if option in (n, f.alias))
        if info.examples:
            block[option] = info.examples[0]
        elif option in required:
            block[option] = _sample(field_schema, json_schema.get("$defs", {}))
        elif "default" in field_schema:
            block[option] = field_schema["default"]
    section = registered.kind.section
    return write_string({section: [block] if registered.kind.form == "list" else block})


def _sample(schema: dict[str, Any], definitions: dict[str, Any]) -> Any:
    """Some value that a schema accepts; a plugin states ``examples`` where the schema does not tell."""
    if "$ref" in schema:
        schema = definitions[schema["$ref"].rpartition("/")[2]]
    for members in ("anyOf", "oneOf"):
        if members in schema:
            return _sample(schema[members][0], definitions)
    if "const" in schema or schema.get("enum"):
        return schema.get("const", (schema.get("enum") or [None])[0])
    name = schema.get("type")
    if name in ("integer", "number"):
        return _sample_number(schema, whole=name == "integer")
    if name == "array":
        if "prefixItems" in schema:
            return [_sample(item, definitions) for item in schema["prefixItems"]]
        return [_sample(schema.get("items", {}), definitions)] * max(1, schema.get("minItems", 1))
    if name == "boolean":
        return True
    if name == "object":
        properties = schema.get("properties", {})
        return {key: _sample(properties[key], definitions) for key in schema.get("required", ())}
    return "value".ljust(schema.get("minLength", 0), "-")[: schema.get("maxLength")]


def _sample_number(schema: dict[str, Any], *, whole: bool) -> int | float:
    margin = 1 if whole else 0.5
    low, high = schema.get("minimum"), schema.get("maximum")
    if "exclusiveMinimum" in schema:
        low = schema["exclusiveMinimum"] + margin
    if "exclusiveMaximum" in schema:
        high = schema["exclusiveMaximum"] - margin
    if low is not None and high is not None and not whole:
        return float(low + high) / 2
    found = low if low is not None else high if high is not None else margin
    return int(found) if whole else float(found)
