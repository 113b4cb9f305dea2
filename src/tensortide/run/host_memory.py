"""Memory of the host that this process may have: of the machine, within the limits it is under."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

from tensortide.errors import RunError

Limits: TypeAlias = tuple[int, int]
"""Bytes that may be had, and those that are."""


def host_memory() -> tuple[int, int]:
    """Free and total bytes that this process may have: the tightest of all limits on it."""
    total, free = _machine()
    limits = [(limit, limit - used) for limit, used in (*_resource_limits(), *_control_groups())]
    return min([free, *(left for _, left in limits)]), min([total, *(limit for limit, _ in limits)])


def _machine() -> tuple[int, int]:
    """Total and free bytes of the machine. Raises RunError where the system does not tell."""
    if sys.platform == "win32":
        status = _Status(ctypes.sizeof(_Status))
        ctypes.windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status))
        return status.total, status.free
    try:
        page, total = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_PHYS_PAGES")
        if sys.platform == "darwin":
            done = subprocess.run(["vm_stat"], capture_output=True, text=True, check=True)
            return total * page, pages_free(done.stdout) * page
        return total * page, os.sysconf("SC_AVPHYS_PAGES") * page
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise RunError("this system does not tell how much memory is free: give a budget such as '8GiB'") from error


def pages_free(text: str) -> int:
    """Pages that can be had without swapping, from what ``vm_stat`` of macOS prints."""
    counts = re.findall(r"^Pages (?:free|inactive|speculative|purgeable):\s+(\d+)\.$", text, re.MULTILINE)
    return sum(map(int, counts))


class _Status(ctypes.Structure):
    """The MEMORYSTATUSEX of Windows."""

    _fields_ = (
        *(("length", ctypes.c_uint32), ("load", ctypes.c_uint32)),
        *((name, ctypes.c_uint64) for name in ("total", "free", "files", "files_free", "own", "own_free", "rest")),
    )
    length: int
    total: int
    free: int


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
