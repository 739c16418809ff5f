"""The resolved configuration as a file, ``config.yaml`` of a run directory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainlattice.diagnostics.nodes import Plain
from trainlattice.diagnostics.yaml_writer import write_string

if TYPE_CHECKING:
    from trainlattice.config.resolved import ResolvedConfig

HEADER = "# The resolved configuration of this run: every default written out, names qualified.\n"


def snapshot_text(config: ResolvedConfig | dict[str, Plain]) -> str:
    """YAML that resolves to the same configuration, value by value and type by type."""
    plain = config if isinstance(config, dict) else config.as_plain()
    return HEADER + write_string(plain)
