"""Section ``partition``: a workload of dnn-partitioning, split over its devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensortide.reports.blocks import AnyBlock, Document, Fact, Note, Section, Value
from tensortide.reports.of_records import fact, facts, table
from tensortide.reports.sections.placement import end, faster, history, searched
from tensortide.studies.placement.placed_workload import DeviceLoad
from tensortide.units import format_percent, format_seconds

if TYPE_CHECKING:
    from tensortide.studies.placement.placed_workload import PlacedWorkload

_MODEL = (
    "Samples stream through all devices. The time of an accelerator is that of its nodes and of each output that "
    "crosses its border, once; CPU cores pay for no transfer. Times are those of the file."
)


def document(placed: PlacedWorkload) -> Document:
    """Show ``placed``."""
    workload, found = placed.problem.workload, placed.search
    gap = "proved optimal" if found.proved else f"gap at most {format_percent(found.gap_share, 1)}"
    used = sum(one.nodes > 0 for one in placed.devices)
    alone = (
        ""
        if not placed.single_ns or not placed.load_ns
        else f": {faster(placed.single_ns / placed.load_ns, 'one device', 'there')}"
    )
    verdict = Note(text=f"{format_seconds(placed.load_ns / 1e9)} per sample on {used} devices{alone}.", kind="verdict")
    if not placed.fits:
        text = f"No split was found that fits: the best is {found.over_bytes:,.0f} bytes over memory."
        verdict = Note(text=text, kind="failure")
    single = fact(placed, "single_ns", "" if placed.single_ns is not None else "none has the memory")
    names: tuple[str | Fact, ...] = (
        "load_ns",
        fact(found, "bound_ns", gap),
        single,
        *searched(found),
        fact(placed, "fits", data=True),
    )
    blocks: tuple[AnyBlock, ...] = (
        verdict,
        facts(placed, *names),
        end(found, placed.fits),
        table(DeviceLoad, placed.devices, key="devices", title="Devices", heads=1),
        *history(found, placed.algorithm.name),
        Note(text=_MODEL, kind="assumption"),
    )
    subtitle = f"{len(workload.nodes)} nodes on {workload.accelerators} accelerators, CPU cores: {workload.cpus}"
    settings: dict[str, Value] = {"algorithm": placed.algorithm.name, "seed": found.seed}
    return Section("partition", "Split", blocks=blocks).document(workload.name, subtitle, settings=settings)
