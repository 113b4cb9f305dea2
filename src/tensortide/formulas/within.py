"""Expressions as short as the region allows: ``hidden/12`` where 12 divides hidden, ``floor(seq/4)`` for a maximum of 1
and that where ``seq >= 4``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from tensortide.expr import Condition, Expr
from tensortide.expr.atoms import KINDS, MAX, alternatives, replaced
from tensortide.expr.expr import Opaque
from tensortide.expr.floors import given_whole
from tensortide.formulas.region import follows, lowest_of
from tensortide.formulas.result import Symbolic


def within(expr: Expr, region: Sequence[Condition]) -> Expr:
    """An expression that is equal where the conditions of a region hold."""
    if not any(isinstance(atom, Opaque) for atom in expr.atoms):
        return expr
    divided = (condition.divisor for condition in region)
    quotients = [of / by for by, of in filter(None, divided) if len(of.terms) == len(by.terms) == 1]
    with given_whole(quotients):
        return _settled(expr, lowest_of(region)).subs({})


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
    for part in parts:
        others = [other for other in kept if other is not part]
        if any(follows(Condition(sign * (other - part), ">="), lowest) for other in others):
            kept = others
    return kept


def within_region(found: Symbolic) -> Symbolic:
    """The result with every expression as short as its region allows."""
    formulas, region = found.formulas, found.formulas.region

    def short(expr: Expr | None) -> Expr | None:
        return None if expr is None else within(expr, region)

    measures = ("count", "product_flops", "elementwise_flops", "bytes")
    totals = {name: within(expr, region) for name, expr in formulas.totals.items()}
    partial = {name: replace(part, known=within(part.known, region)) for name, part in formulas.partial.items()}
    moments = dict.fromkeys(alternatives(totals["peak_bytes"])) if "peak_bytes" in totals else {}
    regimes = [replace(regime, bytes=within(regime.bytes, region)) for regime in found.regimes]
    return replace(
        found,
        formulas=replace(formulas, totals=totals, partial=partial),
        rows=tuple(replace(row, **{name: short(getattr(row, name)) for name in measures}) for row in found.rows),
        regimes=tuple(regime for regime in regimes if moments.pop(regime.bytes, regime) is None),
    )
