"""Pictures of idle memory: bytes over time, idle intervals by length and bytes, lifetimes of the largest storages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, groupby
from typing import Annotated

import msgspec

from tensortide.cost.count import phase_of
from tensortide.graph.roles import looks
from tensortide.reports.blocks import Table
from tensortide.reports.names import STORED, Names, Stored, role_series
from tensortide.reports.of_records import table
from tensortide.reports.pictures import Axis, Curve, Mark, Points, Scatter, Series, SpanLane, Spans, Stretch
from tensortide.reports.render.values import short
from tensortide.reports.sections.ops import stretches
from tensortide.shown import Show
from tensortide.timelines import Idleness, Life
from tensortide.timelines.idle import IdleInterval, byte_ns
from tensortide.timing import LINKS, Link
from tensortide.units import format_bytes

POINTS, QUANTILES, LANES, STRETCHES = 2000, 200, 40, 480
"""Most points of a scatter and of a line, lifetimes, and intervals in which one is in use."""
WEIGHTS: dict[str, Callable[[IdleInterval], int]] = {
    "intervals": lambda one: 1,
    "their bytes": lambda one: one[0].nbytes,
    "their memory-time": byte_ns,
}


def curve(idle: Idleness, *, alive: str = "") -> Iterator[Curve]:
    """Draw what is live by role and what is in use, over time. ``alive`` is the key of the table of storages."""
    ops, peak = idle.graph.ops, idle.peak_op
    if not ops:
        return
    yield Curve(
        key="live",
        title="Memory over the step",
        remark="live by role, and in use",
        x=idle.clock_ns,
        x_unit="ns",
        stack=role_series(idle.live_by_role),
        lines=(Series("in_use", "in use", tuple(idle.active.tolist())),),
        marks=(Mark(peak, f"peak {format_bytes(int(idle.live[peak]))}"),),
        bands=tuple(Stretch(*run) for run in stretches([(phase_of(op),) for op in ops])),
        table="ops",
        alive=alive,
    )


# -- idle intervals ---------------------------------------------------------------------------------


def scatters(idle: Idleness, names: Names, link: Link) -> Iterator[Scatter]:
    """Draw the idle intervals by length and bytes with what links hide, and how many are how long."""
    found = [one for one in idle.intervals if byte_ns(one)]
    if not found:
        return
    shown, x = _sample(found), Axis("length of the interval", "ns", log=True)
    by_role: defaultdict[str, list[IdleInterval]] = defaultdict(list)
    for one in shown:
        by_role[names(one[0].index).role].append(one)
    points = [_points(idle, names, role, by_role[role]) for role in looks() if role in by_role]
    low, high = (end(life.nbytes for life, _ in shown) for end in (min, max))
    grid = tuple(sorted({round(low * (2 * high / low) ** (i / 32)) for i in range(33)}))
    points += [
        Points(f"hidden by {one.name}", tuple(map(one.hidden_above_ns, grid)), grid, joined="line")
        for one in {link.name: link, "nvme": LINKS["nvme"]}.values()
    ]
    part = f"{len(shown):,} of {len(found):,}: those of most memory-time, and an even sample; "
    yield Scatter(
        key="intervals",
        title="Idle intervals by length and bytes",
        remark=f"{part if len(shown) < len(found) else ''}right of a line its link hides a move",
        x=x,
        y=Axis("bytes", "bytes", log=True),
        points=tuple(points),
    )
    found.sort(key=_length)
    lines, y = [_distribution(*one, found) for one in WEIGHTS.items()], Axis("share at most as long", "share")
    yield Scatter(key="lengths", title="Length of idle intervals", x=x, y=y, points=tuple(lines))


def _length(one: IdleInterval) -> int:
    return int(one[1].time)


def _sample(found: Iterable[IdleInterval]) -> Sequence[IdleInterval]:
    """Take at most ``POINTS``, most memory-time first: a quarter of them, and an even sample of the rest by length."""
    most = sorted(found, key=byte_ns, reverse=True)
    if len(most) <= POINTS:
        return most
    first, rest = most[: POINTS // 4], sorted(most[POINTS // 4 :], key=_length)
    room = POINTS - len(first)
    return [*first, *(rest[len(rest) * i // room] for i in range(room))]


def _points(idle: Idleness, names: Names, role: str, found: Sequence[IdleInterval]) -> Points:
    """Draw intervals of one role; each is named by its storage and the ops between which it is idle."""
    graph, told = idle.graph, []
    for life, interval in found:
        ends = ((interval.start - 1) % len(graph), interval.end)
        after, until = (f"op {op} {short(graph[op].name)}" for op in ends)
        told.append(f"{names(life.index).tensor}: idle after {after} until {until}")
    return Points(role, tuple(map(_length, found)), tuple(life.nbytes for life, _ in found), names=tuple(told))


def _distribution(name: str, weight: Callable[[IdleInterval], int], found: Sequence[IdleInterval]) -> Points:
    """Draw the share of intervals, shortest first, by ``weight`` that are at most as long as each of some quantiles."""
    sums, last = list(accumulate(map(weight, found))), len(found) - 1
    at = sorted({last * i // QUANTILES for i in range(QUANTILES + 1)})
    return Points(name, tuple(_length(found[i]) for i in at), tuple(sums[i] / sums[-1] for i in at), joined="step")


# -- lifetimes --------------------------------------------------------------------------------------


class _Largest(msgspec.Struct, frozen=True):
    """A storage with much memory-time in which it is not used."""

    stored: Stored
    idle_ns: Annotated[int, Show("Idle")]
    average_bytes: Annotated[int, Show("Idle on average", bar=1)]


def lifetimes(idle: Idleness, names: Names) -> Iterator[Table | Spans]:
    """Show the storages with most bytes times idle time: a table in that order, and their lifetimes by birth."""
    used_ones = [(life, idle.memory_time(life).inactive_byte_ns) for life in idle.lives if life.uses]
    most, step_ns = sorted(used_ones, key=lambda one: -one[1])[:LANES], max(1, idle.op_sum_ns)
    if not most:
        return
    title = "Most bytes times idle time"
    rows = [_Largest(names(life.index), spent // max(1, life.nbytes), spent // step_ns) for life, spent in most]
    columns = (*(f"stored.{name}" for name in STORED), "idle_ns", "average_bytes")
    yield table(_Largest, rows, *columns, key="largest", title=title, top=0)
    by_birth = sorted(enumerate(life for life, _ in most), key=lambda one: (one[1].start, one[1].index))
    lanes = tuple(_lane(idle, names, life, row, title) for row, life in by_birth)
    remark = "in use, and idle between"
    yield Spans(key="lifetimes", title="Lifetimes", remark=remark, x_unit="ns", lanes=lanes, table="largest", top=0)


def _lane(idle: Idleness, names: Names, life: Life, row: int, group: str) -> SpanLane:
    """Draw the lifetime of a storage: the intervals in which it is in use, and those in which it is idle."""
    clock, stored = idle.clock_ns, names(life.index)
    at, death = clock[life.start], clock[life.stop]
    found: list[tuple[int, int, str]] = []
    for start, end in (*_seen(list(_stretches(life.live_uses, clock)), idle.op_sum_ns), (death, death)):
        found += [part for part in ((at, start, "idle"), (start, end, "in use")) if part[1] > part[0]]
        at = end
    starts, ends, told = zip(*found, strict=True) if found else ((), (), ())
    kinds = tuple("idle" if name == "idle" else stored.role for name in told)
    return SpanLane(stored.tensor, starts, ends, names=told, kinds=kinds, rows=(row,) * len(found), group=group)


def _stretches(uses: Sequence[int], clock: Sequence[int]) -> Iterator[tuple[int, int]]:
    """List the intervals of use: ops one after the other make one."""
    for _, run in groupby(enumerate(uses), lambda one: one[1] - one[0]):
        ops = [op for _, op in run]
        yield clock[ops[0]], clock[ops[-1] + 1]


def _seen(stretches: list[tuple[int, int]], op_sum_ns: int) -> list[tuple[int, int]]:
    """Keep ``stretches``; of more than ``STRETCHES`` join those between which no gap would be seen."""
    joined: list[tuple[int, int]] = []
    least = op_sum_ns if len(stretches) > STRETCHES else 0
    for start, end in stretches:
        if joined and (start - joined[-1][1]) * STRETCHES < least:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((start, end))
    return joined
