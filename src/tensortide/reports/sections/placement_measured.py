"""Section ``placement_measured``: the placement that was fastest in measurements, beside the one of the simulation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tensortide.reports.blocks import Fact, Facts, Note, Section
from tensortide.reports.sections.placement import NS, layers_table

if TYPE_CHECKING:
    from tensortide.studies.placement.configured import ConfiguredRun

__all__ = ["section"]


def section(done: ConfiguredRun) -> Section:
    """Make the section of a run whose second phase measured."""
    best, log = done.fastest, done.times
    if best is None:
        text = f"No placement of {len(log):,} that were measured had the memory."
        return Section("measured", "Measured", blocks=(Note(text=text, kind="failure"),))
    run = done.placed.subject.run(best)
    used = len(set(best))
    where = f"{used} devices" if used > 1 else f"device {run.cluster.names[best[0]]} alone"
    several = "the only one" if len(log) == 1 else f"the fastest of {len(log):,}"
    verdict = Note(text=f"{log[best]:.4g} ms measured on {where}: {several} that were measured.", kind="verdict")
    return Section("measured", "Measured", blocks=(verdict, Facts(rows=tuple(_facts(done, best))), layers_table(run)))


def _facts(done: ConfiguredRun, best: tuple[int, ...]) -> Iterator[Fact]:
    log, found = done.times, done.placed.placement
    ms, run = log[best], done.placed.subject.run(best)
    yield Fact("measured_time", "Fastest measured", None if ms is None else round(ms * NS), "ns")
    yield Fact("predicted_time", "predicted for it", round(run.makespan * NS), "ns", level=1)
    simulated = log.get(found)
    remark = "the same placement" if found == best else "" if found in log else "not measured"
    shown = None if simulated is None else round(simulated * NS)
    yield Fact("of_simulated", "Measured, of the fastest in simulation", shown, "ns", remark)
    yield Fact("measured", "Placements measured", len(log), "count")
    if lacking := sum(ms is None for ms in log.values()):
        yield Fact("out_of_memory", "out of memory", lacking, "count", level=1)
