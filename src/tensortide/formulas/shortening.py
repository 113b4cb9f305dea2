"""Expressions as short as the region allows: ``hidden/12`` where 12 divides hidden, ``floor(seq/4)`` for a maximum of 1
and that where ``seq >= 4``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from tensortide.expr import Condition, Expr, nonnegative
from tensortide.expr.atoms import KINDS, MAX, alternatives, replaced
from tensortide.expr.expr import Opaque, common
from tensortide.expr.floors import given_whole, is_turned
from tensortide.formulas.peaks import values_at
from tensortide.formulas.region import follows, least_of, lowest_of, primitive
from tensortide.formulas.result import Symbolic


def within(expr: Expr, region: Sequence[Condition]) -> Expr:
    """An expression that is equal where the conditions of a region hold."""
    if not any(isinstance(atom, Opaque) for atom in expr.atoms):
        return expr
    divided = (condition.divisor for condition in region)
    quotients = [of / by for by, of in filter(None, divided) if len(of.terms) == len(by.terms) == 1]
    with given_whole(quotients):
        return _settled(expr, lowest_of(region)).subs({})


def simple(condition: Condition, region: Sequence[Condition]) -> Condition:
    """A condition that says the same where those of a region hold: ``heads > kv_heads`` for
    ``floor(heads/kv_heads) > 1``."""
    expr = primitive(within(condition.expr, region))
    signs = {power: _sign(power[0], lowest_of(region)) for power in common(expr) if isinstance(power[0], Opaque)}
    shared = tuple(power for power, sign in signs.items() if sign)
    return Condition(expr / Expr({shared: math.prod(signs[power] ** power[1] for power in shared)}), condition.relation)


def _sign(atom: Opaque, lowest: Mapping[str, int]) -> int:
    """1 for a rounding that is positive, -1 for one that is negative (``floor(-n/4)`` is ``-ceil(n/4)``), else 0."""
    if least_of(atom, lowest) > 0:
        return 1
    top, *others = atom.arguments
    return -1 if is_turned(atom) and nonnegative(-top - 1) and all(nonnegative(part - 1) for part in others) else 0


def _settled(expr: Expr, lowest: Mapping[str, int]) -> Expr:
    """The expression without arguments of maxima and minima that the least values of the symbols rule out."""
    values = {}
    for atom in expr.atoms:
        if isinstance(atom, Opaque):
            parts = [_settled(part, lowest) for part in atom.arguments]
            if KINDS[atom.name].choose is not None:
                parts = _contenders(parts, 1 if atom.name == MAX else -1, lowest)
            values[atom] = KINDS[atom.name].fold(*parts)
    return replaced(expr, values)


def _contenders(parts: Sequence[Expr], sign: int, lowest: Mapping[str, int]) -> list[Expr]:
    """The arguments of a maximum (``sign`` 1) or minimum (-1) without those that another one always reaches."""
    kept = list(parts)
    low = {name: lowest.get(name, 1) for part in parts for name in part.symbols}
    points = [low, {name: 999 * least for name, least in low.items()}, *({**low, n: 999 * low[n]} for n in low)]
    plain = all(isinstance(atom, str) for part in parts for atom in part.atoms)
    # what is smaller at one of these points is no rival; what is rounded has other least values than these may say
    values = dict(zip(parts, sign * values_at(parts, points), strict=True)) if plain else {}
    for part in parts:
        others = [other for other in kept if other is not part]
        if plain:
            others = [one for one in others if (values[one] >= values[part] - 1e-9 * abs(values[part])).all()]
        if any(follows(Condition(sign * (other - part), ">="), lowest) for other in others):
            kept = [other for other in kept if other is not part]
    return kept


def within_region(found: Symbolic) -> Symbolic:
    """The result with every expression as short as its region allows."""
    formulas = found.formulas
    known: dict[tuple[Expr, tuple[Condition, ...]], Expr] = {}

    def short(expr: Expr, total: str) -> Expr:
        key = expr, formulas.region_of([total])
        if key not in known:
            known[key] = within(*key)
        return known[key]

    measures = ("count", "product_flops", "elementwise_flops", "bytes")
    totals = {name: short(expr, name) for name, expr in formulas.totals.items()}
    partial = {name: replace(part, known=short(part.known, name)) for name, part in formulas.partial.items()}
    moments = dict.fromkeys(alternatives(totals["peak_bytes"])) if "peak_bytes" in totals else {}
    regimes = [replace(regime, bytes=short(regime.bytes, "peak_bytes")) for regime in found.regimes]
    rows = (
        replace(row, **{n: short(expr, n) for n in measures if (expr := getattr(row, n)) is not None})
        for row in found.rows
    )
    return replace(
        found,
        formulas=replace(formulas, totals=totals, partial=partial),
        rows=tuple(rows),
        regimes=tuple(regime for regime in regimes if moments.pop(regime.bytes, regime) is None),
    )
