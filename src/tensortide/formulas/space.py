"""Hyperparameters of a workload, and settings of them that are worth a capture: generic, distinct, legal."""

from __future__ import annotations

import contextlib
import copy
import difflib
import functools
import inspect
import itertools
import math
import random
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from tensortide.errors import WorkloadError
from tensortide.expr import Compiled, Condition, Expr, compiled, parse, parse_condition, symbol
from tensortide.expr.show import text

Scalar: TypeAlias = str | int | float | bool | None
Setting: TypeAlias = dict[str, int]
Assumed: TypeAlias = bool | int | float | Expr
"""A value that a line reads, or the number of elements that it selects; in hyperparameters, if it is an expression."""

SMALL = 16
"""Up to this default a hyperparameter may be a number of repeated parts: it gets small values."""
_TRIES = 600
"""Settings to draw before the search for one that the conditions allow is given up."""
_MULTIPLES = 2000
"""Values of a hyperparameter to try for one that meets an equation."""
_NEAREST = 3
"""Values next to a drawn one to choose from that divide as they should."""
_MANY = 10_000
"""Values of a hyperparameter to try before its conditions are said to contradict each other."""
_FARTHEST = 1 << 20
"""The same where an equation holds in one range of values, whose ends are found by bisection."""
_POWER, _LARGEST_UNIT = 32, 1 << 20
"""The largest power of two that sizes are multiples of, and the largest number."""
_PRIMES = tuple(n for n in range(2, 8000) if all(n % d for d in range(2, math.isqrt(n) + 1)))


