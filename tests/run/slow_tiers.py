"""Tiers whose transfers take their time, or fail: where tests hold them up."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tensortide.run.tier_memory import DriveMemory, HostMemory

Before = Callable[[str, int], None]
"""Called before a transfer copies, in its engine's thread: ``out`` or ``in``, and how many of both went before."""


def before_transfers(monkeypatch: pytest.MonkeyPatch, before: Before) -> list[str]:
    """Let ``before`` precede every transfer. Returns their directions, as they come."""
    went: list[str] = []

    def patch(owner: Any, name: str, way: str) -> None:
        plain = getattr(owner, name)

        def patched(memory: Any, offset: int, address: int, nbytes: int) -> None:
            went.append(way)
            before(way, len(went) - 1)
            plain(memory, offset, address, nbytes)

        monkeypatch.setattr(owner, name, patched)

    for owner in (HostMemory, DriveMemory):
        patch(owner, "write", "out")
        patch(owner, "read", "in")
    return went


def open_files() -> int:
    """Number of file descriptors of this process."""
    return len(list(Path("/proc/self/fd").iterdir()))
