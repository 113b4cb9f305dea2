"""Ways beside the longest path of a net."""

from __future__ import annotations

from dataclasses import dataclass, replace
from heapq import heappop, heappush

from tensortide.placements.arrays import Floats, Ints
from tensortide.placements.simulator.tables import Tables

_MOST_ASIDE = 64
"""Layers beside the path that are followed from one of its layers."""


@dataclass(frozen=True)
class Detour:
    """A second way from layer ``start`` of a path to layer ``end`` (numbers along it) beside the path.

    ``layers``: those in between; ``ms``: their time, each on its fastest device; ``cut``: the layer on the way whose
    output is sent fastest.
    """

    start: int
    end: int
    ms: float
    cut: int
    layers: tuple[int, ...]

    @property
    def is_direct(self) -> bool:
        """True if it is an edge."""
        return not self.layers


def longest_path(t: Tables, where: Ints) -> list[int]:
    """The layers of the path from an input to an end that takes longest, each on its fastest device."""
    least = chained_times(t)[:, where].min(axis=1).tolist()
    before, ends = [-1] * t.layers, [0.0] * t.layers
    for layer in range(t.layers):
        parents = _successors(t, t.layers + layer)
        before[layer] = max(parents, key=ends.__getitem__, default=-1)
        ends[layer] = least[layer] + (ends[before[layer]] if parents else 0.0)
    last = max((layer for layer in range(t.layers) if not _successors(t, layer)), key=ends.__getitem__)
    path = [last]
    while before[path[-1]] >= 0:
        path.append(before[path[-1]])
    return path[::-1]


def detours(t: Tables, where: Ints, path: list[int]) -> list[Detour]:
    """Ways beside ``path`` that do not overlap along it, in order; of those between the same layers a slow one."""
    least = chained_times(t)[:, where].min(axis=1).tolist()
    place = {layer: number for number, layer in enumerate(path)}
    found = [detour for start in range(len(path)) for detour in _from(t, least, path, place, start)]
    chosen: list[Detour] = []
    for detour in sorted(found, key=lambda one: (one.end, -one.start)):
        if not chosen or detour.start >= chosen[-1].end:
            chosen.append(detour)
    return chosen


def _from(t: Tables, least: list[float], path: list[int], place: dict[int, int], start: int) -> list[Detour]:
    """A slow way beside ``path`` from its layer ``start`` to each layer that such ways return to; ``least``: times."""

    def is_slower(one: Detour, other: Detour | None) -> bool:
        return other is None or (one.ms, t.nbytes[one.cut]) > (other.ms, t.nbytes[other.cut])

    layer, ends = path[start], list[Detour]()
    children = (child for child in _successors(t, layer) if place.get(child) != start + 1)
    ways = {child: Detour(start, start, 0.0, layer, ()) for child in children}
    heap = sorted(ways)  # layers are numbered in topological order: each comes after all that lead to it
    for _ in range(_MOST_ASIDE):
        if not heap:
            break
        one = heappop(heap)
        if one in place:
            ends.append(replace(ways[one], end=place[one]))
            continue
        way = ways[one]
        cut = min(way.cut, one, key=t.nbytes.__getitem__)
        further = Detour(start, start, way.ms + least[one], cut, (*way.layers, one))
        for child in _successors(t, one):
            if child not in ways:
                heappush(heap, child)
            if is_slower(further, ways.get(child)):
                ways[child] = further
    return ends


def part_times(t: Tables) -> Floats:
    """Time of each part on each device, ms [parts, devices]: layers without weights are not updated."""
    times = t.times.reshape(t.parts, t.devices).copy()
    times[2 * t.layers :][t.resident[: t.parts - 2 * t.layers] == 0] = 0.0
    return times


def chained_times(t: Tables) -> Floats:
    """Time of each layer on each device for one batch, without its update, ms [layers, devices]."""
    times = t.times.reshape(t.parts, t.devices)
    return times[: t.layers] + times[t.layers : 2 * t.layers] if t.backward else times[: t.layers]


def _successors(t: Tables, part: int) -> list[int]:
    found: list[int] = t.successors[t.first[part] : t.first[part + 1]].tolist()
    return found
