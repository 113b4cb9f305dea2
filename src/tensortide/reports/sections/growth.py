"""Section ``growth``: the limits of costs per parameter as a model grows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tensortide.errors import ExpressionError
from tensortide.expr import text
from tensortide.formulas.asymptotics import Asymptotics, Growth, Intensity
from tensortide.formulas.formulas import Formulas
from tensortide.formulas.quantities import quantity, ranked
from tensortide.formulas.shares import Share
from tensortide.formulas.sweep import geometric
from tensortide.reports.blocks import AnyBlock, Column, Document, Note, Section, Table
from tensortide.reports.pictures import Axis, Limit, Points, Scatter
from tensortide.reports.sections.formula_table import Line, formula_table
from tensortide.timing.machine import Roof

__all__ = ["document", "intensity_scatter"]

LARGEST_BATCH = 4096


def document(
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
    blocks.append(_shares(terms, top))
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


def _shares(terms: Mapping[str, Sequence[Share]], top: int) -> Table:
    rows = [(name, place, share) for name in ranked(terms) for place, share in enumerate(terms[name][:top])]
    return Table(
        key="terms",
        title="Largest terms",
        remark="of each total, at the values above",
        columns=(
            Column("name", "Total", "text", tuple("" if place else quantity(name).title for name, place, _ in rows)),
            Column("term", "Term", "code", tuple(_short(share.term) for _, _, share in rows), fold=True),
            Column("share", "share", "share", tuple(share.share for _, _, share in rows), bar=80),
            Column("total", "", "text", tuple(name for name, _, _ in rows), data=True),
            Column("value", "", "number", tuple(share.value for _, _, share in rows), data=True),
        ),
    )


def intensity_scatter(formulas: Formulas, growth: str, batch: str, roof: Roof) -> Scatter:
    """FLOPs per byte accessed against the batch, for models of growing size, with the ridge of ``roof``.

    Raises ExpressionError for formulas without FLOPs and bytes, and names that are no symbols.
    """
    for name in ("flops", "bytes"):
        formulas.check(name, formulas.totals, "total")
    for name in (growth, batch):
        formulas.check(name, formulas.symbols, "symbol")
    base = formulas.defaults[growth]
    lines = []
    for size in (base, 4 * base, 16 * base):
        points = list(_intensities(formulas, {growth: size}, batch))
        x, y = zip(*points, strict=True) if points else ((), ())
        lines.append(Points(f"{growth} = {size:,}", x, y, joined="line"))
    ridge = Limit(f"ridge of {roof.name}: {roof.ridge:.1f} FLOP/B", roof.ridge)
    return Scatter(
        key="intensity_by_batch",
        title="FLOPs per byte accessed",
        x=Axis(batch, "count", log=True),
        y=Axis("", "number", log=True),
        points=tuple(lines),
        across=(ridge,),
    )


def _intensities(formulas: Formulas, setting: dict[str, int], batch: str) -> Iterator[tuple[int, float]]:
    for value in geometric(1, LARGEST_BATCH, 2**0.25):
        try:
            totals = formulas.evaluate(**setting, **{batch: value})
        except ExpressionError:
            continue
        yield value, totals["flops"] / totals["bytes"]
