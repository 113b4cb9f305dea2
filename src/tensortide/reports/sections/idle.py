"""Section ``idle``: the time that memory lies idle between uses, what links hide of it, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import msgspec

from tensortide.graph.model import Role
from tensortide.reports.blocks import AnyBlock, Document, Fact, Facts, Note, Section
from tensortide.reports.names import Stored, device_text, op_text
from tensortide.reports.of_differences import of_facts
from tensortide.reports.of_records import fact, facts
from tensortide.reports.sections import Step
from tensortide.reports.sections.idle_pictures import curve, lifetimes, scatters
from tensortide.reports.sections.idle_tables import RANDOM, View, storages_table, tables
from tensortide.targets.command import moving
from tensortide.timelines import Idleness, idleness
from tensortide.timing import LINKS, Link
from tensortide.units import format_bytes, format_percent, format_seconds

ORDER = 70

LINK = "pcie4"
"""The link of the advice unless another is named."""
FIGURES = ("live", "intervals", "lengths", "lifetimes")
"""Keys of the blocks that can be drawn."""
_WRITTEN = {
    "offload": "Write: with torch.autograd.graph.save_on_cpu(pin_memory=True): around that line and what reads it",
    "recompute": "Write: y = checkpoint(f, x, use_reentrant=False), with f that line and what reads it",
}
"""What to write for what the forward pass keeps for the backward pass."""
LATE = 0.05
"""Share of memory-time after the last use from which on late releases are mentioned."""
LENGTHS = {f"{n} {unit}": n * ns for unit, ns in (("us", 10**3), ("ms", 10**6), ("s", 10**9)) for n in (1, 10, 100)}
SHOWN = ("10 us", "100 us", "1 ms", "10 ms", "100 ms", "1 s")


def of_step(step: Step) -> Section | None:
    """Make the section where durations are known."""
    if step.durations is None or step.graph.loops:
        return None
    return section(idleness(step.graph, step.durations.ns), top=step.top, typed=step.moving)


def document(
    idle: Idleness,
    link: Link = LINKS[LINK],
    *,
    durations: str = "",
    capacity_bytes: int | None = None,
    top: int = 10,
    typed: str = "",
) -> Document:
    """Show ``idle`` with every storage.

    ``durations`` says where durations come from; ``capacity_bytes`` is the memory of the device. ``typed``: the command
    that plans the step with moves.
    """
    meta = idle.graph.meta
    compat = ["every tensor counts for itself, views too (compat)"] if idle.mode == "compat" else []
    lines = (f"one step of {len(idle.graph)} ops, memory of {device_text(idle.device)}", *compat)
    made = section(idle, link, top=top, storages=True, typed=typed)
    notes = [Note(text=text, kind="assumption") for text in meta.assumptions]
    if capacity_bytes is not None:
        notes.append(capacity_note(idle.peak_bytes, capacity_bytes))
    whole = msgspec.structs.replace(made, blocks=(*made.blocks, *notes))
    title, source = meta.workload or "unnamed step", f"durations {durations or 'unknown'}"
    return whole.document(title, *lines, source, settings=meta.hyperparameters)


def capacity_note(peak_bytes: int, capacity_bytes: int) -> Note:
    """Compare a peak with the memory of the device that the target names."""
    share = format_percent(peak_bytes, capacity_bytes)
    over = peak_bytes - capacity_bytes
    ends = f": {format_bytes(over)} too much" if over > 0 else ", which is enough"
    return Note(text=f"The peak is {share} of the {format_bytes(capacity_bytes)} that the device has{ends}.")


def section(
    idle: Idleness, link: Link = LINKS[LINK], *, top: int = 10, storages: bool = False, typed: str = ""
) -> Section:
    """Make the section of ``idle`` with advice for ``link``; ``storages`` adds a table with a row for each.
    ``typed``: the command that plans the step with moves; by default that of the workload's name."""
    view = View(idle, link, top)
    made: list[AnyBlock] = [Note(text=_verdict(view), kind="verdict")]
    made += _advice(view, typed or moving(idle.graph.meta.workload or "TARGET"))
    made += [_facts(view), *curve(idle, alive="storages" * storages), *tables(view)]
    made += [*scatters(idle, view.names, link), *lifetimes(idle, view.names)]
    made += [storages_table(view)] * storages
    return Section("idle", "How long memory lies idle", blocks=tuple(made))


