"""Memory of the host that this process may have: of the machine, within the limits it is under."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

Limits: TypeAlias = tuple[int, int]
"""Bytes that may be had, and those that are."""


def host_memory() -> tuple[int, int]:
    """Free and total bytes that this process may have: the tightest of all limits on it."""
    pages = os.sysconf("SC_PAGE_SIZE")
    total, free = os.sysconf("SC_PHYS_PAGES") * pages, os.sysconf("SC_AVPHYS_PAGES") * pages
    limits = [(limit, limit - used) for limit, used in (*_resource_limits(), *_control_groups())]
    return min([free, *(left for _, left in limits)]), min([total, *(limit for limit, _ in limits)])


def _resource_limits() -> Iterator[Limits]:
    """Limits of this process (``ulimit -v``, ``ulimit -d``), and what it has of each."""
    try:
        import resource

        status = Path("/proc/self/status").read_text()
    except (ImportError, OSError):
        return
    for kind, name in ((resource.RLIMIT_AS, "VmSize"), (resource.RLIMIT_DATA, "VmData")):
        limit, _ = resource.getrlimit(kind)
        used = re.search(rf"^{name}:\s+(\d+) kB$", status, re.MULTILINE)
        if limit != resource.RLIM_INFINITY and used:
            yield limit, int(used[1]) << 10


_FILES = {"": ("memory.max", "memory.current"), "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes")}
"""Files of control groups of version 2, whose paths name no controllers, and of version 1."""


def _control_groups(root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> Iterator[Limits]:
    """Limits of the control groups of this process, from its own up to the outermost, and what each has used."""
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        for controller in _FILES.keys() & set(controllers.split(",")):
            group = root / controller / path.lstrip("/")
            for folder in (group, *group.parents):
                if folder.is_relative_to(root):
                    yield from _control_group(folder, *_FILES[controller])


def _control_group(folder: Path, limit: str, usage: str) -> Iterator[Limits]:
    try:
        most, used = ((folder / name).read_text().strip() for name in (limit, usage))
    except OSError:  # the outermost group, or one that only those outside of a container see
        return
    if most != "max":
        yield int(most), int(used)
