"""Section ``idle``: the time that memory lies idle between uses, what links hide of it, and what to do about it."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from tensortide.reports.blocks import AnyBlock, Document, Fact, Facts, Note, Section, data_facts
from tensortide.reports.names import device_text, op_text
from tensortide.reports.sections import Step
from tensortide.reports.sections.difference import facts_of, facts_table
from tensortide.reports.sections.idle_pictures import curve, lifetimes, scatters
from tensortide.reports.sections.idle_tables import RANDOM, Rows, View, storages_table, tables, total
from tensortide.reports.sections.ops import ratio
from tensortide.timelines import Idleness, idleness
from tensortide.timing import LINKS, Link
from tensortide.units import format_bytes, format_percent, format_seconds

__all__ = ["FIGURES", "LINK", "ORDER", "compared", "document", "of_step", "section"]

ORDER = 70

LINK = "pcie4"
"""The link of the advice unless another is named."""
FIGURES = ("live", "intervals", "lengths", "lifetimes")
"""Keys of the blocks that can be drawn."""
LATE = 0.05
"""Share of memory-time after the last use from which on late releases are mentioned."""
LENGTHS = {f"{n} {unit}": n * ns for unit, ns in (("us", 10**3), ("ms", 10**6), ("s", 10**9)) for n in (1, 10, 100)}
SHOWN = ("10 us", "100 us", "1 ms", "10 ms", "100 ms", "1 s")


def of_step(step: Step) -> Section | None:
    """Make the section where durations are known."""
    if step.durations is None or step.graph.loops:
        return None
    return section(idleness(step.graph, step.durations.ns), top=step.top)


def document(
    idle: Idleness, link: Link = LINKS[LINK], *, durations: str = "", capacity_bytes: int | None = None, top: int = 10
) -> Document:
    """Show ``idle`` with every storage.

    ``durations`` says where durations come from; ``capacity_bytes`` is the memory of the device.
    """
    meta = idle.graph.meta
    lines = [f"one step of {len(idle.graph)} ops, memory of {device_text(idle.device)}"]
    lines += ["every tensor counts for itself, views too (compat)"] if idle.mode == "compat" else []
    made = section(idle, link, top=top, storages=True)
    notes = [Note(text=text, kind="assumption") for text in meta.assumptions]
    if capacity_bytes is not None:
        share = format_percent(int(made.fact("peak") or 0), capacity_bytes)
        notes.append(Note(text=f"The peak is {share} of the {format_bytes(capacity_bytes)} that the device has."))
    lines.append(f"durations {durations or 'unknown'}")
    whole = Section(made.key, made.title, blocks=(*made.blocks, *notes))
    return whole.document(meta.workload or "unnamed step", *lines, settings=meta.hyperparameters)


def section(idle: Idleness, link: Link = LINKS[LINK], *, top: int = 10, storages: bool = False) -> Section:
    """Make the section of ``idle`` with advice for ``link``; ``storages`` adds a table with a row for each."""
    view = View(idle, link, top)
    made: list[AnyBlock] = [Note(text=_verdict(view), kind="verdict")]
    made += [Note(text=text, kind="advice") for text in _advice(view)]
    made.append(Facts(rows=tuple(_facts(view))))
    made += [*curve(idle, alive="storages" * storages), *tables(view), *scatters(idle, view.names, link)]
    made += [*lifetimes(idle, view.names), *([storages_table(view)] if storages else [])]
    return Section("idle", "How long memory lies idle", blocks=tuple(made))


def compared(a: Document, b: Document) -> Document:
    """Show two documents of this section side by side, figure by figure."""
    first, second = (facts_of(one["idle"]) for one in (a, b))
    never = {fact.key for fact in first if not fact.value} & {
        fact.key for fact in second if fact.data and not fact.value
    }
    names = [" ".join([one.title, *(f"{k}={v}" for k, v in one.settings.items())]) for one in (a, b)]
    lines = [f"{side}: {name}, {one.subtitle[-1]}" for side, name, one in zip("AB", names, (a, b), strict=True)]
    live = [_by_role(one["idle"]) for one in (a, b)]
    ours, theirs = (
        [Fact(role, role.replace("_", " "), side.get(role, 0), "bytes") for role in live[0] | live[1]] for side in live
    )
    blocks = (
        facts_table([fact for fact in first if fact.key not in never], second),
        facts_table(ours, theirs, key="roles", title="Live by role, on average over the step"),
    )
    return Section("idle", "How long memory lies idle", blocks=blocks).document("A and B", *lines)


def _by_role(made: Section) -> dict[str, int]:
    if not any(block.key == "roles" for block in made.blocks):
        return {}
    roles = made.table("roles")
    return {str(role): int(live or 0) for role, live in zip(roles["role"], roles["live"], strict=True)}


# -- in sentences -----------------------------------------------------------------------------------


def _verdict(view: View) -> str:
    spent = view.idle.total
    if not spent.total_byte_ns:
        return "Nothing is live for any time."
    live, active = (format_bytes(view.average(part)) for part in (spent.total_byte_ns, spent.active_byte_ns))
    share = format_percent(spent.inactive_byte_ns, spent.total_byte_ns)
    return f"On average {live} are live and {active} of them in use: {share} of memory-time is inactive."


def _advice(view: View) -> Iterator[str]:
    idle, hidden, link = view.idle, view.hidden, view.link
    if view.peak_bytes:
        peak = idle.split(idle.peak_op, link)
        rest, part = format_bytes(peak.idle_bytes), format_bytes(peak.hideable_bytes)
        if part == rest:
            part = "all" if peak.hideable_bytes == peak.idle_bytes else "nearly all"
        yield (
            f"At the peak of {format_bytes(view.peak_bytes)} ({op_text(idle.graph, idle.peak_op)}) {rest} are not in "
            f"use, {part} of them for long enough to be elsewhere over {link.name}."
        )
    if hidden.count and hidden.transfer_ns > idle.op_sum_ns:
        yield (
            f"{link.name} cannot take all that it hides one by one: all moves take {_time(hidden.transfer_ns)} each "
            f"way, the ops {_time(idle.op_sum_ns)}."
        )
    for moved in view.worth_moving[:1]:
        each = _time(total(moved, "hideable_ns") / total(moved, "intervals"))
        yield f"Move first: {_spoken(view, moved)} for idle intervals of {each}."
    for again in view.worth_recomputing[:1]:
        each, cost = _time(total(again, "idle_ns") / len(again)), _time(total(again, "cost_ns"))
        random = f" ({RANDOM})" if again[0].random else ""
        yield f"Recompute first: {_spoken(view, again)} for {each} at the price of {cost}{random}."
    late = _late(idle)
    if late is not None and late > LATE:
        then, before = format_bytes(view.peak_bytes), format_bytes(idle.line.peak_bytes)
        less = f"; released then, the peak is {then} instead of {before}" if then != before else ""
        yield f"{format_percent(late)} of what is resident over time waits after its last use to be released{less}."


def _spoken(view: View, rows: Rows) -> str:
    """Speak of storages alike: name, how many, modules, line and bytes."""
    stored, modules = view.names(rows[0].index), view.modules(rows)
    several = f" x{len(rows)}" if len(rows) > 1 else ""
    module = f" in {modules}" if modules not in ("", "(outside)") else ""
    source = f" ({stored.source})" if stored.source else ""
    return f"{stored.name}{several}{module}{source}, {format_bytes(total(rows, 'nbytes'))}"


def _late(idle: Idleness) -> float | None:
    """Return the share of the recorded step's memory-time that is after the last use; None if unknown."""
    if idle.mode != "storage":
        return None
    resident = sum(n * ns for n, ns in zip(idle.line.resident.tolist(), idle.durations_ns, strict=True))
    return 1 - idle.total.total_byte_ns / resident if resident else None


