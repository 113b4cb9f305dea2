"""Section ``modules``: the module tree with FLOPs, bytes, parameters and memory; text folds equal siblings."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

from tensortide.cost import Count, ModuleTotal, Total
from tensortide.cost.totals import parent_path
from tensortide.graph.model import Graph, Phase, Role
from tensortide.reports.blocks import Column, Section, Table, UnitName, Value
from tensortide.reports.names import shared
from tensortide.reports.sections import Step
from tensortide.timelines import ModuleMemory, StorageTimeline, by_module
from tensortide.timelines.resident import home_of, storage_homes

__all__ = ["ALIKE", "ORDER", "ModuleRow", "by_memory", "fold_modules", "module_rows", "of_step"]

ORDER = 20

OUTSIDE_PATH, ROOT_PATH = "(outside)", "(root)"
ALIKE = 0.02
"""Siblings of one structure fold if their FLOPs differ by no more than this part."""


class _Module(NamedTuple):
    """Facts about a module: its costs, bytes and elements of tensors in it, and the memory of its calls."""

    node: ModuleTotal
    parent: int
    held: Counter[str]
    memory: ModuleMemory | None


class _Spec(NamedTuple):
    """A column: its value for a module, how those of folded modules combine, and the views whose text shows it."""

    key: str
    label: str
    unit: UnitName
    of: Callable[[_Module], Value]
    views: str = ""
    at_width: int = 0
    bar: int = 0
    fold: Callable[[Sequence[Any]], Value] = sum


COLUMNS = (
    _Spec("type", "Type", "text", lambda m: m.node.type, "full cost memory", 118, fold=itemgetter(0)),
    _Spec("ops", "Ops", "count", lambda m: m.node.inclusive.ops, "full"),
    _Spec("flops", "FLOPs", "flops", lambda m: m.node.inclusive.flops, "full cost", bar=1),
    _Spec("share", "share", "share", lambda m: m.node.inclusive.flops, "cost", bar=96),
    _Spec("macs", "MACs", "macs", lambda m: m.node.inclusive.macs, "full"),
    _Spec("accessed", "Bytes", "bytes", lambda m: m.node.inclusive.bytes, "full cost", 96, bar=1),
    _Spec("parameters", "Params", "amount", lambda m: m.held["parameters"], "full cost"),
    _Spec("parameter", "Params", "bytes", lambda m: m.held["parameter"], "memory"),
    _Spec("saved", "Saved", "bytes", lambda m: m.held["saved"], "full cost memory"),
    _Spec("retained", "Leaves", "bytes", lambda m: m.memory.retained if m.memory else 0, "full memory"),
    _Spec("transient", "Adds", "bytes", lambda m: m.memory.transient if m.memory else 0, "full memory", fold=max),
    _Spec("peak", "At peak", "bytes", lambda m: m.held["peak"], "full cost memory", bar=1),
    _Spec("own_flops", "", "flops", lambda m: m.node.exclusive.flops),
    _Spec("own_accessed", "", "bytes", lambda m: m.node.exclusive.bytes),
    _Spec("own_ops", "", "count", lambda m: m.node.exclusive.ops),
    _Spec("unknown_ops", "", "count", lambda m: m.node.inclusive.unknown),
    _Spec("parent", "", "count", lambda m: m.parent, fold=itemgetter(0)),
    _Spec("path", "", "path", lambda m: m.node.path or ROOT_PATH, fold=shared),
)
"""Columns in their order; those without views are for data alone.

