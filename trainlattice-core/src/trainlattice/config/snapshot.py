"""The resolved configuration as a file, ``config.yaml`` of a run directory."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from trainlattice.diagnostics.nodes import Plain
from trainlattice.diagnostics.yaml_writer import write_string

if TYPE_CHECKING:
    from trainlattice.config.resolved import ResolvedConfig

HEADER = "# The resolved configuration of this run: every default written out, names qualified.\n"


def snapshot_text(config: ResolvedConfig | dict[str, Plain]) -> str:
    """YAML that resolves to the same configuration, value by value and type by type."""
    plain = config if isinstance(config, dict) else config.as_plain()
    return HEADER + write_string(plain)


def read_only(plain: Any) -> Any:
    """Plain data with mappings and tuples that cannot be changed in place of dicts and lists."""
    if isinstance(plain, dict):
        return MappingProxyType({key: read_only(value) for key, value in plain.items()})
    return tuple(map(read_only, plain)) if isinstance(plain, list) else plain
