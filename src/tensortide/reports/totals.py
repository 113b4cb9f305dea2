"""The head of the text report: what the step is, its totals, the same by phase, what they cover."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from rich.console import ConsoleOptions, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tensortide.reports.document import Document
from tensortide.reports.layout import Column, columns_table, heading, tidy
from tensortide.units import format_bytes, format_count, format_percent

Fact: TypeAlias = tuple[str, str, str]


def title(document: Document) -> Text:
    """What the step is."""
    view = document.overview
    settings = "  ".join(f"{name}={value}" for name, value in view.hyperparameters.items())
    text = Text(tidy(view.workload) or "unnamed step", style="bold")
    text.append(f"  one {view.kind} step", style="not bold")
    if settings:
        text.append(f"\n{tidy(settings)}", style="not bold dim")
    if document.environment.framework:
        text.append(f"\n{tidy(document.environment.framework)}, {_captured(document)}", style="not bold dim")
    return text


def _captured(document: Document) -> str:
    where = document.environment.captured_on
    return "read from a file" if where == "file" else f"captured on {tidy(where)} tensors"


def _facts(facts: Iterable[Fact]) -> Table:
    """Lines of name, number and remark. A name that is indented is part of the one above it."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, justify="right")
    table.add_column(style="dim")
    for name, number, remark in facts:
        inner = name.startswith(" ")
        table.add_row(Text(name, "" if inner else "bold"), Text(number, "" if inner else "bold"), remark)
    return table


def totals(document: Document) -> RenderableType:
    """The totals: memory first, as it decides whether the step fits."""
    view, total = document.overview, document.overview.total
    least = ">= " if total.unknown_ops else ""
    frozen = view.parameters - view.trainable_parameters
    trainable = f", {format_count(view.trainable_parameters)} trainable" if frozen else ""
    facts = [
        *_memory_facts(document),
        ("FLOPs", least + format_count(total.flops, "FLOP"), f"{total.intensity:.1f} FLOP per byte accessed"),
        ("  products", format_count(total.product_flops, "FLOP"), format_count(total.macs, "MAC")),
        ("  elementwise", format_count(total.elementwise_flops, "FLOP"), ""),
        *_sparsity(document),
        (
            "Bytes accessed",
            least + format_bytes(total.accessed_bytes),
            _read_written(total.read_bytes, total.written_bytes),
        ),
        ("Parameters", format_count(view.parameters), format_bytes(view.parameter_bytes) + trainable),
        ("Ops", str(view.ops), f"{_module_count(document)} modules"),
    ]
    return Padding(_facts(facts), (1, 0, 0, 0), expand=False)


def memory_totals(document: Document) -> RenderableType:
    """The part of the totals that is about memory."""
    return Padding(_facts(_memory_facts(document)), (1, 0, 0, 0), expand=False)


def _memory_facts(document: Document) -> Iterator[Fact]:
    view, ops = document.overview, document.ops
    where = f"at op {view.peak_op}, {ops.phases[ops.phase[view.peak_op]]}" if view.ops else ""
    lower = view.peak_bytes - view.last_use_peak_bytes
    yield "Peak memory", format_bytes(view.peak_bytes), where
    remark = "if every tensor went right after its last use"
    if lower:
        remark += f" ({format_percent(lower, view.peak_bytes)} less)"
    yield "  at last use", format_bytes(view.last_use_peak_bytes), remark
    yield "  persistent", format_bytes(view.persistent_bytes), "resident throughout"
    yield "  all storages", format_bytes(view.footprint_bytes), "summed, whether or not alive together"


def _sparsity(document: Document) -> Iterator[Fact]:
    total = document.overview.total
    if total.active_macs is not None and total.active_macs != total.macs:
        yield "  active", format_count(2 * total.active_macs, "FLOP"), "products without known zeros (masks)"
    if total.recompute_macs:
        yield "  recomputed", format_count(2 * total.recompute_macs, "FLOP"), "inside fused kernels, in no total"


def _read_written(read: int, written: int) -> str:
    return f"{format_bytes(read)} read, {format_bytes(written)} written"


def _module_count(document: Document) -> int:
    return sum(row.path != "(outside)" for row in document.modules)


def phases(document: Document, options: ConsoleOptions) -> RenderableType:
    """The totals by phase."""
    if not document.phases:
        return Text("\nThe step has no ops.")
    total = document.overview.total
    rows = [
        (
            row.phase,
            str(row.work.ops),
            format_count(row.work.flops),
            format_percent(row.work.flops, total.flops),
            format_count(row.work.product_flops),
            format_count(row.work.elementwise_flops),
            format_bytes(row.work.accessed_bytes),
            f"{row.work.intensity:.1f}" if row.work.accessed_bytes else "-",
            format_bytes(row.peak_bytes),
        )
        for row in document.phases
    ]
    names = ("Phase", "Ops", "FLOPs", "share", "products", "elementw.", "Bytes", "FLOP/B", "Peak")
    shown = [name != "products" or options.max_width >= 90 for name in names]
    return columns_table([Column(name, right=i > 0, shown=shown[i]) for i, name in enumerate(names)], rows)


def phase_peaks(document: Document) -> Iterator[RenderableType]:
    """The peak of each phase."""
    peak = document.overview.peak_bytes
    rows = [(row.phase, format_bytes(row.peak_bytes), format_percent(row.peak_bytes, peak)) for row in document.phases]
    if rows:
        yield columns_table([Column("Phase"), Column("Peak", right=True), Column("of the step's", right=True)], rows)


def assumptions(document: Document) -> Iterator[RenderableType]:
    """What capture had to assume of this step, if anything; and that arms of a conditional exclude each other."""
    remarks = [*document.assumptions]
    if count := len(document.ops.untaken):
        remarks.append(
            "Of a conditional whose outcome is unknown, totals take the most expensive arm; "
            f"other arms ({count} op{'s' * (count > 1)}) are in no total, but in memory over the step."
        )
    yield from assumed(remarks)


def assumed(remarks: Sequence[str]) -> Iterator[RenderableType]:
    """``remarks`` under their heading, if there are any."""
    if remarks:
        yield heading("Assumed", "what the step does not tell")
        yield Text("\n").join(Text(tidy(remark)) for remark in remarks)


def coverage(document: Document) -> RenderableType:
    """What the totals cover."""
    return Padding(Text(tidy(document.overview.coverage.line), style="dim"), (1, 0, 0, 0), expand=False)
