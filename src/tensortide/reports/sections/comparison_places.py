"""Differences of two steps by module, by phase and op, and by tensor at the peaks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from tensortide.differences import Amounts, Pair, Together, grouped
from tensortide.graph.module_paths import as_one, pattern
from tensortide.measures.differences.memory import HeldAmounts, PeakTensor, held
from tensortide.measures.differences.ops import Group, OpChange, PhaseAmounts
from tensortide.measures.differences.side import Held
from tensortide.measures.differences.step import StepDifference
from tensortide.reports import of_records
from tensortide.reports.blocks import AnyBlock, Column, Note, Section, Table
from tensortide.reports.of_differences import columns, folded, levels, table
from tensortide.reports.of_records import column
from tensortide.reports.render.values import short
from tensortide.timelines.module_figures import WORDS, ModuleFigures

A = TypeVar("A", bound=Amounts)
FIGURES = tuple(WORDS)
"""Figures of a module with what is inside it."""
WIDTHS = {"accessed_bytes": 120, "saved_bytes": 90, "ops": 130}
"""Least widths of a terminal that shows their differences by module."""


# -- modules ----------------------------------------------------------------------------------------


def modules(found: StepDifference, top: int, depth: int, tail: str = "") -> Section:
    """Make the section: the modules that differ, equal siblings folded; what matched; on the page both trees."""
    rows = folded(found.root, FIGURES, depth, exactly=("parameters", "ops"))
    blocks: list[AnyBlock] = [_differing(rows, top, depth)] if rows else []
    blocks += [Note(text=str(found.matching), kind="coverage"), *_trees(found)]
    one, other = found.letters
    about = f"{other} less {one}, submodules included; the largest difference first"
    return Section(f"modules{tail}", "Where it differs" + f", {one} → {other}" * bool(tail), about, tuple(blocks))


def _differing(rows: Sequence[Together[ModuleFigures]], top: int, depth: int) -> Table:
    several = tuple(f" x{row.count}" if row.count > 1 else "" for row in rows)
    kinds: tuple[str, ...] = tuple(row.kind for row in rows)
    apart = tuple("" if kind in ("changed", "same") else kind for kind in kinds)
    # where nothing but the number of ops differs, every terminal shows it
    alone = all(row.difference.ops and not replace(row.difference, ops=0) for row in rows)
    shown: list[Column] = []
    for name in FIGURES:
        parts = [f"difference.{name}", *(["change.flops"] if name == "flops" else [])]
        shown += columns(ModuleFigures, rows, *parts, at_width=0 if alone else WIDTHS.get(name, 0))
    module = Column("module", "Module", "path", tuple(row.name for row in rows), fold=True, after=several)
    made = (
        module,
        Column("path", "", "path", tuple(as_one([pair.label for pair in row.pairs]) for row in rows), data=True),
        Column("count", "", "count", tuple(row.count for row in rows), data=True),
        Column("kind", "", "text", kinds, data=True),
        Column("kind_text", "", "text", apart, dim=True),
        *shown,
    )
    return Table(key="differing", columns=made, depth=tuple(row.depth for row in rows), to_depth=depth, top=top)


def _trees(found: StepDifference) -> Iterator[Table]:
    """Yield all modules joined, with the differences; then the modules of each side."""
    levelled = [*levels(found.root)]
    pairs, depths = [pair for pair, _ in levelled], tuple(depth for _, depth in levelled)
    figures: list[Column] = []
    for name in FIGURES:
        figures += columns(ModuleFigures, pairs, f"difference.{name}")
        figures += columns(ModuleFigures, pairs, f"a.{name}", f"b.{name}", f"own.{name}", data=True)
    yield table(
        ModuleFigures,
        pairs,
        Column("module", "Module", "path", tuple(pair.name for pair in pairs)),
        Column("path", "", "path", tuple(pair.label for pair in pairs), data=True),
        Column("kind", "", "text", tuple(pair.kind for pair in pairs), pick=True),
        *figures,
        *columns(ModuleFigures, pairs, "a.unknown_ops", "b.unknown_ops", data=True),
        Column("a_path", "", "path", tuple(pair.a.label if pair.a else "" for pair in pairs), data=True),
        Column("b_path", "", "path", tuple(pair.b.label if pair.b else "" for pair in pairs), data=True),
        Column("pair", "", "count", tuple(range(len(pairs))), data=True),
        key="modules",
        depth=depths,
        linked="pair",
        only="page",
    )
    numbers = {node: number for number, pair in enumerate(pairs) for node in (pair.a, pair.b) if node is not None}
    for key, letter, side in zip("ab", found.letters, (found.a, found.b), strict=True):
        nodes = [*levels(side.tree)]
        wholes, shown = [node.whole for node, _ in nodes], ("flops", "parameters", "peak_bytes")
        yield Table(
            key=f"modules_{key}",
            columns=(
                Column("module", f"Module of {letter}", "path", tuple(node.name for node, _ in nodes)),
                Column("path", "", "path", tuple(node.label for node, _ in nodes), data=True),
                Column("type", "Type", "text", tuple(node.of for node, _ in nodes), dim=True),
                *(column(ModuleFigures, wholes, name, zero="-", data=name not in shown) for name in FIGURES),
                Column("pair", "", "count", tuple(numbers[node] for node, _ in nodes), data=True),
            ),
            depth=tuple(depth for _, depth in nodes),
            linked="pair",
            beside=key == "b",
            only="page",
        )


# -- ops --------------------------------------------------------------------------------------------


def ops(found: StepDifference, top: int, tail: str = "") -> Section | None:
    """Make the section: phases, kinds of op, and the ops of matched modules that differ; None if no op does."""
    kinds = [group for group in found.kinds if group.difference]
    blocks: list[AnyBlock] = []
    if any(phase.kind != "same" for phase in found.phases):
        blocks.append(_phases(found))
    if kinds:
        blocks.append(_kinds(found, kinds, top))
    if found.ops:
        blocks += _changes(found, top)
    one, other = found.letters
    return Section(f"ops{tail}", f"Phases and ops, {one} → {other}", "", tuple(blocks), folded=True) if blocks else None


def _phases(found: StepDifference) -> Table:
    rows, sides = found.phases, found.letters
    return table(
        PhaseAmounts,
        rows,
        Column("phase", "Phase", "text", tuple(phase.name for phase in rows)),
        *(
            "a.ops",
            "b.ops",
            "a.flops",
            "b.flops",
            "change.flops",
            "a.peak_bytes",
            "b.peak_bytes",
            "difference.peak_bytes",
        ),
        *_times(PhaseAmounts, rows),
        key="phases",
        sides=sides,
        title="By phase",
    )


def _kinds(found: StepDifference, rows: Sequence[Group], top: int) -> Table:
    costs = [f"{side}.{name}" for side in ("a", "b") for name in ("flops", "macs", "accessed_bytes", "unknown_ops")]
    return table(
        ModuleFigures,
        rows,
        Column("op", "Op", "name", tuple(group.name for group in rows), fold=True),
        *("a.ops", "b.ops", "difference.flops", "change.flops", "difference.accessed_bytes"),
        *_times(ModuleFigures, rows),
        *columns(ModuleFigures, rows, *costs, data=True),
        key="kinds",
        sides=found.letters,
        title="By kind of op",
        remark="those that differ",
        top=top,
    )


def _times(kind: type[A], rows: Sequence[Pair[A]]) -> tuple[Column, ...]:
    """Times of both for data, and their difference where any is known on both sides."""
    hidden: dict[str, Any] = {} if any(all(row.values("time_ns")) for row in rows) else {"data": True}
    both = columns(kind, rows, "a.time_ns", "b.time_ns", data=True)
    return (*both, *columns(kind, rows, "difference.time_ns", **hidden))


def _changes(found: StepDifference, top: int) -> Iterator[Table]:
    """Ops that differ: for text those of modules that differ only by number together, for the page each with its
    tensors."""
    titles: dict[str, Any] = {"title": "Ops that differ", "remark": "in matched modules"}
    pairs = (pair for each in found.ops for pair in each.pairs)
    alike = grouped(pairs, lambda one: (one.name, one.kind, one.node.of.phase, pattern(one.node.of.module)))
    members = [OpChange(group.pairs) for group in alike]
    members.sort(key=lambda one: (-abs(one.difference.flops), -abs(one.difference.accessed_bytes)))
    costly = [
        some for some in members if any(one.difference.flops or one.difference.accessed_bytes for one in some.pairs)
    ]
    yield Table(key="changed", columns=tuple(_change_columns(costly or members)), top=top, only="text", **titles)
    (one, other), signatures = found.letters, [each.signatures for each in found.ops]
    numbers = {pair.label: number for number, (pair, _) in enumerate(levels(found.root))}
    made = (
        *_change_columns(found.ops),
        Column("a_signature", f"In {one}", "code", tuple(a for a, _ in signatures), dim=True),
        Column("b_signature", f"In {other}", "code", tuple(b for _, b in signatures), dim=True),
        Column("pair", "", "count", tuple(numbers.get(each.modules[0], -1) for each in found.ops), data=True),
    )
    yield Table(key="changed_ops", columns=made, linked="pair", only="page", **titles)


def _change_columns(rows: Sequence[OpChange]) -> Iterator[Column]:
    yield from of_records.columns(OpChange, rows, "op", "change", "count")
    yield from columns(ModuleFigures, rows, "difference.flops", "difference.accessed_bytes")
    yield column(OpChange, rows, "phase")
    yield Column("module", "Module", "path", tuple(as_one(each.modules) for each in rows), fold=True)


# -- peaks ------------------------------------------------------------------------------------------

BYTES = ("a.bytes", "b.bytes", "difference.bytes")


def peaks(found: StepDifference, top: int, tail: str = "") -> Section | None:
    """Make the section: bytes by role, the tensors that differ, and on the page all; None if both peaks are of the same
    tensors."""
    if not any(tensor.difference.bytes for tensor in found.peak):
        return None
    one, other = found.letters
    blocks = (_roles(found), _tensors(found, top), *_lists(found))
    return Section(f"peak{tail}", f"Resident at the peaks of {one} and {other}", "", blocks, folded=True)


def _roles(found: StepDifference) -> Table:
    """Bytes at both peaks by role; they sum to the peaks."""
    rows = sorted(grouped(found.peak, lambda one: held(one).role), key=lambda row: -abs(row.difference.bytes))
    role = Column("role", "Role", "role", tuple(held(row.first).role for row in rows))
    return table(HeldAmounts, rows, role, *BYTES, key="roles", sides=found.letters)


def _tensors(found: StepDifference, top: int) -> Table:
    """Tensors that differ, over modules that differ only by number together."""
    groups = grouped((one for one in found.peak if one.difference.bytes), _alike)
    rows = sorted(groups, key=lambda some: -abs(some.difference.bytes))
    first, places = [held(row.first) for row in rows], [[held(one).module for one in row.pairs] for row in rows]
    return table(
        HeldAmounts,
        rows,
        Column("tensor", "Tensor", "text", tuple(short(one.name) for one in first), fold=True),
        Column("count", "", "count", tuple(row.count for row in rows)),
        Column("role", "Role", "role", tuple(one.role for one in first)),
        Column("module", "Module", "path", tuple(map(as_one, places)), fold=True),
        *BYTES,
        *(
            Column(
                f"{key}_shape",
                f"Shape in {letter}",
                "code",
                tuple(_shapes(row.first)[side] for row in rows),
                130,
                dim=True,
            )
            for side, (key, letter) in enumerate(zip("ab", found.letters, strict=True))
        ),
        key="differing",
        sides=found.letters,
        top=top,
    )


def _alike(one: PeakTensor) -> tuple[str, ...]:
    return held(one).role, held(one).name, pattern(held(one).module), *_shapes(one)


def _shapes(one: PeakTensor) -> tuple[str, str]:
    return one.a.of.shape if one.a else "", one.b.of.shape if one.b else ""


def _lists(found: StepDifference) -> Iterator[Table]:
    """All tensors of each peak, numbered by their pairs."""
    for side, letter in enumerate(found.letters):
        nodes = [(number, node) for number, one in enumerate(found.peak) if (node := (one.a, one.b)[side]) is not None]
        nodes.sort(key=lambda row: -row[1].own.bytes)
        yield of_records.table(
            Held,
            [node.of for _, node in nodes],
            Column("tensor", f"Tensor of {letter}", "text", tuple(short(node.name) for _, node in nodes)),
            *("role", "module", "size_bytes", "shape"),
            Column("tensor_pair", "", "count", tuple(number for number, _ in nodes), data=True),
            key=f"tensors_{'ab'[side]}",
            linked="tensor_pair",
            beside=side == 1,
            only="page",
        )
