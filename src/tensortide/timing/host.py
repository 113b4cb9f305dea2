"""Facts from the operating system about the machine that a measurement runs on."""

from __future__ import annotations

import contextlib
import os
import platform
from pathlib import Path

_GROUP = Path("/sys/fs/cgroup")
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")


def cpu_name() -> str:
    """Return the processor's name, as its vendor writes it where the system reports it."""
    return _line_of("/proc/cpuinfo", "model name") or platform.processor() or platform.machine()


def governor() -> str:
    """Read the frequency governor of the first core (``performance``, ``powersave``, ...); empty if unknown."""
    with contextlib.suppress(OSError):
        return _GOVERNOR.read_text("utf-8").strip()
    return ""


def load_average() -> float | None:
    """Runnable processes, averaged over the last minute."""
    with contextlib.suppress(OSError, AttributeError):
        return round(os.getloadavg()[0], 2)
    return None


def available_bytes() -> int | None:
    """Memory that can be allocated without swapping, within the limit of the container if there is one; None if the
    system does not tell."""
    text = _line_of("/proc/meminfo", "MemAvailable")
    limits = [int(text.split()[0]) * 1024] if text else []
    with contextlib.suppress(OSError, ValueError):  # "max": no limit
        limit, used = (int((_GROUP / name).read_text("utf-8")) for name in ("memory.max", "memory.current"))
        limits.append(max(0, limit - used))
    return min(limits, default=None)


def cache_bytes() -> int | None:
    """Bytes of the last-level cache of the first core; None if the system does not tell."""
    sizes = []
    for file in _CACHES.glob("index*/size"):
        with contextlib.suppress(OSError, ValueError):
            text = file.read_text("utf-8").strip()
            sizes.append(int(text.rstrip("KMG")) << {"K": 10, "M": 20, "G": 30}.get(text[-1:], 0))
    return max(sizes, default=None)


def _line_of(file: str, key: str) -> str:
    with contextlib.suppress(OSError):
        for line in Path(file).read_text("utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == key:
                return value.strip()
    return ""
