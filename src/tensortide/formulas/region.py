"""Region in which formulas hold: the conditions that they rely on, without those that always hold."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

from tensortide.expr import Condition, Expr, constant, expr_of, nonnegative, symbol
from tensortide.expr.atoms import is_exponential, replaced
from tensortide.expr.expr import Coefficient, Number, Opaque, common, content, denominator
from tensortide.expr.floors import FLOOR, floor, given_whole
from tensortide.expr.floors import quotients as quotients_of
from tensortide.formulas.crossing import rises
from tensortide.graph.model import Graph


def sizes(graph: Graph) -> frozenset[Expr]:
    """Dimensions and numbers of elements of the graph's tensors: all at least 1."""
    shapes = {tuple([expr_of(size) for size in tensor.shape]) for tensor in graph.tensors}
    return frozenset(size for shape in shapes for size in (*shape, math.prod(shape, start=constant(1))))


def quotients(known: Iterable[Expr]) -> tuple[Expr, ...]:
    """The single terms with a division among sizes: ``hidden/heads``, ``image/16``. All are whole numbers."""
    found = [e for e in known if len(e.terms) == 1 and denominator(e) != 1 and not _opaque(e)]
    return tuple(sorted(found, key=lambda e: (-_denominator(e), len(str(e)), str(e))))


def divisible(terms: Sequence[Expr]) -> list[Condition]:
    """Conditions that the quotients are whole; one that follows from another is left out."""
    kept: list[Expr] = []
    for term in sorted(terms, key=lambda e: (len(next(iter(e.terms))), -_denominator(e), str(e))):
        with given_whole(kept):
            if floor(term) != term:
                kept.append(term)
    return [Condition((term * denominator(term)) % denominator(term), "==") for term in kept]


def simplified(
    asked: Iterable[Condition],
    lowest: Mapping[str, int],
    positive: frozenset[Expr],
    holding: Sequence[Mapping[str, int]],
) -> tuple[Condition, ...]:
    """``asked`` without what is certain, where symbols are at least ``lowest`` and ``positive`` sizes at least 1,
    and without what is violated at a setting of ``holding``, where the formulas were right all the same."""
    positive = frozenset(map(primitive, positive))
    shift = {name: symbol(name) + (value - 1) for name, value in lowest.items() if value > 1}
    kept: dict[Condition, None] = {}
    for condition in asked:
        expr, relation = condition
        if not expr.terms or _certain(expr, relation, shift, positive):
            continue
        if all(_holds(condition, setting) for setting in holding):
            kept[Condition(primitive(expr), relation)] = None
    return tuple(kept)


def folded(conditions: Iterable[Condition], given: Sequence[Condition] = ()) -> tuple[Condition, ...]:
    """``conditions`` without those that follow from the others, or from ``given``: of ``hidden > 1024``, ``hidden > 1``
    and ``batch*hidden > 1`` the first is left. The order stays; ``floor(seq/4) >= 2`` becomes ``seq >= 8``."""
    kept = [c for c in dict.fromkeys(map(_unrounded, conditions)) if c not in given]
    kept = [c for c in kept if c.expr.terms or not c.holds(0)]
    for condition in sorted(kept, key=lambda one: (*_weakest_first(one), -kept.index(one))):
        others = [other for other in (*kept, *given) if other is not condition]
        if any(_implies(other, condition) for other in others) or follows(condition, lowest_of(others)):
            kept = [other for other in kept if other is not condition]
    return tuple(kept)


def _weakest_first(condition: Condition) -> tuple[bool, int, Fraction]:
    """The order in which conditions are tried: of those that follow from each other the last one is left."""
    number = Fraction((_at_least_zero(condition) or condition.expr).terms.get((), 0))
    return condition.relation == "==", -len(condition.expr.symbols), -number


