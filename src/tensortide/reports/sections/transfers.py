"""Section ``transfers``: a plan as it is played: lanes of the ops, of the copy engines and of the stalls with their
causes, what each step is for, and the bytes of every place over time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Annotated, Any

import msgspec
import numpy as np

from tensortide.cost.count import RECOMPUTE, phase_of
from tensortide.plans import Compute, Copy, Evict, Fetch
from tensortide.plans.events import Stall
from tensortide.plans.instance import DEVICE
from tensortide.replays import TransferTimeline
from tensortide.replays.absences import Absence, absences
from tensortide.reports.base import Ints
from tensortide.reports.blocks import Section, Table
from tensortide.reports.names import device_text, op_text, role_series, source_place, storage_texts
from tensortide.reports.of_records import table
from tensortide.reports.pictures import Arrow, Curve, Limit, SpanLane, Spans
from tensortide.shown import Show
from tensortide.timelines.resident import storage_homes
from tensortide.units import format_bytes, format_seconds

CLOCK = "plan"
"""The x axis that the pictures of a plan share."""
MOST_SAID = 3
"""Clauses that are said of one step."""


def section(line: TransferTimeline) -> Section:
    """Make the section alone: lanes with a table of their steps, and a curve of each place."""
    curves = (place_curve(line, name) for name in line.played.before_bytes)
    return Section("transfers", "As played", blocks=(*lanes(line), *curves))


def lanes(line: TransferTimeline) -> tuple[Spans, Table]:
    """The lanes of the section, and the table of their steps."""
    shown = _Shown(line)
    spans = Spans(
        key="lanes",
        title="As played",
        remark="ops, transfers and waits over time",
        x_unit="ns",
        lanes=tuple(shown.lanes()),
        arrows=tuple(shown.arrows()),
        table="steps",
        top=0,
        clock=CLOCK,
    )
    return spans, table(_Step, list(shown.steps()), key="steps", top=0, only="data")


class _Step(msgspec.Struct, frozen=True):
    """An op or a transfer: where, the bytes that it moves or brings back by recomputation, and what it is for."""

    op: int | None
    storage: int | None
    module: Annotated[str, Show("Module", "path")]
    line: Annotated[str, Show("Line")]
    size_bytes: Annotated[int | None, Show("Bytes")]
    issue_ns: int
    why: Annotated[str, Show("Why")]
    waited: Annotated[str, Show("Waited")]


class _Shown:
    """A plan as played, with a name for every storage. ``rows`` are the steps that take time, ``own`` those of each
    engine, ``at`` the lane of a step and its place there."""

    def __init__(self, line: TransferTimeline) -> None:
        self.line, self.played, self.graph, self.names = line, line.played, line.recorded, storage_texts(line.recorded)
        self.rows = [i for i, engine in enumerate(self.played.engine) if engine]
        engines = (DEVICE, *line.lanes[1:])
        self.own = {engine: [i for i in self.rows if self.played.engine[i] == engine] for engine in engines}
        self.at = {i: (lane, n) for lane, own in enumerate(self.own.values()) for n, i in enumerate(own)}
        self.causes = list(map(self._cause, self.played.stalls))

    def _cause(self, stall: Stall) -> str:
        """Say in a clause what a stall waits for."""
        by = self.played.steps[stall.by] if stall.by >= 0 else None
        over = f" over {by.link}" if isinstance(by, Copy | Fetch) else ""
        what = self.names[stall.storage] if stall.storage >= 0 else "workspace"
        place = "the device" if stall.place == DEVICE else stall.place
        causes = {
            "fetch": f"the fetch of {what}{over}",
            "copy": f"the copy of {what}{over}, before it is written",
            "room": f"room on {place}: {what} leaves when {f'its transfer{over}' if over else 'the op before'} ends",
            "serial": f"a synchronous transfer{over}",
        }
        return f"waits for {causes[stall.cause]}"

    def lanes(self) -> Iterator[SpanLane]:
        """The device's lane, those of the engines, and the stalls: each interval with its row of the table of steps."""
        played, stalls, group = self.played, self.played.stalls, device_text(self.line.device)
        row = {step: number for number, step in enumerate(self.rows)}
        for engine, own in self.own.items():
            starts, ends = (tuple([column[i] for i in own]) for column in (played.start_ns, played.end_ns))
            kinds, texts = zip(*self._kinds(own), strict=True) if own else ((), ())
            label = "compute" if engine == DEVICE else engine
            yield SpanLane(label, starts, ends, texts, kinds, tuple(row[i] for i in own), group)
        starts, ends = (tuple(getattr(stall, side) for stall in stalls) for side in ("start_ns", "end_ns"))
        kinds, rows = ("stall",) * len(stalls), tuple(row[stall.step] for stall in stalls)
        yield SpanLane("stalls", starts, ends, tuple(self.causes), kinds, rows, group)

    def _kinds(self, own: Sequence[int]) -> Iterator[tuple[str, str]]:
        """Yield a kind and a text for each step: ``copy``, ``fetch``, or the phase of its op, ``recompute`` if that ran
        before."""
        ran = set[int]()
        for step in (self.played.steps[i] for i in own):
            if isinstance(step, Compute):
                kind = RECOMPUTE if step.op in ran else phase_of(self.graph.ops[step.op])
                yield kind, self.graph[step.op].name
                ran.add(step.op)
            else:
                kind = "fetch" if isinstance(step, Fetch) else "copy"
                yield kind, f"{kind} {self.names[step.storage]}"

    def arrows(self) -> Iterator[Arrow]:
        """From each copy to every fetch of it, and to the first op that touches what was fetched."""
        copied: dict[tuple[int, str], tuple[int, int]] = {}
        fetched: dict[int, tuple[tuple[int, int], ...]] = {}
        for i, step in enumerate(self.played.steps):
            if isinstance(step, Copy):
                copied[step.storage, step.link] = self.at[i]
            elif isinstance(step, Fetch):
                origin = copied.get((step.storage, step.link))
                fetched[step.storage] = (self.at[i],) if origin is None else (origin, self.at[i])
            elif isinstance(step, Evict):
                fetched.pop(step.storage, None)
            elif isinstance(step, Compute):
                for s in self.line.problem.ops[step.op].touches:
                    if s in fetched:
                        yield Arrow(self.names[s], (*fetched.pop(s), self.at[i]))

    def steps(self) -> Iterator[_Step]:
        """Yield what the page and the trace say of each step."""
        graph, homes, found = self.graph, storage_homes(self.graph), absences(self.line.problem, self.played)
        waited = _by_step(zip((stall.step for stall in self.played.stalls), self.causes, strict=True))
        why = _by_step(chain(self._kept_home(found), *map(self._reasons, found)))
        sizes: dict[int, int] = {}
        for one in found:
            for run in one.recomputed:
                sizes[run] = sizes.get(run, 0) + int(graph.storages[one.storage].nbytes)
        for i in self.rows:
            step, issued, said = self.played.steps[i], self.played.issue_ns[i], (why.get(i, ""), waited.get(i, ""))
            if isinstance(step, Compute):
                made = graph.ops[step.op]
                place = graph.module_path(made.module), source_place(graph, made.source)
                yield _Step(step.op, None, *place, sizes.get(i), issued, *said)
            else:
                stored = graph.storages[step.storage]
                line = "" if stored.birth is None else source_place(graph, graph.ops[stored.birth].source)
                place = graph.module_path(homes[step.storage]), line
                yield _Step(None, step.storage, *place, int(stored.nbytes), issued, *said)

    def _reasons(self, one: Absence) -> Iterator[tuple[int, str]]:
        """Say of the steps that end an absence, or make it possible, what they are for."""
        used = self.played.steps[one.used] if one.used >= 0 else None
        then = f"; then {op_text(self.graph, used.op)} uses it" if isinstance(used, Compute) else ""
        start, end = (format_seconds(ns / 1e9) for ns in (one.from_ns, one.to_ns))
        home = self.line.plan.home.get(one.storage, "its tier")
        away = f"away from {start}" if one.released >= 0 else f"on {home}, its home,"
        for step in dict.fromkeys((one.copied, one.fetched, *one.recomputed)):
            if step >= 0:
                yield step, f"{self.names[one.storage]} is {away} to {end}{then}"

    def _kept_home(self, found: Sequence[Absence]) -> Iterator[tuple[int, str]]:
        """Say of copies out for which no absence ends what they are for."""
        told = {one.copied for one in found}
        for i, step in enumerate(self.played.steps):
            if isinstance(step, Copy) and i not in told:
                home = ", its home between steps" if self.line.plan.home.get(step.storage) == step.link else ""
                yield i, f"writes {self.names[step.storage]} to {step.link}{home}"


