"""The JSON Schema of configuration files with everything that is installed, for editors."""

from __future__ import annotations

from typing import Any

from trainlattice.contracts.kind import Kind
from trainlattice.contracts.settings import CORE_SECTIONS
from trainlattice.diagnostics.errors import PluginError
from trainlattice.plugin.registry import Registered, Registry, settings_class

DRAFT = "http://json-schema.org/draft-07/schema#"  # what the YAML language server supports


def json_schema(registry: Registry) -> tuple[dict[str, Any], list[str]]:
    """The schema, and the components that are left out of it with the cause."""
    definitions: dict[str, Any] = {}
    problems: list[str] = []
    properties: dict[str, Any] = {
        "extends": {
            "description": "File(s) that this one changes, relative to it.",
            "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}],
        }
    }
    for section, schema in CORE_SECTIONS.items():
        properties[section] = _or_null(_inlined(schema.model_json_schema(), definitions, section))
    for kind in registry.kinds.values():
        one = _component_schema(registry, kind, definitions, problems)
        definitions[f"kind.{kind.name}"] = one
        reference = {"$ref": f"#/definitions/kind.{kind.name}"}
        listed: dict[str, Any] = {"type": "array", "items": reference}
        place: dict[str, Any] = listed if kind.form == "list" else reference
        if kind.several:
            several = {"type": "object", "properties": {kind.several: listed}, "required": [kind.several]}
            place = {"anyOf": [reference, {**several, "additionalProperties": False}]}
        properties[kind.section] = _or_null(place)
    return {
        "$schema": DRAFT,
        "title": "TrainLattice configuration",
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        "definitions": definitions,
    }, problems


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    """A section may be left empty."""
    return {"anyOf": [schema, {"type": "null"}]}


def _component_schema(
    registry: Registry, kind: Kind, definitions: dict[str, Any], problems: list[str]
) -> dict[str, Any]:
    """A name alone, or a mapping whose legal keys depend on the name."""
    names: list[str] = []
    patterns: list[dict[str, Any]] = []
    branches: list[dict[str, Any]] = []
    defaults = registry.defaults(kind.name)
    for registered in registry.components(kind.name):
        try:
            own = _own_schema(registered, definitions)
        except PluginError as error:
            problems.append(str(error))
            continue
        except Exception as error:  # pydantic's, for a field that JSON has no schema for
            problems.append(f"{registered.what} has no JSON Schema: {type(error).__name__}: {error}")
            continue
        legal = [registered.qualified]
        if len(registry.find(kind.name, registered.component.name)) == 1:
            legal.insert(0, registered.component.name)
        member = registered.component.member_option
        named: dict[str, Any] = {"enum": legal}
        if member:
            pattern = {"type": "string", "pattern": f"^({'|'.join(legal)})/"}
            named = {"anyOf": [named, pattern]}
            patterns.append(pattern)
            own["required"] = [option for option in own.get("required", ()) if option != member]
        names += legal
        condition: dict[str, Any] = {"properties": {"name": named}}
        if [registered] != defaults:
            condition["required"] = ["name"]
        branches.append({"if": condition, "then": own})
    if not names:
        return {"description": f"{kind.summary}; no plugin that is installed has any", "not": {}}
    which: dict[str, Any] = {"anyOf": [{"enum": names}, *patterns]} if patterns else {"enum": names}
    mapping = {
        "type": "object",
        "properties": {"name": {**which, "description": f"Which {kind.name}."}},
        "allOf": branches,
    }
    if len(defaults) != 1:
        mapping["required"] = ["name"]
    return {"description": kind.summary, "anyOf": [which, mapping]}


def _own_schema(registered: Registered, definitions: dict[str, Any]) -> dict[str, Any]:
    label = f"{registered.kind.name}.{registered.qualified}"
    schema = _inlined(registered.options_class.model_json_schema(), definitions, label)
    settings = settings_class(registered.kind)
    if settings is not None:
        beside = _inlined(settings.model_json_schema(), definitions, registered.kind.name)
        schema["properties"] = {**beside.get("properties", {}), **schema.get("properties", {})}
    schema["properties"] = {"name": {"type": "string"}, **schema.get("properties", {})}
    schema["description"] = registered.component.summary
    return schema


def _inlined(schema: dict[str, Any], definitions: dict[str, Any], label: str) -> dict[str, Any]:
    """Moves a schema's own ``$defs`` into the common definitions, under names that cannot clash, and
    writes tuples as draft 7 does."""
    own = schema.pop("$defs", {})

    def renamed(value: Any) -> Any:
        if isinstance(value, dict):
            reference = value.get("$ref")
            if isinstance(reference, str) and reference.startswith("#/$defs/"):
                return {**value, "$ref": f"#/definitions/{label}.{reference.removeprefix('#/$defs/')}"}
            if isinstance(value.get("prefixItems"), list):
                value = {"items": value["prefixItems"], "additionalItems": False, **value}
                del value["prefixItems"]
            if isinstance(value.get("discriminator"), dict) and "oneOf" in value:
                value = {key: item for key, item in value.items() if key != "discriminator"}  # OpenAPI's
            return {key: renamed(item) for key, item in value.items()}
        return [renamed(item) for item in value] if isinstance(value, list) else value

    for name, definition in own.items():
        definitions[f"{label}.{name}"] = renamed(definition)
    result: dict[str, Any] = renamed(schema)
    return result
