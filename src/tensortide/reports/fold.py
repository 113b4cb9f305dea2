"""Making long lists short: module trees with equal siblings folded into one line, tensors at the peak in groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from tensortide.reports.document import Document, Resident
from tensortide.reports.modules import pattern, shared
from tensortide.reports.rows import ModuleRow

ALIKE = 0.02
"""Siblings of one structure fold if their FLOPs differ by no more than this part."""


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One or more modules of equal structure, summed: ``h.[0-11]`` x 12; the ``transient_bytes`` of the highest."""

    name: str
    path: str
    type: str
    depth: int
    count: int
    flops: int
    accessed_bytes: int
    parameters: int
    parameter_bytes: int
    saved_bytes: int
    retained_bytes: int
    transient_bytes: int
    peak_bytes: int
    share: float


def fold_modules(rows: Sequence[ModuleRow], depth: int) -> list[Line]:
    """The module tree down to ``depth`` levels below its roots, with equal numbered siblings in one line.

    A module that only encloses one line (a list of blocks) shares it.
    """
    return list(_Folder(rows).lines([[i] for i, row in enumerate(rows) if row.parent < 0], 0, depth))


class _Folder:
    def __init__(self, rows: Sequence[ModuleRow]) -> None:
        self.rows = rows
        self.children: list[list[int]] = [[] for _ in rows]
        for i, row in enumerate(rows):
            if row.parent >= 0:
                self.children[row.parent].append(i)
        self.shapes: list[tuple[object, ...]] = [()] * len(rows)
        known: dict[tuple[object, ...], int] = {}
        for i in reversed(range(len(rows))):
            below = tuple((rows[c].name, self.shapes[c]) for c in self.children[i])
            shape = (rows[i].type, rows[i].parameters, below)
            self.shapes[i] = (known.setdefault(shape, len(known)),)

    def lines(self, groups: Sequence[Sequence[int]], level: int, depth: int, prefix: str = "") -> Iterator[Line]:
        for members in groups:
            below = self._below(members)
            name = prefix + self._name(members)
            if len(below) == 1 and self._only_encloses(members):
                yield from self.lines(below, level, depth, f"{name}.")
                continue
            yield self._line(members, level, name)
            if level < depth:
                yield from self.lines(below, level + 1, depth)

    def _only_encloses(self, members: Sequence[int]) -> bool:
        return all(self.rows[i].parent >= 0 and not self.rows[i].own_ops for i in members)

    def _below(self, members: Sequence[int]) -> list[list[int]]:
        """Children of all members, position by position, folded."""
        groups: list[list[int]] = []
        for same in zip(*(self.children[i] for i in members), strict=True):
            if groups and self._alike(groups[-1][-1], same[0]):
                groups[-1].extend(same)
            else:
                groups.append(list(same))
        return groups

    def _alike(self, one: int, other: int) -> bool:
        a, b = self.rows[one], self.rows[other]
        if not (a.name.isdigit() and b.name.isdigit() and self.shapes[one] == self.shapes[other]):
            return False
        return abs(a.flops - b.flops) <= ALIKE * max(a.flops, b.flops)

    def _name(self, members: Sequence[int]) -> str:
        names = dict.fromkeys(self.rows[i].name for i in members)
        if len(names) == 1:
            return next(iter(names))
        numbers = sorted(int(name) for name in names)
        return f"[{numbers[0]}-{numbers[-1]}]"

    def _line(self, members: Sequence[int], level: int, name: str) -> Line:
        rows = [self.rows[i] for i in members]
        return Line(
            name=name,
            path=pattern(rows[0].path) if len(rows) > 1 else rows[0].path,
            type=rows[0].type,
            depth=level,
            count=len(rows),
            flops=sum(row.flops for row in rows),
            accessed_bytes=sum(row.accessed_bytes for row in rows),
            parameters=sum(row.parameters for row in rows),
            parameter_bytes=sum(row.parameter_bytes for row in rows),
            saved_bytes=sum(row.saved_bytes for row in rows),
            retained_bytes=sum(row.retained_bytes for row in rows),
            transient_bytes=max(row.transient_bytes for row in rows),
            peak_bytes=sum(row.peak_bytes for row in rows),
            share=sum(row.share for row in rows),
        )


class TensorGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Tensors at the peak of one role, shape and origin, in modules that differ only by number."""

    role: str
    name: str
    tensor: str
    modules: str
    source: int
    count: int
    nbytes: int


def fold_tensors(document: Document) -> list[TensorGroup]:
    """What is alive at the peak in groups, the largest first."""
    groups: dict[tuple[str, str, str, str, int], list[Resident]] = {}
    for row in document.memory.at_peak:
        key = (row.role, pattern(row.name) or row.op, row.tensor, pattern(row.module), row.source)
        groups.setdefault(key, []).append(row)
    folded = [
        TensorGroup(
            role=role,
            name=shared([row.name for row in rows]) or rows[0].op,
            tensor=tensor,
            modules=shared([row.module for row in rows]),
            source=source,
            count=len(rows),
            nbytes=sum(row.nbytes for row in rows),
        )
        for (role, _, tensor, _, source), rows in groups.items()
    ]
    return sorted(folded, key=lambda group: -group.nbytes)
