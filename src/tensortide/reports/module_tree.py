"""The module tree as rows: each module with its submodules and alone, and equal siblings folded into one row."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import msgspec

from tensortide.cost import Count, ModuleTotal, Total
from tensortide.graph.model import OUTSIDE, Graph, Phase, Role
from tensortide.reports.names import home_of, shared, storage_homes
from tensortide.timelines import ModuleMemory, StorageTimeline, by_module

__all__ = ["ALIKE", "ModuleRow", "fold_modules", "module_rows"]

OUTSIDE_PATH, ROOT_PATH = "(outside)", "(root)"
ALIKE = 0.02
"""Siblings of one structure fold if their FLOPs differ by no more than this part."""


class _Sums(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of a module that add up over modules."""

    ops: int = 0
    own_ops: int = 0
    unknown_ops: int = 0
    flops: int = 0
    own_flops: int = 0
    macs: int = 0
    accessed_bytes: int = 0
    own_accessed_bytes: int = 0
    parameters: int = 0
    parameter_bytes: int = 0
    saved_bytes: int = 0
    retained_bytes: int = 0
    peak_bytes: int = 0


class ModuleRow(_Sums, frozen=True, kw_only=True):
    """One module, in depth-first order, or ``count`` folded ones. All includes submodules except what is named ``own``.

    ``parent`` is the row of the enclosing module. ``saved_bytes`` are activations that its ops make and backward waits
    for; ``peak_bytes`` are what of its tensors (parameters, gradients, optimizer state, activations, temporaries) is
    alive at the peak of the step. ``retained_bytes`` is how much more is resident after its forward calls than before
    them; ``transient_bytes`` the most that any of its calls, forward or backward, adds while it runs.
    """

    path: str
    name: str
    type: str
    depth: int
    parent: int
    count: int = 1
    transient_bytes: int = 0


# -- rows -------------------------------------------------------------------------------------------


class _Held(msgspec.Struct):
    """Bytes and elements of the tensors of one module, while they are being added up."""

    parameters: int = 0
    parameter_bytes: int = 0
    saved_bytes: int = 0
    peak_bytes: int = 0

    def add(self, other: _Held) -> None:
        for field in self.__struct_fields__:
            setattr(self, field, getattr(self, field) + getattr(other, field))


def module_rows(graph: Graph, count: Count, eager: StorageTimeline) -> tuple[ModuleRow, ...]:
    """One row per module, and one for what is outside all of them if anything is."""
    held = _held(graph, eager)
    trees = list(count.modules)
    if OUTSIDE_PATH in held and all(tree.path != OUTSIDE_PATH for tree in trees):
        trees.append(ModuleTotal(OUTSIDE_PATH, "", Total(), Total()))
    calls = {module.path: memory for module, memory in zip(graph.modules, by_module(graph), strict=True)}
    rows: list[ModuleRow] = []
    for tree in trees:
        _append(rows, tree, -1, 0, held, calls)
    return tuple(rows)


def _append(
    rows: list[ModuleRow],
    node: ModuleTotal,
    parent: int,
    depth: int,
    held: dict[str, _Held],
    calls: dict[str, ModuleMemory],
) -> _Held:
    """Add the rows of ``node`` and of all inside it; return what they hold together."""
    at, sums = len(rows), _Held()
    rows.append(_row(node, parent, depth, sums, calls))  # its place: sums are known later
    sums.add(held.get(node.path, _Held()))
    for child in node.children:
        sums.add(_append(rows, child, at, depth + 1, held, calls))
    rows[at] = _row(node, parent, depth, sums, calls)
    return sums


def _row(node: ModuleTotal, parent: int, depth: int, held: _Held, calls: dict[str, ModuleMemory]) -> ModuleRow:
    memory = calls.get(node.path)
    return ModuleRow(
        path=node.path or ROOT_PATH,
        name=node.name,
        type=node.type,
        depth=depth,
        parent=parent,
        ops=node.inclusive.ops,
        own_ops=node.exclusive.ops,
        unknown_ops=node.inclusive.unknown,
        flops=node.inclusive.flops,
        own_flops=node.exclusive.flops,
        macs=node.inclusive.macs,
        accessed_bytes=node.inclusive.bytes,
        own_accessed_bytes=node.exclusive.bytes,
        **msgspec.structs.asdict(held),
        retained_bytes=memory.retained if memory else 0,
        transient_bytes=memory.transient if memory else 0,
    )


def _held(graph: Graph, eager: StorageTimeline) -> dict[str, _Held]:
    """Sum each module's own tensors, by its path. Tied parameters count where they are named first."""
    held: defaultdict[str, _Held] = defaultdict(_Held)
    known = {module.path: i for i, module in enumerate(graph.modules)}

    def of(module: int) -> _Held:
        return held[OUTSIDE_PATH if module == OUTSIDE else graph.modules[module].path]

    seen: set[int] = set()
    for named in graph.named:
        if named.role is Role.PARAMETER and named.tensor not in seen:
            seen.add(named.tensor)
            tensor, mine = graph.tensors[named.tensor], of(home_of(named.name, known))
            mine.parameters += tensor.numel
            mine.parameter_bytes += tensor.numel * tensor.itemsize
    homes, saved = storage_homes(graph), any(op.phase is Phase.BACKWARD for op in graph.ops)
    for i, storage in enumerate(graph.storages):
        if saved and storage.role is Role.ACTIVATION:
            of(homes[i]).saved_bytes += storage.nbytes
    if len(graph):
        for alive in eager.alive():
            of(homes[alive.storage]).peak_bytes += alive.nbytes
    return held


# -- folding ----------------------------------------------------------------------------------------


def fold_modules(rows: Sequence[ModuleRow], depth: int) -> list[ModuleRow]:
    """The module tree down to ``depth`` levels below its roots, with equal numbered siblings in one row.

    The row has their sums, of ``transient_bytes`` the most. A module that only encloses one row (a list of blocks)
    shares it.
    """
    return list(_Folder(rows).rows_of([[i] for i, row in enumerate(rows) if row.parent < 0], 0, depth))


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

    def rows_of(self, groups: Sequence[Sequence[int]], level: int, depth: int, prefix: str = "") -> Iterator[ModuleRow]:
        for members in groups:
            below = self._below(members)
            name = prefix + self._name(members)
            if len(below) == 1 and self._only_encloses(members):
                yield from self.rows_of(below, level, depth, f"{name}.")
                continue
            yield self._row(members, level, name)
            if level < depth:
                yield from self.rows_of(below, level + 1, depth)

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

    def _row(self, members: Sequence[int], level: int, name: str) -> ModuleRow:
        rows = [self.rows[i] for i in members]
        sums = {field: sum(getattr(row, field) for row in rows) for field in _Sums.__struct_fields__}
        path, most = shared([row.path for row in rows]), max(row.transient_bytes for row in rows)
        return msgspec.structs.replace(
            rows[0], **sums, name=name, path=path, depth=level, count=len(rows), transient_bytes=most
        )
