"""Section ``cost``: totals of a step, the same by phase, how much of it has a cost rule, and what was assumed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from tensortide.cost.coverage import OpGroup
from tensortide.reports.blocks import AnyBlock, Column, Fact, Facts, Note, Section, Table, data_facts
from tensortide.reports.sections import Step, assumed, memory
from tensortide.reports.sections.ops import ratio
from tensortide.reports.sections.predicted_times import prediction_text
from tensortide.timing.durations import Durations
from tensortide.timing.totals import total, unpredicted_ns
from tensortide.units import format_bytes, format_count

__all__ = ["ORDER", "group_columns", "of_step"]

ORDER = 10

COUNTS = ("transcendentals", "comparisons", "int_ops", "random_draws")
HOW = {
    "missing": "unknown",
    "by_default": "default",
    "by_framework": "framework",
    "by_decomposition": "decomposition",
    "by_bound": "bound",
}
"""Groups of a Coverage, and what its ops' costs are: in no total (``unknown``), one FLOP per output element
(``default``), the framework's formula, that of a decomposition, or a bound."""


def of_step(step: Step) -> Section:
    """Make the section; its facts begin with memory, which decides whether the step fits."""
    blocks: list[AnyBlock] = [Facts(rows=(*memory.facts(step), *_facts(step)))]
    blocks += [_phases(step)] if len(step.graph) else [Note(text="The step has no ops.")]
    blocks.append(Note(text=step.counted.coverage.line(), kind="coverage"))
    blocks += [*_irregular(step), *assumptions(step)]
    return Section("cost", "Totals", blocks=tuple(blocks))


def _facts(step: Step) -> Iterator[Fact]:
    total, cost, held = step.counted.total, step.counted.total.cost, step.counted.sizes
    least = step.counted.coverage.sign
    remark = f"{ratio(total.flops, total.bytes) or 0:.1f} FLOP per byte accessed"
    yield Fact("flops", "FLOPs", total.flops, "flops", remark, before=least)
    yield Fact("product_flops", "products", 2 * cost.macs, "flops", format_count(cost.macs, "MAC"), level=1)
    yield Fact("elementwise_flops", "elementwise", cost.elementwise_flops, "flops", level=1)
    sparse = cost.active_macs is not None and cost.active_macs != cost.macs
    active = None if cost.active_macs is None else 2 * cost.active_macs
    yield Fact("active_flops", "active", active, "flops", "products without known zeros (masks)", 1, data=not sparse)
    again = 2 * cost.recompute_macs
    yield Fact("recompute_flops", "recomputed", again, "flops", "inside fused kernels, in no total", 1, data=not again)
    remark = f"{format_bytes(cost.bytes_read)} read, {format_bytes(cost.bytes_written)} written"
    yield Fact("accessed", "Bytes accessed", total.bytes, "bytes", remark, before=least)
    if step.names_parameters:
        remark = format_bytes(held.parameter_bytes)
        remark += f", {format_count(held.trainable)} trainable" if held.parameters != held.trainable else ""
        yield Fact("parameters", "Parameters", held.parameters, "amount", remark)
    else:
        yield Fact("parameters", "Parameters", None, "amount", "unknown: the file does not tell them")
    count = sum(row["path"] != "(outside)" for row in step.modules)
    yield Fact("ops", "Ops", len(step.graph), "count", f"{count} modules")
    if step.predicted is not None:
        remark = f"{prediction_text(step.predicted)}; with the host"
        sign = "~" * bool(step.predicted.unknown)
        yield Fact("step", "Step", round(step.predicted.time_ns), "ns", remark, before=sign)
    if step.durations is not None:
        yield _op_sum(step, step.durations)
    yield from _data(step)


def _op_sum(step: Step, durations: Durations) -> Fact:
    """The sum of the ops' times, and how sure it is where it is predicted."""
    trips = [int(step.graph.trips(op)) for op in range(len(durations))]
    remark: str = durations.kind
    if durations.forecast is not None:
        missing = unpredicted_ns(durations, range(len(durations)), trips)
        remark = prediction_text(total(durations, range(len(durations)), trips), missing)
    whole = sum(ns * times for ns, times in zip(durations.ns, trips, strict=True))
    return Fact("op_sum", "Op sum", whole, "ns", remark, before="~" * bool(durations.unknown))


