"""A profile as text for a terminal or a pipe, from 80 columns on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.text import Text

from tensortide.reports.layout import Column, Trimmed, columns_table, heading, tidy
from tensortide.reports.profile import Account, ProfileDocument, TimeRow
from tensortide.timing import Machine
from tensortide.units import format_bytes, format_count, format_percent, format_seconds

__all__ = ["render_profile"]

WIDE = 98
"""From so many columns on operands are shown."""

WITHIN = 0.05
"""How far ops and overhead may miss the step before that is remarked on."""


def render_profile(document: ProfileDocument, console: Console, *, depth: int = 3, top: int = 15) -> None:
    """Print the step's account, then phases, the ``top`` ops, modules to ``depth``, and what is unknown."""
    width = console.width
    parts: list[RenderableType] = [_title(document), *_account(document)]
    parts += _table("By phase", document.phases, width, first="Phase")
    parts += _table("By op", document.by_op[:top], width, first="Op", remark=_of(document.by_op, top))
    if width >= WIDE:
        remark = _of(document.by_shapes, top)
        parts += _table("By op and operands", document.by_shapes[:top], width, first="Op", remark=remark)
    modules = [row for row in document.modules if row.depth <= depth]
    parts += _table("By module", modules, width, first="Module", remark=f"to depth {depth}, with what is inside")
    parts += _remarks(document)
    for part in parts:
        console.print(Trimmed(part), highlight=False, end="")


def _of(rows: Sequence[TimeRow], top: int) -> str:
    return f"{top} of {len(rows)} kinds" if top < len(rows) else ""


def _time(ns: float) -> str:
    return format_seconds(ns / 1e9)


_HOW = {
    "step": "each op on the clock in the running step",
    "isolated": "each distinct op executed alone on random tensors",
    "trace": "from a profiler's trace",
    "list": "from a list of times",
}
_CLOCK = {"wall": ", wall time", "thread": ", processor time of the thread", "kernel": ", kernel times"}


def _title(document: ProfileDocument) -> RenderableType:
    how = _HOW.get(document.how, document.how) + _CLOCK.get(document.clock, "")
    steady = "" if document.steady else ", not steady then"
    warm = f"; {document.warm_up} steps of warm-up{steady}" if document.warm_up else ""
    facts = [f"{document.ops:,} ops, {how}{warm}", *([_machine(document.machine)] if document.machine else [])]
    if document.how in ("trace", "list"):
        facts.append(document.source)
    lines = "".join(f"\n{tidy(fact)}" for fact in facts)
    return Padding(Text.assemble((tidy(document.target), "bold"), (lines, "dim")), (0, 0, 0, 0), expand=False)


def _machine(machine: Machine) -> str:
    parts = [machine.name + (f" ({machine.isa})" if machine.isa else "")]
    if machine.threads is not None:
        cores = f" on {machine.cores} core{'s' * (machine.cores != 1)}" if machine.cores else ""
        parts.append(f"{machine.threads} thread{'s' * (machine.threads != 1)}{cores}")
    if machine.load_before is not None and machine.load_after is not None:
        parts.append(f"load {machine.load_before:g} before, {machine.load_after:g} after")
    if machine.governor:
        parts.append(f"governor {machine.governor}")
    return ", ".join([*parts, *(f"{name} {version}" for name, version in machine.versions.items())])


def _account(document: ProfileDocument) -> Iterator[RenderableType]:
    """What the step is made of, and how far that explains it."""
    account, step = document.account, document.account.step
    whole = step.median_ns if step else account.explained_ns
    rows = [("ops", _time(account.ops_ns), format_percent(account.ops_ns, whole), _noise(account))]
    for phase, ns in account.overhead_ns.items():
        rows.append((f"between ops, {phase}", _time(ns), format_percent(ns, whole), "the host's own work"))
    if account.overhead_ns:
        rows.append(("together", _time(account.explained_ns), format_percent(account.explained_ns, whole), ""))
    if step is not None:
        name = "step in the trace" if document.how == "trace" else "ordinary step"
        rows.append((name, _time(step.median_ns), "100 %", f"{_time(step.min_ns)} to {_time(step.p90_ns)} in {step.n}"))
    if account.difference is not None:
        rows.append(("difference", "", f"{100 * account.difference:+.1f} %", ""))
    if account.hooked is not None and account.hook_ns is not None:
        share = format_percent(account.hook_ns, whole)
        rows.append(("taken off: the hook", _time(account.hook_ns), share, "what timing the ops adds to a step"))
    names = (Column("The step"), Column("Time", right=True), Column("share", right=True), Column("", dim=True))
    yield columns_table(names, rows)
    if account.difference is not None and abs(account.difference) > WITHIN:
        yield Padding(Text(_unexplained(document)), (1, 0, 0, 0), expand=False)


