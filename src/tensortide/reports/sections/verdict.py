"""Section ``verdict``: on which devices a step fits, how fast it is there, and what dominates its peak."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from tensortide.reports.blocks import AnyBlock, Column, Note, Section, Table
from tensortide.reports.of_records import column, facts, table
from tensortide.reports.render.values import value_text
from tensortide.reports.sections import Step
from tensortide.studies.fit.verdict import COMMON, Fits, Room, Verdict, verdict
from tensortide.timing.catalogue import device
from tensortide.units import format_bytes, format_percent

ORDER = 5

_BRIEF: dict[Fits, str] = {"too large": "too large for", "tight": "tight on", "fits": "fits"}
_REMEDIES = {"loss": " (a cross entropy by chunks never has them whole)"}


def of_step(step: Step) -> Section | None:
    """Make the section of a report, from the step's one Graph."""
    graph = step.graph
    if not len(graph) or not step.eager.peak_bytes:
        return None
    on_gpu = step.eager.device.startswith("cuda")
    asked = device(graph.meta.machine) if graph.meta.machine else None
    found = verdict(
        graph,
        asked=asked,
        durations=step.durations if asked is not None else None,
        line=step.eager,
        reserved_bytes=step.pool.peak_reserved if on_gpu else None,
        timed=False,  # on other devices than that of the report: ``tensortide fit`` has the time for it
        resolver=step.resolver,
    )
    return section(found)


def section(found: Verdict) -> Section:
    """Make the section alone."""
    return Section("verdict", "Verdict", blocks=tuple(blocks(found, brief=True)))


def blocks(found: Verdict, samples: int | None = None, *, brief: bool = False) -> Iterator[AnyBlock]:
    """State the verdict, show the devices, and name what dominates.

    ``samples``: those of a step, for their rate. ``brief``: text has the devices in a line.
    """
    yield facts(found, "peak_bytes", "reserved_bytes", data=True)
    yield _headline(found, samples)
    if brief:
        sizes = {
            fits: [str(size) for size, room in zip(COMMON, found.rooms, strict=True) if room.fits == fits]
            for fits in ("fits", "tight", "too large")
        }
        told = (f"{words} {', '.join(some)} GB" for fits, words in _BRIEF.items() if (some := sizes[fits]))
        yield Note(text="; ".join(told), kind="advice", only="text")
    yield _rooms(found, only="page" if brief else "")
    if found.cut_off:
        yield Note(text="The recording ends where memory ran out: what the rest of the step takes is unknown.")
    if found.dominant is not None:
        share = format_percent(found.dominant.nbytes, found.peak_bytes)
        total, sentence = format_bytes(found.dominant.nbytes), found.dominant.sentence
        part = f"{share} of the peak" if total in sentence else f"{share} of the peak, {total}"
        yield Note(text=f"{part}: {sentence}{_REMEDIES.get(found.dominant.kind, '')}", kind="advice")
    if found.read:
        yield Note(text="Read, not captured for a device: workspace that its kernels take comes on top.")
    elif found.captured_for.startswith("cpu"):
        yield Note(text="Captured on the CPU: kernels of a GPU take other workspace. --machine h100 captures its step.")


def _headline(found: Verdict, samples: int | None) -> Note:
    needs = f"needs {'more than ' if found.cut_off else ''}{format_bytes(found.peak_bytes)}"
    if found.reserved_bytes != found.peak_bytes:
        needs += f" ({format_bytes(found.reserved_bytes)} reserved by the allocator)"
    if found.asked is None:
        sizes = [size for size, room in zip(COMMON, found.rooms, strict=True) if room.fits == "fits"]
        text = f"{needs}: fits devices from {sizes[0]} GB on" if sizes else f"{needs}: fits none of these devices"
        if found.cut_off and sizes:
            return Note(text=f"{needs}: that alone fits devices from {sizes[0]} GB on", kind="warning")
        return Note(text=text, kind="verdict" if sizes else "failure")
    own = found.asked
    limited = found.memory_bytes is not None
    where = f"into {format_bytes(own.usable_bytes)}" if limited else f"{own.device}"
    tight = f"tight in {format_bytes(own.usable_bytes)}" if limited else f"tight on {own.device}"
    what = {
        "fits": f"{'what was recorded ' * found.cut_off}fits {where}",
        "tight": tight,
        "too large": f"does not fit {where}",
    }[own.fits]
    if own.fits == "tight":
        what += " (the tensors fit, with the fragmentation of the allocator they may not)"
    usable = "" if limited else f"; {format_bytes(own.usable_bytes)} usable"
    text = f"{what}: {needs}{usable}"
    if own.step_ns is not None:
        on = f" on {own.device}" if limited else ""
        text += f"; a step takes {value_text(own.step_ns, 'ns')}{on}"
        if samples:
            text += f", {samples * 1e9 / own.step_ns:,.0f} samples/s" if own.step_ns else ""
    return Note(text=text, kind="failure" if own.fits == "too large" else "verdict")


def _rooms(found: Verdict, only: Literal["", "page"]) -> Table:
    memory = Column("memory", "Memory", "text", tuple(f"{size} GB" for size in COMMON))
    several = sum(room.step_ns is not None for room in found.rooms) > 1  # that of one device is said in words
    shown = ("device", "usable_bytes", "taken_share", "fits", column(Room, found.rooms, "step_ns", data=not several))
    return table(Room, found.rooms, memory, *shown, key="devices", only=only)
