"""Section ``policies``: how long a step takes under G10's policies and under our plan, what each moves, and when."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

import msgspec

from tensortide.replays.g10 import POLICIES, G10Outcome
from tensortide.reports.blocks import AnyBlock, Document, Note, Section
from tensortide.reports.of_records import table
from tensortide.reports.pictures import Axis, Limit, Points, Scatter
from tensortide.shown import Show
from tensortide.studies.planning.g10_comparison import OURS, Compared
from tensortide.units import format_bytes, format_percent, format_seconds

_ABOUT = (
    "Pages move in batches under UVM-LRU, DeepUM+ and G10, which may compute while a late page is on its way; whole "
    "tensors under the others. Ours keeps the rules of plans (docs/plans.md), and may recompute: --no-recompute."
)
WAYS = ("host_in", "host_out", "ssd_in", "ssd_out")
"""Ways of traffic, in the order of the picture."""
FIGURES = (
    *("step_ns", "of_ideal_share", "steps_per_s", "stall_ns", "overlap_ns", "compute_ns"),
    *(f"traffic.{way} as {way}_bytes" for way in WAYS),
)


class _Row(msgspec.Struct, frozen=True):
    """A policy, or our plan, and its outcome if it runs the step."""

    policy: Annotated[str, Show("Policy")]
    ran: G10Outcome | None


def document(found: Compared, title: str, *, source: str = "") -> Document:
    """Show ``found``, compared for a step called ``title`` with times from ``source``."""
    machine = found.machine
    where = (
        f"{format_bytes(machine.device_bytes)} on the device, {format_bytes(machine.host_bytes)} at the host; wire "
        f"{machine.wire / 1e9:g} GB/s, drive {machine.drive / 1e9:g} GB/s"
    )
    return section(found).document(title, where + (f"; times: {source}" if source else ""))


def section(found: Compared) -> Section:
    """Make the section of ``found``."""
    rows = [_Row(_title(one), None if one.step_ns is None else one) for one in found.outcomes]
    figures = (f"ran.{name}" for name in FIGURES)
    made = table(_Row, rows, "policy", *figures, key="policies", title="One step under each policy", heads=1)
    failed = (Note(text=f"{_title(one)}: {one.reason}.", kind="warning") for one in found.outcomes if one.reason)
    blocks: list[AnyBlock] = [Note(text=_verdict(found), kind="verdict"), made, Note(text=_ABOUT), *failed]
    if runs := [row.ran for row in rows if row.ran is not None]:
        blocks += _pictures(runs)
    return Section("policies", "Policies that move memory", blocks=tuple(blocks))


def _title(one: G10Outcome) -> str:
    """The name of a policy, or of our plan, in words."""
    return "ours" if one.policy == OURS else POLICIES[one.policy].title


def _verdict(found: Compared) -> str:
    ours = found.of(OURS)
    if ours.step_ns is None:
        return f"Ours: {ours.reason}."
    over = ours.step_ns / ours.ideal_ns - 1 if ours.ideal_ns else 0.0
    told = f"Ours: {format_seconds(ours.step_ns / 1e9)}, {format_percent(over)} over the ideal time ({found.way})"
    rivals = [(one.step_ns, one) for one in found.outcomes if one.policy not in (OURS, "ideal")]
    known = [(ns, one) for ns, one in rivals if ns is not None]
    if not known:
        return f"{told}."
    ns, best = min(known, key=lambda rival: rival[0])
    return f"{told}; the best policy, {_title(best)}: {format_seconds(ns / 1e9)}."


def _pictures(runs: Sequence[G10Outcome]) -> Iterator[Scatter]:
    """Make a picture of the ideal time by the time of each policy, and one of its parts and of what moves."""
    yield Scatter(
        key="of_ideal",
        title="Ideal time by the time of a step",
        x=Axis("policy, in the order of the table", "count"),
        y=Axis("ideal / time", "share"),
        points=tuple(Points(_title(one), (i,), (one.of_ideal_share,)) for i, one in enumerate(runs)),
        across=(Limit("ideal time", 1.0),),
    )
    spent = {_title(one): (one.stall_ns, one.overlap_ns, one.compute_ns) for one in runs}
    moved = {_title(one): tuple(getattr(one.traffic, way) for way in WAYS) for one in runs}
    parts, ways = "0: stall, 1: overlap, 2: compute only", "0: host to device, 1: back, 2: drive to device, 3: back"
    for key, title, x, y, lines in (
        ("breakdown", "Where the time goes", parts, Axis("time", "ns"), spent),
        ("traffic", "What moves", ways, Axis("bytes", "bytes"), moved),
    ):
        points = (Points(name, tuple(range(len(of))), of, joined="line") for name, of in lines.items())
        yield Scatter(key=key, title=title, x=Axis(x, "count"), y=y, points=tuple(points))