def compared(a: Document, b: Document) -> Document:
    """Show two documents of this section side by side, figure by figure."""
    first, second = (_numbers(one["idle"]) for one in (a, b))
    never = {one.key for one in first if not one.value} & {one.key for one in second if one.data and not one.value}
    names = [" ".join([one.title, *(f"{k}={v}" for k, v in one.settings.items())]) for one in (a, b)]
    lines = [f"{side}: {name}, {one.subtitle[-1]}" for side, name, one in zip("AB", names, (a, b), strict=True)]
    live = [_by_role(one["idle"]) for one in (a, b)]
    ours, theirs = (
        [Fact(f"{role}_bytes", role.replace("_", " "), side.get(role, 0), "bytes") for role in live[0] | live[1]]
        for side in live
    )
    blocks = (
        of_facts([one for one in first if one.key not in never], second),
        of_facts(ours, theirs, key="roles", title="Live by role, on average over the step"),
    )
    return Section("idle", "How long memory lies idle", blocks=blocks).document("A and B", *lines)


def _numbers(made: Section) -> list[Fact]:
    """List the facts that have a label and a number."""
    rows = [fact for block in made.blocks if isinstance(block, Facts) for fact in block.rows]
    return [fact for fact in rows if fact.label and isinstance(fact.value, int | float)]


def _by_role(made: Section) -> dict[str, int]:
    if not any(block.key == "roles" for block in made.blocks):
        return {}
    roles = made.table("roles")
    return {str(role): int(live or 0) for role, live in zip(roles["role"], roles["live_bytes"], strict=True)}


# -- in sentences -----------------------------------------------------------------------------------


def _verdict(view: View) -> str:
    spent = view.idle.total
    if not spent.total_byte_ns:
        return "Nothing is live for any time."
    average = view.idle.average("", spent)
    live, active = format_bytes(average.live_bytes), format_bytes(average.in_use_bytes)
    share = format_percent(spent.inactive_byte_ns, spent.total_byte_ns)
    return f"On average {live} are live and {active} of them in use: {share} of memory-time is inactive."


def _advice(view: View, typed: str) -> Iterator[Note]:
    said = partial(Note, kind="advice")
    idle, hidden, link = view.idle, view.hidden, view.link.name
    if idle.peak_bytes:
        peak = idle.split(idle.peak_op, view.link)
        rest, part = format_bytes(peak.idle_bytes), format_bytes(peak.hideable_bytes)
        if part == rest:
            part = "all" if peak.hideable_bytes == peak.idle_bytes else "nearly all"
        yield said(
            text=f"At the peak of {format_bytes(idle.peak_bytes)} ({op_text(idle.graph, idle.peak_op)}) {rest} are not "
            f"in use, {part} of them for long enough to be elsewhere over {link}."
        )
    if hidden.hidden and hidden.transfer_ns > idle.op_sum_ns:
        yield said(
            text=f"{link} cannot take all that it hides one by one: all moves take {_time(hidden.transfer_ns)} each "
            f"way, the ops {_time(idle.op_sum_ns)}."
        )
    for moved in view.worth_moving[:1]:
        how = _how("offload", moved.alike.stored, typed)
        freed = f"frees {format_bytes(moved.alike.size_bytes)} for {_time(moved.interval_ns)}"
        yield said(key="move_first", text=f"Offload {moved.alike} over {link}: {freed}. {how}")
    for again in view.worth_recomputing[:1]:
        how = _how("recompute", again.alike.stored, typed)
        freed = f"frees {format_bytes(again.alike.size_bytes)} for {_time(again.idle_ns)}"
        random = f" ({RANDOM})" if again.random else ""
        text = f"Recompute {again.alike}: {freed}, costs {_time(again.cost_ns)}{random}. {how}"
        yield said(key="recompute_first", text=text)
    late = idle.totals.late_share
    if late is not None and late > LATE:
        then, before = format_bytes(idle.peak_bytes), format_bytes(idle.line.peak_bytes)
        less = f"; released then, the peak is {then} instead of {before}" if then != before else ""
        text = f"{format_percent(late)} of what is resident over time waits after its last use to be released{less}."
        yield said(text=text)


