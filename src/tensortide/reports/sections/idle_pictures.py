"""Pictures of idle memory: bytes over time, idle intervals by length and bytes, lifetimes of the largest storages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, groupby

from tensortide.graph.roles import looks
from tensortide.reports.blocks import (
    Axis,
    Column,
    Curve,
    Lane,
    Mark,
    Points,
    Scatter,
    Series,
    Spans,
    Stretch,
    Table,
)
from tensortide.reports.names import Names, phase_of, stored_columns
from tensortide.reports.render.values import short
from tensortide.timelines import Idleness, Life, Span
from tensortide.timelines.idle import life_start, life_stop, used
from tensortide.timing import LINKS, Link
from tensortide.units import format_bytes

__all__ = ["curve", "lifetimes", "scatters"]

POINTS, QUANTILES, LANES, STRETCHES = 2000, 200, 40, 480
"""Most points of a scatter and of a line, lifetimes, and intervals in which one is in use."""
WEIGHTS: dict[str, Callable[[Span], int]] = {
    "intervals": lambda span: 1,
    "their bytes": lambda span: span.nbytes,
    "their memory-time": lambda span: span.nbytes * span.ns,
}


def curve(idle: Idleness, *, alive: str = "") -> Iterator[Curve]:
    """Draw what is live by role and what is in use, over time. ``alive`` is the key of the table of storages."""
    ops, peak, split = idle.graph.ops, idle.peak_op, idle.live_by_role
    if not ops:
        return
    bands = [(phase, list(run)) for phase, run in groupby(range(len(ops)), lambda op: phase_of(ops[op]))]
    yield Curve(
        key="live",
        title="Memory over the step",
        remark="live by role, and in use",
        x=idle.clock_ns,
        x_unit="ns",
        stack=tuple(
            Series(role, role.replace("_", " "), tuple(split[role].tolist()), look.band.label)
            for role, look in looks().items()
            if role in split
        ),
        lines=(Series("in_use", "in use", tuple(idle.active.tolist())),),
        marks=(Mark(peak, f"peak {format_bytes(int(idle.live[peak]))}"),),
        bands=tuple(Stretch(phase, run[0], run[-1] + 1) for phase, run in bands),
        table="ops",
        alive=alive,
    )


# -- idle intervals ---------------------------------------------------------------------------------


def scatters(idle: Idleness, names: Names, link: Link) -> Iterator[Scatter]:
    """Draw the idle intervals by length and bytes with what links hide, and how many are how long."""
    spans = [span for span in idle.spans() if span.ns and span.nbytes]
    if not spans:
        return
    shown, x = _sample(spans), Axis("length of the interval", "ns", log=True)
    by_role: defaultdict[str, list[Span]] = defaultdict(list)
    for span in shown:
        by_role[names(span.index).role].append(span)
    points = [_points(idle, names, role, by_role[role]) for role in looks() if role in by_role]
    low, high = (end(span.nbytes for span in shown) for end in (min, max))
    grid = tuple(sorted({round(low * (2 * high / low) ** (i / 32)) for i in range(33)}))
    points += [
        Points(f"hidden by {one.name}", tuple(map(one.hidden_above_ns, grid)), grid, joined="line")
        for one in {link.name: link, "nvme": LINKS["nvme"]}.values()
    ]
    part = f"{len(shown):,} of {len(spans):,}: those of most memory-time, and an even sample; "
    yield Scatter(
        key="intervals",
        title="Idle intervals by length and bytes",
        remark=f"{part if len(shown) < len(spans) else ''}right of a line its link hides a move",
        x=x,
        y=Axis("bytes", "bytes", log=True),
        points=tuple(points),
    )
    spans.sort(key=lambda span: span.ns)
    lines = tuple(_distribution(name, spans, weight) for name, weight in WEIGHTS.items())
    y = Axis("share at most as long", "share")
    yield Scatter(key="lengths", title="Length of idle intervals", x=x, y=y, points=lines)


def _sample(spans: Iterable[Span]) -> Sequence[Span]:
    """Take at most ``POINTS`` of ``spans``, most memory-time first: a quarter of them, and an even sample by length."""
    most = sorted(spans, key=lambda span: -span.nbytes * span.ns)
    if len(most) <= POINTS:
        return most
    first, rest = most[: POINTS // 4], sorted(most[POINTS // 4 :], key=lambda span: span.ns)
    room = POINTS - len(first)
    return [*first, *(rest[len(rest) * i // room] for i in range(room))]


def _points(idle: Idleness, names: Names, role: str, spans: Sequence[Span]) -> Points:
    """Draw intervals of one role; each is named by its storage and the ops between which it is idle."""
    graph = idle.graph
    told = []
    for span in spans:
        ends = ((span.period.start - 1) % len(graph), span.period.end)
        after, until = (f"op {op} {short(graph[op].name)}" for op in ends)
        told.append(f"{names(span.index).label}: idle after {after} until {until}")
    lengths, sizes = (tuple(getattr(span, field) for span in spans) for field in ("ns", "nbytes"))
    return Points(role, lengths, sizes, names=tuple(told))


def _distribution(name: str, spans: Sequence[Span], weight: Callable[[Span], int]) -> Points:
    """Draw the share of ``spans``, shortest first, by ``weight`` that are at most as long as each of some quantiles."""
    sums, last = list(accumulate(map(weight, spans))), len(spans) - 1
    at = sorted({last * i // QUANTILES for i in range(QUANTILES + 1)})
    return Points(name, tuple(spans[i].ns for i in at), tuple(sums[i] / sums[-1] for i in at), joined="step")


# -- lifetimes --------------------------------------------------------------------------------------


def lifetimes(idle: Idleness, names: Names) -> Iterator[Table | Spans]:
    """Show the storages with most bytes times idle time: a table in that order, and their lifetimes by birth."""
    used_ones = [(life, idle.memory_time(life).inactive_byte_ns) for life in idle.lives if life.uses]
    most = sorted(used_ones, key=lambda one: -one[1])[:LANES]
    if not most:
        return
    title = "Most bytes times idle time"
    idle_ns = tuple(byte_ns // max(1, life.nbytes) for life, byte_ns in most)
    average = tuple(byte_ns // max(1, idle.step_ns) for _, byte_ns in most)
    columns = (
        *stored_columns([names(life.index) for life, _ in most]),
        Column("idle", "Idle", "ns", idle_ns),
        Column("average", "Idle on average", "bytes", average, bar=1),
    )
    yield Table(key="largest", title=title, columns=columns, top=0)
    rows = sorted(enumerate(life for life, _ in most), key=lambda one: (life_start(one[1]), one[1].index))
    lanes = tuple(_lane(idle, names, life, row, title) for row, life in rows)
    remark = "in use, and idle between"
    yield Spans(key="lifetimes", title="Lifetimes", remark=remark, x_unit="ns", lanes=lanes, table="largest", top=0)


def _lane(idle: Idleness, names: Names, life: Life, row: int, group: str) -> Lane:
    """Draw the lifetime of a storage: the intervals in which it is in use, and those in which it is idle."""
    clock, stored = idle.clock_ns, names(life.index)
    at, death = clock[life_start(life)], clock[life_stop(life, len(idle.graph))]
    found: list[tuple[int, int, str]] = []
    for start, end in (*_seen(list(_stretches(used(life), clock)), idle.step_ns), (death, death)):
        found += [part for part in ((at, start, "idle"), (start, end, "in use")) if part[1] > part[0]]
        at = end
    starts, ends, told = zip(*found, strict=True) if found else ((), (), ())
    kinds = tuple("idle" if name == "idle" else stored.role for name in told)
    return Lane(stored.label, starts, ends, names=told, kinds=kinds, rows=(row,) * len(found), group=group)


def _stretches(uses: Sequence[int], clock: Sequence[int]) -> Iterator[tuple[int, int]]:
    """List the intervals of use: ops one after the other make one."""
    start = 0
    for i, op in enumerate(uses):
        if i + 1 == len(uses) or uses[i + 1] != op + 1:
            yield clock[uses[start]], clock[op + 1]
            start = i + 1


def _seen(stretches: list[tuple[int, int]], step_ns: int) -> list[tuple[int, int]]:
    """Keep ``stretches``; of more than ``STRETCHES`` join those between which no gap would be seen."""
    if len(stretches) <= STRETCHES:
        return stretches
    joined = [stretches[0]]
    for start, end in stretches[1:]:
        if (start - joined[-1][1]) * STRETCHES < step_ns:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((start, end))
    return joined
