"""Section ``policies``: how long a step takes under G10's policies and under our plan, what each moves, and when."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tensortide.replays.g10 import POLICIES, Outcome
from tensortide.reports.blocks import AnyBlock, Column, Document, Note, Section, Table, Value
from tensortide.reports.pictures import Axis, Limit, Points, Scatter
from tensortide.studies.planning.g10_comparison import OURS, Compared
from tensortide.units import format_bytes, format_percent, format_seconds

__all__ = ["document", "section", "title_of"]

_ABOUT = (
    "Pages move in batches under UVM-LRU, DeepUM+ and G10, which may compute while a late page is on its way; whole "
    "tensors under the others. Ours keeps the rules of plans (docs/plans.md), and may recompute: --no-recompute."
)


def title_of(policy: str) -> str:
    """The name of a policy, or of our plan, in words."""
    return "ours" if policy == OURS else POLICIES[policy].title


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
    blocks: list[AnyBlock] = [Note(text=text, kind="verdict") for text in _verdict(found)]
    blocks += [_table(found.outcomes), Note(text=_ABOUT)]
    blocks += [
        Note(text=f"{title_of(outcome.policy)}: {outcome.reason}.", kind="warning")
        for outcome in found.outcomes
        if outcome.reason
    ]
    blocks += _pictures(found.outcomes)
    return Section("policies", "Policies that move memory", blocks=tuple(blocks))


def _verdict(found: Compared) -> Iterator[str]:
    ours = found.of(OURS)
    rivals = [one for one in found.outcomes if one.policy not in (OURS, "ideal") and one.time_ns is not None]
    best = min(rivals, key=lambda one: one.time_ns or 0, default=None)
    if ours.time_ns is None:
        yield f"Ours: {ours.reason}."
        return
    over = ours.time_ns / ours.ideal_ns - 1 if ours.ideal_ns else 0.0
    told = f"Ours: {format_seconds(ours.time_ns / 1e9)}, {format_percent(over)} over the ideal time ({found.way})"
    if best is None or best.time_ns is None:
        yield f"{told}."
    else:
        yield f"{told}; the best policy, {title_of(best.policy)}: {format_seconds(best.time_ns / 1e9)}."


def _table(outcomes: Sequence[Outcome]) -> Table:
    def values(name: str) -> tuple[Value, ...]:
        return tuple(getattr(one, name) for one in outcomes)

    def moved(name: str) -> tuple[Value, ...]:
        return tuple(getattr(one.traffic, name) if one.time_ns is not None else None for one in outcomes)

    rates = tuple(None if not one.time_ns else 1e9 / one.time_ns for one in outcomes)
    columns = (
        Column("policy", "Policy", "text", tuple(title_of(one.policy) for one in outcomes)),
        Column("time", "Step", "ns", values("time_ns")),
        Column("of_ideal", "Ideal / time", "share", values("of_ideal")),
        Column("steps", "Steps/s", "number", rates, at_width=100),
        Column("stall", "Stall", "ns", values("stall_ns")),
        Column("overlap", "Overlap", "ns", tuple(None if one.time_ns is None else one.overlap_ns for one in outcomes)),
        Column("compute", "Compute only", "ns", values("compute_ns")),
        Column("host_in", "Host to device", "bytes", moved("host_in"), at_width=110),
        Column("host_out", "Device to host", "bytes", moved("host_out"), at_width=110),
        Column("ssd_in", "Drive to device", "bytes", moved("ssd_in"), at_width=130),
        Column("ssd_out", "Device to drive", "bytes", moved("ssd_out"), at_width=130),
    )
    return Table(key="policies", title="One step under each policy", columns=columns, heads=1)


def _pictures(outcomes: Sequence[Outcome]) -> Iterator[Scatter]:
    """Make a picture of the ideal time by the time of each policy, and one of its parts and of what moves."""
    runs = [one for one in outcomes if one.time_ns is not None]
    if not runs:
        return
    yield Scatter(
        key="of_ideal",
        title="Ideal time by the time of a step",
        x=Axis("policy, in the order of the table", "count"),
        y=Axis("ideal / time", "share"),
        points=tuple(Points(title_of(one.policy), (i,), (one.of_ideal,)) for i, one in enumerate(runs)),
        across=(Limit("ideal time", 1.0),),
    )
    yield Scatter(
        key="breakdown",
        title="Where the time goes",
        x=Axis("0: stall, 1: overlap, 2: compute only", "count"),
        y=Axis("time", "ns"),
        points=tuple(
            Points(title_of(one.policy), (0, 1, 2), (one.stall_ns, one.overlap_ns, one.compute_ns), joined="line")
            for one in runs
        ),
    )
    yield Scatter(
        key="traffic",
        title="What moves",
        x=Axis("0: host to device, 1: back, 2: drive to device, 3: back", "count"),
        y=Axis("bytes", "bytes"),
        points=tuple(Points(title_of(one.policy), (0, 1, 2, 3), _moved(one), joined="line") for one in runs),
    )


def _moved(one: Outcome) -> tuple[int, ...]:
    return one.traffic.host_in, one.traffic.host_out, one.traffic.ssd_in, one.traffic.ssd_out
