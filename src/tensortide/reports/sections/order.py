"""Section ``order``: the smallest peak over all orders of a step's ops, and the order that attains it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from tensortide.graph.roles import WORKSPACE
from tensortide.replays import replay
from tensortide.reports.blocks import AnyBlock, Column, Document, Fact, Facts, Note, Section, Table, data_facts
from tensortide.reports.names import device_text, pattern, role_series, shared
from tensortide.reports.pictures import Curve, Mark, Series
from tensortide.reports.render.values import short
from tensortide.reports.sections.assumed import brief
from tensortide.timelines import Resident, StorageTimeline, timeline
from tensortide.units import format_bytes, format_percent

if TYPE_CHECKING:
    from tensortide.graph import Graph
    from tensortide.plans import MinimalFootprint

__all__ = ["document", "section"]

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
    if graph is None:
        return Section("order", "", blocks=(Facts(rows=tuple(_facts(found))),)).document("Minimal footprint")
    subtitle, meta = f"{len(graph):,} ops on {device_text(found.device)}", graph.meta
    return section(graph, found, top=top).document(meta.workload, subtitle, settings=meta.hyperparameters)


def section(graph: Graph, found: MinimalFootprint, *, top: int = 15) -> Section:
    """Make the section of ``found``."""
    played = replay(graph, found.plan)
    blocks: list[AnyBlock] = [Facts(rows=tuple(_facts(found)))]
    if found.stop in STOPS:
        blocks.append(Note(text=STOPS[found.stop]))
    if found.peak_op >= 0:
        blocks += [_curve(graph, found, played), *_at_peak(graph, found, played, top)]
    blocks.append(_order(graph, found, played))
    several = len({storage.device for storage in graph.storages}) > 1
    others = " Storages on other devices are not counted here: choose with --device." if several else ""
    blocks.append(Note(text=RULES + LOOPS[found.loops] + others, kind="assumption"))
    blocks += brief(graph)
    return Section("order", "Minimal footprint", blocks=tuple(blocks))


def _facts(found: MinimalFootprint) -> Iterator[Fact]:
    order = "such order" if found.loops == "together" else "order"
    verdict = f"proved: no {order} needs less" if found.proved else "the best order found; none needs less than"
    gap = f"gap {format_bytes(found.gap_bytes)}, {format_percent(found.gap_bytes, found.lower_bytes)}"
    saved = found.captured_peak_bytes - found.upper_bytes
    less = f"{format_bytes(saved)}, {format_percent(saved, found.captured_peak_bytes)}"
    recorded = f"another order saves {less}" if saved else "the best order found"
    resident = "resident throughout: parameters, buffers, optimizer state, inputs"
    yield Fact("upper", "Minimal peak", found.upper_bytes, "bytes", verdict)
    yield Fact("lower", "lower bound", found.lower_bytes, "bytes", f"by {found.certificate}; {gap}", level=1)
    yield Fact("captured_peak", "Recorded order", found.captured_peak_bytes, "bytes", recorded)
    yield Fact("persistent", "Persistent", found.persistent_bytes, "bytes", resident)
    yield Fact("footprint", "All storages", found.footprint_bytes, "bytes", "summed, whether or not resident together")
    yield from data_facts("bytes", gap=found.gap_bytes, workspace=found.workspace_bytes)
    yield from data_facts("flag", proved=found.proved)
    yield from data_facts("text", **{key: getattr(found, key) for key in ("device", "loops", "certificate", "stop")})
    yield from data_facts("op", peak_op=found.peak_op)
    yield from data_facts("count", work=found.work)
    yield from data_facts("s", time=found.time_s)
    yield from data_facts("code", proof=msgspec.json.encode(found.proof).decode())


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


def _at_peak(graph: Graph, found: MinimalFootprint, played: StorageTimeline, top: int) -> Iterator[Table]:
    """Show the storages resident at the peak of the best order, by role, then in groups."""
    op, at = graph[found.peak_op], played.peak_op
    where = f"op {found.peak_op}, {short(op.name)} in {op.module}"
    roles = [(role, int(series[at])) for role, series in played.by_role.items() if series[at]]
    roles.sort(key=lambda item: (item[0] == WORKSPACE, -item[1]))
    columns: tuple[Column, ...] = (
        Column("role", "Role", "role", tuple(role for role, _ in roles)),
        Column("size", "Bytes", "bytes", tuple(nbytes for _, nbytes in roles)),
        Column("share", "share", "share", tuple(nbytes / found.upper_bytes for _, nbytes in roles), bar=1),
    )
    remark = f"{where}; number {at} of the order"
    yield Table(key="roles", title="Resident at the peak", remark=remark, columns=columns)
    groups = _groups(played.alive())
    modules = tuple(shared([item.module for item in group]) for group in groups)
    names = [shared([item.name for item in group]) or group[0].op_name for group in groups]
    short_names = tuple(name.removeprefix(f"{module}.") for name, module in zip(names, modules, strict=True))
    several = tuple(f" x{len(group)}" if len(group) > 1 else "" for group in groups)
    rest = [item.nbytes for group in groups[top:] for item in group]
    columns = (
        Column("size", "Bytes", "bytes", tuple(sum(item.nbytes for item in group) for group in groups)),
        Column("tensor", "Tensor", "name", short_names, fold=True, after=several),
        Column("role", "Role", "role", tuple(group[0].role for group in groups)),
        Column("module", "Module", "path", modules, fold=True),
        Column("storages", "Storages", "count", tuple(map(len, groups)), data=True),
    )
    words = f"and {len(rest)} more storages, {format_bytes(sum(rest))} together"
    yield Table(key="storages", columns=columns, top=top, rest=words)


def _groups(residents: tuple[Resident, ...]) -> list[list[Resident]]:
    """Group storages of one size and origin in modules that differ only by number, the largest group first."""
    groups: dict[tuple[object, ...], list[Resident]] = {}
    for item in residents:
        key = (item.role, item.nbytes, pattern(item.name) or item.op_name, pattern(item.module))
        groups.setdefault(key, []).append(item)
    return sorted(groups.values(), key=lambda group: -sum(item.nbytes for item in group))


def _order(graph: Graph, found: MinimalFootprint, played: StorageTimeline) -> Table:
    """List the ops in the best order, for files and the page."""
    ops = [graph[op] for op in found.order]
    columns = (
        Column("number", "Op", "op", found.order),
        Column("op", "Name", "name", tuple(op.name for op in ops), fold=True),
        Column("module", "Module", "path", tuple(op.module for op in ops), fold=True),
        Column("resident", "Resident", "bytes", tuple(played.resident.tolist())),
    )
    return Table(key="order", title="The order", columns=columns, top=0)
