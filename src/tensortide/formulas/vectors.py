"""Recovery of one exact expression from numbers at several settings: the inverse of evaluation.

A *vector* is the value of one size at every sampled setting. ``Solver.solve`` finds an expression that has exactly
these values if it is a number, a multiple of a monomial or a product of sizes nearby; ``Solver.settle`` searches for
the shortest sum of few terms, roundings among them, or minimum or maximum of two.

Nothing is claimed unless the samples say more, in bits, than the expression does, and bear out each symbol of it at
several values. Where they do not tell two short expressions apart, neither is claimed, and ``wanted`` says at which
value of a hyperparameter they differ.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction

from tensortide.expr import Condition, Expr, compiled, constant
from tensortide.expr.expr import Opaque
from tensortide.formulas.extremes import extremes
from tensortide.formulas.region import value_of
from tensortide.formulas.sums import SPARE, Columns, Fit, determined_without_two, sums_of
from tensortide.formulas.terms import Term, Vector, direction, length_of, number, rounds

_MARGIN = 8
"""Bits that the samples must say more than an expression that is claimed."""
_CLOSE = 4
"""Bits that an expression must be shorter than another one that fits."""
_FIRST = 6
"""Samples among which even and odd values are asked for."""
_EVEN = 64
"""Even values that are looked at for one that the conditions allow."""
_ENOUGH = 12
"""Samples among which an expression would have been found."""
_KNOWN = 100
"""Sizes of the step that a sum is made from."""
_TELLING = 5
"""A smaller value of a symbol divides too many numbers."""
_ITEM_BYTES = (1, 2, 4, 8, 16)


class Solver:
    """Expressions in the symbols ``names`` for vectors over the settings ``points``, all of which meet ``where``.

    ``divisors`` are numbers, besides small ones, that a size may be divided by: those of the repetitions.
    """

    def __init__(
        self,
        names: Sequence[str],
        points: Sequence[Mapping[str, int]],
        where: Iterable[Condition] = (),
        divisors: Iterable[int] = (),
    ) -> None:
        self.names = tuple(names)
        self.points = [dict(point) for point in points]
        self.wanted: dict[str, set[int]] = {}
        self.short = False
        """True if more points could separate or confirm what these cannot."""
        self._known: dict[Vector, Expr | None] = {}
        self._taught: dict[Vector, Expr] = {}
        self.confused: list[tuple[Expr, Expr]] = []
        """Pairs of different expressions that were taught and have the same values at all points."""
        self._distinct = True
        self._where = [condition for condition in where if len(condition.expr.symbols) == 1]
        self._settled: set[Vector] = set()
        bits = math.log2(max(len(self.names), 1)) + 1
        self._columns = Columns(self.names, self.points, bits, divisors)
        self.blurred = self._columns.blurred

    def teach(self, expr: Expr) -> None:
        """Make ``expr`` known, whatever kind it is."""
        try:
            vector = tuple(expr.evaluate(point) for point in self.points)
        except ArithmeticError:
            return
        self._known.setdefault(vector, expr)
        for part, values in self._parts(expr):
            self._known.setdefault(values, part)
            self._taught.setdefault(values, part)
        same = constant(vector[0]) if len(set(vector)) == 1 else self._taught.setdefault(vector, expr)
        if same != expr:
            self.confused.append((same, expr))
        self._distinct = self._distinct and same == expr

    def _parts(self, expr: Expr) -> Iterator[tuple[Expr, Vector]]:
        """The roundings and the like of an expression, as they are not negative: sizes may be such a part alone."""
        for atom in expr.atoms:
            if isinstance(atom, Opaque):
                part = Expr({((atom, 1),): 1})
                values = tuple(part.evaluate(point) for point in self.points)
                if len(set(values)) > 1:
                    yield (part, values) if max(values) > 0 else (-part, tuple(-value for value in values))

    @property
    def novel(self) -> bool:
        """True if more was found than was taught, or the points do not tell apart what was taught. Without teaching
        everything is new."""
        known = self._known.items()
        return not self._distinct or any(e is None or e.value is None for v, e in known if v not in self._taught)

    @property
    def found(self) -> tuple[Expr, ...]:
        """All expressions that were found."""
        return tuple([expr for expr in self._known.values() if expr is not None])

    def solve(self, vector: Vector, near: Iterable[Vector] = ()) -> Expr | None:
        """The expression with the values ``vector``, None if there is none that the samples bear out.

        ``near`` are vectors whose products it may be: the sizes of the same tensor or op.
        """
        if vector not in self._known:
            self._known[vector] = self._multiple(vector)
        if self._known[vector] is None:
            # not kept where it fails: other neighbours may know better
            self._known[vector] = self._product(vector, near)
        return self._known[vector]

    def product(self, vector: Vector, near: Iterable[Vector]) -> Expr | None:
        """The expression of strides or bytes of a tensor of the sizes ``near``."""
        return self.solve(vector, near) or self.settle(vector)

    def learn(self, expr: Expr) -> None:
        """Make known an expression that the workload's code computes, or that follows by the meaning of an op."""
        with contextlib.suppress(ArithmeticError):
            vector = tuple(expr.evaluate(point) for point in self.points)
            for values, known in ((vector, expr), *((values, part) for part, values in self._parts(expr))):
                if self._known.get(values) is None:
                    self._known[values] = known

    def settle(self, vector: Vector) -> Expr | None:
        """``solve`` with a search: for what its neighbours did not explain."""
        if self._known.get(vector) is None and vector not in self._settled:
            self._settled.add(vector)
            for fits in (self._sums(vector, 2), self._sums(vector, 3), self._extreme(vector)):
                found = self._claimed(vector, fits)
                if found is not None:
                    self._known[vector] = found
                    break
            else:
                self.short = self.short or len(self.points) < _ENOUGH
        return self._known.get(vector)

    # -- what is claimed ----------------------------------------------------------------------------

    def _claimed(self, vector: Vector, fits: Iterable[Fit]) -> Expr | None:
        """The shortest of the ``fits`` if the samples bear it out and leave no doubt."""
        ordered = sorted(fits, key=lambda fit: fit.bits)[:40]
        best = next((fit for fit in ordered if self._borne_out(fit, vector)), None)
        self.short = self.short or (bool(ordered) and best is None)
        if best is None:
            return None
        rivals = [(best.expr, f.expr) for f in ordered if f.bits < best.bits + _CLOSE and f.expr != best.expr]
        doubtful = [self._tell(one, other) for one, other in (*best.doubts, *rivals[:5])]
        if any(doubtful) or (best.free > 1 and self._all_odd(best.expr)):
            return None
        return best.expr

    def _all_odd(self, expr: Expr) -> bool:
        """Want an even value of a symbol that has odd ones in the first samples: a half may be rounded."""
        odd = [name for name in sorted(expr.symbols) if all(point[name] % 2 for point in self.points)]
        odd = [name for name in odd if any(self._may_be(name, 2 * half) for half in range(1, _EVEN))]
        for name in odd if len(self.points) <= _FIRST else ():
            usual = sorted(point[name] for point in self.points)[len(self.points) // 2]
            self._want(name, usual + 1)
        return bool(odd) and len(self.points) <= _FIRST

    def _borne_out(self, fit: Fit, vector: Vector) -> bool:
        """Return whether the samples say more than the fit does, and could have contradicted it in each symbol."""
        names = fit.expr.symbols
        several = {tuple(point[name] for name in names) for point in self.points}
        if len(several) < fit.free + SPARE or any(len({p[n] for p in self.points}) < 1 + SPARE for n in names):
            return False
        if fit.free == 1:
            return len(vector) * math.log2(1 + max(vector) - min(vector)) >= fit.bits
        steps = math.gcd(*(value - vector[0] for value in vector))
        each = math.log2(1 + (max(vector) - min(vector)) // max(steps, 1))
        # what is nearly right is right at most samples where it is rounded
        rest = min(each, 2) if rounds(fit.expr) else each
        told = each * fit.free + rest * (len(several) - fit.free)
        return told >= fit.bits + _MARGIN and determined_without_two(fit.columns)

    def _may_be(self, name: str, value: int) -> bool:
        """Return whether no condition on a hyperparameter alone excludes a value."""
        asked = [(c, value_of(c.expr, {name: value})) for c in self._where if name in c.expr.symbols]
        return all(found is not None and condition.holds(found) for condition, found in asked)

    def _want(self, name: str, value: int) -> None:
        """Want ``value`` of a hyperparameter, or the next that no sample has."""
        seen = {point[name] for point in self.points}
        self.wanted.setdefault(name, set()).add(next(n for n in itertools.count(value) if n not in seen))

    def _tell(self, one: Expr, other: Expr) -> bool:
        """Want a value of a hyperparameter at which the expressions differ; False if none is found."""
        function, best, wanted = compiled([one, other]), 0.0, None
        for name in sorted(one.symbols | other.symbols):
            usual = sorted(point[name] for point in self.points)[len(self.points) // 2]
            beyond = 1 + 2 * max(size for point in self.points for size in point.values())  # of a minimum
            for value in (*range(usual, usual + 70), *range(2, min(usual, 10)), 1, beyond):
                differ = 0
                if any(point[name] == value for point in self.points) or not self._may_be(name, value):
                    continue
                for point in self.points[:4]:
                    try:
                        a, b = function({**point, name: value})
                    except ArithmeticError:
                        continue
                    differ += a != b
                score = differ - (abs(value - usual) / usual) / 8 - (value == 1) * 1.5
                if differ and (wanted is None or score > best):
                    best, wanted = score, (name, value)
        if wanted is not None:
            self.wanted.setdefault(wanted[0], set()).add(wanted[1])
        return wanted is not None

    # -- what explains itself -----------------------------------------------------------------------

    def _multiple(self, vector: Vector) -> Expr | None:
        """A number or a multiple of a monomial."""
        if len(set(vector)) == 1:
            return constant(vector[0])
        term = self._columns.monomials.get(direction(vector))
        if term is None:
            return None
        if term.values == vector and term.bits == self._columns.symbols[0].bits:
            return term.expr
        lead = next(index for index, value in enumerate(vector) if value)
        multiple = Fraction(vector[lead]) / term.values[lead]
        return self._claimed(vector, [Fit(term.bits + length_of(multiple), term.expr * multiple, 1)])

    def _product(self, vector: Vector, near: Iterable[Vector]) -> Expr | None:
        """A multiple of a product of neighbours that stand together."""
        sizes = [size for size in near if 0 not in size]
        if 0 in vector:
            return None
        for start in range(len(sizes)):
            product = (1,) * len(vector)
            for stop in range(start, len(sizes)):
                product = tuple(a * b for a, b in zip(product, sizes[stop], strict=True))
                ratio = Fraction(vector[0], product[0])
                if all(v * ratio.denominator == p * ratio.numerator for v, p in zip(vector, product, strict=True)):
                    parts = [self._known.get(size) for size in sizes[start : stop + 1]]
                    if all(part is not None for part in parts):
                        return math.prod((part for part in parts if part is not None), start=constant(1)) * ratio
        return None

    # -- what takes a search ------------------------------------------------------------------------

    def _sizes(self) -> list[Term]:
        """Sizes of the step that are known and no monomials, as terms."""
        known = [(v, e) for v, e in self._known.items() if e is not None and len(set(v)) > 1]
        several = [(v, e) for v, e in known if direction(v) not in self._columns.monomials]
        bits = math.log2(1 + len(several)) + 2
        return [Term(e, v, bits) for v, e in several[:_KNOWN]]

    def _sums(self, vector: Vector, size: int) -> Iterator[Fit]:
        """Sums of at most ``size`` terms."""
        self.short = self.short or len(self.points) < size + SPARE
        return sums_of(vector, size, self._columns, self._sizes()) if self.names and any(vector) else iter(())

    def _extreme(self, vector: Vector) -> Iterator[Fit]:
        """The smaller or larger of two."""
        if len(self.points) < 3 + SPARE:
            self.short = True
            return iter(())
        terms = [number(1, len(vector)), *self._sizes(), *list(self._columns.monomials.values())[:200]]
        return extremes(vector, terms)


class Recognizer(Solver):
    """Expressions of another structure's sizes, which are ``taught``, for the integers at one setting.

    An integer that is none of these, and no multiple of a symbol's value, is taken for a number. ``novel``: some
    integer may be several of them, or something else.
    """

    def __init__(self, names: Sequence[str], point: Mapping[str, int], taught: Iterable[Expr]) -> None:
        self.names, self.points = tuple(names), [dict(point)]
        self._several: set[int] = set()
        self._values: dict[int, Expr] = {}
        self._unknown = False
        for expr in taught:
            with contextlib.suppress(ArithmeticError):
                value = expr.evaluate(point)
                if self._values.setdefault(value, expr) != expr:
                    self._several.add(value)
        self._taught_too = frozenset(self._values.values())

    @property
    def novel(self) -> bool:
        """True if an integer was not recognized."""
        return self._unknown

    @property
    def found(self) -> tuple[Expr, ...]:
        """All expressions that are known."""
        return tuple(self._values.values())

    def solve(self, vector: Vector, near: Iterable[Vector] = ()) -> Expr | None:
        """The expression of an integer."""
        (value,) = vector
        known = self._values.get(value)
        if known is not None and value not in self._several:
            return known
        divides = any(size >= _TELLING and value % size == 0 for n, size in self.points[0].items() if n in self.names)
        if known is not None or (value and divides):
            self._unknown = True
        return self._values.setdefault(value, constant(value))

    def settle(self, vector: Vector) -> Expr | None:
        """``solve``."""
        return self.solve(vector)

    def product(self, vector: Vector, near: Iterable[Vector]) -> Expr | None:
        """The expression of strides or bytes of a tensor, by its sizes: a product of them, times the bytes of one."""
        (value,), sizes = vector, [size for (size,) in near]
        if not sizes:
            return constant(value)
        for start in range(len(sizes)):
            for stop in range(start + 1, len(sizes) + 1):
                size = math.prod(sizes[start:stop])
                if size and value % size == 0 and value // size in _ITEM_BYTES:
                    parts = (self._values.get(size, constant(size)) for size in sizes[start:stop])
                    found = math.prod(parts, start=constant(value // size))
                    if found.value is not None or found in self._taught_too:
                        return found
        return self.solve(vector)
