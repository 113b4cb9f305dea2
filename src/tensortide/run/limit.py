"""A memory limit as people write it, and the error for an op that does not fit."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from tensortide.errors import BudgetInfeasible, RunError, TensortideError
from tensortide.units import format_bytes, parse_bytes

if TYPE_CHECKING:
    from tensortide.replays.remat.simulation import Shortage
    from tensortide.run.runtime import Runtime

Limits: TypeAlias = tuple[int, int]
"""Bytes that may be had, and those that are."""

_MARGIN = 0.1
"""Share of the free memory that ``auto`` leaves alone."""


def budget_bytes(limit: int | str, device: torch.device, held_bytes: int = 0) -> int:
    """Bytes of ``limit``: a number of bytes, a size, a percentage of the memory of ``device``, or ``auto``: the
    ``held_bytes`` that tensors have already, and what is free besides, less a margin.

    Raises RunError for anything else.
    """
    if isinstance(limit, bool) or (isinstance(limit, int) and limit <= 0):
        raise RunError(f"a budget of {limit} is no number of bytes above 0")
    if isinstance(limit, int):
        return limit
    text = limit.strip()
    if text == "auto":
        free, _ = _memory(device)
        if free <= 0:
            raise RunError(f"no memory of {device} is free: a budget of 'auto' has nothing to give out")
        return held_bytes + int(free * (1 - _MARGIN))
    share = re.fullmatch(r"(\d+(?:\.\d+)?)\s*%", text)
    if share:
        percent = float(share.group(1))
        if not 0 < percent <= 100:
            raise RunError(f"a budget of {limit!r} is no share of the device's memory")
        return int(_memory(device)[1] * percent / 100)
    try:
        return budget_bytes(parse_bytes(text), device)
    except TensortideError as error:
        raise RunError(f"{limit!r} is no budget: give bytes, a size such as '8GiB', '60%' or 'auto'") from error


def default_device() -> torch.device:
    """The current GPU, or the CPU where there is none."""
    return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")


def _memory(device: torch.device) -> tuple[int, int]:
    """Free and total bytes of ``device``, or what this process may have: the tightest of all limits on it."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)
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


def infeasible(runtime: Runtime, func: Any, shortage: Shortage | None) -> BudgetInfeasible:
    """The error for ``func``, which asked for more than there is."""
    assert shortage is not None
    engine = runtime.engine
    nbytes: Counter[str] = Counter()
    for storage, memory in enumerate(engine.memories):
        if memory is not None and engine.resident[storage]:
            kind = "locked" if not engine.pinned[storage] else "given" if memory.given else "made"
            nbytes[kind] += engine.storage_bytes[storage]
    given, made, locked = (format_bytes(nbytes[kind]) for kind in ("given", "made", "locked"))
    would_do = shortage.asked_bytes + shortage.held_bytes
    asked, held, budget = map(format_bytes, (shortage.asked_bytes, shortage.held_bytes, shortage.budget_bytes))
    return BudgetInfeasible(
        f"{func} asks for {asked}, and {held} of the budget of {budget} cannot be evicted:\n"
        f"  {given} existed before the budget was opened (parameters, optimizer state, inputs),\n"
        f"  {made} cannot be recomputed: inputs were overwritten, or somebody holds the bytes,\n"
        f"  {locked} are needed by this very op or by what has to be recomputed for it.\n"
        f"A budget of {format_bytes(would_do)} gets past this op. Or make the batch smaller."
    )
