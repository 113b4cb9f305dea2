"""Section ``modules``: the module tree with FLOPs, bytes, parameters and memory; text folds equal siblings."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Annotated, Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from tensortide.cost import Count
from tensortide.differences import Node
from tensortide.graph.model import ROOT_PATH
from tensortide.graph.module_paths import as_one
from tensortide.reports.blocks import Section, Table
from tensortide.reports.folding import Folding
from tensortide.reports.of_records import column, fields, table
from tensortide.reports.sections import Step
from tensortide.reports.sections.ops import ratio
from tensortide.shown import Show
from tensortide.timelines import ModuleMemory, Segment, StorageTimeline, by_module
from tensortide.timelines.module_figures import NONE, WORDS, ModuleFigures, module_trees

ORDER = 20

ALIKE = 0.02
"""Siblings of one structure fold if their FLOPs differ by no more than this part."""


class ModuleRow(Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """One module, or ``count`` folded ones. All include submodules but what is named ``own``.

    ``parent`` is the number of the row of the enclosing module; ``share`` is that of the step's FLOPs. ``memory`` has
    the calls of the module: how much more is resident after its forward calls than before them, and the most that any
    call, forward or backward, adds while it runs.
    """

    name: Annotated[str, Show("Module", "path", fold=True, after="several")]
    type: Annotated[str, Show("Type", at_width=118, dim=True)] = ""
    total: ModuleFigures = NONE
    own: ModuleFigures = NONE
    share: Annotated[float, Show("share", bar=96)] = 0.0
    memory: ModuleMemory = ModuleMemory("", "", ())
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
        return self.type, self.total.parameters, tuple((child.name, child.shape) for child in self.children)

    def walk(self) -> Iterator[ModuleRow]:
        """Yield this module and all inside it, depth first."""
        yield self
        for child in self.children:
            yield from child.walk()


FIGURES = [name for name in fields(ModuleFigures) if name not in ("flops", "peak_bytes", "time_ns")]
CALLS = ("memory.retained_bytes", "memory.transient_bytes")
COLUMNS = (
    *("type", "total.flops", "share", *(f"total.{name}" for name in FIGURES), *CALLS, "total.peak_bytes"),
    *("own.flops as own_flops", "own.accessed_bytes as own_accessed_bytes", "own.ops as own_ops"),
    *("parent", "path", "count"),
)
AREAS = tuple(name for name in WORDS if name not in ("ops", "time_ns"))
COST = ("type", "share", *AREAS)
MEMORY = ("type", "parameter_bytes", "saved_bytes", "retained_bytes", "transient_bytes", "peak_bytes")
"""Columns of text, by what it is about."""
FULL = ("type", "ops", "macs", "retained_bytes", "transient_bytes", *AREAS)
"""Columns of the page."""


# -- sections ---------------------------------------------------------------------------------------


def of_step(step: Step) -> Section | None:
    """Make the section with costs: folded in text, with every module on the page."""
    shown = [name for name in COST if name != "saved_bytes" or any(row.total.saved_bytes for row in step.modules)]
    folded = fold_modules(step.modules, step.depth)
    rows = [row for row in folded if any(getattr(row.total, name) for name in AREAS)]
    return _section(step, "Where it goes", "submodules included", _table(step, rows, shown, key="folded_cost"))


def by_memory(step: Step) -> Section | None:
    """Make the section with memory in text."""
    about = "leaves: after its forward, less what it releases; adds: the most during one call"
    folded = fold_modules(step.modules, step.depth)
    rows = [row for row in folded if row.memory.transient_bytes or row.total.parameter_bytes]
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


def module_rows(count: Count, memory: StorageTimeline) -> tuple[ModuleRow, ...]:
    """One row per module, depth first, and one for what is outside all of them if anything is."""
    calls, numbers = defaultdict[str, tuple[Segment, ...]](tuple), itertools.count()
    for one in by_module(memory):
        calls[one.path] += one.segments

    def row(node: Node[ModuleFigures], parent: int = -1, depth: int = 0) -> ModuleRow:
        number = next(numbers)
        return ModuleRow(
            name=node.name,
            type=node.of,
            total=node.whole,
            own=node.own,
            share=ratio(node.whole.flops, count.total.flops) or 0.0,
            memory=ModuleMemory(node.path, node.of, calls[node.path]),
            parent=parent,
            path=node.path,
            depth=depth,
            children=tuple(row(child, number, depth + 1) for child in node.children),
        )

    return tuple(itertools.chain.from_iterable(row(tree).walk() for tree in module_trees(count, memory)))


def fold_modules(rows: Iterable[ModuleRow], depth: int) -> list[ModuleRow]:
    """The module tree down to ``depth`` levels below its roots, with equal numbered siblings in one row.

    A module that only encloses one row (a list of blocks) shares it.
    """
    return [_joint(*one) for one in _Folder().rows([[row] for row in rows if row.parent < 0], depth)]


def _joint(some: Sequence[ModuleRow], name: str, level: int) -> ModuleRow:
    memory = replace(some[0].memory, segments=tuple(call for row in some for call in row.memory.segments))
    total, own = (sum((getattr(row, part) for row in some), NONE) for part in ("total", "own"))
    share, path = sum(row.share for row in some), as_one([row.path for row in some])
    joint = {"memory": memory, "total": total, "own": own, "share": share}
    return replace(some[0], name=name, path=path, depth=level, count=len(some), **joint)


class _Folder(Folding[ModuleRow]):
    def only_encloses(self, some: Sequence[ModuleRow]) -> bool:
        """Tell whether no op is directly in modules."""
        return all(row.parent >= 0 and not row.own.ops for row in some)

    def alike(self, one: ModuleRow, other: ModuleRow) -> bool:
        """Tell whether two numbered modules have one structure, and cost the same."""
        if not (one.name.isdigit() and other.name.isdigit() and one.shape == other.shape):
            return False
        return abs(one.total.flops - other.total.flops) <= ALIKE * max(one.total.flops, other.total.flops)
