"""The hyperparameters of a workload, and settings of them that are worth a capture: generic, distinct, legal."""

from __future__ import annotations

import inspect
import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from tensortide.errors import WorkloadError
from tensortide.expr import Condition, parse_condition, symbol

__all__ = ["SMALL", "Scalar", "Setting", "Space"]

Scalar: TypeAlias = str | int | float | bool | None
Setting: TypeAlias = dict[str, int]

_TRIES = 600
"""Settings to draw before the search for one that the conditions allow is given up."""
SMALL = 16
"""Up to this default a hyperparameter may be a number of repeated parts: it gets small values."""
_PRIMES = tuple(n for n in range(2, 8000) if all(n % d for d in range(2, math.isqrt(n) + 1)))


class Space:
    """The values that the hyperparameters ``over`` may take while the others stay as they are.

    ``where`` are conditions that every legal setting meets (``hidden % heads == 0``), ``values`` the candidates of
    single hyperparameters. Both come on top of what the workload itself declares in attributes of these names.
    Raises WorkloadError for a name that is no integer hyperparameter of the workload.
    """

    def __init__(
        self,
        workload: Callable[..., Any],
        over: Sequence[str],
        settings: Mapping[str, Scalar],
        where: Sequence[str] = (),
        values: Mapping[str, Sequence[int]] | None = None,
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
        self.values = {**getattr(workload, "values", {}), **(values or {})}
        self.where = [parse_condition(text) for text in (*getattr(workload, "where", ()), *where)]
        self.units: dict[str, int] = dict.fromkeys(self.over, 0)
        """How careful the values of each hyperparameter are: 0 primes, 1 multiples of what divides the default among
        the other hyperparameters, 2 also of its powers of two, 3 of 1024, or the default itself."""
        self.divisors = [found for condition in self.where if (found := condition.divisor) is not None]
        """What is declared to divide what."""
        self.blocked: Counter[str] = Counter()
        """How often a declared condition on each hyperparameter excluded a drawn setting."""
        self.related: dict[str, set[str]] = {}
        """For a hyperparameter, those that the workload named when it refused a value: what may have to divide it."""
        self._random = random.Random(0)

    def allows(self, setting: Mapping[str, int]) -> bool:
        """Return whether the declared conditions hold at ``setting`` and its values are declared ones or defaults."""
        undeclared = [n for n, values in self.values.items() if setting.get(n, values[0]) not in (*values, self.all[n])]
        return not undeclared and not self._violated(setting)

    def _violated(self, setting: Mapping[str, int]) -> Condition | None:
        """The first declared condition that excludes ``setting``."""
        full = {**self.all, **setting}
        for condition in self.where:
            if condition.expr.symbols <= full.keys() and not condition.holds(condition.expr.evaluate(full)):
                return condition
        return None

    def draws(self, vary: Sequence[str], fixed: Mapping[str, int], large: bool = False) -> Iterator[Setting]:
        """Settings in which the hyperparameters ``vary`` take generic values: smaller than their defaults, unless
        ``large``; other magnitudes follow."""
        for reach in itertools.islice(itertools.cycle((0, 1, 2, 4, 3) if large else (5, 4, 4, 3, 2, 1, 0)), _TRIES):
            setting = dict(fixed)
            for name in self._ordered(vary):
                setting[name] = self._random.choice(self.candidates(name, setting, reach))
            chosen = [setting[name] for name in vary]
            if len(set(chosen)) < len(chosen):
                continue
            violated = self._violated(setting)
            if violated is None:
                yield {name: setting[name] for name in self.over}
            else:
                self.blocked.update(violated.expr.symbols)

    def candidates(self, name: str, setting: Mapping[str, int], reach: int) -> list[int]:
        """Values of ``name`` from its default divided by 2**reach on, given those that are chosen already."""
        if name in self.values:
            return list(self.values[name])
        unit, default = self._unit(name, setting), self.all[name]
        few = 12 if reach < 4 else 3 if reach == 4 or default > SMALL else 1
        if default <= SMALL:
            found = [n for n in range(unit, max(4, default) + 1, unit) if n >= 2][:few] or [default]
        else:
            lowest = max(3, -(-(default >> reach) // unit))
            first = next(i for i, prime in enumerate(_PRIMES) if prime >= min(lowest, 4000))
            found = [unit * prime for prime in _PRIMES[first : first + few]]
        return found if self.units[name] < 3 else [*found, *[default] * len(found)]

    def steps(self, name: str) -> Iterator[int]:
        """Small values of ``name`` in order, for hyperparameters that change the structure."""
        if name in self.values:
            yield from sorted(self.values[name])
        else:
            yield from itertools.count(2)

    def _ordered(self, names: Sequence[str]) -> list[str]:
        """Divisors before what they divide."""
        divided = {next(iter(n.symbols), "") for _, n in self.divisors}
        return sorted(names, key=lambda name: (name in divided, self.all[name], name))

    def _unit(self, name: str, setting: Mapping[str, int]) -> int:
        """Return the number that values of a hyperparameter must be multiples of; it grows with the care taken."""
        level, default = self.units.get(name, 0), self.all[name]
        current = {**self.all, **setting}
        declared = [d for d, n in self.divisors if n == symbol(name) and d.symbols <= current.keys()]
        least = math.lcm(*(d.evaluate(current) for d in declared))
        if not level:
            return least
        divisors = [n for n, v in self.all.items() if n != name and 1 < v < default and default % v == 0]
        named = [n for n in divisors if n in self.related.get(name, ())]
        unit = math.lcm(least, *(current[n] for n in (named if named or default <= SMALL else divisors)))
        if level > 1 and default > SMALL:
            unit = math.lcm(unit, min(default & -default, 32) if level == 2 else 1024)
        return min(unit, 1 << 20)


def _no_symbol(name: str, known: Mapping[str, Scalar], integers: Mapping[str, int]) -> str:
    if name in known:
        kind = type(known[name]).__name__
        return f"{name} is a {kind} ({known[name]!r}): only hyperparameters that are integers can be symbols"
    return f"there is no hyperparameter {name!r} with a default; integers are: {', '.join(integers) or 'none'}"
