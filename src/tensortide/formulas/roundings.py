"""Expressions rounded to a vector: every sample confines what was rounded to an interval."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from tensortide.expr import Expr, ceil, floor, floor_ratio
from tensortide.expr.expr import Coefficient
from tensortide.formulas.terms import Term, Vector, length_of

_NICE = 64
"""Largest denominator of a multiple that is rounded."""
_TINY = Fraction(1, 1 << 20)


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


def rounded_multiples(vector: Vector, terms: Sequence[Term], floats: Any) -> Iterator[Fit]:
    """Multiples of single terms, rounded up or down: ``ceil(5*batch*seq/(4*experts))``. ``floats`` are the terms'
    values."""
    import numpy as np

    floating = np.array(vector, float)
    for make, lower, upper in ((ceil, -1, 0), (floor, 0, 1)):
        least, most = ((floating + lower) / floats).max(1), ((floating + upper) / floats).min(1)
        for index in np.flatnonzero(least <= most * (1 + 1e-9)).tolist():
            expr, values, bits, _ = terms[index]
            low: Fraction = max([(y + lower) / Fraction(x) for x, y in zip(values, vector, strict=True)])
            high: Fraction = min([(y + upper) / Fraction(x) for x, y in zip(values, vector, strict=True)])
            if high < low or high < 0:
                continue
            multiple = _simplest(max(low, Fraction(0)), high)
            inside = [x * multiple for x in values]
            rounded = math.ceil if make is ceil else math.floor
            if multiple.denominator > _NICE or any(rounded(x) != y for x, y in zip(inside, vector, strict=True)):
                continue
            found = make(expr * multiple)
            near = [(low, multiple - _TINY), (multiple + _TINY, high)]
            others = [_simplest(max(a, Fraction(0)), b) for a, b in near if max(a, Fraction(0)) <= b]
            doubts = [make(expr * other) for other in others if length_of(other) < length_of(multiple) + 4]
            if all(Fraction(x).denominator != 1 for x in inside):
                doubts.append(floor(expr * multiple) + 1 if make is ceil else ceil(expr * multiple) - 1)
            yield Fit(bits + length_of(multiple) + 3, found, 2, tuple([(found, other) for other in doubts]))


def _simplest(low: Fraction, high: Fraction) -> Fraction:
    """The fraction of the smallest denominator from ``low`` to ``high``, which are not negative."""
    whole = math.ceil(low)
    if whole <= high:
        return Fraction(whole)
    base = whole - 1
    return base + 1 / _simplest(1 / (high - base), 1 / (low - base))


def rounded_sums(
    vector: Vector, leads: Sequence[Term], divisors: Sequence[Term], small: Sequence[Term] = ()
) -> Iterator[Fit]:
    """Quotients of sums, rounded down: ``floor((image + 2*padding - kernel)/stride) + 1``.

    A sum is a lead, a number, and up to four of the ``small`` terms, once or twice, added or subtracted; the same of
    fewer terms first.
    """
    import numpy as np

    y, widths = np.array(vector, np.int64), np.array([below.values for below in divisors], np.int64)
    tops = np.array([lead.values for lead in leads], np.int64).reshape(len(leads), len(vector))
    for lead, below, low, high in _confined((widths * y)[None] - tops[:, None], widths[None]):
        yield _with_number(leads[lead].expr, divisors[below], low, high, leads[lead].bits, 2)
    if not small:
        return
    times = _multiplicities(len(small))
    extras = times @ np.array([term.values for term in small], np.int64)
    for lead, below in itertools.product(range(len(leads)), range(len(divisors))):
        shifts = widths[below] * y - tops[lead] - extras
        for first in range(len(extras) - 1):
            begin = first + 1 if first else 1
            rest = shifts[begin:] - extras[first]
            for second, _, low, high in _confined(rest[:, None], widths[below][None, None]):
                parts = [(t, int(c)) for t, c in zip(small, times[first] + times[begin + second], strict=True) if c]
                top = sum((term.expr * c for term, c in parts), start=leads[lead].expr)
                bits = leads[lead].bits + sum(term.bits + length_of(c) for term, c in parts)
                yield _with_number(top, divisors[below], low, high, bits, 2 + len(parts))


def _confined(shifts: Any, widths: Any) -> Iterator[tuple[int, int, int, int]]:
    """Places in the first two dimensions at which one number fits all samples, and from where to where it does."""
    low, high = shifts.max(2), (shifts + (widths - 1)).min(2)
    for one, other in zip(*(low <= high).nonzero(), strict=True):
        yield int(one), int(other), int(low[one, other]), int(high[one, other])


def _with_number(top: Expr, below: Term, low: int, high: int, bits: float, free: int) -> Fit:
    """The fit of ``top`` with a number from ``low`` to ``high`` added: simple ones first, the others are doubts."""
    divisor = below.expr.value
    usual = {0: 0.0} if divisor is None else {0: 0.0, int(divisor) - 1: 1.0}
    number = min(range(low, high + 1), key=lambda n: (usual.get(n, length_of(n)), abs(n)))
    between = {low + (high - low) * part // 4 for part in (0, 1, 2, 3)} if low < high else ()
    doubts = [(floor_ratio(top + n, below.expr), floor_ratio(top + n + 1, below.expr)) for n in sorted(between)]
    more = usual.get(number, length_of(number) + 1)
    return Fit(bits + below.bits + 3 + more, floor_ratio(top + number, below.expr), free, tuple(doubts))


def _multiplicities(terms: int) -> Any:
    """Rows that say how often each of some terms is added: up to two of them, once or twice or less than not at all."""
    import numpy as np

    rows = [np.zeros((1, terms), np.int64)]
    for count in (1, 2):
        for chosen in itertools.combinations(range(terms), count):
            block = np.zeros((4**count, terms), np.int64)
            block[:, chosen] = list(itertools.product((-1, 1, -2, 2), repeat=count))
            rows.append(block)
    return np.concatenate(rows)
