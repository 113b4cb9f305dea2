"""Tables of a report as CSV, and its summary as Markdown."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

from tensortide.reports.document import Document
from tensortide.reports.rows import ModuleRow
from tensortide.units import format_bytes, format_count, format_percent

OP_COLUMNS = (
    "op",
    "name",
    "module",
    "phase",
    "shapes",
    "flops",
    "macs",
    "accessed_bytes",
    "workspace_bytes",
    "resident_bytes",
    "taken",
    "file",
    "line",
    "code",
)
MODULE_COLUMNS = tuple(name for name in ModuleRow.__struct_fields__ if name != "name")


def render_ops_csv(document: Document) -> str:
    """One row per op. A cost that is unknown is empty; an op that is not ``taken`` is in no total."""
    return _csv(OP_COLUMNS, _op_rows(document))


def render_modules_csv(document: Document) -> str:
    """One row per module, depth-first; ``parent`` is the row of the enclosing module, counted from 0."""
    return _csv(MODULE_COLUMNS, ([getattr(row, name) for name in MODULE_COLUMNS] for row in document.modules))


def _csv(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return out.getvalue()


def _op_rows(document: Document) -> Iterable[Sequence[object]]:
    ops = document.ops
    untaken = set(ops.untaken)
    for i in range(len(ops.name)):
        source = document.sources[ops.source[i]] if ops.source[i] >= 0 else None
        yield (
            i,
            ops.names[ops.name[i]],
            ops.paths[ops.module[i]],
            ops.phases[ops.phase[i]],
            ops.signatures[ops.shapes[i]],
            ops.flops[i],
            ops.macs[i],
            ops.accessed_bytes[i],
            ops.workspace_bytes[i],
            ops.resident_bytes[i],
            int(i not in untaken),
            *((source.file, source.line, source.code) if source else ("", "", "")),
        )


def render_markdown(document: Document, *, top: int = 10) -> str:
    """A summary for a comment on a pull request: totals, phases, the largest modules and what is alive at the peak."""
    view, total = document.overview, document.overview.total
    settings = ", ".join(f"{name}={value}" for name, value in view.hyperparameters.items())
    totals = [
        ("Peak memory", f"**{format_bytes(view.peak_bytes)}** at op {view.peak_op}"),
        ("Peak if released at last use", format_bytes(view.last_use_peak_bytes)),
        ("FLOPs", f"**{format_count(total.flops, 'FLOP')}** (products {format_count(total.product_flops, 'FLOP')})"),
        ("Bytes accessed", f"{format_bytes(total.accessed_bytes)}, {total.intensity:.1f} FLOP/B"),
        ("Parameters", f"{format_count(view.parameters)} ({format_bytes(view.parameter_bytes)})"),
        ("Ops", f"{view.ops}, {format_percent(view.coverage.covered, view.coverage.ops)} with a known cost"),
    ]
    phases = [
        (
            row.phase,
            str(row.work.ops),
            format_count(row.work.flops, "FLOP"),
            format_bytes(row.work.accessed_bytes),
            format_bytes(row.peak_bytes),
        )
        for row in document.phases
    ]
    roles = [(row.role, str(row.count), format_bytes(row.nbytes)) for row in document.memory.roles_at_peak]
    modules = [
        (_code(row.path), _text(row.type), format_count(row.flops, "FLOP"), format_bytes(row.peak_bytes))
        for row in _largest(document.modules, top)
    ]
    parts = [
        f"### {_text(view.workload or 'Step')}: one {view.kind} step",
        *([_text(settings)] if settings else []),
        _table(("", ""), totals),
        _table(("Phase", "Ops", "FLOPs", "Bytes accessed", "Peak memory"), phases),
        _table(("At the peak", "Tensors", "Bytes"), roles),
        _table(("Module", "Type", "FLOPs", "At the peak"), modules),
        _text(f"Assumed: {'; '.join(document.assumptions)}") if document.assumptions else "",
        _text(
            f"{view.coverage.line} · {document.environment.framework} · tensortide {document.environment.tensortide}"
        ),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _largest(rows: Sequence[ModuleRow], top: int) -> list[ModuleRow]:
    """Modules by FLOPs, without those that only enclose another that has nearly all of theirs."""
    heirs = {row.parent for row in rows if row.parent >= 0 and row.flops > 0.95 * rows[row.parent].flops}
    kept = [row for i, row in enumerate(rows) if i not in heirs and row.flops]
    return sorted(kept, key=lambda row: -row.flops)[:top]


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    rule = ["---"] + ["---:"] * (len(header) - 1)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, rule, *rows))


def _text(text: str) -> str:
    """``text`` as Markdown that shows it: nothing in it is markup."""
    for char in "\\`*_[]<>|#":
        text = text.replace(char, f"\\{char}")
    return " ".join(text.split())


def _code(text: str) -> str:
    clean = " ".join(text.split()).replace("|", "\\|")
    return f"`` {clean} ``" if "`" in clean else f"`{clean}`"