class Space:
    """The values that the hyperparameters ``over`` may take while the others stay as they are.

    ``where`` are conditions that every legal setting meets (``hidden % heads == 0``), ``values`` the candidates of
    single hyperparameters. Both come on top of what the workload itself declares in attributes of these names.
    ``assume`` gives values, or numbers of selected elements, by line.
    Raises WorkloadError for a name that is no integer hyperparameter of the workload.
    """

    def __init__(
        self,
        workload: Callable[..., Any],
        over: Sequence[str],
        settings: Mapping[str, Scalar],
        where: Sequence[str] = (),
        values: Mapping[str, Sequence[int]] | None = None,
        assume: Mapping[str, Assumed] | None = None,
    ) -> None:
        known = {
            name: parameter.default
            for name, parameter in inspect.signature(workload).parameters.items()
            if parameter.default is not parameter.empty
        } | dict(settings)
        self.all: dict[str, int] = {name: value for name, value in known.items() if type(value) is int}
        self.over = tuple(dict.fromkeys(over))
        for name in self.over:
            if name not in self.all:
                raise WorkloadError(_no_symbol(name, known, self.all))
        self.defaults: Setting = {name: self.all[name] for name in self.over}
        _check_values(values or {}, known, self.all)
        self.values = {**getattr(workload, "values", {}), **(values or {})}
        asked = [parse_condition(text) for text in where]
        self.where = [*map(parse_condition, getattr(workload, "where", ())), *asked]
        for said, condition in zip(where, asked, strict=True):
            self._check_condition(said, condition, known)
        self._assume = dict(assume or {})
        for place, name in unknown_names(self._assume, self.all):
            raise WorkloadError(f"what is assumed at {place}: {_no_symbol(name, known, self.all)}")
        self.turns: dict[str, Expr] = {}
        """Expressions that count repetitions, by the names of the hyperparameters that stand for them."""
        self.quotients: dict[tuple[Expr, Expr], None] = {}
        """Divisors and what the workload's code divided by them, rounding down."""
        self.sides: list[Condition] = []
        """Conditions that keep settings on the side of a threshold on which formulas are looked for."""
        self.sizes: frozenset[str] = frozenset()
        """The hyperparameters that are known to change sizes only: a small default of theirs may take large values."""
        self.careful = False
        """True: values are multiples of what divides the default, or the default itself, as legal ones may have to be
        where a refusal does not say why."""
        self.blocked: Counter[Condition] = Counter()
        """How often a condition excluded a drawn setting."""
        self._random = random.Random(0)

    def assumed(self, setting: Mapping[str, int]) -> dict[str, bool | int | float]:
        """Values assumed at a setting, by line."""
        return assumed(self._assume, {**self.all, **setting})

    def assumed_sizes(self, structure: Mapping[str, int]) -> list[Expr]:
        """Assumptions that are expressions, in the hyperparameters that vary at a structure."""
        held = {name: value for name, value in self.all.items() if name not in self.over} | dict(structure)
        return [value.subs(held) for value in self._assume.values() if isinstance(value, Expr)]

    def _check_condition(self, said: str, condition: Condition, known: Mapping[str, Scalar]) -> None:
        """Raise WorkloadError for a condition on what is no integer hyperparameter, and one that the defaults fail."""
        for name in sorted(condition.expr.symbols - self.all.keys()):
            raise WorkloadError(f"condition {said!r}: {_no_symbol(name, known, self.all)}")
        if self.at(condition, {}) is False:
            names = sorted(condition.expr.symbols)
            here = ", ".join(f"{name}={self.all[name]}" for name in names)
            settings = " ".join(f"--set {name}=..." for name in names)
            asked = [c for c in self.where if c.expr.symbols == {*names}]
            if len(names) == 1 and len(asked) > 1 and not self._met_by_any(asked, names[0]):
                every = " and ".join(map(str, asked))
                raise WorkloadError(f"the conditions contradict each other: found no {names[0]} that meets {every}")
            raise WorkloadError(f"{here} does not meet the condition {said!r}: set values that do, {settings}")

    def _met_by_any(self, conditions: Sequence[Condition], name: str) -> bool:
        """Return whether some value of a hyperparameter meets all conditions on it: small ones, or beyond a bound."""
        ends = {1, *(abs(math.floor(condition.expr.terms.get((), 0))) for condition in conditions)}
        values = itertools.chain.from_iterable(range(max(1, end - 1), end + _MANY) for end in sorted(ends))
        return any(all(self.at(condition, {name: value}) for condition in conditions) for value in values)

    def beyond(self, condition: Condition, setting: Mapping[str, int]) -> Space:
        """The space of what meets a condition too; defaults of what it speaks of are values of ``setting``."""
        moved = {name: setting[name] for name in condition.expr.symbols & setting.keys()}
        return self._other({**self.all, **moved}, self.over, [condition])

    def counting(self, expr: Expr) -> Space:
        """The space with the value of ``expr``, which counts repetitions, as one more hyperparameter."""
        name = text(expr)
        known = {**self.all, name: expr.evaluate(self.all)}
        other = self._other(known, (*self.over, name), [Condition(expr - symbol(name), "==")])
        other.turns = {**self.turns, name: expr}
        return other

    def holding(self, names: Container[str]) -> Space:
        """The space with the hyperparameters ``names`` at their defaults."""
        return self._other(self.all, tuple(name for name in self.over if name not in names), [])

    def _other(self, known: dict[str, int], over: tuple[str, ...], conditions: Sequence[Condition]) -> Space:
        """A space with these hyperparameters and more conditions, in which nothing is known about sizes yet."""
        other = copy.copy(self)
        other.all, other.over, other.defaults = known, over, {name: known[name] for name in over}
        other.where, other.sides, other.sizes = [*self.where, *conditions], [], frozenset()
        other.careful, other.blocked = False, Counter()
        other._random = random.Random(0)
        return other

    @property
    def divisors(self) -> list[tuple[Expr, Expr]]:
        """The pairs of a divisor and what it is known to divide."""
        return [found for condition in self.where if (found := condition.divisor) is not None]

    @property
    def tied(self) -> frozenset[str]:
        """The hyperparameters in equations, which others may leave one value only."""
        equal = [c for c in self.where if c.relation == "==" and c.divisor is None]
        return frozenset(name for condition in equal for name in condition.expr.symbols)

    def allows(self, setting: Mapping[str, int]) -> bool:
        """Return whether the known conditions hold at ``setting`` and its values are declared ones or defaults."""
        undeclared = [n for n, values in self.values.items() if setting.get(n, values[0]) not in (*values, self.all[n])]
        return not undeclared and self._violated(setting, self.where) is None

    def meets(self, setting: Mapping[str, int], conditions: Sequence[Condition]) -> bool:
        """Return whether ``setting`` is allowed and violates none of further conditions."""
        return self.allows(setting) and self._violated(setting, conditions) is None

    def beside(self, setting: Mapping[str, int]) -> bool:
        """Return whether a setting is on the side of all thresholds on which formulas are looked for."""
        return self._violated(setting, self.sides) is None

    def at(self, condition: Condition, setting: Mapping[str, int]) -> bool | None:
        """Return whether a condition holds at ``setting``; None if it is in other symbols, or has no value there."""
        value = self.value(condition.expr, setting)
        return None if value is None else condition.holds(value)

    def value(self, expr: Expr, setting: Mapping[str, int]) -> int | None:
        """The value of an expression at ``setting``; None if it is in other symbols, or has none there."""
        function, full = _function(expr), {**self.all, **setting}
        if not all(name in full for name in function.symbols):  # expr.symbols would be derived anew each time
            return None
        try:
            return function(full)[0]
        except ArithmeticError:
            return None

    def _violated(self, setting: Mapping[str, int], conditions: Sequence[Condition]) -> Condition | None:
        return next((condition for condition in conditions if self.at(condition, setting) is False), None)

    def draws(self, vary: Sequence[str], fixed: Mapping[str, int], large: bool = False) -> Iterator[Setting]:
        """Settings in which the hyperparameters ``vary`` take generic values: smaller than their defaults, unless
        ``large``; other magnitudes follow. The first ones are distinct."""
        reaches = itertools.cycle((0, 1, 2, 4, 3) if large else (5, 4, 4, 3, 2, 1, 0))
        for tried, reach in enumerate(itertools.islice(reaches, _TRIES)):
            setting = dict(fixed)
            for name in self.ordered(vary):
                setting[name] = self._random.choice(self.candidates(name, setting, reach))
            bound = self.bind(setting, vary)
            apart = [setting[n] for n in vary if n not in bound and (tried < _TRIES // 3 or self.all[n] > SMALL)]
            if len(set(apart)) < len(apart):
                continue
            if tried < _TRIES // 2 and self.undivided(setting):
                continue
            violated = self._violated(setting, [*self.where, *self.sides])
            if violated is None:
                yield {name: setting[name] for name in self.over}
            else:
                self.blocked[violated] += 1

    def undivided(self, setting: Mapping[str, int]) -> bool:
        """Return whether a quotient is 1 or 0 that is larger in the workload's own setting."""
        small = (Condition(2 * d - n, ">") for d, n in dict.fromkeys([*self.divisors, *self.quotients]))
        return any(self.at(condition, setting) and not self.at(condition, {}) for condition in small)

    def bind(self, setting: Setting, vary: Sequence[str]) -> set[str]:
        """Give hyperparameters the values that equations among the conditions leave them: the names of these."""
        bound: set[str] = set()
        for condition in self.where:
            divided = condition.divisor
            if condition.relation != "==" or (divided and not divided[0].symbols & divided[1].symbols):
                continue
            names = [name for name in vary if name in condition.expr.symbols - self.turns.keys() and name not in bound]
            for name in self._random.sample(names, len(names)):
                unit = self.unit(name, setting)
                values = self._meeting(condition, setting, name, unit)
                if values and divided:
                    values = sorted(values, key=lambda value: abs(value - setting[name]))[:_NEAREST]
                if values:
                    setting[name] = self._random.choice(values)
                    bound.add(name)
                    break
        return bound

    def _meeting(self, condition: Condition, setting: Mapping[str, int], name: str, unit: int) -> Sequence[int]:
        """Multiples of ``unit`` at which an equation holds, not far apart if its sides cross once, else small ones."""
        function, full = _function(condition.expr), {**self.all, **setting}

        def difference(number: int) -> int:
            return function({**full, name: unit * number})[0]

        with contextlib.suppress(ArithmeticError):
            ends = [difference(1), difference(_FARTHEST)]
            up = 1 if ends[0] <= ends[1] else -1
            first = bisect_left(range(1, _FARTHEST), 0, key=lambda n: up * difference(n)) + 1
            last = bisect_right(range(1, _FARTHEST), 0, key=lambda n: up * difference(n))
            if condition.divisor is None and first <= last and not difference(first) and not difference(last):
                # where any larger value meets it too, as a minimum does, as many repetitions take long to capture
                return range(unit * first, unit * min(last, 2 * first + SMALL) + 1, unit)

        def met(number: int) -> bool:
            try:
                return condition.holds(difference(number))
            except ArithmeticError:
                return False

        return [unit * n for n in range(1, _MULTIPLES) if met(n)]

    def candidates(self, name: str, setting: Mapping[str, int], reach: int) -> list[int]:
        """Values of ``name`` from its default divided by 2**reach on, given those that are chosen already."""
        if name in self.values:
            return [value for value in self.values[name] if value > 1] or list(self.values[name])
        unit, default = self.unit(name, setting), self.all[name]
        if default > SMALL or name in self.sizes:
            few = 12 if reach < 4 else 3 if reach == 4 or default > SMALL else 6
            lowest = max(3, -(-(default >> reach) // unit))
            first = next(i for i, prime in enumerate(_PRIMES) if prime >= min(lowest, 4000))
            found = [unit * prime for prime in _PRIMES[first : first + few]]
        else:
            few = 12 if reach < 4 else 3
            # at its divisor itself nothing is divided
            found = list(range(2 * unit, max(4, default, 3 * unit) + 1, unit))[:few]
        return [*found, *[default] * len(found)] if self.careful else found

    def steps(self, name: str) -> Iterator[int]:
        """Small values of ``name`` in order, for hyperparameters that change the structure."""
        if name in self.values:
            yield from sorted(self.values[name])
        else:
            yield from itertools.count(2)

    def ordered(self, names: Sequence[str]) -> list[str]:
        """Divisors before what they divide."""
        divided = {next(iter(n.symbols), "") for _, n in self.divisors}
        return sorted(names, key=lambda name: (name in divided, self.all[name], name))

    def unit(self, name: str, setting: Mapping[str, int]) -> int:
        """Return the number that values of a hyperparameter are multiples of: of what is known to divide it, and, with
        care, of all other hyperparameters and small powers of two that divide its default."""
        default, current = self.all[name], {**self.all, **setting}
        known = [d for d, n in self.divisors if n == symbol(name) and d.symbols <= current.keys() - {name}]
        least = math.lcm(*(d.evaluate(current) for d in known))
        if not self.careful or default <= SMALL:
            return least
        divisors = [current[n] for n, v in self.all.items() if n != name and 1 < v < default and default % v == 0]
        return min(math.lcm(least, *divisors, min(default & -default, _POWER)), _LARGEST_UNIT)


def assumed(assume: Mapping[str, Assumed], setting: Mapping[str, int]) -> dict[str, bool | int | float]:
    """Values assumed at a full setting, by line. Raises WorkloadError where an expression is no whole number."""
    values = {}
    for place, value in assume.items():
        try:
            values[place] = value.evaluate(setting) if isinstance(value, Expr) else value
        except ArithmeticError as error:
            raise WorkloadError(f"what is assumed at {place} must be whole: floor(...). {error}") from None
    return values


def parsed(assume: Mapping[str, Assumed | str] | None) -> dict[str, Assumed]:
    """Assumptions by line, texts as expressions."""
    return {place: parse(value) if isinstance(value, str) else value for place, value in (assume or {}).items()}


def unknown_names(assume: Mapping[str, Assumed], known: Container[str]) -> Iterator[tuple[str, str]]:
    """The symbols of what is assumed that are no hyperparameters, each with its line."""
    exprs = ((place, value) for place, value in assume.items() if isinstance(value, Expr))
    return ((place, name) for place, expr in exprs for name in sorted(expr.symbols) if name not in known)


def _check_values(
    values: Mapping[str, Sequence[int]], known: Mapping[str, Scalar], integers: Mapping[str, int]
) -> None:
    """Raise WorkloadError for values of what is no integer hyperparameter, none at all, and one below 1."""
    for name, several in values.items():
        if name not in integers:
            raise WorkloadError(f"values of {name}: {_no_symbol(name, known, integers)}")
        if not several or min(several) < 1:
            raise WorkloadError(
                f"values of {name} must be positive integers, not {', '.join(map(str, several)) or 'none'}"
            )


@functools.lru_cache(maxsize=1024)
def _function(expr: Expr) -> Compiled:
    """An expression to be evaluated at many settings."""
    return compiled([expr])


def _no_symbol(name: str, known: Mapping[str, Scalar], integers: Mapping[str, int]) -> str:
    if name in known:
        kind = type(known[name]).__name__
        return f"{name} is a {kind} ({known[name]!r}): only hyperparameters that are integers can be symbols"
    near = difflib.get_close_matches(name, integers, n=1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    listed = ", ".join(integers) or "none"
    return f"there is no hyperparameter {name!r} with a default{hint}; integers are: {listed}"