def lowest_of(conditions: Iterable[Condition]) -> dict[str, int]:
    """The least values of single symbols that the conditions leave, and of exact quotients, by their text."""
    lowest: dict[str, int] = {}
    for condition in conditions:
        for by, of in filter(None, [condition.divisor]):  # what divides is no larger
            lowest |= {repr(atom): 1 for atom in (of // by).atoms}
            if isinstance(by.value, int) and of in map(symbol, of.symbols):
                lowest[min(of.symbols)] = max(lowest.get(min(of.symbols), 1), by.value)
        expr = _at_least_zero(condition)
        if expr is None or len(expr.symbols) != 1:
            continue
        (name,) = expr.symbols
        number, times = expr.terms.get((), 0), expr.terms.get(((name, 1),), 0)
        if times > 0 and expr == symbol(name) * times + number:
            lowest[name] = max(lowest.get(name, 1), math.ceil(-Fraction(number) / times))
    return lowest


def _at_least_zero(condition: Condition) -> Expr | None:
    """The whole-numbered expression that is at least 0 where an inequality holds."""
    expr, relation = condition
    if relation not in (">=", ">") or not expr.terms:
        return None
    expr = expr * denominator(expr)
    return expr - 1 if relation == ">" else expr


def follows(condition: Condition, lowest: Mapping[str, int]) -> bool:
    """Return whether the least values of the symbols, and those of roundings that never fall, make it certain."""
    expr = _at_least_zero(condition)
    if expr is None:
        return False
    if nonnegative(_floor_bound(expr)):
        return True
    rounded = {atom: least for atom in expr.atoms if isinstance(atom, Opaque) and (least := least_of(atom, lowest)) > 0}
    names = {atom: symbol(repr(atom)) for atom in rounded}
    shift = {name: symbol(name) + (value - 1) for name, value in lowest.items() if value > 1}
    shift |= {repr(atom): symbol(repr(atom)) + (least - 1) for atom, least in rounded.items()}
    expr = replaced(expr, names)
    return nonnegative(expr.subs(shift) if shift else expr)


def _floor_bound(expr: Expr) -> Expr:
    """An expression that is nowhere larger, with less rounding: ``b*floor(a/b)`` is at most ``a``, and at least
    ``a - b + 1``."""
    result = constant(0)
    for monomial, coefficient in expr.terms.items():
        term = Expr({monomial: coefficient})
        rounded = [atom for atom, _ in monomial if isinstance(atom, Opaque)]
        if len(rounded) == 1 and rounded[0].name == FLOOR:
            top, by = rounded[0].arguments
            times = (term / Expr({((rounded[0], 1),): 1})).divided(by)
            if times is not None and denominator(times) == 1 and not _opaque(times) and nonnegative(by - 1):
                term = times * (top - by + 1) if nonnegative(times) else times * top if nonnegative(-times) else term
        result = result + term
    return result


def least_of(atom: Opaque, lowest: Mapping[str, int]) -> int:
    """The least value of a rounding that never falls as a symbol grows, or is known; 0 for others."""
    expr = Expr({((atom, 1),): 1})
    if is_exponential(atom) or not all(rises(expr, name) for name in expr.symbols):
        return lowest.get(repr(atom), 0)
    least = value_of(expr, {name: lowest.get(name, 1) for name in expr.symbols})
    return lowest.get(repr(atom), 0) if least is None else math.floor(least)


def _unrounded(condition: Condition) -> Condition:
    """A bound of a quotient that is rounded down, as one of what is divided: ``seq >= 8`` for ``floor(seq/4) >= 2``.
    A condition on a remainder as one that it is 0 or not."""
    if (remainder := of_remainder(condition)) is not None:
        return remainder
    expr = _at_least_zero(condition)
    if expr is None:
        return condition
    number = expr.terms.get((), 0)
    for sign in (1, -1):
        rounded = sign * (expr - number)
        for top, by in quotients_of(rounded):
            if isinstance(by.value, int) and by.value > 0 and rounded == top // by:
                return Condition(top + number * by if sign > 0 else by * (number + 1) - 1 - top, ">=")
    return condition


def of_remainder(condition: Condition) -> Condition | None:
    """A condition on the remainder of a size as one that it is 0, or that it is not: ``pad != 0`` for ``pad > 0``. None
    for others."""
    expr, relation = condition
    divided = Condition(expr, "==").divisor
    if divided is None or not divided[1].symbols:
        return None
    by, of = divided
    upward = expr in (of % by, -of % by)
    is_zero = {"==": True, "!=": False, ">": False if upward else None, ">=": None if upward else True}[relation]
    return None if is_zero is None else Condition(of % by, "==" if is_zero else "!=")


def _implies(known: Condition, condition: Condition) -> bool:
    """Return whether one condition provably holds wherever another does."""
    if known.divisor and condition.divisor:
        (by, of), (smaller, same) = known.divisor, condition.divisor
        times = by.divided(smaller)
        return of == same and by != smaller and times is not None and denominator(times) == 1
    if known != condition and (only := _only_value(known)):
        left = value_of(condition.expr, only)
        return left is not None and condition.holds(left)
    strong, weak = _at_least_zero(known), _at_least_zero(condition)
    if strong is None or weak is None or known == condition:
        return False
    shared = [(weak.terms[m], c) for m, c in strong.terms.items() if m and m in weak.terms]
    factors = {Fraction(a) / Fraction(b) for a, b in shared if (a > 0) == (b > 0)}
    return any(nonnegative(weak - strong * factor) for factor in factors)


def _only_value(condition: Condition) -> dict[str, Expr]:
    """The one value that an equation leaves a symbol, by its name; nothing for other conditions."""
    expr, relation = condition
    if relation != "==" or len(expr.symbols) != 1:
        return {}
    (name,) = expr.symbols
    rest = expr - symbol(name)
    return {name: -rest} if rest.value is not None else {}


def _certain(expr: Expr, relation: str, shift: Mapping[str, Expr], positive: frozenset[Expr]) -> bool:
    if relation == "==":
        return False
    if _positive(expr, positive) or (relation == "!=" and _positive(-expr, positive)):
        return True
    if relation == ">=" and _positive(primitive(expr) + 1, positive):
        return True
    number = expr.terms.get((), 0)
    if number > 0 and _positive(expr - constant(number), positive):
        return True
    reduced = primitive(expr).subs(shift) if shift else primitive(expr)
    if relation == ">=":
        return nonnegative(reduced)
    if nonnegative(reduced - 1):
        return True
    return relation == "!=" and nonnegative(-reduced - 1)


def _positive(expr: Expr, positive: frozenset[Expr]) -> bool:
    """Return whether the expression is a size, or a product of symbols and sizes."""
    if primitive(expr) in positive:
        return True
    if len(expr.terms) != 1:
        return False
    ((monomial, coefficient),) = expr.terms.items()
    atoms = (Expr({((atom, 1),): 1}) for atom, _ in monomial if not isinstance(atom, str))
    return coefficient > 0 and all(atom in positive for atom in atoms)


def _holds(condition: Condition, setting: Mapping[str, int]) -> bool:
    if not condition.expr.symbols <= setting.keys():
        return True
    value = value_of(condition.expr, setting)
    return value is None or condition.holds(value)


def value_of(expr: Expr, setting: Mapping[str, Number]) -> Coefficient | None:
    """The value of an expression; None if it has none at a setting, as a quotient of quotients may at sizes of 1."""
    try:
        return expr.subs(setting).value
    except ArithmeticError:
        return None


def primitive(expr: Expr) -> Expr:
    """The expression without its constant factor and common powers of symbols, which are positive."""
    if len(expr.terms) < 2:
        return _single(expr)
    positive = tuple(power for power in common(expr) if isinstance(power[0], str))
    return expr / Expr({positive: content(expr)})


def _single(expr: Expr) -> Expr:
    return expr / abs(Fraction(next(iter(expr.terms.values())))) if expr.terms else expr


def _opaque(expr: Expr) -> bool:
    return any(not isinstance(atom, str) for atom in expr.atoms)


def _denominator(expr: Expr) -> int:
    return max(Fraction(c).denominator for c in expr.terms.values())
