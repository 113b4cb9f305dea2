"""The other way round: which value of a hyperparameter makes a total what it should be."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Literal, TypeAlias

import msgspec

from tensortide.errors import ExpressionError
from tensortide.expr import Condition, Expr, compiled, nonnegative, text
from tensortide.expr import symbol as expr_symbol
from tensortide.expr.atoms import KINDS
from tensortide.expr.expr import Atom, Monomial, Number, Opaque, denominator
from tensortide.formulas.formulas import Formulas, shown
from tensortide.formulas.sweep import geometric
from tensortide.formulas.target import Target, target_of
from tensortide.shown import Shown
from tensortide.units import format_bytes, format_count

Want: TypeAlias = Literal["largest", "smallest", "nearest"]

HIGHEST = 1 << 40
"""The largest value that is tried."""
_STEPS = 100_000
"""Values that are tried for one that divides as it should."""
_EVERY = 4096
"""Values from 1 that are all looked at where nothing is proved; then they get sparse."""


class Solution(Shown, msgspec.Struct, frozen=True, kw_only=True):
    """``value`` of ``symbol`` is the ``kind`` (largest, smallest, nearest) that meets ``target`` as ``reached``.

    ``beyond`` is the next legal value, which does not meet it, and what it would reach; where the target is not what
    ends the values that meet it, ``limited_by`` is the condition that does; if nothing does, the value is the largest
    tested one, and ``unlimited`` is true. ``by_shape`` says that the target is met on
    one side of one value only, by the shape of the formulas; otherwise values were scanned. ``extrapolated``: symbols
    outside of the ranges in which the formulas were tested, with these.

    ``proved``: that it is so, and captures at ``captured`` (the value, and the next one) have the totals that the
    formulas give. ``unchecked`` says why there are no such captures.
    """

    SECTION = "solution"

    symbol: str
    target: str
    kind: Want
    value: int
    reached: float
    in_bytes: bool
    beyond: tuple[int, float] | None
    limited_by: str
    unlimited: bool
    by_shape: bool
    setting: dict[str, int]
    totals: dict[str, int]
    extrapolated: dict[str, tuple[int, int]] = {}
    proved: bool = False
    captured: tuple[int, ...] = ()
    unchecked: str = "formulas alone were given; confirm() captures the step"


class _Unlimited(ExpressionError):
    """The target is met however large the value."""


def solve(formulas: Formulas, symbol: str, target: str, /, *, want: Want | None = None, **fixed: int) -> Solution:
    """The value of ``symbol`` that meets ``target``; other symbols are ``fixed`` or have their defaults.

    ``want`` is the ``largest`` or the ``smallest`` such value: by default the one that there is, as the target holds
    up to or from some value on. ``=`` asks for the nearest. Formulas of the other sides of thresholds are searched too.
    Values at which no formulas hold do not count.

    >>> solve(formulas, "batch", "peak_bytes <= 24GiB", seq=1024).value  # doctest: +SKIP

    Raises ExpressionError for names that are unknown, and if no value meets the target.
    """
    formulas.check(symbol, formulas.symbols, "symbol")
    if symbol in fixed:
        raise ExpressionError(f"{symbol} cannot be solved for and fixed at once")
    setting = formulas.setting(fixed)
    searches, refused = _searches(formulas, symbol, target, setting)
    if not searches:
        raise refused[0]
    kind = want if want and searches[0].kind != "nearest" else searches[0].kind
    found: list[tuple[_Search, Solution]] = []
    for search in searches:
        try:
            found.append((search, search.solution(kind)))
        except _Unlimited:
            raise
        except ExpressionError as error:
            refused.append(error)
    if not found and kind == "nearest":  # the target may be in the jump from one piece to the next
        ends = [(search, above, end) for search in searches for above, end in search.ends()]
        found = [(search, end) for search, _, end in ends] if len({above for _, above, _ in ends}) == 2 else []
    if not found:
        raise refused[0]
    search, best = min(found, key=lambda pair: (pair[0].rank(pair[1]), pair[1].value))
    best = _next_to(best, search, [other for other in searches if other is not search])
    shape = best.by_shape and all(other.gap.direction for other in searches)
    change = next((t.change for t in search.formulas.thresholds if best.limited_by == search.said(t.condition)), "")
    limited_by = f"{best.limited_by} (beyond: {change})" if change else best.limited_by
    return msgspec.structs.replace(
        best, by_shape=shape, limited_by=limited_by, extrapolated=formulas.extrapolated(best.setting)
    )


def _searches(
    formulas: Formulas, symbol: str, target: str, setting: dict[str, int]
) -> tuple[list[_Search], list[ExpressionError]]:
    """A search in every piece that has the target's totals and holds for some value, and why others have none."""
    searches, refused = [], []
    for piece in (formulas, *formulas.others):
        try:
            searches.append(_Search(piece, symbol, target_of(target, piece), setting))
        except ExpressionError as error:
            refused.append(error)
    return searches, refused


