"""Differences between the ``catamount`` table and ours, op by op, with a reason for each."""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tensortide.cost.count import Count
from tensortide.cost.differences import Comparison, Difference
from tensortide.cost.evaluate import rule_for
from tensortide.cost.table import QUANTITIES, ZERO, Quantity, Row, Table, table_of
from tensortide.expr import Expr, compiled
from tensortide.importers.tf1.catamount.rules import SOFTMAX


class Reason(enum.StrEnum):
    """A reason for two tables to have different numbers for an op. Each is a row of a table in docs/cost.md."""

    PRUNED = "nothing that the step runs needs it (dead gradients, metrics, copies for inference)"
    ADDED = "not among what the reference keeps or makes of the graph"
    LOOP = "it runs every iteration of a loop, as control edges tell, which the reference ignores"
    ARM = "of a conditional one arm runs, not all"
    NO_RULE = "the reference has no rule for this type and counts 0"
    NO_RULE_HERE = "no rule here: unknown, in no total"
    NO_AXES = "a reduction over no axes is a view"
    REDUCTION = "n elements are reduced by n - 1 operations, not n"
    INTEGER = "integer and boolean work is no FLOP"
    WEIGHTS = "other FLOPs per element (tanh 1, softmax 5n - 2, batch norm 7m + 2, L2 loss 2n, ...)"
    SIZES = "exact sizes: ceil(n/stride) where padded, both axes of a broadcast of ones"
    VIEW = "a view moves no bytes and has no storage"
    STATE = "constants and shapes are there: nothing computes or moves them"
    TAKEN = "a copy reads what it takes, a fill writes only, inputs that give a shape are not read"
    ONCE = "what an op reads twice counts once; softmax reads its input once"
    IN_PLACE = "a loop accumulates into one buffer, not into a new one every iteration"
    STEP = "an optimizer's step reads parameter, gradient and slots, and writes parameter and slots"
    UPDATE = "an update writes its variable: it has no storage of its own"
    WORKSPACE = "softmax needs no second copy of its input"
    UNTRAINED = "steps, learning rates, slots and averages are no parameters: they have rows of their own"
    IO = "what the step is really fed and fetched: queues and iterators too, unreached placeholders not"


def compare(catamount: Table, count: Count, hints: Mapping[str, int] | None = None) -> Comparison:
    """Compare the ``catamount`` table of a graph, prepared as it assumes, with the ordinary count of the step's graph.

    Ops are matched by name.
    """
    ours = table_of(count, hints)
    left = {row.name: row for row in catamount.rows}
    right = {row.name: (i, row) for i, row in enumerate(ours.rows)}
    running = set(count.running)
    hints = {**catamount.hints, **ours.hints}
    value = functools.cache(lambda expr: compiled([expr])(hints)[0])
    found: list[Difference] = []
    for name in dict.fromkeys([*left, *right]):
        theirs, (index, mine) = left.get(name), right.get(name, (-1, None))
        context = _Context(count, index, index < 0 or index in running, value)
        for quantity in QUANTITIES:
            a = ZERO if theirs is None else theirs.of_step(quantity)
            b = ZERO if mine is None else mine.of_step(quantity)
            if a != b:
                row = theirs or mine
                assert row is not None
                reason = context.reason(quantity, theirs, mine)
                found.append(Difference(name, row.type, quantity, a, b, reason))
    return Comparison(catamount, ours, tuple(found))


_REDUCTIONS = frozenset(["Sum", "Prod", "Mean", "Max", "Min", "All", "Any", "ArgMax", "ArgMin", "BiasAddGrad"])
_STATE = frozenset(["Const", "Shape", "ShapeN", "Size", "Rank", "Placeholder"])
_CONVOLUTIONS = frozenset(["Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter"])


@dataclass(frozen=True)
class _Context:
    """One op as ours counts it. ``runs``: it is in an arm that the totals take. ``value`` evaluates expressions."""

    count: Count
    index: int
    runs: bool
    value: Callable[[Expr], int]

    def reason(self, quantity: Quantity, theirs: Row | None, mine: Row | None) -> Reason:
        """Return the reason that the op's ``quantity`` differs."""
        if quantity == "io":
            return Reason.PRUNED if mine is None else Reason.IO
        if mine is None:
            return Reason.PRUNED
        if theirs is None:
            return Reason.ADDED
        if quantity == "parameters":
            return Reason.UNTRAINED
        if not mine.known:
            return Reason.NO_RULE_HERE
        if not self.runs and quantity != "footprint":
            return Reason.ARM
        if not theirs.known:
            return Reason.NO_RULE
        if theirs.trips != mine.trips:
            return Reason.LOOP
        if mine.type in _REDUCTIONS and self._is_view:
            return Reason.NO_AXES
        if self.value(theirs.of_step(quantity)) == self.value(mine.of_step(quantity)):
            return Reason.SIZES
        if quantity == "flops":
            return self._of_flops(mine)
        return self._of_bytes(theirs, mine) if quantity == "bytes" else self._of_footprint(mine)

    @property
    def _is_view(self) -> bool:
        return self.count.graph[self.index].is_view

    def _of_flops(self, mine: Row) -> Reason:
        cost = self.count.costs[self.index].cost
        if cost is not None and cost.int_ops and not cost.flops:
            return Reason.INTEGER
        if mine.type in _REDUCTIONS:
            return Reason.REDUCTION
        return Reason.SIZES if mine.type in _CONVOLUTIONS else Reason.WEIGHTS

    def _of_bytes(self, theirs: Row, mine: Row) -> Reason:
        if mine.type in _STATE:
            return Reason.STATE
        rule = rule_for(f"tf::{mine.type}")
        if self._is_view or (rule is not None and rule.is_free):
            return Reason.VIEW
        if "Apply" in mine.type:
            return Reason.STEP
        inputs = self.count.graph.ops[self.index].inputs
        if mine.type in SOFTMAX or len(set(inputs)) < len(inputs):
            return Reason.ONCE
        same = self.value(theirs.footprint) == self.value(mine.footprint)
        return Reason.TAKEN if same or not mine.footprint.terms else Reason.SIZES

    def _of_footprint(self, mine: Row) -> Reason:
        if mine.type in SOFTMAX:
            return Reason.WORKSPACE
        if mine.type in _STATE:
            return Reason.STATE
        if self.count.graph[self.index].call.mutated:
            return Reason.IN_PLACE if mine.loop else Reason.UPDATE
        return Reason.SIZES if mine.footprint.terms else Reason.VIEW
