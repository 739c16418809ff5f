"""The sections that name components: which component, the keys of core beside it, its own options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from trainlattice.config import document as documents
from trainlattice.config.lookup import find_component
from trainlattice.config.resolved import ResolvedComponent, Section
from trainlattice.config.validation import unreadable_options, validate
from trainlattice.contracts.kind import Kind
from trainlattice.contracts.options import Options
from trainlattice.contracts.records import ModeContract
from trainlattice.diagnostics import nodes
from trainlattice.diagnostics.diagnostic import Diagnostic
from trainlattice.diagnostics.errors import PluginError
from trainlattice.diagnostics.nodes import Entry, Mapping, Node, Scalar
from trainlattice.diagnostics.source import Mark
from trainlattice.plugin.inspection import target_looks_missing
from trainlattice.plugin.registry import Registered, Registry, keys_of, settings_class

Entries = Callable[[str], "Entry | None"]


@dataclass
class ComponentResolver:
    """Resolves component sections one by one; mistakes gather in ``diagnostics``.

    :param entry: the entry of a top-level section, or None.
    :param root_mark: the place of the whole configuration.
    """

    registry: Registry
    entry: Entries
    root_mark: Mark
    diagnostics: list[Diagnostic] = field(default_factory=list)
    warnings: list[Diagnostic] = field(default_factory=list)

    def mode(self) -> ResolvedComponent | None:
        """The component of the section ``mode``, or its default."""
        entry = self.entry("mode")
        kind = self.registry.kinds["mode"]
        return self.one(kind, entry.node if entry else None, ("mode",), entry.key_mark if entry else None)

    def section(self, kind: Kind, contract: ModeContract | None) -> Section | None:
        """What the section of a kind names; None if it is absent, has no default or cannot be used."""
        entry = self.entry(kind.section)
        if contract is not None and not kind.every_mode:
            if kind.section not in (*contract.required, *contract.optional):
                return None
        roles = contract.roles.get(kind.section) if contract is not None else None
        if roles is not None:
            return self.roles(kind, entry, roles)
        if kind.form == "list":
            return self.many(kind, entry)
        if kind.several and entry and isinstance(entry.node, Mapping) and kind.several in entry.node.entries:
            return self.several(kind, entry.node, kind.several)
        if entry is None and contract is not None and kind.section in contract.required:
            return None  # reported as missing
        return self.one(
            kind, entry.node if entry else None, (kind.section,), entry.key_mark if entry else None
        )

    def many(self, kind: Kind, entry: Entry | None) -> Section | None:
        if entry is None:
            default = self.one(kind, None, (kind.section, 0), None)
            return (default,) if default is not None else ()
        if isinstance(entry.node, Scalar) and entry.node.value is None:
            return ()
        if not isinstance(entry.node, nodes.Sequence):
            self.diagnostics.append(wrong_type(kind.section, entry.node, f"a list of {kind.name}s"))
            return None
        found = [
            self.one(kind, item, (kind.section, index), item.mark)
            for index, item in enumerate(entry.node.items)
        ]
        return tuple(component for component in found if component is not None)

    def several(self, kind: Kind, node: Mapping, key: str) -> Section | None:
        """A list of components below a key, where one could stand."""
        for name, other in node.entries.items():
            if name != key:
                message = f"the section {kind.section!r} has {key!r}, and no other key beside it"
                self.diagnostics.append(
                    Diagnostic("unknown-option", message, other.key_mark, nodes.dotted((kind.section, name)))
                )
        below = node.entries[key]
        if not isinstance(below.node, nodes.Sequence) or not below.node.items:
            self.diagnostics.append(
                wrong_type(f"{kind.section}.{key}", below.node, f"a list of {kind.name} components")
            )
            return None
        found = [
            self.one(kind, item, (kind.section, key, index), item.mark)
            for index, item in enumerate(below.node.items)
        ]
        return tuple(component for component in found if component is not None)

    def roles(self, kind: Kind, entry: Entry | None, roles: tuple[str, ...]) -> Section | None:
        has_default = bool(self.registry.defaults(kind.name))
        if entry is None and not has_default:
            return None  # reported as missing where the mode requires it
        node, mark = (entry.node, entry.key_mark) if entry else (Mapping({}, self.root_mark), None)
        if not isinstance(node, Mapping) or not set(node.entries) <= set(roles):
            keys = f"a mapping with the keys {', '.join(roles)}"
            self.diagnostics.append(wrong_type(kind.section, node, keys))
            return None
        found: dict[str, ResolvedComponent] = {}
        for role in roles:
            below, path = node.entries.get(role), (kind.section, role)
            if not has_default and (below is None or _is_null(below.node)):
                message = f"the section {kind.section!r} needs {kind.with_article} for the role {role!r}"
                self.diagnostics.append(Diagnostic("missing-option", message, mark, nodes.dotted(path)))
                continue
            component = self.one(kind, below.node if below else None, path, below.key_mark if below else mark)
            if component is not None:
                found[role] = component
        return found

    def one(
        self, kind: Kind, node: Node | None, path: nodes.Path, key_mark: Mark | None
    ) -> ResolvedComponent | None:
        """One component: its name, then the keys of core beside it, then its own options."""
        if node is None or _is_null(node):
            registered = self.default(kind, key_mark, path)
            if registered is None:
                return None
            node = Mapping({}, key_mark or self.root_mark)
        else:
            node = documents.expanded(node)
            if not isinstance(node, Mapping):
                what = f"the name of {kind.with_article} or a mapping"
                self.diagnostics.append(wrong_type(nodes.dotted(path), node, what))
                return None
            named = self.registered(kind, node, path, key_mark or node.mark)
            if named is None:
                return None
            registered = named
        return self.options(registered, node, path, key_mark or node.mark)

    def default(self, kind: Kind, mark: Mark | None, path: nodes.Path) -> Registered | None:
        """What stands where the YAML is silent; None if nothing claims to."""
        claims = self.registry.defaults(kind.name)
        if len(claims) > 1:
            self.diagnostics.append(
                Diagnostic(
                    "conflict",
                    f"several plugins claim to be the default {kind.name}",
                    mark,
                    path=nodes.dotted(path),
                    notes=(
                        *(f"{c.qualified}   {c.plugin}" for c in claims),
                        f"fix: name one, such as {kind.section}: {{name: '{claims[0].qualified}'}}",
                    ),
                )
            )
        return claims[0] if len(claims) == 1 else None

    def registered(self, kind: Kind, node: Mapping, path: nodes.Path, mark: Mark) -> Registered | None:
        name = nodes.child(node, "name")
        if name is None:
            registered = self.default(kind, mark, path)
            if registered is None and not self.registry.defaults(kind.name):
                self.diagnostics.append(
                    Diagnostic(
                        "missing-option",
                        f"the section {nodes.dotted(path)!r} needs a name: which {kind.name}?",
                        mark,
                        path=nodes.dotted((*path, "name")),
                        notes=(f"see: trainlattice plugins list --kind {kind.name}",),
                    )
                )
            return registered
        if not isinstance(name, Scalar) or not isinstance(name.value, str) or not name.value:
            self.diagnostics.append(
                Diagnostic(
                    "wrong-type",
                    f"expected the name of {kind.with_article}, got {nodes.describe(name)}",
                    name.mark,
                    path=nodes.dotted((*path, "name")),
                )
            )
            return None
        found = find_component(self.registry, kind, name.value, name.mark, nodes.dotted((*path, "name")))
        if isinstance(found, Diagnostic):
            self.diagnostics.append(found)
            return None
        if found.component.deprecated:
            self.warnings.append(
                Diagnostic(
                    "deprecated",
                    f"{kind.name} {found.qualified!r} is deprecated: {found.component.deprecated}",
                    name.mark,
                    path=nodes.dotted((*path, "name")),
                    level="warning",
                )
            )
        return found

    def options(
        self, registered: Registered, node: Mapping, path: nodes.Path, mark: Mark
    ) -> ResolvedComponent | None:
        owner = f"{registered.kind.name} {registered.qualified!r}"
        help_line = f"(trainlattice plugins info {registered.qualified})"
        name = node.entries.get("name")
        at = name.node.mark if name else mark
        try:
            schema = registered.options_class
            settings_schema = settings_class(registered.kind)
            if target_looks_missing(registered):
                _ = registered.target  # imported only to be sure: nothing that a run needs is imported here
        except PluginError as error:
            self.diagnostics.append(Diagnostic("broken-plugin", str(error), at, nodes.dotted(path)))
            return None
        beside = keys_of(settings_schema) if settings_schema else frozenset()
        entries = {key: entry for key, entry in node.entries.items() if key != "name"}
        member = registered.component.member_option
        if member and name and isinstance(name.node, Scalar) and "/" in name.node.text:
            if member in entries:
                message = f"{owner} has {member!r} in its name already"
                there = entries[member].key_mark
                self.diagnostics.append(Diagnostic("conflict", message, there, nodes.dotted((*path, member))))
                return None
            text = name.node.text.partition("/")[2]
            entries[member] = Entry(name.key_mark, Scalar(text, text, name.node.mark))
        own = Mapping({k: e for k, e in entries.items() if k not in beside}, node.mark)
        try:
            options, diagnostics = validate(schema, own, path, owner=owner, at=at, help_line=help_line)
        except PluginError as error:
            self.diagnostics.append(Diagnostic("broken-plugin", str(error), at, nodes.dotted(path)))
            return None
        settings: Options | None = None
        if settings_schema is not None:
            core = Mapping({k: e for k, e in entries.items() if k in beside}, node.mark)
            settings, more = validate(settings_schema, core, path, owner=owner, at=at)
            diagnostics += more
        self.diagnostics += diagnostics
        if diagnostics or options is None:
            return None
        fault = unreadable_options(options)
        if fault is not None:
            message = f"the options of {registered.what} cannot be stored and read back: {fault}"
            self.diagnostics.append(Diagnostic("broken-plugin", message, at, nodes.dotted(path)))
            return None
        return ResolvedComponent(registered, options, settings, path)


def _is_null(node: Node) -> bool:
    return isinstance(node, Scalar) and node.value is None


def wrong_type(path: str, node: Node, expected: str) -> Diagnostic:
    """A section or component that is not of the form it must have."""
    return Diagnostic("wrong-type", f"expected {expected}, got {nodes.describe(node)}", node.mark, path)