def _noise(account: Account) -> str:
    return "" if account.noise is None else f"shortest times are {format_percent(account.noise)} of that"


def _unexplained(document: ProfileDocument) -> str:
    text = "Ops and the work between them do not explain the step to 5 %: "
    machine = document.machine
    busy = (
        machine is not None and machine.cores and max(machine.load_before or 0, machine.load_after or 0) > machine.cores
    )
    if document.clock == "wall" and busy:
        return text + "other processes take the cores. Measure again when it is quiet, or with --clock thread."
    return text + "times changed while they were taken. Take more steps (--steps)."


def _table(
    title: str, rows: Sequence[TimeRow], width: int, *, first: str, remark: str = ""
) -> Iterator[RenderableType]:
    if not rows:
        return
    by_op, shapes, wide = first == "Op", any(row.shapes for row in rows), width >= WIDE
    yield heading(title, remark)
    columns = [
        Column(first, fold=True),
        Column("Operands", fold=True, shown=shapes, dim=True),
        Column("Phase", shown=by_op and (width >= 120 if shapes else wide)),
        Column("Calls", right=True),
        Column("Time", right=True),
        Column("share", right=True),
        Column("median", right=True, shown=by_op),
        Column("min", right=True, shown=by_op and not (shapes and width < 130)),
        Column("p90", right=True, shown=by_op and not (shapes and width < 130)),
        Column("FLOP/s", right=True, shown=not by_op or wide),
        Column("B/s", right=True, shown=not by_op or (wide and not (shapes and width < 110))),
    ]
    yield columns_table(columns, [_cells(row, by_op) for row in rows], first=False)


def _cells(row: TimeRow, by_op: bool) -> tuple[str, ...]:
    name = tidy(row.name.removeprefix("aten."))
    if not by_op:
        name = "  " * row.depth + name + (f" x{row.modules}" if row.modules > 1 else "")
    flops = ("~" if row.unpriced else "") + format_count(row.flops_per_s) if row.flops else "-"
    measured = row.stand_ins < row.ops
    moved = f"{format_bytes(row.bytes_per_s)}" if row.accessed_bytes else "-"
    return (
        name,
        tidy(row.shapes),
        row.phase,
        f"{row.calls:,}",
        ("~" if row.stand_ins else "") + _time(row.ns),
        format_percent(row.share),
        _time(row.median_ns),
        _time(row.min_ns) if measured else "-",
        _time(row.p90_ns) if measured else "-",
        flops,
        moved,
    )


def _remarks(document: ProfileDocument) -> Iterator[RenderableType]:
    """What is not known, and what is known of the figures."""
    if document.unknown:
        total = sum(document.unknown.values())
        yield heading(
            f"Not measured: {total:,} of {document.ops:,} ops", "~ estimated from the best rates of the others"
        )
        rows = [(str(number), text) for text, number in sorted(document.unknown.items(), key=lambda item: -item[1])]
        yield columns_table([Column("Ops", right=True), Column("What and why", fold=True)], rows[:20], first=False)
        if len(rows) > 20:
            yield Text(f"and {len(rows) - 20} kinds more: see --json", style="dim")
    yield from _lines(document.notes)


def _lines(notes: Iterable[str]) -> Iterator[RenderableType]:
    for note in notes:
        yield Padding(Text(tidy(note), style="dim"), (1, 0, 0, 0), expand=False)
