"""The resolved configuration: everything checked, every default written out, names qualified."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from trainlattice.contracts.options import Options, as_json
from trainlattice.contracts.records import Contract
from trainlattice.contracts.settings import (
    CheckpointSettings,
    ExperimentSettings,
    PluginsSettings,
    TrainerSettings,
)
from trainlattice.diagnostics.errors import PluginError
from trainlattice.diagnostics.nodes import Path, Plain
from trainlattice.plugin.registration import cause
from trainlattice.plugin.registry import Registered


@dataclass(frozen=True, eq=False)
class ResolvedComponent:
    """A component that a configuration names, with checked options.

    :param path: where it stands, such as ``("model",)`` or ``("callbacks", 0)``.
    :param settings: keys that core reads beside the options; None for kinds without them.
    """

    registered: Registered
    options: Options
    settings: Options | None
    path: Path

    @property
    def name(self) -> str:
        """``plugin:name``."""
        return self.registered.qualified

    @property
    def contract(self) -> Contract | None:
        """What the options promise. Raises PluginError if the plugin's method does not return."""
        try:
            stated = self.options.contract()
            if stated is not None and not isinstance(stated, Contract):
                raise TypeError(f"contract() returned a {type(stated).__name__}")
            return stated
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            what = self.registered.what
            raise PluginError(f"the contract of {what} cannot be told: {cause(error)}") from error

    def as_plain(self) -> dict[str, Plain]:
        """As the section stands in YAML."""
        beside = as_json(self.settings) if self.settings is not None else {}
        return {"name": self.name, **beside, **as_json(self.options)}


Section: TypeAlias = "ResolvedComponent | tuple[ResolvedComponent, ...] | Mapping[str, ResolvedComponent]"


@dataclass(frozen=True, eq=False)
class ResolvedConfig:
    """A configuration that can be built.

    :param sections: by section: one component, a tuple of them, or a mapping from role to component.
    """

    experiment: ExperimentSettings
    trainer: TrainerSettings
    plugins: PluginsSettings
    sections: Mapping[str, Section] = field(default_factory=dict)
    checkpoint: CheckpointSettings = field(default_factory=CheckpointSettings)

    def one(self, section: str) -> ResolvedComponent | None:
        """The component of a section that names one, or None."""
        found = self.sections.get(section)
        return found if isinstance(found, ResolvedComponent) else None

    def many(self, section: str) -> tuple[ResolvedComponent, ...]:
        """The components of a section that names a list, in its order."""
        found = self.sections.get(section, ())
        return found if isinstance(found, tuple) else ()

    def all(self, section: str) -> tuple[ResolvedComponent, ...]:
        """The components of a section that names one or several."""
        found = self.one(section)
        return (found,) if found is not None else self.many(section)

    def components(self) -> Iterator[ResolvedComponent]:
        """All of them, in the order of the sections."""
        for found in self.sections.values():
            if isinstance(found, ResolvedComponent):
                yield found
            elif isinstance(found, tuple):
                yield from found
            else:
                yield from found.values()

    def as_plain(self) -> dict[str, Plain]:
        """Plain data that resolves to this configuration again."""
        plain: dict[str, Plain] = {"experiment": as_json(self.experiment)}
        for section, found in self.sections.items():
            if isinstance(found, ResolvedComponent):
                plain[section] = found.as_plain()
            elif isinstance(found, tuple):
                listed: list[Plain] = [component.as_plain() for component in found]
                several = found[0].registered.kind.several if found else None
                plain[section] = {several: listed} if several else listed
            else:
                plain[section] = {role: component.as_plain() for role, component in found.items()}
        plain["trainer"] = as_json(self.trainer)
        plain["checkpoint"] = as_json(self.checkpoint)
        plain["plugins"] = as_json(self.plugins)
        return plain
