"""Minima and maxima of two terms with the values of a vector: every sample has the value of one of them."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction

from tensortide.expr import maximum, minimum
from tensortide.expr.expr import Expr, common, content
from tensortide.formulas.sums import Fit
from tensortide.formulas.terms import Term, Vector, length_of, number


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
