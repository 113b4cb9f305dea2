"""Section ``calibration``: ceilings of a machine, the constants of its families, and how well they predict."""

from __future__ import annotations

from collections.abc import Iterator

from tensortide.reports.blocks import AnyBlock, Column, Document, Fact, Facts, Note, Section, Table
from tensortide.timing.calibration import DRIFT, Calibration
from tensortide.timing.families import VIEW
from tensortide.timing.models.constants import ANY, NAMES, Constants
from tensortide.timing.models.saturating import PRODUCTS
from tensortide.timing.store import told
from tensortide.units import format_percent

__all__ = ["document", "section"]

NOISY = 0.1
"""Share by which equal products differ from their fastest, above which the machine is taken to be busy."""


def document(found: Calibration) -> Document:
    """Show ``found`` by itself."""
    lines = (f"{len(found.steps)} steps, {found.clock} time, with {told(found.machine)}",)
    return Document(title=f"Calibration of {found.machine.name}", subtitle=lines, sections=(section(found),))


def section(found: Calibration) -> Section:
    """Make the section."""
    remarks = (Note(text=text) for text in _remarks(found))
    blocks: tuple[AnyBlock, ...] = (Facts(rows=tuple(_facts(found))), _families(found), *remarks)
    return Section("calibration", "Calibration", blocks=blocks)


def _facts(found: Calibration) -> Iterator[Fact]:
    rates = found.rates
    for dtype, rate in rates.flops_per_s.items():
        yield Fact(f"flops_{dtype}", f"Products, {dtype}", round(rate), "flops_per_s", level=int(dtype != "float32"))
    yield Fact("bytes", "Copies", round(rates.bytes_per_s), "bytes_per_s")
    for name, rate in rates.links.items():
        yield Fact(name.replace(" ", "_"), name.capitalize(), round(rate), "bytes_per_s", level=1)
    yield Fact("noise", "Noise", rates.noise, "share", "median of equal products, above the fastest")
    yield Fact("drift", "Drift", found.drift, "share", "largest change of a ceiling from start to end")
    yield Fact("between", "Between ops", round(found.between_ns), "ns", "work of the host after each")
    yield Fact("step", "Steps", found.step_half, "share", "half-width of a step's 80 % interval, from steps held out")
    yield Fact("when", "Measured", found.when)
    yield Fact("machine", "", found.machine.name, data=True)


def _families(found: Calibration) -> Table:
    names = [name for name in sorted(found.model.families) if name not in (ANY, PRODUCTS)]
    rows = [found.model.families[name] for name in names]
    pools = [found.pools.get(name) for name in names]
    columns = (
        Column("family", "Family", "text", tuple(names)),
        Column("ops", "Ops", "count", tuple(row.count for row in rows)),
        Column("compute", "Of the FLOP/s", "share", _identified(names, rows, "compute")),
        Column("memory", "Of the bytes/s", "share", _identified(names, rows, "memory")),
        Column("launch", "Least time", "ns", _rounded(_identified(names, rows, "launch_ns"))),
        Column("below", "below", "share", tuple(p.all.below if p else None for p in pools), data=True),
        Column("above", "above", "share", tuple(p.all.above if p else None for p in pools), data=True),
    )
    return Table(key="families", title="Families of ops", columns=columns, heads=1)


def _identified(names: list[str], rows: list[Constants], constant: str) -> tuple[float | None, ...]:
    """The constants that samples identify; a view has no rates."""
    return tuple(
        getattr(row, constant) if row.identified(constant) and (name != VIEW or constant == "launch_ns") else None
        for name, row in zip(names, rows, strict=True)
    )


def _rounded(values: tuple[float | None, ...]) -> tuple[int | None, ...]:
    return tuple(None if value is None else round(value) for value in values)


def _remarks(found: Calibration) -> Iterator[str]:
    yield "Shares are of the ceilings above: operands in a cache move faster than memory does."
    if not all(row.identified(constant) for row in found.model.families.values() for constant in NAMES):
        yield "Blank: too few ops say it. Ops that rest on it are predicted near the others, and are extrapolated."
    if found.drift > DRIFT:
        moved = format_percent(found.drift, 1)
        yield f"Ceilings moved by {moved} while steps were measured, which intervals include: measure an idle machine."
    if found.rates.noise > NOISY:
        yield "Equal products took unequal times: other work disturbs the machine; --clock thread counts its own alone."
