"""The dispatch mode that puts every op of a step on two clocks."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import torch

from tensortide.recorder.recorder import Recorder
from tensortide.recorder.schema import OpaqueSchema, Schema

__all__ = ["Clocks", "NullCalls", "Pair", "Stopwatch", "median", "no_wait", "reading"]

Clock: TypeAlias = Callable[[], int]


class Pair(NamedTuple):
    """A time by both clocks, in nanoseconds."""

    wall: float
    thread: float

    def __sub__(self, other: Pair) -> Pair:
        return Pair(self.wall - other.wall, self.thread - other.thread)


class Clocks(NamedTuple):
    """Clocks that count nanoseconds: of the wall, and of the time in which this thread has a core."""

    wall: Clock = time.perf_counter_ns
    thread: Clock = time.thread_time_ns


def no_wait() -> None:
    """A CPU has done an op when it returns."""


class Stopwatch(Recorder):
    """Takes the same calls for ops as a Recorder, and times them instead of recording them.

    ``marks`` has four readings per op, in the order in which they were taken: wall and thread before, thread and wall
    after. ``funcs`` are the ops. Nothing else is kept, so that little is added to the step.
    """

    def __init__(self, clocks: Clocks, wait: Callable[[], None] = no_wait) -> None:
        super().__init__(lambda index: None)
        self.marks: list[tuple[int, int, int, int]] = []
        self.funcs: list[Any] = []
        self._wall, self._thread = clocks
        self._wait = wait

    def record(self, func: Any, schema: Schema | OpaqueSchema, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Run ``func`` on the clocks. Returns its result."""
        del schema
        wait, wall, thread = self._wait, self._wall, self._thread
        wait()
        wall_start = wall()
        thread_start = thread()
        result = func(*args, **kwargs)
        wait()
        thread_end = thread()
        self.marks.append((wall_start, thread_start, thread_end, wall()))
        self.funcs.append(func)
        return result

    def times(self) -> list[Pair]:
        """Duration of each op, the cost of the clocks included."""
        return [Pair(after - before, end - start) for before, start, end, after in self.marks]

    def gaps(self, begin: Pair, end: Pair) -> list[Pair]:
        """Between the ops: from the ``begin`` of the step to the first op, from each op to the next, to the ``end``."""
        before = [*(Pair(mark[0], mark[1]) for mark in self.marks), end]
        after = [begin, *(Pair(mark[3], mark[2]) for mark in self.marks)]
        return [start - done for start, done in zip(before, after, strict=True)]


def reading(clocks: Clocks, count: int = 5001) -> Pair:
    """Cost of the clocks for an op that they measure: the median of ``count`` no-ops."""
    wall, thread = clocks
    marks = [(wall(), thread(), thread(), wall()) for _ in range(count)]
    return median([Pair(after - before, end - start) for before, start, end, after in marks])


def median(pairs: Sequence[Pair]) -> Pair:
    """The median by each clock; zero of nothing."""
    if not pairs:
        return Pair(0.0, 0.0)
    return Pair(statistics.median(p.wall for p in pairs), statistics.median(p.thread for p in pairs))


class NullCalls(Recorder):
    """Before every op it calls one that does nothing, on the first tensor of its arguments; ``seen`` are these calls.

    They measure what a call of an op takes by itself, among the ops of the step and with caches as these leave them.
    """

    def __init__(self, clocks: Clocks) -> None:
        super().__init__(lambda index: None)
        self.seen: list[Pair] = []
        self._clocks = clocks
        self._nothing = torch.ops.aten.alias.default

    def record(self, func: Any, schema: Schema | OpaqueSchema, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Run ``func`` after a call of nothing on the clocks. Returns its result."""
        del schema
        operand = args[0] if args else None
        if type(operand) is torch.Tensor and operand.layout is torch.strided:
            wall, thread = self._clocks
            wall_start = wall()
            thread_start = thread()
            self._nothing(operand)
            thread_end = thread()
            self.seen.append(Pair(wall() - wall_start, thread_end - thread_start))
        return func(*args, **kwargs)
