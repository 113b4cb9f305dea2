"""Section ``projection``: the model that reaches an accuracy, and the cost of training it."""

from __future__ import annotations

from tensortide.formulas.formulas import told
from tensortide.formulas.projection import Interval, Projection
from tensortide.formulas.quantities import quantity
from tensortide.reports.blocks import AnyBlock, Column, Document, Facts, Note, Section, Table, data_facts
from tensortide.reports.pictures import Axis, Limit, Points, Scatter
from tensortide.units import format_count

__all__ = ["document"]


def document(projection: Projection) -> Document:
    """Show what the model must be, what a step of it takes, and how sure that is."""
    domain, roof = projection.domain, projection.roof
    reached = (
        f"{domain.metric} {domain.error} -> {projection.target}: {_range(projection.samples, domain.unit)}, "
        f"{_range(projection.parameters, 'parameters')}"
    )
    reaches = f"{projection.batch} {projection.ridge_batch} reaches it"
    balance = "" if projection.ridge_batch is None else f"; {reaches}, half as much again is taken unless set"
    rates = (
        f"{roof.name}: {format_count(roof.flops_per_s)}FLOP/s and {format_count(roof.bytes_per_s)}B/s reached, "
        f"ridge {roof.ridge:.1f} FLOP/B{balance}"
    )
    intervals = (("samples", projection.samples), ("parameters", projection.parameters))
    ranges = {f"{key}_{name}": value for key, one in intervals for name, value in one._asdict().items()}
    facts = (
        *data_facts("text", domain=domain.name, target=projection.target),
        *data_facts("number", **ranges),
        *data_facts("flops_per_byte", ridge=roof.ridge),
        *data_facts("count", ridge_batch=projection.ridge_batch),
    )
    untested = {name: ends for row in projection.requirements for name, ends in row.extrapolated.items()}
    blocks: tuple[AnyBlock, ...] = (
        _requirements(projection),
        Note(text=rates),
        *([Note(text=f"extrapolated: {told(untested)}", kind="warning")] if untested else []),
        Note(text="low and high: what the rounding of the published constants leaves open"),
        Facts(rows=facts),
        _learning_curve(projection),
        _step(projection),
    )
    made = Section("projection", "Projection", blocks=blocks)
    return made.document(projection.workload or "formulas", f"projected for {domain.model}", reached)


def _range(interval: Interval, unit: str) -> str:
    low, high = format_count(interval.low), format_count(interval.high)
    return f"{format_count(interval.value)} {unit}" + ("" if low == high else f" ({low} to {high})")


def _requirements(projection: Projection) -> Table:
    rows, growth, batch = projection.requirements, projection.growth, projection.batch
    bound = tuple("compute" if row.compute_s >= row.memory_s else "memory" for row in rows)
    held = quantity(projection.held).title
    return Table(
        key="requirements",
        title="Requirements",
        columns=(
            Column("label", "", "text", tuple(row.label for row in rows)),
            Column("samples", projection.domain.unit.capitalize(), "amount", tuple(row.samples for row in rows)),
            Column("parameters", "Parameters", "amount", tuple(row.totals["parameters"] for row in rows)),
            Column("growth", growth, "count", tuple(row.setting[growth] for row in rows), at_width=96),
            Column("batch", batch, "count", tuple(row.setting[batch] for row in rows), at_width=96),
            Column("flops", "FLOPs", "flops", tuple(row.totals["flops"] for row in rows)),
            Column("bytes", "Bytes", "bytes", tuple(row.totals["bytes"] for row in rows)),
            Column("held", held, "bytes", tuple(row.held_bytes for row in rows), at_width=96, data=not projection.held),
            Column("step", "Step", "s", tuple(row.step_s for row in rows)),
            Column("bound", "bound by", "text", bound, at_width=118),
            Column("epoch", "Epoch", "s", tuple(row.epoch_s for row in rows)),
            Column("compute", "", "s", tuple(row.compute_s for row in rows), data=True),
            Column("memory", "", "s", tuple(row.memory_s for row in rows), data=True),
            Column("extrapolated", "", "text", tuple(told(row.extrapolated) for row in rows), data=True),
            Column("samples_per_step", "", "count", tuple(row.samples_per_step for row in rows), data=True),
        ),
    )


def _learning_curve(projection: Projection) -> Scatter:
    domain, rows = projection.domain, {row.label: row for row in projection.requirements}
    today, target = rows["today"].samples, rows["target"].samples
    grid = tuple(today * (1.2 * projection.samples.high / today) ** (i / 60) for i in range(61))
    ends = tuple(Points(name, (x,), (domain.error_at(x),)) for name, x in (("today", today), ("target", target)))
    return Scatter(
        key="learning_curve",
        title=f"Error in {domain.metric}",
        x=Axis(domain.unit, "amount", log=True),
        y=Axis("", "number", log=True),
        points=(Points("learning curve", grid, tuple(map(domain.error_at, grid)), joined="line"), *ends),
        down=(Limit("low", projection.samples.low), Limit("high", projection.samples.high)),
    )


def _step(projection: Projection) -> Scatter:
    models = sorted(projection.requirements, key=lambda row: row.totals["parameters"])
    x = tuple(row.totals["parameters"] for row in models)
    ends = {row.label: row.totals["parameters"] for row in models}
    return Scatter(
        key="step_time",
        title=f"Time of a step, {projection.roof.name}",
        x=Axis("parameters", "amount", log=True),
        y=Axis("", "s", log=True),
        points=(
            Points("compute", x, tuple(row.compute_s for row in models), joined="line"),
            Points("memory", x, tuple(row.memory_s for row in models), joined="line"),
        ),
        down=(Limit("low", ends["low"]), Limit("high", ends["high"])),
    )
