"""Tensors at the peaks of two steps: text has those that differ, the page both lists beside each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tensortide.metrics.differences.peak import PeakTensor
from tensortide.metrics.differences.side import Held
from tensortide.metrics.differences.step import StepDifference
from tensortide.reports.blocks import AnyBlock, Column, Section, Table
from tensortide.reports.names import pattern, shared
from tensortide.reports.render.values import short
from tensortide.reports.sections.comparison_columns import difference

__all__ = ["section"]


def section(found: StepDifference, top: int, tail: str = "") -> Section | None:
    """Make the section; None if both peaks are of the same tensors."""
    if not any(tensor.difference for tensor in found.peak):
        return None
    one, other = found.letters
    blocks: list[AnyBlock] = [_roles(found), _differing(found, top), *_lists(found)]
    return Section(f"peak{tail}", f"Resident at the peaks of {one} and {other}", "", tuple(blocks), folded=True)


def _roles(found: StepDifference) -> Table:
    """Bytes at both peaks by role; they sum to the peaks."""
    sums: dict[str, list[int]] = {}
    for tensor in found.peak:
        values = sums.setdefault(tensor.held.role, [0, 0])
        for side, nbytes in enumerate(tensor.nbytes):
            values[side] += nbytes
    rows = sorted(sums.items(), key=lambda item: -abs(item[1][1] - item[1][0]))
    columns = (
        Column("role", "Role", "role", tuple(role for role, _ in rows)),
        Column("a", found.letters[0], "bytes", tuple(a for _, (a, _) in rows), zero="-", sum=True),
        Column("b", found.letters[1], "bytes", tuple(b for _, (_, b) in rows), zero="-", sum=True),
        difference("difference", "difference", "bytes", [b - a for _, (a, b) in rows]),
    )
    return Table(key="roles", columns=columns)


def _differing(found: StepDifference, top: int) -> Table:
    """Tensors that differ, over modules that differ only by number together."""
    groups: dict[tuple[str, ...], list[PeakTensor]] = {}
    for tensor in found.peak:
        if tensor.difference:
            held = tensor.held
            sides = (side.shape if side else "" for side in (tensor.a, tensor.b))
            groups.setdefault((held.role, held.name, pattern(held.module), *sides), []).append(tensor)
    rows = sorted(groups.values(), key=lambda some: -abs(sum(one.difference for one in some)))
    shapes = [[_shape((some[0].a, some[0].b)[side]) for some in rows] for side in (0, 1)]
    columns = (
        Column("tensor", "Tensor", "text", tuple(short(some[0].held.name) for some in rows), fold=True),
        Column("count", "", "count", tuple(len(some) for some in rows)),
        Column("role", "Role", "role", tuple(some[0].held.role for some in rows)),
        Column(
            "module",
            "Module",
            "path",
            tuple(shared([one.held.module or "(root)" for one in some]) for some in rows),
            fold=True,
        ),
        *(
            Column(key, letter, "bytes", tuple(sum(one.nbytes[side] for one in some) for some in rows), zero="-")
            for side, (key, letter) in enumerate(zip("ab", found.letters, strict=True))
        ),
        difference("difference", "difference", "bytes", [sum(one.difference for one in some) for some in rows]),
        *(
            Column(
                f"{key}_shape",
                f"Shape in {letter}",
                "code",
                tuple(shapes[side]),
                at_width=130,
                dim=True,
            )
            for side, (key, letter) in enumerate(zip("ab", found.letters, strict=True))
        ),
    )
    return Table(key="differing", columns=columns, top=top)


def _shape(held: Held | None) -> str:
    return "" if held is None else held.shape


def _lists(found: StepDifference) -> Iterator[Table]:
    """All tensors of each peak, numbered by their pairs."""
    for side, letter in enumerate(found.letters):
        rows: Sequence[tuple[int, Held]] = [
            (number, held) for number, one in enumerate(found.peak) if (held := (one.a, one.b)[side]) is not None
        ]
        rows = sorted(rows, key=lambda row: -row[1].nbytes)
        columns = (
            Column("tensor", f"Tensor of {letter}", "text", tuple(short(held.name) for _, held in rows)),
            Column("role", "Role", "role", tuple(held.role for _, held in rows), pick=True),
            Column("module", "Module", "path", tuple(held.module or "(root)" for _, held in rows)),
            Column("size", "Bytes", "bytes", tuple(held.nbytes for _, held in rows), sum=True),
            Column("shape", "Shape", "code", tuple(held.shape for _, held in rows), data=True),
            Column("tensor_pair", "", "count", tuple(number for number, _ in rows), data=True),
        )
        key = f"tensors_{'ab'[side]}"
        yield Table(key=key, columns=columns, linked="tensor_pair", beside=side == 1, only="page")
