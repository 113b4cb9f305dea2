"""The module tree of a report: what each module costs, with its submodules and alone."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from tensortide.cost import Count, ModuleTotal, Total
from tensortide.graph.model import OUTSIDE, Graph, Phase, Role
from tensortide.reports.columns import OpTable, StorageTable
from tensortide.reports.rows import ModuleRow, OpGroup
from tensortide.reports.tables import home_of
from tensortide.timelines import ModuleMemory, by_module

OUTSIDE_PATH, ROOT_PATH = "(outside)", "(root)"

_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")


class Held(msgspec.Struct):
    """What the tensors of one module take, while it is being added up."""

    parameters: int = 0
    parameter_bytes: int = 0
    saved_bytes: int = 0
    peak_bytes: int = 0

    def add(self, other: Held) -> None:
        for field in self.__struct_fields__:
            setattr(self, field, getattr(self, field) + getattr(other, field))


def module_rows(
    graph: Graph, count: Count, ops: OpTable, storages: StorageTable, peak_op: int
) -> tuple[ModuleRow, ...]:
    """One row per module, and one for what is outside all of them if anything is."""
    saved = any(op.phase is Phase.BACKWARD for op in graph.ops)
    held = _held(graph, ops, storages, peak_op if len(graph) else None, saved)
    trees = list(count.modules)
    if OUTSIDE_PATH in held and all(tree.path != OUTSIDE_PATH for tree in trees):
        trees.append(ModuleTotal(OUTSIDE_PATH, "", Total(), Total()))
    rows = _Rows(held, _calls(graph), count.total.flops)
    for tree in trees:
        rows.append(tree, -1, 0)
    return tuple(rows.rows)


def _calls(graph: Graph) -> dict[str, ModuleMemory]:
    """What the calls of each module do to memory, by its path."""
    return {module.path: memory for module, memory in zip(graph.modules, by_module(graph), strict=True)}


class _Rows:
    """The rows, depth-first, while they are being added."""

    def __init__(self, held: dict[str, Held], calls: dict[str, ModuleMemory], whole: int) -> None:
        self.rows: list[ModuleRow] = []
        self.held, self.calls, self.whole = held, calls, whole

    def append(self, node: ModuleTotal, parent: int, depth: int) -> Held:
        """Add the rows of ``node`` and of all inside it; what they hold together."""
        at, sums = len(self.rows), Held()
        calls = self.calls.get(node.path)
        self.rows.append(_row(node, parent, depth, sums, calls, self.whole))  # its place: sums are known later
        if node.path in self.held:
            sums.add(self.held[node.path])
        for child in node.children:
            sums.add(self.append(child, at, depth + 1))
        self.rows[at] = _row(node, parent, depth, sums, calls, self.whole)
        return sums


def _row(node: ModuleTotal, parent: int, depth: int, held: Held, calls: ModuleMemory | None, whole: int) -> ModuleRow:
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
        parameters=held.parameters,
        parameter_bytes=held.parameter_bytes,
        saved_bytes=held.saved_bytes,
        retained_bytes=calls.retained if calls else 0,
        transient_bytes=calls.transient if calls else 0,
        peak_bytes=held.peak_bytes,
        share=node.inclusive.flops / whole if whole else 0.0,
    )


def _held(graph: Graph, ops: OpTable, storages: StorageTable, peak: int | None, saved: bool) -> dict[str, Held]:
    """What each module's own tensors take, by its path. Tied parameters count where they are named first."""
    held: defaultdict[str, Held] = defaultdict(Held)
    known = {module.path: i for i, module in enumerate(graph.modules)}
    seen: set[int] = set()
    for named in graph.named:
        if named.role is Role.PARAMETER and named.tensor not in seen:
            seen.add(named.tensor)
            home, tensor = home_of(named.name, known), graph.tensors[named.tensor]
            mine = held[OUTSIDE_PATH if home == OUTSIDE else graph.modules[home].path]
            mine.parameters += tensor.numel
            mine.parameter_bytes += tensor.numel * tensor.itemsize
    activation = storages.roles.index(Role.ACTIVATION)
    paths = ["" if path == ROOT_PATH else path for path in ops.paths]
    for i, nbytes in enumerate(storages.nbytes):
        mine = held[paths[storages.module[i]]]
        if saved and storages.role[i] == activation:
            mine.saved_bytes += nbytes
        if peak is not None and storages.birth[i] <= peak < storages.death[i]:
            mine.peak_bytes += nbytes
    return held


def pattern(path: str) -> str:
    """``path`` with every number that is a whole name replaced by ``*``."""
    return _NUMBER.sub("*", path)


def shared(paths: Sequence[str]) -> str:
    """What ``paths`` of one pattern have in common, ``*`` where they differ: ``h.*.0`` of ``h.1.0`` and ``h.2.0``."""
    levels = zip(*(path.split(".") for path in set(paths)), strict=False)
    return ".".join(names[0] if len(set(names)) == 1 else "*" for names in levels)


def op_groups(ops: OpTable, *, apart: bool = True) -> list[OpGroup]:
    """The ops that totals count, grouped by name, phase and modules that differ only by number; and by shapes, if
    these are kept ``apart``."""
    patterns = [pattern(path) for path in ops.paths]
    groups: dict[tuple[int, int, int, str], list[int]] = {}
    untaken = set(ops.untaken)
    for i, module in enumerate(ops.module):
        if i not in untaken:
            key = (ops.name[i], ops.phase[i], ops.shapes[i] if apart else 0, patterns[module])
            groups.setdefault(key, []).append(i)
    return [_group(ops, members) for members in groups.values()]


def _group(ops: OpTable, members: Sequence[int]) -> OpGroup:
    first = members[0]
    return OpGroup(
        op=ops.names[ops.name[first]],
        shapes=ops.signatures[ops.shapes[first]],
        modules=shared([ops.paths[i] for i in {ops.module[i] for i in members}]),
        phase=ops.phases[ops.phase[first]],
        count=len(members),
        flops=_sum(ops.flops[i] for i in members),
        macs=_sum(ops.macs[i] for i in members),
        accessed_bytes=_sum(ops.accessed_bytes[i] for i in members),
        first_op=first,
        source=ops.source[first],
    )


def _sum(values: Iterable[int | None]) -> int:
    return sum(value or 0 for value in values)
