"""Ops of two steps: by phase, by kind, and those of matched modules that differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tensortide.metrics.differences.join import Pair
from tensortide.metrics.differences.ops import Group, OpChange
from tensortide.metrics.differences.side import NOTHING
from tensortide.metrics.differences.step import StepDifference
from tensortide.reports.blocks import AnyBlock, Column, Section, Table, UnitName
from tensortide.reports.names import pattern, shared
from tensortide.reports.sections.comparison_columns import change, difference

__all__ = ["section"]


def section(found: StepDifference, top: int, tail: str = "") -> Section | None:
    """Make the section; None if no op differs."""
    kinds = [group for group in found.kinds if group.difference != NOTHING]
    blocks: list[AnyBlock] = []
    if any(group.difference != NOTHING or group.peaks[0] != group.peaks[1] for group in found.phases):
        blocks.append(_phases(found, found.phases))
    if kinds:
        blocks.append(_kinds(found, kinds, top))
    if found.ops:
        blocks += _changes(found, found.ops, top)
    one, other = found.letters
    return Section(f"ops{tail}", f"Phases and ops, {one} → {other}", "", tuple(blocks), folded=True) if blocks else None


def _phases(found: StepDifference, groups: Sequence[Group]) -> Table:
    one, other = found.letters
    peaks = [[group.peaks[side] for group in groups] for side in (0, 1)]
    both = [(a or 0, b or 0) for a, b in zip(*peaks, strict=True)]
    columns = (
        Column("phase", "Phase", "text", tuple(group.name for group in groups)),
        Column("a_ops", f"Ops of {one}", "count", tuple(group.a.ops for group in groups), at_width=110),
        Column("b_ops", other, "count", tuple(group.b.ops for group in groups), at_width=110),
        Column("a_flops", f"FLOPs of {one}", "flops", tuple(group.a.flops for group in groups), zero="-"),
        Column("b_flops", other, "flops", tuple(group.b.flops for group in groups), zero="-"),
        change("change", "change", [(group.a.flops, group.b.flops) for group in groups]),
        Column("a_peak", f"Peak of {one}", "bytes", tuple(peaks[0])),
        Column("b_peak", other, "bytes", tuple(peaks[1])),
        difference("peak", "", "bytes", [b - a for a, b in both]),
        *_times(groups),
    )
    return Table(key="phases", title="By phase", columns=columns)


def _kinds(found: StepDifference, groups: Sequence[Group], top: int) -> Table:
    one, other = found.letters
    columns = (
        Column("op", "Op", "name", tuple(group.name for group in groups), fold=True),
        Column("a_ops", f"Ops of {one}", "count", tuple(group.a.ops for group in groups), zero="-"),
        Column("b_ops", other, "count", tuple(group.b.ops for group in groups), zero="-"),
        difference("flops", "FLOPs", "flops", [group.difference.flops for group in groups]),
        change("change", "change", [(group.a.flops, group.b.flops) for group in groups]),
        difference("bytes", "Bytes", "bytes", [group.difference.bytes for group in groups]),
        *_times(groups),
        *_data(groups),
    )
    return Table(key="kinds", title="By kind of op", remark="those that differ", columns=columns, top=top)


def _data(groups: Sequence[Group]) -> Iterator[Column]:
    """Costs of both sides, for data."""
    units: tuple[tuple[str, UnitName], ...] = (("flops", "flops"), ("macs", "macs"), ("bytes", "bytes"))
    for side in ("a", "b"):
        amounts = [getattr(group, side) for group in groups]
        for key, unit in units:
            yield Column(f"{side}_{key}", "", unit, tuple(getattr(one, key) for one in amounts), data=True)
        yield Column(f"{side}_unknown_ops", "", "count", tuple(one.unknown for one in amounts), data=True)


def _times(groups: Sequence[Group]) -> list[Column]:
    """Times of both and their difference, where any is known."""
    known = any(group.a.time and group.b.time for group in groups)
    return [
        Column("a_time", "", "ns", tuple(group.a.time for group in groups), data=True),
        Column("b_time", "", "ns", tuple(group.b.time for group in groups), data=True),
        difference("time", "Time", "ns", [group.difference.time if known else 0 for group in groups], data=not known),
    ]


def _changes(found: StepDifference, changes: Sequence[OpChange], top: int) -> Iterator[Table]:
    """Ops that differ: for text those of modules that differ only by number together, for the page each with its
    tensors."""
    numbers = _numbers(found.root)
    groups: dict[tuple[str, ...], list[OpChange]] = {}
    for each in changes:
        groups.setdefault((each.op, each.phase, each.kind, pattern(each.module)), []).append(each)
    members = sorted(
        groups.values(), key=lambda some: (-abs(sum(x.flops for x in some)), -abs(sum(x.bytes for x in some)))
    )
    remark = "in matched modules"
    costly = [some for some in members if any(each.flops or each.bytes for each in some)]
    text = tuple(_change_columns(costly or members))
    yield Table(key="changed", title="Ops that differ", remark=remark, columns=text, top=top, only="text")
    one, other = found.letters
    columns = (
        *_change_columns([[each] for each in changes]),
        Column("a", f"In {one}", "code", tuple(each.a for each in changes), dim=True),
        Column("b", f"In {other}", "code", tuple(each.b for each in changes), dim=True),
        Column("pair", "", "count", tuple(numbers.get(each.module, -1) for each in changes), data=True),
    )
    yield Table(key="changed_ops", title="Ops that differ", remark=remark, columns=columns, linked="pair", only="page")


def _change_columns(members: Sequence[Sequence[OpChange]]) -> Iterator[Column]:
    first = [some[0] for some in members]
    yield Column("op", "Op", "name", tuple(each.op for each in first), fold=True)
    yield Column("kind", "", "text", tuple(each.kind for each in first), dim=True, pick=True)
    yield Column("count", "Ops", "count", tuple(sum(each.count for each in some) for some in members))
    yield difference("flops", "FLOPs", "flops", [sum(each.flops for each in some) for some in members])
    yield difference("bytes", "Bytes", "bytes", [sum(each.bytes for each in some) for some in members])
    yield Column("phase", "Phase", "text", tuple(each.phase for each in first))
    yield Column(
        "module", "Module", "path", tuple(shared([each.module for each in some]) for some in members), fold=True
    )


def _numbers(root: Pair) -> dict[str, int]:
    """The number of each pair of modules, as the trees have it."""
    return {pair.label: number for number, pair in enumerate([*root.walk()][1:])}
