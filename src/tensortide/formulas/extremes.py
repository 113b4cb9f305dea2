"""The smaller or larger of two expressions: one has a vector's values at some samples, the other at the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import TypeAlias

from tensortide.expr import Expr, maximum, minimum
from tensortide.expr.atoms import MAX, MIN
from tensortide.expr.expr import Opaque, common, content
from tensortide.formulas.roundings import Fit
from tensortide.formulas.sums import SPARE
from tensortide.formulas.terms import Term, Vector, length_of

Explain: TypeAlias = Callable[[list[int], Vector], tuple[Expr, float] | None]
"""Finds the expression, with its bits, that has some values at the samples of these indices."""
Want: TypeAlias = Callable[[str, int], None]
"""Asks for a sample at a value of a hyperparameter."""


def extremes(
    vector: Vector, points: Sequence[Mapping[str, int]], terms: Iterable[Term], explain: Explain, want: Want
) -> Iterator[Fit]:
    """Minima and maxima of a multiple of a term and what explains the other samples."""
    for term in terms:
        ratios = [Fraction(y) / x if x else None for x, y in zip(term.values, vector, strict=True)]
        (ratio, times), *_ = Counter(ratios).most_common(1)
        if ratio is None or times < (2 if term.expr.value is not None else 3) or times == len(vector):
            continue
        left, first = term.expr * ratio, [ratio * x for x in term.values]
        for choose, make in ((min, minimum), (max, maximum)):
            if any(choose(a, y) != y for a, y in zip(first, vector, strict=True)):
                continue
            rest = [index for index, (a, y) in enumerate(zip(first, vector, strict=True)) if a != y]
            if len(rest) < SPARE:
                _ask_beyond(left, points[rest[0]], vector[rest[0]], want)
                continue
            found = explain(rest, tuple([vector[index] for index in rest]))
            if found is not None and (left.symbols or found[0].symbols):
                expr = _factored(left, found[0], make)
                if all(expr.subs(point).value == y for point, y in zip(points, vector, strict=True)):
                    yield Fit(term.bits + length_of(ratio) + found[1] + 3, expr, 2)


def _factored(left: Expr, right: Expr, make: Callable[..., Expr]) -> Expr:
    """The extreme of two, with what they share before it."""
    powers = tuple(power for power in common(left, right) if isinstance(power[0], str))
    factor = Expr({powers: content(left, right)})
    return make(left / factor, right / factor) * factor


def _ask_beyond(left: Expr, point: Mapping[str, int], found: int, want: Want) -> None:
    """Want a further sample at which the vector is not ``left``, of which there is one."""
    for name, value in point.items():
        if name in left.symbols:  # beyond the threshold, wherever it is
            want(name, value * 5 // 4 + 1)
        elif value and (found % value == 0 or value % (found or 1) == 0):
            want(name, value + 1)


def one_sided(expr: Expr, points: Sequence[Mapping[str, int]], want: Want) -> bool:
    """Return whether an alternative of a minimum or maximum is the value at fewer than two samples; more are wanted
    where it may be."""
    thin = False
    for atom in expr.atoms:
        if not isinstance(atom, Opaque) or atom.name not in (MIN, MAX):
            continue
        choose = min if atom.name == MIN else max
        values = [[part.evaluate(point) for part in atom.arguments] for point in points]
        for place, part in enumerate(atom.arguments):
            where = [
                i for i, row in enumerate(values) if row.index(choose(row)) == place and row.count(choose(row)) == 1
            ]
            if len(where) < SPARE:
                thin = True
                for name in sorted(part.symbols):
                    seen = [points[i][name] for i in where] or [point[name] for point in points]
                    want(name, choose(seen) - 1 if choose is min and choose(seen) > 1 else choose(seen) + 1)
    return thin
