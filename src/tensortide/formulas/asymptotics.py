"""Costs of a growing model: leading and next terms, per parameter, as functions of parameters and batch.

With ``p = a h^d + a' h^(d-1) + ...`` parameters in the growth symbol ``h``, a total ``E = e h^k + e' h^(k-1) + ...`` is
expanded in ``p``: ``h = (p/a)^(1/d) (1 - a'/(d a) (a/p)^(1/d) + ...)``. All coefficients are exact.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

import msgspec

from tensortide.errors import ExpressionError
from tensortide.expr import Condition, Expr, constant, symbol, text
from tensortide.expr.atoms import KINDS
from tensortide.expr.expr import Opaque, common, content, denominator
from tensortide.expr.factor import factored
from tensortide.formulas.formulas import Formulas, value_at
from tensortide.formulas.shares import with_atoms

ONE = constant(1)
_LARGE = 30
"""Doublings of a default after which a symbol counts as large."""
_FEW = 4
"""Totals in which something was simplified that are not named any more."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """``top / bottom``, which need not be a sum of terms."""

    top: Expr
    bottom: Expr = ONE

    def reduced(self) -> Ratio:
        """The same without common factors that are found by division: ``bottom`` is 1 if it divides ``top``."""
        quotient = self.top.divided(self.bottom)
        if quotient is not None:
            return Ratio(quotient)
        inverse = self.bottom.divided(self.top) if self.top.terms else None
        if inverse is not None and denominator(inverse).value is not None:
            return Ratio(ONE, inverse)
        factor = Expr({common(self.top, self.bottom): content(self.top, self.bottom)})
        return Ratio(self.top / factor, self.bottom / factor)

    def __mul__(self, other: Ratio) -> Ratio:
        return Ratio(self.top * other.top, self.bottom * other.bottom).reduced()

    def __truediv__(self, other: Ratio) -> Ratio:
        return Ratio(self.top * other.bottom, self.bottom * other.top).reduced()

    def value(self, setting: Mapping[str, int]) -> Fraction:
        """The number at a setting."""
        return value_at(self.top, setting) / value_at(self.bottom, setting)

    def __str__(self) -> str:
        return str(Term(self))


@dataclass(frozen=True, slots=True)
class Term:
    """``coefficient * radicand**radical * p**power`` for the number of parameters ``p``."""

    coefficient: Ratio
    radicand: Expr = ONE
    radical: Fraction = Fraction(0)
    power: Fraction = Fraction(0)

    @classmethod
    def of(cls, coefficient: Ratio, base: Expr, exponent: Fraction) -> Term:
        """``coefficient * (base/p)**exponent``, with what has an exact root taken out."""
        whole = math.floor(exponent)
        factor = Ratio(base**whole) if whole >= 0 else Ratio(ONE, base**-whole)
        root = _root(base, (exponent - whole).denominator)
        radical = exponent - whole
        if root is not None and radical:
            factor, radical = factor * Ratio(root**radical.numerator), Fraction(0)
        return cls((coefficient * factor).reduced(), base if radical else ONE, radical, -exponent)

    def value(self, setting: Mapping[str, int], parameters: float = 1.0) -> float:
        """The number at a setting and a number of parameters."""
        root = math.pow(Ratio(self.radicand).value(setting), self.radical)
        return float(self.coefficient.value(setting)) * root * math.pow(parameters, self.power)

    def __str__(self) -> str:
        scale = denominator(self.coefficient.top)
        above, below = _factors(self.coefficient.top * scale), _factors(self.coefficient.bottom * scale)
        if self.radical:
            above.append(_raised(self.radicand, self.radical))
        if self.power:
            (above if self.power > 0 else below).append(_raised(_P, abs(self.power)))
        if not below:
            return "*".join(above) if self.radical or self.power else text(self.coefficient.top)
        bottom = "*".join(below)
        plain = len(below) == 1 and re.fullmatch(r"\w+(\*\*\S+)?|\(.*\)|sqrt\(.*\)", bottom)
        return f"{'*'.join(above) or '1'}/{bottom if plain else f'({bottom})'}"


_P = symbol("p")


def _factors(expr: Expr) -> list[str]:
    """Text of an expression as a factor of a product: in parentheses if it is a sum, absent if it is 1."""
    if expr == 1:
        return []
    return [f"({text(expr)})" if factored(expr).is_sum else text(expr)]


def _raised(base: Expr, exponent: Fraction) -> str:
    shown = text(base)
    if exponent == Fraction(1, 2):
        return f"sqrt({shown})"
    shown = shown if shown.isidentifier() else f"({shown})"
    return shown if exponent == 1 else f"{shown}**{exponent if exponent.denominator == 1 else f'({exponent})'}"


def _root(expr: Expr, degree: int) -> Expr | None:
    """The exact root of a single term, if it has one."""
    if len(expr.terms) != 1:
        return None
    ((monomial, coefficient),) = expr.terms.items()
    parts = []
    for number in Fraction(coefficient).as_integer_ratio():
        root = round(number ** (1 / degree))
        if root**degree != number:
            return None
        parts.append(root)
    if any(exponent % degree for _, exponent in monomial):
        return None
    return Expr({tuple((atom, exponent // degree) for atom, exponent in monomial): Fraction(parts[0], parts[1])})


ZERO = ONE - 1


@dataclass(frozen=True, slots=True)
class Growth:
    """One total as the growth symbol gets large: ``leading`` and ``next`` of its terms, and both per parameter."""

    name: str
    degree: int
    leading: Expr
    next: Expr
    per_parameter: Term
    per_parameter_next: Term | None


@dataclass(frozen=True, slots=True)
class Intensity:
    """FLOPs per byte: ``b p^(1/d) / (u p^(1/d) + w b)`` for batch ``b``, and its limits.

    ``large_model`` is the limit for many parameters, ``large_batch`` for a large batch. ``u`` and ``w`` are None where
    the batch does not enter in this way.
    """

    large_model: Ratio
    large_batch: Ratio | None
    u: Ratio | None
    w: Term | None


@dataclass(frozen=True, slots=True)
class Asymptotics:
    """Expansion of the totals for large ``growth``, at any value of the other symbols.

    ``notes`` say where an expression was simplified: a floor taken as its quotient, a maximum as the argument that
    wins at ``setting``; and which totals have no expansion.
    """

    workload: str
    growth: str
    batch: str
    degree: int
    setting: dict[str, int]
    totals: tuple[Growth, ...]
    intensity: Intensity | None
    notes: tuple[str, ...]

    def __getitem__(self, name: str) -> Growth:
        return next(growth for growth in self.totals if growth.name == name)


def asymptotics(
    formulas: Formulas,
    growth: str,
    /,
    *,
    path: Mapping[str, Expr | int | str] | None = None,
    batch: str = "",
    at: Mapping[str, int] | None = None,
) -> Asymptotics:
    """The totals of ``formulas`` as ``growth`` gets large and the other symbols stay.

    ``path`` makes symbols follow: ``{"hidden": "64*heads"}`` with growth ``heads``. ``batch`` names the symbol of the
    batch (default: the symbol ``batch`` or ``b``, if there is one). ``at`` are values for what is shown as numbers.

    Raises ExpressionError for an unknown name, without the total ``parameters``, or if that does not grow.
    """
    formulas, limits = _where_large(formulas.at(**(at or {})).along(path or {}), growth)
    formulas.check("parameters", formulas.totals, "total")
    if batch:
        formulas.check(batch, formulas.symbols, "symbol")
    batch = batch or next((name for name in ("batch", "b") if name in formulas.symbols), "")
    smooth = _Smooth(growth, formulas.defaults)
    series, lost = {}, []
    for name, expr in formulas.totals.items():
        try:
            series[name] = smooth(name, expr).coefficients(growth)
        except ExpressionError as error:
            lost.append(f"{name} is left out: {error}")
    if "parameters" not in series:
        raise ExpressionError(lost[0])
    degree, leading = next(iter(series["parameters"].items()), (0, ZERO))
    if degree < 1:
        raise ExpressionError(f"the number of parameters does not grow with {growth}")
    expansion = _Expansion(degree, leading, series["parameters"].get(degree - 1, ZERO))
    totals = tuple(expansion.growth(name, terms, growth) for name, terms in series.items() if terms)
    flops, accessed = series.get("flops"), series.get("bytes")
    intensity = expansion.intensity(flops, accessed, growth, batch) if flops and accessed else None
    return Asymptotics(
        workload=formulas.workload,
        growth=growth,
        batch=batch,
        degree=degree,
        setting=dict(formulas.defaults),
        totals=totals,
        intensity=intensity,
        notes=(*limits, *lost, *smooth.said(len(series))),
    )


def _where_large(formulas: Formulas, growth: str) -> tuple[Formulas, list[str]]:
    """The formulas that hold for large values of a symbol, and remarks: where none do, and what was tested."""
    formulas.check(growth, formulas.symbols, "symbol")
    setting = {**formulas.defaults, growth: formulas.defaults[growth] << _LARGE}
    piece = next((p for p in (formulas, *formulas.others) if _ending(p, setting) is None), None)
    notes = []
    if piece is None:
        notes.append(f"no formulas hold for large {growth}: these end at {_ending(formulas, setting)}")
    elif piece is not formulas:
        crossed = _ending(formulas, setting)
        threshold = crossed and formulas.threshold(crossed)
        side = str(threshold) if threshold else f"where {crossed and crossed.opposite}"
        notes.append(f"for large {growth} the formulas of the other side are used: {side}")
    found = piece or formulas
    untested = [f"{one.symbol} {one.low:,} to {one.high:,}" for one in found.ranges if growth in one.expr.symbols]
    notes += [f"extrapolated: the formulas were tested for {ends}" for ends in untested]
    return msgspec.structs.replace(found, defaults={**found.defaults, **formulas.defaults}, others=()), notes


def _ending(formulas: Formulas, setting: Mapping[str, int]) -> Condition | None:
    """The inequality of a region that ends before a setting."""
    bounds = [condition for condition in formulas.region if condition.relation in (">", ">=")]
    return next((c for c in bounds if c.expr.subs(setting).value is not None and value_at(c.expr, setting) < 0), None)


@dataclass(frozen=True, slots=True)
class _Expansion:
    """Parameters ``p = leading h^degree + next h^(degree-1) + ...``."""

    degree: int
    leading: Expr
    next: Expr

    def growth(self, name: str, terms: Mapping[int, Expr], symbol_name: str) -> Growth:
        degree, first = next(iter(terms.items()))
        second = terms.get(degree - 1, ZERO)
        h = symbol(symbol_name)
        over = Fraction(self.degree - degree, self.degree)
        following = self.second_order(degree, first, second)
        return Growth(
            name=name,
            degree=degree,
            leading=first * h**degree,
            next=second * h ** (degree - 1),
            per_parameter=Term.of(Ratio(first, self.leading), self.leading, over),
            per_parameter_next=Term.of(following, self.leading, over + Fraction(1, self.degree))
            if following.top.terms
            else None,
        )

    def second_order(self, degree: int, first: Expr, second: Expr) -> Ratio:
        """The coefficient of ``(leading/p)^((d - k + 1)/d)`` in ``E/p``."""
        lift = Fraction(degree - self.degree, self.degree) + 1
        return Ratio(second * self.leading - first * self.next * lift, self.leading**2)

    def intensity(self, flops: Mapping[int, Expr], accessed: Mapping[int, Expr], growth: str, batch: str) -> Intensity:
        top, below = next(iter(flops)), next(iter(accessed))
        h = symbol(growth)
        large_model = (Ratio(flops[top], accessed[below]) * Ratio(h ** (top - below))).reduced()
        if not batch:
            return Intensity(large_model, None, None, None)
        wholes = [sum((c * h**e for e, c in terms.items()), ZERO).coefficients(batch) for terms in (flops, accessed)]
        (f_degree, f_batch), (b_degree, b_batch) = (next(iter(whole.items())) for whole in wholes)
        large_batch = Ratio(f_batch, b_batch) * Ratio(symbol(batch) ** (f_degree - b_degree))
        work, moved = flops[top].coefficients(batch), accessed[below].coefficients(batch)
        following = self.second_order(below, accessed[below], accessed.get(below - 1, ZERO))
        per_batch = following.top.coefficients(batch).get(1)
        plain = top == below == self.degree and max(work) == 1 and max(moved) == 0 and per_batch is not None
        if not plain or per_batch is None:
            return Intensity(large_model, large_batch, None, None)
        per_parameter = Ratio(work[1], self.leading)
        activations = Ratio(per_batch, following.bottom) / per_parameter
        w = Term.of(activations, self.leading, Fraction(1, self.degree))
        return Intensity(
            large_model, large_batch, Ratio(moved[0], work[1]).reduced(), Term(w.coefficient, w.radicand, w.radical)
        )


class _Smooth:
    """Expressions without the opaque atoms in which the growth symbol is."""

    def __init__(self, growth: str, setting: Mapping[str, int]) -> None:
        self._growth = growth
        self._others = {name: value for name, value in setting.items() if name != growth}
        self._notes: dict[str, list[str]] = {}
        """What was simplified, with the totals in which it was."""
        self._total = ""

    def __call__(self, total: str, expr: Expr) -> Expr:
        self._total = total
        return self._smooth(expr)

    def said(self, totals: int) -> Iterator[str]:
        """Yield what was simplified, with where that was in few of so many totals."""
        for note, several in self._notes.items():
            yield note + (f" (in {', '.join(several)})" if len(several) < min(totals, _FEW) else "")

    def _smooth(self, expr: Expr) -> Expr:
        return with_atoms(expr, self._atom)

    def _note(self, note: str) -> None:
        several = self._notes.setdefault(note, [])
        several += [self._total] if self._total not in several else []

    def _atom(self, atom: Opaque) -> Expr | None:
        if not any(self._growth in argument.symbols for argument in atom.arguments):
            return None
        arguments, shown = [self._smooth(argument) for argument in atom.arguments], text(Expr({((atom, 1),): 1}))
        kind = KINDS[atom.name]
        leading = kind.leading(*arguments)
        if leading is not None:
            self._note(f"{shown} is taken as {text(leading)}")
            return leading
        if kind.choose:
            chosen = kind.choose(arguments, key=self._rank)
            others = ", ".join(f"{k}={v}" for k, v in self._others.items())
            self._note(
                f"the {atom.name} of {len(arguments)} expressions is {text(chosen)} for large {self._growth}"
                f" at {others}"
            )
            return chosen
        raise ExpressionError(f"{shown} has no leading term in {self._growth}")

    def _rank(self, expr: Expr) -> list[tuple[int, Fraction]]:
        terms = expr.subs(self._others).coefficients(self._growth)
        return [(degree, Fraction(c.value or 0)) for degree, c in terms.items()]
