"""Use of the machine's processors while a search runs, as rows of a log."""

from __future__ import annotations

import time
from pathlib import Path

STAT = Path("/proc/stat")
"""Ticks of each processor since the machine started; Linux alone has it."""
PERIOD_S = 1.0


class Processors:
    """Samples of the share of time that each processor was busy, at most one a second.

    ``rows``: seconds since the start, proposals, the processors that this process used, then the share of each
    processor of the machine; these are left out where the system does not say.
    """

    def __init__(self) -> None:
        self.rows: list[tuple[float, ...]] = []
        self._began = self._last = time.monotonic()
        self._cpu, self._ticks = time.process_time(), _ticks()

    @property
    def head(self) -> tuple[str, ...]:
        """Names of the columns."""
        return ("seconds", "placements", "used_by_search", *(f"cpu{number}" for number in range(len(self._ticks))))

    def sample(self, proposals: int, *, last: bool = False) -> None:
        """Add a row if the last one is a second old, or at the end of the search."""
        now = time.monotonic()
        passed = now - self._last
        if passed < PERIOD_S and not last:
            return
        cpu, ticks = time.process_time(), _ticks()
        own = (cpu - self._cpu) / passed if passed else 0.0
        shares = [_share(before, after) for before, after in zip(self._ticks, ticks, strict=False)]
        self.rows.append((round(now - self._began, 3), proposals, round(own, 3), *(round(one, 3) for one in shares)))
        self._last, self._cpu, self._ticks = now, cpu, ticks


def _ticks() -> list[tuple[int, int]]:
    """Idle and all ticks of each processor; empty where the system does not say."""
    if not STAT.exists():
        return []
    lines = (line.split() for line in STAT.read_text("ascii").splitlines())
    found = [[int(text) for text in words[1:9]] for words in lines if words[0].startswith("cpu") and words[0] != "cpu"]
    return [(ticks[3] + ticks[4], sum(ticks)) for ticks in found]


def _share(before: tuple[int, int], after: tuple[int, int]) -> float:
    idle, passed = (now - then for then, now in zip(before, after, strict=True))
    return min(1.0, max(0.0, 1 - idle / passed)) if passed else 0.0
