"""What liveness tells, in sentences that one can act on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tensortide.reports.simulation.words import place_text, time_text
from tensortide.units import format_bytes, format_percent

if TYPE_CHECKING:
    from tensortide.reports.liveness.records import LivenessView, OffloadRow, RecomputeRow, Stored

LATE = 0.05
"""Share of memory-time after the last use from which on late releases are mentioned."""
RANDOM = "draws random numbers: recomputed by hand it needs the generator state saved, or gradients are wrong"


def verdict(view: LivenessView) -> str:
    """One sentence: how much of the memory that is alive is in use?"""
    total = view.total
    if not total.total_byte_ns:
        return "Nothing is alive for any time."
    average = format_bytes(total.total_byte_ns / max(1, view.step_ns))
    active = format_bytes(total.active_byte_ns / max(1, view.step_ns))
    return (
        f"On average {average} are alive and {active} of them in use: "
        f"{format_percent(total.inactive_share)} of memory-time is inactive."
    )


def advice(view: LivenessView) -> Iterator[str]:
    """What follows from it."""
    peak, hidden = view.peak, view.chosen
    if peak.at is not None and peak.live_bytes:
        idle, part = format_bytes(peak.idle_bytes), format_bytes(peak.hideable_bytes)
        if part == idle:
            part = "all" if peak.hideable_bytes == peak.idle_bytes else "nearly all"
        yield (
            f"At the peak of {format_bytes(peak.live_bytes)} ({place_text(peak.at)}) {idle} are not in use, {part} of "
            f"them for long enough to be elsewhere over {view.link}."
        )
    if hidden.count and hidden.transfer_ns > view.step_ns:
        yield (
            f"{view.link} cannot take all that it hides one by one: all moves take {time_text(hidden.transfer_ns)} "
            f"each way, the step {time_text(view.step_ns)}."
        )
    if view.offload:
        yield f"Move first: {_offload(view.offload[0])}."
    if view.recompute:
        yield f"Recompute first: {_recompute(view.recompute[0])}."
    late = late_share(view)
    if late is not None and late > LATE and view.resident_peak_bytes is not None:
        yield (
            f"{format_percent(late)} of what is resident over time waits after its last use to be released; released "
            f"then, the peak is {format_bytes(peak.live_bytes)} instead of {format_bytes(view.resident_peak_bytes)}."
        )


def late_share(view: LivenessView) -> float | None:
    """Of the memory-time of the step as it ran, what is after the last use; None if unknown."""
    if not view.resident_byte_ns:
        return None
    return 1 - view.total.total_byte_ns / view.resident_byte_ns


def _offload(row: OffloadRow) -> str:
    each = time_text(row.hideable_ns / row.periods)
    return f"{stored_text(row.first, row.modules, len(row.indexes))}, {format_bytes(row.nbytes)} for periods of {each}"


def _recompute(row: RecomputeRow) -> str:
    idle = time_text(row.idle_ns / len(row.indexes))
    return (
        f"{stored_text(row.first, row.modules, len(row.indexes))}, {format_bytes(row.nbytes)} for {idle} at the price "
        f"of {time_text(row.cost_ns)}{f' ({RANDOM})' if row.random else ''}"
    )


def stored_text(stored: Stored, modules: str, count: int = 1) -> str:
    """Storages alike as they are spoken of: name, how many, modules and line."""
    several = f" x{count}" if count > 1 else ""
    module = f" in {modules}" if modules not in ("", "(outside)") else ""
    source = f" ({stored.source})" if stored.source else ""
    return f"{name_text(stored)}{several}{module}{source}"


def name_text(stored: Stored) -> str:
    """Its name within its module, or else its role."""
    return stored.name.removeprefix(f"{stored.module}.") or stored.role.replace("_", " ")