def _time(ns: float) -> str:
    return format_seconds(ns / 1e9)


# -- in figures -------------------------------------------------------------------------------------


def _facts(view: View) -> Iterator[Fact]:
    idle, spent, graph = view.idle, view.idle.total, view.idle.graph
    yield Fact("op_sum", "Op sum", idle.op_sum_ns, "ns", "durations of the ops; what lies between them is left out")
    yield Fact("ops", "Ops", len(graph), "count", data=True)
    yield from _peak(view)
    yield Fact("live", "On average", view.average(spent.total_byte_ns), "bytes", "live over the step")
    yield Fact("in_use", "in use", view.average(spent.active_byte_ns), "bytes", level=1)
    yield Fact("idle", "idle", view.average(spent.idle_byte_ns), "bytes", "between two uses", level=1)
    yield Fact("unused", "unused", view.average(spent.unused_byte_ns), "bytes", "not used again", level=1)
    inactive = ratio(spent.inactive_byte_ns, spent.total_byte_ns)
    yield Fact("inactive", "inactive", inactive, "share", "of memory-time: idle or unused", level=1)
    for part in ("total", "active", "idle", "unused"):
        yield Fact(f"{part}_byte_ns", "", getattr(spent, f"{part}_byte_ns"), "byte_ns", data=True)
    yield from _in_use(view)
    kind = "tensors" if idle.mode == "compat" else "storages"
    persistent = sum(life.persistent for life in idle.lives)
    remark = f"by {len(idle.lives)} {kind}, {persistent} of them persistent"
    yield Fact("allocated", "Allocated", sum(life.nbytes for life in idle.lives), "bytes", remark)
    yield Fact("storages", kind, len(idle.lives), "count", level=1, data=True)
    yield Fact("persistent", "persistent", persistent, "count", level=1, data=True)
    yield from _intervals(view)
    yield from data_facts("text", mode=idle.mode, device=idle.device, link=view.link.name)


