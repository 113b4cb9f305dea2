"""Sections of what formulas answer: the value that reaches a target (``solution``), totals over ranges (``sweep``), the
limits of costs as a model grows (``growth``), the model that reaches an accuracy (``projection``)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, NamedTuple

from tensortide.errors import ExpressionError
from tensortide.expr import text
from tensortide.formulas.asymptotics import Asymptotics, Growth, Intensity
from tensortide.formulas.formulas import Formulas
from tensortide.formulas.projection import Interval, Projection, Requirement, Roof
from tensortide.formulas.quantities import quantity, ranked
from tensortide.formulas.shares import Share
from tensortide.formulas.solution import Solution
from tensortide.formulas.sweep import Point, Sweep, geometric, sweep
from tensortide.reports.blocks import AnyBlock, Column, Document, Fact, Facts, Note, Section, Table, UnitName
from tensortide.reports.of_records import column, columns, facts, table
from tensortide.reports.pictures import Axis, Limit, Points, Scatter
from tensortide.reports.render.values import data_key, value_text
from tensortide.reports.sections.formula_table import EXACT, Line, formula_table, without_workspace
from tensortide.shown import Show
from tensortide.units import format_count

PANELS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Parameters", ("parameters",)),
    ("FLOPs of a step", ("flops",)),
    ("Bytes accessed", ("bytes",)),
    ("Memory", ("peak_bytes", "footprint_bytes", "minimal_footprint_lower_bytes", "minimal_footprint_upper_bytes")),
)
LINES = 7
"""Most combinations of other symbols that one panel tells apart."""
WIDE = 20
"""An axis that spans more than this factor is logarithmic."""
WIDTH = 14
"""Terminal columns that a total takes at the most."""
SAID = {"outside": "outside the region, which needs ", "threshold": "", "extrapolated": "extrapolated in "}
"""Remarks of a point, with the words between it and them."""
NOTES = 3
"""Remarks of one kind that are shown."""
LARGEST_BATCH = 4096


def of_solution(solution: Solution) -> Document:
    """Show the value, what it reaches and what its neighbour would, and the totals there."""
    symbol, totals = solution.symbol, {name: solution.totals[name] for name in ranked(solution.totals)}
    reached = "reached_bytes" if solution.in_bytes else "reached"
    around = (f"reached as {reached}", "neighbour.value as neighbour", f"neighbour.reached as neighbour_{reached}")
    doubts = ("met", "by_shape", "unlimited", "captured", "unchecked", "untested")
    limit = ("limited_by",) if solution.limited_by else ()
    every = ("symbol", "target", "kind", "value", "proved", *around, *limit, *doubts)
    rows = tuple(  # rounded, with the exact value beside it where that says more
        Fact(data_key(name, unit), title, value, unit, remark=f"{value:,}" if value >= EXACT else "")
        for name, value in totals.items()
        for title, unit, _ in [quantity(name)]
    )
    values = Column("value", "", "number", tuple(totals.values()))
    blocks: tuple[AnyBlock, ...] = (
        Note(text=_reached(solution)),
        *_certainty(solution),
        *without_workspace(re.split(r"\W+", solution.target)),
        facts(solution, *every, data=True),
        Facts(title="Totals", key="totals", rows=rows),
        Table(key="values", columns=(Column("total", "", "text", tuple(totals)), values), top=0),
    )
    relation = "nearest to" if solution.kind == "nearest" else f"{solution.kind} with"
    settings = {name: value for name, value in solution.setting.items() if name != symbol}
    made = Section("solution", "Solution", blocks=blocks)
    return made.document(f"{symbol} = {solution.value:,}", f"{relation} {solution.target}", settings=settings)


def _reached(solution: Solution) -> str:
    """Say what the value reaches and what its neighbour would; exactly where a value was to be reached, and where
    rounding makes them equal."""
    unit: UnitName = "bytes" if solution.in_bytes else "amount"
    other = solution.neighbour
    values = [solution.reached, solution.reached if other is None else other.reached]
    first, second = (value_text(value, unit) for value in values)
    if solution.kind == "nearest" or (first == second and values[0] != values[1]):
        first, second = (f"{value:,.15g}" + " B" * solution.in_bytes for value in values)
    text = f"reaches {first}" + ("" if solution.met else ": no value meets the target exactly")
    if other is not None:
        text += f"; {solution.symbol} = {other.value:,} would reach {second}"
    return text + (f"; limited by {solution.limited_by}" if solution.limited_by else "")


def _certainty(solution: Solution) -> Iterator[Note]:
    """Say how sure the answer is: what its search proves, what was captured, and what was not tested."""
    name = solution.symbol
    search = "the formulas cross the target only once" if solution.by_shape else "found by scanning"
    places = " and ".join(f"{name} = {value:,}" for value in solution.captured)
    captured = f"captured at {places}: all totals equal the formulas" if places else ""
    if solution.proved:
        yield Note(text=f"proved: {captured}; {search}", kind="verdict")
    else:
        unproved = "not checked" if not captured else "checked, not proved"
        yield Note(text=f"{unproved}: {'; '.join(filter(None, (solution.unchecked, captured, search)))}")
    if solution.unlimited:
        yield Note(text=f"no larger {name} fails the target, as far as the formulas go", kind="warning")
    if solution.extrapolated:
        yield Note(text=f"extrapolated: {solution.untested}", kind="warning")


# -- totals over ranges -----------------------------------------------------------------------------


def of_sweep(sweep: Sweep) -> Document:
    """Show one row per point, and the totals against the first swept symbol."""
    texts = []
    for name, what in SAID.items():
        said = Counter(text for point in sweep.points if (text := getattr(point, name)))
        texts += [f"{n} point{'s are' if n > 1 else ' is'} {what}{text}" for text, n in said.most_common(NOTES)]
        if len(said) > NOTES:
            texts.append(f"and {len(said) - NOTES} more remarks, in --json and --csv")
    notes = (*(Note(text=text, kind="warning") for text in texts), *without_workspace(sweep.totals))
    made = Section("sweep", "Sweep", blocks=(_points(sweep), *_panels(sweep), *notes))
    return made.document(sweep.workload or "formulas", f"over {', '.join(sweep.over)}", settings=sweep.fixed)


def _points(sweep: Sweep) -> Table:
    """Show the totals; a word says of each point where the formulas that it has are from, and data have it in full."""
    remark = ("remark",) if any(point.remark for point in sweep.points) else ()
    named = [(name, *quantity(name)[:2]) for name in ranked(sweep.totals)]
    least = WIDTH * (len(sweep.over) + len(remark) + 1)
    totals = (
        Column(data_key(name, unit), title, unit, tuple(sweep.column(name)), at_width=least + WIDTH * place)
        for place, (name, title, unit) in enumerate(named)
    )
    symbols = (Column(name, name, "count", tuple(sweep.column(name))) for name in sweep.over)
    return Table(
        key="points", title="Points", columns=(*symbols, *totals, *columns(Point, sweep.points, *remark, *SAID))
    )


def check_drawable(sweep: Sweep) -> None:
    """Raise ExpressionError if a figure of ``sweep`` would show nothing, or too many lines."""
    lines = len({point.at[1:] for point in sweep.points})
    if lines > LINES:
        raise ExpressionError(f"{lines} lines are too many to tell apart: sweep the other symbols less densely")
    if not any(_panels(sweep)):
        raise ExpressionError("there is nothing to draw: no total changes over the sweep, where the formulas hold")


def _panels(sweep: Sweep) -> Iterator[Scatter]:
    """The totals that change, against the first swept symbol: a line for every combination of the others."""
    series = sorted({point.at[1:] for point in sweep.points})
    several = len(series) > 1
    for title, names in PANELS if len(series) <= LINES else ():
        changing = [n for n in names if n in sweep.totals and len({*sweep.column(n)} - {None}) > 1]
        drawn = changing[: 1 if several else 3]
        lines = tuple(_line(sweep, name, others, several) for name in drawn for others in series)
        if lines:
            x = Axis(sweep.over[0], "count", log=_wide([value for line in lines for value in line.x]))
            y = Axis("", quantity(drawn[0]).unit, log=_wide([value for line in lines for value in line.y if value]))
            yield Scatter(key=drawn[0], title=title, x=x, y=y, points=lines)


def _line(sweep: Sweep, name: str, others: tuple[int, ...], several: bool) -> Points:
    values = zip(sweep.points, sweep.column(name), strict=True)
    rows = [(point.at[0], value) for point, value in values if point.at[1:] == others and value is not None]
    named = ", ".join(f"{n}={v}" for n, v in zip(sweep.over[1:], others, strict=True))
    label = named if several else quantity(name).title
    return Points(label, tuple(x for x, _ in rows), tuple(y for _, y in rows), joined="line")


def _wide(values: Sequence[int | float]) -> bool:
    known = [value for value in values if value > 0]
    return bool(known) and max(known) / min(known) > WIDE


# -- limits -----------------------------------------------------------------------------------------


class Ranked(NamedTuple):
    """A term of a total, which the first one of it names."""

    name: Annotated[str, Show("Total")]
    term: Annotated[str, Show("Term", "code", fold=True)]
    share: Annotated[float, Show("share", bar=80)]
    total: str
    value: float


def of_growth(
    found: Asymptotics, terms: Mapping[str, Sequence[Share]], intensity: Scatter | None, *, top: int
) -> Document:
    """Show the limit of each total per parameter, the intensity, and the largest of its ``terms``.

    ``intensity`` is drawn where it is wanted (``intensity_scatter``).
    """
    totals = [row for name in ranked(growth.name for growth in found.totals) for row in _growth(found[name], found)]
    blocks: list[AnyBlock] = [
        formula_table("per_parameter", "Per parameter", totals, remark="the limit, then the next term")
    ]
    if found.intensity is not None:
        rows = _intensity(found.intensity, found)
        blocks.append(formula_table("intensity", "FLOPs per byte accessed", rows, remark="operational intensity"))
    blocks.append(_largest(terms, top))
    blocks += [Note(text=f"note: {_short(note, 400)}") for note in found.notes]
    if intensity is not None:
        blocks.append(intensity)
    made, grows = Section("growth", "Growth", blocks=tuple(blocks)), f"as {found.growth} grows, with p parameters"
    return made.document(found.workload or "formulas", grows, settings=found.setting)


def _short(formula: str, most: int = 160) -> str:
    """Cut the middle out of a long formula."""
    return formula if len(formula) <= most else f"{formula[: most // 2]} ... {formula[-most // 3 :]}"


def _growth(growth: Growth, found: Asymptotics) -> Iterator[Line]:
    name = quantity(growth.name).title
    if growth.name == "parameters":
        yield Line(name, _short(f"p = {text(growth.leading)} + ..."), None, "text")
        return
    limit = float(growth.per_parameter.value(found.setting)) if growth.per_parameter.power == 0 else None
    yield Line(name, _short(str(growth.per_parameter)), limit, "text" if limit is None else "number")
    if growth.per_parameter_next is not None:
        following = str(growth.per_parameter_next)
        signed = f"- {following[1:]}" if following.startswith("-") else f"+ {following}"
        yield Line("", _short(signed, 240), None, "text")


def _intensity(intensity: Intensity, found: Asymptotics) -> Iterator[Line]:
    root = "sqrt(p)" if found.degree == 2 else "p" if found.degree == 1 else f"p**(1/{found.degree})"
    if intensity.u is not None and intensity.w is not None:
        yield Line("about", f"{found.batch}*{root}/(u*{root} + w*{found.batch})", None, "text")
        yield Line("  u", str(intensity.u), float(intensity.u.value(found.setting)), "number")
        yield Line("  w", str(intensity.w), float(intensity.w.value(found.setting)), "number")
    large = intensity.large_model
    yield Line("large model", _short(str(large)), float(large.value(found.setting)), "number")
    if intensity.large_batch is not None:
        value = float(intensity.large_batch.value(found.setting))
        yield Line(f"large {found.batch}", _short(str(intensity.large_batch), 240), value, "number")


def _largest(terms: Mapping[str, Sequence[Share]], top: int) -> Table:
    rows = [
        Ranked("" if place else quantity(name).title, _short(one.term), one.share, name, one.value)
        for name in ranked(terms)
        for place, one in enumerate(terms[name][:top])
    ]
    return table(Ranked, rows, key="terms", title="Largest terms", remark="of each total, at the values above")


def intensity_scatter(formulas: Formulas, growth: str, batch: str, roof: Roof) -> Scatter:
    """FLOPs per byte accessed against the batch, for models of growing size, with the ridge of ``roof``.

    Raises ExpressionError for formulas without FLOPs and bytes, and names that are no symbols.
    """
    for name in ("flops", "bytes"):
        formulas.check(name, formulas.totals, "total")
    for name in (growth, batch):
        formulas.check(name, formulas.symbols, "symbol")
    sizes = [formulas.defaults[growth] * factor for factor in (1, 4, 16)]
    swept = sweep(formulas, {growth: sizes, batch: geometric(1, LARGEST_BATCH, 2**0.25)})
    each = zip(*(swept.column(name) for name in (growth, batch, "flops", "bytes")), strict=True)
    known: dict[int | None, dict[int, float]] = {size: {} for size in sizes}
    for size, at, flops, nbytes in each:
        if at and flops and nbytes:
            known[size][at] = flops / nbytes
    lines = [
        Points(f"{growth} = {size:,}", tuple(one), tuple(one.values()), joined="line") for size, one in known.items()
    ]
    ridge = Limit(f"ridge of {roof.name}: {roof.ridge_flops_per_byte:.1f} FLOP/byte", roof.ridge_flops_per_byte)
    return Scatter(
        key="intensity_by_batch",
        title="FLOPs per byte accessed",
        x=Axis(batch, "count", log=True),
        y=Axis("", "number", log=True),
        points=tuple(lines),
        across=(ridge,),
    )


# -- projections ------------------------------------------------------------------------------------


def of_projection(projection: Projection) -> Document:
    """Show what the model must be, what a step of it takes, and how sure that is."""
    domain, roof = projection.domain, projection.roof
    reached = (
        f"{domain.metric} {domain.error} -> {projection.target}: {_range(projection.samples, domain.unit)}, "
        f"{_range(projection.parameters, 'parameters')}"
    )
    rates = f"{format_count(roof.flops_per_s)}FLOP/s and {format_count(roof.bytes_per_s)}B/s reached"
    rates = f"{roof.name}: {rates}, ridge {roof.ridge_flops_per_byte:.1f} FLOP/byte"
    if projection.ridge_batch is not None:
        rates += f"; {projection.batch} {projection.ridge_batch} reaches it, half as much again is taken unless set"
    ranges = [f"{one}.{end} as {one}_{end}" for one in ("samples", "parameters") for end in Interval._fields]
    ridge = ("roof.ridge_flops_per_byte", "ridge_batch")
    untested = ", ".join(dict.fromkeys(text for row in projection.requirements for text in row.extrapolated))
    blocks: tuple[AnyBlock, ...] = (
        _requirements(projection),
        Note(text=rates),
        *([Note(text=f"extrapolated: {untested}", kind="warning")] if untested else []),
        Note(text="low and high: what the rounding of the published constants leaves open"),
        facts(projection, "domain.name as domain", "target", *ranges, *ridge, data=True),
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
    samples = column(Requirement, rows, "samples", label=projection.domain.unit.capitalize())
    grown = Column("growth", growth, "count", tuple(row.setting[growth] for row in rows), at_width=96)
    batches = Column("batch", batch, "count", tuple(row.setting[batch] for row in rows), at_width=96)
    held = column(Requirement, rows, "held_bytes", label=quantity(projection.held).title, data=not projection.held)
    needs = ("flops", "accessed_bytes", held, "step_s", "bound", "epoch_s")
    shown: tuple[str | Column, ...] = ("label", samples, "parameters", grown, batches, *needs)
    data = ("compute_s", "memory_s", "extrapolated", "samples_per_step")
    return table(Requirement, rows, *shown, *data, key="requirements", title="Requirements")


def _learning_curve(projection: Projection) -> Scatter:
    domain, samples = projection.domain, {row.label: row.samples for row in projection.requirements}
    today, most = samples["today"], 1.2 * projection.samples.high
    grid = tuple(today * (most / today) ** (i / 60) for i in range(61))
    ends = (Points(name, (samples[name],), (domain.error_at(samples[name]),)) for name in ("today", "target"))
    return Scatter(
        key="learning_curve",
        title=f"Error in {domain.metric}",
        x=Axis(domain.unit, "amount", log=True),
        y=Axis("", "number", log=True),
        points=(Points("learning curve", grid, tuple(map(domain.error_at, grid)), joined="line"), *ends),
        down=(Limit("low", projection.samples.low), Limit("high", projection.samples.high)),
    )


def _step(projection: Projection) -> Scatter:
    models = sorted(projection.requirements, key=lambda row: row.parameters)
    x, rows = tuple(row.parameters for row in models), projection.requirements
    bounds = {"compute": tuple(row.compute_s for row in models), "memory": tuple(row.memory_s for row in models)}
    return Scatter(
        key="step_time",
        title=f"Time of a step, {projection.roof.name}",
        x=Axis("parameters", "amount", log=True),
        y=Axis("", "s", log=True),
        points=tuple(Points(name, x, times, joined="line") for name, times in bounds.items()),
        down=tuple(Limit(row.label, row.parameters) for row in rows if row.label in ("low", "high")),
    )
