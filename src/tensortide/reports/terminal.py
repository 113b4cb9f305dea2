"""A report as text for a terminal, a pipe or a log: nothing depends on colour, and it fits from 80 columns on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.console import Console, ConsoleOptions, RenderableType
from rich.text import Text

from tensortide.reports.allocator import Replayed, allocator_view
from tensortide.reports.curve import memory_curve
from tensortide.reports.document import Document
from tensortide.reports.fold import Line, TensorGroup, fold_modules, fold_tensors
from tensortide.reports.layout import Column, Trimmed, bar, columns_table, heading, tidy
from tensortide.reports.modules import op_groups
from tensortide.reports.rows import OpGroup
from tensortide.reports.totals import assumptions, coverage, memory_totals, phase_peaks, phases, title, totals
from tensortide.units import format_bytes, format_count, format_percent

__all__ = ["render", "render_count", "render_timeline"]

PHASE_SHORT = {"forward": "fwd", "backward": "bwd", "recompute": "rec", "optimizer": "opt", "other": "-"}


def render(document: Document, console: Console, *, depth: int = 3, top: int = 15) -> None:
    """Print the whole report: totals, modules to ``depth``, ``top`` ops and tensors, memory, coverage."""
    _print(console, whole(document, console.options, depth, top))


def render_count(document: Document, console: Console, *, depth: int = 3, top: int = 15) -> None:
    """Print what the step computes: FLOPs, bytes and parameters by phase, module and op."""
    options = console.options
    parts = (title(document), totals(document), phases(document, options), coverage(document), *assumptions(document))
    _print(console, [*parts, *modules(document, options, depth), *top_ops(document, options, top)])


def render_timeline(
    document: Document, console: Console, *, depth: int = 3, top: int = 15, allocator: Replayed | None = None
) -> None:
    """Print what memory the step takes: the curve, what is alive at its peak, what each module does to it."""
    options = console.options
    parts = [title(document), memory_totals(document), *phase_peaks(document), *assumptions(document)]
    parts += allocator_view(allocator) if allocator else ()
    curve = (*memory(document, options), *at_peak(document, options, top))
    _print(console, [*parts, *curve, *module_memory(document, options, depth)])


def whole(document: Document, options: ConsoleOptions, depth: int = 3, top: int = 15) -> Iterator[RenderableType]:
    """The parts of the whole report in order."""
    yield title(document)
    yield totals(document)
    yield phases(document, options)
    yield coverage(document)
    yield from assumptions(document)
    yield from modules(document, options, depth)
    yield from top_ops(document, options, top)
    yield from memory(document, options)
    yield from at_peak(document, options, top)


def _print(console: Console, parts: Iterable[RenderableType]) -> None:
    for part in parts:
        console.print(Trimmed(part), highlight=False, end="")


def modules(document: Document, options: ConsoleOptions, depth: int) -> Iterator[RenderableType]:
    """The module tree down to ``depth``."""
    if not document.modules:
        return
    yield heading("Where it goes", f"modules to depth {depth}, submodules included")
    wide, saved = options.max_width, any(row.saved_bytes for row in document.modules)
    columns = [
        Column("Module", fold=True),
        Column("Type", shown=wide >= 118, dim=True),
        Column("FLOPs", right=True),
        Column("share", right=True),
        Column("", shown=wide >= 96),
        Column("Bytes", right=True, shown=wide >= 96),
        Column("Params", right=True),
        Column("Saved", right=True, shown=saved),
        Column("At peak", right=True),
    ]
    rows = [
        (
            _line_name(line),
            tidy(line.type),
            format_count(line.flops) if line.flops else "-",
            format_percent(line.share) if line.flops else "-",
            bar(line.share, 8 if wide >= 118 else 6, options.ascii_only),
            _bytes(line.accessed_bytes),
            format_count(line.parameters) if line.parameters else "-",
            _bytes(line.saved_bytes),
            _bytes(line.peak_bytes),
        )
        for line in fold_modules(document.modules, depth)
        if line.flops or line.accessed_bytes or line.parameters or line.peak_bytes
    ]
    yield columns_table(columns, rows, first=False)


def module_memory(document: Document, options: ConsoleOptions, depth: int) -> Iterator[RenderableType]:
    """What the modules down to ``depth`` do to memory."""
    lines = [line for line in fold_modules(document.modules, depth) if line.transient_bytes or line.parameter_bytes]
    if not lines:
        return
    yield heading("Memory by module", "leaves: after its forward; adds: the most during one call")
    columns = [
        Column("Module", fold=True),
        Column("Type", shown=options.max_width >= 118, dim=True),
        *(Column(name, right=True) for name in ("Params", "Saved", "Leaves", "Adds", "At peak")),
    ]
    rows = [
        (
            _line_name(line),
            tidy(line.type),
            _bytes(line.parameter_bytes),
            _bytes(line.saved_bytes),
            _bytes(line.retained_bytes),
            _bytes(line.transient_bytes),
            _bytes(line.peak_bytes),
        )
        for line in lines
    ]
    yield columns_table(columns, rows, first=False)


def _line_name(line: Line) -> str:
    return f"{'  ' * line.depth}{tidy(line.name)}{f' x{line.count}' if line.count > 1 else ''}"


def _bytes(count: int) -> str:
    return format_bytes(count) if count else "-"


def top_ops(document: Document, options: ConsoleOptions, top: int) -> Iterator[RenderableType]:
    """The groups of ops with the most FLOPs."""
    groups = sorted((g for g in op_groups(document.ops, apart=False) if g.flops), key=lambda g: -g.flops)
    if not groups or not top:
        return
    yield heading("Most expensive ops", "by FLOPs; modules that differ by number together")
    wide, total = options.max_width, document.overview.total.flops
    columns = [
        Column("Op", fold=True),
        Column("Runs", right=True),
        Column("FLOPs", right=True),
        Column("share", right=True),
        Column("Bytes", right=True, shown=wide >= 118),
        Column("FLOP/B", right=True, shown=wide >= 96),
        Column("", dim=True),
        Column("Module", fold=True),
        Column("Source", fold=True, shown=wide >= 132, dim=True),
    ]
    yield columns_table(columns, [_op_row(document, group, total) for group in groups[:top]], first=False)


def _op_row(document: Document, group: OpGroup, total: int) -> tuple[str, ...]:
    return (
        _op_name(group.op),
        str(group.count),
        format_count(group.flops),
        format_percent(group.flops, total),
        format_bytes(group.accessed_bytes),
        f"{group.flops / group.accessed_bytes:.1f}" if group.accessed_bytes else "-",
        PHASE_SHORT[group.phase],
        tidy(group.modules),
        _where(document, group.source),
    )


def _op_name(name: str) -> str:
    return tidy(name.removeprefix("aten.").removesuffix(".default"))


def _where(document: Document, source: int) -> str:
    return tidy(document.sources[source].where) if source >= 0 else ""


def memory(document: Document, options: ConsoleOptions) -> Iterator[RenderableType]:
    """The memory curve."""
    yield heading("Memory over the step", "bytes while each op runs, released as in eager mode")
    yield Text("\n").join(memory_curve(document, min(options.max_width, 160), ascii_only=options.ascii_only))


def at_peak(document: Document, options: ConsoleOptions, top: int) -> Iterator[RenderableType]:
    """What is alive at the peak: by role, then the largest groups of tensors."""
    roles = document.memory.roles_at_peak
    if not roles:
        return
    peak, op = document.overview.peak_bytes, document.overview.peak_op
    name = _op_name(document.ops.names[document.ops.name[op]])
    yield heading("Alive at the peak", f"op {op}, {name} in {tidy(document.ops.paths[document.ops.module[op]])}")
    rows = [
        (
            row.role.replace("_", " "),
            str(row.count) if row.count else "-",
            format_bytes(row.nbytes),
            format_percent(row.nbytes, peak),
            bar(row.nbytes / peak, 16, options.ascii_only),
        )
        for row in roles
    ]
    head = [Column("Role"), *(Column(n, right=True) for n in ("tensors", "Bytes", "share")), Column("")]
    yield columns_table(head, rows, first=False)
    groups = fold_tensors(document)
    tensors = [_tensor_row(document, group) for group in groups[:top]]
    yield columns_table(_tensor_columns(options), tensors, gap=2 if options.max_width >= 118 else 1)
    if rest := groups[top:]:
        nbytes, count = sum(group.nbytes for group in rest), sum(group.count for group in rest)
        yield Text(f"and {count} more tensors, {format_bytes(nbytes)} together", style="dim")


def _tensor_columns(options: ConsoleOptions) -> list[Column]:
    return [
        Column("Bytes", right=True),
        Column("", right=True),
        Column("Tensor", fold=True),
        Column("Type and shape", fold=True),
        Column("Module", fold=True),
        Column("Source", fold=True, shown=options.max_width >= 96, dim=True),
    ]


def _tensor_row(document: Document, group: TensorGroup) -> tuple[str, ...]:
    name = _op_name(group.name.removeprefix(f"{group.modules}."))
    return (
        format_bytes(group.nbytes),
        f"x{group.count}" if group.count > 1 else "",
        name,
        tidy(group.tensor),
        tidy(group.modules),
        _where(document, group.source),
    )
