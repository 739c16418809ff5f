"""Where a plugin's code comes from: wheel, editable checkout or a local file, with what identifies it."""

from __future__ import annotations

import hashlib
import json
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote, urlparse

from trainlattice.plugin.discovery import Distribution


@dataclass(frozen=True)
class Provenance:
    """What identifies the code of a plugin.

    :param source: ``wheel``, ``editable``, ``local`` (a Python file or module without a distribution).
    :param path: the checkout or file; None for a wheel.
    :param sha256: of a local file, or of a wheel's list of files and hashes (RECORD).
    :param commit: git commit of an editable checkout, where it is one.
    :param dirty: whether that checkout has uncommitted changes.
    """

    source: Literal["wheel", "editable", "local"]
    path: str | None = None
    sha256: str | None = None
    commit: str | None = None
    dirty: bool | None = None

    def as_json(self) -> dict[str, Any]:
        """Without the fields that are unknown."""
        return {key: value for key, value in asdict(self).items() if value is not None}


def source_kind(distribution: Distribution) -> tuple[Literal["wheel", "editable"], str | None]:
    """Whether a distribution is installed from a wheel or as an editable checkout, and the checkout.

    Read from ``direct_url.json`` (PEP 610) only: cheap enough for a listing.
    """
    text = distribution.read_text("direct_url.json")
    if text:
        try:
            direct_url = json.loads(text)
        except ValueError:
            return "wheel", None
        directory = direct_url.get("dir_info") if isinstance(direct_url, dict) else None
        if isinstance(directory, dict) and directory.get("editable"):
            return "editable", unquote(urlparse(str(direct_url.get("url", ""))).path) or None
    return "wheel", None


def of_distribution(distribution: Distribution) -> Provenance:
    """Full provenance of an installed distribution; asks git about an editable checkout."""
    source, path = source_kind(distribution)
    if source == "editable" and path is not None:
        commit, dirty = git_state(Path(path))
        return Provenance("editable", path=path, commit=commit, dirty=dirty)
    record = distribution.read_text("RECORD")
    return Provenance(source, sha256=hashlib.sha256(record.encode()).hexdigest() if record else None)


def of_file(path: Path) -> Provenance:
    """Provenance of a local Python file."""
    return Provenance("local", path=str(path), sha256=hashlib.sha256(path.read_bytes()).hexdigest())


def git_state(directory: Path) -> tuple[str | None, bool | None]:
    """Commit and dirty flag of the repository that holds a directory; None where there is none."""
    try:
        commit = _git(directory, "rev-parse", "HEAD")
        return commit, bool(_git(directory, "status", "--porcelain"))
    except (OSError, subprocess.SubprocessError):
        return None, None


def _git(directory: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=directory, capture_output=True, text=True, timeout=10, check=True
    )
    return done.stdout.strip()
