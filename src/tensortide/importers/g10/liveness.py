"""``interval.config`` and ``liveness_analysis.config``: what a tool found of the life of every tensor."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from tensortide.importers.g10.kernels import TensorLine, tensor_line
from tensortide.importers.textfile import TextFile, read_text

__all__ = ["BLOCK_RULE", "MIDDLE_RULE", "StatedLife", "StatedPeriod", "read_liveness"]

BLOCK_RULE = "_" * 77
"""What opens and closes a block of ``liveness_analysis.config``."""
MIDDLE_RULE = "_ " * 36
"""What stands between life and periods there, with the space at its end."""


class StatedPeriod(NamedTuple):
    """Kernels ``start`` to ``end - 1`` (around the end of the step if ``end <= start``), and their time in us."""

    start: int
    end: int
    time_us: float


class StatedLife(NamedTuple):
    """The life of a tensor. ``birth`` and ``death`` are None for what is global."""

    tensor: TensorLine
    birth: int | None
    death: int | None
    periods: tuple[StatedPeriod, ...]


class _Layout(NamedTuple):
    """Layout of the lines of a block."""

    opening: str
    middle: str
    title: str
    period: str
    unit: str
    closing: str


_G10 = _Layout("", "_" * 60, "Hidding Intervals:", "interval", "", "_" * 63)
_LATER = _Layout(BLOCK_RULE, MIDDLE_RULE.rstrip(), "Inactive Periods:", "Period", "us", BLOCK_RULE)
_LIFE = re.compile(r"Liveness: Birth: (-?\d{1,18}), Death: (-?\d{1,18})\.", re.ASCII)
_PERIOD = re.compile(r"(\w+) (\d{1,9}): (\d{1,9})-{8}(\d{1,9})", re.ASCII)
_TIME = re.compile(r"Estimated Time:(-?\d+(?:\.\d+)?(?:e[+-]?\d{1,3})?)(us)?", re.ASCII)


def read_liveness(path: str | os.PathLike[str]) -> tuple[StatedLife, ...]:
    """The lives of all tensors, in the order of the file; either tool's layout.

    Raises:
        TraceError: it cannot be read, or a line is not what its place asks for.
    """
    file = read_text(path)
    layout = _LATER if file.lines and file.lines[0] == BLOCK_RULE else _G10
    reader = _Reader(file, layout)
    lives: list[StatedLife] = []
    while reader.at < len(file.lines):
        lives.append(reader.life())
        if lives[-1].tensor.id != len(lives) - 1:
            raise file.error(reader.first, f"tensor{len(lives) - 1}, as ids are dense and ascend")
    return tuple(lives)


class _Reader:
    """Walks over the blocks of a file; ``at`` is the next line, ``first`` that of the last tensor."""

    def __init__(self, file: TextFile, layout: _Layout) -> None:
        self.file = file
        self.layout = layout
        self.at = self.first = 0

    def life(self) -> StatedLife:
        """The next block."""
        if self.layout.opening:
            self._pass(self.layout.opening)
        self.first = self.at
        tensor = self._tensor()
        birth, death = self._birth_and_death(tensor.is_global)
        self._pass(self.layout.middle)
        if self._tensor() != tensor:
            raise self.file.error(self.at - 1, f"the same tensor as in line {self.first + 1}")
        self._pass(self.layout.title)
        periods: list[StatedPeriod] = []
        while self._line() != self.layout.closing:
            periods.append(self._period(len(periods)))
        self.at += 1
        return StatedLife(tensor, birth, death, tuple(periods))

    def _line(self) -> str:
        return self.file.lines[self.at] if self.at < len(self.file.lines) else ""

    def _pass(self, line: str) -> None:
        if self._line() != line:
            expected = repr(line) if line[0] != "_" else f"a rule of {len(line)} characters"
            raise self.file.error(self.at, expected)
        self.at += 1

    def _tensor(self) -> TensorLine:
        self.at += 1
        return tensor_line(self.file, self.at - 1)

    def _birth_and_death(self, is_global: bool) -> tuple[int | None, int | None]:
        found = _LIFE.fullmatch(self._line())
        if is_global == (found is not None) or (found is None and self._line() != "Global!"):
            raise self.file.error(self.at, "'Global!'" if is_global else "'Liveness: Birth: <n>, Death: <n>.'")
        self.at += 1
        return (None, None) if found is None else (int(found[1]), int(found[2]))

    def _period(self, number: int) -> StatedPeriod:
        period = _PERIOD.fullmatch(self._line())
        if period is None or period[1] != self.layout.period or int(period[2]) != number:
            closing = f"a rule of {len(self.layout.closing)} characters"
            raise self.file.error(self.at, f"'{self.layout.period} {number}: <start>--------<end>' or {closing}")
        self.at += 1
        time = _TIME.fullmatch(self._line())
        if time is None or (time[2] or "") != self.layout.unit:
            raise self.file.error(self.at, f"'Estimated Time:<us>{self.layout.unit}'")
        self.at += 1
        return StatedPeriod(int(period[3]), int(period[4]), float(time[1]))