def _next_to(best: Solution, search: _Search, others: list[_Search]) -> Solution:
    """The solution with its neighbour in other formulas, where its own end there without a gap."""
    if not best.limited_by or best.kind == "nearest":
        return best
    step = 1 if best.kind == "largest" else -1
    for other in others:
        n = other.beside(best.value, step)
        if n is not None and abs(n * other.stride - best.value) <= max(search.stride, other.stride):
            beyond = n * other.stride, _number(other.reached(n))
            return msgspec.structs.replace(best, beyond=beyond, limited_by="")
    return best


class _Search:
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
        if any(isinstance(atom, Opaque) and KINDS[atom.name].exponential for atom in self.gap.expr.atoms):
            self.high = _EVERY
        self.limit = self.high
        self._rest: list[Condition] = []
        self._ends: dict[int, Condition] = {}
        self._narrow()

    def _line(self, condition: Condition) -> _Line:
        """Return the expression that is at least 0 where ``condition`` holds, on the line that is searched."""
        line = _Line(condition.expr.subs(self.line), self.symbol)
        return _Line(line.expr - 1, self.symbol) if condition.relation == ">" else line

    def _narrow(self) -> None:
        """Take from the region the interval that it leaves; what is left of it is asked value by value."""
        for condition in self.region:
            expr, relation = condition
            sides = [Condition(expr, ">="), Condition(-expr, ">=")] if relation == "==" else [condition]
            lines = [] if relation == "!=" else [self._line(side) for side in sides]
            if not lines or not all(line.direction for line in lines):
                self._rest.append(Condition(expr.subs(self.line), relation))
                if condition.divisor is None:
                    continue
                by, of = condition.divisor  # what divides is no larger
                lines = [line for line in [self._line(Condition(of - by, ">="))] if line.direction < 0]
            for line in lines:
                self._end(condition, *self._inside(line))
        if self.low > self.high:
            raise ExpressionError(f"the formulas hold for no {self.symbol} at {shown(self.others)}")

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

    def _inside(self, line: _Line) -> tuple[int, int]:
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
        try:
            return all(c.holds(c.expr.evaluate({self.symbol: n})) for c in self._rest)
        except ArithmeticError:
            return False

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
            return self._result(kind, self._nearest(), None)
        bounds = [self.low, *self._edges(), self.high + 1]
        runs = [(start, stop - 1) for start, stop in itertools.pairwise(bounds) if self._met(start)]
        if runs and kind == "largest" and runs[-1][1] == self.limit:
            return self._largest_tested(runs[-1][0])
        step, last = (1, self.high) if kind == "largest" else (-1, self.low)
        for low, high in reversed(runs) if kind == "largest" else runs:
            value = self._walk(high, -1, low) if kind == "largest" else self._walk(low, 1, high)
            if value is not None:
                beyond = self._walk(value + step, step, last)
                return self._result(kind, value, beyond, "" if beyond is not None else self._limit(step))
        raise ExpressionError(self._none())

    def _largest_tested(self, start: int) -> Solution:
        """The largest value up to which the formulas were tested, where the target is met however large it is."""
        top = self.formulas.tested.get(self.symbol, (0, 0))[1]
        value = self._walk(top // self.stride, -1, start) if top else None
        if value is None:
            places = f"from {start * self.stride} to {self.limit * self.stride:,}"
            raise _Unlimited(f"{self.target.text} holds for every {self.symbol} {places}")
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
        edges = self._edges() or [n for n in (self.low, self.high) if self.gap(n) == 0]
        around = [self._walk(n, 1, self.high) for n in edges] + [self._walk(n - 1, -1, self.low) for n in edges]
        values = [n for n in around if n is not None]
        if not values:
            raise ExpressionError(self._none())
        return min(values, key=lambda n: (self._miss(n), n))

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

    def _result(self, kind: Want, n: int, beyond: int | None, limited_by: str = "") -> Solution:
        setting = {**self.setting, self.symbol: n * self.stride}
        return Solution(
            symbol=self.symbol,
            target=self.target.text,
            kind=kind,
            value=n * self.stride,
            reached=_number(self.reached(n)),
            in_bytes=self.target.in_bytes,
            beyond=None if beyond is None else (beyond * self.stride, _number(self.reached(beyond))),
            limited_by=limited_by,
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
        seen = " and ".join(f"{show(_number(self.reached(n)))} at {self.symbol}={n * self.stride}" for n in ends if n)
        where = f" at {shown(self.others)}" if self.others else ""
        return f"no {self.symbol} reaches {self.target.text}{where}" + (f"; it is {seen}" if seen else "")


class _Line:
    """An expression in one symbol, times what makes it whole: the same sign, an integer everywhere."""

    def __init__(self, expr: Expr, symbol: str) -> None:
        self.expr = expr * denominator(expr)
        self.symbol = symbol
        self.direction = crossing(self.expr, symbol)
        self._compiled = compiled([self.expr])

    def __call__(self, value: int) -> int:
        try:
            return self._compiled({self.symbol: value})[0]
        except ArithmeticError as error:
            raise ExpressionError(f"no value at {self.symbol}={value}: {error}") from None


def crossing(expr: Expr, symbol: str) -> int:
    """Classify how ``expr >= 0`` changes as ``symbol`` grows from 1: 1 false to true, -1 true to false, 0 unknown.

    1 and -1 are proofs that it changes once at most: the coefficients change sign once at most (Descartes), or the
    expression never falls, or never rises.
    """
    if expr.atoms <= {symbol}:
        signs = [coefficient.value or 0 for coefficient in expr.coefficients(symbol).values()]
        changes = sum((a < 0) != (b < 0) for a, b in itertools.pairwise(signs))
        if changes < 2:
            return 1 if not signs or signs[0] > 0 else -1
    return 1 if _rises(expr, symbol) else -1 if _rises(-expr, symbol) else 0


def _rises(expr: Expr, symbol: str) -> bool:
    """Return whether the expression provably never falls as ``symbol`` grows."""
    polynomial = Expr({m: c for m, c in expr.terms.items() if not any(isinstance(atom, Opaque) for atom, _ in m)})
    if any(exponent < 0 for monomial in expr.terms for _, exponent in monomial):
        return False
    if not nonnegative(polynomial.subs({symbol: Expr({((symbol, 1),): 1}) + 1}) - polynomial):
        return False
    return all(c > 0 and _monomial_rises(m, symbol) for m, c in (expr - polynomial).terms.items())


def _monomial_rises(monomial: Monomial, symbol: str) -> bool:
    return all(exponent > 0 and _atom_rises(atom, symbol) for atom, exponent in monomial) and (
        (len(monomial) == 1 and monomial[0][1] == 1) or nonnegative(Expr({monomial: 1}))
    )


def _atom_rises(atom: Atom, symbol: str) -> bool:
    if isinstance(atom, str):
        return True
    return KINDS[atom.name].rises(lambda argument: _rises(argument, symbol), symbol, *atom.arguments)


def first(holds: Callable[[int], bool], low: int, high: int) -> int:
    """The first of ``low..high`` for which ``holds`` is true, where it is for all later ones; ``high + 1`` for none."""
    step = 1
    while low <= high and not holds(probe := min(low + step - 1, high)):
        low, step = probe + 1, step * 2
    high = min(low + step - 1, high)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low


def _divisor(condition: Condition, symbol: str) -> int:
    """The number that a condition says must divide ``symbol``: 12 for ``hidden % 12 == 0``; 1 for any other."""
    by, of = condition.divisor or (None, None)
    return by.value if by is not None and isinstance(by.value, int) and of == expr_symbol(symbol) else 1


def _looked_at(low: int, high: int) -> list[int]:
    """All of the first thousands of values, then one in a hundred, then the last."""
    dense = min(high, low + _EVERY)
    return sorted({*range(low, dense), *geometric(dense, high, Fraction(101, 100)), high})


def _number(value: Fraction) -> float:
    return value.numerator if value.denominator == 1 else float(value)
