"""A lower bound on the score of every placement of a net: its longest path, split among devices that can take it.

Every placement splits the path into *pieces* of consecutive layers on one device each. A placement of score T has only
pieces that their device does for all batches within T, and whose memory it has; where two pieces meet, an output and a
gradient are sent. A batch takes at least the time of the pieces and of what is sent, and there are ``rounds`` batches
of which each begins after one before has ended. The bound is the least T for which the cheapest split is fast enough,
found by bisection; the cheapest split by dynamic programming over the path.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np

from tensortide.compiled import IS_COMPILED, compiled, entry
from tensortide.placements.arrays import Floats, Ints
from tensortide.placements.simulator.detours import Detour, chained_times, detours, longest_path, part_times
from tensortide.placements.simulator.pieces import Pieces, delay, joins, least_peaks, rates_between
from tensortide.placements.simulator.tables import Tables

_PRECISION = 1e-4
"""Share of the bound to which it is found, from below."""
_LEAST_MS = 1e-6
"""Limit that is tried where no bound is known."""
_ROUNDING = 1e-9
"""Share of a limit by which sums of times may be over it."""
_SUMS = 1e-13
"""Share by which sums of times may differ from those of a simulation."""
_MOST_LAYERS = 2000 if IS_COMPILED else 200
"""Layers of a path up to which it is split: it takes time in their square."""


def split_path(t: Tables, where: Ints, least: float) -> float:
    """Bound the score of all batches on the devices ``where``, ms; ``least``: a bound that is known, not below 0."""
    path = longest_path(t, where)
    if len(path) > _MOST_LAYERS:
        return least
    split = _Split(t, where, path, detours(t, where, path))
    low = high = max(least, _LEAST_MS)
    found = split.least_ms(high)
    while found > high:
        low, high = high, 2 * high
        found = split.least_ms(high)
    while high - low > _PRECISION * low:
        middle = (low + high) / 2
        fastest = split.least_ms(middle)
        if fastest > middle:
            low = middle
        else:
            high, found = middle, fastest
    # no score below ``high`` allows a split that is faster than ``found``
    return max(least, low if low < high else 0.0, found * (1 - _SUMS))


class Way(NamedTuple):
    """Tables of a path in one direction, by layer or edge along it and by class of devices that are alike.

    ``ms``, ``forward``, ``load``: sums of the layers before each, and of all: time of a batch, that of its forward
    parts, the whole with a share of the update. ``sent`` [edges, classes, classes]: least time there and back of what
    an edge sends; ``queued``: on its slowest lane. ``alone``, ``queued_alone``: where no other edge beside the same
    detour is cut. ``start``: layer where the detour beside an edge begins, -1 for none. ``ended``, ``begun``: time
    that detours add which end with a layer or earlier, and which begin before it, if none is cut.
    """

    ms: Floats
    forward: Floats
    load: Floats
    sent: Floats
    alone: Floats
    queued: Floats
    queued_alone: Floats
    start: Ints
    ended: Floats
    begun: Floats
    pieces: Pieces


class _Split:
    """A path among classes of devices; ``least_ms`` has the least time of a split for a limit on scores."""

    def __init__(self, t: Tables, where: Ints, path: list[int], beside: list[Detour]) -> None:
        self.tables, self.where, self.rounds = t, where, -(-t.batches // t.in_flight)
        times, capacity = part_times(t)[:, where], t.capacity[where]
        _, first, group = np.unique(np.vstack([times, capacity]), axis=1, return_index=True, return_inverse=True)
        self.capacity, self.group = capacity[first], group.ravel()
        forward, chained = times[: t.layers, first], chained_times(t)[:, where][:, first]
        load = chained + (times[2 * t.layers :, first] / t.step_batches if t.parts > 2 * t.layers else 0.0)
        layers, peaks = [chained[path], forward[path], load[path]], least_peaks(t, path)
        sent, queued = self._sent(t.nbytes[path[:-1]])
        alone, queued_alone = sent.copy(), queued.copy()
        start, extra = np.full(len(path) - 1, -1), np.zeros((len(path), len(first)))
        ms = _sums(chained[path])
        cuts = [found.min(axis=(1, 2)) for found in self._sent(t.nbytes[[detour.cut for detour in beside]])]
        for detour, cut, lane in zip(beside, *cuts, strict=True):
            x, y = detour.start, detour.end
            start[x:y] = x
            for edge in range(x, y):
                own = (ms[edge + 1] - ms[x + 1])[:, None] + (ms[y] - ms[edge + 1])[None]
                alone[edge] = np.maximum(sent[edge], detour.ms + cut - own)
                queued_alone[edge] += lane if detour.is_direct and x < edge < y - 1 else 0.0
            aside = chained[list(detour.layers)].sum(axis=0)
            extra[y] = np.minimum(aside, (detour.ms + 2 * cut - (ms[y] - ms[x + 1])).clip(min=0.0))
        along, rates, late_ms = joins(t, path), rates_between(t, where, self.group), np.zeros(len(first))
        nothing = along._replace(first=np.zeros_like(along.first))
        self.there = _way(
            layers, [sent, alone, queued, queued_alone], start, extra, Pieces(peaks, along, rates, late_ms)
        )
        edges = [of[::-1].swapaxes(1, 2) for of in (sent, alone, queued, queued_alone)]
        layers, mirrored = [of[::-1] for of in layers], _mirrored(start, extra, beside)
        backwards = Pieces(np.ascontiguousarray(peaks[::-1, ::-1].T), nothing, rates, late_ms)
        self.back = _way(layers, edges, *mirrored, backwards)

    def _sent(self, nbytes: Ints) -> tuple[Floats, Floats]:
        """The least time there and back, and on the slowest lane, between two devices of two classes."""
        t, where, classes = self.tables, self.where, len(self.capacity)
        sent = np.full((len(nbytes), classes, classes), np.inf)
        queued = sent.copy()
        for one, two in itertools.permutations(range(len(where)), 2):
            lanes: dict[int, Floats] = {}
            ways = ((where[one], where[two]), (where[two], where[one]))
            for source, target in ways[: 1 + t.backward]:
                pair = source * t.devices + target
                for hop in range(t.route[pair], t.route[pair + 1]):
                    took = np.maximum(t.cycle[source], nbytes / t.gigabyte / t.hop_rate[hop] * 1000 / t.network)
                    lane = int(t.hop_lane[hop])
                    lanes[lane] = lanes.get(lane, np.zeros(1)) + t.hop_latency[hop] + took
            each, at = np.array([*lanes.values()]), (slice(None), self.group[one], self.group[two])
            sent[at] = np.minimum(sent[at], each.sum(axis=0))
            queued[at] = np.minimum(queued[at], each.max(axis=0))
        return sent, queued

    def least_ms(self, limit: float) -> float:
        """The least time of all rounds of a split that a placement of score ``limit`` may have; infinite for none."""
        t, classes, count = self.tables, len(self.capacity), len(self.there.start) + 1
        room = self.capacity + (limit / t.penalty if t.penalty else np.inf) + 1.0
        limit *= 1 + _ROUNDING
        whole, part, behind = (np.zeros((classes, count)) for _ in range(3))
        cheapest(self.back, True, room, limit, t.batches, t.in_flight, t.backward, behind, whole, part)
        behind = np.minimum(whole, part)[:, ::-1].copy()
        return self.rounds * float(
            cheapest(self.there, False, room, limit, t.batches, t.in_flight, t.backward, behind, whole, part)
        )


def _way(layers: list[Floats], edges: list[Floats], start: Ints, extra: Floats, pieces: Pieces) -> Way:
    """Tables of a path from figures by layer and by edge; ``extra``: what is added where a detour ends."""
    ms, forward, load = (_sums(of) for of in layers)
    begun = np.zeros_like(extra)
    for edge in range(len(start)):
        is_first = start[edge] == edge
        end = edge + 1
        while is_first and end < len(start) and start[end] == edge:
            end += 1
        begun[edge + 1] = extra[end] if is_first else 0.0
    sent, alone, queued, queued_alone = (np.ascontiguousarray(of) for of in edges)
    ended, begun = extra.cumsum(axis=0), begun.cumsum(axis=0)
    return Way(ms, forward, load, sent, alone, queued, queued_alone, start, ended, begun, pieces)


def _mirrored(start: Ints, extra: Floats, beside: list[Detour]) -> tuple[Ints, Floats]:
    """``start`` and ``extra`` of the path backwards."""
    last = len(start)
    starts, extras = np.full(last, -1), np.zeros_like(extra)
    for detour in beside:
        starts[last - detour.end : last - detour.start] = last - detour.end
        extras[last - detour.start] = extra[detour.end]
    return starts, extras


@entry
def cheapest(
    way: Way,
    mirrored: bool,
    room: Floats,
    limit: float,
    batches: int,
    in_flight: int,
    backward: bool,
    behind: Floats,
    whole: Floats,
    part: Floats,
) -> float:
    """The least time of a split of a path for one batch; see ``Way`` for its tables.

    ``whole[k, i]`` becomes the least time of all before a piece that begins with layer i on class k; ``part[k, i]``
    that where another edge is to be cut beside the same detour. ``behind[k, j]``: least time of what follows a piece
    that ends with layer j. A piece has jobs of all batches on one device. None begins before what precedes it, none
    ends later than what precedes it takes back. Until the first batch returns to it, it has the forward parts of those
    in flight at most, and after the last forward part the backward parts of as many. None of this is asked of pieces of
    a path that is ``mirrored``: what precedes them along it lies between their forward and their backward parts.
    """
    ms, load, pieces = way.ms, way.load, way.pieces
    late_ms, first = pieces.late_ms, pieces.joins.first
    classes, layers = room.shape[0], way.start.shape[0] + 1
    whole[:, 0], part[:, 0] = 0.0, np.inf
    whole[:, 1:], part[:, 1:] = np.inf, np.inf
    least = np.inf
    for j in range(layers):
        start = way.start[j] if j < layers - 1 else -1
        for k in range(classes):
            outer = inner = np.inf
            late_ms[:], joined_bytes, join = 0.0, 0.0, first[j]
            for i in range(j, -1, -1):
                if pieces.peaks[i, j] > room[k] or batches * (load[j + 1, k] - load[i, k]) > limit:
                    break
                if join < first[j + 1] and pieces.joins.at[join] == i:
                    _hand_over(way, limit / batches, whole, part, j, k, outer, inner)
                    outer = inner = np.inf
                    joined_bytes += pieces.joins.nbytes[join]
                    join += 1
                    since_ms = way.forward[j + 1, k] - way.forward[i + 1, k] + way.ended[j, k] - way.ended[i, k]
                    delay(pieces, k, joined_bytes, since_ms)
                own = ms[j + 1, k] - ms[i, k]
                there = way.forward[j + 1, k] - way.forward[i, k]
                idle = _idle(there, own - there, behind[k, j], batches, in_flight, backward)
                head = part[k, i] if i else 0.0  # what a detour delays need not precede the piece
                if not mirrored and head + batches * own + idle > limit:
                    continue
                own += max(0.0, way.ended[j, k] - way.begun[i, k])
                if start < 0 or i <= start:
                    outer = min(outer, whole[k, i] + own)
                else:
                    inner = min(inner, part[k, i] + own)
            if j < layers - 1:
                _hand_over(way, limit / batches, whole, part, j, k, outer, inner)
            else:
                least = min(least, outer)
    return least


@compiled
def _idle(there: float, back: float, behind: float, batches: int, in_flight: int, backward: bool) -> float:
    """The least time, ms, that a piece waits for what is ``behind`` it; its own parts take ``there`` and ``back``."""
    if not backward:
        return behind
    first = max(0.0, behind - (in_flight - 1) * there)
    last = max(0.0, behind - (in_flight - 1) * back)
    return first + last if batches > in_flight else max(first, last)


@compiled
def _hand_over(
    way: Way, most: float, whole: Floats, part: Floats, edge: int, k: int, outer: float, inner: float
) -> None:
    """Let pieces begin after ``edge``, where one ends on class ``k``: the first beside a detour, or a further one.

    ``outer`` and ``inner``: time until then in both cases; ``most``: time that a lane may take for a batch.
    """
    for other in range(whole.shape[0]):
        if way.queued[edge, k, other] > most:
            continue
        sent = way.sent[edge, k, other] + way.pieces.late_ms[other]
        again = inner + sent
        part[other, edge + 1] = min(part[other, edge + 1], outer + sent, again)
        if way.queued_alone[edge, k, other] <= most:
            again = min(again, outer + max(sent, way.alone[edge, k, other]))
        whole[other, edge + 1] = min(whole[other, edge + 1], again)


def _sums(values: Floats) -> Floats:
    """Sums of the rows before each row, and of all."""
    return np.vstack([np.zeros(values.shape[1]), np.cumsum(values, axis=0)])
