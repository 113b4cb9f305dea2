"""Coverage of a total: the share that is known, by kind of knowledge."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated

import msgspec

from tensortide.cost.evaluate import OpCost
from tensortide.cost.totals import Total
from tensortide.graph.model import Graph, OpView
from tensortide.graph.trips import guess_text, guessed_trips
from tensortide.shown import Show
from tensortide.units import format_count, format_percent

WAYS = {
    "unknown": "no rule",
    "default": "by default rule",
    "framework": "by the framework's formula",
    "decomposition": "by decomposition",
    "bound": "approximate",
}
"""Costs that are not simply those of the op's rule, and the words for them: in no total, one FLOP per output element,
the framework's formula, that of a decomposition, or a bound or an assumption in place of an unknown value."""


class OpGroup(msgspec.Struct, frozen=True):
    """Ops of one name: how many, the shapes and module path of the first, why they are listed, and what their cost is:
    one of ``WAYS``."""

    name: Annotated[str, Show("Op", "name")]
    count: Annotated[int, Show("Ops")]
    shapes: Annotated[str, Show("Shapes of the first", "code", dim=True)]
    module: Annotated[str, Show("Module of the first", "path")]
    reason: Annotated[str, Show("Why", fold=True)] = ""
    how: Annotated[str, Show("Its cost")] = "unknown"

    def __str__(self) -> str:
        text = f"{self.name} x{self.count} {self.shapes} in {self.module}"
        return f"{text} ({self.reason})" if self.reason else text


class Coverage(msgspec.Struct, frozen=True):
    """Ops and bytes that a Count covers. Views need no rule and are left out. Bytes add up over the runs of a loop.

    ``guessed_trips``: how often the bodies of loops count of which nobody knows it, by name. ``conditionals``: how many
    have an unknown outcome, and ``least`` the total with the cheapest arm of each.
    """

    total: Total
    ops: Annotated[int, Show("Ops")]
    covered: Annotated[int, Show("Covered")]
    nbytes: Annotated[int, Show(unit="bytes", data=True)]
    covered_bytes: int
    irregular: tuple[OpGroup, ...] = ()
    guessed_trips: dict[str, int] = {}
    conditionals: int = 0
    least: Total | None = None

    @property
    def missing(self) -> tuple[OpGroup, ...]:
        """The ops that have no rule."""
        return tuple(group for group in self.irregular if group.how == "unknown")

    @property
    def complete(self) -> bool:
        """True if every op is known."""
        return self.covered == self.ops

    @property
    def sign(self) -> str:
        """The mark before a total: ``>= `` where ops are unknown, ``~`` where a loop's trips are."""
        return ">= " if self.total.unknown_ops else "~" if self.guessed_trips else ""

    def line(self) -> str:
        """The line that follows every total."""
        flops = format_count(self.total.flops)
        text = f"FLOPs {self.sign}{flops}, covers {format_percent(self.covered, self.ops)} of ops"
        text += f" ({format_percent(self.covered_bytes, self.nbytes)} of bytes)"
        for how, title in WAYS.items():
            if groups := [group for group in self.irregular if group.how == how]:
                text += f"; {title}: "
                text += ", ".join(str(one) if how == "unknown" else f"{one.name} x{one.count}" for one in groups)
        if self.guessed_trips:
            text += f"; {guess_text(self.guessed_trips)}"
        if self.conditionals:
            number = f"{self.conditionals} conditional{'s' * (self.conditionals > 1)}"
            text += f"; of {number} with unknown outcome the dearest arm counts"
            if self.least is not None and self.least.flops != self.total.flops:
                text += f", the cheapest makes it {format_count(self.least.flops)}"
        return text


def coverage_of(graph: Graph, costs: Sequence[OpCost], total: Total, least: Total | None = None) -> Coverage:
    """The coverage of ``costs``, one per op of ``graph``; ``least`` is the total with the cheapest arms."""
    counted = [(i, cost) for i, cost in enumerate(costs) if cost.how != "view"]
    known = [(i, cost) for i, cost in counted if cost.cost is not None]
    ways: dict[str, list[int]] = {how: [] for how in WAYS}
    for i, cost in counted:
        if cost.how != "rule":
            ways[cost.how].append(i)
        elif cost.cost is not None and not cost.cost.exact:
            ways["bound"].append(i)
    return Coverage(
        total,
        len(counted),
        len(known),
        sum(cost.nbytes * graph.trips(i) for i, cost in counted),
        sum(cost.nbytes * graph.trips(i) for i, cost in known),
        tuple(group for how, found in ways.items() for group in _groups(graph, costs, found, how)),
        guessed_trips=guessed_trips(graph),
        conditionals=len({branch.conditional for branch in graph.branches}),
        least=least,
    )


def _groups(graph: Graph, costs: Sequence[OpCost], indexes: Iterable[int], how: str) -> list[OpGroup]:
    """The ops of each name, the most frequent first."""
    named: dict[str, list[int]] = {}
    for i in indexes:
        named.setdefault(shown(graph[i].name), []).append(i)
    groups = []
    for name, (i, *others) in named.items():
        cost = costs[i]
        reason = cost.note if cost.cost is None else cost.cost.reason
        groups.append(OpGroup(name, 1 + len(others), shapes_of(graph[i]), graph[i].module, reason, how))
    return sorted(groups, key=lambda group: -group.count)


def shown(name: str) -> str:
    """An op name for people: without the default overload."""
    return name.removesuffix(".default")


def shapes_of(op: OpView) -> str:
    """Input shapes as text: ``(2,64,64)x(64,64)``; of a list, the first few."""
    shapes = [f"({','.join(map(str, tensor.shape))})" for tensor in op.inputs]
    if len(shapes) > 6:
        shapes = [*shapes[:6], "..."]
    return "x".join(shapes) or "()"