def _peak(view: View) -> Iterator[Fact]:
    idle, graph = view.idle, view.idle.graph
    at = f"live at {op_text(graph, idle.peak_op)}" if len(graph) else ""
    yield Fact("peak", "Peak", view.peak_bytes, "bytes", at)
    yield Fact("peak_op", "", idle.peak_op, "op", data=True)
    if len(graph):
        split = idle.split(idle.peak_op, view.link)
        yield Fact("peak_in_use", "in use", split.active_bytes, "bytes", level=1)
        yield Fact("peak_idle", "not in use", split.idle_bytes, "bytes", level=1)
        yield Fact("peak_hideable", f"hideable over {view.link.name}", split.hideable_bytes, "bytes", level=1)
    if idle.mode == "storage":
        late = _late(idle)
        share = "" if late is None else f": {format_percent(late)} of memory-time is after the last use"
        remark = f"resident, as the program releases{share}"
        yield Fact("resident_peak", "as it ran", idle.line.peak_bytes, "bytes", remark, level=1)
        yield Fact("late", "", late, "share", data=True)


def _in_use(view: View) -> Iterator[Fact]:
    """Show the bytes that single ops use, beside those live at the peak."""
    idle, active = view.idle, view.idle.active
    most = int(active.argmax()) if len(active) else -1
    shares = (active / max(1, view.peak_bytes)).tolist() or [0.0]
    mean, median = statistics.fmean(shares), statistics.median(shares)
    told = f"{format_percent(mean)} of the peak on average, median {format_percent(median)}"
    remark = f"most for one op, {op_text(idle.graph, most)}; {told}" if most >= 0 else ""
    yield Fact("most_in_use", "In use", int(active[most]) if most >= 0 else 0, "bytes", remark)
    yield Fact("most_in_use_op", "", most, "op", data=True)
    yield Fact("in_use_mean", "of the peak on average", mean, "share", level=1, data=True)
    yield Fact("in_use_median", "of the peak, median", median, "share", level=1, data=True)


def _intervals(view: View) -> Iterator[Fact]:
    hidden, number = view.hidden, view.hidden.intervals
    counts = dict(zip(LENGTHS, view.idle.longer_than(LENGTHS.values()).values(), strict=True))
    longer = ", ".join(f"> {name}: {format_percent(counts[name], number)}" for name in SHOWN if counts[name])
    yield Fact("intervals", "Idle intervals", number, "count", longer)
    for name, count in counts.items():
        yield Fact(f"longer_{name.replace(' ', '')}", f"longer than {name}", count, "count", level=1, data=True)
    yield Fact("hidden", f"hideable over {hidden.link.name}", hidden.count, "count", level=1)
    shares = (
        ("hidden_share", "of all", ratio(hidden.count, number)),
        ("hidden_bytes", "of their bytes", ratio(hidden.nbytes, hidden.interval_bytes)),
        ("hidden_time", "of their memory-time", ratio(hidden.byte_ns, hidden.interval_byte_ns)),
    )
    yield from (Fact(key, label, share, "share", level=2, data=True) for key, label, share in shares)
    yield Fact("transfer", "all moves, each way", hidden.transfer_ns, "ns", level=2, data=True)