def _data(step: Step) -> Iterator[Fact]:
    """Name what JSON has beside the facts that are shown."""
    total, coverage = step.counted.total, step.counted.coverage
    sizes = msgspec.structs.asdict(step.counted.sizes)
    yield from data_facts("count", **{key: getattr(total.cost, key) for key in COUNTS})
    yield from data_facts("macs", macs=total.cost.macs)
    yield from data_facts("bytes", read=total.cost.bytes_read, written=total.cost.bytes_written)
    yield from data_facts("flops_per_byte", intensity=ratio(total.flops, total.bytes) or 0.0)
    yield from data_facts("bytes", **{f"{k[:-6]}_size": n for k, n in sizes.items() if k.endswith("_bytes")})
    trainable = step.counted.sizes.trainable if step.names_parameters else None
    yield from data_facts("count", trainable_parameters=trainable, unknown_ops=total.unknown)
    yield from data_facts("count", costed_ops=coverage.ops, covered_ops=coverage.covered)
    yield from data_facts("bytes", costed=coverage.nbytes, covered=coverage.covered_bytes)


def _phases(step: Step) -> Table:
    """The totals by phase."""
    peaks, short = (memory.phase_peaks(line, step.phases) for line in (step.eager, step.last_use))
    totals = [step.counted.by_phase[name] for name in peaks]
    whole, flops = step.counted.total.flops, tuple(total.flops for total in totals)
    costs, accessed = [total.cost for total in totals], tuple(total.bytes for total in totals)
    columns = [
        Column("phase", "Phase", "text", tuple(peaks)),
        Column("ops", "Ops", "count", tuple(total.ops for total in totals)),
        Column("flops", "FLOPs", "flops", flops),
        Column("share", "share", "share", tuple(ratio(n, whole) for n in flops)),
        Column("product_flops", "products", "flops", tuple(2 * cost.macs for cost in costs), at_width=90),
        Column("elementwise_flops", "elementw.", "flops", tuple(cost.elementwise_flops for cost in costs)),
        Column("accessed", "Bytes", "bytes", accessed),
        Column("intensity", "FLOP/B", "flops_per_byte", tuple(map(ratio, flops, accessed))),
        Column("peak", "Peak", "bytes", tuple(peaks.values())),
        Column("last_use_peak", "", "bytes", tuple(short.values()), data=True),
        Column("unknown_ops", "", "count", tuple(total.unknown for total in totals), data=True),
    ]
    counts = ("macs", "active_macs", "recompute_macs", *COUNTS)
    columns += (Column(key, "", "count", tuple(getattr(cost, key) for cost in costs), data=True) for key in counts)
    for key in ("read", "written"):
        columns += [Column(key, "", "bytes", tuple(getattr(cost, f"bytes_{key}") for cost in costs), data=True)]
    return Table(key="phases", columns=tuple(columns))


def _irregular(step: Step) -> Iterator[Table]:
    """List the ops whose cost is not simply that of their rule."""
    coverage = step.counted.coverage
    rows = [(how, group) for name, how in HOW.items() for group in getattr(coverage, name)]
    if rows:
        name, *others = group_columns([group for _, group in rows])
        columns = (name, Column("cost", "Its cost", "text", tuple(how for how, _ in rows)), *others)
        yield Table(key="irregular", title="Ops whose cost is not simply that of their rule", columns=columns, top=0)


def group_columns(groups: Sequence[OpGroup]) -> Iterator[Column]:
    """Describe groups of ops without a cost of their own."""
    yield Column("op", "Op", "name", tuple(group.name for group in groups))
    yield Column("count", "Ops", "count", tuple(group.count for group in groups))
    yield Column("shapes", "Shapes of the first", "code", tuple(group.shapes for group in groups), dim=True)
    yield Column("module", "Module of the first", "path", tuple(group.module for group in groups))
    yield Column("reason", "Why", "text", tuple(group.reason for group in groups), fold=True)


def assumptions(step: Step) -> Iterator[Note]:
    """Yield the assumptions of the capture of this step, and a note that arms of a conditional exclude each other."""
    texts = [*step.graph.meta.assumptions]
    if count := len(step.graph) - len(step.counted.running):
        texts.append(
            "the outcome of a conditional is unknown: totals include its most expensive arm; other arms "
            f"({count} op{'s' * (count > 1)}) count in memory over the step alone"
        )
    yield from assumed.notes(texts)
