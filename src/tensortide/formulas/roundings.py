"""Roundings, minima and maxima with the values of a vector: every sample confines what was rounded to an interval, and
has the value of one alternative of a minimum."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from tensortide.expr import Expr, ceil, floor, floor_ratio, maximum, minimum
from tensortide.expr.expr import Coefficient, common, content
from tensortide.formulas.terms import Term, Vector, length_of, number

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


def rounded_sums(vector: Vector, leads: Sequence[Term], divisors: Sequence[Term]) -> Iterator[Fit]:
    """Quotients of a lead and a number, rounded down: ``floor((image + 1)/2)``."""
    import numpy as np

    y, widths = np.array(vector, np.int64), np.array([below.values for below in divisors], np.int64)
    tops = np.array([lead.values for lead in leads], np.int64).reshape(len(leads), len(vector))
    shifts = (widths * y)[None] - tops[:, None]
    low, high = shifts.max(2), (shifts + (widths[None] - 1)).min(2)
    for lead, below in zip(*(low <= high).nonzero(), strict=True):
        ends = int(low[lead, below]), int(high[lead, below])
        yield _with_number(leads[lead].expr, divisors[below], *ends, leads[lead].bits, 2)


def _with_number(top: Expr, below: Term, low: int, high: int, bits: float, free: int) -> Fit:
    """The fit of ``top`` with a number from ``low`` to ``high`` added: simple ones first, the others are doubts."""
    divisor = below.expr.value
    usual = {0: 0.0} if divisor is None else {0: 0.0, int(divisor) - 1: 1.0}
    number = min(range(low, high + 1), key=lambda n: (usual.get(n, length_of(n)), abs(n)))
    between = {low + (high - low) * part // 4 for part in (0, 1, 2, 3)} if low < high else ()
    doubts = [(floor_ratio(top + n, below.expr), floor_ratio(top + n + 1, below.expr)) for n in sorted(between)]
    more = usual.get(number, length_of(number) + 1)
    return Fit(bits + below.bits + 3 + more, floor_ratio(top + number, below.expr), free, tuple(doubts))


def extremes(vector: Vector, terms: Sequence[Term]) -> Iterator[Fit]:
    """Minima and maxima of multiples of two terms. If one of them alone is the value at a single sample only, there is
    a doubt: it may as well never be."""
    several: list[tuple[Term, Fraction, list[bool]]] = []
    for term in terms:
        ratios = [Fraction(y) / x if x else None for x, y in zip(term.values, vector, strict=True)]
        (ratio, times), *_ = Counter(ratios).most_common(1)
        if ratio is not None and (2 if term.expr.value is not None else 3) <= times < len(vector):
            several.append((term, ratio, [one == ratio for one in ratios]))
    pairs = [pair for pair in itertools.combinations(several, 2) if all(map(max, pair[0][2], pair[1][2]))]
    almost = (one for one in several if one[2].count(False) == 1 and one[0].expr.value is None)
    one_number = ((one, Fraction(vector[one[2].index(False)])) for one in almost)  # at the one sample that is left
    pairs += [(one, (number(1, len(vector)), value, [])) for one, value in one_number]
    for (one, a, here), (other, b, _) in pairs:
        left, right = one.expr * a, other.expr * b
        powers = tuple(power for power in common(left, right) if isinstance(power[0], str))
        factor = Expr({powers: content(left, right)})
        for choose, make in ((min, minimum), (max, maximum)):
            values = zip(one.values, other.values, strict=True)
            if vector == tuple([choose(a * x, b * y) for x, y in values]):
                expr = make(left / factor, right / factor) * factor
                doubts = ((expr, left),) if here.count(False) == 1 else ()
                yield Fit(one.bits + other.bits + length_of(a) + length_of(b) + 3, expr, 2, doubts)
