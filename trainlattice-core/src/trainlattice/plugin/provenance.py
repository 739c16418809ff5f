"""Where a plugin's code comes from: wheel, editable checkout or a local file, with what identifies it."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote, urlparse

from trainlattice.plugin.discovery import Distribution

_MOST_SECONDS = 10  # that git may take


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


_GIT = ("git", "--no-optional-locks")
"""Asks without writing the index anew: a kill would leave its lock, and the user's next commit fails."""

MOST_CHANGES = 10 * 1024 * 1024
"""Bytes of changes that are read to identify them."""


def git_changes(directory: Path, *, leave_out: Path | None = None) -> tuple[str | None, str | None]:
    """What identifies the uncommitted changes of the repository that holds a directory.

    :param leave_out: a directory whose untracked files do not count, such as that of the runs.
    :returns: sha256 of ``git diff HEAD`` and of the names and contents of untracked files that git does not
        ignore, or None; and why it is None. Both are None where nothing was changed.
    """
    try:
        root = Path(_git(directory, "rev-parse", "--show-toplevel"))
        diff = _output(root, *_DIFF, most=MOST_CHANGES)
        untracked = _output(root, "ls-files", "--others", "--exclude-standard", "-z", most=MOST_CHANGES)
        if diff is None or untracked is None:
            return None, _TOO_MUCH
        sha256, left = hashlib.sha256(diff), MOST_CHANGES - len(diff)
        changed = bool(diff)
        for name in sorted(filter(None, untracked.split(b"\0"))):
            path = root / os.fsdecode(name)
            if leave_out is not None and path.is_relative_to(leave_out.resolve()):
                continue
            content = _content(path, left)
            if content is None:
                return None, _TOO_MUCH
            left -= len(content)
            changed = True
            sha256.update(b"\0%d\0%s\0%d\0" % (len(name), name, len(content)) + content)
        return (sha256.hexdigest() if changed else None), None
    except (OSError, subprocess.SubprocessError) as error:
        return None, f"the changes could not be read: {error}"


_TOO_MUCH = f"the changes have more than {MOST_CHANGES // 2**20} MiB"
# Whatever the user's settings are, the same changes give the same text.
_DIFF = ("diff", "HEAD", "--no-color", "--no-ext-diff", "--no-textconv", "--full-index", "--binary")


def _content(path: Path, most: int) -> bytes | None:
    """What an untracked entry holds; None if that is more than the given number of bytes."""
    if path.is_symlink():
        return os.fsencode(os.readlink(path))
    if path.is_dir():  # a repository inside this one: its name stands for it
        return b""
    with open(path, "rb") as file:
        content = file.read(most + 1)
    return content if len(content) <= most else None


def _output(directory: Path, *arguments: str, most: int) -> bytes | None:
    """What git prints; None if that is more than the given number of bytes."""
    with subprocess.Popen(
        [*_GIT, *arguments], cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        timer = threading.Timer(_MOST_SECONDS, process.kill)
        timer.daemon = True
        timer.start()
        found = process.stdout.read(most + 1)
        timer.cancel()
        if len(found) > most:
            process.kill()
            return None
        if process.wait():
            raise subprocess.CalledProcessError(process.returncode, "git " + arguments[0])
        return found


def _git(directory: Path, *arguments: str) -> str:
    done = subprocess.run(
        [*_GIT, *arguments], cwd=directory, capture_output=True, text=True, timeout=_MOST_SECONDS, check=True
    )
    return done.stdout.strip()
