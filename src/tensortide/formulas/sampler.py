"""Hyperparameters of a workload, settings of them that are worth a capture (generic, distinct, legal), and captures:
each once, illegal settings skipped and remembered.
"""

from __future__ import annotations

import inspect
import itertools
import math
import random
import re
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

from tensortide.cost import Count, count
from tensortide.cost.evaluate import Resolver
from tensortide.errors import TensortideError, WorkloadError
from tensortide.expr import Condition, parse_condition, symbol
from tensortide.formulas.lift import Skeleton, skeleton
from tensortide.graph.model import Graph
from tensortide.plans.order.minimal import MinimalFootprint, footprint
from tensortide.recorder import capture

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


_DRAWS = 8
"""Settings to try before their values are chosen with more care; fewer if all refusals name a hyperparameter."""

_LAST_DRAWS = 60
"""Settings to try when they are chosen with all care."""

_LARGEST_BYTES = 1 << 44
"""A sample with a larger storage is not used: sums of its bytes might not fit the arrays of a timeline."""

_LITTLE_WORK = 50_000
"""Limit of the search for the least memory of a sample, in steps of about a microsecond."""


@dataclass(frozen=True)
class Sample:
    """One capture and where it was made."""

    setting: Setting
    graph: Graph
    resolver: Resolver | None = None

    @cached_property
    def skeleton(self) -> Skeleton:
        """Everything but the sizes."""
        return skeleton(self.graph)

    @cached_property
    def least(self) -> MinimalFootprint:
        """Bounds of the least memory of its storages under any order of its ops, found without a long search."""
        return footprint(self.graph, workspace=False, work=_LITTLE_WORK)

    @cached_property
    def count(self) -> Count:
        """Its costs."""
        return count(self.graph, resolver=self.resolver)


class Sampler:
    """Captures ``workload`` within ``space``; ``settings`` are the hyperparameters that stay as they are."""

    def __init__(
        self,
        workload: Callable[..., Any],
        space: Space,
        settings: Mapping[str, Scalar],
        *,
        name: str,
        resolver: Resolver | None,
        progress: Callable[[str], None],
    ) -> None:
        self.space = space
        self.illegal: dict[str, str] = {}
        self.captures = 0
        self._workload = workload
        self.settings = dict(settings)
        self.name = name
        self._resolver = resolver
        self._progress = progress
        self._samples: dict[tuple[int, ...], Sample | None] = {}

    @property
    def legal(self) -> list[Sample]:
        """All captures that there are."""
        return [sample for sample in self._samples.values() if sample is not None]

    def without(self, names: Container[str], samples: Sequence[Sample]) -> list[Sample]:
        """Hold the hyperparameters ``names`` at their defaults, as in ``samples``: of all captures these are kept."""
        over = self.space.over = tuple(name for name in self.space.over if name not in names)
        kept = [replace(sample, setting={name: sample.setting[name] for name in over}) for sample in samples]
        self._samples = {tuple(sample.setting.values()): sample for sample in kept}
        return kept

    def at(self, setting: Setting) -> Sample | None:
        """The capture at ``setting``; None if that is illegal: the workload refuses it or a condition excludes it."""
        key = tuple(setting[name] for name in self.space.over)
        if key not in self._samples:
            self._samples[key] = self._captured(setting) if self.space.allows(setting) else None
        return self._samples[key]

    def _captured(self, setting: Setting) -> Sample | None:
        self._progress(f"capturing at {shown(setting)}")
        self.captures += 1
        try:
            given = {**self.settings, **setting}
            graph = capture(self._workload, hyperparameters=given, real=False, name=self.name)
        except TensortideError as error:
            self.illegal[shown(setting)] = str(error).partition("\n")[0]
            return None
        if max((storage.nbytes for storage in graph.storages), default=0) >= _LARGEST_BYTES:
            self.illegal[shown(setting)] = "larger than is needed"
            return None
        return Sample(setting, graph, self._resolver)

    def generic(
        self,
        vary: Sequence[str],
        fixed: Mapping[str, int],
        known: Sequence[Sample] = (),
        *,
        large: bool = False,
        patient: bool = True,
    ) -> Sample | None:
        """A new legal sample with generic values of the hyperparameters ``vary``; None if none was found.

        Each of them differs from all ``known`` samples that have the ``fixed`` values too, while there are few. Unless
        ``patient``, no more than a few settings are tried.
        """
        seen = [sample.setting for sample in known]
        if not vary:
            sample = self.at({name: fixed[name] for name in self.space.over})
            return None if sample is None or sample.setting in seen else sample
        alike = [s for s in seen if all(s[name] == value for name, value in fixed.items() if name not in vary)][:3]
        before = dict(self.space.units)
        draws = _DRAWS if patient else 3
        while True:
            refused: Counter[str] = Counter()
            self.space.blocked.clear()
            drawn = self.space.draws(vary, fixed, large)
            # small hyperparameters have few legal values: they need not differ from every sample
            strict = [n for n in vary if len(alike) == 1 or self.space.all[n] > SMALL] if draws == _DRAWS else []
            fresh = (s for s in drawn if s not in seen and not any(s[n] == old[n] for old in alike for n in strict))
            for tries, setting in enumerate(itertools.islice(fresh, draws), 1):
                sample = self.at(setting)
                if sample is not None:
                    return sample
                refused.update(self._named(setting, vary))
                if tries == 3 and draws == _DRAWS and max(refused.values(), default=0) == 3:
                    break
            if not patient or draws == _LAST_DRAWS:
                self.space.units = before
                return None
            if not self._care_for(refused or self.space.blocked, vary):
                draws = _LAST_DRAWS

    def _named(self, setting: Setting, vary: Sequence[str]) -> list[str]:
        """The hyperparameters that the workload's refusal speaks of."""
        reason = self.illegal.get(shown(setting), "")
        named = {name for name in self.space.all if re.search(rf"\b{re.escape(name)}\b", reason)}
        for name in named:
            self.space.related.setdefault(name, set()).update(named)
        return [name for name in vary if name in named]

    def _care_for(self, refused: Counter[str], vary: Sequence[str]) -> bool:
        """Choose values of what was refused, else of everything, with more care. False if that is at its end."""
        units = self.space.units
        careless = [name for name in vary if units[name] < 3]
        for name in [name for name in careless if name in refused] or careless:
            units[name] += 1
        return bool(careless)

    def first(self, vary: Sequence[str], fixed: Mapping[str, int]) -> Sample:
        """As ``generic``. Raises WorkloadError if no legal setting was found."""
        sample = self.generic(vary, fixed)
        if sample is not None:
            return sample
        setting, reason = next(iter(self.illegal.items()), ("", "the conditions exclude all"))
        raise WorkloadError(
            f"found no legal setting of {', '.join(vary)} in {self.captures} captures; at {setting}: {reason}\n"
            "Say which are legal: --condition 'hidden % heads == 0' (in Python: where=)"
        )


def shown(setting: Mapping[str, int]) -> str:
    """A setting as text."""
    return ", ".join(f"{name}={value}" for name, value in setting.items())
