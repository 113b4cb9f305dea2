"""Section ``order``: the smallest peak over all orders of a step's ops, and the order that attains it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tensortide.replays import replay
from tensortide.reports.blocks import AnyBlock, Column, Document, Fact, Facts, Note, Section, Table
from tensortide.reports.names import device_text, role_series
from tensortide.reports.of_records import fact, facts
from tensortide.reports.pictures import Curve, Mark, Series
from tensortide.reports.render.values import short
from tensortide.reports.sections import memory
from tensortide.reports.sections.assumed import brief
from tensortide.timelines import StorageTimeline, timeline
from tensortide.units import format_bytes, format_percent

if TYPE_CHECKING:
    from tensortide.graph import Graph
    from tensortide.plans import MinimalFootprint

STOPS = {
    "work": "The work limit ended the search.",
    "time": "The time limit ended the search: another run may differ.",
    "stopped": "The search was stopped by hand.",
}
RULES = (
    "Each op runs once. What exists before the step and after it stays throughout; what the step leaves behind stays "
    "from its birth; everything else, and gradients that only wait for zero_grad, is released after its last use. "
    "Views and in-place ops take no memory; reads and writes of a storage keep their order; a kernel's workspace "
    "counts while it runs."
)
LOOPS = {
    "none": "",
    "written out": (
        " Loops are written out, and the ops of all iterations take part in the order: the bounds hold for all orders "
        "of them."
    ),
    "together": (
        " Loops are written out but too long to be taken apart: each outermost one runs in one stretch, its ops in the "
        "recorded order. The bounds hold for the orders that do so; others might need less."
    ),
}
"""How the loops of a step took part."""


def document(found: MinimalFootprint, graph: Graph | None = None, *, top: int = 15) -> Document:
    """Show ``found``, the minimal footprint of ``graph`` (loops written out), with the ``top`` groups of storages at
    its peak; without ``graph`` its bounds alone."""
    blocks: list[AnyBlock] = [_facts(found)]
    if graph is None:
        return Section("order", "", blocks=tuple(blocks)).document("Minimal footprint")
    played = replay(graph, found.plan)
    if found.stop in STOPS:
        blocks.append(Note(text=STOPS[found.stop]))
    if found.peak_op >= 0:
        op, alive = graph[found.peak_op], played.alive()
        remark = f"op {found.peak_op}, {short(op.name)} in {op.module}; number {played.peak_op} of the order"
        at_peak = (memory.roles(played, alive, remark), memory.tensors(played, alive, top))
        blocks += [_curve(graph, found, played), *at_peak]
    several = len({storage.device for storage in graph.storages}) > 1
    others = " Storages on other devices are not counted here: choose with --device." if several else ""
    rules = Note(text=RULES + LOOPS[found.loops] + others, kind="assumption")
    subtitle, meta = f"{len(graph):,} ops on {device_text(found.device)}", graph.meta
    made = Section("order", "Minimal footprint", blocks=(*blocks, _order(graph, found, played), rules, *brief(graph)))
    return made.document(meta.workload, subtitle, settings=meta.hyperparameters)


def _facts(found: MinimalFootprint) -> Facts:
    order = "such order" if found.loops == "together" else "order"
    verdict = f"proved: no {order} needs less" if found.proved else "the best order found; none needs less than"
    gap = f"gap {format_bytes(found.gap_bytes)}, {format_percent(found.gap_bytes, found.lower_bytes)}"
    saved = found.captured_peak_bytes - found.upper_bytes
    less = f"another order saves {format_bytes(saved)}, {format_percent(saved, found.captured_peak_bytes)}"
    return facts(
        found,
        fact(found, "upper_bytes", verdict),
        fact(found, "lower_bytes", f"by {found.certificate}; {gap}"),
        fact(found, "captured_peak_bytes", less if saved else "the best order found"),
        fact(found, "persistent_bytes", "resident throughout: parameters, buffers, optimizer state, inputs"),
        fact(found, "footprint_bytes", "summed, whether or not resident together"),
        *("gap_bytes", "workspace_bytes", "proved", "device", "loops", "certificate", "stop"),
        *("peak_op", "work", "time_s"),
        Fact("proof", "", msgspec.json.encode(found.proof).decode(), "code", data=True),
    )


def _curve(graph: Graph, found: MinimalFootprint, played: StorageTimeline) -> Curve:
    """Show memory in the best order, and behind it in the recorded one."""
    recorded = timeline(graph, lifetimes="last_use", device=found.device).resident
    return Curve(
        key="resident",
        title="Memory in the best order",
        remark="bytes resident during each op",
        x=tuple(range(len(graph) + 1)),
        x_unit="op",
        ops=tuple(played.run_op.tolist()),
        stack=role_series(played.by_role),
        lines=(Series("recorded", "in the recorded order", tuple(recorded.tolist())),),
        marks=(Mark(played.peak_op, f"minimal peak, {format_bytes(found.upper_bytes)}"),),
    )


def _order(graph: Graph, found: MinimalFootprint, played: StorageTimeline) -> Table:
    """List the ops in the best order, for files and the page."""
    ops = [graph[op] for op in found.order]
    columns = (
        Column("number_op", "Op", "op", found.order),
        Column("op", "Name", "name", tuple(op.name for op in ops), fold=True),
        Column("module", "Module", "path", tuple(op.module for op in ops), fold=True),
        Column("resident_bytes", "Resident", "bytes", tuple(played.resident.tolist())),
    )
    return Table(key="order", title="The order", columns=columns, top=0)
