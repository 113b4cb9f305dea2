"""Sums of few terms with the values of a vector: one exact linear solve over monomials and their roundings."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

from tensortide.expr import Expr, constant, symbol
from tensortide.expr.expr import Coefficient
from tensortide.formulas.matrix import Matrix
from tensortide.formulas.spans import PRIME, projected, residues, spanning
from tensortide.formulas.terms import (
    DIVISORS,
    Term,
    Vector,
    direction,
    length_of,
    monomials,
    number,
    roundings,
    rounds,
)

SPARE = 2
"""Samples that a fit must have left over after what was chosen to fit is determined."""
_NICE = 64
"""Largest denominator of a coefficient in a sum."""


class Fit(NamedTuple):
    """An expression with the values of a vector, and the length of its description in bits.

    ``free`` numbers of it were chosen to fit. ``doubts`` are pairs of expressions that the samples do not tell apart.
    ``columns`` are the values of the terms of a sum.
    """

    bits: float
    expr: Expr
    free: int
    doubts: tuple[tuple[Expr, Expr], ...] = ()
    columns: tuple[tuple[Coefficient, ...], ...] = ()


class Columns:
    """Terms of sums over the symbols ``names``, with their values at the settings ``points``."""

    def __init__(
        self, names: Sequence[str], points: Sequence[Mapping[str, int]], bits: float, divisors: Iterable[int]
    ) -> None:
        self._divisors = sorted({*DIVISORS, *(divisor for divisor in divisors if divisor > 1)})
        self.count = len(points)
        self.symbols = [Term(symbol(n), tuple(point[n] for point in points), bits) for n in names]
        self.monomials: dict[tuple[Fraction, ...], Term] = {}
        self.blurred = False
        """True if the points do not tell some simple monomials apart."""
        for term in monomials(self.symbols):
            along = direction(term.values)
            if along not in self.monomials and len(set(along)) > 1:
                self.monomials[along] = term
            elif term.bits <= 2 * bits + 1:
                self.blurred = True

    @cached_property
    def rounded(self) -> list[Term]:
        """Roundings of the symbols."""
        return list(roundings(self.symbols, self._divisors))

    @property
    def simple(self) -> list[Term]:
        """The monomials that are short."""
        return [term for term in self.monomials.values() if term.bits <= 2 * self.symbols[0].bits]

    @cached_property
    def products(self) -> tuple[list[tuple[float, Term, Term]], Any]:
        """Terms of sums as products of two, short ones first, and their residues."""
        import numpy as np

        one = number(1, self.count)
        plain, rounded = [one, *self.monomials.values()], self.rounded
        factors = [one, *self.simple][: 1 + (30 if len(self.symbols) <= 6 else 10)]
        rows = [self.residues(terms) for terms in (plain, rounded, factors)]
        products = rows[1][:, None] * rows[2] % PRIME
        columns = [(t.bits, t, one) for t in plain] + [(t.bits + f.bits, t, f) for t in rounded for f in factors]
        order = sorted(range(len(columns)), key=lambda index: columns[index][0])[:3000]
        return [columns[i] for i in order], np.concatenate([rows[0], products.reshape(-1, self.count)])[order]

    def residues(self, terms: Sequence[Term]) -> Any:
        """The values of terms, modulo a prime."""
        import numpy as np

        return np.array([residues(t.values) for t in terms], np.int64).reshape(len(terms), self.count)

    @cached_property
    def projections(self) -> dict[int, Any]:
        """The products, for sums of so many of them."""
        return {size: projected(self.products[1], size) for size in (1, 2, 3)}


def sums_of(vector: Vector, size: int, columns: Columns, known: Sequence[Term]) -> Iterator[Fit]:
    """Sums of at most ``size`` terms of ``columns`` and ``known``."""
    import numpy as np

    few = 3000 if size < 3 else 150
    terms = columns.products[0][:few]
    bits = [*(term[0] for term in terms), *(term.bits for term in known)]
    target, extra = columns.residues([Term(constant(0), vector, 0)]), columns.residues(known)
    for width in (1, 2) if size == 2 else (size,):
        if columns.count < width + SPARE:
            return
        rows = np.concatenate([columns.projections[width][:few], projected(extra, width)])
        choices = spanning(rows, projected(target, width)[0], width)
        for chosen in sorted(choices, key=lambda c: sum(bits[i] for i in c))[:40]:
            several = [terms[i][1:] if i < len(terms) else (known[i - len(terms)],) for i in chosen]
            if sum(len(factors) > 1 and factors[0].rounded for factors in several) > 1:
                continue  # one rounding is easily mistaken for the sum of two others
            yield from _combined(vector, [functools.reduce(Term.times, factors) for factors in several])


def _combined(vector: Vector, terms: Sequence[Term]) -> Iterator[Fit]:
    """The sum of multiples of all ``terms``, if it is the vector."""
    try:
        times = Matrix(list(zip(*(term.values for term in terms), strict=True))).solve(vector)
    except ArithmeticError:  # there are several
        return
    if times is not None and all(times):
        parts = list(zip(times, terms, strict=True))
        if any(Fraction(c).denominator > (1 if term.rounded else _NICE) for c, term in parts):
            return
        if any(rounds(t.expr) for t in terms) and any(
            Fraction(c * v).denominator > 1 for c, t in parts for v in t.values
        ):
            return  # halves of odd numbers cancel
        expr = sum((term.expr * c for c, term in parts), start=constant(0))
        doubts = [(expr, expr + (doubt - t.expr) * c) for c, t in parts for doubt in t.doubts]
        bits = sum(t.bits + length_of(c) for c, t in parts)
        yield Fit(bits, expr, len(parts), tuple(doubts), tuple(t.values for t in terms))


def determined_without_two(columns: Sequence[Sequence[Coefficient]]) -> bool:
    """Return whether the coefficients of a sum of ``columns`` are determined without any two different samples."""
    import numpy as np

    rows = [row for row in dict.fromkeys(zip(*columns, strict=True)) if any(row)]
    if not columns:
        return True
    if len(rows) < len(columns) + SPARE:
        return False
    values = np.array(rows, float)
    values /= abs(values).max(0)
    values /= abs(values).max(1, keepdims=True)
    left = [np.delete(values, out, 0) for out in itertools.combinations(range(len(rows)), SPARE)]
    return bool((np.linalg.matrix_rank(np.array(left), tol=1e-9) == len(columns)).all())