def _by_step(pairs: Iterable[tuple[int, str]]) -> dict[int, str]:
    """Join what is said of each step, of more than ``MOST_SAID`` clauses the first."""
    found: dict[int, list[str]] = {}
    for step, text in pairs:
        found.setdefault(step, []).append(text)
    more = {step: [f"and {len(texts) - MOST_SAID} more"] for step, texts in found.items() if texts[MOST_SAID:]}
    return {step: "; ".join([*texts[:MOST_SAID], *more.get(step, ())]) for step, texts in found.items()}


def place_curve(line: TransferTimeline, place: str) -> Curve:
    """The bytes of a place over time, by role, with its capacity."""
    over, capacities = line.place(place), {link.name: link.capacity_bytes for link in line.problem.links}
    most = line.budget_bytes if place == DEVICE else capacities[place]
    edges = over.time_ns.tolist()
    runs = np.maximum(np.searchsorted(line.run_start_ns, over.time_ns, "right") - 1, 0)
    x = (*edges, max(line.makespan_ns, edges[-1] + 1))
    limits = () if most is None else (Limit(f"capacity {format_bytes(most)}", most),)
    title = f"Memory of {device_text(line.device) if place == DEVICE else place}"
    ops = tuple(line.run_op[runs].tolist()) if len(line.run_op) else ()
    return over_time(f"place_{place}", title, x, ops, over.by_role, limits)


def over_time(
    key: str, title: str, x: Ints, ops: Ints, by_role: Mapping[str, Any], limits: tuple[Limit, ...], **more: Any
) -> Curve:
    """Draw bytes by role over the time of a plan, for the page."""
    stack = role_series(by_role)
    shown: dict[str, Any] = {"x_unit": "ns", "table": "ops", "clock": CLOCK, "only": "page"}
    return Curve(key=key, title=title, x=x, ops=ops, stack=stack, limits=limits, **shown, **more)
