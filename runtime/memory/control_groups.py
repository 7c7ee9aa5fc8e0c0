"""What memory the control groups of this process leave it: a container's limit, a systemd unit's, a batch job's.

Linux alone has them. The system's own figures of free memory know nothing of them, and whoever goes beyond a limit is
killed.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")
_NO_LIMIT_BYTES = 1 << 60
"""Version 1 has no word for none, but a number that no machine has."""


@dataclass(frozen=True)
class GroupMemory:
    """Of the tightest groups that this process is in."""

    limit_bytes: int
    free_bytes: int
    """What may be taken beside what the group's processes hold; pages of files count as free, read once or often, as
    they do in the system's own figures."""


@dataclass(frozen=True)
class _Version:
    folder: str
    """Below the root."""
    limit: str
    usage: str
    reclaimable: tuple[str, str]
    """Pages of files, in memory.stat."""


_VERSION_1 = _Version(
    "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", ("total_inactive_file", "total_active_file")
)
_VERSION_2 = _Version("", "memory.max", "memory.current", ("inactive_file", "active_file"))


def group_memory(root: Path = ROOT, membership: Path = MEMBERSHIP) -> GroupMemory | None:
    """None where no group sets a limit, or the system has no groups."""
    found = [group for folder, version in _groups(root, membership) if (group := _read(folder, version)) is not None]
    if not found:
        return None
    return GroupMemory(min(group.limit_bytes for group in found), min(group.free_bytes for group in found))


def _groups(root: Path, membership: Path) -> Iterator[tuple[Path, _Version]]:
    """Every group that bounds this process, the root's own included: inside a container that is the container's."""
    lines: list[str] = []
    with suppress(OSError):
        lines = membership.read_text(encoding="utf-8").splitlines()
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        version = _VERSION_1 if controllers else _VERSION_2
        top = root / version.folder
        group = top / path.lstrip("/")
        yield from ((folder, version) for folder in (group, *group.parents) if folder.is_relative_to(top))


def _read(folder: Path, version: _Version) -> GroupMemory | None:
    """None for a group without a limit, or one that is not seen from here."""
    try:
        limit_bytes = int((folder / version.limit).read_text(encoding="ascii"))
        usage_bytes = int((folder / version.usage).read_text(encoding="ascii"))
        stat = dict(line.split() for line in (folder / "memory.stat").read_text(encoding="ascii").splitlines())
    except (OSError, ValueError):
        return None
    if limit_bytes >= _NO_LIMIT_BYTES:
        return None
    held_bytes = max(0, usage_bytes - sum(int(stat.get(name, 0)) for name in version.reclaimable))
    return GroupMemory(limit_bytes, max(0, limit_bytes - held_bytes))
