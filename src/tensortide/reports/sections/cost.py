"""Section ``cost``: totals of a step, the same by phase, how much of it has a cost rule, and what was assumed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import msgspec

from tensortide.cost import ModelSizes, Total
from tensortide.cost.coverage import OpGroup
from tensortide.reports.blocks import AnyBlock, Fact, Facts, Note, Section, Table
from tensortide.reports.of_records import fact, facts, table
from tensortide.reports.sections import Step, assumed, memory
from tensortide.reports.sections.ops import ratio
from tensortide.reports.sections.predicted_times import legend, prediction_text
from tensortide.shown import Show
from tensortide.timing.durations import Durations
from tensortide.timing.estimates import Estimate
from tensortide.timing.totals import total as time_of
from tensortide.timing.totals import unpredicted_ns
from tensortide.units import format_bytes, format_count

ORDER = 10

_COUNTS = ("transcendentals", "comparisons", "int_ops", "random_draws", "macs", "read_bytes", "written_bytes")
DATA = ("unknown_ops", *(f"cost.{name}" for name in _COUNTS))
"""Figures of a Total that data have beside those that are shown."""


class PhaseTotal(msgspec.Struct, frozen=True):
    """The totals of a phase; ``share`` is that of the step's FLOPs."""

    peak: memory.PhasePeak
    total: Total
    share: Annotated[float | None, Show("share")]


def of_step(step: Step) -> Section:
    """Make the section; its facts begin with memory, which decides whether the step fits."""
    coverage = step.counted.coverage
    blocks: list[AnyBlock] = [Facts(rows=(*memory.facts_of(step), *_facts(step))), *_data(step), *_legend(step)]
    blocks.append(_phases(step) if len(step.graph) else Note(text="The step has no ops."))
    blocks.append(Note(text=coverage.line(), kind="coverage"))
    if coverage.irregular:
        names = ("name", "how as cost", "count", "shapes", "module", "reason")
        title = "Ops whose cost is not simply that of their rule"
        blocks.append(table(OpGroup, coverage.irregular, *names, key="irregular", title=title, top=0))
    texts = [*step.graph.meta.assumptions]
    if count := len(step.graph) - len(step.counted.running):
        texts.append(
            "the outcome of a conditional is unknown: totals include its most expensive arm; other arms "
            f"({count} op{'s' * (count > 1)}) count in memory over the step alone"
        )
    return Section("cost", "Totals", blocks=(*blocks, *assumed.notes(texts)))


def _facts(step: Step) -> Iterator[Fact]:
    total, cost, sizes = step.counted.total, step.counted.total.cost, step.counted.sizes
    least = step.counted.coverage.sign
    yield fact(total, "flops", f"{total.intensity_flops_per_byte or 0:.1f} FLOP per byte accessed", before=least)
    yield fact(cost, "product_flops", format_count(cost.macs, "MAC"))
    yield fact(cost, "elementwise_flops")
    known = cost.active_macs in (None, cost.macs)
    yield fact(cost, "active_flops", "products without known zeros (masks)", data=known)
    yield fact(cost, "kernel_recompute_flops", "in no total")
    remark = f"{format_bytes(cost.read_bytes)} read, {format_bytes(cost.written_bytes)} written"
    yield fact(total, "accessed_bytes", remark, label="Bytes accessed", before=least)
    remark = format_bytes(sizes.parameter_bytes)
    if sizes.parameters != sizes.trainable:
        remark += f", {format_count(sizes.trainable)} trainable"
    if sizes.idle_parameters:
        remark += f", {format_count(sizes.active_parameters)} active for each token"
    named = step.names_parameters
    unknown: dict[str, Any] = {"before": sizes.sign} if named else {"value": None}
    yield fact(sizes, "parameters", remark if named else "unknown: the file does not tell them", **unknown)
    yield fact(sizes, "trainable as trainable_parameters", **unknown)
    if sizes.cache_bytes:
        yield fact(sizes, "cache_bytes", "keys, values and states that the step leaves to the next")
    count = sum(row.path != "(outside)" for row in step.modules)
    yield Fact("ops", "Ops", len(step.graph), "count", f"{count} modules")
    if step.predicted is not None:
        remark, sign = f"{prediction_text(step.predicted)}; with host time", "~" * bool(step.predicted.unknown)
        yield Fact("step_ns", "Step", round(step.predicted.time_ns), "ns", remark, before=sign)
    if step.durations is not None:
        yield _op_sum(step, step.durations)


def _sum_of(step: Step, durations: Durations) -> tuple[Estimate, int]:
    """The predicted sum of the ops' times, and the nanoseconds of it that no interval is known of."""
    ops = range(len(durations))
    trips = [int(step.graph.trips(op)) for op in ops]
    return time_of(durations, ops, trips), unpredicted_ns(durations, ops, trips)


def _legend(step: Step) -> Iterator[Note]:
    """Explain predicted times where there are any."""
    if step.durations is not None and step.durations.forecast is not None:
        found = [_sum_of(step, step.durations)[0], *filter(None, [step.predicted])]
        yield legend(one.provenance for one in found)


def _op_sum(step: Step, durations: Durations) -> Fact:
    """The sum of the ops' times, and how sure it is where it is predicted."""
    trips = [int(step.graph.trips(op)) for op in range(len(durations))]
    remark: str = durations.kind
    if durations.forecast is not None:
        remark = prediction_text(*_sum_of(step, durations))
    whole = sum(ns * times for ns, times in zip(durations.ns, trips, strict=True))
    return Fact("op_sum_ns", "Sum of op times", whole, "ns", remark, before="~" * bool(durations.unknown))


def _data(step: Step) -> Iterator[Facts]:
    coverage = step.counted.coverage
    yield facts(step.counted.total, *DATA, "intensity_flops_per_byte", data=True)
    sizes = [name for name in ModelSizes.__struct_fields__ if name.endswith("_bytes") and name != "cache_bytes"]
    yield facts(step.counted.sizes, *sizes, data=True)
    covered = ("ops as costed_ops", "covered as covered_ops", "nbytes as costed_bytes", "covered_bytes")
    yield facts(coverage, *covered, data=True)


def _phases(step: Step) -> Table:
    """The totals by phase."""
    whole, by_phase = step.counted.total, step.counted.by_phase
    rows = [
        PhaseTotal(peak, by_phase[peak.phase], ratio(by_phase[peak.phase].flops, whole.flops))
        for peak in memory.phase_peaks(step)
    ]
    counts = [f"total.{name}" for name in (*DATA, "cost.active_macs", "cost.kernel_recompute_macs")]
    return table(
        PhaseTotal,
        rows,
        *("peak.phase", "total.ops", "total.flops", "share", "total.cost.product_flops"),
        *("total.cost.elementwise_flops", "total.accessed_bytes", "total.intensity_flops_per_byte", "peak.peak_bytes"),
        *("peak.last_use_peak_bytes", *counts),
        key="phases",
    )
