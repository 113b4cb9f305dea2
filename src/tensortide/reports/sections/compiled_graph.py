"""Section ``compiled_graph``: one graph of ``torch.compile`` that was planned, and what its plan costs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tensortide.plans.model import Compute
from tensortide.reports.blocks import Document, Fact, Facts, Note, Section
from tensortide.units import format_bytes, format_percent, format_seconds

if TYPE_CHECKING:
    from tensortide.run.generated.aot import CompiledGraph

__all__ = ["document", "section"]


def document(found: CompiledGraph) -> Document:
    """Show it alone."""
    return section(found).document("a graph of torch.compile")


def section(found: CompiledGraph) -> Section:
    """Make the section."""
    return Section("compiled_graph", "Compiled graph", blocks=(_verdict(found), Facts(rows=tuple(_facts(found)))))


def _verdict(found: CompiledGraph) -> Note:
    planned = found.planned
    added = f"{format_seconds(((planned.time_ns or 0) - planned.base_ns) / 1e9)} added"
    share = "" if planned.extra is None else f" ({format_percent(planned.extra)})"
    peak, budget = format_bytes(found.peak_bytes), format_bytes(planned.budget_bytes)
    return Note(text=f"{len(found.graph):,} ops, {peak} of {budget}, {added}{share}.", kind="verdict")


def _facts(found: CompiledGraph) -> Iterator[Fact]:
    planned, ops = found.planned, len(found.graph)
    assert planned.plan is not None
    runs = sum(isinstance(step, Compute) for step in planned.plan.lanes[0].steps)
    yield Fact("ops", "Ops", ops, "count", f"{runs - ops:,} run again")
    yield Fact("budget", "Budget", planned.budget_bytes, "bytes")
    yield Fact("peak", "Peak", found.peak_bytes, "bytes")
    yield Fact("given", "Inputs", found.given_bytes, "bytes", "parameters, buffers and data, part of the peak")
    yield Fact("held", "Between the passes", found.held_bytes, "bytes", "inputs included")
    yield Fact("base", "Step without a budget", planned.base_ns, "ns")
    yield Fact("time", "Step by the plan", planned.time_ns, "ns")
