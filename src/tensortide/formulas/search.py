"""Search for the value of one hyperparameter at which a target is met, in formulas of one piece."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from fractions import Fraction

import msgspec

from tensortide.errors import ExpressionError, NoSolution
from tensortide.expr import Compiled, Condition, compiled, text
from tensortide.expr import symbol as expr_symbol
from tensortide.expr.atoms import is_exponential
from tensortide.expr.expr import Number, Opaque
from tensortide.formulas.crossing import Line, first
from tensortide.formulas.formulas import Formulas, shown
from tensortide.formulas.solution import Reached, Solution, Want
from tensortide.formulas.sweep import geometric
from tensortide.formulas.target import Target
from tensortide.units import format_bytes, format_count

HIGHEST = 1 << 40
"""The largest value that is tried."""
_STEPS = 100_000
"""Values that are tried for one that divides as it should."""
EVERY = 4096
"""Values from 1 that are all looked at where nothing is proved; then they get sparse."""


class Unlimited(ExpressionError):
    """The target is met however large the value."""


class Search:
    """Everything on the line of values ``stride * n``: the multiples that the region allows."""

    def __init__(self, formulas: Formulas, symbol: str, target: Target, setting: dict[str, int]) -> None:
        self.formulas, self.symbol, self.target, self.setting = formulas, symbol, target, setting
        self.others = {name: value for name, value in self.setting.items() if name != symbol}
        self.region = formulas.region_of(name for name in formulas.totals if name in re.split(r"\W+", target.text))
        region = [Condition(c.expr.subs(self.others), c.relation) for c in self.region]
        self.stride = math.lcm(*(_divisor(condition, symbol) for condition in region))
        self.line: dict[str, Number] = {**self.others, symbol: self.stride * expr_symbol(symbol)}
        self.gap = self._line(Condition(target.gap, ">" if target.relation in ("<", ">") else ">="))
        self._left, self._right = (
            compiled([side.top.subs(self.line), side.bottom.subs(self.line)]) for side in (target.left, target.right)
        )
        self.low, self.high = 1, HIGHEST // self.stride
        if any(isinstance(atom, Opaque) and is_exponential(atom) for atom in self.gap.expr.atoms):
            self.high = EVERY
        self.limit = self.high
        self._rest: list[tuple[Condition, Compiled]] = []
        """Conditions that are asked value by value, and their expressions on the line."""
        self._ends: dict[int, Condition] = {}
        self._narrow()

    def _line(self, condition: Condition) -> Line:
        """Return the expression that is at least 0 where ``condition`` holds, on the line that is searched."""
        line = Line(condition.expr.subs(self.line), self.symbol)
        return Line(line.expr - 1, self.symbol) if condition.relation == ">" else line

    def _narrow(self) -> None:
        """Take from the region the interval that it leaves; what is left of it is asked value by value."""
        for condition in self.region:
            expr, relation = condition
            sides = [Condition(expr, ">="), Condition(-expr, ">=")] if relation == "==" else [condition]
            lines = [] if relation == "!=" else [self._line(side) for side in sides]
            if not lines or not all(line.direction for line in lines):
                self._rest.append((condition, compiled([expr.subs(self.line)])))
                if condition.divisor is None:
                    continue
                by, of = condition.divisor  # what divides is no larger
                lines = [line for line in [self._line(Condition(of - by, ">="))] if line.direction < 0]
            for line in lines:
                self._end(condition, *self._inside(line))
        if self.low > self.high:
            raise ExpressionError(self._nowhere())

    def _nowhere(self) -> str:
        """Say that no value is left, and by which condition: of the formulas, or of a single total."""
        at = f"{self.symbol} at {shown(self.others)}" if self.others else self.symbol
        ends = [self._ends[side] for side in (-1, 1) if side in self._ends]
        claimed = {c: name for name, conditions in self.formulas.only.items() for c in conditions}
        single = next((claimed[c] for c in ends if c not in self.formulas.region and c in claimed), "")
        what = f"{single} is claimed" if single else "the formulas hold"
        return f"{what} for no {at}: {'it needs' if single else 'they need'} {' and '.join(map(self.said, ends))}"

    def _end(self, condition: Condition, low: int, high: int) -> None:
        """Let the interval end where a condition ends it."""
        if low > self.low:
            self.low, self._ends[-1] = low, condition
        if high < self.high:
            self.high, self._ends[1] = high, condition

    def said(self, condition: Condition) -> str:
        """A condition as text, from the symbol's view: ``seq <= positions``."""
        left, right = condition.sides
        if condition.relation in (">=", ">") and self.symbol in right.symbols - left.symbols:
            return f"{text(right)} {condition.relation.replace('>', '<')} {text(left)}"
        return str(condition)

    @property
    def complete(self) -> bool:
        """True if the formulas hold for all values of the interval."""
        return self.stride == 1 and not self._rest

    @property
    def conditions(self) -> list[str]:
        """The conditions on the symbol under which the formulas hold, as text."""
        return [self.said(condition) for condition in self.region if self.symbol in condition.expr.symbols]

    def _inside(self, line: Line) -> tuple[int, int]:
        """The part of the interval where a line that crosses once is at least 0."""
        if line.direction > 0:
            return first(lambda n: line(n) >= 0, self.low, self.high), self.high
        return self.low, first(lambda n: line(n) < 0, self.low, self.high) - 1

    def _limit(self, step: int) -> str:
        """The condition that ends the interval in direction ``step``."""
        if step < 0 and -1 not in self._ends:
            return f"{self.symbol} >= 1"
        return self.said(self._ends[step]) if step in self._ends else ""

    def legal(self, n: int) -> bool:
        """Return whether the formulas hold at ``n``."""
        return self._violated(n) is None

    def _violated(self, n: int) -> Condition | None:
        """The first condition that does not hold at ``n``, those of the interval aside."""
        for condition, on_line in self._rest:
            try:
                held = condition.holds(*on_line({self.symbol: n}))
            except ArithmeticError:
                held = False
            if not held:
                return condition
        return None

    def reached(self, n: int) -> Fraction:
        """The left side of the target."""
        top, bottom = self._left({self.symbol: n})
        if not bottom:
            raise ExpressionError(f"{self.target.text} divides by 0 at {self.symbol}={n * self.stride}")
        return Fraction(top, bottom)

    # -- the search ---------------------------------------------------------------------------------

    @property
    def kind(self) -> Want:
        """The kind of solution that there is, by the target alone."""
        if self.target.relation == "==":
            return "nearest"
        direction = self.gap.direction if self.symbol in self.gap.expr.symbols else 0
        upward = direction > 0 if direction else self.target.relation in (">", ">=")
        return "smallest" if upward else "largest"

    def rank(self, solution: Solution) -> Fraction:
        """The order of solutions of one kind, the best first."""
        if solution.kind == "nearest":
            return self._miss(solution.value // self.stride)
        return Fraction(-solution.value if solution.kind == "largest" else solution.value)

    def solution(self, kind: Want) -> Solution:
        """The best value in these formulas. Raises ExpressionError if there is none."""
        if kind == "nearest":
            nearest = self._nearest()
            return self._result(kind, nearest, self._across(nearest), self._nearer(nearest))
        bounds = [self.low, *self._edges(), self.high + 1]
        runs = [(start, stop - 1) for start, stop in itertools.pairwise(bounds) if self._met(start)]
        if runs and kind == "largest" and runs[-1][1] == self.limit:
            return self._largest_tested(runs[-1][0])
        step, last = (1, self.high) if kind == "largest" else (-1, self.low)
        for low, high in reversed(runs) if kind == "largest" else runs:
            value = self._walk(high, -1, low) if kind == "largest" else self._walk(low, 1, high)
            if value is not None:
                neighbour = self._walk(value + step, step, last)
                found = self._result(kind, value, neighbour, "" if neighbour is not None else self._limit(step))
                skipped = value + step if neighbour != value + step and value + step > 0 else None
                return msgspec.structs.replace(found, skipped=None if skipped is None else skipped * self.stride)
        raise NoSolution(self._none())

    def _largest_tested(self, start: int) -> Solution:
        """The largest value up to which the formulas were tested, where the target is met however large it is."""
        top = self.formulas.tested.get(self.symbol, (0, 0))[1]
        value = self._walk(top // self.stride, -1, start) if top else None
        if value is None:
            places = f"from {start * self.stride} to {self.limit * self.stride:,}"
            raise Unlimited(f"{self.target.text} holds for every {self.symbol} {places}")
        found = self._result("largest", value, None, f"the tested range, {self.symbol} <= {top:,}")
        return msgspec.structs.replace(found, unlimited=True)

    def beside(self, value: int, step: int) -> int | None:
        """The first legal place beyond ``value`` in direction ``step``."""
        if step > 0:
            return self._walk(max(self.low, value // self.stride + 1), 1, self.high)
        return self._walk(min(self.high, -(-value // self.stride) - 1), -1, self.low)

    def _met(self, value: int) -> bool:
        return self.gap(value) >= 0

    def _edges(self) -> list[int]:
        """The values at which it changes whether the target is met: one at most if the gap crosses once, else those
        that a scan finds."""
        if self.gap.direction:
            ends = [(self.low, self.high)]
        else:
            ends = list(itertools.pairwise(_looked_at(self.low, self.high)))
        return [self._edge(before, after) for before, after in ends if self._met(before) != self._met(after)]

    def _edge(self, before: int, after: int) -> int:
        return first(lambda n: self._met(n) == self._met(after), before, after)

    def _nearest(self) -> int:
        """The legal value at which the two sides differ least, next to where one overtakes the other."""
        edges = self._meetings()
        around = [self._walk(n, 1, self.high) for n in edges] + [self._walk(n - 1, -1, self.low) for n in edges]
        values = [n for n in around if n is not None]
        if not values:
            raise NoSolution(self._none())
        return min(values, key=lambda n: (self._miss(n), n))

    def _meetings(self) -> list[int]:
        """The values at which one side overtakes or equals the other."""
        looked_at = [self.low, self.high] if self.gap.direction else _looked_at(self.low, self.high)
        return [*self._edges(), *(n for n in looked_at if self.gap(n) == 0)]

    def _nearer(self, nearest: int) -> str:
        """The condition that leaves out a value at which the two sides differ less; those of divisibility leave out
        what is illegal, and say nothing."""
        for n in (n for edge in self._meetings() for n in (edge, edge - 1) if self.low <= n <= self.high):
            violated = self._violated(n)
            if violated and violated.divisor is None and self._miss(n) < self._miss(nearest):
                return self.said(violated)
        return ""

    def _across(self, nearest: int) -> int | None:
        """The legal value next to the nearest one at which the target is missed on the other side."""
        beside = (self._walk(nearest + 1, 1, self.high), self._walk(nearest - 1, -1, self.low))
        return next((n for n in beside if n is not None and self.gap(n) * self.gap(nearest) < 0), None)

    def ends(self) -> Iterator[tuple[bool, Solution]]:
        """The first and the last legal value, as if each were nearest, and whether the target is exceeded there."""
        for n in {self._walk(self.low, 1, self.high), self._walk(self.high, -1, self.low)} - {None}:
            if n is not None:
                yield self.gap(n) > 0, self._result("nearest", n, None)

    def _miss(self, n: int) -> Fraction:
        """The difference of the two sides of the target."""
        return abs(self.reached(n) - Fraction(*self._right({self.symbol: n})))

    def _walk(self, value: int, step: int, last: int) -> int | None:
        """The first legal value from ``value`` in direction ``step``, up to ``last``."""
        for _ in range(_STEPS):
            if (last - value) * step < 0 or not self.low <= value <= self.high:
                return None
            if self.legal(value):
                return value
            value += step
        return None

    def _result(self, kind: Want, n: int, neighbour: int | None, limited_by: str = "") -> Solution:
        setting = {**self.setting, self.symbol: n * self.stride}
        return Solution(
            symbol=self.symbol,
            target=self.target.text,
            kind=kind,
            value=n * self.stride,
            reached=number(self.reached(n)),
            in_bytes=self.target.in_bytes,
            met=self._miss(n) == 0 if kind == "nearest" else True,
            neighbour=None if neighbour is None else Reached(neighbour * self.stride, number(self.reached(neighbour))),
            limited_by=limited_by,
            skipped=None,
            unlimited=False,
            by_shape=self.gap.direction != 0,
            setting=setting,
            totals=self.formulas.totals_at(setting),
        )

    def _none(self) -> str:
        ends = [self._walk(self.low, 1, self.high), self._walk(self.high, -1, self.low)]
        if self.target.relation in ("<", "<="):
            ends = [n for n in ends if n != self.limit]
        show = format_bytes if self.target.in_bytes else format_count
        seen = " and ".join(f"{show(number(self.reached(n)))} at {self.symbol}={n * self.stride}" for n in ends if n)
        where = f" at {shown(self.others)}" if self.others else ""
        return f"no {self.symbol} reaches {self.target.text}{where}" + (f"; it is {seen}" if seen else "")


def _divisor(condition: Condition, symbol: str) -> int:
    """The number that a condition says must divide ``symbol``: 12 for ``hidden % 12 == 0``; 1 for any other."""
    by, of = condition.divisor or (None, None)
    return by.value if by is not None and isinstance(by.value, int) and of == expr_symbol(symbol) else 1


def _looked_at(low: int, high: int) -> list[int]:
    """All of the first thousands of values, then one in a hundred, then the last."""
    dense = min(high, low + EVERY)
    return sorted({*range(low, dense), *geometric(dense, high, Fraction(101, 100)), high})


def number(value: Fraction) -> float:
    """The value as an integer if it is one, else as a float."""
    return value.numerator if value.denominator == 1 else float(value)
