"""Section ``run``: steps by a generated program, beside ordinary ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tensortide.reports.blocks import AnyBlock, Document, Fact, Facts, Section, data_facts
from tensortide.reports.sections.run import agreement, agreement_facts
from tensortide.units import format_bytes

if TYPE_CHECKING:
    from tensortide.run.generated.measure import MeasuredProgram

__all__ = ["document", "section"]


def document(result: MeasuredProgram) -> Document:
    """Show ``result``."""
    title = f"{result.target} under {format_bytes(result.budget_bytes)}, a generated program"
    return Document(title=title, sections=(section(result),))


def section(result: MeasuredProgram) -> Section:
    """The section of ``result``: medians over its steps."""
    blocks: list[AnyBlock] = [Facts(rows=tuple(_facts(result)))]
    if result.agreement is not None:
        blocks.append(agreement(result.agreement))
    return Section("run", "Steps by a program", blocks=tuple(blocks))


def _facts(result: MeasuredProgram) -> Iterator[Fact]:
    slowdown = "" if result.slowdown is None else f"{result.slowdown:.2f}x the ordinary step"
    yield Fact("budget", "Budget", result.budget_bytes, "bytes")
    yield Fact("planned_peak", "Planned peak", result.planned_peak_bytes, "bytes")
    yield Fact("peak", "Measured peak", result.measured_peak_bytes, "bytes", "by PyTorch's allocator")
    yield from data_facts("factor", slowdown=result.slowdown)
    if result.plain_ns is not None:
        yield Fact("plain", "Ordinary step", result.plain_ns, "ns")
    yield Fact("step", "Step by the program", result.step_ns, "ns", slowdown)
    yield Fact("ops", "its ops", result.ops, "count", f"{result.recomputed} recomputed", level=1)
    yield from data_facts("count", recomputations=result.recomputed)
    if result.agreement is not None:
        yield from agreement_facts(result.agreement)