def _how(does: str, stored: Stored, typed: str) -> str:
    """The code to write where PyTorch runs it, or else the command to type."""
    if stored.role == Role.ACTIVATION and stored.source:
        return _WRITTEN[does]
    return f"Type: {typed}, which says when"


def _time(ns: float) -> str:
    return format_seconds(ns / 1e9)


# -- in figures -------------------------------------------------------------------------------------


def _facts(view: View) -> Facts:
    idle, spent, link, total = view.idle, view.idle.total, view.link.name, view.idle.totals
    average, kind = idle.average("", spent), "tensors" if idle.mode == "compat" else "storages"
    mean, median = format_percent(total.in_use_mean_share), format_percent(total.in_use_median_share)
    most = (
        f"most for one op, {op_text(idle.graph, total.most_in_use_op)}; {mean} of the peak on average, median {median}"
    )
    rows = [fact(idle, "op_sum_ns", "durations of the ops; what lies between them is left out"), fact(total, "ops")]
    rows.append(fact(idle, "peak_bytes", f"live at {op_text(idle.graph, idle.peak_op)}" if total.ops else ""))
    rows.append(fact(idle, "peak_op"))
    if total.ops:
        split = idle.split(idle.peak_op, view.link)
        rows += facts(split, "active_bytes as peak_in_use_bytes", "idle_bytes as peak_idle_bytes").rows
        rows.append(fact(split, "hideable_bytes as peak_hideable_bytes", label=f"hideable over {link}"))
    if idle.mode == "storage":
        share = total.late_share
        late = "" if share is None else f": {format_percent(share)} of memory-time is after the last use"
        rows.append(fact(total, "resident_peak_bytes", f"resident, as the program releases{late}"))
        rows.append(fact(total, "late_share"))
    rows += [
        fact(average, "live_bytes", "live over the step", label="On average"),
        fact(average, "in_use_bytes"),
        fact(average, "idle_bytes", "between two uses"),
        fact(average, "unused_bytes", "not used again"),
        fact(average, "inactive_share", "of memory-time (bytes times time): idle or unused"),
        *facts(spent, "total_byte_ns", "active_byte_ns", "idle_byte_ns", "unused_byte_ns").rows,
        fact(total, "most_in_use_bytes", most if total.ops else ""),
        *facts(total, "most_in_use_op", "in_use_mean_share", "in_use_median_share").rows,
        fact(total, "allocated_bytes", f"by {total.storages} {kind}, {total.persistent} of them persistent"),
        *(fact(total, "storages", label=kind), fact(total, "persistent"), *_intervals(view)),
        *facts(idle, "mode", "device", Fact("link", "", link, data=True)).rows,
    ]
    return Facts(rows=tuple(rows))


def _intervals(view: View) -> Iterator[Fact]:
    hidden, number = view.hidden, view.hidden.intervals
    counts = dict(zip(LENGTHS, view.idle.longer_than(LENGTHS.values()).values(), strict=True))
    longer = ", ".join(f"> {name}: {format_percent(counts[name], number)}" for name in SHOWN if counts[name])
    yield fact(hidden, "intervals", longer)
    for name, count in counts.items():
        yield Fact(f"longer_{name.replace(' ', '')}", f"longer than {name}", count, "count", level=1, data=True)
    yield fact(hidden, "hidden", label=f"hideable over {hidden.link.name}")
    yield from facts(hidden, "hidden_share", "hidden_bytes_share", "hidden_time_share", data=True).rows
    yield fact(hidden, "transfer_ns", label="all transfers, one way", data=True)