All include submodules except what is named ``own``. ``parent`` is the row of the enclosing module; ``share`` is that of
the step's FLOPs. ``saved`` are activations that a module's ops make and backward waits for; ``peak`` is what of its
tensors (parameters, gradients, optimizer state, activations, temporaries) is alive at the peak of the step.
``retained`` is how much more is resident after its forward calls than before them, negative where they release more
than they keep; ``transient`` the most that any of its calls, forward or backward, adds while it runs.
"""
AREAS = ("flops", "accessed", "parameters", "saved", "peak")


class ModuleRow(msgspec.Struct, frozen=True, kw_only=True):
    """One module, in depth-first order, or ``count`` folded ones, with the values of ``COLUMNS`` by key."""

    name: str
    depth: int
    values: Mapping[str, Any]
    count: int = 1

    def __getitem__(self, key: str) -> Any:
        """Return the value of a column."""
        return self.values[key]


# -- sections ---------------------------------------------------------------------------------------


def of_step(step: Step) -> Section | None:
    """Make the section with costs: folded in text, with every module on the page."""
    return _section(step, "cost", "Where it goes", "submodules included", ("flops", "accessed", "parameters", "peak"))


def by_memory(step: Step) -> Section | None:
    """Make the section with memory in text."""
    about = "leaves: after its forward, less what it releases; adds: the most during one call"
    return _section(step, "memory", "Memory by module", about, ("transient", "parameter"))


def _section(step: Step, view: str, title: str, about: str, needed: Sequence[str]) -> Section | None:
    """Make the section; its text leaves out modules in which all columns ``needed`` are 0."""
    if not step.modules:
        return None
    folded = [row for row in fold_modules(step.modules, step.depth) if any(row[key] for key in needed)]
    brief = _table(step, f"folded_{view}", folded, view, only="text")
    full = _table(step, "modules", step.modules, "full", only="page", areas=AREAS, kind="type")
    return Section("modules", title, about, (brief, full))


def _table(step: Step, key: str, rows: Sequence[ModuleRow], view: str, **options: Any) -> Table:
    several = tuple(f" x{row.count}" if row.count > 1 else "" for row in rows)
    names = Column("module", "Module", "path", tuple(row.name for row in rows), fold=True, after=several)
    columns = (names, *(_column(spec, rows, view, step.counted.total.flops) for spec in COLUMNS))
    return Table(key=key, columns=columns, depth=tuple(row.depth for row in rows), to_depth=step.depth, **options)


def _column(spec: _Spec, rows: Sequence[ModuleRow], view: str, whole: int) -> Column:
    values = tuple(row[spec.key] for row in rows)
    if spec.key == "share":
        values = tuple(value / whole if whole else 0.0 for value in values)
    return Column(
        spec.key,
        spec.label,
        spec.unit,
        values,
        at_width=spec.at_width,
        bar=spec.bar if view == "full" or spec.key == "share" else 0,
        dim=spec.key == "type",
        zero=None if spec.unit in ("text", "path", "count") else "-",
        data=view not in spec.views or (spec.key == "saved" and view == "cost" and not any(values)),
    )


# -- rows -------------------------------------------------------------------------------------------


def module_rows(graph: Graph, count: Count, eager: StorageTimeline) -> tuple[ModuleRow, ...]:
    """One row per module, and one for what is outside all of them if anything is."""
    held, trees, rows = _held(graph, eager), list(count.modules), list[ModuleRow]()
    if OUTSIDE_PATH in held and all(tree.path != OUTSIDE_PATH for tree in trees):
        trees.append(ModuleTotal(OUTSIDE_PATH, "", Total(), Total()))
    calls = {module.path: memory for module, memory in zip(graph.modules, by_module(eager), strict=True)}

    def add(node: ModuleTotal, parent: int, depth: int) -> None:
        at, module = len(rows), _Module(node, parent, held[node.path], calls.get(node.path))
        rows.append(ModuleRow(name=node.name, depth=depth, values={spec.key: spec.of(module) for spec in COLUMNS}))
        for child in node.children:
            add(child, at, depth + 1)

    for tree in trees:
        add(tree, -1, 0)
    return tuple(rows)


def _held(graph: Graph, eager: StorageTimeline) -> defaultdict[str, Counter[str]]:
    """Sum the tensors in each module, by its path. Tied parameters count where they are named first."""
    held: defaultdict[str, Counter[str]] = defaultdict(Counter)
    known = {module.path: i for i, module in enumerate(graph.modules)}

    def add(module: int, **amounts: int) -> None:
        path: str | None = graph.module_path(module)
        while path is not None:
            held[path].update(amounts)
            path = parent_path(path, known)

    seen: set[int] = set()
    for named in graph.named:
        if named.role is Role.PARAMETER and named.tensor not in seen:
            seen.add(named.tensor)
            tensor = graph.tensors[named.tensor]
            add(home_of(named.name, known), parameters=tensor.numel, parameter=tensor.numel * tensor.itemsize)
    homes, saved = storage_homes(graph), any(op.phase is Phase.BACKWARD for op in graph.ops)
    for home, storage in zip(homes, graph.storages, strict=True):
        if saved and storage.role is Role.ACTIVATION:
            add(home, saved=storage.nbytes)
    for alive in eager.alive() if len(graph) else ():
        add(homes[alive.storage], peak=alive.nbytes)
    return held


# -- folding ----------------------------------------------------------------------------------------


def fold_modules(rows: Sequence[ModuleRow], depth: int) -> list[ModuleRow]:
    """The module tree down to ``depth`` levels below its roots, with equal numbered siblings in one row.

    A module that only encloses one row (a list of blocks) shares it.
    """
    return list(_Folder(rows).rows_of([[i] for i, row in enumerate(rows) if row["parent"] < 0], 0, depth))


class _Folder:
    def __init__(self, rows: Sequence[ModuleRow]) -> None:
        self.rows = rows
        self.children: list[list[int]] = [[] for _ in rows]
        for i, row in enumerate(rows):
            if row["parent"] >= 0:
                self.children[row["parent"]].append(i)
        self.shapes = [0] * len(rows)
        known: dict[tuple[object, ...], int] = {}
        for i, row in reversed([*enumerate(rows)]):
            below = tuple((rows[c].name, self.shapes[c]) for c in self.children[i])
            self.shapes[i] = known.setdefault((row["type"], row["parameters"], below), len(known))

    def rows_of(self, groups: Iterable[Sequence[int]], level: int, depth: int, prefix: str = "") -> Iterator[ModuleRow]:
        for members in groups:
            rows, below = [self.rows[i] for i in members], self._below(members)
            name = prefix + _name([row.name for row in rows])
            if len(below) == 1 and all(row["parent"] >= 0 and not row["own_ops"] for row in rows):
                yield from self.rows_of(below, level, depth, f"{name}.")
                continue
            values = {spec.key: spec.fold([row[spec.key] for row in rows]) for spec in COLUMNS}
            yield ModuleRow(name=name, depth=level, values=values, count=len(rows))
            if level < depth:
                yield from self.rows_of(below, level + 1, depth)

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
        return bool(abs(a["flops"] - b["flops"]) <= ALIKE * max(a["flops"], b["flops"]))


def _name(names: Sequence[str]) -> str:
    """Name modules that are folded: as the first if all have one name, else by the range of their numbers."""
    if len(set(names)) == 1:
        return names[0]
    numbers = sorted(map(int, names))
    return f"[{numbers[0]}-{numbers[-1]}]"
