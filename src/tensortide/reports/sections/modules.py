"""Section ``modules``: the module tree with FLOPs, bytes, parameters and memory; text folds equal siblings."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Annotated, Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from tensortide.cost import Count, ModuleTotal, Total
from tensortide.cost.totals import joint, parent_path
from tensortide.graph.model import Graph, Phase, Role
from tensortide.reports.blocks import Section, Table
from tensortide.reports.names import shared
from tensortide.reports.of_records import column, table
from tensortide.reports.sections import Step
from tensortide.reports.sections.ops import ratio
from tensortide.shown import Show
from tensortide.timelines import StorageTimeline, by_module
from tensortide.timelines.resident import home_of, storage_homes

ORDER = 20

OUTSIDE_PATH, ROOT_PATH = "(outside)", "(root)"
ALIKE = 0.02
"""Siblings of one structure fold if their FLOPs differ by no more than this part."""


class ModuleRow(Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """One module, or ``count`` folded ones. All include submodules but what is named ``own``.

    ``parent`` is the number of the row of the enclosing module; ``share`` is that of the step's FLOPs. ``saved_bytes``
    are activations that a module's ops make and backward waits for; ``peak_bytes`` what of its tensors (parameters,
    gradients, optimizer state, activations, temporaries) is alive at the peak of the step. ``retained_bytes`` is how
    much more is resident after its forward calls than before them, negative where they release more than they keep;
    ``transient_bytes`` the most that any of its calls, forward or backward, adds while it runs.
    """

    name: Annotated[str, Show("Module", "path", fold=True, after="several")]
    type: Annotated[str, Show("Type", at_width=118, dim=True)] = ""
    total: Total = Total()
    own: Total = Total()
    share: Annotated[float, Show("share", bar=96)] = 0.0
    parameters: Annotated[int, Show("Params", "amount")] = 0
    parameter_bytes: Annotated[int, Show("Params")] = 0
    saved_bytes: Annotated[int, Show("Saved")] = 0
    retained_bytes: Annotated[int, Show("Leaves")] = 0
    transient_bytes: Annotated[int, Show("Adds")] = 0
    peak_bytes: Annotated[int, Show("At peak")] = 0
    parent: int = -1
    path: Annotated[str, Show(unit="path", data=True)] = ROOT_PATH
    depth: int = 0
    count: int = 1
    children: tuple[ModuleRow, ...] = ()

    @property
    def several(self) -> str:
        """Number of folded modules, where they are several."""
        return f" x{self.count}" if self.count > 1 else ""

    @cached_property
    def shape(self) -> tuple[object, ...]:
        """Equal for modules of one structure."""
        return self.type, self.parameters, tuple((child.name, child.shape) for child in self.children)

    def walk(self) -> Iterator[ModuleRow]:
        """Yield this module and all inside it, depth first."""
        yield self
        for child in self.children:
            yield from child.walk()


COLUMNS = (
    *("type", "total.ops", "total.flops", "share", "total.macs", "total.accessed_bytes", "parameters"),
    *("parameter_bytes", "saved_bytes", "retained_bytes", "transient_bytes", "peak_bytes", "own.flops as own_flops"),
    *("own.accessed_bytes as own_accessed_bytes", "own.ops as own_ops", "total.unknown_ops"),
    *("parent", "path", "count"),
)
SUMS = ("share", "parameters", "parameter_bytes", "saved_bytes", "retained_bytes", "peak_bytes")
"""Figures that folded modules sum up, beside their costs."""
AREAS = ("flops", "accessed_bytes", "parameters", "saved_bytes", "peak_bytes")
COST = ("type", "share", *AREAS)
MEMORY = ("type", "parameter_bytes", "saved_bytes", "retained_bytes", "transient_bytes", "peak_bytes")
"""Columns of text, by what it is about."""
FULL = ("type", "ops", "macs", "retained_bytes", "transient_bytes", *AREAS)
"""Columns of the page."""


# -- sections ---------------------------------------------------------------------------------------


def of_step(step: Step) -> Section | None:
    """Make the section with costs: folded in text, with every module on the page."""
    shown = [name for name in COST if name != "saved_bytes" or any(row.saved_bytes for row in step.modules)]
    folded = fold_modules(step.modules, step.depth)
    rows = [row for row in folded if any((row.total.flops, row.total.accessed_bytes, row.parameters, row.peak_bytes))]
    return _section(step, "Where it goes", "submodules included", _table(step, rows, shown, key="folded_cost"))


def by_memory(step: Step) -> Section | None:
    """Make the section with memory in text."""
    about = "leaves: after its forward, less what it releases; adds: the most during one call"
    rows = [row for row in fold_modules(step.modules, step.depth) if row.transient_bytes or row.parameter_bytes]
    return _section(step, "Memory by module", about, _table(step, rows, MEMORY, key="folded_memory"))


def _section(step: Step, title: str, about: str, brief: Table) -> Section | None:
    full = _table(step, step.modules, FULL, only="page", key="modules", areas=AREAS, kind="type")
    return Section("modules", title, about, (brief, full)) if step.modules else None


def _table(
    step: Step, rows: Sequence[ModuleRow], shown: Sequence[str], only: Literal["text", "page"] = "text", **options: Any
) -> Table:
    made = (column(ModuleRow, rows, name) for name in COLUMNS)
    zeros = (one if one.unit in ("text", "path", "count") else replace(one, zero="-") for one in made)
    bars = ("flops", "accessed_bytes", "peak_bytes") if only == "page" else ()
    columns = (replace(one, data=one.key not in shown, bar=max(one.bar, one.key in bars)) for one in zeros)
    depth = tuple(row.depth for row in rows)
    return table(ModuleRow, rows, "name as module", *columns, depth=depth, to_depth=step.depth, only=only, **options)


# -- rows -------------------------------------------------------------------------------------------


def module_rows(graph: Graph, count: Count, eager: StorageTimeline) -> tuple[ModuleRow, ...]:
    """One row per module, depth first, and one for what is outside all of them if anything is."""
    held, trees, numbers = _held(graph, eager), [*count.modules], itertools.count()
    if OUTSIDE_PATH in held and all(tree.path != OUTSIDE_PATH for tree in trees):
        trees.append(ModuleTotal(OUTSIDE_PATH, "", Total(), Total()))

    def row(node: ModuleTotal, parent: int = -1, depth: int = 0) -> ModuleRow:
        number = next(numbers)
        return ModuleRow(
            name=node.name,
            type=node.type,
            total=node.inclusive,
            own=node.exclusive,
            share=ratio(node.inclusive.flops, count.total.flops) or 0.0,
            parent=parent,
            path=node.path or ROOT_PATH,
            depth=depth,
            children=tuple(row(child, number, depth + 1) for child in node.children),
            **held[node.path],
        )

    return tuple(itertools.chain.from_iterable(row(tree).walk() for tree in trees))


def _held(graph: Graph, eager: StorageTimeline) -> defaultdict[str, Counter[str]]:
    """Sum the tensors in each module, by its path, and find the memory of its calls. Tied parameters count where they
    are named first."""
    held: defaultdict[str, Counter[str]] = defaultdict(Counter)
    known = {module.path: i for i, module in enumerate(graph.modules)}

    def add(module: int, **amounts: int) -> None:
        path: str | None = graph.module_path(module)
        while path is not None:
            held[path].update(amounts)
            path = parent_path(path, known)

    for tensor, name in {n.tensor: n.name for n in reversed(graph.named) if n.role is Role.PARAMETER}.items():
        numel = graph.tensors[tensor].numel
        add(home_of(name, known), parameters=numel, parameter_bytes=numel * graph.tensors[tensor].itemsize)
    homes, saved = storage_homes(graph), any(op.phase is Phase.BACKWARD for op in graph.ops)
    for home, storage in zip(homes, graph.storages, strict=True):
        if saved and storage.role is Role.ACTIVATION:
            add(home, saved_bytes=storage.nbytes)
    for alive in eager.alive() if len(graph) else ():
        add(homes[alive.storage], peak_bytes=alive.nbytes)
    for module, memory in zip(graph.modules, by_module(eager), strict=True):
        held[module.path]["retained_bytes"] = memory.retained
        held[module.path]["transient_bytes"] = memory.transient
    return held


# -- folding ----------------------------------------------------------------------------------------


def fold_modules(rows: Iterable[ModuleRow], depth: int) -> list[ModuleRow]:
    """The module tree down to ``depth`` levels below its roots, with equal numbered siblings in one row.

    A module that only encloses one row (a list of blocks) shares it.
    """
    return list(_folded([[row] for row in rows if row.parent < 0], 0, depth))


def _folded(groups: Iterable[Sequence[ModuleRow]], level: int, depth: int, prefix: str = "") -> Iterator[ModuleRow]:
    for some in groups:
        below, names = _below(some), {row.name for row in some}
        numbers = sorted(map(int, names)) if len(names) > 1 else []
        name = prefix + (f"[{numbers[0]}-{numbers[-1]}]" if numbers else some[0].name)
        if len(below) == 1 and all(row.parent >= 0 and not row.own.ops for row in some):
            yield from _folded(below, level, depth, f"{name}.")
            continue
        sums: dict[str, Any] = {key: sum(getattr(row, key) for row in some) for key in SUMS}
        most, path = max(row.transient_bytes for row in some), shared([row.path for row in some])
        total, own = joint([row.total for row in some]), joint([row.own for row in some])
        folded = {"name": name, "transient_bytes": most, "path": path, "depth": level, "count": len(some)}
        yield replace(some[0], total=total, own=own, **folded, **sums)
        if level < depth:
            yield from _folded(below, level + 1, depth)


def _below(some: Sequence[ModuleRow]) -> list[list[ModuleRow]]:
    """Children of all modules, position by position, those alike in one group."""
    groups: list[list[ModuleRow]] = []
    for same in zip(*(row.children for row in some), strict=True):
        if groups and _alike(groups[-1][-1], same[0]):
            groups[-1].extend(same)
        else:
            groups.append(list(same))
    return groups


def _alike(one: ModuleRow, other: ModuleRow) -> bool:
    if not (one.name.isdigit() and other.name.isdigit() and one.shape == other.shape):
        return False
    return abs(one.total.flops - other.total.flops) <= ALIKE * max(one.total.flops, other.total.flops)
