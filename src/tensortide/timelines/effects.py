"""Memory as a monoid: the effect of a stretch of a step is a pair (net, peak), and effects compose.

``(n1, p1) @ (n2, p2) = (n1 + n2, max(p1, n1 + p2))`` is associative with the identity ``(0, 0)``, so the effect of a
module, a loop or an edited schedule follows exactly from the effects of its parts, in any grouping.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated

import msgspec

from tensortide.graph.model import OUTSIDE, Graph, Phase
from tensortide.shown import Show
from tensortide.timelines.timeline import StorageTimeline


class Effect(msgspec.Struct, frozen=True):
    """Effect of a stretch of ops on the bytes resident, relative to its start.

    ``net``: bytes resident at its end less those at its start. ``peak``: most bytes resident at any moment of it less
    those at its start; at least 0 and at least ``net``.
    """

    net: int = 0
    peak: int = 0

    def then(self, following: Effect) -> Effect:
        """The effect of this stretch and the ``following`` one."""
        return Effect(self.net + following.net, max(self.peak, self.net + following.peak))

    __matmul__ = then


IDENTITY = Effect()
"""The effect of doing nothing."""


def compose(parts: Iterable[Effect]) -> Effect:
    """The effect of ``parts``, one after the other."""
    net = peak = 0
    for part in parts:
        peak = max(peak, net + part.peak)
        net += part.net
    return Effect(net, peak)


def effects(line: StorageTimeline) -> tuple[Effect, ...]:
    """The effect of each op of a Timeline.

    An op first allocates its outputs (and its kernel's workspace), which is its peak; when it is done, what dies
    before the next op is released. ``Timeline.start_bytes`` plus the peak of all effects is ``Timeline.peak_bytes``.
    """
    net = (line.allocated - line.released).tolist()
    peak = (line.allocated + line.workspace).tolist()
    return tuple(map(Effect, net, peak))


class Segment(msgspec.Struct, frozen=True):
    """One call of a module: ops ``start`` to ``stop - 1`` of one phase, all inside it, and their effect."""

    start: int
    stop: int
    phase: Phase
    effect: Effect


class ModuleMemory(msgspec.Struct, frozen=True):
    """Memory of a module: its calls in order (a call ends where another module outside it, or another phase, begins).

    ``path`` is for display. ``retained_bytes``: net bytes of its forward calls: what they leave behind for backward,
    their outputs included, less what they release of their inputs. ``transient_bytes``: the largest peak of any of its
    calls. Several modules as one have the calls of all.
    """

    path: str
    type: str
    segments: tuple[Segment, ...]

    @property
    def retained_bytes(self) -> Annotated[int, Show("Leaves")]:
        return sum(segment.effect.net for segment in self.segments if segment.phase is Phase.FORWARD)

    @property
    def transient_bytes(self) -> Annotated[int, Show("Adds")]:
        return max((segment.effect.peak for segment in self.segments), default=0)


def by_module(line: StorageTimeline) -> tuple[ModuleMemory, ...]:
    """Memory of every module in a Timeline, in the graph's order of modules."""
    graph = line.graph
    found: list[list[Segment]] = [[] for _ in graph.modules]
    resident, before = line.resident, line.before
    for module, start, stop in _calls(graph):
        level = int(before[start])
        effect = Effect(int(before[stop]) - level, int(resident[start:stop].max()) - level)
        found[module].append(Segment(start, stop, graph.ops[start].phase, effect))
    return tuple(
        ModuleMemory(graph.module_path(i), module.type, tuple(sorted(segments, key=lambda s: s.start)))
        for i, (module, segments) in enumerate(zip(graph.modules, found, strict=True))
    )


def _calls(graph: Graph) -> Iterator[tuple[int, int, int]]:
    """Maximal runs ``(module, start, stop)`` of ops of one phase inside each module."""
    lines = _lineages(graph)
    open_: dict[int, int] = {}
    last: tuple[Phase, int] | None = None
    for i, op in enumerate(graph.ops):
        place = (op.phase, op.module)
        if place == last:
            continue
        inside = lines[op.module]
        same_phase = last is not None and last[0] is op.phase
        for module in [m for m in open_ if not same_phase or m not in inside]:
            yield module, open_.pop(module), i
        for module in inside:
            open_.setdefault(module, i)
        last = place
    for module, start in open_.items():
        yield module, start, len(graph)


def _lineages(graph: Graph) -> dict[int, tuple[int, ...]]:
    """For each module index the module and all that contain it by their paths; nothing outside modules."""
    paths: dict[str, int] = {}
    for i, module in enumerate(graph.modules):
        paths.setdefault(module.path, i)
    lines: dict[int, tuple[int, ...]] = {OUTSIDE: ()}
    for i, module in enumerate(graph.modules):
        parts = module.path.split(".") if module.path else []
        above = (".".join(parts[:depth]) for depth in range(len(parts)))
        lines[i] = (*(paths[path] for path in above if path in paths), i)
    return lines
